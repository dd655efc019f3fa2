"""From formatted examples, or from rows of a dataset, to the inputs of a model: ids, labels, position ids."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from longhand.data.checks import check_integer
from longhand.data.formatting import Batch, Examples, LabelledTokens, as_batch
from longhand.data.tasks.covering import NeighbourhoodBatch
from longhand.modeling import CoupledGPTConfig
from longhand.modeling.coupling import (
    CouplingRule,
    check_room,
    find_rule,
    largest_position_ids,
    plan_position_ids,
    shift_position_ids,
    spread_position_ids,
)
from longhand.modeling.position_encodings import POSITION_ENCODINGS
from longhand.modeling.relations import NOT_RELATED, with_levels
from longhand.modeling.settling import IGNORED
from longhand.modeling.vocabulary import PAD

LARGEST_NUMBER = 2**31 - 1
"""Ids, multipliers and tokens above this are refused: sums and products of two of them fit into 64 bits."""


class CollatorOptions(TypedDict, total=False):
    """Attributes of a `CouplingCollator` that may take the place of a configuration's."""

    coupling: str | CouplingRule | None
    max_position_ids: int | None
    wrap_position_ids: bool
    max_multiplier: int | None
    level_position_ids: tuple[int, ...] | None
    pad_token_id: int
    start: int


