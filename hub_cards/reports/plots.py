"""Pictures of results: accuracy by length, accuracy over two lengths, attention maps."""

import os
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from longhand.hub_cards.reports.results import Row, group_cost, median_interval, wilson_interval


def plot_accuracy(
    rows: list[Row],
    file: Path,
    trained_lengths: tuple[int, int] | None,
    size_names: tuple[str, str],
    seeds: bool = False,
) -> None:
    """Exact match against length, the trained lengths shaded.

    Shows a 95% interval for each model; with `seeds`, where models are runs of one recipe, their median and its interval.
    """
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    if trained_lengths is not None:
        axes.axvspan(*trained_lengths, color="tab:green", alpha=0.15, label="trained lengths")
    models = list(dict.fromkeys(row["model"] for row in rows))
    for model in models:
        own = sorted((row["length"], row["exact_match"], row["num_samples"]) for row in rows if row["model"] == model)
        lengths, values, counts = zip(*own, strict=True)
        bounds = [wilson_interval(value * count, count) for value, count in zip(values, counts, strict=True)]
        style = {"alpha": 0.4, "linewidth": 1} if seeds else {}
        (line,) = axes.plot(lengths, values, marker="o", markersize=3, label=model, **style)
        if not seeds:
            axes.fill_between(lengths, *zip(*bounds, strict=True), alpha=0.2, color=line.get_color())
    if seeds:
        lengths = sorted({row["length"] for row in rows})
        runs = [[row["exact_match"] for row in rows if row["length"] == length] for length in lengths]
        axes.plot(lengths, [median(values) for values in runs], color="black", label="median")
        axes.fill_between(lengths, *zip(*map(median_interval, runs), strict=True), color="black", alpha=0.15)
    names = size_names if all(row["length"] == row["length_b"] for row in rows) else size_names[:1]
    xlabel = " = ".join(dict.fromkeys(names))
    axes.set(xlabel=xlabel, ylabel="exact match", ylim=(-0.03, 1.03), title=rows[0]["task"])
    axes.legend(fontsize="small")
    save_figure(figure, file)


def plot_comparison(
    results: dict[str, list[Row]],
    file: Path,
    trained_lengths: tuple[int, int] | None,
    axis: str = "digits of both operands",
    scale: str = "log",
) -> None:
    """Median exact match over seeds against length, one line for each recipe."""
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    if trained_lengths is not None:
        axes.axvspan(*trained_lengths, color="tab:green", alpha=0.15, label="trained lengths")
    for name, rows in results.items():
        lengths = sorted({row["length"] for row in rows})
        runs = [[row["exact_match"] for row in rows if row["length"] == length] for length in lengths]
        label = f"{name} ({len(runs[0])} seeds)" if len(runs[0]) > 1 else name
        (line,) = axes.plot(lengths, [median(values) for values in runs], marker="o", markersize=3, label=label)
        axes.fill_between(lengths, *zip(*map(median_interval, runs), strict=True), color=line.get_color(), alpha=0.15)
    axes.set(xlabel=axis, ylabel="exact match", xscale=scale, ylim=(-0.03, 1.03))
    if scale == "log":
        longest = max(row["length"] for rows in results.values() for row in rows)
        axes.set_xticks(ticks := [n for n in (5, 10, 20, 30, 60, 100, 200, 500, 1000) if n <= longest], map(str, ticks))
    axes.legend(fontsize="small", loc="center right")
    save_figure(figure, file)


