"""From formatted examples, or from rows of a dataset, to the inputs of a model: ids, labels, position ids."""

# Used by: batches.py, columns.py, families.py, metrics.py, data/proofs, data/tasks, hub_cards/evaluation,
# hub_cards/publishing, hub_cards/research/gpu, hub_cards/research/structured, hub_cards/training. Changed freely.

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, partial, reduce
from typing import Any, TypedDict, Unpack, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from longhand.data.formatting import Batch, Examples, LabelledTokens, as_batch, repeat_row
from longhand.data.machines.covering import NeighbourhoodBatch
from longhand.data.splits import make_generator
from longhand.modeling import CoupledGPTConfig
from longhand.modeling.checks import check_integer
from longhand.modeling.coupling import (
    CouplingRule,
    check_room,
    find_rule,
    largest_position_ids,
    plan_position_ids,
    shift_position_ids,
    spread_position_ids,
)
from longhand.modeling.inputs import TaskConfig
from longhand.modeling.position_encodings import POSITION_ENCODINGS
from longhand.modeling.relations import NOT_RELATED, with_levels
from longhand.modeling.settling import IGNORED, NO_STATE
from longhand.modeling.values import FLOATS, INTEGERS, describe_kind
from longhand.modeling.vocabulary import PAD

LARGEST_NUMBER = 2**31 - 1
"""Ids, multipliers and tokens above this are refused: sums and products of two of them fit into 64 bits."""


RING_SAMPLINGS = ("random_start", "batch_start")
"""Ways to vary ids that may continue at 1 after the largest. Their starts are drawn up to where the largest ids allow."""

EVERY_ROW = slice(None)

_PLANNED_AT_ONCE = 1024
"""Examples whose ids are planned at once, so that memory does not grow with a training set."""


