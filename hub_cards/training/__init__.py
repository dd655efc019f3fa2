"""Training: arguments, recipes, the Trainer and the folder of a run."""
