"""The token tables: one for all decoder tasks and one for all encoder tasks, which begin with the same tokens.

Every token is a single character, except the three bracketed tokens. A digit's id is its value, so arrays of digits are
arrays of token ids. The sign of division and index hints, which few formats need, follow all other tokens: the vocabulary
of a task is `ALL_TOKENS` up to the last token that it uses.
"""

# Used by: modeling, data, data/machines, data/proofs, data/proofs/lengths, data/proofs/windows, data/tasks,
# hub_cards/publishing, hub_cards/research/structured, hub_cards/research/theories. Bound by: the digest of the code that
# travels with a checkpoint: run .ci/code.

from typing import Final

TOKENS: Final[tuple[str, ...]] = (*"0123456789", *"+-*=>", "M", "_", "$", "<eos>", "<pad>", "<unk>")
"""The tokens of every vocabulary, and the whole vocabulary of most tasks."""

HINTS: Final[str] = "".join(map(chr, range(0x100, 0x100 + 202)))
"""Index hints, letters from the Unicode block Latin Extended-A on. Their number is `max_pos` in paper 1's public code."""

ALL_TOKENS: Final[tuple[str, ...]] = (*TOKENS, "/", *HINTS)

DIVIDED_BY = len(TOKENS)
FIRST_HINT = DIVIDED_BY + 1
"""Id of the first hint; the others follow."""

PLUS, MINUS, TIMES, EQUALS, GREATER = (TOKENS.index(token) for token in "+-*=>")
MINE = TOKENS.index("M")
EMPTY_CELL = TOKENS.index("_")

BOS = TOKENS.index("$")
"""The first token of every sequence, and the last unless a format has `SEPARATE_EOS` (paper 1, Sec. 2)."""

SEPARATE_EOS = TOKENS.index("<eos>")
PAD = TOKENS.index("<pad>")
UNKNOWN = TOKENS.index("<unk>")

ENCODER_TOKENS: Final[tuple[str, ...]] = (*TOKENS, *"abcdefghijklmnopqrstuvwxyz")
"""The vocabulary of the encoder: the common tokens, then letters, which stand for text around the numbers."""

FIRST_TEXT = len(TOKENS)
"""Id of the first letter; the others follow."""

FIELD_PAD = TOKENS.index("_")
"""Token that fills a number's field on the left in the encoder's input; an ordinary token, which is predicted as a class."""

LABELS: Final[tuple[str, ...]] = (*"0123456789", "_")
"""Classes of the encoder's output; a digit's class is its value, and the last class is the padding of a field."""

PAD_LABEL = LABELS.index("_")

STATES: Final[tuple[str, ...]] = (*LABELS, "?")
"""Classes of an encoder that settles: a label, or not known yet."""

NOT_KNOWN = STATES.index("?")


def decode(token_ids, tokens: tuple[str, ...] = ALL_TOKENS) -> str:
    """Return the text of a sequence of token ids, without padding; an unknown character is shown as `<unk>`."""
    return "".join(tokens[token] for token in token_ids if token != PAD)
