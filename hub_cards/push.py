"""Push a checkpoint, a generated dataset or the metric to the Hub, in one commit.

Without --yes nothing is pushed: the command shows the files and the card.
"""

import argparse
from pathlib import Path
from typing import Any

import datasets
import yaml
from transformers.utils import logging

from longhand.data import SPLITS, TASKS, build_task
from longhand.hub_cards.publishing.push import (
    Publication,
    dataset_publication,
    describe_files,
    metric_publication,
    model_publication,
    preview,
    publish,
    push_dataset,
    push_metric,
    push_model,
)
from longhand.hub_cards.runs.arguments import CHECKPOINTS_FOLDER
from longhand.hub_cards.runs.console import refusing_in_one_line

__all__ = ["push_dataset", "push_metric", "push_model"]

COMMAND = "python -m longhand.hub_cards.push"

EXAMPLES = f"""\
examples:
  {COMMAND} model outputs/addition user/addition
  {COMMAND} model outputs/addition user/addition --yes
  {COMMAND} dataset addition user/sums --max_length 10 30 --num_samples 1000000 --yes
  {COMMAND} metric user/exact_match_by_length --yes

`{COMMAND} KIND --help` describes each of them.
"""

MODEL_EXAMPLES = f"""\
examples:
  {COMMAND} model outputs/addition user/addition                     shows the files and the card
  {COMMAND} model outputs/addition user/addition --yes               pushes them
  {COMMAND} model outputs/addition user/addition --private --yes     makes the repository private
  {COMMAND} model outputs/addition user/addition --revision trial --yes
"""

DATASET_EXAMPLES = f"""\
examples:
  {COMMAND} dataset addition user/sums --max_length 10 30 --num_samples 1000000 --yes
      makes the configurations up_to_10 and up_to_30
  {COMMAND} dataset addition user/sums --fields zero_padding=false order=plain
  {COMMAND} dataset parity user/bits --min_length 20 --max_length 40
"""

METRIC_EXAMPLES = f"""\
examples:
  {COMMAND} metric user/exact_match_by_length --yes
  then, in Python: evaluate.load("user/exact_match_by_length")
"""


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


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line. `kind` is what to push: model, dataset or metric."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True, title="what to push", metavar="KIND")

    model, content = _add_kind(
        kinds,
        "model",
        "a checkpoint's folder",
        "Push a checkpoint's folder with a card for the repository. Training states are left out. Results\n"
        "that were added on the Hub to the same weights are kept.",
        MODEL_EXAMPLES,
    )
    content.add_argument(
        "folder",
        type=Path,
        help=f"folder of a checkpoint, as train.py writes it; its subfolder {CHECKPOINTS_FOLDER} is not pushed",
    )
    content.add_argument("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, named on the card")
    _add_destination(model)

    dataset, content = _add_kind(
        kinds,
        "dataset",
        "a generated dataset",
        "Generate a dataset and push it as Parquet files, with a configuration for each --max_length.",
        DATASET_EXAMPLES,
    )
    _add_dataset_arguments(content)
    _add_destination(dataset)

    metric, _ = _add_kind(
        kinds,
        "metric",
        "the metric, exact match by length",
        "Push exact match by length as a Space, from which evaluate.load takes it. The last part of the\n"
        "repository's name becomes the name of a Python file: use letters, digits, _ and -.",
        METRIC_EXAMPLES,
    )
    _add_destination(metric)
    return parser.parse_args(arguments)


def _add_kind(kinds, name: str, summary: str, description: str, examples: str):
    """The parser of a kind, and its group of arguments that say what is pushed."""
    parser = kinds.add_parser(
        name,
        help=summary,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser, parser.add_argument_group("content")


def _add_dataset_arguments(content) -> None:
    content.add_argument("task", choices=TASKS, metavar="TASK", help=f"one of {', '.join(TASKS)}")
    content.add_argument(
        "--max_length",
        type=int,
        nargs="+",
        default=[30],
        metavar="LENGTH",
        help="longest operand of each configuration, in digits or the task's own unit (default: 30)",
    )
    content.add_argument("--min_length", type=int, metavar="LENGTH", help="shortest operand (default: 1)")
    content.add_argument(
        "--num_samples",
        type=int,
        default=100_000,
        metavar="COUNT",
        help="training examples of each configuration (default: %(default)s)",
    )
    content.add_argument(
        "--num_test_samples",
        type=int,
        default=1000,
        metavar="COUNT",
        help="examples of the validation split, and of the test split (default: %(default)s)",
    )
    content.add_argument("--seed", type=int, default=0, help="seed of all problems (default: %(default)s)")
    content.add_argument(
        "--fields",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="fields of the task's format, such as zero_padding=false (default: the task's own)",
    )


def _add_destination(parser: argparse.ArgumentParser) -> None:
    destination = parser.add_argument_group("destination")
    destination.add_argument("repo_id", metavar="USER/NAME", help="repository on the Hub; made if it does not exist")
    destination.add_argument("--yes", action="store_true", help="push; without it the files and the card are only shown")
    destination.add_argument(
        "--private", action="store_true", help="make a new repository private; a public one is refused (default: public)"
    )
    destination.add_argument("--revision", metavar="BRANCH", help="branch; made if it does not exist (default: main)")
    destination.add_argument("--commit_message", metavar="TEXT", help="title of the commit (default: Push and what is pushed)")


def read_publication(options: argparse.Namespace) -> Publication:
    """What the options say to push, checked. Nothing is generated, and the Hub is not asked.

    Raises:
        ValueError: the folder, a name or a value is not legal.
    """
    if options.kind == "model":
        return model_publication(options.folder, options.repo_id, options.dataset)
    if options.kind == "metric":
        return metric_publication(options.repo_id)
    given = parse_fields(options.task, options.fields)
    if options.min_length is not None:
        given["min_length"] = options.min_length
    configurations = {f"up_to_{length}": {"max_length": length, **given} for length in options.max_length}
    counts = (options.num_samples, options.num_test_samples, options.num_test_samples)
    num_samples = dict(zip(SPLITS, counts, strict=True))
    return dataset_publication(options.task, options.repo_id, configurations, num_samples, options.seed)


def run(options: argparse.Namespace) -> None:
    """Push what the options say, or show it without `--yes`."""
    publication = read_publication(options)
    if options.yes:
        place = {name: getattr(options, name) for name in ("private", "revision", "commit_message")}
        print(publish(publication, lambda files: print(describe_files(files)), **place))
    else:
        print(preview(publication))
        print(
            f"nothing was pushed: --yes pushes these files to the {publication.kind} {publication.repo_id} in one commit"
        )


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input and a refusal by the Hub end with one line and exit status 2."""
    options = parse_arguments(arguments)
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    with refusing_in_one_line():
        run(options)


if __name__ == "__main__":
    main()
