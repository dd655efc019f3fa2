"""From formatted examples, or from rows of a dataset, to the inputs of a model: ids, labels, position ids."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.tasks.covering import NeighbourhoodBatch
from longhand.modeling import CoupledGPTConfig
from longhand.modeling.coupling import (
    CouplingRule,
    check_room,
    find_rule,
    largest_position_ids,
    shift_position_ids,
    spread_position_ids,
)
from longhand.modeling.relations import NOT_RELATED, Neighbours
from longhand.modeling.settling import IGNORED
from longhand.modeling.vocabulary import BOS, PAD


@dataclass(frozen=True)
class CouplingCollator:
    """Makes a batch of inputs, and changes position ids as `position_sampling` says.

    Attributes:
        coupling: the coupling rule, or its name.
        max_position_ids: the largest id that may be drawn. With `wrap_position_ids`, starts are uniform on the whole ring
            1..max_position_ids.
        position_sampling: a name of `POSITION_SAMPLINGS`.
        wrap_position_ids: whether ids continue at 1 after the largest, for random starts.
        max_multiplier: the largest multiplier, for `"multiplier"`.
        level_position_ids: the largest id of every level, for `"random_start"`; None means `max_position_ids`.
    """

    coupling: str | CouplingRule
    max_position_ids: int
    position_sampling: str = "fixed"
    wrap_position_ids: bool = False
    max_multiplier: int | None = None
    level_position_ids: tuple[int, ...] | None = None

    @classmethod
    def for_evaluation(cls, config: CoupledGPTConfig) -> "CouplingCollator":
        """The collator that gives the ids that a model of this configuration derives by itself."""
        return cls(config.rule, config.max_position_ids, "spread" if config.randomized_positions else "fixed")

    def __call__(
        self, examples: Examples | NeighbourhoodBatch, generator: np.random.Generator | None = None
    ) -> dict[str, Any]:
        """A batch for `CoupledGPTForCausalLM.forward`.

        `input_ids` and `labels` are (count, columns). Labels are the response with its end token, and -100 for tokens that
        are not supervised. `position_ids` is (1 or count, levels, columns), one row if all examples have the same ids.
        `logits_to_keep` counts the columns from the first `=` on. If there is padding, there is an `attention_mask`.
        Neighbourhoods are rows as `neighbourhood_inputs` makes them; the token that is right next follows.

        Args:
            generator: source of a random `position_sampling`.

        Raises:
            ValueError: the `position_sampling` needs ids in 1..max_position_ids, and the examples have larger ones.
        """
        if isinstance(examples, NeighbourhoodBatch):
            return _labelled_neighbourhoods(examples, find_rule(self.coupling).levels)
        input_ids = torch.from_numpy(examples.tokens).long()
        columns = input_ids.shape[1]
        rule = find_rule(self.coupling)
        planned = input_ids[:1] if examples.same_layout else input_ids
        if examples.position_ids is not None and not rule.reads_any_text:
            position_ids = torch.from_numpy(examples.position_ids[: len(planned)].astype(np.int64))
        else:
            position_ids = rule.plan(planned, columns).position_ids
        position_ids = POSITION_SAMPLINGS[self.position_sampling](self, planned, position_ids, len(examples), generator)
        labels = input_ids
        if examples.same_layout:
            labels = input_ids.clone()
            labels[:, : examples.query_lengths[0]] = IGNORED
        else:
            query = torch.arange(columns) < torch.from_numpy(examples.query_lengths).unsqueeze(1)
            labels = input_ids.masked_fill(query | (input_ids == PAD), IGNORED)
        if examples.supervised is not None:
            labels = labels.masked_fill(~torch.from_numpy(np.ascontiguousarray(examples.supervised)), IGNORED)
        batch = {
            "input_ids": input_ids,
            "labels": labels,
            "position_ids": position_ids,
            "logits_to_keep": columns - int(examples.query_lengths.min()) + 1,
        }
        return batch if examples.same_layout else batch | {"attention_mask": (input_ids != PAD).long()}


def neighbourhood_inputs(batch: NeighbourhoodBatch, levels: int) -> dict[str, Any]:
    """Every neighbourhood as a row of its own: `$`, the keys, the token. Every column sees `$`, the last one also the keys.

    Args:
        levels: position ids of a token, which are all 0, since `neighbours` says what is seen.

    Returns:
        `input_ids` (count, columns), `position_ids` (1, levels, columns), `neighbours` and `logits_to_keep`.
    """
    count, slots = batch.keys.shape
    columns = slots + 2
    input_ids = np.concatenate([np.full((count, 1), BOS), batch.keys, batch.tokens[:, None]], axis=1)
    seen = np.full((count, columns, slots + 1), -1)
    seen[:, :, 0] = 0
    seen[:, -1, 1:] = np.where(batch.keys == PAD, -1, np.arange(1, slots + 1))
    related = np.where(seen < 0, NOT_RELATED, np.concatenate([[batch.beginning], batch.relations])).astype(np.int32)
    return {
        "input_ids": torch.from_numpy(input_ids).long(),
        "position_ids": torch.zeros((1, levels, columns), dtype=torch.long),
        "neighbours": Neighbours(torch.from_numpy(seen), torch.from_numpy(related)),
        "logits_to_keep": 1,
    }


def _labelled_neighbourhoods(batch: NeighbourhoodBatch, levels: int) -> dict[str, Any]:
    """`neighbourhood_inputs` with one column more, the token that is right next, as the one label of each row.

    `neighbours` is a plain tuple: Trainer cannot move named ones.
    """
    inputs = neighbourhood_inputs(batch, levels)
    right = torch.from_numpy(batch.right).long().unsqueeze(1)
    like_first = (torch.cat([part, part[:, :1]], dim=1) for part in inputs["neighbours"])
    return {
        "input_ids": torch.cat([inputs["input_ids"], right], dim=1),
        "labels": torch.cat([torch.full_like(inputs["input_ids"], IGNORED), right], dim=1),
        "position_ids": nn.functional.pad(inputs["position_ids"], (0, 1)),
        "neighbours": tuple(like_first),
        "logits_to_keep": 2,
    }


def collate_labels(examples: LabelledTokens, generator: np.random.Generator | None = None) -> dict[str, torch.Tensor]:
    """A batch for `PairwiseBertForTokenClassification.forward`, which derives pair maps by itself.

    `input_ids`, `labels` and, if the examples have them, `states` are (count, columns). If rows differ in length, there is
    an `attention_mask`.
    """
    input_ids = torch.from_numpy(examples.tokens).long()
    batch = {"input_ids": input_ids, "labels": torch.from_numpy(examples.labels).long()}
    if examples.states is not None:
        batch["states"] = torch.from_numpy(examples.states).long()
    present = input_ids != PAD
    return batch if present.all() else batch | {"attention_mask": present.long()}


def collate_rows(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch for a model of either family, as a `data_collator` of Trainer. Models derive position ids by themselves.

    Batches differ in width. So a stream on several processes needs `accelerator_config={"dispatch_batches": False}`: by
    default Accelerate makes all batches on one process and joins them.

    Args:
        rows: rows of a dataset, see `example_columns`. A column `position_ids` is passed on to the model.

    Returns:
        `input_ids`, `labels` (-100 if a token is not supervised), `attention_mask` and, if rows have them, `position_ids`,
        (count, columns) each. Padding is on the right.
    """
    padding = {"input_ids": PAD, "labels": IGNORED, "position_ids": 0}
    batch = {
        name: torch.nn.utils.rnn.pad_sequence(
            [torch.as_tensor(row[name]).long() for row in rows], batch_first=True, padding_value=value
        )
        for name, value in padding.items()
        if name in rows[0]
    }
    return batch | {"attention_mask": (batch["input_ids"] != PAD).long()}


