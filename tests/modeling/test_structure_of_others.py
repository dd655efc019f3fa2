"""The examples of others' structure, against loops that state the formulas of their papers."""

from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForTokenClassification, LlamaConfig, LlamaForCausalLM

import longhand

EXAMPLES = Path(__file__).parents[2] / "hub_cards" / "examples"
LOWEST = torch.finfo(torch.float32).min


@pytest.fixture(autouse=True)
def beside_the_examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def small(kind):
    torch.manual_seed(0)
    sizes = {"vocab_size": 24, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if kind == "bert":
        return BertForTokenClassification(BertConfig(**sizes, initializer_range=0.3)).eval()
    return LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3, bos_token_id=None, eos_token_id=None)).eval()


def compare(kind, rule, relations, ids, bias_of, **own):
    """Compare a model with a rule, whose table all layers share, and the plain one with a bias (query, key) of loops.

    `bias_of(table)` returns what is added to each score of each head, (heads, queries, keys).
    """
    model = longhand.with_structure(small(kind), rule=rule, num_relations=relations, share_layers=True)
    torch.nn.init.normal_(model.structure.table)
    with torch.no_grad():
        bias = bias_of(model.structure.table[0])
        expected = small(kind)(ids, attention_mask=bias.unsqueeze(0), **own).logits
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-5, rtol=1e-5)
        assert (expected - small(kind)(ids).logits).abs().max() > 0.1


def edges_between(edges, start, end, far):
    """The number of edges on a shortest way, found by going out from a node; `far` for as many or no way."""
    reached, distance = {start}, 0
    while end not in reached and distance < far:
        reached |= {b for a, b in [*edges, *((b, a) for a, b in edges)] if a in reached}
        distance += 1
    return distance if end in reached else far


def test_relations_of_a_table_are_biases_of_pairs_by_row_and_column():
    """TableFormer, Eq. 3: a score q k / sqrt(d) gets the bias of how the cells of query and key are related."""
    from table_relations import CELL, ROW, table_relations

    text = [ROW, 1, CELL, 2, 3, CELL, 4, ROW, 5, CELL, 12, CELL, 6, 7, ROW, 8]
    cells, row, column = [], 0, 0
    for token in text:
        row, column = (row + 1, 0) if token == ROW else (row, column + (token == CELL))
        cells.append((row, column))

    def bias_of(table):
        bias = torch.empty(4, len(text), len(text))
        for (query, (row, column)), (key, (other_row, other_column)) in product(enumerate(cells), repeat=2):
            relation = 1 * (row == other_row) + 2 * (column == other_column)
            if column == other_column and other_row == 1 and row > 1:
                relation = 4
            bias[:, query, key] = table[relation]
        return bias

    compare("bert", table_relations, 5, torch.tensor([text]), bias_of)


def test_distances_of_a_graph_are_biases_of_pairs_of_nodes():
    """Graphormer, Eq. 6: A_ij = (h_i W_Q)(h_j W_K) / sqrt(d) + b of the shortest way from i to j, shared by all layers."""
    from graph_distances import EDGE, FAR, NODES, graph_distances

    edges, marked = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 6)], {2, 6}
    text = [token for first, second in edges for token in (EDGE, first, second + 8)]
    listed = {len(text) + node: node for node in range(NODES)}
    text += [node + NODES * (node in marked) for node in range(NODES)]

    def bias_of(table):
        bias = torch.zeros(4, len(text), len(text))
        for (query, node), (key, other) in product(listed.items(), repeat=2):
            bias[:, query, key] = table[edges_between(edges, node, other, FAR)]
        return bias

    compare("bert", graph_distances, 5, torch.tensor([text]), bias_of)


def test_a_text_graph_has_distances_own_positions_and_a_prefix_that_sees_itself():
    """GTLM: tokens of nodes get the bias of the way between their nodes, and see each other; positions restart in each."""
    from text_graph import ASK, FAR, LINK, MARKED, NODE, text_graph

    links, text, nodes, positions = [1, 2, 2, 0, 5, 4], [], [], []
    for node, link in enumerate(links):
        text += [MARKED if node == 2 else NODE, 10 + node, LINK, link]
        nodes += [node] * 4
        positions += [0, 1, 2, 3]
    text, positions = [*text, ASK, 11, 12], [*positions, 0, 1, 2]
    prefix = len(nodes)

    def bias_of(table):
        bias = torch.zeros(4, len(text), len(text))
        for query, key in product(range(len(text)), repeat=2):
            if query < prefix and key < prefix:
                bias[:, query, key] = table[edges_between(list(enumerate(links)), nodes[query], nodes[key], FAR)]
            elif key > query:
                bias[:, query, key] = LOWEST
        return bias

    ids = torch.tensor([text])
    compare("llama", text_graph, 4, ids, bias_of, position_ids=torch.tensor([positions]))
    longhand.check_rule(text_graph, ids, prompt=prefix + 1)
