"""What inputs are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from faults.attempts import Outcome
from faults.subjects import Subjects

ODD = yaml.safe_load(Path(__file__).with_name("odd.yaml").read_text(encoding="utf-8"))

Input = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A source of inputs.

    Attributes:
        make: makes an input, which JSON can hold.
        run: tries it, raises Finding, and returns how the attempt ended that matters most.
        share: how often it is tried beside others.
        words: name of a text or list in an input that can be shortened.
    """

    make: Callable[[np.random.Generator], Input]
    run: Callable[[Subjects, Input], Outcome]
    share: int
    words: str = ""


def choose(generator: np.random.Generator, *values: Any) -> Any:
    return values[int(generator.integers(len(values)))]


def draw_seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**31))


def number(generator: np.random.Generator, most: int = 30) -> str:
    return "".join(map(str, generator.integers(0, 10, size=generator.integers(1, most + 1))))


def draw_options(generator: np.random.Generator, options: dict[str, list], most: int) -> list[str]:
    """Words of a command line: some of the options, each with one of its values, a text or a list of texts."""
    words = []
    for name in generator.permutation(list(options))[: generator.integers(0, most + 1)]:
        value = choose(generator, *options[str(name)])
        words += [f"--{name}", *(value if isinstance(value, list) else [value])]
    return words
