"""Pair maps of the encoder."""

import inspect
import itertools
import re

import pytest
import torch

from longhand.modeling.encoder_maps import (
    LISTED,
    PAIR_MAP_RULES,
    RULE_IDS,
    derive_pair_map,
    digit_columns,
    listed,
    multiplier_places,
    num_relations,
    relative_relations,
    virtual_indices,
    with_uniform_keys,
)
from longhand.modeling.relations import NOT_RELATED
from longhand.modeling.vocabulary import ENCODER_TOKENS, PAD

TEXTS = ["1+5", "_12+_95", "12*395", "56*_47", "a_1+b_5c", "xy56b*c_47", "0+0"]
RANGES = [(-30, 30), (-2, 2), (0, 1), (-3, 0)]

# `test_encoder_multiplication_grid.py` tests the rule of grids.
every_rule = pytest.mark.parametrize("name", RULE_IDS)
every_range = pytest.mark.parametrize("relation_range", RANGES)
with_and_without_window = pytest.mark.parametrize("windowed", [True, False])


def tokens_of(*texts: str) -> torch.LongTensor:
    """(texts, longest), padded on the right."""
    longest = max(map(len, texts))
    rows = [[ENCODER_TOKENS.index(character) for character in text] for text in texts]
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def derive(name: str, *texts: str, relation_range=(-30, 30), windowed=False) -> torch.IntTensor:
    tokens = tokens_of(*texts)
    return derive_pair_map(name, tokens, virtual_indices(tokens), relation_range, windowed, max_multiplier_length=3)


def drawing(function) -> tuple[torch.LongTensor, list[int] | None, list[list[int]]]:
    """Tokens, the line below them and the matrix that a docstring shows."""
    text = inspect.getdoc(function)
    tokens = "".join(re.search(r"^ *tokens +(.+)$", text, re.M)[1].split())
    line = re.search(r"^ *(?:index|column|place) +([\d ]+)$", text, re.M)
    rows = re.findall(r"^ +(\S) {5,}(\d(?: \d)+)$", text, re.M)
    if rows:
        assert re.search(r"query \\ key +(.+)$", text, re.M)[1].split() == list(tokens) == [query for query, _ in rows]
    return tokens_of(tokens), line and [*map(int, line[1].split())], [[*map(int, row.split())] for _, row in rows]


def test_drawing_of_virtual_indices():
    tokens, line, _ = drawing(virtual_indices)
    assert virtual_indices(tokens).tolist() == [line]


def test_without_self_a_digit_of_the_multiplier_keeps_its_relative_relation_to_itself_alone():
    tokens = tokens_of("56*_47")
    indices, limits = virtual_indices(tokens), ((-2, 2), False, 3)
    uniform, printed = (derive_pair_map("uniform", tokens, indices, *limits, with_self)[0] for with_self in (True, False))
    relative = derive_pair_map("relative", tokens, indices, *limits)[0]
    changed = (uniform != printed).nonzero().tolist()
    assert changed == [[0, 0], [1, 1]] and all(printed[i, j] == relative[i, j] for i, j in changed)


def test_drawing_of_the_list():
    text = inspect.getdoc(listed)
    tokens = tokens_of("".join(re.search(r"^ *tokens +(.+)$", text, re.M)[1].split()))
    rows = dict(re.findall(r"^ +([59]) {5,}([\dab.](?: [\dab.])+)$", text, re.M))
    found = listed(tokens, torch.ones_like(tokens, dtype=torch.bool))[0]
    for query, shown in rows.items():
        drawn = [NOT_RELATED if mark == "." else int(mark, 12) for mark in shown.split()]
        assert found[tokens[0].tolist().index(ENCODER_TOKENS.index(query))].tolist() == drawn
    assert len(rows) == 2


