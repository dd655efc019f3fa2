"""The pictures of README.md and RESULTS.md: what fails on longer sums, how far addition reaches, and every other task."""

# Used by: pages.py. Changed freely.

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.evaluation.plots import BLUE, GREEN, LEADER, ORANGE, PINK, SMALL, Line, median_line, note
from longhand.hub_cards.recipes import read_settings

OVERVIEW = read_settings(Path(__file__).with_name("overview.yaml"))
"""The small pictures of tasks, and how far the papers' learned table generalizes; the file says what its fields mean."""

LONGEST_OF_TASKS = 2000

MARKED = 1.09
"""Where the lengths stand at which the table is refuted, above the curves."""

PROVED = 1.21
"""Where the lengths stand at which the table with a marked top is proved."""


def line_of(tests: DataFrame, label: str = "") -> Line:
    """Return the median exact match by length."""
    return median_line(label, tests.to_dict("records"))


@plots.house_style
def plot_short_sums(results: Mapping[str, DataFrame], sizes: tuple[int, int], file: Path) -> None:
    """Draw exact match of sums against digits: ordinary transformers, paper 1's table, and the certified window.

    Args:
        results: rows of the variants of the study `short-sums`, all of which fit the trained sizes.
        sizes: shortest and longest trained length.
    """
    figure, ((axes,),) = plots.new_figure(3.4)
    lines = [line_of(results[variant], label) for variant, label in OVERVIEW["short"].items() if variant in results]
    plots.scale_lengths(axes, lines[0].x)
    axes.set(xlabel="digits of both numbers", ylabel="exact match", ylim=(-0.04, 1.06))
    plots.shade_trained(axes, sizes)
    plots.draw_lines(axes, lines)
    plots.save_figure(figure, file)


@plots.house_style
def plot_addition(
    certified: DataFrame, absolute: DataFrame, refuted: list[int], proved: list[int], sizes: tuple[int, int], file: Path
) -> None:
    """Draw exact match of sums against digits: the certified window and paper 1's learned table.

    Both fit the trained lengths. Methods that do not are left out, since beyond the trained lengths they show nothing.

    Args:
        certified: rows of the recipe with a window, also for very long sums.
        absolute: rows of the learned table of coupled ids.
        refuted: the lengths at which a sum is known that the table gets wrong, in any seed.
        proved: the lengths at which every sum is proved of the shipped table with a marked top and sharper scores.
        sizes: shortest and longest trained length of both.
    """
    figure, ((axes,),) = plots.new_figure(3)
    window, table = (line_of(rows) for rows in (certified, absolute))
    longest = max(window.x)
    plots.scale_lengths(axes, [sizes[0], int(longest)])
    axes.set(xlabel="digits of both operands", ylabel="exact match", ylim=(-0.05, 1.28), xlim=(0.9, 6 * longest))
    axes.spines["left"].set_bounds(0, 1)
    axes.set_yticks([tick / 5 for tick in range(6)])
    plots.shade_trained(axes, sizes, "all trained on {} digits")
    # The model is certified for every length, so its line begins with the first one and does not end.
    _draw_certified(axes, window, sizes[0])
    note(axes, "window, certified:\nexact for every length", (longest, 1), (0, -22), BLUE, fontsize=10, ha="center")
    axes.plot(table.x, table.y, color=ORANGE, marker="s")
    reached = f"learned table (paper 1, four additions):\n{table.y[-1]:.2f} at {table.x[-1]} digits, the end of its table"
    note(axes, reached, (table.x[-1], table.y[-1]), (10, -34), ORANGE, fontsize=10, arrowprops=LEADER)
    if proved:
        axes.plot(proved, [PROVED] * len(proved), color=GREEN, marker="|", linestyle="", zorder=5)
        said = "|: every sum is right, proved: a table with a marked top"
        note(axes, said, (proved[-1], PROVED), (8, -3), GREEN, fontsize=10)
    if refuted:
        axes.plot(refuted, [MARKED] * len(refuted), color=ORANGE, marker="x", markersize=6, linestyle="", zorder=6)
        note(axes, "x: a wrong sum of the table is known", (max(refuted), MARKED), (8, -3), ORANGE, fontsize=10)
    size = OVERVIEW["published"]["addition"]
    axes.vlines(size, 0, 1, color=PINK, linestyle="--", linewidth=1.4, zorder=1)
    note(axes, f"paper 1, as published: 40 -> {size} digits", (size, 0.42), (6, 0), PINK, fontsize=10)
    plots.save_figure(figure, file)


@plots.house_style
def plot_tasks(
    windows: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame],
    sizes: Mapping[str, tuple[int, int]],
    file: Path,
) -> None:
    """Draw exact match against size, a panel for each task.

    Args:
        windows: rows of each certified recipe with a window.
        tables: rows of the learned tables that fit their trained sizes, by task.
        sizes: shortest and longest trained size of each recipe with a window.
    """
    figure, panels = plots.new_figure(3.9, 2, 5, sharex=True, sharey=True)
    for axes, panel in zip(panels.flat, OVERVIEW["panels"], strict=True):
        title, recipe, task = panel.values()
        axes.set(xscale="log", xlim=(0.9, LONGEST_OF_TASKS), ylim=(-0.08, 1.25), yticks=[0, 0.5, 1])
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        axes.set_xticks([], minor=True)
        axes.set_title(title, fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
        plots.shade_trained(axes, sizes[recipe], "")
        if task in tables:
            table = line_of(tables[task])
            axes.plot(table.x, table.y, color=ORANGE, marker="s", markersize=2.5)
        if task in OVERVIEW["published"]:
            axes.vlines(OVERVIEW["published"][task], 0, 1, color=PINK, linestyle="--", linewidth=1.4)
        if recipe in windows:
            _draw_certified(axes, line_of(windows[recipe]), sizes[recipe][0], size=2.5)
    _draw_key(figure, panels[0, 0])
    figure.supxlabel("digits, symbols, or width and height of the board", fontsize=10)
    figure.supylabel("exact match", fontsize=10)
    plots.save_figure(figure, file)


def _draw_key(figure: Figure, axes: Axes) -> None:
    """Say above all panels what their lines are."""
    handles = [
        axes.plot([], [], color=BLUE, marker="o", label="window, certified for every size")[0],
        axes.plot([], [], color=ORANGE, marker="s", label="learned table that fits")[0],
        axes.plot([], [], color=PINK, linestyle="--", label="papers' reach")[0],
        axes.fill_between([], [], color=GREEN, alpha=0.13, linewidth=0, label="trained sizes of the window"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.6, columnspacing=1.4)


def _draw_certified(axes: Axes, line: Line, first: int, size: float = 4.5) -> None:
    """Draw the tested sizes as points on a line at 1 that runs from the first size on and leaves the axes as an arrow."""
    axes.plot(line.x, line.y, color=BLUE, marker="o", markersize=size, linestyle="", zorder=4)
    arrow = {"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(1, 1), xycoords=("axes fraction", "data"), xytext=(first, 1), textcoords="data", arrowprops=arrow)
