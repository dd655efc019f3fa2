"""Tables of the pages, in Markdown, from rows of results files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import mean, median

from longhand.hub_cards.evaluation.results import (
    ATTENTION_KINDS,
    Row,
    describe_length,
    generalizable_length,
    group_by,
    group_cost,
    group_variants,
    growth_exponent,
    last_rows,
)
from longhand.hub_cards.recipes import load_recipe, read_recipe

OVERVIEW = read_recipe(Path(__file__).with_name("overview.yaml"))
"""The small pictures of tasks, and how far the papers' learned table generalizes; the file says what its fields mean."""

TableLine = dict[str, str]
"""A line of a table: its cells by the heading of their columns."""


def render_table(lines: Sequence[TableLine], note: str = "") -> str:
    """Return a Markdown table and a note below it.

    The first column and columns of words are aligned to the left, columns of numbers to the right.

    Args:
        lines: all with the same headings.
    """
    header = list(lines[0])
    words = {name for line in lines for name, cell in line.items() if re.match("[*`]*[A-Za-z]", cell)}
    marks = ["---" if name in words | {header[0]} else "---:" for name in header]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *(line.values() for line in lines)))
    return f"{table}\n\n{note}\n" if note else f"{table}\n"


def fill_table(rows: Sequence[Row], columns: Mapping[str, str], note: str = "") -> str:
    """Return a line for each row, and a note that is filled with the fields of the first row.

    Args:
        columns: by heading, a format string that is filled with the fields of the row. Where the row lacks a field, the cell
            is empty.
    """

    def fill(cell: str, row: Row) -> str:
        try:
            return cell.format(**row)
        except KeyError:
            return ""

    lines = [{name: fill(cell, row) for name, cell in columns.items()} for row in rows]
    return render_table(lines, note.format(**rows[0]))


def describe_samples(rows: list[Row], what: str = "problems per length") -> str:
    """Say how many problems were tested, with which seed and hardware, for the note below a table."""
    counts = sorted({row["num_samples"] for row in rows})
    samples = f"{counts[0]} to {counts[-1]}" if counts[1:] else str(counts[0])
    return f"{samples} {what}, test seed {rows[0]['seed']}, {rows[0]['hardware']}"


def by_length_table(rows: list[Row]) -> str:
    """Return a table of exact match: a line for each run, a column for each length, the median in the last line."""
    lengths = sorted({row["length"] for row in rows})
    runs = group_by(rows, itemgetter("model"))
    lines = [{"run": name, **median_cells(own, lengths), "seconds": seconds(own[0])} for name, own in runs.items()]
    if len(runs) > 1:
        medians = {length: f"**{value}**" for length, value in median_cells(rows, lengths).items()}
        lines.append({"run": "**median**", **medians, "seconds": ""})
    return render_table(lines, f"{describe_samples(rows)}; seconds are of training and the first evaluation.")


def seconds(row: Row) -> str:
    """Return the duration of a run; empty if it is unknown."""
    return f"{row['run_seconds']:.0f}" if row.get("run_seconds") else ""


FILLED = read_recipe(Path(__file__).with_name("tables.yaml"))
"""By the name of their block, the tables that only fill rows into columns; the file says what its fields mean."""


def filled_table(block: str, rows: list[Row]) -> str:
    """Return the table of a block of `FILLED`."""
    table = FILLED[block]
    shown = [row for row in rows if row.get("what") == table["what"]] if "what" in table else rows
    return fill_table(shown, table["columns"], table.get("note", ""))


def race_table(rows: list[Row]) -> str:
    """Return a line for each work: the rates of both sides, their ratio, its aim, and this package's share of the limit.

    What was measured without the authors' code has empty cells. The limit is the rate of a processor that does nothing but
    the least multiplications, at the peak of matrix products.
    """
    lines = []
    for row in rows:
        sides = {"longhand": row["longhand"], "authors' code": row.get("peer", 0)}
        line = {"work": row["benchmark"]}
        line |= {side: f"{rate:,.{2 if rate < 10 else 0}f}" if rate else "" for side, rate in sides.items()}
        line |= {"ratio": f"**{row['ratio']:.1f}**" if "peer" in row else "", "aim": str(row["aim"])}
        share = row["longhand"] * row["multiply_adds"] / row["peak"]
        lines.append(line | {"longhand's share of the limit": f"{share:.1%}" if share else ""})
    peak = f"{rows[0]['peak'] / 1e9:.0f} billion multiplications a second, of square matrices in float32"
    note = f"Sums a second of processor time, medians; the sides of a row take turns. The peak: {peak}."
    return render_table(lines, f"{note} {rows[0]['hardware']}.")


def certificate_table(rows: list[Row]) -> str:
    """Return a line for each run: the result of the check of all its neighbourhoods."""
    lines = [
        {
            "run": row["model"],
            "certified": "**yes**" if row["certified"] else "no",
            "wrong": f"{row['wrong']:,}",
            "smallest margin": f"{row['margin']:.2f}",
            "lead / bound": f"{row['ratio']:,.0f}" if row.get("ratio") else "",
            "seconds of the run": seconds(row),
        }
        for row in rows
    ]
    counts = sorted({(row["problems"] or 0, row["predictions"]) for row in rows})
    checked = "; ".join(
        f"{predictions:,} predictions" + (f" in {problems:,} problems" if problems else "")
        for problems, predictions in counts
    )
    return render_table(lines, f"Checked for each: {checked}. {rows[0]['hardware']}.")


