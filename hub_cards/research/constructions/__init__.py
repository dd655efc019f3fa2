"""Theorems as checkpoints (paper 1, Theorems 5.1 and 6.1)."""
