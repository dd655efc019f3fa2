"""How close trained one-layer decoders without position encoding come to their ceiling (paper 1, Prop. 5.2).

The study computes the ceiling for 1 to 5 digits, evaluates runs of the recipe `nope-ceiling`, and writes ceiling.jsonl and,
from it, ceiling.png. A run is evaluated on pairs of all splits, as the ceiling counts them: on all pairs if --num_samples
allows, else on a uniform sample. The run's own test split would be wrong: a model learns the sums that are most frequent in
the training split, and cannot learn a multiset that this split lacks, such as the multiset of 4+4.

Without RUN the missing runs of what is published here are trained first, in outputs/studies/nope_ceiling.
"""

import argparse
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch

from longhand.data import make_generator
from longhand.data.checks import check_integer
from longhand.data.digits import uniform_digits
from longhand.data.tasks.addition import Addition
from longhand.hub_cards.checkpoints.files import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.plots import BLACK, BLUE, OPERANDS, house_style, label_ends, new_figure, save_figure
from longhand.hub_cards.evaluation.results import RESULTS_FILE, Row, group_by, read_results, wilson_interval
from longhand.hub_cards.recipes import RECIPE_FILE
from longhand.hub_cards.research.nope_ceiling.ceiling import MAX_DIGITS, nope_ceiling
from longhand.hub_cards.research.overview import write_and_draw
from longhand.hub_cards.research.run import is_finished, train_all
from longhand.hub_cards.research.study import StudyRun
from longhand.hub_cards.research.tables import ceiling_table

