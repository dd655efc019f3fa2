"""Pictures in one house style: accuracy by length, comparisons, grids of two sizes, attention, pairwise vectors.

Every picture is as wide as a page shows it, has a solid white background, so that it reads the same on light and dark pages,
and uses the colours of Okabe and Ito (2008), which colour-blind readers tell apart.

Matplotlib is imported by what draws: most commands draw nothing.
"""

# Used by: measure.py, hub_cards/research, hub_cards/research/structured, hub_cards/research/theories, train.py. Changed
# freely.

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longhand.data.tasks.task import Task
from longhand.hub_cards.commands import write_atomically
from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval
from longhand.hub_cards.result_rows import (
    Row,
    group_by,
    last_rows,
    median_interval,
    name_parts,
    read_results,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, BLACK = COLOURS
GREY = "#777777"
MARKERS = "os^DvPX"
WIDTH = 8.3
"""Inches; 100 of its pixels an inch is what a page shows."""

SMALL = 9
"""Points of the smallest text of a picture with axes."""

LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.8}
"""A thin line from a note to what it names."""

HOUSE_STYLE: Any = {
    "savefig.dpi": 150,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
}


@contextmanager
def _house_style() -> Iterator[None]:
    from matplotlib import rc_context

    with rc_context(HOUSE_STYLE):
        yield


house_style = _house_style()
"""Decorator of a function that draws."""


class Line(NamedTuple):
    """A line of a picture.

    Attributes:
        label: what stands at its end.
        x, y: its points.
        low, high: the band around it; no band if empty.
        look: the number of its colour and marker, for one that is the same in several axes; None for the next one.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: int | None = None


def new_figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure of the page's width and its axes (rows, columns); `options` as of `Figure.subplots`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save_figure(figure: Figure, file: Path) -> None:
    """Write a figure; the file appears only when it is complete."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix[1:])
    write_atomically(file, drawn.getvalue())


def merge_equal(lines: Iterable[Line]) -> list[Line]:
    """The lines, with one line that bears all labels in place of lines through the same points."""
    groups: dict[tuple, list[Line]] = {}
    for line in lines:
        groups.setdefault((tuple(line.x), tuple(line.y)), []).append(line)
    return [group[0]._replace(label=",\n".join(line.label for line in group)) for group in groups.values()]


NOT_FITTED = "not fitted"
"""What is said of a model that is not right at the sizes that it was trained on."""


