"""Batches by index. The same seed gives the same bytes, with any number of processes and after any resumption.

The datasets here are indexed by batch. Every process draws the problems and the numbers of the whole global batch, which
costs little, and makes the inputs of its own rows.
"""

# Used by: data/proofs, eval.py, hub_cards, hub_cards/checkpoints, hub_cards/evaluation, hub_cards/research/gpu,
# hub_cards/research/structured, hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from torch.utils.data import Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from longhand.data.collator import CouplingCollator
from longhand.data.formatting import Batch, Examples, LabelledTokens, contiguous, join_examples
from longhand.data.lengths import rows_of_groups
from longhand.data.machines.covering import NeighbourhoodBatch, Practice, Practised, Problems, join_neighbourhoods
from longhand.data.splits import SPLITS, make_generator
from longhand.data.tasks.task import Task
from longhand.modeling.checks import check_integer


def _takes_share(collator: Callable[..., Batch]) -> bool:
    """Whether a collator takes a third argument by its place: `share`, or one of another name that must be given."""
    parameters = signature(collator).parameters.values()
    by_place = [
        parameter for parameter in parameters if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    ]
    third = next(
        (parameter for place, parameter in enumerate(by_place) if place == 2 or parameter.kind is parameter.VAR_POSITIONAL),
        None,
    )
    return third is not None and (third.name == "share" or third.default is third.empty)


@dataclass(eq=False, kw_only=True)
class Batches(Dataset):
    """Parts of global batches: item i is this process's share of part `i % accumulation` of batch `i // accumulation`.

    Attributes:
        collator: makes inputs from all examples of a batch, the generator and, if it takes a third argument, `share`, the
            slice of the rows of which it makes them. Where a batch is shared, it must take it.
        batch_size: examples of a global batch, all processes and accumulated parts together.
        num_batches: global batches.
        process: index of this process.
        processes: number of processes.
        accumulation: parts that one optimizer step accumulates.

    Raises:
        ValueError: the batch cannot be divided evenly, or the collator takes no share of it.
    """

    collator: Callable[..., Batch]
    batch_size: int
    num_batches: int
    process: int = 0
    processes: int = 1
    accumulation: int = 1

    def __post_init__(self):
        if self.batch_size % self.shares:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be divided among {self.processes} processes x "
                f"{self.accumulation} accumulated parts"
            )
        if self.shares > 1 and not self.takes_share:
            raise ValueError(
                f"a batch has {self.shares} shares: collator must take (examples, generator, share), the "
                "last one the slice of the rows of which it makes inputs"
            )

    @property
    def shares(self) -> int:
        """Parts of a batch whose inputs are made apart: one for each process and accumulated part."""
        return self.processes * self.accumulation

    @cached_property
    def takes_share(self) -> bool:
        """Whether the collator takes the slice of the rows of which it makes inputs."""
        return _takes_share(self.collator)

    def __len__(self) -> int:
        return self.num_batches * self.accumulation

    def __getitem__(self, item: int) -> Batch:
        index, part = divmod(item, self.accumulation)
        examples, generator = self.global_batch(index)
        share = [slice(part * self.processes + self.process, None, self.shares)] if self.takes_share else []
        return contiguous(self.collator(examples, generator, *share))

    def global_batch(self, index: int) -> tuple[Examples | LabelledTokens | NeighbourhoodBatch, np.random.Generator]:
        """Examples of a whole batch, and the generator that goes on to draw their starts."""
        raise NotImplementedError


Part = TypeVar("Part")

PRACTICE_EVERY = 4
"""While there are problems to practise, one batch of this number is drawn from them."""

PRACTISED_NEIGHBOURHOODS = 16
"""Neighbourhoods in a batch that practises them, for each problem of a batch."""


