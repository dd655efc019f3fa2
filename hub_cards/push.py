"""Push a checkpoint, a generated dataset, the metric, the page or parallel decoding to the Hub, in one commit.

Without --yes nothing is pushed: the command shows the files and the card.

examples:
  python -m longhand.hub_cards.push model outputs/addition user/addition
  python -m longhand.hub_cards.push model outputs/addition user/addition --yes
  python -m longhand.hub_cards.push dataset addition user/sums --max_length 10 30 --num_samples 1000000 --yes
  python -m longhand.hub_cards.push metric user/exact_match_by_length --yes
  python -m longhand.hub_cards.push page user/longhand --yes
  python -m longhand.hub_cards.push decoding user/parallel-greedy --yes
  python -m longhand.hub_cards.push card outputs/addition             writes the folder's card, and pushes nothing

`python -m longhand.hub_cards.push KIND --help` describes the options of each kind.
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import inspect
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import yaml
from transformers.utils import logging

from longhand.data.splits import SPLITS
from longhand.data.tasks.plugins import add_plugin_option, load_plugin
from longhand.data.tasks.registry import TASKS, build_task
from longhand.hub_cards.checkpoints.load import lacks_code, locate, read_checkpoint, unpack
from longhand.hub_cards.commands import (
    command_of,
    holding,
    interruptible,
    refusing_in_one_line,
)
from longhand.hub_cards.options import NumbersAction, OneLineParser, numbers_of
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.dataset import (
    GeneratedDataset,
    dataset_publication,
    push_dataset,
    write_dataset,
    write_generated,
)
from longhand.hub_cards.publishing.publications import (
    Publication,
    decoding_publication,
    metric_publication,
    model_publication,
    page_publication,
    preview,
    publish,
    push_model,
    write_decoding,
)
from longhand.hub_cards.training.arguments import CHECKPOINTS_FOLDER

__all__ = ["push_dataset", "push_model", "write_dataset"]


def add_model(content) -> None:
    """Push a checkpoint's folder with a card for the repository.

    Training states are left out, and `best` if it adds nothing.

    examples:
      python -m longhand.hub_cards.push model outputs/addition user/addition          shows the files and the card
      python -m longhand.hub_cards.push model outputs/addition user/addition --yes    pushes them
      python -m longhand.hub_cards.push model outputs/addition user/addition --private --revision trial --yes
    """
    listed = f"{command_of('eval')} --list"
    described = f"folder of a checkpoint, as train.py writes it ({CHECKPOINTS_FOLDER}/ stays), or a name of {listed}"
    content.add_argument("folder", type=Path, help=described)
    content.add_argument("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, named on the card")
    described = "also push Python files that longhand did not write for this model, changed or additional; read them first"
    content.add_argument("--with_code", action="store_true", help=described)
    add_plugin_option(content)


def add_dataset(content) -> None:
    """Generate a dataset and push it as Parquet files.

    Each --max_length gives a configuration: 10 and 30 give up_to_10 and up_to_30.

    examples:
      python -m longhand.hub_cards.push dataset addition user/sums --max_length 10 30 --num_samples 1000000 --yes
      python -m longhand.hub_cards.push dataset addition user/sums --fields zero_padding=false order=plain
      python -m longhand.hub_cards.push dataset parity user/bits --min_length 20 --max_length 40
      python -m longhand.hub_cards.push dataset addition --max_length 10 --output outputs/sums    without the Hub

    Several machines share the work: each makes one shard, --shard 0, 1, ... of --num_shards, and pushes it to a branch where
    shards wait. The same command without --shard publishes them all in one commit, or names the shards that are missing.

      python -m longhand.hub_cards.push dataset addition user/sums --num_samples 100000000 --num_shards 2 --shard 0 --yes
      python -m longhand.hub_cards.push dataset addition user/sums --num_samples 100000000 --num_shards 2 --shard 1 --yes
      python -m longhand.hub_cards.push dataset addition user/sums --num_samples 100000000 --num_shards 2 --yes
    """
    add, counted = content.add_argument, {"type": int, "metavar": "COUNT"}
    sized = {"type": int, "metavar": "LENGTH"}
    add("task", metavar="TASK", help=f"one of {', '.join(TASKS)}")
    listed = {"action": NumbersAction, "type": numbers_of, "metavar": "LENGTH", "default": [30]}
    add("--max_length", **listed, help="longest operands in digits or the task's unit (default: 30)")
    add("--min_length", **sized, help="shortest operand (default: the shortest of which a split holds problems, mostly 1)")
    add("--num_samples", **counted, default=100_000, help="training examples of a configuration (default: %(default)s)")
    add("--num_test_samples", **counted, default=1000, help="examples of validation, and of test (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of all problems (default: %(default)s)")
    described = "fields of the task's format, such as zero_padding=false (default: the task's own)"
    add("--fields", nargs="+", default=[], metavar="NAME=VALUE", help=described)
    add("--position_ids", action="store_true", help="rows have position ids, as models take them")
    add(
        "--pair_map", action="store_true", help="rows have pair maps, as models take them: tokens times tokens numbers a row"
    )
    add("--coupling", help="rule of the position ids and pair maps (default: the task's own)")
    add("--num_proc", **counted, help="processes that make rows (default: 1)")
    add("--num_shards", **counted, help="shards that the files are divided into; without --shard, publish what was pushed")
    add("--shard", type=int, metavar="INDEX", help="make and push this shard alone, from 0 to num_shards - 1")
    add_output(content)


def add_metric(content) -> None:
    """Push the metric, exact match by length, as a Space from which evaluate.load takes it.

    The last part of the repository's name becomes the name of a Python file: use letters, digits, _ and -.

    examples:
      python -m longhand.hub_cards.push metric user/exact_match_by_length --yes
      then, in Python: evaluate.load("user/exact_match_by_length")
    """


def add_page(content) -> None:
    """Push the page of longhand.hub_cards.page as a static Space, which is free.

    examples:
      python -m longhand.hub_cards.push page user/longhand          shows the files and the card
      python -m longhand.hub_cards.push page user/longhand --yes    pushes them
      python -m longhand.hub_cards.push page user/mine --models outputs/addition outputs/subtraction --yes
    """
    described = "folders of runs, names of the zoo or Hub ids; the first one is shown first (default: most of the zoo)"
    content.add_argument("--models", nargs="+", default=[], metavar="MODEL", help=described)


def add_decoding(content) -> None:
    """Push parallel greedy decoding, which generate() of models with a window takes where longhand is not installed.

    It has a repository of its own, since transformers would put it in place of a model's own generate().

    examples:
      python -m longhand.hub_cards.push decoding user/parallel-greedy --yes
      then, in Python: model.generate(**inputs, custom_generate="user/parallel-greedy", trust_remote_code=True)
      python -m longhand.hub_cards.push decoding --output outputs/parallel-greedy      a folder is named in the same way
    """
    add_output(content)


def add_output(content) -> None:
    """Add the argument that writes a publication into a folder."""
    content.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write files and card into this new folder, and push nothing"
    )


def add_card(content) -> None:
    """Write the card of a checkpoint's folder, README.md, from the files in the folder. Nothing is pushed.

    Every number on the card is read from the configuration, the recipe, the results and the certificate.

    examples:
      python -m longhand.hub_cards.push card outputs/addition
      python -m longhand.hub_cards.push card outputs/addition --repo_id user/addition --dataset user/sums
    """
    add = content.add_argument
    add("folder", type=Path, help="folder of a checkpoint; its README.md is replaced")
    add("--repo_id", metavar="USER/NAME", help="repository that the card's code loads from (default: the folder)")
    add("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, for the metadata (default: none)")
    add_plugin_option(content)


def add_destination(destination, is_optional: bool) -> None:
    """Add the arguments that say where a push goes."""
    add = destination.add_argument
    words = {"nargs": "?"} if is_optional else {}
    add("repo_id", metavar="USER/NAME", help="repository on the Hub; made if it does not exist", **words)
    add("--yes", action="store_true", help="push; without --yes the command only shows what it would push")
    add("--private", action="store_true", help="make a new repository private and refuse a public one (default: public)")
    add("--revision", metavar="BRANCH", help="branch; made if it does not exist (default: main)")
    add("--commit_message", metavar="TEXT", help="title of the commit (default: Push and what is pushed)")


ARGUMENTS: dict[str, Callable[[Any], None]] = {
    "model": add_model,
    "dataset": add_dataset,
    "metric": add_metric,
    "page": add_page,
    "decoding": add_decoding,
    "card": add_card,
}
"""The function that adds the arguments of a kind of publication; its docstring is the help page."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line. `kind` is what to push, a key of `ARGUMENTS`."""
    style = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser("python -m longhand.hub_cards.push", description=__doc__, formatter_class=style)
    kinds = parser.add_subparsers(dest="kind", required=True, title="what to push", metavar="KIND")
    for name, add_content in ARGUMENTS.items():
        about = inspect.cleandoc(add_content.__doc__ or "")
        kind = kinds.add_parser(name, help=about.partition(".\n")[0], description=about, formatter_class=style)
        add_content(kind.add_argument_group("content"))
        if name != "card":
            add_destination(kind.add_argument_group("destination"), is_optional=name in WRITTEN)
    return parser