def draw_lines(axes: Axes, lines: Iterable[Line], poor: Iterable[Line] = ()) -> None:
    """Draw lines with markers and bands, and name them beside the axes; lines through the same points are drawn once.

    Args:
        poor: lines of what does not fit its trained lengths, in thin grey.
    """
    for place, line in enumerate(merge_equal(lines)):
        number = place if line.look is None else line.look
        colour, style = COLOURS[number % len(COLOURS)], ("-", "--", ":")[number // len(COLOURS) % 3]
        axes.plot(line.x, line.y, style, color=colour, marker=MARKERS[number % len(MARKERS)], label=line.label)
        if len(line.low):
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    for number, line in enumerate(merge_equal(poor)):
        marker, label = MARKERS[number % len(MARKERS)], f"{line.label} ({NOT_FITTED})"
        axes.plot(line.x, line.y, color=GREY, alpha=0.6, linewidth=1, marker=marker, markersize=3, label=label, zorder=1)
    name_lines(axes)


def name_lines(axes: Axes) -> None:
    """Write the labels of lines to the right of the axes."""
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def darken(colour: str) -> tuple[float, ...]:
    """The colour for text, which needs more contrast on white than a line."""
    return tuple(0.75 * int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def note(
    axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], colour: str, **options: Any
) -> None:
    """Write a small text `offset` points away from a point; `options` as of `Axes.annotate`."""
    options = {"textcoords": "offset points", "fontsize": SMALL, "va": "center", **options}
    axes.annotate(text, point, offset, color=darken(colour), **options)


def describe_sizes(sizes: tuple[int, int]) -> str:
    """Return "1 to 5", or "5" if the shortest size is the longest."""
    return " to ".join(map(str, dict.fromkeys(sizes)))


def shade_trained(axes: Axes, sizes: tuple[int, int] | None, label: str = "trained on {}") -> None:
    """Shade the trained sizes, if they are known, and write the label above the shade. Call it when the limits are set."""
    if sizes is None:
        return
    start = max(sizes[0], axes.get_xlim()[0])
    # The span of a single size has no width but that of its edge.
    axes.axvspan(start, sizes[1], color=GREEN, alpha=0.13, linewidth=0 if start < sizes[1] else 10, zorder=0)
    note(axes, label.format(describe_sizes(sizes)), (start, 1), (0, 8), GREEN, xycoords=("data", "axes fraction"))


def scale_lengths(axes: Axes, lengths: Iterable[float], trained: int | None = None) -> None:
    """Scale the horizontal axis for these lengths: logarithmic if they spread far, else linear.

    Args:
        trained: the longest trained length, if known; some of the shade of the trained lengths is to be seen.
    """
    from matplotlib.ticker import MaxNLocator

    first, last = min(lengths := list(lengths)), max(lengths)
    if trained is not None:
        first, last = min(first, max(1, trained // 2)), max(last, trained)
    if last < 20 or last < 8 * first:
        margin = 0.03 * (last - first) or 0.5
        axes.set_xlim(first - margin, last + margin)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        return
    axes.set_xscale("log")
    axes.set_xlim(0.93 * first, 1.08 * last)
    steps = (1,) if last > 3000 * first else (1, 2, 5)
    ticks = [step * 10**power for power in range(10) for step in steps if first <= step * 10**power <= last]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)


@house_style
def plot_lines(
    lines: list[Line],
    file: Path,
    trained_lengths: tuple[int, int] | None,
    xlabel: str,
    title: str = "",
    behind: Sequence[Line] = (),
    poor: Sequence[Line] = (),
) -> None:
    """Draw exact match against length, the trained lengths shaded.

    Args:
        behind: lines in thin grey, without a name.
        poor: as of `draw_lines`.
    """
    figure, ((axes,),) = new_figure(max(3.7, 0.2 * len([*lines, *poor]) + 1))
    shown = [x for line in (*lines, *behind, *poor) for x in line.x]
    scale_lengths(axes, shown, trained_lengths[1] if trained_lengths else None)
    axes.set(xlabel=xlabel, ylabel="exact match", ylim=(-0.04, 1.04))
    axes.set_title(title, pad=18 if trained_lengths else 6)
    shade_trained(axes, trained_lengths)
    for line in behind:
        axes.plot(line.x, line.y, color=GREY, alpha=0.5, linewidth=1)
    draw_lines(axes, lines, poor)
    save_figure(figure, file)


def _wilson_line(label: str, rows: list[Row]) -> Line:
    """Exact match of one model against length, rows in order of length, with the intervals of its samples."""
    values = [row["exact_match"] for row in rows]
    bounds = [wilson_interval(row["exact_match"] * row["num_samples"], row["num_samples"]) for row in rows]
    return Line(label, [row["length"] for row in rows], values, [low for low, _ in bounds], [high for _, high in bounds])


def median_line(label: str, rows: list[Row]) -> Line:
    """Median exact match of several runs against length, with its interval by bootstrap over the runs."""
    lengths = group_by(sorted(rows, key=itemgetter("length")), itemgetter("length"))
    runs = [[row["exact_match"] for row in length_rows] for length_rows in lengths.values()]
    bounds = [median_interval(values) for values in runs]
    medians = [median(values) for values in runs]
    return Line(label, list(lengths), medians, [low for low, _ in bounds], [high for _, high in bounds])


ORDINARY = Path(__file__).parents[1] / "results" / "studies" / "short-sums" / "results.jsonl"
"""Results of ordinary transformers, without position ids, that were trained on sums of 1 to 4 digits."""


def ordinary_line() -> Line | None:
    """How an ordinary transformer does sums: the median of its runs; None if the results do not lie beside this package."""
    if not ORDINARY.is_file():
        return None
    rows = [row for row in last_rows(read_results(ORDINARY)) if row["model"].startswith("nope-seed")]
    return median_line("an ordinary transformer,\ntrained on 1 to 4 digits", rows)


MOST_CHECKPOINTS = 8
"""Checkpoints of a run that a picture shows; their colours are told apart."""


@house_style
def plot_checkpoints(runs: dict[str, list[Row]], file: Path, trained: dict[str, tuple[int, int]], xlabel: str) -> None:
    """Draw exact match against length at some validations of each run, the later the darker (paper 2, Figs. 2, 4 and 5).

    Args:
        runs: rows of `VALIDATION_FILE` of one task, by the title of their panel.
        trained: the trained lengths by the same titles; they are shaded.
    """
    from matplotlib import colormaps

    columns = min(len(runs), 3)
    figure, panels = new_figure(0.4 + 2.7 * -(-len(runs) // columns), -(-len(runs) // columns), columns, sharey=True)
    for axes in panels.flat[len(runs) :]:
        axes.set_axis_off()
    for (title, rows), axes in zip(runs.items(), panels.flat, strict=False):
        steps = group_by(sorted(rows, key=itemgetter("step", "length")), itemgetter("step"))
        shown = np.unique(np.linspace(0, len(steps) - 1, MOST_CHECKPOINTS).round().astype(int))
        scale_lengths(axes, [row["length"] for row in rows], trained[title][1])
        axes.set(xlabel=xlabel, ylim=(-0.04, 1.04))
        axes.set_title(title, pad=18)
        shade_trained(axes, trained[title])
        for place in shown:
            step = [*steps][place]
            lengths, matches = zip(*((row["length"], row["exact_match"]) for row in steps[step]), strict=True)
            colour = colormaps["viridis_r"](0.15 + 0.85 * place / max(len(steps) - 1, 1))
            axes.plot(lengths, matches, color=colour, marker="o", markersize=3, linewidth=1.3, label=f"{step:,} steps")
    for axes in panels[:, 0]:
        axes.set_ylabel("exact match")
    named = [axes.get_legend_handles_labels() for axes in panels.flat[: len(runs)]]
    if all(labels == named[0][1] for _, labels in named):
        figure.legend(*named[0], loc="outside right center")
    else:
        for axes in panels.flat[: len(runs)]:
            axes.legend(fontsize=7)
    save_figure(figure, file)


def plot_results(
    rows: list[Row],
    file: Path,
    trained_lengths: tuple[int, int] | None,
    task: type[Task],
    groups: Mapping[str, str] | None = None,
) -> None:
    """Draw exact match over one size; or the first model's over both, if problems of one length differ in the second.

    Beside a single model of sums stands an ordinary transformer.

    Args:
        task: class of the task, which names the sizes.
        groups: from each model's name to what it is a seed of: draw the median of each group and its interval, the runs in
            grey. None or empty draws each model.
    """
    pairs = {(row["length"], row["length_b"]) for row in rows}
    if len(pairs) > len({length for length, _ in pairs}):
        plot_grid([row for row in rows if row["model"] == rows[0]["model"]], file, trained_lengths, task.size_names)
        return
    tasks = group_by(rows, itemgetter("task"))
    models = group_by(sorted(name_parts(rows), key=itemgetter("length")), itemgetter("model"))
    lines, behind = [_wilson_line(label, model_rows) for label, model_rows in models.items()], []
    if groups and len(groups) > len(set(groups.values())):
        behind = lines
        several = group_by(rows, lambda row: (row["task"], groups[row["model"]]))
        only = len(set(groups.values())) == 1
        all_of_one = f"median of {len(groups)} checkpoints (grey: each)"
        lines = []
        for (named, group), group_rows in several.items():
            label = all_of_one if only else group
            lines.append(median_line(f"{named}: {label}" if len(tasks) > 1 else label, group_rows))
    if task.name == "addition" and len({model.removesuffix("/best") for model in models}) == 1:
        lines += [line for line in [ordinary_line()] if line is not None]
    name = task.equal_size_name() if all(first == second for first, second in pairs) else task.size_names[0]
    plot_lines(lines, file, trained_lengths, name, ", ".join(tasks), behind)


@house_style
def plot_grid(rows: list[Row], file: Path, trained_lengths: tuple[int, int] | None, size_names: tuple[str, str]) -> None:
    """Draw exact match over two sizes, such as the lengths of both operands (paper 1's heatmaps).

    Trained sizes are outlined.

    Args:
        size_names: names of `length` and `length_b` of the rows.
    """
    first, second = sorted({row["length"] for row in rows}), sorted({row["length_b"] for row in rows})
    grid = np.full((len(second), len(first)), np.nan)
    for row in rows:
        grid[second.index(row["length_b"]), first.index(row["length"])] = row["exact_match"]
    figure, ((axes,),) = new_figure(min(7.0, 1.4 + 0.5 * len(second)))
    image = axes.imshow(grid, origin="lower", vmin=0, vmax=1, cmap="cividis", aspect="auto")
    for axis, sizes in ((axes.xaxis, first), (axes.yaxis, second)):
        axis.set_ticks(range(len(sizes)), sizes)
        axis.set_ticks(np.arange(len(sizes) - 1) + 0.5, minor=True)
    # Lines between the cells: without them a grid of equal values is one plain area.
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    if max(grid.shape) <= 12:
        for y, x in np.argwhere(~np.isnan(grid)):
            colour = "black" if grid[y, x] > 0.5 else "white"
            axes.text(x, y, f"{grid[y, x]:.2f}", ha="center", va="center", color=colour, fontsize=SMALL)
    title = rows[0]["model"]
    if trained_lengths is not None:
        low, high = trained_lengths
        (left, right), (bottom, top) = (np.searchsorted(sizes, (low, high + 1)) - 0.5 for sizes in (first, second))
        corners = ([left, right, right, left, left], [bottom, bottom, top, top, bottom])
        axes.plot(*corners, color=ORANGE, linewidth=3, clip_on=False, zorder=3)
        title += f"; outlined: trained sizes, {describe_sizes(trained_lengths)}"
    axes.set(xlabel=size_names[0], ylabel=size_names[1], title=title)
    figure.colorbar(image, label="exact match")
    save_figure(figure, file)


CLIPPED = 0.01
"""Attention below this is drawn as none (paper 1, Fig. 7)."""


@house_style
def plot_attention(rows: list[Row], file: Path) -> None:
    """Draw the mean attention of every layer and head, transposed: a column for each query (paper 1, Fig. 7, left).

    Args:
        rows: of `ATTENTION_MAPS_FILE`, of one model. If they say which tokens decide an answer (sigma of paper 2), a last
            panel shows these.
    """
    layers, heads = rows[-1]["layer"], rows[-1]["head"]
    columns = min(heads, 4)
    height = -(-heads // columns)
    lines = layers * height + ("decides" in rows[0])
    figure, panels = new_figure(0.6 + 8 / columns * lines, lines, columns)
    for axes in panels.flat:
        axes.set_axis_off()
    for row in rows:
        place = row["head"] - 1
        axes = panels[(row["layer"] - 1) * height + place // columns, place % columns]
        axes.set_axis_on()
        image = _draw_attention(axes, row, 40 // columns)
    if "decides" in rows[0]:
        axes = panels[-1, 0]
        axes.set_axis_on()
        _draw_attention(axes, {**rows[0], "weights": rows[0]["decides"]}, 40 // columns)
        axes.set_title("sigma: what decides the answer")
    figure.supxlabel("query token", fontsize=10)
    figure.supylabel("key token", fontsize=10)
    figure.colorbar(image, ax=panels, label="attention", shrink=0.8, aspect=15 * lines)
    save_figure(figure, file)


@house_style
def plot_attention_of_response(rows: list[Row], file: Path) -> None:
    """Draw what the response's tokens attend to, with numbers, and say it of one of them (paper 1, Fig. 7, right).

    Tokens have their position ids; keys that no token of the response attends to are left out.

    Args:
        rows: of `ATTENTION_MAPS_FILE`, of one model.
    """
    keys = _named_tokens(rows[0])
    queries = [keys[query] for query in rows[0]["response"]]
    columns = min(rows[-1]["head"], 2)
    seen = [np.array(row["weights"])[row["response"]] for row in rows]
    shown = np.flatnonzero(np.max([part.max(axis=0) for part in seen], axis=0) >= CLIPPED)
    count = -(-len(rows) // columns)
    figure, panels = new_figure(0.4 + count * (1 + 0.2 * min(len(shown), 60)), count, columns)
    asked = seen[0].shape[0] // 2
    for axes in panels.flat[len(rows) :]:
        axes.set_axis_off()
    for row, part, axes in zip(rows, seen, panels.flat, strict=False):
        weights = np.where(part >= CLIPPED, part, 0).T[shown]
        axes.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        names = [keys[place] if place < len(keys) else "sink" for place in shown]
        for axis, labels, most in ((axes.xaxis, queries, 24 // columns), (axes.yaxis, names, 60)):
            places = range(0, len(labels), -(-len(labels) // most))
            axis.set_ticks(places, [labels[place] for place in places], fontsize=7.5)
        if len(shown) <= 40 and len(queries) <= 24 // columns:
            for key, query in np.argwhere(weights > 0):
                colour = "white" if weights[key, query] > 0.6 else "black"
                text = f"{weights[key, query]:.2f}".removeprefix("0")
                axes.text(query, key, text, ha="center", va="center", fontsize=7, color=colour)
        axes.axvspan(asked - 0.5, asked + 0.5, fill=False, edgecolor=ORANGE, linewidth=1.5, clip_on=False)
        strongest = np.argsort(-weights[:, asked], kind="stable")[:3]
        said = ", ".join(f"{names[key]} ({weights[key, asked]:.2f})" for key in strongest if weights[key, asked] >= 0.05)
        title = f"layer {row['layer']}, head {row['head']}"
        axes.set_title(f"{title}: '{queries[asked]}' attends to\n{said or 'no token by 0.05'}", fontsize=9)
    figure.supxlabel("token at which the response is read, with its ids, or its place", fontsize=10)
    figure.supylabel("key token, with its ids, or its place", fontsize=10)
    save_figure(figure, file)


def _named_tokens(row: Row) -> list[str]:
    """Tokens, `#` for those that differ among problems, with their position ids, or their places if there are no ids."""
    if row["ids"] is None:
        return [f"{token} {place}" for place, token in enumerate(row["tokens"], 1)]
    ids = [" " + ",".join(map(str, token_ids)) if any(token_ids) else "" for token_ids in row["ids"]]
    return [token + token_ids for token, token_ids in zip(row["tokens"], ids, strict=True)]


def _draw_attention(axes: Axes, row: Row, most: int) -> AxesImage:
    """Draw the weights of a layer and head, keys downward, with at most so many labels; return the image."""
    weights = np.array(row["weights"]).T
    image = axes.imshow(np.where(weights >= CLIPPED, weights, 0), vmin=0, vmax=1, cmap="Blues", aspect="auto")
    axes.set_title(f"layer {row['layer']}, head {row['head']}")
    keys = row["tokens"] + ["sink"] * (len(weights) - len(row["tokens"]))
    for set_ticks, tokens in ((axes.set_xticks, keys[: weights.shape[1]]), (axes.set_yticks, keys)):
        places = _labelled_places(tokens, most)
        set_ticks(places, [tokens[place] for place in places], fontsize=8)
    return image


def _labelled_places(tokens: Sequence[str], most: int) -> list[int]:
    """The places of the tokens that get a label: all if they fit, else the signs between digits, else a part of all."""
    signs = [place for place, token in enumerate(tokens) if token != "#"]
    if len(tokens) <= most or not signs or len(signs) > most:
        return list(range(0, len(tokens), -(-len(tokens) // most)))
    return signs


@house_style
def plot_position_maps(rows: list[Row], file: Path) -> None:
    """Draw the norms of the vectors that every layer adds to keys, by the difference of ids (paper 2, Figs. 11 and 12).

    Args:
        rows: of `POSITION_MAPS_FILE`, with `norms` (relations,) and `first_relation`. A panel holds the rows of one model
            and rule.
    """
    from matplotlib.ticker import MaxNLocator

    panels_of = group_by(rows, itemgetter("model", "rule"))
    layers = max(row["layer"] for row in rows)
    figure, panels = new_figure(0.5 + len(panels_of) * (0.7 + 0.28 * layers), len(panels_of), 1)
    for (model, rule), axes in zip(panels_of, panels[:, 0], strict=True):
        panel_rows = panels_of[model, rule]
        norms, low = np.array([row["norms"] for row in panel_rows]), panel_rows[0]["first_relation"]
        edges = (low - 0.5, low + norms.shape[1] - 0.5, len(panel_rows) + 0.5, 0.5)
        image = axes.imshow(norms, vmin=0, cmap="Blues", aspect="auto", interpolation="none", extent=edges)
        axes.set_yticks([row["layer"] for row in panel_rows])
        axes.xaxis.set_major_locator(MaxNLocator(15, integer=True))
        axes.set(title=f"{model}, pair map {rule}", ylabel="layer")
        figure.colorbar(image, ax=axes, label="norm")
    axes.set_xlabel("id of the query less that of the key")
    save_figure(figure, file)
