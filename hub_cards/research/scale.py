"""Tables of what was measured of processes, datasets and larger models, and what follows from it for far larger ones."""

from collections.abc import Sequence

from longhand.data.shards import DISTINCT_SHARDS
from longhand.hub_cards.evaluation.results import Row
from longhand.hub_cards.research.tables import fill_table, render_table

PLANNED_SHARDS = 1000
"""Shards of the planned dataset that machines push."""

PLANNED_WIDTH, PLANNED_LAYERS, PLANNED_BATCH = 2048, 16, 256
"""The planned model, and sums of a batch."""

STATE_BYTES = 16
"""Of a parameter in training: its weight, its gradient and two moments of AdamW in float32."""

GPU_FLOPS = 989e12
"""Operations a second of an H100 in bf16, by its data sheet."""

NETWORK_BYTES = 125e6
"""Bytes a second of a line of 1 Gbit/s."""


def processes_table(rows: list[Row]) -> str:
    """Return a line for each recipe and number of processes: its rate, and how far its losses are from one process's."""
    alone = {row["recipe"]: row["problems_per_second"] for row in rows if row["processes"] == 1}
    lines = [
        {
            "recipe": f"`{row['recipe']}`",
            "processes": f"{row['processes']}",
            "problems a second": f"{row['problems_per_second']:,.0f}",
            "times one process": f"**{row['problems_per_second'] / alone[row['recipe']]:.2f}**",
            "steps": f"{row['steps']}",
            "first and last loss": f"{row['first_loss']:.4f}, {row['last_loss']:.4f}",
            "largest difference of a loss": f"{row['difference']:.0e}" if row["difference"] else "",
        }
        for row in rows
    ]
    note = "Fastest of {runs} runs; differences are relative. {cores} cores, {hardware} a process."
    return render_table(lines, note.format(**rows[0]))


def rows_table(rows: list[Row]) -> str:
    """Return a line for each task and number of processes: time, size and memory of its rows."""
    own = [
        {
            **row,
            "rate": row["rows"] / row["core_seconds"],
            "arrow": row["arrow_bytes"] / 1e6,
            "parquet": row["parquet_bytes"] / 1e6,
        }
        | {"peak": row["peak_bytes"] / 1e6}
        for row in rows
        if row["what"] == "rows"
    ]
    columns = {"task": "`{task}`", "rows": "{rows:,}", "processes": "{num_proc}", "seconds": "{seconds:.1f}"}
    columns |= {"core-seconds": "{core_seconds:.1f}", "rows a core-second": "{rate:,.0f}"}
    columns |= {"Arrow, MB": "{arrow:,.0f}", "as Parquet, MB": "{parquet:,.0f}"}
    columns |= {"core-seconds to write it": "{parquet_core_seconds:.1f}", "peak memory of a process, MB": "{peak:,.0f}"}
    return fill_table(own, columns, f"{own[0]['hardware']} a process.")


def begin_table(rows: list[Row]) -> str:
    """Return a line for each task: what a process spends to begin in the middle of a dataset."""
    own = [{**row, "share": row["short"] / DISTINCT_SHARDS / row["shard_rows"]} for row in rows if row["what"] == "begin"]
    columns = {"task": "`{task}`", "first shard, s": "{first:.2f}", f"shard {DISTINCT_SHARDS - 1}, alone, s": "{alone:.2f}"}
    columns |= {"the next shard, s": "{next:.2f}", "short problems": "{share:.0%}", "keys held, MB": "{megabytes:.1f}"}
    return fill_table([{**row, "megabytes": row["key_bytes"] / 1e6} for row in own], columns, f"{own[0]['hardware']}.")


