"""Checks of arguments that are asked for everywhere."""

# Used by: numbers_in_text.py, data, data/tasks, hub_cards/checkpoints, hub_cards/publishing, hub_cards/research,
# hub_cards/research/structured, hub_cards/research/theories. Bound by: the digest of the code that travels with a
# checkpoint: run .ci/code.

import operator
from typing import SupportsIndex, TypeGuard

import torch


def check_integer(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise ValueError if a value is not an integer from `least` to `most`; True and False are no integers here."""
    legal = f"of at least {least}" if most is None else f"from {least} to {most:,}"
    if not is_integer(value):
        raise ValueError(f"{name} must be an integer {legal}, got {value!r}")
    number = operator.index(value)
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be an integer {legal}, got {number:,}")


def is_integer(value: object) -> TypeGuard[SupportsIndex]:
    """Whether a value is an integer of Python, numpy or torch; True and False are none."""
    # A truth value of numpy is no index; those of Python and torch are.
    if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
        return False
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
