"""Pair maps: relations between coupled ids."""

import inspect
import itertools
import re

import pytest
import torch

from longhand.modeling import relations
from longhand.modeling.relations import NOT_RELATED, coupled_neighbours, coupled_pair_map, num_coupled_relations

RANGES = [(0, 1), (-1, 2), (2, 2)]


def ids(*levels: list[int]) -> torch.LongTensor:
    return torch.tensor([levels])


def every_pair_of_ids(largest: int) -> torch.LongTensor:
    """(1, 2 levels, tokens): all pairs of ids from 0 to `largest`."""
    values = torch.arange(largest + 1)
    return torch.cartesian_prod(values, values).T.unsqueeze(0)


def test_docstring_drawing_is_what_the_function_computes():
    text = inspect.getdoc(coupled_pair_map)
    keys = [int(value) for value in re.search(r"query \\ key((?: +\d)+)", text)[1].split()]
    rows = re.findall(r"^ +(\d) {5,}((?:[B01.] {3}){3}[B01.])", text, re.M)
    symbols = {"B": 2, "1": 1, "0": 0, ".": NOT_RELATED}
    expected = [[symbols[symbol] for symbol in row.split()] for _, row in rows]
    assert len(rows) == 2
    computed = coupled_pair_map(ids([int(query) for query, _ in rows]), ids(keys), (0, 1), True)
    assert computed[0].tolist() == expected


def literal_relation(query: tuple[int, ...], key: tuple[int, ...], low: int, high: int, windowed: bool) -> int:
    """One pair's relation: at each level a clipped difference, or one of three values for missing ids."""
    combined, outside, width = 0, False, high - low + 1
    for own, other in zip(query, key, strict=True):
        if own and other:
            relation = min(max(own - other, low), high) - low
            outside = outside or not low <= own - other <= high
        else:
            relation = width + (2 if own == other else own == 0)
        combined = combined * (width + 3) + relation
    is_shared = any(own and other for own, other in zip(query, key, strict=True))
    hidden = windowed and any(key) and (outside or not is_shared)
    return NOT_RELATED if hidden else combined


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("relation_range", RANGES)
def test_relations_are_those_of_literal_loops_over_pairs(relation_range, windowed, levels):
    position_ids = every_pair_of_ids(6)[:, :levels]
    found = coupled_pair_map(position_ids, position_ids, relation_range, windowed)
    tokens = list(zip(*position_ids[0].tolist(), strict=True))
    expected = [[literal_relation(query, key, *relation_range, windowed) for key in tokens] for query in tokens]
    assert found.dtype == torch.int32 and found[0].tolist() == expected
    if not windowed:
        assert found.unique().tolist() == list(range(num_coupled_relations(relation_range, levels)))
    if levels == 1:
        assert torch.equal(coupled_pair_map(position_ids[:, 0], position_ids[:, 0], relation_range, windowed), found)


NEIGHBOUR_RANGES = [(0, 1), (-1, 1), (0, 0), (1, 2), (-2, -1)]


@pytest.mark.parametrize("few_pairs", [0, relations.FEW_PAIRS])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("relation_range", NEIGHBOUR_RANGES)
def test_neighbours_are_the_causal_and_present_pairs_of_the_pair_map(
    relation_range, levels, rows, padded, few_pairs, monkeypatch
):
    monkeypatch.setattr(relations, "FEW_PAIRS", few_pairs)
    generator = torch.Generator().manual_seed(levels)
    key_ids = torch.randint(0, 6, (rows, levels, 40), generator=generator)
    key_ids *= torch.rand(key_ids.shape, generator=generator) < 0.8
    query_columns = torch.randperm(40, generator=generator)[:25]
    query_ids = key_ids[..., query_columns]
    present = torch.rand(rows, 40, generator=generator) < 0.7 if padded else None
    found = coupled_neighbours(query_ids, key_ids, query_columns, relation_range, present)

    expected = coupled_pair_map(query_ids, key_ids, relation_range, True)
    allowed = (torch.arange(40) <= query_columns[:, None]) & (present[:, None] if padded else True)
    expected = expected.masked_fill(~allowed, NOT_RELATED)
    related = expected != NOT_RELATED
    for row, query in itertools.product(range(rows), range(25)):
        columns, own = found.columns[row, query], found.relations[row, query]
        count = int((columns >= 0).sum())
        assert columns[:count].tolist() == related[row, query].nonzero().flatten().tolist()
        assert own[:count].tolist() == expected[row, query][related[row, query]].tolist()
        assert (columns[count:] == -1).all() and (own[count:] == NOT_RELATED).all()
    assert found.columns.shape[2] == int(related.sum(-1).max())
    assert (found.columns.dtype, found.relations.dtype) == (torch.int64, torch.int32)


def test_selected_neighbours_are_those_of_the_selected_queries():
    position_ids = torch.tensor([[[0, 1, 2, 1, 2, 2, 1]]])
    columns = torch.arange(7)
    found = coupled_neighbours(position_ids, position_ids, columns, (0, 1))
    for chosen in (torch.tensor([6, 2]), torch.tensor([4])):
        again = coupled_neighbours(position_ids[..., chosen], position_ids, chosen, (0, 1))
        width = again.columns.shape[2]
        assert torch.equal(found.select(chosen).columns[..., :width], again.columns)
        assert (found.select(chosen).columns[..., width:] == -1).all()
    assert torch.equal(found.select(slice(-3, None)).relations, found.relations[:, 4:])


def test_neighbours_of_a_long_input_take_memory_linear_in_its_length():
    # The pair map of these tokens would take 10**12 integers.
    position_ids = torch.arange(1, 500_001).repeat(2)[None, None]
    found = coupled_neighbours(position_ids[..., -3:], position_ids, torch.arange(999_997, 1_000_000), (0, 1))
    expected = [[499_996, 499_997, 999_996, 999_997], [499_997, 499_998, 999_997, 999_998]]
    assert found.columns[0, :2].tolist() == expected
