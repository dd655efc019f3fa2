"""What an evaluation prints, draws and files: accuracy by length and by place, attention maps, pairwise vectors."""

from collections.abc import Callable, Mapping
from pathlib import Path

from longhand.data import TASKS, Task
from longhand.hub_cards.checkpoints.checkpoint import PLOT_FILE, Checkpoint, file_name
from longhand.hub_cards.evaluation.measure import (
    measure_attention,
    measure_places,
    measure_position_maps,
    read_attention,
)
from longhand.hub_cards.evaluation.plots import plot_attention, plot_results
from longhand.hub_cards.evaluation.results import (
    ATTENTION_FILE,
    PLACES_FILE,
    POSITION_MAPS_FILE,
    RESULTS_FILE,
    Row,
    format_attention,
    format_medians,
    format_places,
    format_position_maps,
    format_table,
    write_results,
)

Lengths = Mapping[Task, list[tuple[int, ...]]]
"""What `check_lengths` returns, by task."""

MOST_MAPS = 100
"""Most problems over which attention maps are averaged."""


def report(rows: list[Row], folder: Path, trained_lengths: tuple[int, int] | None, seeds: bool = False) -> None:
    """Write results.jsonl and the plot, and print the table.

    Args:
        trained_lengths: shortest and longest trained operand in digits, shaded in the plot; None if unknown.
        seeds: whether the rows' models are seeds of one model, so that medians over them are drawn and printed too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    print(format_table(rows))
    if seeds:
        print(f"\n{format_medians(rows)}")
    # The rows first: they are kept if a picture cannot be drawn or written.
    write_results(rows, folder / RESULTS_FILE)
    print(f"\nwrote {folder / RESULTS_FILE}")
    plot_results(rows, folder / PLOT_FILE, trained_lengths, TASKS[rows[0]["task"]].size_names, seeds)
    print(f"wrote {folder / PLOT_FILE}")


def draw_attention(checkpoint: Checkpoint, lengths: tuple[int, ...], num_samples: int, seed: int, file: Path) -> None:
    """Plot the attention of response tokens, averaged over problems of one length (paper 1, Fig. 7)."""
    maps, batch = read_attention(checkpoint, lengths, num_samples, seed)
    same = (batch["input_ids"] == batch["input_ids"][:1]).all(0)
    names = getattr(checkpoint.model.config, "tokens", checkpoint.task.family.tokens)
    kinds = [names[int(token)] if fixed else "#" for token, fixed in zip(batch["input_ids"][0], same, strict=True)]
    first_query = len(kinds) - batch.get("logits_to_keep", len(kinds))
    # Of an encoder, keys may be more than tokens.
    kinds += ["sink"] * (maps[0].shape[-1] - len(kinds))
    plot_attention([weights.mean(0) for weights in maps], kinds, first_query, file)


def _write_table(rows: list[Row], file: Path, format_rows: Callable[[list[Row]], str]) -> None:
    write_results(rows, file)
    print(f"\n{format_rows(rows)}\n\nwrote {file}")


def write_places(checkpoints: list[Checkpoint], lengths: Lengths, num_samples: int, seed: int, folder: Path) -> None:
    """Measure and write the accuracy of every digit of the answer."""
    measured = [measure_places(checkpoint, lengths[checkpoint.task], num_samples, seed) for checkpoint in checkpoints]
    _write_table([row for rows in measured for row in rows], folder / PLACES_FILE, format_places)


def write_attention(checkpoints: list[Checkpoint], lengths: Lengths, num_samples: int, seed: int, folder: Path) -> None:
    """Plot the attention of decoders or encoders, and write which tokens each head looks at."""
    count, rows = min(num_samples, MOST_MAPS), []
    for checkpoint in checkpoints:
        operands, part = lengths[checkpoint.task][0], f"-{checkpoint.task.name}" if len(lengths) > 1 else ""
        file = folder / f"attention-{file_name(checkpoint.name)}{part}.png"
        draw_attention(checkpoint, operands, count, seed, file)
        print(f"wrote {file}")
        rows += measure_attention(checkpoint, operands, count, seed)
    _write_table(rows, folder / ATTENTION_FILE, format_attention)


def write_position_maps(checkpoints: list[Checkpoint], folder: Path) -> None:
    """Write how dispersed the pairwise vectors of encoders are."""
    rows = [row for checkpoint in checkpoints for row in measure_position_maps(checkpoint)]
    _write_table(rows, folder / POSITION_MAPS_FILE, format_position_maps)