@dataclass(frozen=True)
class CouplingCollator:
    """Makes a batch of inputs, and changes position ids as `position_sampling` says.

    It takes formatted examples, or rows of a dataset as a `data_collator` of Trainer does. Trainer has one collator for
    training and evaluation: take `for_model`, whose batches have random ids in training only.

        CouplingCollator(position_sampling="random_start", max_position_ids=202)    # of rows that have `position_ids`
        CouplingCollator("addition", 202, "random_start")                           # derives the ids
        CouplingCollator.for_model(model)                                           # as the model's configuration says

    Attributes:
        coupling: the coupling rule, or its name; None for rows that have `position_ids`.
        max_position_ids: the largest id that may be drawn. With `wrap_position_ids`, starts are uniform on the whole ring
            1..max_position_ids. A sampling that draws no ids up to a largest one needs none.
        position_sampling: a name of `POSITION_SAMPLINGS`.
        wrap_position_ids: whether ids continue at 1 after the largest, for random starts.
        max_multiplier: the largest multiplier, for `"multiplier"`.
        level_position_ids: the largest id of every level, for `"random_start"`; None means `max_position_ids`.
        pad_token_id: padding of rows.
        training_only: whether a batch of rows keeps the ids as they are, and has the random ones beside them, for a model
            that `for_model` has prepared.
    """

    coupling: str | CouplingRule | None = None
    max_position_ids: int | None = None
    position_sampling: str = "fixed"
    wrap_position_ids: bool = False
    max_multiplier: int | None = None
    level_position_ids: tuple[int, ...] | None = None
    pad_token_id: int = PAD
    training_only: bool = False
    start: int = 1

    def __post_init__(self):
        sampling = self.position_sampling
        if sampling not in POSITION_SAMPLINGS:
            raise ValueError(f"position_sampling {sampling!r} is unknown: choose one of {', '.join(POSITION_SAMPLINGS)}")
        for name in ("max_position_ids", "max_multiplier", "start"):
            number = getattr(self, name)
            if number is not None:
                check_integer(name, number, 1, LARGEST_NUMBER)
        for number in self.level_position_ids or ():
            check_integer("each of level_position_ids", number, 1, LARGEST_NUMBER)
        if sampling == "multiplier" and self.max_multiplier is None:
            raise ValueError("position_sampling 'multiplier' needs max_multiplier")
        if sampling not in ("fixed", "multiplier") and self.max_position_ids is None and self.level_position_ids is None:
            raise ValueError(f"position_sampling {sampling!r} needs max_position_ids, the largest id that it may draw")
        if sampling in ("randomized", "spread") and self.coupling is None:
            raise ValueError(f"position_sampling {sampling!r} needs the coupling rule, which says how many ids are planned")

    @classmethod
    def for_evaluation(cls, config: CoupledGPTConfig, start: int = 1) -> "CouplingCollator":
        """The collator that gives the ids that a model of this configuration derives by itself.

        Args:
            start: the smallest id, 1 as derived, or the fixed number from which paper 1 counts in evaluation.
        """
        sampling = "spread" if config.randomized_positions else "fixed"
        return cls(config.rule, config.max_position_ids, sampling, start=start)

    @classmethod
    def for_training(
        cls, config: CoupledGPTConfig, position_sampling: str, **options: Unpack[CollatorOptions]
    ) -> "CouplingCollator":
        """The collator that gives random ids to train a model of this configuration.

        Args:
            options: further attributes, in place of the configuration's.

        Raises:
            ValueError: the sampling does not fit the configuration.
        """
        encoding = config.position_encoding
        legal = POSITION_ENCODINGS[encoding].position_samplings
        if position_sampling not in legal:
            raise ValueError(
                f"position_sampling {position_sampling!r} is not for position_encoding {encoding!r}: choose one of "
                f"{', '.join(legal)}"
            )
        if config.wrap_position_ids and position_sampling not in ("random_start", "batch_start"):
            raise ValueError(
                f"wrap_position_ids is for position_sampling 'random_start' or 'batch_start', got it with "
                f"{position_sampling!r}"
            )
        levels = options.get("level_position_ids")
        if levels is not None and (len(levels) != config.rule.levels or max(levels) > config.max_position_ids):
            legal_levels = f"{config.rule.levels} numbers from 1 to {config.max_position_ids}"
            raise ValueError(f"level_position_ids must be {legal_levels}, got {list(levels)}")
        given: CollatorOptions = {
            "coupling": None if config.takes_structure else config.rule,
            "max_position_ids": config.max_position_ids,
            "wrap_position_ids": config.wrap_position_ids,
        }
        given.update(options)
        return cls(position_sampling=position_sampling, **given)

    @classmethod
    def for_model(
        cls, model: PreTrainedModel, position_sampling: str = "random_start", **options: Unpack[CollatorOptions]
    ) -> "CouplingCollator":
        """A `data_collator` for a Trainer of this model: ids are random while the model is trained, and fixed otherwise.

        A batch has both. A hook on the model takes the random ones in training mode and drops them in evaluation mode. So
        evaluation during training, prefetched batches and processes that load data see what they should.

        Args:
            model: a model that takes `position_ids`. Those of longhand's decoders follow from their coupling rule and fit
                into their tables. For others, give `max_position_ids`, and rows with `position_ids` or the `coupling`.
            options: further attributes, in place of the model's own.

        Raises:
            ValueError: the sampling does not fit the model.
        """
        config: Any = model.config
        if getattr(config, "pad_token_id", None) is not None:
            options.setdefault("pad_token_id", config.pad_token_id)
        make = partial(cls.for_training, config) if config.model_type == CoupledGPTConfig.model_type else cls
        collator = replace(make(position_sampling=position_sampling, **options), training_only=True)
        model.register_forward_pre_hook(_take_ids, with_kwargs=True)
        return collator

    def __call__(
        self,
        examples: Examples | NeighbourhoodBatch | list[Mapping[str, object]],
        generator: np.random.Generator | None = None,
    ) -> Batch:
        """A batch for `CoupledGPTForCausalLM.forward`; of rows, as `collate_rows` makes it, with position ids.

        `input_ids` and `labels` are (count, columns). Labels are the response with its end token, and -100 for tokens that
        are not supervised. `position_ids` is (1 or count, levels, columns), one row if all examples have the same ids.
        `logits_to_keep` counts the columns from the first `=` on. If there is padding, there is an `attention_mask`.
        Neighbourhoods are rows as `NeighbourhoodBatch.labelled_inputs` makes them.

        Args:
            generator: source of a random `position_sampling`.

        Raises:
            ValueError: the `position_sampling` needs ids in 1..max_position_ids, and the examples have larger ones; or there
                are neither ids nor a rule.
        """
        if not isinstance(examples, (Examples, NeighbourhoodBatch)):
            return self._batch_of_rows(examples, generator)
        if self.coupling is None:
            raise ValueError("a collator of examples needs the coupling rule that their ids follow from")
        rule = find_rule(self.coupling)
        if isinstance(examples, NeighbourhoodBatch):
            return examples.labelled_inputs(rule.levels)
        input_ids = torch.from_numpy(examples.tokens).long()
        columns = input_ids.shape[1]
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
        batch: Batch = {
            "input_ids": input_ids,
            "labels": labels,
            "position_ids": position_ids,
            "logits_to_keep": columns - int(examples.query_lengths.min()) + 1,
        }
        if not examples.same_layout:
            batch["attention_mask"] = (input_ids != PAD).long()
        return batch

    def _batch_of_rows(self, rows: list[Mapping[str, object]], generator: np.random.Generator | None) -> Batch:
        """The batch of `collate_rows` with position ids (count, tokens), or (count, levels, tokens) of several levels."""
        batch = collate_rows(rows, self.pad_token_id)
        tokens = batch["input_ids"]
        if "position_ids" in batch:
            ids = with_levels(batch["position_ids"])
        elif self.coupling is None:
            raise ValueError(
                "rows have no position_ids: make them with load_task_dataset(..., position_ids=True), or give the collator "
                "a coupling rule"
            )
        else:
            planned = plan_position_ids(self.coupling, tokens, tokens.shape[1]).expand(len(rows), -1, -1)
            ids = planned * batch["attention_mask"].unsqueeze(1)
        if generator is None and self.position_sampling not in ("fixed", "spread"):
            # Trainer seeds and restores this source, in every process that loads data.
            generator = np.random.default_rng(int(torch.randint(2**62, ())))
        drawn = POSITION_SAMPLINGS[self.position_sampling](self, tokens, ids, len(rows), generator)
        ids, drawn = (each.squeeze(1) if each.shape[1] == 1 else each for each in (ids, drawn))
        batch["position_ids"] = ids if self.training_only else drawn
        if self.training_only:
            batch["drawn_position_ids"] = drawn
        return batch


