"""Relative Value Learning: reinforcement learning with a critic of value differences."""

__version__ = "0.1.0.dev0"