def generated_dataset(options: argparse.Namespace) -> GeneratedDataset:
    """The dataset that the options describe. Nothing is generated.

    Raises:
        ValueError: a name or a value is not legal, or an option cannot be given with the others.
    """
    if options.shard is not None and options.revision is not None:
        raise ValueError("revision cannot be given with shard: the command without shard publishes, give it there")
    given = {name: yaml.safe_load(value) for name, _, value in (word.partition("=") for word in options.fields)}
    build_task(options.task, **given)
    if options.min_length is not None:
        given["min_length"] = options.min_length
    given |= {name: getattr(options, name) for name in ("position_ids", "pair_map", "coupling") if getattr(options, name)}
    configurations = {f"up_to_{length}": {"max_length": length, **given} for length in options.max_length}
    counts = (options.num_samples, options.num_test_samples, options.num_test_samples)
    return GeneratedDataset(options.task, configurations, dict(zip(SPLITS, counts, strict=True)), options.seed)


def dataset_of(options: argparse.Namespace) -> Publication:
    """The dataset that the options describe, or one shard of it, or all its shards. Nothing is generated."""
    dataset = generated_dataset(options)
    return dataset_publication(dataset, options.repo_id, options.num_proc, options.num_shards, options.shard)


PUBLICATIONS: dict[str, Callable[[argparse.Namespace], Publication]] = {
    "model": lambda options: model_publication(
        read_checkpoint(options.folder), options.repo_id, options.dataset, options.with_code
    ),
    "dataset": dataset_of,
    "metric": lambda options: metric_publication(options.repo_id),
    "page": lambda options: page_publication(options.repo_id, options.models),
    "decoding": lambda options: decoding_publication(options.repo_id),
}
"""The publication that the options of a kind describe, checked. Nothing is generated, and the Hub is not asked."""