@dataclass(eq=False)
class FreshBatches(Batches):
    """Training problems drawn anew for every batch.

    Groups of lengths are as frequent as `Task.sample_lengths` draws them.

    Attributes:
        mixed: whether every problem of a batch has lengths of its own, and shorter ones are padded on the right (as in the
            code of paper 1); otherwise a batch holds one group of lengths of one part of the task.
    """

    task: Task
    min_length: int
    max_length: int
    seed: int
    mixed: bool = False
    _practice: Practice = field(default_factory=Practice, init=False)
    _worst: list[Problems] = field(default_factory=list, init=False)

    def practise_worst(self, problems: list[Problems]) -> None:
        """From now on, draw one batch in `PRACTICE_EVERY` from these problems as they are; replaces earlier ones.

        Args:
            problems: of the training split and of lengths that are trained, each part of one group of lengths.
        """
        self._worst = problems

    def practise(self, failing: Practice) -> None:
        """From now on, draw one batch in `PRACTICE_EVERY` from variations of these problems; replaces earlier ones.

        Neighbourhoods are practised as they are, and cases too, in three quarters of every batch.

        Variations that belong to another split are left out, unless there are no others, and so are lengths that are not
        trained. Encoders that settle also practise problems whose second number is 0, whatever their split: see
        `EncoderTask.rewrite`.

        Args:
            failing: problems, each of one group of lengths; or neighbourhoods; or cases.
        """
        self._practice = Practice(
            problems=[part for part in failing.problems if part.lengths.max() <= self.max_length],
            neighbourhoods=join_neighbourhoods(failing.neighbourhoods),
            cases=failing.cases,
        )

    def _practice_batch(self, generator: np.random.Generator) -> Examples | LabelledTokens | None:
        problems = self._practice.problems[generator.integers(len(self._practice.problems))]
        digits = problems.digits
        task = self._training_part(problems.task)
        # More rows than are needed, since some variations are held out.
        rows = generator.integers(len(digits), size=2 * self.batch_size)
        digits = task.vary(generator, digits[rows], self.max_length)
        lengths = np.full(digits.shape[:2], digits.shape[2])
        drawn = task.drawn_lengths(digits, lengths)
        split = task.split_of(digits, drawn)
        is_trained = drawn.min(1) >= self.min_length
        trained = np.flatnonzero(is_trained & ((split < 0) | (split == SPLITS.index("train"))))
        if len(trained) == 0:
            # The only problems that show a neighbourhood may be held out, such as that of two ones in base 2.
            trained = np.flatnonzero(is_trained)
        if len(trained) == 0:
            return None
        trained = np.resize(trained, self.batch_size)
        return task.augment(generator, task.rewrite(generator, digits[trained], lengths[trained]))

    def _training_part(self, task: Practised) -> Task:
        """The part of the task that writes problems as training does; a check has them as evaluation writes them."""
        return next(part for part in self.task.parts if part.name == task.name)

    def _practice_worst(self, generator: np.random.Generator) -> Examples | LabelledTokens:
        problems = _choose(generator, self._worst, [len(part.digits) for part in self._worst])
        rows = generator.integers(len(problems.digits), size=self.batch_size)
        task = self._training_part(problems.task)
        return task.augment(generator, task.rewrite(generator, problems.digits[rows], problems.lengths[rows]))

    def _practice_neighbourhoods(self, generator: np.random.Generator) -> NeighbourhoodBatch:
        weak = self._practice.neighbourhoods
        part = _choose(generator, weak, [part.count for part in weak])
        return part.take(generator.integers(part.count, size=self.batch_size * PRACTISED_NEIGHBOURHOODS))

    def global_batch(self, index):
        generator = make_generator(self.seed, "train", index)
        turn, rest = divmod(index, PRACTICE_EVERY)
        kinds: list[Callable[[np.random.Generator], Examples | LabelledTokens | NeighbourhoodBatch | None]] = []
        if self._practice.neighbourhoods:
            kinds.append(self._practice_neighbourhoods)
        if self._practice.problems:
            kinds.append(self._practice_batch)
        if self._worst:
            kinds.append(self._practice_worst)
        # A task of several parts may have several kinds, which take turns.
        if kinds and not rest and (practised := kinds[turn % len(kinds)](generator)) is not None:
            return practised, generator
        examples = self._draw_mixed(generator) if self.mixed else self._draw_group(generator)
        if self._practice.cases:
            fresh = examples.take(slice(self.batch_size // 4))
            part = self._practice.cases[generator.integers(len(self._practice.cases))]
            chosen = part.take(generator.integers(part.count, size=self.batch_size - len(fresh)))
            examples = join_examples([fresh, self.task.write_cases(chosen)])
        return examples, generator

    def _draw_group(self, generator: np.random.Generator) -> Examples | LabelledTokens:
        ((task, _),) = self.task.choose_tasks(generator, 1, "train")
        lengths = task.sample_lengths(generator, 1, self.min_length, self.max_length)[0]
        lengths = task.group_lengths(generator, lengths, self.batch_size, self.min_length)
        return task.augment(generator, task.before_augmentation.examples(generator, lengths, "train"))

    def _draw_mixed(self, generator: np.random.Generator) -> Examples | LabelledTokens:
        parts, rows = [], []
        for task, places in self.task.choose_tasks(generator, self.batch_size, "train"):
            lengths = task.sample_lengths(generator, len(places), self.min_length, self.max_length)
            for _, group in rows_of_groups(task.group(lengths)):
                drawn = task.before_augmentation.examples(generator, lengths[group], "train")
                parts.append(task.augment(generator, drawn))
                rows.append(places[group])
        return join_examples(parts).take(np.argsort(np.concatenate(rows)))


def _choose(generator: np.random.Generator, parts: list[Part], counts: list[int]) -> Part:
    """One of the parts, each as often as it has problems."""
    return parts[generator.choice(len(counts), p=np.array(counts) / sum(counts))]


class FixedBatches(Batches):
    """A training set of `num_samples` problems, drawn once and shuffled every epoch.

    A batch holds one group of lengths, or all lengths if `mixed`. Problems that do not fill a batch of their group sit out
    the epoch; other problems sit out the next one.

    Raises:
        ValueError: no group of lengths fills a batch.
    """

    def __init__(
        self, task: Task, num_samples: int, min_length: int, max_length: int, seed: int, mixed: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        self.task, self.seed = task, seed
        if len(task.parts) > 1:
            raise ValueError(f"num_train_samples is for a task without parts, got it with {task.name!r}: leave it unset")
        generator = make_generator(seed, "train", "fixed")
        lengths = task.sample_lengths(generator, num_samples, min_length, max_length)
        groups = rows_of_groups(task.group(lengths))
        self.groups = [task.before_augmentation.examples(generator, lengths[rows], "train") for _, rows in groups]
        if mixed:
            self.groups = [join_examples(self.groups)]
        # What a task augments may have other ids every time.
        if self.shares > 1 and isinstance(self.collator, CouplingCollator) and type(task).augment is Task.augment:
            self.groups = [self.collator.know_largest_ids(cast(Examples, group)) for group in self.groups]
        self.batches_per_epoch = sum(len(group) // self.batch_size for group in self.groups)
        if self.batches_per_epoch == 0:
            raise ValueError(
                f"num_train_samples {num_samples} in {len(self.groups)} groups of lengths fill no batch of "
                f"{self.batch_size}: take more samples or a smaller batch"
            )
        self._epoch = -1

    def global_batch(self, index):
        epoch, place = divmod(index, self.batches_per_epoch)
        if epoch != self._epoch:
            self._batches, self._epoch = self._shuffle(epoch), epoch
        group, rows = self._batches[place]
        generator = make_generator(self.seed, "train", "starts", index)
        return self.task.augment(generator, self.groups[group].take(rows)), generator

    def _shuffle(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        generator = make_generator(self.seed, "train", "epoch", epoch)
        batches = []
        for group, examples in enumerate(self.groups):
            order = generator.permutation(len(examples))
            whole = len(order) // self.batch_size * self.batch_size
            batches += [(group, rows) for rows in order[:whole].reshape(-1, self.batch_size)]
        return [batches[place] for place in generator.permutation(len(batches))]


def evaluation_draw(
    task: Task, lengths: tuple[int, ...], num_samples: int, seed: int, split: str
) -> tuple[np.random.Generator, np.ndarray]:
    """The draw of an evaluation's problems: their generator, and their lengths (num_samples, operands).

    Raises:
        ValueError: the operands are longer than `Task.most_digits`.
    """
    check_integer("lengths", max(lengths), 1, task.most_digits)
    return make_generator(seed, split, "evaluation", *lengths), np.tile(np.array(lengths), (num_samples, 1))


class EvaluationBatches(Batches):
    """`num_samples` problems of given operand lengths.

    The same seed, split and lengths give the same problems at any batch size.

    Args:
        lengths: digits of each operand.

    Raises:
        ValueError: the operands are longer than `Task.most_digits`, or the split holds no such problem.
    """

    def __init__(
        self, task: Task, lengths: tuple[int, ...], num_samples: int, seed: int, split: str, batch_size: int, **kwargs
    ):
        self.num_samples = num_samples
        self._divide(batch_size, **kwargs)
        generator, tiled = evaluation_draw(task, lengths, num_samples, seed, split)
        self.examples = task.examples(generator, tiled, split)

    def _divide(self, batch_size: int, **kwargs: Any) -> None:
        super().__init__(batch_size=batch_size, num_batches=-(-self.num_samples // batch_size), **kwargs)

    def divided(self, batch_size: int, **share: int) -> Self:
        """The same problems in batches of another size.

        Args:
            share: `process`, `processes` and `accumulation`, as in `Batches`.
        """
        divided = copy(self)
        divided._divide(batch_size, collator=self.collator, **share)
        return divided

    def __getitem__(self, item: int) -> Batch:
        """As `Batches`; where processes cannot share rows evenly, the last row fills up, and is not `counted` (rows,)."""
        batch = super().__getitem__(item)
        rows = self._rows(item)
        if surplus := -len(rows) % self.processes:
            counted = torch.arange(len(rows) + surplus) < len(rows)
            batch["counted"] = counted[self.process :: self.processes]
        return batch

    def _rows(self, index: int) -> range:
        return range(self.num_samples)[index * self.batch_size : (index + 1) * self.batch_size]

    def global_batch(self, index):
        rows = self._rows(index)
        filled = np.pad(np.array(rows), (0, -len(rows) % self.processes), mode="edge")
        return self.examples.take(filled), np.random.default_rng(0)


def draw_batch(
    model: PreTrainedModel,
    task: Task,
    operands: tuple[int, ...],
    count: int = 1,
    seed: int = 0,
    split: str = "test",
    start: int = 1,
) -> Batch:
    """Return problems of a size as one batch of inputs for a model, whose ids begin with `start`."""
    collator = task.family.collator(model.config, start)
    return EvaluationBatches(task, operands, count, seed, split, count, collator=collator)[0]


def check_lengths(
    model: PreTrainedModel, task: Task, lengths: Iterable[tuple[int, ...]], start: int = 1
) -> list[tuple[int, ...]]:
    """Check operands, with ids that begin with `start`, before any time is spent, and return them.

    Raises:
        ValueError: the model cannot take the operands, or the test split holds no problem of their lengths.
    """
    checked, collator = list(lengths), task.family.collator(model.config, start)
    for operands in tqdm(checked, desc="checking lengths", disable=None, leave=False, delay=1):
        task.family.check_inputs(task, model, EvaluationBatches(task, operands, 1, 0, "test", 1, collator=collator)[0])
    return checked
