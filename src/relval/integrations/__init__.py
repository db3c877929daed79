"""The relative critic inside other people's libraries."""