WRITTEN: dict[str, Callable[[argparse.Namespace], Path]] = {
    "dataset": lambda options: write_generated(generated_dataset(options), options.output, options.num_proc),
    "decoding": lambda options: write_decoding(options.output),
}
"""What writes the files of a kind into the folder `--output`, and returns it."""


def check_place(options: argparse.Namespace) -> None:
    """Raise ValueError unless the options of a kind of `WRITTEN` name a repository or a folder, and no option is idle."""
    if options.output is not None:
        others = ("repo_id", "yes", "private", "revision", "commit_message", "num_shards", "shard")
        if pushing := [name for name in others if getattr(options, name, None) not in (None, False)]:
            option = options.repo_id if pushing[0] == "repo_id" else f"--{pushing[0]}"
            raise ValueError(f"{option} is for a push, and --output pushes nothing: leave out one of them")
    elif options.repo_id is None:
        raise ValueError("give the repository USER/NAME to push to, or --output FOLDER to write to")


def run(options: argparse.Namespace) -> None:
    """Push the publication of the options; without `--yes` only show it. A checkpoint's folder is locked meanwhile."""
    for file in getattr(options, "plugin", []):
        load_plugin(file)
    with ExitStack() as held:
        if options.kind == "model" and lacks_code(folder := Path(locate(str(options.folder)))):
            options.folder = unpack(str(folder), Path(held.enter_context(tempfile.TemporaryDirectory())))
        if options.kind in ("model", "card"):
            held.enter_context(holding(options.folder, reading=True))
        if options.kind == "card":
            print(f"wrote {write_card(read_checkpoint(options.folder), options.repo_id, options.dataset)}")
            return
        if options.kind in WRITTEN:
            check_place(options)
            if options.output is not None:
                print(f"wrote {WRITTEN[options.kind](options)}")
                return
        publication = PUBLICATIONS[options.kind](options)
        if options.yes:
            place = {name: getattr(options, name) for name in ("private", "revision", "commit_message")}
            print(publish(publication, **place))
            return
        print(preview(publication))
        print(f"nothing was pushed: --yes pushes these files to {options.repo_id} in one commit, and removes files of an")
        print("earlier push that are not listed here")


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input and a refusal by the Hub end with one line and exit status 2."""
    logging.disable_progress_bar()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    # The client warns of a commit that would be empty. The command says so itself.
    huggingface_hub.logging.set_verbosity_error()
    with interruptible("run the command again"), refusing_in_one_line(OSError, yaml.YAMLError):
        run(make_parser().parse_args(arguments))


if __name__ == "__main__":
    main()
