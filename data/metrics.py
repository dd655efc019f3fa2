"""Metrics: what is counted of each response, and the numbers that evaluations, tables and cards show of it."""

# Used by: families.py, hub_cards, hub_cards/evaluation, hub_cards/research/gpu, hub_cards/training. Changed freely.

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction, PreTrainedModel

from longhand.data.collator import IGNORED
from longhand.data.formatting import Batch
from longhand.modeling import CoupledGPTForCausalLM, shift_position_ids
from longhand.modeling.vocabulary import PAD


@dataclass(frozen=True)
class Metric:
    """A number between 0 and 1 that an evaluation gives for many responses.

    Attributes:
        name: its field in rows of results.
        heading: its column in tables and cards.
        decimals: how many of them tables show.
        count: its value, from matches (count, columns), see `count_matches`.
        columns: how many columns it needs. A metric that needs the fourth is optional: rows of other tasks lack it.
    """

    name: str
    heading: str
    decimals: int
    count: Callable[[np.ndarray], float]
    columns: int = 3

    @property
    def is_optional(self) -> bool:
        """Whether rows may lack it."""
        return self.columns > 3


METRICS = (
    Metric("exact_match", "exact match", 4, lambda matches: matches[:, 0].mean()),
    Metric("answer_match", "answer alone", 4, lambda matches: matches[:, 3].mean(), columns=4),
    Metric("token_accuracy", "accuracy per token", 6, lambda matches: matches[:, 1].sum() / matches[:, 2].sum()),
)
"""All metrics, in the order of tables. The first is the main one: tables show its interval, and it chooses checkpoints."""


def measure(matches: np.ndarray) -> dict[str, float]:
    """Return the value of each metric, by name.

    Args:
        matches: (count, 3 or 4) int64, see `count_matches`.
    """
    return {metric.name: float(metric.count(matches)) for metric in METRICS if metric.columns <= matches.shape[1]}


