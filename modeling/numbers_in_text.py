"""Numbers in ordinary text: a rule of structure by which a language model writes sums of numbers of any length.

rule = numbers_in_text(tokenizer, marker="<|im_start|>")
model = with_structure(model, rule=rule)
"""

# Used by: structured_models.py, hub_cards/checkpoints. Bound by: the digest of the code that travels with a checkpoint: run
# .ci/code.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import check_integer
from .relations import NOT_RELATED
from .structure_rules import structure_rule

SAME, NEXT, ITSELF, COPIED = range(4)
"""Relations of what asks for a digit: to the digits of its place and of the next, to itself, and to the digit to copy."""

PARTS = ("pair_map", "attention_mask", "position_ids")
"""What the rule says."""

NOWHERE = -(2**20)
"""The place of a token that has none."""

MIXED = 7919
"""Spreads what is made of the tokens of a question over the ids."""


class Tokens(NamedTuple):
    """What each token is, all (batch, tokens).

    Attributes:
        words: whether it is a word, which all tokens behind it see; markers and separators of a question are none.
        operands, answers: whether it is a digit of a question, of an answer.
        asks: whether the next digit of an answer follows from what this token sees.
        copies: whether the next digit of a copy does.
        turn: number of the question that it belongs to.
        place: of a digit in its number, counted from the ones; of a marker -1.
        copied: place of the next digit of the copy.
        everywhere: whether it is a number of one digit that is seen in every place.
        base: number of words and numbers before it.
        ones: position id of digits of place 0, the same for all tokens of a question and its answer.
    """

    words: Tensor
    operands: Tensor
    answers: Tensor
    asks: Tensor
    copies: Tensor
    turn: Tensor
    place: Tensor
    copied: Tensor
    everywhere: Tensor
    base: Tensor
    ones: Tensor