@pytest.mark.parametrize(("text", "present"), [("____12+____95", 13), ("_12345678+_87654321", 19), ("xy__123+__45z6", 14)])
def test_the_list_is_the_same_for_every_token(text, present):
    """Relation and difference of places determine each other, for all pairs; text and padding have no relation."""
    tokens = tokens_of(text, "1" * 20)[:1]
    is_present = torch.arange(20).unsqueeze(0) < present
    found, places = listed(tokens, is_present)[0], virtual_indices(tokens)[0]
    width = int(places[text.index("+")])
    listed_differences = {*range(-LISTED, 1), *range(width - LISTED, width + 1)}
    for query, key in itertools.product(range(20), repeat=2):
        difference = int(places[query] - places[key])
        related = bool(places[query] and places[key]) and difference in listed_differences
        assert (found[query, key] != NOT_RELATED) == related
        if related:
            relation = -difference if -LISTED <= difference <= 0 else LISTED + 1 + width - difference
            assert found[query, key] == relation < PAIR_MAP_RULES["listed"].relations


@pytest.mark.parametrize("function", [digit_columns, multiplier_places])
def test_drawings_of_places_in_numbers(function):
    tokens, line, _ = drawing(function)
    assert function(tokens, virtual_indices(tokens)).tolist() == [line]


def test_drawing_of_relative_relations():
    tokens, line, matrix = drawing(relative_relations)
    indices = virtual_indices(tokens)
    assert indices.tolist() == [line]
    assert relative_relations(indices, (-3, 3), False).tolist() == [matrix]


def test_drawing_of_uniform_keys():
    tokens, _, matrix = drawing(with_uniform_keys)
    indices = virtual_indices(tokens)
    relations = relative_relations(indices, (-1, 1), False)
    assert with_uniform_keys(relations, tokens, indices, 3, 2).tolist() == [matrix]


def literal_map(name: str, text: str, relation_range: tuple[int, int], windowed: bool) -> list[list[int]]:
    """The map of a rule, pair by pair from the characters."""
    low, high = relation_range
    first, second = re.split("[+*]", re.sub("[a-z]", "", text))
    places = [
        *(("multiplier", len(first) - place) for place in range(len(first))),
        ("operator", len(second) + 1),
        *(("second", len(second) - place) for place in range(len(second))),
    ]
    index, numbers = {}, iter(range(len(places)))
    for column, character in enumerate(text):
        if not character.isalpha():
            index[column] = next(numbers)

    def relation(query: int, key: int) -> int:
        if query not in index or key not in index or {"add": "+", "multiply": "*"}.get(name, "") not in text:
            return NOT_RELATED
        number, place = places[index[key]]
        if name in ("uniform", "multiply") and number == "multiplier":
            return high - low + place
        difference = places[index[query]][1] - place if name == "coupled" else index[query] - index[key]
        if windowed and not low <= difference <= high:
            return NOT_RELATED
        return min(max(difference, low), high) - low

    return [[relation(query, key) for key in range(len(text))] for query in range(len(text))]


@with_and_without_window
@every_range
@every_rule
@pytest.mark.parametrize("text", TEXTS)
def test_maps_are_those_of_literal_loops_over_pairs(text, name, relation_range, windowed):
    computed = derive(name, text, relation_range=relation_range, windowed=windowed)
    assert computed.dtype == torch.int32
    assert computed[0].tolist() == literal_map(name, text, relation_range, windowed)


@with_and_without_window
@every_rule
def test_rows_of_a_batch_have_their_own_maps_and_padding_has_none(name, windowed):
    maps = derive(name, *TEXTS, relation_range=(-2, 2), windowed=windowed)
    assert len(maps) == len(TEXTS)
    for computed, text in zip(maps, TEXTS, strict=True):
        assert computed[: len(text), : len(text)].tolist() == literal_map(name, text, (-2, 2), windowed)
        assert (computed[len(text) :] == NOT_RELATED).all() and (computed[:, len(text) :] == NOT_RELATED).all()


