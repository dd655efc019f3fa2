"""Which problems are drawn: seeded generators, and the split that a problem belongs to."""

# Used by: batches.py, builder.py, collator.py, lengths.py, data/proofs, data/tasks, hub_cards, hub_cards/evaluation,
# hub_cards/publishing, hub_cards/research/papers, hub_cards/research/theories, hub_cards/training. Changed freely.

import hashlib

import numpy as np

SPLITS = ("train", "validation", "test")


PARTITIONED_DIGITS = 18
"""Problems with at most this many digits, all operands together, are assigned to a split by a hash.

Longer problems are not: two splits of a million of them share a problem with a probability below 1e-6.
"""


_HELD_OUT_PART = 16
"""Of this many short problems, one is a validation problem and one is a test problem."""


def make_generator(*key: int | str) -> np.random.Generator:
    """A generator seeded by a hash of `key`, such as (seed, split, index). Neighbouring keys share nothing."""
    plain = tuple(part if isinstance(part, str) else int(part) for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def problem_keys(digits: np.ndarray, lengths: np.ndarray, partitioned_digits: int | None = PARTITIONED_DIGITS) -> np.ndarray:
    """A hash of each short problem. It is the same for every seed and format.

    Args:
        digits: (count, operands, width) uint8.
        lengths: (count, operands) digits.
        partitioned_digits: most digits of a short problem, all operands together; None if all are short.

    Returns:
        (count,) uint64; 0 for longer problems.
    """
    keys = np.zeros(len(digits), dtype=np.uint64)
    if partitioned_digits is None:
        partitioned_digits = int(lengths.sum(axis=1).max(initial=0))
    short = np.flatnonzero(lengths.sum(axis=1) <= partitioned_digits)
    if len(short) == 0:
        return keys
    operands = digits.shape[1]
    parts = np.concatenate(
        [lengths[short].astype(np.uint64), digits[short, :, :partitioned_digits].reshape(len(short), -1)], axis=1
    )
    columns = np.arange(parts.shape[1])
    # A digit's multiplier must depend on its place alone, not on how wide the array happens to be.
    width = min(digits.shape[2], partitioned_digits)
    offset = columns - operands
    place = np.where(columns < operands, columns, operands + offset % width * operands + offset // width)
    keys[short] = _mix((parts * _mix(place.astype(np.uint64))).sum(axis=1, dtype=np.uint64))
    return keys


def split_of(keys: np.ndarray) -> np.ndarray:
    """The split of each problem by its key, see `problem_keys`.

    Returns:
        (count,) index into `SPLITS`, or -1 for longer problems, which may be drawn in any.
    """
    part = keys % np.uint64(_HELD_OUT_PART)
    held_out = [keys == 0, part == 0, part == 1]
    return np.select(held_out, [-1, SPLITS.index("test"), SPLITS.index("validation")], 0).astype(np.int8)


def _mix(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al., 2014): scrambles 64-bit integers one to one."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
