"""Evidence: what the theory predicts beside what is computed, and how fast."""
