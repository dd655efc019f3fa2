"""Ids of the coupling rules against those of the released code of paper 1 and its follow-up (HanseulJo/position-coupling).

released_ids.jsonl has problems of 15 formats with the ids that this code gives them, level by level. The ids of a level may
count from the other end, or from another start: nothing that a model learns depends on either.
"""

import json
from pathlib import Path

import pytest
import torch

from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.coupling_rules import flat_board_ids
from longhand.modeling.vocabulary import ALL_TOKENS

ROWS = [json.loads(line) for line in Path(__file__).with_name("released_ids.jsonl").read_text().splitlines()]
RULES = {
    "addition, padded, response_reversed": "addition",
    "addition, padded, all_reversed": "addition_all_reversed",
    "addition, padded, plain": "addition_plain",
    "addition, unpadded, response_reversed": "addition",
    "addition, unpadded, all_reversed": "addition_all_reversed",
    "addition, unpadded, plain": "addition_plain_unpadded",
    "addition of 3 numbers": "multi_operand_addition",
    "addition of 4 numbers": "multi_operand_addition",
    "multiplication N x 1": "multiplication",
    "multiplication N x 2": "multiplication",
    "copy": "copy",
    "reverse": "reverse",
    "minesweeper": "minesweeper_flat",
    "addition with running sums": "addition_scratchpad_followup",
    "multiplication N x M with partial products": "multiplication_scratchpad_followup",
}
"""The rule of each format."""


def ids_of(rule: str, text: str, released: list[list[int]]) -> list[list[int]]:
    """The rule's ids of a whole problem, levels by tokens, without the end token."""
    text = text.replace("E", "_")
    if rule == "minesweeper_flat":
        # Nothing in the text says how wide a board is.
        width, height = (max(level) - 1 for level in released)
        return flat_board_ids(width, height, len(text))[0, :, :-1].tolist()
    tokens = torch.tensor([[ALL_TOKENS.index(character) for character in text]])
    return COUPLING_RULES[rule].plan(tokens, len(text)).position_ids[0, :, :-1].tolist()


def is_same(level: list[int], other: list[int]) -> bool:
    """Whether two levels give ids to the same tokens, and their ids differ by a shift or by a mirror and a shift."""
    if [not value for value in level] != [not value for value in other]:
        return False
    pairs = [(value, against) for value, against in zip(level, other, strict=True) if value]
    return any(len({against - sign * value for value, against in pairs}) <= 1 for sign in (1, -1))


def test_every_format_has_a_rule():
    assert {row["format"] for row in ROWS} == set(RULES)


@pytest.mark.parametrize("form", RULES)
def test_ids_are_those_of_the_released_code(form):
    for row in (row for row in ROWS if row["format"] == form):
        released = [level[:-1] for level in row["position_ids"]]
        own = ids_of(RULES[form], row["text"], row["position_ids"])
        assert len(own) == len(released) and all(map(is_same, own, released)), row


@pytest.mark.parametrize("rule", ["addition_scratchpad", "multiplication_scratchpad", "addition_plain"])
def test_rules_of_our_own_are_other_ones(rule):
    """The comparison tells rules apart: those that this package made for windows, and that of padded plain sums, differ."""
    (form,) = (form for form, name in RULES.items() if name in (f"{rule}_followup", f"{rule}_unpadded"))
    rows = [row for row in ROWS if row["format"] == form]
    same = [
        all(map(is_same, ids_of(rule, row["text"], row["position_ids"]), [level[:-1] for level in row["position_ids"]]))
        for row in rows
    ]
    assert not all(same)
