"""The token tables: one for all decoder tasks, one for all encoder tasks, the same at the beginning.

Every token is a single character, but for the three bracketed ones.

A digit's id is its value, so that arrays of digits are arrays of token ids. Index hints, which one format alone needs, stand
after all other tokens: a vocabulary is as much of the beginning of `ALL_TOKENS` as its tasks use.
"""

from typing import Final

TOKENS: Final[tuple[str, ...]] = (*"0123456789", *"+-*=>", "M", "_", "$", "<eos>", "<pad>", "<unk>")
"""The tokens of every vocabulary, and all of them for tasks without index hints."""

HINTS: Final[str] = "".join(map(chr, range(0x100, 0x100 + 202)))
"""Index hints, letters from the Unicode block Latin Extended-A on. As many as paper 1's `max_pos` (its public code)."""

ALL_TOKENS: Final[tuple[str, ...]] = (*TOKENS, *HINTS)

FIRST_HINT = len(TOKENS)
"""Id of the first hint; the others follow."""

PLUS, MINUS, TIMES, EQUALS, GREATER = (TOKENS.index(token) for token in "+-*=>")
MINE = TOKENS.index("M")
EMPTY_CELL = TOKENS.index("_")

BOS = TOKENS.index("$")
"""Begins every sequence and, unless a format asks for `SEPARATE_EOS`, ends it too (paper 1, Sec. 2)."""

SEPARATE_EOS = TOKENS.index("<eos>")
PAD = TOKENS.index("<pad>")
UNKNOWN = TOKENS.index("<unk>")

ENCODER_TOKENS: Final[tuple[str, ...]] = (*TOKENS, *"abcdefghijklmnopqrstuvwxyz")
"""The vocabulary of the encoder: after the common tokens, letters that stand for text around the numbers."""

FIRST_TEXT = len(TOKENS)
"""Id of the first letter; the others follow."""

FIELD_PAD = TOKENS.index("_")
"""Fills a number's field in the encoder's input on the left. An ordinary token: attended to, and predicted as a class."""

LABELS: Final[tuple[str, ...]] = (*"0123456789", "_")
"""Classes of the encoder's output; a digit's class is its value, the last one is the padding of a field."""

PAD_LABEL = LABELS.index("_")

CHARACTERS: Final[str] = "".join(token for token in TOKENS if len(token) == 1)
"""Every character that a text may hold, but for hints."""


def decode(token_ids) -> str:
    """The text of a sequence of token ids, padding left out; a token outside the table's characters shows as `<unk>`."""
    return "".join(ALL_TOKENS[token] for token in token_ids if token != PAD)