@every_rule
def test_batch_of_one_layout_has_one_map(name):
    assert len(derive(name, "12+34", "_9+_5", "_0+12")) == 1
    assert torch.equal(derive(name, "12+34", "_9+_5"), derive(name, "12+34"))
    # As long, but the numbers meet elsewhere.
    moved = derive(name, "12+34", "1+234").expand(2, -1, -1)
    assert torch.equal(moved, torch.cat([derive(name, "12+34"), derive(name, "1+234")]))
    # Sums and products of one layout have maps of their own where a rule is for one of them.
    both = derive(name, "12+34", "12*34").expand(2, -1, -1)
    assert torch.equal(both, torch.cat([derive(name, "12+34"), derive(name, "12*34")]))
    assert len(derive(name, "12+34", "a1+34")) == 2


@every_rule
def test_values_are_numbered_without_a_gap(name):
    text = "123+____4" if name == "add" else "123*____4"
    values = derive(name, text, relation_range=(-2, 2)).unique().tolist()
    assert values == list(range(num_relations(name, (-2, 2), max_multiplier_length=3)))


def digits_only(pair_map: torch.IntTensor, text: str) -> torch.IntTensor:
    columns = torch.tensor([place for place, character in enumerate(text) if character.isdigit()])
    return pair_map[0, columns][:, columns]


def test_differences_of_columns_do_not_depend_on_the_width_of_fields():
    texts = ["12+95", "__12+__95", "a____12b+____95"]
    coupled, relative = ([digits_only(derive(name, text), text) for text in texts] for name in ("coupled", "relative"))
    assert torch.equal(coupled[0], coupled[1]) and torch.equal(coupled[0], coupled[2])
    assert not torch.equal(relative[0], relative[1])


def test_digits_of_one_column_are_related_as_a_digit_to_itself():
    tokens = tokens_of("_12+_95")
    columns = digit_columns(tokens, virtual_indices(tokens))[0].tolist()
    assert columns[:3] == columns[4:] == [3, 2, 1] and columns[3] == 4


@with_and_without_window
@every_range
@every_rule
@pytest.mark.parametrize("operator", "+*")
def test_numbers_are_related_as_if_text_were_absent(operator, name, relation_range, windowed):
    bare, text = f"_12{operator}345", f"ab_12{operator}c345def"
    numeric = torch.tensor([not character.isalpha() for character in text])
    maps = {each: derive(name, each, relation_range=relation_range, windowed=windowed)[0] for each in (bare, text)}
    assert torch.equal(maps[text][numeric][:, numeric], maps[bare])
    assert (maps[text][~numeric] == NOT_RELATED).all() and (maps[text][:, ~numeric] == NOT_RELATED).all()


def test_window_hides_no_digit_of_the_multiplier():
    free, windowed = (derive("uniform", "123*456789", relation_range=(-1, 1), windowed=each)[0] for each in (False, True))
    assert (windowed[:, :3] >= 0).all() and torch.equal(windowed[:, :3], free[:, :3])
    assert (windowed[:, 3:] == NOT_RELATED).any()
    assert torch.equal(windowed[:, 3:].where(windowed[:, 3:] >= 0, free[:, 3:]), free[:, 3:])


@pytest.mark.parametrize("name", ["coupled", "uniform"])
@pytest.mark.parametrize(("text", "operators"), [("1234", 0), ("1+2+3", 2), ("a1+2*3", 2), ("", 0)])
def test_input_without_one_operator_is_refused_with_its_row(text, operators, name):
    with pytest.raises(ValueError, match=rf"row 1 of input_ids must have one '\+' or '\*'.*, got {operators}"):
        derive(name, "12+34", text)


def test_multiplier_without_vectors_is_refused():
    derive("uniform", "123*4")
    with pytest.raises(ValueError, match="max_multiplier_length = 3 digits, got 4"):
        derive("uniform", "1234*5", "1*2")
    derive("coupled", "1234*5")
