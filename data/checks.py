"""Checks of arguments that are asked for everywhere."""

from typing import Any

import numpy as np


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ValueError if a value is not an integer from `least` to `most`; True and False are no integers here."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):
        legal = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        given = f"{value:,}" if is_integer else repr(value)
        raise ValueError(f"{name} must be an integer {legal}, got {given}")
