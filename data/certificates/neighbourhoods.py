"""What a check must cover: problems that hold every neighbourhood, or the neighbourhoods themselves."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CoveringProblems:
    """Short problems in which every neighbourhood occurs that a response token can have in a problem of any size.

    Attributes:
        count: number of problems.
        batches: their operands, (count, operands, width) digits with the ones first, and lengths (count, operands).
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[tuple[np.ndarray, np.ndarray]]
    argument: str


@dataclass(frozen=True)
class CoveringNeighbourhoods:
    """Every neighbourhood that a response token can have in a problem of any size, and the token that is right next.

    Every token also sees the `$` at the beginning; the keys see nothing else. A token's own column is not among its keys.

    Attributes:
        count: number of neighbourhoods.
        batches: (tokens, keys, relations, right): the token itself (count,); its keys (count, slots), `PAD` where there is
            none; the relation of each slot (slots,), a place in the coupling rule's list; the right next token (count,).
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    argument: str