def _take_ids(model: nn.Module, arguments: tuple, named: dict[str, object]) -> tuple[tuple, dict[str, object]]:
    """A hook before the forward pass: a model in training mode takes the drawn ids of a batch in place of the fixed ones."""
    drawn = named.pop("drawn_position_ids", None)
    if drawn is not None and model.training:
        named["position_ids"] = drawn
    return arguments, named


def collate_labels(examples: LabelledTokens, generator: np.random.Generator | None = None) -> Batch:
    """A batch for `PairwiseBertForTokenClassification.forward`, which derives pair maps by itself.

    `input_ids`, `labels` and, if the examples have them, `states` are (count, columns). If rows differ in length, there is
    an `attention_mask`.
    """
    input_ids = torch.from_numpy(examples.tokens).long()
    batch: Batch = {"input_ids": input_ids, "labels": torch.from_numpy(examples.labels).long()}
    if examples.states is not None:
        batch["states"] = torch.from_numpy(examples.states).long()
    present = input_ids != PAD
    if not present.all():
        batch["attention_mask"] = present.long()
    return batch


WHOLE_NUMBERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class RowColumn:
    """The kind of a column of rows: whole numbers for every token, or for every pair of tokens.

    Attributes:
        filler: the number that stands at padding.
        smallest: the smallest legal number.
        token_axes: number of the last axes, which are as long as the row's `input_ids`.
        outer_axis: name of an axis that may come before these; None if there is none.
    """

    filler: int
    smallest: int = 0
    token_axes: int = 1
    outer_axis: str | None = None

    def describe(self, tokens: int | None) -> str:
        """The legal shapes of a row with so many tokens, None for any number of at least one."""
        sizes = ["tokens, at least 1" if tokens is None else f"{tokens} tokens"] * self.token_axes
        inner = ", ".join(sizes)
        return f"({inner})" if self.outer_axis is None else f"({inner}) or ({self.outer_axis}, {inner})"

    def fits(self, shape: torch.Size, tokens: int | None) -> bool:
        """Whether a row with so many tokens, None for any number, may have values of this shape."""
        outer, inner = shape[: -self.token_axes], shape[-self.token_axes :]
        legal = len(inner) == self.token_axes and len(outer) <= (self.outer_axis is not None)
        return legal and 0 not in shape and (tokens is None or all(size == tokens for size in inner))


