"""The former place of `longhand.hub_cards.runs.recipes`, for scripts that import `write_recipe` from here."""

from longhand.hub_cards.runs.recipes import write_recipe

__all__ = ["write_recipe"]
