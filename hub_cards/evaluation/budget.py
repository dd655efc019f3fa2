"""How many problems a model is given at once in evaluation, so that a pass fits into memory and keeps a device busy."""

# Used by: measure.py, hub_cards/training. Changed freely.

import torch
from transformers import PreTrainedConfig

from longhand.data.collator import IGNORED
from longhand.data.formatting import Batch
from longhand.modeling.position_encodings import FireBias

DEVICE_BYTES = 4 * 2**30
"""Most bytes of a pass on an accelerator, besides weights: every recipe's models fit into 16 GB with much room."""

CACHED_TOKENS = 4096
"""Most response tokens of a pass on a processor: with so many, intermediate results fit into its caches."""

STATES, INNER, LOGITS = 8, 3, 4
"""How many tensors of each kind are alive at a time, at most: as wide as the model, as its MLP, and logits."""

SCORES, PLAIN_SCORES = 4, 1
"""The same of scores: where something is added to each of them, and where they stay inside a kernel, beside a mask."""

PAIRS = 2
"""The same of the hidden units of an MLP of pairs of tokens."""

PLAIN_ENCODINGS = ("none", "learned", "sinusoidal", "rotary")
"""Position encodings that add nothing to scores."""

WINDOW_KEYS = 64
"""Keys of a query under a window, whose scores are few."""

FLOAT_BYTES = 4


def rows_at_once(config: PreTrainedConfig, batch: Batch, most: int, device: torch.device) -> int:
    """Return how many problems are evaluated at once; it depends on sizes alone, so that an evaluation can be repeated.

    Args:
        config: of the model.
        batch: inputs of one problem, or of several of one size.
        most: how many there are, the largest number that is returned.
        device: where the model computes.
    """
    fitting = DEVICE_BYTES // bytes_of_row(config, batch)
    if device.type == "cpu":
        response = int((batch["labels"][0] != IGNORED).sum())
        fitting = min(fitting, CACHED_TOKENS // max(1, response))
    return max(1, min(most, fitting))


def bytes_of_row(config: PreTrainedConfig, batch: Batch) -> int:
    """Return a bound of the bytes that a forward pass in float32 needs for each problem, weights not counted.

    A pass without gradients keeps what one layer computes.
    """
    tokens = batch["input_ids"].shape[1]
    logits = int(batch.get("logits_to_keep", tokens))
    last_alone = config.num_hidden_layers == 1
    queries = logits if last_alone else tokens
    inner, heads = config.intermediate_size, config.num_attention_heads
    keys = min(tokens, WINDOW_KEYS) if _sees_few(config) else tokens
    widths = max(config.hidden_size, heads * config.head_dim)
    scores = PLAIN_SCORES if getattr(config, "position_encoding", None) in PLAIN_ENCODINGS else SCORES
    numbers = STATES * tokens * widths + INNER * queries * inner + scores * heads * queries * keys
    if getattr(config, "position_encoding", None) == "fire":
        # An MLP of every pair.
        numbers += PAIRS * FireBias.hidden_units * queries * keys
    return FLOAT_BYTES * (numbers + LOGITS * logits * config.vocab_size)


def _sees_few(config: PreTrainedConfig) -> bool:
    """Whether every query of a model has few keys, which are gathered and not masked."""
    if hasattr(config, "label_states"):
        return config.label_states
    return getattr(config, "position_encoding", None) == "pairwise" and config.windowed
