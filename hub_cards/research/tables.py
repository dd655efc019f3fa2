"""Tables of the pages, in Markdown, from rows of results files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from statistics import mean, median
from typing import NamedTuple

from longhand.hub_cards.evaluation.results import (
    ATTENTION_KINDS,
    Row,
    describe_length,
    generalizable_length,
    group_by,
    group_cost,
    group_variants,
    growth_exponent,
    has_classes,
    last_rows,
)
from longhand.hub_cards.recipes import load_recipe


class Panel(NamedTuple):
    """A recipe with a window that has a small picture, and the task whose other results stand beside it; "" if none do."""

    title: str
    recipe: str
    task: str


PANELS = (
    Panel("subtraction", "subtraction", "subtraction"),
    Panel("sum of 3 numbers", "three-summands", "multi_operand_addition"),
    Panel("sum of n numbers", "addition-scratchpad", "addition_scratchpad"),
    Panel("product N x 1", "multiplication-1", ""),
    Panel("product N x 2", "multiplication-2", "multiplication"),
    Panel("product N x M", "multiplication-scratchpad", "multiplication_scratchpad"),
    Panel("copy", "copy", "copy"),
    Panel("reverse", "reverse", "reverse"),
    Panel("parity", "parity", "parity"),
    Panel("minesweeper N x N", "minesweeper", "minesweeper"),
)


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


def fill_table(rows: Iterable[Row], columns: Mapping[str, str], note: str = "") -> str:
    """Return a line for each row.

    Args:
        columns: by heading, a format string that is filled with the fields of the row.
    """
    return render_table([{name: cell.format(**row) for name, cell in columns.items()} for row in rows], note)


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


def benchmark_table(rows: list[Row]) -> str:
    """Return a table of the rates of both sides and their ratio."""
    rates = {"longhand": "{longhand:,.0f} {unit}", "baseline": "{baseline:,.0f} {unit}", "ratio": "**{ratio:.1f}**"}
    columns = {"benchmark": "{benchmark}", **rates, "hardware": "{hardware}"}
    return fill_table(rows, columns, "The two sides run in turn; medians of one run.")


def rivals_table(rows: list[Row]) -> str:
    """Return a line for each model and kind of work: its rate, and the ratio to GPT-2 of the same shape."""
    columns = {"work": "{what}", "shape of": "`{shape}`", "model": "{model}", "parameters": "{parameters:,}"}
    rates = {"each second": "{per_second:,.1f}", "times GPT-2": "**{ratio:.2f}**"}
    return fill_table(rows, columns | rates, f"Processor seconds, medians of one run, {rows[0]['hardware']}.")


def race_table(rows: list[Row]) -> str:
    """Return a line for each work: the rates of both sides, their ratio, its aim, and which shares of the limit they are.

    What was measured without the authors' code has empty cells.

    The limit is the rate of a processor that does nothing but the least multiplications, at the peak of matrix products.
    """
    lines = []
    for row in rows:
        needed, peer = row["multiply_adds"], row.get("peer", 0)
        sides = {"longhand": row["longhand"], "authors' code": peer}
        line = {"work": row["benchmark"]}
        line |= {side: f"{rate:,.{2 if rate < 10 else 0}f}" if rate else "" for side, rate in sides.items()}
        line |= {"ratio": f"**{row['ratio']:.1f}**" if peer else "", "aim": str(row["aim"])}
        line |= {"million multiplications": f"{needed / 1e6:,.0f}" if needed else ""}
        line |= {"limit": f"{row['peak'] / needed:,.0f}" if needed else ""}
        shares = {side: rate * needed / row["peak"] for side, rate in (sides | {"the aim": row["aim"] * peer}).items()}
        lines.append(line | {f"share: {side}": f"{share:.1%}" if share else "" for side, share in shares.items()})
    peak = rows[0]["peak"] / 1e9
    note = f"Sums a second of processor time, medians; the sides of a row take turns. The peak: {peak:.0f} billion"
    return render_table(lines, f"{note} multiplications a second, of square matrices in float32. {rows[0]['hardware']}.")


def training_time_table(rows: list[Row], clock: list[Row]) -> str:
    """Return a line for each part of a run, and a column for each run with the seconds that the part takes.

    Args:
        rows: processor seconds.
        clock: seconds of the clock.
    """
    named = [{**row, "recipe": f"{row['recipe']}, by the clock, {row['hardware'].rpartition(', ')[2]}"} for row in clock]
    note = f"Processor seconds of one run, {rows[0]['hardware']}; by the clock, on a machine that does nothing else."
    rows = [*named, *rows]
    runs = group_by(rows, itemgetter("recipe"))
    spent = {(row["recipe"], row["part"]): f"{row['seconds']:.1f}" for row in rows}
    parts = dict.fromkeys(row["part"] for row in rows)
    lines = [{"part": part, **{name: spent.get((name, part), "") for name in runs}} for part in parts]
    sums = {name: f"**{sum(row['seconds'] for row in own):.1f}**" for name, own in runs.items()}
    return render_table([*lines, {"part": "**all**", **sums}], note)


def generation_table(rows: list[Row]) -> str:
    """Return a line for each recipe: examples a second, and their ratio to what is promised."""
    rows = [{**row, "recipe": row["benchmark"].partition(", ")[2]} for row in rows]
    rates = {"examples a second": "{longhand:,.0f}", "promised": "{baseline:,}", "ratio": "**{ratio:.1f}**"}
    return fill_table(rows, {"task of the recipe": "`{recipe}`", **rates}, f"{rows[0]['hardware']}.")


def fuzz_table(rows: list[Row]) -> str:
    """Return a line for each kind of input of the fuzzer, and how the inputs ended."""
    numbers = {name: f"{{{name}:,}}" for name in ("inputs", "answered", "warned", "refused", "faults")}
    return fill_table(rows, {"kind": "{kind}", **numbers}, "Seed {seed}, {minutes:g} minutes, {hardware}.".format(**rows[0]))


def kills_table(rows: list[Row]) -> str:
    """Return a line for each job, and how often it was disturbed in which way."""
    columns = {"job": "{job}", "killed": "{kill:,}", "killed and damaged": "{damage:,}", "started twice": "{twice:,}"}
    note = "Seed {seed}, {minutes:g} minutes, {hardware}.".format(**rows[0])
    return fill_table(rows, {**columns, "faults": "{faults:,}"}, note)


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


def digit_cost_table(rows: list[Row]) -> str:
    """Return a line for each number of sums: the time of a forward pass for each digit, of shorter and of longer sums."""
    columns = {"sums": "{rows}", "ns a digit, 100,000 digits": "{short:,.0f}", "1,000,000 digits": "{long:,.0f}"}
    own = [row for row in rows if row["what"] == "forward"]
    return fill_table(own, {**columns, "ratio": "**{ratio:.2f}**"}, f"Processor time; {rows[0]['hardware']}.")


def decoding_table(rows: list[Row]) -> str:
    """Return a line for each model, number of sums and digits: both ways of greedy decoding."""
    own = [
        {
            **row,
            "loop": f"{row['stepwise']:.2f}" if "stepwise" in row else "",
            "times": f"**{row['ratio']:.1f}**" if "ratio" in row else "",
        }
        for row in rows
        if row["what"] == "decoding"
    ]
    columns = {"model": "{model}", "sums": "{rows}", "digits": "{digits:,}", "passes": "{passes:,}"}
    columns |= {"predictions a token": "{predictions:.1f}", "seconds": "{seconds:.2f}", "token by token": "{loop}"}
    return fill_table(own, {**columns, "ratio": "{times}"}, f"Processor time; {rows[0]['hardware']}.")


def ceiling_table(rows: list[Row]) -> str:
    """Return a line for each number of digits: the ceiling as an exact fraction, and what trained models reached."""
    runs = group_by([row for row in rows if "right" not in row], itemgetter("length"))
    reached = {length: ", ".join(f"{row['exact_match']:.5f}" for row in own) for length, own in runs.items()}
    ceilings = [{**row, "reached": reached.get(row["length"], "")} for row in rows if "right" in row]
    columns = {"digits": "{length}", "ceiling": "{right:,} / {num_pairs:,}", "": "{exact_match:.5f}"}
    return fill_table(ceilings, {**columns, "trained models": "{reached}"})


def long_table(rows: list[Row]) -> str:
    """Return a line for each evaluation of very long problems."""
    columns = {
        "run": "{model}",
        "digits": "{digits}",
        "problems": "{num_samples:,}",
        "decoding": "{decode}",
        "exact match": "**{exact_match:.3f}**",
        "seconds": "{seconds:,.1f}",
    }
    equal = "{length:,}".format
    sized = [{**row, "digits": describe_length(row) if has_classes([row]) else equal(**row)} for row in rows]
    return fill_table(sized, columns, f"{rows[0]['hardware']}.")


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
    return fill_table(rows, columns, "{num_samples} problems of {length} digits, test seed {seed}.".format(**rows[0]))


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


def complexity_table(rows: list[Row]) -> str:
    """Return a line for each distribution: the probabilities of the first lengths, and of all up to 4."""
    lines = []
    for row in rows:
        shares = [*row["probabilities"], *[0.0] * 7]
        cells = {str(length): f"{shares[length]:.2e}" for length in range(7)}
        lines.append({"length": row["length"], "digits": str(row["digits"]), **cells, "up to 4": f"{sum(shares[:5]):.4f}"})
    return render_table(lines)


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
    cells: dict[str, list[str]] = {}
    for recipe in ("addition-short", *(panel.recipe for panel in PANELS)):
        verdicts = [row["certified"] for row in certificates.get(recipe, [])]
        proved = f"every size, certified ({sum(verdicts)} of {len(verdicts)} seeds)"
        said = proved if any(verdicts) else describe_reach(windows[recipe])
        cells.setdefault(load_recipe(recipe)["task"], []).append(f"`{recipe}`: {said}")
    lines = [
        {
            "task": task,
            "window": "; ".join(said),
            **{encoding: reach.get(f"{task}--{encoding}", "") for encoding in encodings},
            "the papers' learned table": PUBLISHED_REACH[task].text if task in PUBLISHED_REACH else "",
        }
        for task, said in cells.items()
    ]
    return render_table(lines)