ROW_COLUMNS = {
    "input_ids": RowColumn(PAD),
    "labels": RowColumn(IGNORED, smallest=IGNORED),
    "position_ids": RowColumn(0, outer_axis="levels"),
    "pair_map": RowColumn(NOT_RELATED, smallest=NOT_RELATED, token_axes=2, outer_axis="heads"),
    "attention_mask": RowColumn(0),
}
"""The columns of rows that models take, `input_ids` first, whose length is that of the others."""


def collate_rows(rows: list[Mapping[str, object]], pad_token_id: int = PAD) -> Batch:
    """A batch for a model of either family, as a `data_collator` of Trainer. Models derive position ids by themselves.

    Batches differ in width. So a stream on several processes needs `accelerator_config={"dispatch_batches": False}`: by
    default Accelerate makes all batches on one process and joins them.

    Args:
        rows: rows of a dataset, see `example_columns`. The columns that models take (`ROW_COLUMNS`) are passed on, texts and
            sizes are not.
        pad_token_id: padding of `input_ids`.

    Returns:
        `input_ids` (count, tokens), `attention_mask` and, if rows have them, `labels` (-100 if a token is not supervised),
        `position_ids` (count, tokens) or (count, levels, tokens) with 0 for no id, and `pair_map` (count, tokens, tokens) or
        (count, heads, tokens, tokens), -1 for pairs that are not related. Padding is on the right.

    Raises:
        ValueError: there is no row; a row lacks a column that another one has; or values are no whole numbers, too small, or
            of another shape than the row's `input_ids` ask for. The message has the column, the row and what would fit.
    """
    check_integer("pad_token_id", pad_token_id, 0, LARGEST_NUMBER)
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        got = " ".join(f"{rows!r:.60}".split())
        raise ValueError(f"rows must be a list of at least one row, {{column: values}}, got {got}")
    for name in ("position_bias", "inputs_embeds", "states"):
        if any(name in row for row in rows):
            raise ValueError(f"rows may not have {name}: a batch is made of {', '.join(ROW_COLUMNS)}")
    lengths: list[int] = []
    batch = {}
    for name, column in ROW_COLUMNS.items():
        values = [row.get(name) for row in rows]
        lacking = [number for number, own in enumerate(values) if own is None]
        if len(lacking) < len(rows) or name == "input_ids":
            if lacking:
                raise ValueError(f"row {lacking[0]} of the batch has no {name}: give it to every row, or to none")
            tensors = [_read_values(name, column, number, own, lengths) for number, own in enumerate(values)]
            lengths = lengths or [len(own) for own in tensors]
            batch[name] = _stack(name, column, tensors, pad_token_id if name == "input_ids" else column.filler)
    if "attention_mask" not in batch:
        batch["attention_mask"] = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    return as_batch(batch)


def _read_values(name: str, column: RowColumn, row: int, values: object, lengths: list[int]) -> torch.Tensor:
    """Return a row's values of one column; raise ValueError unless they are whole numbers of a legal shape.

    Args:
        lengths: the number of tokens of every row; empty for `input_ids`.
    """
    tokens = lengths[row] if lengths else None
    tensor = None
    # These errors are of lists of several lengths, or of other things than numbers.
    with suppress(TypeError, ValueError, RuntimeError):
        tensor = torch.as_tensor(values)
    if tensor is None or tensor.dtype not in WHOLE_NUMBERS or not column.fits(tensor.shape, tokens):
        legal = column.describe(tokens) + (", as its input_ids" if lengths else "")
        got = f"{values!r:.60}" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        raise ValueError(f"{name} of row {row} of the batch must be whole numbers {legal}, got {got}")
    return tensor.long()


