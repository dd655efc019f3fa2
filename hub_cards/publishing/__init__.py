"""Publishing: cards, and pushes of models, datasets and the metric to the Hub."""
