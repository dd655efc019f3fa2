"""What the benchmarks compare against: a straightforward model and loop in plain torch, without this project's ideas.

One example at a time is drawn and formatted with Python integers; a batch is padded to its longest example; every position
goes through every part of the model.
"""

import random

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = {token: index for index, token in enumerate("0123456789+=$P")}
PAD = TOKENS["P"]


def example(max_length: int, max_position: int, length: int | None = None) -> tuple[list[int], list[int], int]:
    """Tokens, coupled position ids from a random start, and the query's length of one addition."""
    lengths = [length or random.randint(1, max_length) for _ in range(2)]
    first, second = (random.randint(10 ** (n - 1) if n > 1 else 0, 10**n - 1) for n in lengths)
    width = max(lengths)
    query = f"${first:0{width}}+{second:0{width}}="
    response = f"{first + second:0{width + 1}}"[::-1] + "$"
    start = random.randint(1, max_position - width - 1)
    operand = [start + place for place in range(1, width + 2)]
    ids = [0, *operand, *operand, *range(start + width, start - 1, -1), 0]
    return [TOKENS[character] for character in query + response], ids, len(query)


def batch(examples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, ids and labels, padded to the longest example."""
    width = max(len(tokens) for tokens, _, _ in examples)
    tokens = torch.tensor([tokens + [PAD] * (width - len(tokens)) for tokens, _, _ in examples])
    ids = torch.tensor([ids + [0] * (width - len(ids)) for _, ids, _ in examples])
    labels = torch.full_like(tokens, -100)
    for row, (example_tokens, _, query) in enumerate(examples):
        labels[row, query : len(example_tokens)] = torch.tensor(example_tokens[query:])
    return tokens, ids, labels


class BaselineGPT(nn.Module):
    """One layer as in paper 1's code: norm before and on the sum, GEGLU, learned table, tied output."""

    def __init__(self, hidden: int = 512, heads: int = 4, intermediate: int = 2048, max_position: int = 202):
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(len(TOKENS), hidden)
        self.positions = nn.Embedding(max_position + 1, hidden)
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.up, self.gate = (nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(intermediate, hidden, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(5))

    def forward(self, tokens: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        states = self.tokens(tokens) + self.positions(ids)
        normed = self.norms[0](states)
        heads = [
            projection(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        ]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        states = self.norms[1](states + self.output(attended))
        normed = self.norms[2](states)
        states = self.norms[3](states + self.down(F.gelu(self.up(normed), approximate="tanh") * self.gate(normed)))
        return self.norms[4](states) @ self.tokens.weight.T * states.shape[-1] ** -0.5


def loss(model: nn.Module, tokens: torch.Tensor, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = model(tokens, ids)[:, :-1]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=-100)