def rows_plan(rows: list[Row]) -> str:
    """Return a line for each quantity of the planned dataset of sums: how it follows from what was measured."""
    made = next(row for row in rows if row["what"] == "rows" and row["task"] == "addition" and row["num_proc"] == 1)
    begin = next(row for row in rows if row["what"] == "begin" and row["task"] == "addition")
    opened = next(row for row in rows if row["what"] == "open")
    count, files, shards = opened["rows"], opened["files"], PLANNED_SHARDS
    seconds, parquet, arrow = ((made[name]) / made["rows"] for name in ("core_seconds", "parquet_bytes", "arrow_bytes"))
    writing, share = made["parquet_core_seconds"] / made["rows"], begin["short"] / DISTINCT_SHARDS / begin["shard_rows"]
    again = (begin["alone"] - begin["next"]) / 2
    batches = count / begin["shard_rows"]
    each = count / shards
    lines = [
        ("files", "as the push would write them", f"{files:,} of {count // files:,} rows"),
        ("bytes of a file", f"{parquet:.0f} B x {count // files:,} rows", size(parquet * count / files)),
        ("bytes in all, Parquet", f"{parquet:.0f} B x {count:.0e} rows", size(parquet * count)),
        ("making rows", f"{seconds * 1e6:.1f} us x {count:.0e}", f"{seconds * count / 3600:,.1f} core-hours"),
        ("writing Parquet", f"{writing * 1e6:.1f} us x {count:.0e}", f"{writing * count / 3600:,.1f} core-hours"),
        (
            "drawing again what earlier shards hold",
            f"{shards:,} beginnings x {again:.1f} s, half of the worst",
            f"{shards * again / 3600:,.1f} core-hours",
        ),
        ("time of one of the shards", f"{each:,.0f} rows, one core", f"{each * (seconds + writing) + again:,.0f} s"),
        ("disk for it", f"({arrow:.0f} + {parquet:.0f}) B x {each:,.0f} rows", size((arrow + parquet) * each)),
        (
            "disk for all of it on one machine",
            f"({arrow:.0f} + {parquet:.0f}) B x {count:.0e}",
            size((arrow + parquet) * count),
        ),
        ("memory of a process", "measured, at any number of rows", size(made["peak_bytes"])),
        ("keys of short problems in it", f"{DISTINCT_SHARDS} shards x {share:.0%} x 8 B", size(begin["key_bytes"])),
        ("keys, if all rows were to differ", f"{count:.0e} x {share:.0%} x 8 B", size(count * share * 8)),
        ("upload at 1 Gbit/s", f"{size(parquet * count)} / 125 MB/s", f"{parquet * count / NETWORK_BYTES / 3600:.1f} hours"),
        (
            "memory to open all as Arrow",
            f"{batches:,.0f} record batches x {opened['bytes_per_batch']:,.0f} B",
            size(batches * opened["bytes_per_batch"]),
        ),
        (
            "the same with batches of 1,000 rows",
            f"{count // 1000:.0e} x {opened['bytes_per_batch']:,.0f} B",
            size(count / 1000 * opened["bytes_per_batch"]),
        ),
    ]
    return plan_table(lines, f"{shards:,} shards; measured with {made['rows']:,} rows of `addition`, {made['hardware']}.")


def models_table(rows: list[Row]) -> str:
    """Return a line for each shape that was trained: its share of the peak, and its memory against the plan's formula."""
    peak, per_state = peak_flops(rows), activation_bytes(rows)
    own = [
        {
            **row,
            "share": training_flops(row["parameters"], row["tokens"]) / row["seconds"] / peak,
            "memory": row["bytes"] / 1e6,
            "planned": (STATE_BYTES * row["parameters"] + per_state * row["tokens"] * row["layers"] * row["width"]) / 1e6,
            "stored": row["checkpoint_bytes"] / row["parameters"],
        }
        for row in rows
        if row["what"] == "training"
    ]
    columns = {"width": "{width}", "layers": "{layers}", "parameters": "{parameters:,}", "tokens of a batch": "{tokens:,}"}
    columns |= {"seconds a step": "{seconds:.2f}", "share of peak": "{share:.0%}", "memory, MB": "{memory:,.0f}"}
    columns |= {"by the formula, MB": "{planned:,.0f}", "checkpoint, bytes a parameter": "{stored:.1f}"}
    note = f"Peak: {peak / 1e9:.0f} billion operations a second, products of matrices of 2,048 rows. {own[0]['hardware']}."
    return fill_table(own, columns, note)