@structure_rule
@dataclass(frozen=True)
class NumbersInText:
    """Structure of texts with questions about numbers, whose answers are written with the ones first.

    A question ends with a marker, and its answer is the digits behind the marker. The digits of all numbers in a question
    have places, counted from the right, and those of the answer from the left. What asks for a digit, the marker for the
    first and each digit for the next, sees the question's digits of its own place and of the next one, itself, and all
    words. Other tokens see words alone, and themselves. Behind a separator, the answer is copied in the order in which
    people read it: what asks for a digit of the copy sees this digit.

    Position ids of words count words; a number counts as one. Those of digits are larger and fall by place, so that the
    digits of the place that is asked for stand one behind the token that asks. Here `spread` is 1, `:` the marker and `=`
    the separator:

        tokens   in room 3  7  , add 6 5  3  and 4  9  :  2  0  7 =  7  0  2  .
        ids      0  1    10 11 3 4   9 10 11 6   10 11 12 11 10 9 10 11 12 13 12

    Nothing that a token sees tells how long the numbers are, up to `spread` digits. What has the id of a place, a marker or
    a separator too, is seen by what is related to it alone, at one distance: how far a marker lies behind a digit would tell
    the digit's place. Digits see words at distances that each question chooses out of the same ids, whatever its numbers.

    Relations: 0 a digit of the place of the token that asks, 1 of the next place, 2 the token itself, 3 the digit to copy,
    3 + n, of a question's digit, the word that is the n-th before its number, and one more with `everywhere`.

    A marker says that the numbers before it are a question's. So a prompt must end with it, and labels stand behind it. A
    text without a marker, or a question without numbers, is left as it is. Each further marker begins the answer of a
    further question.

    A number is digits that follow each other, also behind letters, and zeros at its front are digits. Signs, points and
    commas are words, so that `3.5` and `1,000` are two numbers. All numbers of a question are in one column by their ones:
    which of them count, and what is done with them, the model learns from the words.

    Cost: a few comparisons of each token with every other, 0.1 ms a token of a text of 300 tokens on a processor core; at
    each step of `generate()`, of the last token alone.

    Attributes:
        digits: tokens of the digits 0 to 9.
        marker: tokens with which a question ends.
        separator: token between an answer and its copy; None for no copies.
        words_before: number of words before a number that its digits are related to.
        spread: number of ids, behind those of the words, over which digits stand. The tokens of a question choose the id of
            the ones among those that leave room for all places, always the same for the same question. So digits of few
            places, in training, have the ids of many. Numbers of more digits have larger ids, which no training saw.
        parts: what the rule says, to tell what each part does: any of `pair_map`, `attention_mask` and `position_ids`.
        everywhere: whether a number of one digit is seen in every place, as a factor must be. Where it is not at the place
            that asks nor at the next, it is in the last relation; its position id is that of a word.
    """

    digits: Sequence[int]
    marker: Sequence[int]
    separator: int | None = None
    words_before: int = 3
    spread: int = 200
    parts: Sequence[str] = PARTS
    everywhere: bool = False

    def __post_init__(self):
        for name in ("digits", "marker", "parts"):
            # A saved rule has lists.
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len({*self.digits}) != 10 or not self.marker or {*self.marker, self.separator} & {*self.digits}:
            raise ValueError(
                "digits must be 10 different tokens, and marker and separator other ones, got "
                f"{self.digits}, {self.marker} and {self.separator}"
            )
        if not {*self.parts} <= {*PARTS}:
            raise ValueError(f"parts must be any of {', '.join(PARTS)}, got {', '.join(self.parts)}")
        check_integer("words_before", self.words_before, 0)
        check_integer("spread", self.spread, 1)

    @property
    def num_relations(self) -> int | None:
        """The number of relations of its pair maps; None if it gives none."""
        return COPIED + 1 + self.words_before + self.everywhere if "pair_map" in self.parts else None

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, queries: int | None = None) -> dict[str, Tensor]:
        """Return `pair_map`, `attention_mask` and `position_ids` of tokens (batch, tokens), pairs of the last `queries`."""
        present = attention_mask.bool()
        keys = self._read(input_ids, present)
        asked = Tokens(*(part if queries is None else part[:, -queries:] for part in keys))
        columns = torch.arange(input_ids.shape[1], device=input_ids.device)
        rows = columns if queries is None else columns[-queries:]
        itself, before = (columns == rows[:, None])[None], (columns <= rows[:, None])[None]

        ahead = keys.place[:, None] - asked.place[:, :, None]
        operands = asked.asks[:, :, None] & keys.operands[:, None] & (keys.turn[:, None] == asked.turn[:, :, None])
        answers = asked.copies[:, :, None] & keys.answers[:, None] & (keys.turn[:, None] == asked.turn[:, :, None])
        apart = asked.base[:, :, None] - keys.base[:, None]
        near = asked.operands[:, :, None] & keys.words[:, None] & (apart >= 1) & (apart <= self.words_before)
        pair_map = torch.where(near, COPIED + apart, NOT_RELATED)
        if self.everywhere:
            pair_map[operands & keys.everywhere[:, None]] = COPIED + self.words_before + 1
        pair_map[operands & (ahead == 0)] = SAME
        pair_map[operands & (ahead == 1)] = NEXT
        pair_map[asked.answers[:, :, None] & itself] = ITSELF
        pair_map[answers & (keys.place[:, None] == asked.copied[:, :, None])] = COPIED

        sees = (keys.words[:, None] | (pair_map != NOT_RELATED)) & before & present[:, None] | itself
        position_ids = (keys.ones - keys.place).where((keys.place != NOWHERE) & ~keys.everywhere, keys.base)
        position_ids = (keys.ones + 1 - keys.copied).where(keys.copies, position_ids)
        said = {"pair_map": pair_map, "attention_mask": sees[:, None], "position_ids": position_ids.clamp(min=0)}
        return {part: said[part] for part in self.parts}

    def _read(self, input_ids: Tensor, present: Tensor) -> Tokens:
        """Return what each token is."""
        columns = torch.arange(input_ids.shape[1], device=input_ids.device)
        digits = torch.isin(input_ids, torch.tensor(self.digits, device=input_ids.device)) & present
        marks = self._marks(input_ids) & present

        def since_mark(counted: Tensor) -> Tensor:
            """The number of tokens of a kind, from the last marker to each token."""
            count = counted.cumsum(1)
            return count - count.where(marks, 0).cummax(1).values

        turn = marks.cumsum(1)
        others = since_mark(present & ~digits)
        answers = digits & (turn > 0) & (others == 0)
        separators = (input_ids == (-1 if self.separator is None else self.separator)) & (turn > 0) & (others == 1)
        separators = separators & present & _shifted(answers)
        copies = digits & (others == 1) & (since_mark(separators) > 0)
        # A question's tokens belong to the marker behind them.
        in_question = marks.flip(1).cumsum(1).flip(1) > 0
        operands = digits & in_question & ~answers & ~copies
        turn = turn + (operands | ~(marks | answers | separators | copies)).long()

        def of_turn(values: Tensor, reduce: str) -> Tensor:
            """The sum or the largest of values from 0 on, in the turn of each token. No turn knows of those behind it."""
            turns = values.new_zeros(len(turn), turn.shape[1] + 2)
            return turns.scatter_reduce_(1, turn, values, reduce).gather(1, turn)

        of_question = in_question & present & ~(answers | separators | copies)
        question = of_turn((input_ids * present.cumsum(1)).where(of_question, 0), "sum")
        has_numbers = of_turn(operands.long(), "sum") > 0
        answers, copies, marks = answers & has_numbers, (copies | separators) & has_numbers, marks & has_numbers

        ends = columns.where(~operands, len(columns)).flip(1).cummin(1).values.flip(1)
        place = torch.where(operands, ends - columns - 1, NOWHERE)
        place = (since_mark(answers) - 1).where(answers, place).where(~marks, -1)
        copied = (since_mark(answers) - 1 - since_mark(copies & digits)).where(copies, NOWHERE)
        everywhere = operands & (place == 0) & ~_shifted(operands) & self.everywhere
        numbers = operands | answers | (copies & digits)
        counted = present & ~(numbers & _shifted(numbers))
        base = (counted.cumsum(1) - 1).clamp(min=0)
        words = present & ~(numbers | marks | copies)
        # The last place of an answer is one more than that of the longest number.
        last = of_turn((place + 1).where(operands, 0), "amax")
        behind = of_turn(base.where(marks, 0), "amax")
        ones = behind + last + question * MIXED % (self.spread - last).clamp(min=1)
        return Tokens(words, operands, answers, answers | marks, copies, turn, place, copied, everywhere, base, ones)

    def _marks(self, input_ids: Tensor) -> Tensor:
        """Return which tokens are the last of a marker."""
        marks = torch.ones_like(input_ids, dtype=torch.bool)
        for before, token in enumerate(reversed(self.marker)):
            marks = marks & torch.nn.functional.pad(input_ids, (before, 0), value=-1)[:, : input_ids.shape[1]].eq(token)
        return marks