RESULTS = Path(__file__).with_name("ceiling.jsonl")
CEILING = "ceiling"
FOLDER = Path("outputs", "studies", "nope_ceiling")
LENGTHS = ("min_length", "max_length", "validation_lengths", "test_lengths")
RUNS = [
    StudyRun(
        f"nope-ceiling-{digits}-seed{seed}",
        "nope-ceiling",
        {**dict.fromkeys(LENGTHS, digits), "seed": seed, "data_seed": seed},
    )
    for digits, seed in ((1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (5, 0))
]
"""What is trained if no runs are given, by digits and seed."""


def ceiling_row(digits: int) -> Row:
    """Return the ceiling as a row of the results; `right` and `num_pairs` are exact."""
    right, pairs = nope_ceiling(digits)
    row = {"model": CEILING, "task": "addition", "length": digits, "length_b": digits}
    return {**row, "right": right, "num_pairs": pairs, "exact_match": right / pairs}


def load_run(folder: Path) -> tuple[Checkpoint, Addition, int]:
    """Return the checkpoint of a finished run, its task, and the digits that it was trained on.

    Raises:
        ValueError: the folder is not a finished run, Prop. 5.2 does not hold for its model, or its lengths have no ceiling.
    """
    if missing := [name for name in ("config.json", RECIPE_FILE, RESULTS_FILE) if not (folder / name).is_file()]:
        raise ValueError(f"{folder} is not a finished run: it has no {missing[0]}")
    checkpoint = load_checkpoint(str(folder))
    task, (shortest, longest) = checkpoint.task, checkpoint.trained_lengths or (0, 0)
    if not isinstance(task, Addition) or shortest != longest or longest not in range(1, MAX_DIGITS + 1):
        raise ValueError(
            f"{folder} must be trained on addition of one length of 1 to {MAX_DIGITS} digits, "
            f"got {task.name!r} of {shortest} to {longest}"
        )
    layers, encoding = checkpoint.model.config.num_hidden_layers, checkpoint.model.config.position_encoding
    if (layers, encoding) != (1, "none"):
        raise ValueError(f"{folder} must have 1 layer and position_encoding 'none', got {layers} and {encoding!r}")
    return checkpoint, task, longest


def operand_pairs(digits: int, num_samples: int, seed: int) -> np.ndarray:
    """Return pairs of numbers of `digits` digits without leading zeros (1 to 9 for one digit), of all splits.

    All pairs if there are at most `num_samples`; else `num_samples` pairs, drawn uniformly.

    Returns:
        (count, 2, digits) uint8, ones first.
    """
    if 81 * 100 ** (digits - 1) <= num_samples:
        numbers = np.arange(10 ** (digits - 1), 10**digits)
        pairs = np.stack(np.meshgrid(numbers, numbers), axis=-1).reshape(-1, 2, 1)
        return (pairs // 10 ** np.arange(digits) % 10).astype(np.uint8)
    generator = make_generator(seed, "nope-ceiling", digits)
    if digits == 1:
        return generator.integers(1, 10, size=(num_samples, 2, 1), dtype=np.uint8)
    return uniform_digits(generator, np.full((num_samples, 2), digits))


@torch.inference_mode()
def evaluate_run(folder: Path, num_samples: int, seed: int) -> Row:
    """Measure the exact match of one run by teacher forcing: the same event as greedy decoding being right.

    `all_pairs` of the row says whether all pairs were tried, so that the share has no sampling error.
    """
    checkpoint, task, digits = load_run(folder)
    model = checkpoint.model
    pairs = operand_pairs(digits, num_samples, seed)
    collator = task.family.collator(model.config)
    batches = (task.format(part, np.full((len(part), 2), digits)) for part in np.split(pairs, range(1000, len(pairs), 1000)))
    matches = torch.cat([task.family.forward_matches(model, collator(batch)) for batch in batches])
    exact, right, supervised = matches.sum(0).tolist()
    trained = read_results(folder / RESULTS_FILE)[0]
    return {
        "model": folder.resolve().name,
        "task": task.name,
        "length": digits,
        "length_b": digits,
        "num_samples": len(pairs),
        "all_pairs": len(pairs) == 81 * 100 ** (digits - 1),
        "seed": seed,
        "decode": "teacher_forced",
        "exact_match": exact / len(pairs),
        "token_accuracy": right / supervised,
        "hardware": trained["hardware"],
        "run_seconds": trained["run_seconds"],
    }


def interval(row: Row) -> tuple[float, float]:
    """Return the 95% interval of a run's exact match: Wilson's for a sample, the value itself if all pairs were tried."""
    if row["all_pairs"]:
        return row["exact_match"], row["exact_match"]
    return wilson_interval(row["exact_match"] * row["num_samples"], row["num_samples"])


@house_style
def plot_ceiling(rows: list[Row], file: Path) -> None:
    """Draw the ceiling against the digits as a line, runs as points with their intervals, on a logarithmic axis."""
    figure, ((axes,),) = new_figure(3.7)
    axes.set(xlabel=OPERANDS, ylabel="exact match", title="one layer, no position encoding")
    axes.set(yscale="log", xlim=(0.8, MAX_DIGITS + 0.2), ylim=(3e-5, 2), xticks=range(1, MAX_DIGITS + 1))
    ceiling = {row["length"]: row["exact_match"] for row in rows if row["model"] == CEILING}
    axes.plot(list(ceiling), list(ceiling.values()), color=BLACK, marker="_", markersize=14)
    ends = [("ceiling (Prop. 5.2)", *list(ceiling.items())[-1])]
    for digits, own in group_by([row for row in rows if row["model"] != CEILING], itemgetter("length")).items():
        # Runs of one length stand side by side.
        places = digits + 0.08 * (np.arange(len(own)) - (len(own) - 1) / 2)
        for place, row in zip(places, own, strict=True):
            axes.plot([place, place], interval(row), color=BLUE, linewidth=1)
            axes.plot(place, row["exact_match"], color=BLUE, marker="o", linestyle="")
        ends[1:] = [("trained models, 95% intervals", places[-1], own[-1]["exact_match"])]
    label_ends(axes, ends, (BLACK, BLUE))
    save_figure(figure, file)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--jobs", type=int, default=1, help="runs that are trained at a time (default %(default)s)")
    parser.add_argument("--num_samples", type=int, default=100_000, help="most pairs for each run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of sampled pairs (default %(default)s)")


def run(runs: list[Path], jobs: int, num_samples: int, seed: int) -> None:
    """Evaluate the runs; write, draw and print them beside the ceilings.

    Raises:
        ValueError: `num_samples` or `jobs` is below 1, or a folder is refused by `load_run`.
    """
    check_integer("--num_samples", num_samples, 1)
    check_integer("--jobs", jobs, 1)
    if not runs:
        train_all([one for one in RUNS if not is_finished(one, FOLDER / one.name)], FOLDER, jobs)
        runs = [FOLDER / one.name for one in RUNS]
    rows = sorted((evaluate_run(folder, num_samples, seed) for folder in runs), key=itemgetter("length", "model"))
    write_and_draw([*map(ceiling_row, range(1, MAX_DIGITS + 1)), *rows], RESULTS, plot_ceiling, ceiling_table)
