"""Publishing: cards, and pushes of models, datasets and metrics to the Hub."""