def _shifted(flags: Tensor) -> Tensor:
    """Return the flags of the tokens before."""
    return torch.nn.functional.pad(flags, (1, 0))[:, :-1]


def numbers_in_text(
    tokenizer: Any,
    *,
    marker: str | None = None,
    separator: str | None = None,
    words_before: int = 3,
    spread: int = 200,
    parts: Sequence[str] = PARTS,
    everywhere: bool = False,
) -> NumbersInText:
    """Return the rule `NumbersInText` for the texts of a tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers that gives each digit a token of its own, such as those of SmolLM2,
            Qwen2 and Llama 2.
        marker: text with which a question ends; by default what the tokenizer's chat template puts before an answer.
        separator: text between an answer, ones first, and its copy in reading order; None for answers without a copy.
        words_before, spread, parts, everywhere: see `NumbersInText`.

    Raises:
        ValueError: the tokenizer joins digits with each other or with other characters, or is not fast; there is no marker;
            or marker or separator would be joined with what stands beside them.
    """
    digits = _digit_tokens(tokenizer)
    if marker is None:
        marker = _answer_begins(tokenizer)
    tokens = _tokens_behind(tokenizer, marker, "marker", ("What is 1 + 1?", "one", "1"))
    between = [] if separator is None else _tokens_behind(tokenizer, separator, "separator", ("1",))
    if len(between) > 1:
        raise ValueError(f"separator must be one token of {_name_of(tokenizer)}, got {separator!r}, which is {len(between)}")
    return NumbersInText(digits, tokens, between[0] if between else None, words_before, spread, parts, everywhere)


def _name_of(tokenizer: Any) -> str:
    return getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__


def _tokens_of(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _digit_tokens(tokenizer: Any) -> list[int]:
    """Return the tokens of the digits 0 to 9; raise ValueError if a digit of some number has none of its own."""
    name = _name_of(tokenizer)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"numbers_in_text takes a fast tokenizer of transformers, got {name}, a {type(tokenizer).__name__}")
    digits = tokenizer.convert_tokens_to_ids(list("0123456789"))
    for text in (" ".join(f"{number:04d}" for number in range(10_000)), "x7 (12) 3.5, 653+49=702 a8b 9:10"):
        found = [token for token in _tokens_of(tokenizer, text) if token in digits]
        if found != [digits[int(character)] for character in text if character.isdigit()]:
            example = tokenizer.convert_ids_to_tokens(_tokens_of(tokenizer, "in 20653"))
            raise ValueError(
                f"numbers_in_text needs a token for each digit, and the tokenizer {name} joins them: 'in 20653' is {example}"
            )
    return digits


def _answer_begins(tokenizer: Any) -> str:
    """Return what the chat template puts before an answer."""
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(f"{_name_of(tokenizer)} has no chat template: give marker, a text with which each question ends")
    question = [{"role": "user", "content": "1"}]
    without, with_marker = (
        tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=generates)
        for generates in (False, True)
    )
    return with_marker.removeprefix(without)


def _tokens_behind(tokenizer: Any, text: str, name: str, texts: Sequence[str]) -> list[int]:
    """Return the tokens of a text; raise ValueError if they are others between some texts and a digit."""
    tokens = _tokens_of(tokenizer, text)
    for before in texts:
        around = [*_tokens_of(tokenizer, before), *tokens, *_tokens_of(tokenizer, "1")[-1:]]
        if not tokens or _tokens_of(tokenizer, f"{before}{text}1") != around:
            raise ValueError(
                f"{name} must be tokens of their own between a text and a digit, such as '<|im_start|>', got {text!r}: "
                f"{_name_of(tokenizer)} joins it with {before!r} or with a digit"
            )
    return tokens
