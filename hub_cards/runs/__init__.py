"""Runs: arguments, recipes, and the loading of checkpoints."""
