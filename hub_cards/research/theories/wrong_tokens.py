"""Where the heads of refuted tables look when they write the first wrong token of an answer.

For each table of the study `proved-lengths`, the shortest length of two digits or more that is refuted:

python -m longhand.hub_cards.research wrong_tokens
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.research.study import load_study
from longhand.hub_cards.research.study_pages import PROVED_LENGTHS, first_refuted, read_lengths, wrong_from_end
from longhand.hub_cards.result_rows import Row, group_by, hardware

RESULTS = Path(__file__).with_suffix(".jsonl")

SHORTEST = 2
"""Shorter sums have no column that could repeat."""


def spread(weights: Tensor) -> float:
    """Return how many tokens a head attends to: the exponential of the entropy of its weights (keys,), which sum to 1."""
    return torch.special.entr(weights).sum().exp().item()


def wrong_token_rows(verdict: Row, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Iterator[Row]:
    """Yield a row for each head of a model of one layer, at the token that writes the first wrong one.

    Args:
        verdict: of a length that is refuted, as `LengthVerdict` has it.
        model: in evaluation mode, with attention "eager", which returns its weights.
    """
    from_end = wrong_from_end(verdict["answer"], verdict["right"])
    text = verdict["problem"] + verdict["right"][:-from_end]
    batch = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        (attention,) = model(batch["input_ids"], output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    for head, weights in enumerate(attention[0, :, -1]):
        heaviest = int(weights.argmax())
        yield {
            "length": verdict["length"],
            "problem": verdict["problem"],
            "answer": verdict["answer"],
            "right": verdict["right"],
            "from_the_end": from_end,
            "head": head,
            "tokens": len(tokens),
            "spread": spread(weights),
            "heaviest": float(weights[heaviest]),
            "heaviest_token": tokens[heaviest],
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the study's runs."""
    described = "folder of the study's runs (default: %(default)s)"
    parser.add_argument("--runs", type=Path, default=Path("outputs", "studies", PROVED_LENGTHS), help=described)


def measure(runs: Path) -> Iterator[Row]:
    """Ask the tables again, and yield where their heads look.

    Raises:
        ValueError: the weights of a table are not those whose lengths were refuted.
    """
    for name, verdicts in group_by(read_lengths(load_study(PROVED_LENGTHS)), itemgetter("model")).items():
        verdict = first_refuted([row for row in verdicts if row["length"] >= SHORTEST])
        if verdict is None:
            continue
        checkpoint = load_checkpoint(str(runs / name))
        if checkpoint.weights != verdict["weights"]:
            raise ValueError(f"{runs / name} has other weights than the table that was refuted: run the study again")
        checkpoint.model.set_attn_implementation("eager")
        for row in wrong_token_rows(verdict, checkpoint.model.cpu().eval(), checkpoint.tokenizer):
            yield {"model": name, **row, "hardware": hardware(torch.device("cpu"))}