def _stack(name: str, column: RowColumn, tensors: list[torch.Tensor], filler: int) -> torch.Tensor:
    """Stack the values of all rows as int64, filled up at the end of every axis of tokens.

    Raises:
        ValueError: rows differ in their outer axis, or a number is too small.
    """
    outer = tensors[0].shape[: -column.token_axes]
    for row, tensor in enumerate(tensors):
        if tensor.shape[: -column.token_axes] != outer:
            shapes = f"{tuple(tensors[0].shape)} in row 0 of the batch and {tuple(tensor.shape)} in row {row}"
            raise ValueError(f"{name} must have the same {column.outer_axis} in every row, got {shapes}")
    longest = max(tensor.shape[-1] for tensor in tensors)
    stacked = torch.full((len(tensors), *outer, *[longest] * column.token_axes), filler)
    for row, tensor in zip(stacked, tensors, strict=True):
        row[tuple(slice(size) for size in tensor.shape)] = tensor
    smallest = stacked.flatten(1).amin(1)
    if smallest.min() < column.smallest:
        row = int(smallest.argmin())
        raise ValueError(f"{name} must be {column.smallest} or above, got {int(smallest[row])} in row {row} of the batch")
    return stacked


def _check_room(collator: CouplingCollator, needed: int, ids: int) -> None:
    """Raise ValueError if more position ids are needed than may be drawn."""
    if collator.coupling is not None:
        check_room(collator.coupling, needed, ids)
    elif needed > ids:
        raise ValueError(f"rows have position_ids up to {needed}: max_position_ids must be at least that, got {ids}")


def _fixed(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    return position_ids if collator.start == 1 else shift_position_ids(position_ids, torch.tensor(collator.start - 1))


def _random_start(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    if collator.level_position_ids is None:
        return _started(collator, position_ids, position_ids.amax(dim=(1, 2), keepdim=True), count, generator)
    largest = position_ids.amax(dim=2, keepdim=True)
    if largest.shape[1] != len(collator.level_position_ids):
        raise ValueError(
            f"level_position_ids must have a number for each of {largest.shape[1]} levels of position_ids, got "
            f"{list(collator.level_position_ids)}"
        )
    room = torch.tensor(collator.level_position_ids).reshape(1, -1, 1)
    for needed, ids in zip(largest.amax(dim=(0, 2)).tolist(), collator.level_position_ids, strict=True):
        _check_room(collator, needed, ids)
    starts = (room - largest + 1).numpy()
    return shift_position_ids(position_ids, torch.from_numpy(generator.integers(0, starts, size=(count, *starts.shape[1:]))))


def _batch_start(collator, tokens, position_ids, count, generator) -> torch.Tensor:
    return _started(collator, position_ids, position_ids.amax(dim=(0, 1, 2), keepdim=True), 1, generator)


def _started(collator, position_ids, largest, count, generator) -> torch.Tensor:
    """Position ids moved up by `count` random numbers at each level, each as far as `largest` (count or 1, 1, 1) allows."""
    _check_room(collator, int(largest.max()), collator.max_position_ids)
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
    _check_room(collator, int(largest_ids.max()), collator.max_position_ids)
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

- `"fixed"`: not at all, or by the collator's `start`.
- `"random_start"`: at each level, all ids of an example move up by one random number (paper 1, Sec. 3.1).
- `"batch_start"`: at each level, all ids of a batch move up by one random number (Abacus: McLeish et al., 2024).
- `"multiplier"`: all ids of an example are multiplied by one random integer in 1..max_multiplier (paper 1, App. B.4, coupled
  rotary embeddings).
- `"randomized"`: at each level, the ids 1..n of an example become a random sorted subset of 1..max_position_ids (Ruoss et
  al., 2023, who draw one subset for a whole batch). n is the largest id planned for the query, so that no id tells how long
  the response is.
- `"spread"`: the form of `"randomized"` at evaluation, see `spread_position_ids`.
"""