def cost_table(rows: list[Row]) -> str:
    """Return a line for each form of attention and kind of work: how time and memory grow with the digits."""
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
    return render_table(lines, f"{rows[0]['hardware']}.")


def long_table(rows: list[Row]) -> str:
    """Return a line for each evaluation of very long problems."""
    columns = {"run": "{model}", "digits": "{digits}", "problems": "{num_samples:,}", "decoding": "{decode}"}
    columns |= {"exact match": "**{exact_match:.3f}**", "seconds": "{seconds:,.1f}"}
    return fill_table([{**row, "digits": describe_length(row)} for row in rows], columns, "{hardware}.")


def describe_seeds(variants: Mapping[str, list[Row]]) -> str:
    """Say over how many seeds the medians of the variants are."""
    seeds = sorted({len({row["model"] for row in own}) for own in variants.values()})
    return "one seed" if seeds == [1] else f"medians of {' or '.join(map(str, seeds))} seeds"


def places_table(rows: list[Row]) -> str:
    """Return a line for each model and length: the accuracy of every output place, the last place of the answer first.

    Shorter answers have no cells at the places that they lack.
    """
    places = range(1, max(row["place"] for row in rows) + 1)
    lines = []
    for (model, length), own in group_by(rows, itemgetter("model", "length")).items():
        accuracy = {str(row["place"]): f"{row['accuracy']:.2f}" for row in own}
        cells = dict.fromkeys(map(str, places), "") | accuracy
        lines.append({"model": model, "digits": str(length), **cells})
    return render_table(lines, f"{rows[0]['num_samples']} problems per length, test seed {rows[0]['seed']}.")


def attention_table(rows: list[Row]) -> str:
    """Return a line for each run, layer and head: its attention by the difference of ids."""
    columns = {"run": "{model}", "layer": "{layer}", "head": "{head}"}
    columns |= {kind.replace("_", " "): f"{{{kind}:.2f}}" for kind in ATTENTION_KINDS}
    return fill_table(rows, columns, "{num_samples} problems of {length} digits, test seed {seed}.")


def positions_table(rows: list[Row]) -> str:
    """Return a line for each variant: how dispersed the relative vectors of every layer are, means over seeds."""
    lines = []
    for variant, own in group_variants(rows).items():
        layers = group_by(own, itemgetter("layer"))
        values = [[row["effective_relations"] for row in layers[layer]] for layer in sorted(layers)]
        cells = {f"layer {layer}": f"{mean(runs):.1f}" for layer, runs in zip(sorted(layers), values, strict=True)}
        each = ", ".join(f"{mean(run):.1f}" for run in zip(*values, strict=True))
        lines.append({"variant": variant, **cells, "each run": each, "relations": str(own[0]["relations"])})
    checkpoints = "Last" if last_rows(rows) else "Best"
    return render_table(lines, f"{checkpoints} checkpoints, {len(values[0])} seeds.")


def ring_table(rows: list[Row]) -> str:
    """Return a line for each setting and method of linear attention on the ring: losses, and what theory predicts."""
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
    return render_table(lines, note)


def median_cells(rows: list[Row], lengths: Iterable[int], measure: str = "exact_match") -> TableLine:
    """Return the median of a measure over runs, for each length; empty if a length was not tested."""
    values = group_by(rows, itemgetter("length"))
    return {str(n): f"{median(row[measure] for row in values[n]):.3f}" if n in values else "" for n in lengths}


def median_seconds(rows: list[Row]) -> str:
    """Return the median duration of the runs."""
    return f"{median(row['run_seconds'] for row in rows):.0f}"


def describe_reach(rows: list[Row]) -> str:
    """Return the generalizable length, with >= if no longer problems were tested."""
    reached = generalizable_length(rows)
    return f">= {reached}" if reached == max(row["length"] for row in rows) else str(reached)


def tasks_table(reach: Mapping[str, str], windows: Mapping[str, list[Row]], certificates: Mapping[str, list[Row]]) -> str:
    """Return a line for each task, a column for each encoding: certificates of the window, else generalizable lengths.

    Args:
        reach: by TASK--ENCODING, TASK a name of `TASKS`.
        windows: rows of each recipe with a window.
        certificates: of those that have some.
    """
    encodings = sorted({name.partition("--")[2] for name in reach if not name.startswith("addition--")})
    published = OVERVIEW["published"]
    cells: dict[str, list[str]] = {}
    for recipe in ("addition-short", *(panel["recipe"] for panel in OVERVIEW["panels"])):
        verdicts = [row["certified"] for row in certificates.get(recipe, [])]
        proved = f"every size, certified ({sum(verdicts)} of {len(verdicts)} seeds)"
        said = proved if any(verdicts) else describe_reach(windows[recipe])
        cells.setdefault(load_recipe(recipe)["task"], []).append(f"`{recipe}`: {said}")
    lines = [
        {
            "task": task,
            "window": "; ".join(said),
            **{encoding: reach.get(f"{task}--{encoding}", "") for encoding in encodings},
            "the papers' learned table": published[task]["text"] if task in published else "",
        }
        for task, said in cells.items()
    ]
    return render_table(lines)
