"""Publishes checkpoints, generated datasets and the metric on the Hub, each push as one commit. Without --yes, shows what it
would do.

python -m longhand.hub_cards.push model outputs/addition user/addition
python -m longhand.hub_cards.push model outputs/addition user/addition --yes
python -m longhand.hub_cards.push dataset addition user/addition-problems --max_length 10 30 --num_samples 100000 --yes
python -m longhand.hub_cards.push metric user/exact_match_by_length --yes
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import datasets
import yaml
from transformers.utils import logging

from longhand.data import SPLITS, TASKS
from longhand.data.builder import build_task
from longhand.hub_cards.publishing.cards import CARD_FILE
from longhand.hub_cards.publishing.commits import check_push, commit_files
from longhand.hub_cards.publishing.push import (
    METRIC_FOLDER,
    check_dataset,
    dataset_files,
    describe_files,
    is_dataset_file,
    is_metric_file,
    metric_files,
    model_files,
    push_dataset,
    push_metric,
    push_model,
)
from longhand.hub_cards.runs.arguments import CHECKPOINTS_FOLDER
from longhand.hub_cards.runs.console import refusing_in_one_line

__all__ = ["push_dataset", "push_metric", "push_model"]


def parse_fields(task: str, words: list[str]) -> dict[str, Any]:
    """Fields of a task's format from words such as `zero_padding=false`.

    Raises:
        ValueError: a word is not of this form, the task has no such field, or the value is not legal.
    """
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--fields takes NAME=VALUE such as zero_padding=false, got {word!r}")
        try:
            values[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"--fields takes NAME=VALUE with a value in YAML, got {word!r}") from error
    build_task(task, **values)
    return values


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m longhand.hub_cards.push",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    model = kinds.add_parser("model", help="a checkpoint's folder, without its training states")
    model.add_argument("folder", type=Path, help=f"as train.py writes it; its {CHECKPOINTS_FOLDER} folder stays at home")
    model.add_argument("repo_id", metavar="USER/NAME")
    model.add_argument("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, for the card")
    dataset = kinds.add_parser("dataset", help="generated problems as Parquet, a configuration for each longest length")
    dataset.add_argument("task", choices=TASKS)
    dataset.add_argument("repo_id", metavar="USER/NAME")
    dataset.add_argument(
        "--max_length", type=int, nargs="+", default=[30], help="longest operand in digits of each configuration"
    )
    dataset.add_argument("--min_length", type=int, help="shortest operand in digits (default 1)")
    dataset.add_argument("--num_samples", type=int, default=100_000, help="training examples (default %(default)s)")
    dataset.add_argument(
        "--num_test_samples", type=int, default=1000, help="validation examples, and test examples (default %(default)s)"
    )
    dataset.add_argument("--seed", type=int, default=0)
    dataset.add_argument("--fields", nargs="+", default=[], metavar="NAME=VALUE", help="the task's format")
    metric = kinds.add_parser("metric", help="exact match by length, as a Space from which evaluate.load takes it")
    metric.add_argument("repo_id", metavar="USER/NAME")
    for kind in (model, dataset, metric):
        kind.add_argument("--yes", action="store_true", help="do it")
        kind.add_argument("--private", action="store_true", help="if the repository has to be made")
        kind.add_argument("--revision", help="branch (default main)")
        kind.add_argument("--commit_message")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    publishing = {name: getattr(options, name) for name in ("private", "revision", "commit_message")}
    kind = "space" if options.kind == "metric" else options.kind
    with tempfile.TemporaryDirectory() as place:
        if options.kind == "model":
            files = model_files(options.folder, options.repo_id, options.dataset)
        elif options.kind == "metric":
            files, is_ours, made_of = metric_files(options.repo_id), is_metric_file, METRIC_FOLDER.name
        else:
            given = parse_fields(options.task, options.fields)
            if options.min_length is not None:
                given["min_length"] = options.min_length
            configurations = {f"up_to_{length}": {"max_length": length, **given} for length in options.max_length}
            num_samples = dict(
                zip(SPLITS, (options.num_samples, options.num_test_samples, options.num_test_samples), strict=True)
            )
            check_dataset(options.task, options.repo_id, configurations, num_samples, options.seed)
            if options.yes:
                check_push(options.repo_id, "dataset", private=options.private, revision=options.revision)
            files = dataset_files(options.task, options.repo_id, configurations, num_samples, options.seed, Path(place))
            is_ours, made_of = is_dataset_file, f"{options.task}, seed {options.seed}"
        print(describe_files(files))
        if not options.yes:
            print(f"\n{CARD_FILE}:\n\n{files[CARD_FILE].decode()}")
            print(f"nothing was pushed: --yes pushes these files to the {kind} {options.repo_id} in one commit")
            return
        if options.kind == "model":
            print(push_model(options.folder, options.repo_id, dataset=options.dataset, **publishing))
            return
        publishing["commit_message"] = options.commit_message or f"Push {made_of}"
        push = commit_files(files, options.repo_id, kind, is_ours=is_ours, **publishing)
    print(push)


def main(arguments: list[str] | None = None) -> None:
    """Console entry: bad input and a Hub that does not take it end with one line and exit status 2."""
    options = parse_arguments(arguments)
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    with refusing_in_one_line():
        run(options)


if __name__ == "__main__":
    main()