def right_tokens(logits: torch.Tensor, labels: torch.Tensor, ahead: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens a model gets right if every token is predicted from a correct prefix.

    Args:
        logits: (count, kept, vocabulary or classes), for the last `kept` tokens.
        labels: (count, tokens), -100 if a token is not supervised.
        ahead: 1 if the logits at a token are those of the next token (a decoder), 0 if they are the token's own.

    Returns:
        Whether each token is right, and whether it is supervised, (count, kept - ahead) each.
    """
    labels = labels[:, labels.shape[1] - logits.shape[1] + ahead :]
    supervised = labels != IGNORED
    return (logits[:, : logits.shape[1] - ahead].argmax(-1) == labels) & supervised, supervised


def response_losses(logits: torch.Tensor, labels: torch.Tensor, ahead: int) -> torch.Tensor:
    """The sum of the cross entropy over the supervised tokens of each response, (count,) float64.

    Args:
        logits, labels, ahead: as for `right_tokens`.
    """
    labels = labels[:, labels.shape[1] - logits.shape[1] + ahead :]
    kept = logits[:, : logits.shape[1] - ahead].float()
    losses = torch.nn.functional.cross_entropy(kept.mT, labels, ignore_index=IGNORED, reduction="none")
    return losses.double().sum(1)


def count_matches(right: torch.Tensor, supervised: torch.Tensor, answer_length: int | None = None) -> torch.Tensor:
    """Which responses a model gets right, from `right_tokens`.

    All tokens are right exactly if greedy decoding gives this response.

    Args:
        answer_length: supervised tokens at the end that are the answer itself, if a scratchpad comes before it.

    Returns:
        (count, 3) int64: exact match (0 or 1), right tokens, supervised tokens. With `answer_length` there is a fourth
        column: whether the answer is right after a right scratchpad.
    """
    matches = torch.stack([(right == supervised).all(1), right.sum(1), supervised.sum(1)], dim=1)
    if answer_length is None:
        return matches
    in_answer = supervised.flip(1).cumsum(1).flip(1) <= answer_length
    return torch.cat([matches, (right | ~supervised | ~in_answer).all(1, keepdim=True)], dim=1)


def preprocess_logits(
    model: PreTrainedModel,
) -> Callable[[torch.Tensor | tuple[torch.Tensor, ...], torch.Tensor], torch.Tensor]:
    """Return `preprocess_logits_for_metrics` of a Trainer for a model of either family, for `compute_metrics`.

    The function takes logits (count, tokens, vocabulary or classes), or outputs of which they are the first, and labels
    (count, tokens). It gives `count_matches`, and raises ValueError if a supervised token has no logits.
    """
    ahead = int(model.can_generate())

    def count(logits: torch.Tensor | tuple[torch.Tensor, ...], labels: torch.Tensor) -> torch.Tensor:
        if isinstance(logits, tuple):
            logits = logits[0]
        if (labels[:, : labels.shape[1] - logits.shape[1]] != IGNORED).any():
            raise ValueError(
                f"logits must be of all supervised tokens, got those of the last {logits.shape[1]} of {labels.shape[1]} "
                "tokens: give the model no logits_to_keep"
            )
        return count_matches(*right_tokens(logits, labels, ahead))

    return count


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`exact_match` and `token_accuracy` of whole responses, for a Trainer.

        Trainer(..., compute_metrics=compute_metrics, preprocess_logits_for_metrics=preprocess_logits(model))

    Raises:
        ValueError: the predictions are neither, there are none, or an example has no supervised token.
    """
    given = prediction.predictions
    # With eval_do_concat_batches=False, Trainer gives a list of batches.
    batches = [batch[0] if isinstance(batch, tuple) else batch for batch in (given if isinstance(given, list) else [given])]
    for batch in batches:
        if not isinstance(batch, np.ndarray) or batch.shape[1:] != (3,):
            kind = batch.shape if isinstance(batch, np.ndarray) else type(batch).__name__
            raise ValueError(
                f"predictions must be an array (count, 3), as preprocess_logits gives them, got {kind}: pass "
                "preprocess_logits_for_metrics=longhand.preprocess_logits(model)"
            )
    matches = np.concatenate([np.zeros((0, 3), np.int64), *batches])
    if not len(matches):
        raise ValueError("predictions must have at least one row, got none")
    if (empty := np.flatnonzero(matches[:, 2] == 0)).size:
        raise ValueError(f"labels must have tokens that are supervised (not -100), got none in example {empty[0]}")
    return measure(matches)


def place_accuracy(right: torch.Tensor, supervised: torch.Tensor) -> torch.Tensor:
    """Share of right tokens at each output place, the last supervised token first; (most places,).

    Args:
        right: (count, tokens), whether each token is right.
        supervised: (count, tokens), whether it counts.
    """
    place = supervised.flip(1).cumsum(1).flip(1)[supervised]
    return torch.bincount(place, right[supervised].double())[1:] / torch.bincount(place)[1:]


def generated_matches(
    model: CoupledGPTForCausalLM,
    batch: Batch,
    answer_length: int | None = None,
    start: int = 1,
    **options: Any,
) -> torch.Tensor:
    """As `count_matches`, for responses that the model generates to the queries of a collator's batch.

    Args:
        start: the smallest position id; the model derives 1.
        options: further options of `generate`.
    """
    supervised = batch["labels"] != IGNORED
    query_lengths = supervised.int().argmax(1)
    longest = int(query_lengths.max())
    # A shorter query moves right, so that all responses begin in one column.
    column = torch.arange(longest) - (longest - query_lengths).unsqueeze(1)
    prompts = batch["input_ids"].gather(1, column.clamp(min=0)).masked_fill(column < 0, PAD)
    attention_mask = (prompts != PAD).long().to(model.device)
    if start != 1:
        planned = int(model.config.rule.plan(prompts, 1).response_length)
        ids = model.model.plan_position_ids(prompts, longest + planned)
        options = {"position_ids": shift_position_ids(ids, torch.tensor(start - 1)).to(model.device), **options}
    output = model.generate(prompts.to(model.device), attention_mask=attention_mask, do_sample=False, **options)
    output = output[:, longest:].cpu()
    width = max(output.shape[1], int(supervised.sum(1).max()))
    column = query_lengths.unsqueeze(1) + torch.arange(width)
    padded = torch.nn.functional.pad(batch["labels"], (0, width), value=IGNORED)
    expected = padded.gather(1, column)
    output = torch.nn.functional.pad(output, (0, width - output.shape[1]), value=PAD)
    right = (output == expected) & (expected != IGNORED)
    ends_in_time = ((output == PAD) | (expected != IGNORED)).all(1)
    count = (expected != IGNORED).sum(1)
    matches = torch.stack([(right.sum(1) == count) & ends_in_time, right.sum(1), count], dim=1)
    if answer_length is None:
        return matches
    # The answer is at the end of what was written: a wrong scratchpad may also be longer or shorter.
    place = torch.arange(answer_length)
    written, wanted = (
        tokens.gather(1, (length.unsqueeze(1) - answer_length + place).clamp(min=0))
        for tokens, length in ((output, (output != PAD).sum(1)), (expected, count))
    )
    return torch.cat([matches, (written == wanted).all(1, keepdim=True)], dim=1)
