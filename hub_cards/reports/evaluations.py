"""What an evaluation prints and draws: tables and plots of accuracy, attention maps."""

from pathlib import Path

from longhand.data import TASKS
from longhand.hub_cards.reports.plots import plot_accuracy, plot_attention, plot_grid
from longhand.hub_cards.runs.checkpoint_files import PLOT_FILE
from longhand.hub_cards.runs.checkpoints import Checkpoint
from longhand.hub_cards.runs.evaluation import read_attention
from longhand.hub_cards.runs.results import RESULTS_FILE, Row, format_medians, format_table, write_results


def report(rows: list[Row], folder: Path, trained_lengths: tuple[int, int] | None, seeds: bool = False) -> None:
    """Write results.jsonl and the plot, and print the table.

    Args:
        trained_lengths: shortest and longest trained operand in digits, shaded in the plot; None if unknown.
        seeds: whether the rows' models are seeds of one model, so that medians over them are drawn and printed too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    task = TASKS[rows[0]["task"]]
    pairs = {(row["length"], row["length_b"]) for row in rows}
    if len(pairs) == len({length for length, _ in pairs}):
        plot_accuracy(rows, folder / PLOT_FILE, trained_lengths, task.size_names, seeds)
    else:
        plot_grid(rows, folder / PLOT_FILE, trained_lengths, task.size_names)
    write_results(rows, folder / RESULTS_FILE)
    print(format_table(rows))
    if seeds:
        print(f"\n{format_medians(rows)}")
    print(f"\nwrote {folder / RESULTS_FILE} and {folder / PLOT_FILE}")


def draw_attention(checkpoint: Checkpoint, lengths: tuple[int, ...], num_samples: int, seed: int, file: Path) -> None:
    """Plot the attention of response tokens, averaged over problems of one length (paper 1, Fig. 7)."""
    maps, batch = read_attention(checkpoint, lengths, num_samples, seed)
    same = (batch["input_ids"] == batch["input_ids"][:1]).all(0)
    names = checkpoint.task.family.tokens
    kinds = [names[int(token)] if fixed else "#" for token, fixed in zip(batch["input_ids"][0], same, strict=True)]
    first_query = len(kinds) - batch.get("logits_to_keep", len(kinds))
    # Of an encoder, keys may be more than tokens.
    kinds += ["sink"] * (maps[0].shape[-1] - len(kinds))
    plot_attention([weights.mean(0) for weights in maps], kinds, first_query, file)
