"""Training: arguments, the Trainer and the folder of a run."""