def _fixed(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    return position_ids


def _random_start(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    if collator.level_position_ids is None:
        return _started(collator, position_ids, position_ids.amax(dim=(1, 2), keepdim=True), count, generator)
    largest = position_ids.amax(dim=2, keepdim=True)
    room = torch.tensor(collator.level_position_ids).reshape(1, -1, 1)
    for needed, ids in zip(largest.amax(dim=(0, 2)).tolist(), collator.level_position_ids, strict=True):
        check_room(collator.coupling, needed, ids)
    starts = (room - largest + 1).numpy()
    return shift_position_ids(position_ids, torch.from_numpy(generator.integers(0, starts, size=(count, *starts.shape[1:]))))


def _batch_start(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    return _started(collator, position_ids, position_ids.amax(dim=(0, 1, 2), keepdim=True), 1, generator)


def _started(collator, position_ids, largest, count, generator) -> torch.Tensor:
    """Position ids moved up by `count` random numbers at each level, each as far as `largest` (count or 1, 1, 1) allows."""
    check_room(collator.coupling, int(largest.max()), collator.max_position_ids)
    starts = np.full((1, 1, 1), collator.max_position_ids)
    if not collator.wrap_position_ids:
        starts = starts - (largest.numpy() - 1)
    # numpy draws other numbers for one bound than for an array of equal bounds.
    highest = int(starts[0, 0, 0]) if len(starts) == 1 else starts
    offset = torch.from_numpy(generator.integers(0, highest, size=(count, position_ids.shape[1], 1)))
    return shift_position_ids(position_ids, offset, collator.max_position_ids if collator.wrap_position_ids else None)


def _multiplier(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    return position_ids * torch.from_numpy(generator.integers(1, collator.max_multiplier + 1, size=(count, 1, 1)))


def _planned_largest_ids(collator, tokens, position_ids) -> torch.Tensor:
    """The largest planned ids (1 or count, levels); raise ValueError if the plan or the written tokens exceed the room."""
    largest_ids = largest_position_ids(collator.coupling, tokens)
    check_room(collator.coupling, int(largest_ids.max()), collator.max_position_ids)
    if ((position_ids > largest_ids.unsqueeze(-1)) & (tokens != PAD).unsqueeze(1)).any():
        raise ValueError(
            "a response is longer than the query, which is all that the coupling rule "
            f"{find_rule(collator.coupling).name!r} plans for: "
            "positions cannot be randomized, choose another rule or position_sampling"
        )
    return largest_ids


def _randomized(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    largest_ids = _planned_largest_ids(collator, tokens, position_ids).expand(count, -1).numpy()
    ids = collator.max_position_ids
    # A random order of all ids: the first n ids of each row are its subset.
    order = generator.random((*largest_ids.shape, ids)).argsort(axis=-1) + 1
    subset = np.where(np.arange(ids) < largest_ids[..., None], order, ids)
    subset.sort(axis=-1)
    table = torch.from_numpy(np.pad(subset, ((0, 0), (0, 0), (1, 0))))
    return table.gather(-1, position_ids.clamp(max=ids).expand(count, -1, -1))


def _spread(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    return spread_position_ids(position_ids, _planned_largest_ids(collator, tokens, position_ids), collator.max_position_ids)


POSITION_SAMPLINGS: dict[str, Callable[..., torch.Tensor]] = {
    "fixed": _fixed,
    "random_start": _random_start,
    "batch_start": _batch_start,
    "multiplier": _multiplier,
    "randomized": _randomized,
    "spread": _spread,
}
"""How planned position ids change. All but `"spread"` are choices for training.

- `"fixed"`: not at all.
- `"random_start"`: at each level, all ids of an example move up by one random number (paper 1, Sec. 3.1).
- `"batch_start"`: at each level, all ids of a batch move up by one random number (Abacus: McLeish et al., 2024).
- `"multiplier"`: all ids of an example are multiplied by one random integer in 1..max_multiplier (paper 1, App. B.4, coupled
  rotary embeddings).
- `"randomized"`: at each level, the ids 1..n of an example become a random sorted subset of 1..max_position_ids (Ruoss et
  al., 2023, who draw one subset for a whole batch). n is the largest id planned for the query, so that no id tells how long
  the response is.
- `"spread"`: the form of `"randomized"` at evaluation, see `spread_position_ids`.
"""
