"""What a GPU does with this package: `python -m longhand.hub_cards.research gpu`, see `run`."""
