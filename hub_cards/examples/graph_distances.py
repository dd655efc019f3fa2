"""Distances in a graph that a text lists, as in Graphormer: nodes find marked neighbours, and not if they are shuffled."""

import torch
from transformers import BertConfig, BertForTokenClassification

import longhand

NODES, EDGE, FAR = 8, 16, 4  # token n is the node n, n + 8 the same with a mark; two nodes follow EDGE


def count_edges(rows, first, second, nodes, far):
    """Return the edges between the nodes (batch, tokens) of two tokens, of edges from first to second in rows."""
    edges = torch.eye(nodes.shape[1], device=nodes.device).repeat(len(nodes), 1, 1)
    edges[rows, first, second] = edges[rows, second, first] = 1.0
    reached = torch.stack([torch.linalg.matrix_power(edges, length) > 0 for length in range(far)]).sum(0)
    return far - reached[torch.arange(len(nodes))[:, None, None], nodes.unsqueeze(2), nodes.unsqueeze(1)]


def graph_distances(input_ids, attention_mask):
    """Relations of nodes that no edge names: the number of edges between them, 4 for more or if there is no way."""
    rows, places = (input_ids == EDGE).nonzero(as_tuple=True)
    nodes = input_ids % NODES
    distances = count_edges(rows, nodes[rows, places + 1], nodes[rows, places + 2], nodes, FAR)
    listed = torch.stack([input_ids.roll(step, 1) != EDGE for step in range(3)]).all(0)
    return {"pair_map": distances.where(listed.unsqueeze(1) & listed.unsqueeze(2), -1)}


def train(shuffled):
    """Return the share of right nodes after 300 steps of 32 graphs: does an edge lead to a marked one?"""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    base = BertForTokenClassification(BertConfig(vocab_size=17, num_labels=2, **sizes))
    model = longhand.with_structure(base, rule=graph_distances, num_relations=5, share_layers=True, trainable="all")
    optimizer = torch.optim.AdamW(longhand.structure_parameters(model, learning_rate=3e-3))
    for _ in range(300):
        pairs, marks, order = torch.rand(32, NODES).argsort(1), torch.rand(32, NODES) < 0.5, torch.randperm(20)
        edges = torch.cat([torch.full((32, 4, 1), EDGE), pairs.reshape(32, 4, 2)], 2).flatten(1)
        ids = torch.cat([edges, torch.arange(NODES) + NODES * marks], 1)
        partners = torch.empty_like(pairs).scatter_(1, pairs, pairs.reshape(32, 4, 2).flip(2).flatten(1))
        labels = torch.cat([torch.full((32, 12), -100), marks.gather(1, partners).long()], 1)
        given = {"pair_map": graph_distances(ids, None)["pair_map"][:, order][:, :, order]} if shuffled else {}
        answer = model(ids, labels=labels, **given)
        optimizer.zero_grad()
        answer.loss.backward()
        optimizer.step()
    return (answer.logits.argmax(-1) == labels)[labels >= 0].float().mean()


if __name__ == "__main__":
    print(f"{train(False):.2f} of the nodes are right, {train(True):.2f} if distances are shuffled")
