"""Publishing: cards, and pushes of models, datasets, the metric and the page to the Hub."""
