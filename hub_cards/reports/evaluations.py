"""What an evaluation prints and draws: tables and plots of accuracy, attention maps."""

from pathlib import Path

import torch

from longhand.data import TASKS
from longhand.data.families.family import to_device
from longhand.hub_cards.reports.plots import plot_accuracy, plot_attention, plot_grid
from longhand.hub_cards.runs.checkpoints import PLOT_FILE, Checkpoint
from longhand.hub_cards.runs.evaluation import draw_batch
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
    model, task = checkpoint.model, checkpoint.task
    batch = draw_batch(model, task, lengths, num_samples, seed)
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            outputs = model(**to_device(batch, model.device), **task.family.forward_options, output_attentions=True)
    finally:
        model.set_attn_implementation(implementation)
    same = (batch["input_ids"] == batch["input_ids"][:1]).all(0)
    kinds = [task.family.tokens[int(t)] if fixed else "#" for t, fixed in zip(batch["input_ids"][0], same, strict=True)]
    first_query = len(kinds) - batch.get("logits_to_keep", len(kinds))
    # The last token of a response predicts nothing.
    queries = slice(-batch["logits_to_keep"], -1) if "logits_to_keep" in batch else slice(None)
    # Of an encoder, keys may be more than tokens.
    kinds += ["sink"] * (outputs.attentions[0].shape[-1] - len(kinds))
    mean = [weights.float().mean(0)[:, queries].cpu() for weights in outputs.attentions]
    plot_attention(mean, kinds, first_query, file)
