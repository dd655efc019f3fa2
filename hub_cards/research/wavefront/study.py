"""The pass in which each cell of a product's grid settles, as a picture.

The study multiplies two numbers with a checkpoint of the task `encoder_multiplication_grid` and draws passes.png:

python -m longhand.hub_cards.research wavefront outputs/encoder-multiplication-grid
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longhand.data import EncoderMultiplicationGrid
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.passes import passes_of
from longhand.hub_cards.evaluation.plots import house_style, new_figure, save_figure
from longhand.modeling.settling import NO_STATE
from longhand.modeling.vocabulary import NOT_KNOWN, STATES, TIMES

PICTURE = Path(__file__).with_name("passes.png")


def last_changes(model: Any, input_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Make passes until no label changes.

    Args:
        input_ids: (1, tokens).

    Returns:
        The labels, and the pass in which each of them changed for the last time, (tokens,) each.
    """
    passes = passes_of(model, input_ids)
    before, settled = torch.where(passes[0] == NO_STATE, NO_STATE, NOT_KNOWN), torch.zeros_like(input_ids)
    for number, states in enumerate(passes, 1):
        settled[states != before], before = number, states
    return before[0], settled[0]


@house_style
def draw(input_ids: Tensor, labels: Tensor, settled: Tensor, file: Path) -> None:
    """Draw the grid: every cell's carry and sum digit over the colour of its pass."""
    columns = int((input_ids == TIMES).nonzero()[0])
    rows = input_ids[columns + 1 :].view(-1, 2 * columns + 1)
    digits = [STATES[label] if label >= 0 else "" for label in labels.tolist()]
    passes = settled[columns + 1 :].view(rows.shape)[:, 1:-1:2]
    figure, ((axes,),) = new_figure(1.2 + 0.42 * len(rows))
    image = axes.imshow(passes, cmap="viridis_r", aspect="auto")
    for row in range(len(rows)):
        for column in range(columns):
            first = columns + 1 + row * rows.shape[1] + 2 * column
            colour = "white" if passes[row, column] > passes.max() / 2 else "black"
            axes.text(column, row, f"{digits[first]} {digits[first + 1]}", ha="center", va="center", color=colour)
    heads = [input_ids[:columns].tolist(), rows[:, -1].tolist()]
    axes.set_xticks(range(columns), heads[0])
    axes.set_yticks(range(len(rows)), heads[1])
    axes.xaxis.tick_top()
    axes.yaxis.tick_right()
    axes.tick_params(length=0)
    axes.set_title("the carry and the sum digit of every cell", pad=18)
    figure.colorbar(image, label="pass in which the cell settled", location="left")
    save_figure(figure, file)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoint and the product."""
    parser.add_argument("checkpoint", help="folder of a run of the recipe encoder-multiplication-grid")
    parser.add_argument("--ask", default="271828182845*3141592653", metavar="PRODUCT", help="(default: %(default)s)")
    parser.add_argument("--output", type=Path, default=PICTURE, help="the picture's file")


def run(checkpoint: str, ask: str, output: Path) -> None:
    """Multiply, draw the picture, and print the answer with the number of passes."""
    found = load_checkpoint(checkpoint)
    task = found.task
    if not isinstance(task, EncoderMultiplicationGrid):
        raise ValueError(f"{checkpoint} must be of the task {EncoderMultiplicationGrid.name}, got one of {task.name}")
    input_ids = found.tokenizer(task.prompt(ask), return_tensors="pt").input_ids
    labels, settled = last_changes(found.model, input_ids)
    draw(input_ids[0], labels, settled, output)
    answer, _ = task.answer_labels(input_ids.numpy(), labels.unsqueeze(0).numpy())
    product = task.reader.read("".join(STATES[label] for label in answer[0]))
    print(f"{product}, after {int(settled.max())} passes and one that changes nothing\nwrote {output}")
