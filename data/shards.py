"""The problems of a dataset, shard by shard. No short problem stands twice in a split as long as others are found."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from longhand.data.splits import make_generator
from longhand.data.tasks.task import Task

DISTINCT_SHARDS = 2**6
"""Shards in a row, from the first on, that share no short problem. Each draws anew what the shards before it hold."""

_FEWEST_DRAWN = 2**10
"""Fewest problems that are drawn in place of repeated ones."""

_MOST_DRAWN = 16
"""If this many times the rows of a shard are drawn at once and none is new, the split is taken to hold no others."""


@dataclass(frozen=True)
class Layout:
    """Problems that are written at once.

    Attributes:
        task: the task that writes them.
        digits: (count, operands, width).
        lengths: (count, operands).
        rows: (count,), their rows in the shard.
    """

    task: Task
    digits: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray


@dataclass(eq=False)
class Shards:
    """The problems of a split by shard; the same whatever the number of processes, and whichever shards one asks for.

    Attributes:
        task: draws the problems.
        split: name of the split.
        num_rows: rows of the split.
        shard_rows: rows of a shard; the last one may have fewer.
        lengths: `min_length` and `max_length` of `Task.sample_lengths`.
        seed: seed of everything that is drawn.
    """

    task: Task
    split: str
    num_rows: int
    shard_rows: int
    lengths: tuple[int, int]
    seed: int
    _drawn: tuple[int, np.ndarray] = field(default=(0, np.empty(0, np.uint64)), init=False)

    def __len__(self) -> int:
        return -(-self.num_rows // self.shard_rows)

    def draw(self, shard: int) -> tuple[list[Layout], np.random.Generator]:
        """The problems of a shard, and the generator that goes on to draw the text around them."""
        first = shard - shard % DISTINCT_SHARDS
        drawn, known = self._drawn
        if not first < drawn <= shard:
            drawn, known = first, np.empty(0, np.uint64)
        # If the first shard holds no short problem, they are too rare to meet, and shards need not know of each other.
        while drawn < shard and (drawn == first or len(known)):
            known = self._draw(drawn, known)[2]
            drawn += 1
        layouts, generator, with_own = self._draw(shard, known)
        self._drawn = shard + 1, with_own if shard == first or len(known) else known
        return layouts, generator

    def _draw(self, shard: int, known: np.ndarray) -> tuple[list[Layout], np.random.Generator, np.ndarray]:
        """As `draw`, and the sorted keys of all known problems, of earlier shards and of this one."""
        generator = make_generator(self.seed, self.split, "dataset", shard)
        missing = count = min(self.shard_rows, self.num_rows - shard * self.shard_rows)
        parts = defaultdict(list)
        drawn, fewest = count, _FEWEST_DRAWN
        while missing:
            keys, layouts = self._draw_any(generator, drawn)
            chosen = np.flatnonzero(_is_new(keys, known))[:missing]
            # A shard without a single new problem comes after shards that have looked for all of them.
            if len(chosen) == 0 and missing < count and drawn < _MOST_DRAWN * count:
                drawn = fewest = 4 * drawn
                continue
            if len(chosen) == 0:
                chosen = np.arange(missing)
            own = keys[chosen]
            known = np.sort(np.concatenate([known, own[own > 0]]), kind="stable")
            row = np.full(drawn, -1)
            row[chosen] = count - missing + np.arange(len(chosen))
            missing -= len(chosen)
            drawn = max(missing, fewest)
            for layout in layouts:
                kept = row[layout.rows] >= 0
                group = layout.task, int(layout.task.group(layout.lengths[:1])[0])
                parts[group].append((layout.digits[kept], layout.lengths[kept], row[layout.rows][kept]))
        merged = [Layout(task, *map(np.concatenate, zip(*same, strict=True))) for (task, _), same in parts.items()]
        return [layout for layout in merged if len(layout.rows)], generator, known

    def _draw_any(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, list[Layout]]:
        """Problems that may repeat, and their keys (count,), see `splits.problem_keys`."""
        keys = np.zeros(count, np.uint64)
        layouts = []
        names = [part.name for part in self.task.parts]
        for part, places in self.task.choose_tasks(generator, count, self.split):
            lengths = part.sample_lengths(generator, len(places), *self.lengths)
            for task, rows in part.layouts(generator, lengths):
                digits = task.draw(generator, lengths[rows], self.split)
                keys[places[rows]] = _mark(task.problem_keys(digits, lengths[rows]), names.index(part.name))
                layouts.append(Layout(task, digits, lengths[rows], places[rows]))
        return keys, layouts


def _mark(keys: np.ndarray, part: int) -> np.ndarray:
    """The keys of problems of one part, so that problems of two parts with the same operands have different ones."""
    return np.where(keys > 0, keys ^ (np.uint64(part) << np.uint64(56)), keys)


def _is_new(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which problems (count,) are the first with their key and not among the sorted `known`, or have no key, which is 0."""
    new = keys == 0
    short = np.flatnonzero(~new)
    own, first = np.unique(keys[short], return_index=True)
    place = np.searchsorted(known, own)
    new[short[first[(place == len(known)) | (np.append(known, 0)[place] != own)]]] = True
    return new