class CollatorOptions(TypedDict, total=False):
    """Attributes of a `CouplingCollator` that may take the place of a configuration's."""

    coupling: str | CouplingRule | None
    max_position_ids: int | None
    wrap_position_ids: bool
    max_multiplier: int | None
    level_position_ids: tuple[int, ...] | None
    pad_token_id: int
    padding_side: str
    start: int
    seed: int
    most_levels: int | None


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
        padding_side: the side of rows on which padding stands.
        training_only: whether a batch of rows keeps the ids as they are, and has the random ones beside them, for a model
            that `for_model` has prepared.
        seed: of the random ids of rows. They are a function of it and of the rows of a batch in their order, so a run that
            resumes from a checkpoint draws what an uncut run draws, with any number of processes that load data. Shuffled
            batches hold other rows in every epoch, and draw other ids. A row that is alone in its batch keeps its own
            in every epoch, and so do batches that are not shuffled.
        most_levels: the most ids of a token that the model of the batches reads; None if that is not known.
        evaluation_sampling: how the ids vary that a batch has beside the random ones; `"spread"` for a model of randomized
            positions.
        model_derives_ids: whether rows may lack ids for which there is no rule here, since the model derives them.
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
    padding_side: str = "right"
    seed: int = 0
    most_levels: int | None = None
    evaluation_sampling: str = "fixed"
    model_derives_ids: bool = False

    def __post_init__(self):
        sampling = self.position_sampling
        if sampling not in POSITION_SAMPLINGS:
            raise ValueError(f"position_sampling {sampling!r} is unknown: choose one of {', '.join(POSITION_SAMPLINGS)}")
        if self.coupling is not None:
            find_rule(self.coupling)
        read_by = {"wrap_position_ids": RING_SAMPLINGS, "max_multiplier": ("multiplier",)}
        for name, samplings in {**read_by, "level_position_ids": ("random_start",)}.items():
            if getattr(self, name) not in (None, False) and sampling not in samplings:
                legal = " or ".join(map(repr, samplings))
                raise ValueError(f"{name} is for position_sampling {legal}, got it with {sampling!r}: leave out one of them")
        if self.wrap_position_ids and self.level_position_ids is not None:
            raise ValueError("level_position_ids is for ids that do not wrap, got it with wrap_position_ids: leave out one")
        check_integer("seed", self.seed, 0, LARGEST_NUMBER)
        for name in ("max_position_ids", "max_multiplier", "start", "most_levels"):
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

    @cached_property
    def rule(self) -> CouplingRule:
        """The rule that `coupling` is or names. For a collator without one, ValueError is raised."""
        return find_rule(cast(Any, self.coupling))

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
        if faults := sampling_faults(config.position_encoding, position_sampling, config.wrap_position_ids):
            raise ValueError("; ".join(faults))
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
        cls, model: PreTrainedModel, position_sampling: str | None = None, **options: Unpack[CollatorOptions]
    ) -> "CouplingCollator":
        """A `data_collator` for a Trainer of this model: ids are random while the model is trained, and fixed otherwise.

        A batch has both. A hook on the model takes the random ones in training mode and drops them in evaluation mode. So
        evaluation during training, prefetched batches and processes that load data see what they should.

        Ids of several levels are refused for a model that reads one id a token, as those of transformers do: unnoticed, a
        Llama may take the levels for its heads. `with_structure(model, levels=...)` lets it read them.

        Args:
            model: a model that takes `position_ids`, and the very one that is trained: with `model_init` of Trainer, make
                the collator there too, since a second model has no hook. The ids of longhand's decoders follow from their
                coupling rule and fit into their tables. For others, give `max_position_ids`, and rows with `position_ids`
                or the `coupling`.
            position_sampling: a name of `POSITION_SAMPLINGS`; None for what the configuration of a model of longhand says:
                `"randomized"` with `randomized_positions`, else `"random_start"` if its encoding takes this, else
                `"fixed"`. For models of others, None means `"random_start"`.
            options: further attributes, in place of the model's own.

        Raises:
            ValueError: the sampling does not fit the model.
        """
        config: Any = model.config
        if getattr(config, "pad_token_id", None) is not None:
            options.setdefault("pad_token_id", config.pad_token_id)
        options.setdefault("most_levels", _levels_of(model))
        is_decoder = config.model_type == CoupledGPTConfig.model_type
        make = partial(cls.for_training, config) if is_decoder else cls
        collator = make(position_sampling=position_sampling or _default_sampling(config), **options)
        collator = replace(
            collator,
            training_only=True,
            evaluation_sampling="spread" if getattr(config, "randomized_positions", False) else "fixed",
            model_derives_ids=isinstance(config, TaskConfig) and not is_decoder,
        )
        model.register_forward_pre_hook(_take_ids, with_kwargs=True)
        return collator

    def __call__(
        self,
        examples: Examples | NeighbourhoodBatch | list[Mapping[str, object]],
        generator: np.random.Generator | None = None,
        share: slice = EVERY_ROW,
    ) -> Batch:
        """A batch for `CoupledGPTForCausalLM.forward`; of rows, as `collate_rows` makes it, with position ids.

        `input_ids` and `labels` are (count, columns). Labels are the response with its end token, and -100 for tokens that
        are not supervised. `position_ids` is (count, levels, columns), one repeated row if all examples have the same.
        `logits_to_keep` counts the columns from the first `=` on. If there is padding, there is an `attention_mask`.
        Neighbourhoods are rows as `NeighbourhoodBatch.labelled_inputs` makes them.

        Args:
            generator: source of a random `position_sampling`.
            share: which of the examples, or of the neighbourhoods, the batch holds. They are as in a batch of all of them,
                for which numbers are drawn, and which is as wide.

        Raises:
            ValueError: the `position_sampling` needs ids in 1..max_position_ids, and the examples have larger ones; or there
                are neither ids nor a rule; or a share of rows is asked for.
        """
        if not isinstance(examples, (Examples, NeighbourhoodBatch)):
            if share != EVERY_ROW:
                raise ValueError(f"a share is for examples: of rows, give those that the batch holds, got {share}")
            return self._batch_of_rows(examples, generator)
        if self.coupling is None:
            raise ValueError("a collator of examples needs the coupling rule that their ids follow from")
        if isinstance(examples, NeighbourhoodBatch):
            return examples.take(share).labelled_inputs(self.rule.levels)
        input_ids, query_lengths = torch.from_numpy(examples.tokens[share]).long(), examples.query_lengths[share]
        columns = input_ids.shape[1]
        planned, position_ids, largest_ids = self._plan(examples, share)
        draw = Draw(len(examples), share, generator, largest_ids)
        position_ids = POSITION_SAMPLINGS[self.position_sampling](self, planned, position_ids, draw)
        if examples.same_layout:
            labels = input_ids.clone()
            labels[:, : query_lengths[0]] = IGNORED
        else:
            query = torch.arange(columns) < torch.from_numpy(query_lengths).unsqueeze(1)
            labels = input_ids.masked_fill(query | (input_ids == PAD), IGNORED)
        if examples.supervised is not None:
            labels = labels.masked_fill(~torch.from_numpy(np.ascontiguousarray(examples.supervised[share])), IGNORED)
        batch: Batch = {
            "input_ids": input_ids,
            "labels": labels,
            "position_ids": repeat_row(position_ids, len(input_ids)) if len(position_ids) == 1 else position_ids,
            "logits_to_keep": columns - int(examples.query_lengths.min()) + 1,
        }
        if not examples.same_layout:
            batch["attention_mask"] = (input_ids != PAD).long()
        return batch

    def _plan(self, examples: Examples, share: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The tokens and the planned ids of a share of examples, or one row that stands for all of them.

        With them come the largest ids (count or 1, levels) of all examples, if these are needed and more than the share.
        """
        known = examples.largest_ids
        if examples.same_layout:
            return *self._planned_rows(examples, slice(1)), None
        if self.position_sampling not in RING_SAMPLINGS:
            return *self._planned_rows(examples, share), None
        # One number is drawn otherwise than several equal ones: where all have one plan, it is made of all.
        if known is not None and (known != known[:1]).any():
            return *self._planned_rows(examples, share), torch.from_numpy(known)
        tokens, position_ids = self._planned_rows(examples, EVERY_ROW)
        own_ids = position_ids[share] if len(position_ids) > 1 else position_ids
        return tokens[share], own_ids, position_ids.amax(-1)

    def _planned_rows(self, examples: Examples, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """The tokens (rows, columns) of some examples, and their planned ids (rows or 1, levels, columns)."""
        rule, tokens = self.rule, torch.from_numpy(examples.tokens[rows]).long()
        if examples.position_ids is not None and not rule.reads_any_text:
            return tokens, torch.from_numpy(examples.position_ids[rows].astype(np.int64))
        return tokens, rule.plan(tokens, tokens.shape[1]).position_ids

    def know_largest_ids(self, examples: Examples) -> Examples:
        """Examples with `largest_ids`, by which a share of any of them is made without a plan of the others.

        They are as they were if a plan of all is not needed, or if ids go on behind the text of a row.
        """
        if self.position_sampling not in RING_SAMPLINGS or examples.same_layout:
            return examples
        largest: list[np.ndarray] = []
        for first in range(0, len(examples), _PLANNED_AT_ONCE):
            tokens, position_ids = self._planned_rows(examples, slice(first, first + _PLANNED_AT_ONCE))
            position_ids = position_ids.expand(len(tokens), -1, -1)
            of_text = (position_ids * (tokens != PAD).unsqueeze(1)).amax(-1)
            if not torch.equal(of_text, position_ids.amax(-1)):
                return examples
            largest.append(of_text.numpy())
        return replace(examples, largest_ids=np.concatenate(largest))

    def _batch_of_rows(self, rows: list[Mapping[str, object]], generator: np.random.Generator | None) -> Batch:
        """The batch of `collate_rows` with position ids (count, tokens), or (count, levels, tokens) of several levels."""
        batch, present = _collate(rows, self.pad_token_id, self.padding_side)
        if self.model_derives_ids and self.coupling is None and "position_ids" not in batch:
            return as_batch(batch)
        tokens = batch.get("input_ids", present)
        if "position_ids" in batch:
            ids = with_levels(batch["position_ids"])
        elif self.coupling is None or "input_ids" not in batch:
            raise ValueError(
                "rows have no position_ids: make them with load_task_dataset(..., position_ids=True), or give the collator "
                "a coupling rule"
            )
        else:
            planned = plan_position_ids(self.coupling, tokens, tokens.shape[1]).expand(len(rows), -1, -1)
            ids = planned * present.unsqueeze(1)
        if self.most_levels is not None and ids.shape[1] > self.most_levels:
            raise ValueError(
                f"rows have {ids.shape[1]} ids a token, and the model reads {self.most_levels}: give it more levels by "
                f"longhand.with_structure(model, levels={ids.shape[1]}), or the collator most_levels={ids.shape[1]} if the "
                "model reads them by itself"
            )
        if generator is None and self.position_sampling not in ("fixed", "spread"):
            generator = self._generator_of(tokens, ids)
        draw = Draw(len(rows), EVERY_ROW, generator)
        drawn = POSITION_SAMPLINGS[self.position_sampling](self, tokens, ids, draw)
        if self.evaluation_sampling != "fixed":
            ids = POSITION_SAMPLINGS[self.evaluation_sampling](self, tokens, ids, draw)
        batch["position_ids"] = _as_column(ids if self.training_only else drawn)
        if self.training_only:
            batch["drawn_position_ids"] = _as_column(drawn)
        return batch

    def _generator_of(self, tokens: torch.Tensor, ids: torch.Tensor) -> np.random.Generator:
        """The source of the random ids of rows: a function of `seed`, and of what the rows hold in their order."""
        # A collator does not know its step: batches are made ahead of it, in other processes, and skipped by a resumption.
        held = [
            hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() for tensor in (tokens, ids)
        ]
        return make_generator(self.seed, "rows", *held)


def _as_column(position_ids: torch.Tensor) -> torch.Tensor:
    """Ids (count, levels, tokens) as a column of rows has them: without the axis of levels if there is one level."""
    return position_ids.squeeze(1) if position_ids.shape[1] == 1 else position_ids


def _default_sampling(config: Any) -> str:
    """How ids vary in training if nobody says it, see `CouplingCollator.for_model`."""
    if not isinstance(config, TaskConfig):
        return "random_start"
    if getattr(config, "randomized_positions", False):
        return "randomized"
    encoding = POSITION_ENCODINGS.get(getattr(config, "position_encoding", ""))
    return "random_start" if encoding and "random_start" in encoding.position_samplings else "fixed"


def _levels_of(model: PreTrainedModel) -> int | None:
    """The most ids of a token that a model reads; None for a model of this package, which refuses others by itself."""
    if isinstance(model.config, TaskConfig):
        return None
    structure = getattr(model, "structure_config", None)
    return 1 if structure is None else structure.levels or 1


def _take_ids(model: nn.Module, arguments: tuple, named: dict[str, object]) -> tuple[tuple, dict[str, object]]:
    """A hook before the forward pass: a model in training mode takes the drawn ids of a batch in place of the fixed ones."""
    drawn = named.pop("drawn_position_ids", None)
    if drawn is not None and model.training:
        named["position_ids"] = drawn
    return arguments, named


def collate_labels(
    examples: LabelledTokens, generator: np.random.Generator | None = None, share: slice = EVERY_ROW
) -> Batch:
    """A batch for `PairwiseBertForTokenClassification.forward`, which derives pair maps by itself.

    `input_ids`, `labels` and, if the examples have them, `states` are (count, columns). If rows differ in length, there is
    an `attention_mask`.

    Args:
        share: which of the examples the batch holds, as wide as a batch of all of them.
    """
    input_ids = torch.from_numpy(examples.tokens[share]).long()
    batch: Batch = {"input_ids": input_ids, "labels": torch.from_numpy(examples.labels[share]).long()}
    if examples.states is not None:
        batch["states"] = torch.from_numpy(examples.states[share]).long()
    if (examples.tokens == PAD).any():
        batch["attention_mask"] = (input_ids != PAD).long()
    return batch


TRUTH_VALUES = (torch.bool,)

KINDS = {INTEGERS: "whole numbers", FLOATS: "floats", TRUTH_VALUES: "truth values"}
"""What the values of a column are, in words."""

RIGHT, LEFT = "right", "left"
PADDING_SIDES = (RIGHT, LEFT)


@dataclass(frozen=True)
class RowColumn:
    """The kind of a column of rows: values for the row, for every token, or for every pair of tokens.

    Attributes:
        filler: what stands at padding; None for the lowest number of the type.
        kind: the legal types, a key of `KINDS`.
        smallest: the smallest legal number; None for any.
        token_axes: number of axes that are as long as the row's tokens.
        outer_axis: name of an axis that may come before these; None if there is none.
        inner_axis: name of an axis that comes behind them; None if there is none.
        needs_outer: whether a batch always has the outer axis, as models take it.
    """

    filler: float | None = 0
    kind: tuple[torch.dtype, ...] = INTEGERS
    smallest: int | None = 0
    token_axes: int = 1
    outer_axis: str | None = None
    inner_axis: str | None = None
    needs_outer: bool = False

    def describe(self, tokens: int | None) -> str:
        """The legal values of a row with so many tokens, None for any number of at least one."""
        sizes = ["tokens, at least 1" if tokens is None else f"{tokens} tokens"] * self.token_axes
        inner = sizes if self.inner_axis is None else [*sizes, self.inner_axis]
        shapes = [f"({', '.join(inner)})" if inner else "one a row"]
        if self.outer_axis is not None:
            shapes.append(f"({', '.join([self.outer_axis, *inner])})")
        return f"{KINDS[self.kind]} {' or '.join(shapes)}"

    def fits(self, tensor: torch.Tensor, tokens: int | None) -> bool:
        """Whether a row with so many tokens, None for any number, may have these values."""
        axes = self.token_axes + (self.inner_axis is not None)
        outer, sizes = tensor.ndim - axes, tensor.shape[tensor.ndim - axes :][: self.token_axes]
        legal = 0 <= outer <= (self.outer_axis is not None) and 0 not in tensor.shape and tensor.dtype in self.kind
        return legal and (tokens is None or all(size == tokens for size in sizes))


_SCORES = RowColumn(0.0, FLOATS, smallest=None, token_axes=2, outer_axis="heads", needs_outer=True)
"""What is added to the scores of pairs."""

ROW_COLUMNS: dict[str, tuple[RowColumn, ...]] = {
    "input_ids": (RowColumn(PAD),),
    "inputs_embeds": (RowColumn(0.0, FLOATS, smallest=None, inner_axis="hidden"),),
    "labels": (
        RowColumn(IGNORED, smallest=IGNORED),
        RowColumn(smallest=IGNORED, token_axes=0),
        RowColumn(kind=FLOATS, smallest=None, token_axes=0, outer_axis="labels"),
    ),
    "position_ids": (RowColumn(0, outer_axis="levels"),),
    "pair_map": (RowColumn(NOT_RELATED, smallest=NOT_RELATED, token_axes=2, outer_axis="heads"),),
    "position_bias": (_SCORES,),
    "attention_mask": (RowColumn(0), replace(_SCORES, filler=False, kind=TRUTH_VALUES), replace(_SCORES, filler=None)),
    "states": (RowColumn(NO_STATE, smallest=NO_STATE),),
    "token_type_ids": (RowColumn(0),),
}
"""The columns of rows that models take, with the kinds that each may have. `input_ids`, or `inputs_embeds` in their place,
say how many tokens a row has."""

LABEL_NAMES = ("labels", "label", "label_ids")
"""Names of the column `labels`, as for the collators of transformers."""

_PAIR_AXES = 2
"""Axes of tokens of a column that has values for pairs of tokens."""

_SIMILAR = 0.8
"""From this ratio of `difflib` on, a column that holds no text is taken for a misspelt one."""


def collate_rows(
    rows: list[Mapping[str, object]],
    pad_token_id: int = PAD,
    padding_side: str = RIGHT,
    required: Collection[str] = (),
) -> dict[str, Any]:
    """A batch for a model, as a `data_collator` of Trainer. Models of longhand derive position ids by themselves.

    Batches differ in width. So a stream on several processes needs `accelerator_config={"dispatch_batches": False}`: by
    default Accelerate makes all batches on one process and joins them.

    Args:
        rows: rows of a dataset, see `example_columns`. The columns that models take (`ROW_COLUMNS`) are passed on; others,
            such as texts and sizes, are not, unless their name or their values for all pairs of tokens show that one of
            these is meant.
        pad_token_id: padding of `input_ids`.
        padding_side: `"right"`, or `"left"`, as for `generate()`.
        required: columns without which a batch is refused, such as `["pair_map"]`; trainers drop columns before a collator
            sees them.

    Returns:
        What rows have of these; count is the number of rows:

        - `input_ids` (count, tokens), or `inputs_embeds` (count, tokens, hidden).
        - `labels` (count, tokens), -100 if a token is not supervised. Rows of one label make `labels` (count,), whole
          numbers for classes and floats for a regression; rows of several floats, (count, labels).
        - `position_ids` (count, tokens) or (count, levels, tokens), 0 for no id.
        - `pair_map` (count, tokens, tokens) or (count, heads, tokens, tokens), -1 for pairs that are not related; or a
          mapping of such maps, if rows have one for each rule.
        - `position_bias` (count, heads or 1, tokens, tokens), 0 at padding.
        - `attention_mask` (count, tokens), also if rows have none; or (count, heads or 1, tokens, tokens), truth values or
          floats, which hides padding.
        - `states` (count, tokens), -1 where no answer is read, and `token_type_ids` (count, tokens).

    Raises:
        ValueError: there is no row; a row lacks a column that another one has, or has a misspelt one; or values are of
            another kind, too small, or of another shape than the row's tokens ask for. The message has the column, the row
            and what would fit.
    """
    batch, _ = _collate(rows, pad_token_id, padding_side)
    if unknown := sorted({*required} - {*ROW_COLUMNS}):
        raise ValueError(f"required must name columns that models take, {', '.join(ROW_COLUMNS)}, got {', '.join(unknown)}")
    if missing := [name for name in required if all(row.get(name) is None for row in rows)]:
        raise ValueError(
            f"rows have no {', '.join(missing)}, which is required: a misspelt column, or one that a trainer dropped before "
            "the collator saw it; remove_unused_columns=False keeps all, and TRL's SFTConfig wants "
            'dataset_kwargs={"skip_prepare_dataset": True} too'
        )
    return cast(dict[str, Any], batch)


def _collate(rows: list[Mapping[str, object]], pad_token_id: int, padding_side: str) -> tuple[Batch, torch.Tensor]:
    """As `collate_rows`, and which tokens (count, tokens) are no padding."""
    check_integer("pad_token_id", pad_token_id, 0, LARGEST_NUMBER)
    if padding_side not in PADDING_SIDES:
        raise ValueError(f"padding_side must be one of {', '.join(PADDING_SIDES)}, got {padding_side!r}")
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        got = " ".join(f"{rows!r:.60}".split())
        raise ValueError(f"rows must be a list of at least one row, {{column: values}}, got {got}")
    present_names = {name for row in rows for name, values in row.items() if values is not None}
    _check_names(rows, present_names)
    if {"input_ids", "inputs_embeds"} <= present_names:
        raise ValueError("rows must have input_ids or inputs_embeds, got both: leave out one of them")
    main = "inputs_embeds" if "inputs_embeds" in present_names else "input_ids"
    stack = partial(_stack_column, padding_side=padding_side)
    values = _values_of(rows, main)
    lengths = [len(_read_values(main, ROW_COLUMNS[main], row, row_values, None)) for row, row_values in enumerate(values)]
    batch: dict[str, object] = {}
    for name in ROW_COLUMNS:
        if name not in present_names and not (name == "labels" and present_names.intersection(LABEL_NAMES)):
            continue
        values = _values_of(rows, name)
        if name == "pair_map" and any(isinstance(row_values, Mapping) for row_values in values):
            maps = _by_rule(values)
            batch[name] = {rule: stack(name, rule_maps, lengths, f"{name} of {rule!r}") for rule, rule_maps in maps.items()}
        else:
            batch[name] = stack(name, values, lengths, name, filler=pad_token_id if name == "input_ids" else None)
    columns = torch.arange(max(lengths)) if padding_side == RIGHT else torch.arange(max(lengths)).flip(0)
    present = columns < torch.tensor(lengths).unsqueeze(1)
    batch.setdefault("attention_mask", present.long())
    return as_batch(batch), present


def _check_names(rows: list[Mapping[str, object]], names: set[str]) -> None:
    """Raise ValueError for a column that no model takes, if its name or its values show that one of `ROW_COLUMNS` is meant.

    Args:
        names: of all columns that are not None in every row.
    """
    if len(given := [name for name in LABEL_NAMES if name in names]) > 1:
        raise ValueError(f"rows must have labels under one name, got {' and '.join(given)}: leave out one of them")
    for name in sorted(map(str, names - ROW_COLUMNS.keys() - {*LABEL_NAMES})):
        spelled = re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()
        meant = get_close_matches(spelled, ROW_COLUMNS, n=1, cutoff=_SIMILAR)
        if meant and not any(isinstance(row.get(name), str) for row in rows):
            raise ValueError(
                f"rows have a column {name!r}, which no model takes: {meant[0]!r} is meant, or rename the column"
            )
        if fitting := [column for column in ROW_COLUMNS if column not in names and _could_be(column, spelled, rows, name)]:
            raise ValueError(
                f"rows have a column {name!r}, which no model takes: {' or '.join(map(repr, fitting))} may be meant; else "
                "rename the column, or remove it"
            )


def _could_be(column: str, spelled: str, rows: list[Mapping[str, object]], name: str) -> bool:
    """Whether values under another name are of a column: for all pairs of tokens, or for tokens and named by its end.

    All rows that have values are asked: offsets (tokens, 2) of a row of two tokens are of the shape of its pairs.
    """
    is_end = column.endswith(f"_{spelled}")
    kinds = [kind for kind in ROW_COLUMNS[column] if kind.token_axes == _PAIR_AXES or (is_end and kind.token_axes)]
    main = next((candidate for candidate in ("input_ids", "inputs_embeds") if rows[0].get(candidate) is not None), None)
    if main is None or not kinds:
        return False
    with suppress(TypeError, ValueError, RuntimeError):
        for row in (row for row in rows if row.get(name) is not None):
            values, tokens = torch.as_tensor(row[name]), len(torch.as_tensor(row.get(main)))
            kinds = [kind for kind in kinds if kind.fits(values, tokens)]
            if not kinds:
                return False
        return True
    return False


def _values_of(rows: list[Mapping[str, object]], name: str) -> list[object]:
    """The values of a column; raise ValueError if a row lacks them."""
    names = LABEL_NAMES if name == "labels" else (name,)
    values = [next((row[spelling] for spelling in names if row.get(spelling) is not None), None) for row in rows]
    for row, value in enumerate(values):
        if value is None:
            raise ValueError(f"row {row} of the batch has no {name}: give it to every row, or to none")
    return values


def _by_rule(maps: list[Any]) -> dict[str, list[object]]:
    """The maps of each rule; raise ValueError if a row lacks one, or has no mapping."""
    rules = [rule for rule, rule_map in maps[0].items() if rule_map is not None] if isinstance(maps[0], Mapping) else []
    for row, row_maps in enumerate(maps):
        got = (
            [rule for rule, rule_map in row_maps.items() if rule_map is not None]
            if isinstance(row_maps, Mapping)
            else "one map"
        )
        if got != rules:
            raise ValueError(
                f"pair_map must have maps of the same rules in every row, got {rules} in row 0 and {got} in row {row}"
            )
    return {rule: [row_maps[rule] for row_maps in maps] for rule in rules}


def _read_values(name: str, kinds: Sequence[RowColumn], row: int, values: object, tokens: int | None) -> torch.Tensor:
    """Return a row's values of one column; raise ValueError unless they are of one of the kinds.

    Args:
        tokens: the number of tokens of the row; None if these values say it.
    """
    tensor = None
    # These errors are of lists of several lengths, or of other things than numbers.
    with suppress(TypeError, ValueError, RuntimeError):
        tensor = torch.as_tensor(values)
    if tensor is None or not any(kind.fits(tensor, tokens) for kind in kinds):
        legal = ", or ".join(kind.describe(tokens) for kind in kinds)
        got = (
            f"{values!r:.60}" if tensor is None else f"{describe_kind(tensor).removeprefix('torch.')} {tuple(tensor.shape)}"
        )
        raise ValueError(f"{name} of row {row} of the batch must be {legal}, got {' '.join(got.split())}")
    return tensor


def _stack_column(
    name: str, values: list[object], lengths: list[int], shown: str, padding_side: str, filler: float | None = None
) -> torch.Tensor:
    """Stack the values of all rows, filled up at one end of every axis of tokens.

    Args:
        lengths: the number of tokens of every row.
        shown: what to call the column.
        filler: what stands at padding; None for the column's own.

    Raises:
        ValueError: rows differ in their kind or in another axis than that of tokens, or a number is too small.
    """
    first = _read_values(shown, ROW_COLUMNS[name], 0, values[0], lengths[0])
    column = next(kind for kind in ROW_COLUMNS[name] if kind.fits(first, lengths[0]))
    others = ((row, row_values) for row, row_values in enumerate(values) if row)
    tensors = [first, *(_read_values(shown, [column], row, row_values, lengths[row]) for row, row_values in others)]
    inner = first.ndim - (column.inner_axis is not None)
    outer = inner - column.token_axes
    alike = (first.ndim, first.shape[:outer], first.shape[inner:])
    for row, tensor in enumerate(tensors):
        if (tensor.ndim, tensor.shape[:outer], tensor.shape[inner:]) != alike:
            axis = column.inner_axis or column.outer_axis
            shapes = f"{tuple(first.shape)} in row 0 of the batch and {tuple(tensor.shape)} in row {row}"
            raise ValueError(f"{shown} must have the same {axis} in every row, got {shapes}")
    kind = torch.int64 if column.kind == INTEGERS else reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    if column.kind == FLOATS and name == "labels":
        kind = torch.get_default_dtype()
    filler = column.filler if filler is None else filler
    longest = [max(lengths)] * column.token_axes
    lowest = torch.finfo(kind).min if filler is None else filler
    stacked = torch.full((len(tensors), *first.shape[:outer], *longest, *first.shape[inner:]), lowest, dtype=kind)
    for row, tensor, length in zip(stacked, tensors, lengths, strict=True):
        filled = slice(length) if padding_side == RIGHT else slice(max(lengths) - length, None)
        row[(slice(None),) * outer + (filled,) * column.token_axes] = tensor
    if column.smallest is not None and (smallest := stacked.reshape(len(stacked), -1).amin(1)).min() < column.smallest:
        row = int(smallest.argmin())
        raise ValueError(f"{shown} must be {column.smallest} or above, got {int(smallest[row])} in row {row} of the batch")
    return stacked.unsqueeze(1) if column.needs_outer and not outer else stacked


def sampling_faults(position_encoding: str, position_sampling: str, wraps: bool) -> list[str]:
    """What does not fit of the way in which ids vary in training, a line for each fault.

    Args:
        position_encoding: a name of `POSITION_ENCODINGS`.
        wraps: whether ids wrap around a ring.
    """
    faults = []
    legal = POSITION_ENCODINGS[position_encoding].position_samplings
    if position_sampling not in legal:
        faults.append(
            f"position_sampling {position_sampling!r} is not for position_encoding {position_encoding!r}: choose one of "
            f"{', '.join(legal)}"
        )
    ring = [sampling for sampling in RING_SAMPLINGS if sampling in legal]
    if wraps and (not ring or (position_sampling in legal and position_sampling not in ring)):
        got = f"got it with {position_sampling!r}" if ring else f"which are not for position_encoding {position_encoding!r}"
        faults.append(f"wrap_position_ids is for position_sampling {' or '.join(map(repr, RING_SAMPLINGS))}, {got}")
    return faults


def _check_room(collator: CouplingCollator, needed: int, ids: int) -> None:
    """Raise ValueError if more position ids are needed than may be drawn."""
    if collator.coupling is not None:
        check_room(collator.coupling, needed, ids)
    elif needed > ids:
        raise ValueError(f"rows have position_ids up to {needed}: max_position_ids must be at least that, got {ids}")


@dataclass(frozen=True)
class Draw:
    """For which rows of a batch ids are drawn.

    Attributes:
        count: rows of the batch, for all of which numbers are drawn.
        share: those that get them.
        generator: source of the numbers; None if none are drawn.
        largest_ids: (count or 1, levels) of the planned ids of all rows; None if those at hand are of all.
    """

    count: int
    share: slice
    generator: Any
    largest_ids: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """The number of rows of the share."""
        return len(range(self.count)[self.share])

    def largest_of(self, position_ids: torch.Tensor) -> torch.Tensor:
        """The largest ids (count or 1, levels, 1) of all rows, of which the share has these ids."""
        return (position_ids.amax(-1) if self.largest_ids is None else self.largest_ids).unsqueeze(-1)


def _fixed(collator, tokens, position_ids, draw) -> torch.Tensor:
    return position_ids if collator.start == 1 else shift_position_ids(position_ids, torch.tensor(collator.start - 1))


def _random_start(collator, tokens, position_ids, draw) -> torch.Tensor:
    offset = _draw_starts(collator, draw.largest_of(position_ids), draw.count, draw)
    return _shift(collator, position_ids, offset[draw.share])


def _batch_start(collator, tokens, position_ids, draw) -> torch.Tensor:
    largest = draw.largest_of(position_ids).amax(dim=0, keepdim=True)
    return _shift(collator, position_ids, _draw_starts(collator, largest, 1, draw))


def _draw_starts(collator, largest: torch.Tensor, count: int, draw: Draw) -> torch.Tensor:
    """Random numbers (count, levels, 1) by which ids move up, at each level as far as its own largest id allows.

    Args:
        largest: (rows or 1, levels, 1) of the planned ids.
    """
    levels = largest.shape[1]
    room = collator.level_position_ids or (collator.max_position_ids,) * levels
    if len(room) != levels:
        raise ValueError(
            f"level_position_ids must have a number for each of {levels} levels of position_ids, got {list(room)}"
        )
    for needed, ids in zip(largest.amax(dim=(0, 2)).tolist(), room, strict=True):
        _check_room(collator, needed, ids)
    starts = np.reshape(room, (1, -1, 1))
    if not collator.wrap_position_ids:
        starts = starts - (largest.numpy() - 1)
    # numpy draws other numbers for one bound than for an array of equal bounds.
    highest = int(starts[0, 0, 0]) if len(starts) == 1 and (starts == starts[0, 0]).all() else starts
    return torch.from_numpy(draw.generator.integers(0, highest, size=(count, levels, 1)))


def _shift(collator, position_ids, offset: torch.Tensor) -> torch.Tensor:
    return shift_position_ids(position_ids, offset, collator.max_position_ids if collator.wrap_position_ids else None)


def _multiplier(collator, tokens, position_ids, draw) -> torch.Tensor:
    factors = draw.generator.integers(1, collator.max_multiplier + 1, size=(draw.count, 1, 1))
    return position_ids * torch.from_numpy(factors[draw.share])


def _planned_largest_ids(collator, tokens, position_ids) -> torch.Tensor:
    """The largest planned ids (1 or count, levels); raise ValueError if the plan or the written tokens exceed the room."""
    largest_ids = largest_position_ids(collator.coupling, tokens)
    _check_room(collator, int(largest_ids.max()), collator.max_position_ids)
    if ((position_ids > largest_ids.unsqueeze(-1)) & (tokens != PAD).unsqueeze(1)).any():
        raise ValueError(
            "a response is longer than the query, which is all that the coupling rule "
            f"{collator.rule.name!r} plans for: "
            "positions cannot be randomized, choose another rule or position_sampling"
        )
    return largest_ids


def _randomized(collator, tokens, position_ids, draw) -> torch.Tensor:
    largest_ids = _planned_largest_ids(collator, tokens, position_ids).expand(draw.rows, -1).numpy()
    ids = collator.max_position_ids
    # A random order of all ids: the first n ids of each row are its subset.
    order = draw.generator.random((draw.count, largest_ids.shape[1], ids))[draw.share].argsort(axis=-1) + 1
    subset = np.where(np.arange(ids) < largest_ids[..., None], order, ids)
    subset.sort(axis=-1)
    table = torch.from_numpy(np.pad(subset, ((0, 0), (0, 0), (1, 0))))
    return table.gather(-1, position_ids.clamp(max=ids).expand(draw.rows, -1, -1))


def _spread(collator, tokens, position_ids, draw) -> torch.Tensor:
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
