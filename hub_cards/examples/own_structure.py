"""Structure of your own, by a plain Trainer: an encoder that is told which node is whose child evaluates large trees.

A leaf of a complete binary tree is a bit, and an inner node is 1 unless both of its children are. The encoder learns from
trees of up to 15 nodes, and is right on trees of 127.
"""

import torch
from transformers import Trainer, TrainingArguments, set_seed

import longhand

ITSELF, CHILD, NOT_RELATED = 0, 1, -1
UNKNOWN = 2


def tree(nodes: int) -> dict[str, list]:
    """A row: tokens, labels and the map of a random tree whose node i has the children 2i and 2i + 1."""
    bits = torch.randint(2, (nodes + 1,)).tolist()
    inner = nodes // 2
    for node in range(inner, 0, -1):
        bits[node] = 1 - (bits[2 * node] & bits[2 * node + 1])

    def relation(query: int, key: int) -> int:
        if query == key:
            return ITSELF
        return CHILD if key // 2 == query else NOT_RELATED

    places = range(1, nodes + 1)
    return {
        "input_ids": [UNKNOWN] * inner + bits[inner + 1 :],
        "labels": bits[1:],
        "pair_map": [[relation(query, key) for key in places] for query in places],
    }


set_seed(0)
rows = [tree(2 ** (2 + row % 3) - 1) for row in range(2000)]
config = longhand.PairwiseBertConfig(
    vocab_size=20,
    num_labels=2,
    pair_maps=["given"],
    num_relations=2,
    windowed=True,
    hidden_size=32,
    num_attention_heads=2,
    intermediate_size=64,
    num_hidden_layers=1,
    num_loops=10,
    initializer_range=0.1,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = longhand.PairwiseBertForTokenClassification(config)
arguments = TrainingArguments(
    "outputs/tree", max_steps=300, per_device_train_batch_size=32, learning_rate=4e-3, warmup_steps=30
)
Trainer(model, arguments, train_dataset=rows, data_collator=longhand.collate_rows).train()
test = longhand.collate_rows([tree(127) for _ in range(50)])
right = model.eval().cpu()(**test).logits.argmax(-1) == test["labels"]
print(f"{right.float().mean():.3f} of the nodes of trees of 127 nodes are right")