def plot_grid(rows: list[Row], file: Path, trained_lengths: tuple[int, int] | None, size_names: tuple[str, str]) -> None:
    """Exact match over two sizes, such as the lengths of both operands (paper 1's heatmap), the trained square outlined.

    Args:
        size_names: what `length` and `length_b` of the rows are.
    """
    first, second = sorted({row["length"] for row in rows}), sorted({row["length_b"] for row in rows})
    grid = np.full((len(second), len(first)), np.nan)
    for row in rows:
        grid[second.index(row["length_b"]), first.index(row["length"])] = row["exact_match"]
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    image = axes.imshow(grid, origin="lower", vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes.set_xticks(range(len(first)), first)
    axes.set_yticks(range(len(second)), second)
    axes.set(xlabel=size_names[0], ylabel=size_names[1], title=rows[0]["model"])
    if trained_lengths is not None:
        right = sum(length <= trained_lengths[1] for length in first) - 0.5
        top = sum(length <= trained_lengths[1] for length in second) - 0.5
        axes.plot([-0.5, right, right], [top, top, -0.5], color="white", linestyle="--", label="trained")
        axes.legend(fontsize="small")
    figure.colorbar(image, label="exact match")
    save_figure(figure, file)


def plot_cost(rows: list[Row], file: Path) -> None:
    """Seconds and memory against digits on logarithmic axes, a line for each form of attention and kind of work.

    Args:
        rows: as tests/benchmarks/cost.py writes them.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axes, quantity, unit in zip(panels, ("seconds", "bytes"), (1, 1e6), strict=True):
        for (form, what), own in group_cost(rows).items():
            style = {"color": "tab:blue" if form == "neighbours" else "tab:red", "marker": "o", "markersize": 3}
            values = [row[quantity] / unit for row in own]
            dashes = "-" if what == "evaluation" else "--"
            axes.plot([row["digits"] for row in own], values, dashes, label=f"{form}, {what}", **style)
        axes.set(xlabel="digits of both operands", ylabel=quantity, xscale="log", yscale="log")
    panels[1].set_ylabel("additional memory in MB")
    panels[0].legend(fontsize="small")
    save_figure(figure, file)


def plot_board(board: str, answer: str, file: Path) -> None:
    """A minesweeper board on the left, on the right what was answered: mines black, the more mines around a cell the darker.

    Args:
        board: its rows, `M` for a mine and `_` for any other cell, `>` between two rows.
        answer: `M` or a digit for every cell, row by row.

    Raises:
        ValueError: the answer has not as many cells as the board.
    """
    rows = board.split(">")
    height, width = len(rows), len(rows[0])
    if len(answer) != (cells := height * width):
        raise ValueError(f"the answer must have {cells} cells, as the board {board!r}, got {len(answer)}: {answer!r}")
    figure, panels = plt.subplots(1, 2, figsize=(8, 4 * height / width + 0.5), layout="constrained")
    font = {"ha": "center", "va": "center", "fontsize": 120 / (width + 5)}
    for axes, cells, title in zip(panels, ("".join(rows).replace("_", " "), answer), ("board", "answer"), strict=True):
        darkness = [9 if cell == "M" else int(cell) if cell.isdecimal() else 0 for cell in cells]
        axes.imshow(np.reshape(darkness, (height, width)), vmin=0, vmax=9, cmap="Greys")
        for place, cell in enumerate(cells):
            colour = "white" if darkness[place] > 4 else "black"
            axes.text(place % width, place // width, cell, color=colour, **font)
        axes.set(xticks=[], yticks=[], title=title)
    save_figure(figure, file)


def plot_attention(weights: list[torch.Tensor], labels: list[str], first_query: int, file: Path) -> None:
    """Mean attention of every layer and head, as in paper 1's Fig. 7.

    Args:
        weights: per layer (heads, queries, keys).
        labels: a token or its kind for every key.
        first_query: key column of the first query.
    """
    layers, heads = len(weights), weights[0].shape[0]
    figure, grid = plt.subplots(layers, heads, figsize=(3.2 * heads, 3 * layers), squeeze=False, layout="constrained")
    for layer, row in enumerate(grid):
        for head, axes in enumerate(row):
            image = axes.imshow(weights[layer][head].numpy(), vmin=0, vmax=1, cmap="viridis", aspect="auto")
            axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize="small")
            if len(labels) <= 60:
                axes.set_xticks(range(len(labels)), labels, fontsize=6)
                queries = labels[first_query : first_query + weights[layer].shape[1]]
                axes.set_yticks(range(len(queries)), queries, fontsize=6)
    figure.supxlabel("key token")
    figure.supylabel("query token")
    figure.colorbar(image, ax=grid, label="attention", shrink=0.8)
    save_figure(figure, file)


def plot_position_maps(maps: list[dict[str, np.ndarray]], low: int, high: int, file: Path) -> None:
    """The vectors that the heads of every layer add to keys, as in paper 2's Figs. 11 and 12.

    Args:
        maps: per layer, by rule (relations, elements): of differences of ids from `low` to `high`, then of the digits of a
            multiplier, if the rule has any; these are drawn under a line.
    """
    layers, rules = len(maps), len(maps[0])
    figure, grid = plt.subplots(rules, layers, figsize=(2.4 * layers + 1, 4 * rules), squeeze=False, layout="constrained")
    for layer, column in enumerate(grid.T):
        for axes, (rule, table) in zip(column, maps[layer].items(), strict=True):
            largest = max(float(np.abs(table).max()), 1e-9)
            edges = (-0.5, table.shape[1] - 0.5, low + len(table) - 0.5, low - 0.5)
            axes.imshow(table, vmin=-largest, vmax=largest, cmap="RdBu", aspect="auto", interpolation="none", extent=edges)
            axes.set_title(f"{rule}, layer {layer + 1}", fontsize="small")
            ticks = {difference: str(difference) for difference in range(low, high + 1) if difference % (high // 5 + 1) == 0}
            if len(table) > high - low + 1:
                axes.axhline(high + 0.5, color="black", linewidth=1)
                ticks[high + 1] = "multiplier"
            axes.set_yticks(list(ticks), list(ticks.values()), fontsize=6)
    figure.supxlabel("element")
    figure.supylabel("query id - key id")
    save_figure(figure, file)


def save_figure(figure, file: Path) -> None:
    """Writes and closes a figure; in place only when complete."""
    partial = file.with_name(f".{file.stem}.partial{file.suffix}")
    figure.savefig(partial, dpi=120)
    plt.close(figure)
    os.replace(partial, file)
