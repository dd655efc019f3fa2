"""Tables of the pages, in Markdown, from rows of results files."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from longhand.hub_cards.runs.recipes import load_recipe
from longhand.hub_cards.runs.results import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    best_rows,
    by_class,
    describe_length,
    generalizable_length,
    group_by,
    group_cost,
    group_variants,
    growth_exponent,
    has_classes,
    last_rows,
    read_results,
)

WINDOWED_RECIPES = {
    "addition": ["addition-short"],
    "multi_operand_addition": ["three-summands"],
    "addition_scratchpad": ["addition-scratchpad"],
    "subtraction": ["subtraction"],
    "multiplication": ["multiplication-1", "multiplication-2"],
    "multiplication_scratchpad": ["multiplication-scratchpad"],
    "copy": ["copy"],
    "reverse": ["reverse"],
    "parity": ["parity"],
    "minesweeper": ["minesweeper"],
}
"""The recipes with a window for each task."""


class Reach(NamedTuple):
    """How far a method generalizes: `text` from the longest trained size on, `size` as one number for a picture."""

    text: str
    size: int


PUBLISHED_REACH = {
    "addition": Reach("40 -> 200", 200),
    "multi_operand_addition": Reach("40 -> 90 to 100", 100),
    "addition_scratchpad": Reach("10 x 10 -> 20 to 30 each", 30),
    "multiplication": Reach("40 -> 90", 90),
    "multiplication_scratchpad": Reach("10 x 10 -> 20 x 15", 20),
    "copy": Reach("40 -> 300", 300),
    "reverse": Reach("40 -> 300", 300),
    "minesweeper": Reach("9 x 9 -> 12 x 12", 12),
}
"""How far the learned table generalizes in paper 1 and its follow-up."""


TableLine = dict[str, str]
"""A line of a table: its cells by the heading of their columns."""


def render_table(lines: Sequence[TableLine], note: str = "", left: Iterable[str] = ()) -> str:
    """A Markdown table and a note below it.

    Args:
        lines: all with the same headings.
        left: columns aligned to the left, as the first one is if none is named; the others are aligned to the right.
    """
    header = list(lines[0])
    names = set(left) or {header[0]}
    marks = ["---" if name in names else "---:" for name in header]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *(line.values() for line in lines)))
    return f"{table}\n\n{note}\n" if note else f"{table}\n"


def describe_samples(rows: list[Row], what: str = "problems per length") -> str:
    """How many problems were tested, with which seed and hardware, for the note below a table."""
    return f"{rows[0]['num_samples']} {what}, test seed {rows[0]['seed']}, {rows[0]['hardware']}"


def by_length_table(rows: list[Row]) -> str:
    """Exact match: a line for each run, a column for each length, the median in the last line."""
    lengths = sorted({row["length"] for row in rows})
    runs = group_by(rows, itemgetter("model"))
    lines = []
    for name, own in runs.items():
        seconds = own[0].get("run_seconds")
        lines.append({"run": name, **median_cells(own, lengths), "seconds": f"{seconds:.0f}" if seconds else ""})
    if len(runs) > 1:
        medians = {length: f"**{value}**" for length, value in median_cells(rows, lengths).items()}
        lines.append({"run": "**median**", **medians, "seconds": ""})
    return render_table(lines, f"{describe_samples(rows)}; seconds are of training and the first evaluation.")


def benchmark_table(rows: list[Row]) -> str:
    """Rates of both sides and their ratio."""
    lines = [
        {
            "benchmark": row["benchmark"],
            **{side: f"{row[side]:,.0f} {row['unit']}" for side in ("longhand", "baseline")},
            "ratio": f"**{row['ratio']:.1f}**",
            "hardware": row["hardware"],
        }
        for row in rows
    ]
    return render_table(lines, "The two sides run in turn; medians of one run.", left=("benchmark", "hardware"))


def certificate_table(rows: list[Row]) -> str:
    """A line for each run: the result of the check of all its neighbourhoods."""
    lines = [
        {
            "run": row["model"],
            "certified": "**yes**" if row["certified"] else "no",
            "wrong": f"{row['wrong']:,}",
            "smallest margin": f"{row['margin']:.2f}",
            "rounding": "" if row["rounding"] is None else f"{row['rounding']:.1e}",
            "seconds of the run": f"{row['run_seconds']:.0f}" if row.get("run_seconds") else "",
        }
        for row in rows
    ]
    counts = sorted({(row["problems"], row["predictions"]) for row in rows})
    checked = "; ".join(f"{predictions:,} predictions in {problems:,} problems" for problems, predictions in counts)
    return render_table(lines, f"Checked for each: {checked}. {rows[0]['hardware']}.", left=("run", "certified"))


def certified_table(recipes: list[str], models_folder: Path) -> str:
    """A line for each recipe: the checks of its runs, and the exact match of the runs on larger problems.

    Args:
        models_folder: holds a folder of results for each recipe.
    """
    lines = []
    for name in recipes:
        recipe, rows = load_recipe(name), read_results(models_folder / name / CERTIFICATES_FILE)
        tested = read_results(models_folder / name / RESULTS_FILE)
        worst = min(row["exact_match"] for row in tested)
        lines.append(
            {
                "recipe": f"`{name}`",
                "trained on": f"{recipe.get('min_length', 1)} to {recipe['max_length']}",
                "certified": f"{sum(row['certified'] for row in rows)} of {len(rows)} seeds",
                "predictions checked": f"{max(row['predictions'] for row in rows):,}",
                "smallest margin": f"{min(row['margin'] for row in rows):.2f}",
                "exact match": f"{'' if worst == 1 else 'at least '}{worst:.3f} to {max(row['length'] for row in tested):,}",
                "seconds": f"{max(row['run_seconds'] for row in rows):.0f}",
            }
        )
    note = f"Seconds are of training and the first evaluation, for the slowest seed; {rows[0]['hardware']}."
    return render_table(lines, note, left=("recipe", "trained on", "certified", "exact match"))


def cost_table(rows: list[Row]) -> str:
    """A line for each form of attention and kind of work: how time and memory grow with the digits."""
    lines = [
        {
            "attention": form,
            "work": what,
            "digits": f"{own[0]['digits']:,} to {own[-1]['digits']:,}",
            "time grows as": f"digits^{growth_exponent(own, 'seconds'):.2f}",
            "memory grows as": f"digits^{growth_exponent(own, 'bytes'):.2f}",
            "longest: seconds": f"{own[-1]['seconds']:.1f}",
            "MB": f"{own[-1]['bytes'] / 1e6:,.0f}",
        }
        for (form, what), own in group_cost(rows).items()
    ]
    left = ("attention", "work", "digits", "time grows as", "memory grows as")
    return render_table(lines, f"{rows[0]['hardware']}.", left)


def ablation_table(rows: list[Row], certificates: list[Row]) -> str:
    """A line for each variant: medians, generalizable length, certificates."""
    lengths = [length for length in (30, 60, 100, 200) if any(row["length"] == length for row in rows)]
    variants, verdicts = group_variants(rows), group_variants(certificates)
    lines = []
    for variant, own in variants.items():
        certified = [row["certified"] for row in verdicts.get(variant, [])]
        verdict = f"{sum(certified)} of {len(certified)}" if certified else "cannot be"
        reach = {"generalizable length": describe_reach(own), "certified": verdict}
        lines.append({"variant": variant, **median_cells(own, lengths), **reach})
    seeds = len({row["model"] for row in rows}) // len(variants)
    return render_table(lines, f"Medians of {seeds} seeds, {describe_samples(rows, 'sums per length')}.")


def ceiling_table(rows: list[Row]) -> str:
    """A line for each number of digits: the ceiling as an exact fraction, and what trained models reached."""
    lines = []
    for ceiling in (row for row in rows if "right" in row):
        runs = [row for row in rows if row["length"] == ceiling["length"] and "right" not in row]
        lines.append(
            {
                "digits": str(ceiling["length"]),
                "ceiling": f"{ceiling['right']:,} / {ceiling['num_pairs']:,}",
                "": f"{ceiling['exact_match']:.5f}",
                "trained models": ", ".join(f"{row['exact_match']:.5f}" for row in runs),
            }
        )
    return render_table(lines, left=("trained models",))


def long_table(rows: list[Row]) -> str:
    """A line for each evaluation of very long problems."""
    lines = [
        {
            "run": row["model"],
            "digits": f"{row['length']:,}" if row["length"] == row["length_b"] else describe_length(row),
            "problems": f"{row['num_samples']:,}",
            "decoding": row["decode"],
            "exact match": f"**{row['exact_match']:.3f}**",
            "seconds": f"{row['seconds']:,.1f}",
        }
        for row in rows
    ]
    return render_table(lines, f"{rows[0]['hardware']}.", left=("run", "decoding"))


def variants_table(rows: list[Row]) -> str:
    """A line for each variant: medians of the last checkpoints, generalizable lengths of the last and the best ones."""
    last, best = group_variants(last_rows(rows)), group_variants(best_rows(rows))
    lengths = {row["length"] for row in rows}
    shown = [length for length in (2, 5, 10, 20, 30, 40, 60, 100, 200) if length in lengths]
    lines = [
        {
            "variant": variant,
            **median_cells(own, shown),
            "generalizable length": describe_reach(own),
            "of the best checkpoint": describe_reach(best[variant]) if variant in best else "",
            "seconds": median_seconds(own),
        }
        for variant, own in last.items()
    ]
    seeds = len({row["model"] for row in last_rows(rows)}) // len(last)
    runs = "One seed" if seeds == 1 else f"Medians of {seeds} seeds"
    return render_table(lines, f"{runs}, {describe_samples(rows)}.")


def encoder_table(rows: list[Row], measure: str = "exact_match") -> str:
    """A line for each variant of an encoder: a measure by length, or by class if sums of one length were tested so."""
    classes, digits = has_classes(rows), rows[0]["length"]
    rows = by_class(rows) if classes else rows
    variants, shown = group_variants(rows), sorted({row["length"] for row in rows})
    lines = []
    for variant, own in variants.items():
        reach = {"generalizable length": describe_reach(own)} if measure == "exact_match" and not classes else {}
        lines.append({"variant": variant, **median_cells(own, shown, measure), **reach, "seconds": median_seconds(own)})
    seeds = sorted({len({row["model"] for row in own}) for own in variants.values()})
    runs = "one seed" if seeds == [1] else f"medians of {' or '.join(map(str, seeds))} seeds"
    samples = describe_samples(rows, f"sums of {digits} digits by class" if classes else "problems per length")
    checkpoints = "Best checkpoints" if best_rows(rows) else "Last checkpoints"
    return render_table(lines, f"{checkpoints}, {runs}, {samples}.")


def places_table(rows: list[Row]) -> str:
    """A line for each model and length: the accuracy of every output place, the last place of the answer first.

    Shorter answers have no cells at the places that they lack.
    """
    places = range(1, max(row["place"] for row in rows) + 1)
    lines = []
    for (model, length), own in group_by(rows, itemgetter("model", "length")).items():
        accuracy = {row["place"]: f"{row['accuracy']:.2f}" for row in own}
        cells = {str(place): accuracy.get(place, "") for place in places}
        lines.append({"model": model.rpartition("-seed")[0], "digits": str(length), **cells})
    return render_table(lines, f"{rows[0]['num_samples']} problems per length, test seed {rows[0]['seed']}.")


def positions_table(rows: list[Row]) -> str:
    """A line for each variant: how dispersed the relative vectors of every layer are, means over seeds."""
    lines = []
    for variant, own in group_variants(rows).items():
        layers = group_by(own, itemgetter("layer"))
        values = [[row["effective_relations"] for row in layers[layer]] for layer in sorted(layers)]
        cells = {f"layer {layer}": f"{mean(runs):.1f}" for layer, runs in zip(sorted(layers), values, strict=True)}
        each = ", ".join(f"{mean(run):.1f}" for run in zip(*values, strict=True))
        lines.append({"variant": variant, **cells, "each run": each, "relations": str(own[0]["relations"])})
    return render_table(lines, f"Best checkpoints, {len(values[0])} seeds.")


def ring_table(rows: list[Row]) -> str:
    """A line for each setting and method of linear attention on the ring: losses, and what theory predicts."""
    lines = []
    for (window, neighbours, method), own in group_by(rows, itemgetter("window", "neighbours", "model")).items():
        inside, outside = (
            [row["test_loss"] for row in own if (row["position"] <= window) == part] for part in (True, False)
        )
        unseen = own[0]["alpha"] ** 2 + 2 * sum(beta**2 for beta in own[0]["betas"])
        lines.append(
            {
                "window": str(window),
                "neighbours": str(neighbours),
                "method": method,
                "training loss": f"{mean(row['training_loss'] for row in own):.1e}",
                "test loss in the window": f"{mean(inside):.4f}",
                "outside": f"{mean(outside):.4f}",
                "theory, outside": {"ape": f"{unseen:.4f}", "rpe": "0"}.get(method, ""),
            }
        )
    note = f"Means over {len({row['seed'] for row in rows})} seeds and over positions."
    return render_table(lines, note, left=("method",))


def complexity_table(rows: list[Row]) -> str:
    """A line for each distribution: the probabilities of the first lengths, and of all up to 4."""
    lines = []
    for row in rows:
        shares = [*row["probabilities"], *[0.0] * 7]
        cells = {str(length): f"{shares[length]:.2e}" for length in range(7)}
        lines.append({"length": row["length"], "digits": str(row["digits"]), **cells, "up to 4": f"{sum(shares[:5]):.4f}"})
    return render_table(lines)


def generation_table(rows: list[Row]) -> str:
    """A line for each recipe: examples a second, and their ratio to what is promised."""
    lines = [
        {
            "task of the recipe": f"`{row['benchmark'].partition(', ')[2]}`",
            "examples a second": f"{row['longhand']:,.0f}",
            "promised": f"{row['baseline']:,}",
            "ratio": f"**{row['ratio']:.1f}**",
        }
        for row in rows
    ]
    return render_table(lines, f"{rows[0]['hardware']}.")


def tasks_table(rows: list[Row], addition_rows: list[Row], describe_window: Callable[[str], str]) -> str:
    """A line for each task, a column for each encoding: certificates of the window, generalizable lengths of the others.

    Args:
        rows: of runs named TASK--ENCODING-seedN, TASK a name of `TASKS`.
        addition_rows: of runs of addition named ENCODING-seedN.
        describe_window: from the name of a recipe with a window to its cell.
    """
    encodings = sorted({name.partition("--")[2] for name in group_variants(rows)})
    rows = rows + [{**row, "model": f"addition--{row['model']}"} for row in addition_rows]
    variants = group_variants(best_rows(rows))
    lines = []
    for task, recipes in WINDOWED_RECIPES.items():
        line = {"task": task, "window": "; ".join(map(describe_window, recipes))}
        for encoding in encodings:
            own = variants.get(f"{task}--{encoding}")
            line[encoding] = describe_reach(own) if own else ""
        line["the papers' learned table"] = PUBLISHED_REACH[task].text if task in PUBLISHED_REACH else ""
        lines.append(line)
    note = f"Best checkpoints, one seed, {describe_samples(rows, 'problems per size')}."
    return render_table(lines, note, left=lines[0])


def window_cell(recipe: str, models_folder: Path) -> str:
    """What a recipe with a window reaches: its certificates if one is positive, else its generalizable length."""
    certificates = models_folder / recipe / CERTIFICATES_FILE
    certified = [row["certified"] for row in read_results(certificates)] if certificates.exists() else []
    if any(certified):
        return f"`{recipe}`: every size, certified ({sum(certified)} of {len(certified)} seeds)"
    return f"`{recipe}`: {describe_reach(read_results(models_folder / recipe / RESULTS_FILE))}"


def median_cells(rows: list[Row], lengths: Iterable[int], measure: str = "exact_match") -> TableLine:
    """The median of a measure over runs, for each length; empty if a length was not tested."""
    values = group_by(rows, itemgetter("length"))
    return {str(n): f"{median(row[measure] for row in values[n]):.3f}" if n in values else "" for n in lengths}


def median_seconds(rows: list[Row]) -> str:
    """The median duration of the runs."""
    return f"{median(row['run_seconds'] for row in rows):.0f}"


def describe_reach(rows: list[Row]) -> str:
    """The generalizable length, with >= if no longer problems were tested."""
    reached = generalizable_length(rows)
    return f">= {reached}" if reached == max(row["length"] for row in rows) else str(reached)