def model_plan(rows: list[Row], generation: list[Row]) -> str:
    """Return a line for each quantity of the planned model: how it follows from what was measured."""
    largest = [row for row in rows if row["what"] == "training"][-1]
    checks = [row for row in rows if row["what"] == "check"][-1]
    per_square = largest["parameters"] / largest["layers"] / largest["width"] ** 2
    parameters = per_square * PLANNED_LAYERS * PLANNED_WIDTH**2
    tokens = largest["tokens"] / 8 * PLANNED_BATCH
    flops, peak = training_flops(parameters, tokens), peak_flops(rows)
    share = training_flops(largest["parameters"], largest["tokens"]) / largest["seconds"] / peak
    per_state = activation_bytes(rows)
    stored = largest["checkpoint_bytes"] / largest["parameters"] * parameters
    written = largest["checkpoint_bytes"] / largest["checkpoint_seconds"]
    checked = checks["seconds"] * parameters / checks["parameters"]
    drawn = next(row["longhand"] for row in generation if row["benchmark"] == "generation, addition")
    weights = 4 * parameters
    lines = [
        (
            "parameters",
            f"{per_square:.1f} x {PLANNED_LAYERS} layers x {PLANNED_WIDTH:,}^2",
            f"{parameters / 1e9:.2f} billion",
        ),
        ("weights, gradients, moments of AdamW", f"{STATE_BYTES} B x {parameters:.2e}", size(STATE_BYTES * parameters)),
        (
            "activations",
            f"{per_state:.0f} B x {tokens:,.0f} tokens x {PLANNED_LAYERS} layers x {PLANNED_WIDTH:,}",
            size(per_state * tokens * PLANNED_LAYERS * PLANNED_WIDTH),
        ),
        ("operations of a step", f"6 x {parameters:.2e} x {tokens:,.0f} tokens", f"{flops:.1e}"),
        ("step on one core here", f"/ ({share:.0%} of {peak:.1e} a second)", f"{flops / share / peak / 60:,.0f} minutes"),
        ("step on an H100 at the same share", f"/ ({share:.0%} of {GPU_FLOPS:.1e})", f"{flops / share / GPU_FLOPS:.2f} s"),
        (
            "drawing the global batch, in every process",
            f"{PLANNED_BATCH} / {drawn:,.0f} a second",
            f"{PLANNED_BATCH / drawn:.4f} s",
        ),
        ("a checkpoint", f"{stored / parameters:.1f} B x {parameters:.2e}", size(stored)),
        ("writing it, by the main process alone", f"/ {size(written)} a second", f"{stored / written:,.0f} s"),
        (
            "disk: two checkpoints, last and best weights",
            f"2 x {size(stored)} + 2 x {size(weights)}",
            size(2 * (stored + weights)),
        ),
        (
            "a certificate's predictions, one layer of that size",
            f"{checks['seconds']:.2f} s x {parameters:.2e} / {checks['parameters']:.2e}",
            f"{checked / 60:.0f} minutes",
        ),
    ]
    note = f"{PLANNED_BATCH} sums of 30 digits a batch, float32. Measured: {largest['hardware']}; H100: its data sheet."
    return plan_table(lines, note)


def peak_flops(rows: list[Row]) -> float:
    """Operations a second that one thread reaches at most."""
    return next(row["flops"] for row in rows if row["what"] == "peak")


def training_flops(parameters: float, tokens: float) -> float:
    """Operations of a training step: two for each parameter and token forward, and twice as many backward."""
    return 6 * parameters * tokens


def activation_bytes(rows: list[Row]) -> float:
    """Bytes that training holds for each token, layer and unit of width, from two batches of one model."""
    alike = [row for row in rows if row["what"] == "training" and row["width"] == 512]
    small, large = sorted(alike, key=lambda row: row["tokens"])
    return (large["bytes"] - small["bytes"]) / (large["tokens"] - small["tokens"]) / large["layers"] / large["width"]


def size(count: float) -> str:
    """Bytes with three digits."""
    unit = next((unit for unit in ("kB", "MB", "GB") if count < 1000 * UNITS[unit]), "TB")
    return f"{count / UNITS[unit]:.3g} {unit}"


UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def plan_table(lines: Sequence[tuple[str, str, str]], note: str) -> str:
    return render_table([dict(zip(("what", "from", "comes to"), line, strict=True)) for line in lines], note)
