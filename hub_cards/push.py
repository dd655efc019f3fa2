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
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import datasets
import huggingface_hub
import yaml
from transformers.utils import logging

from longhand.data.splits import SPLITS
from longhand.data.tasks.plugins import PLUGINS_MEANING, load_plugin
from longhand.data.tasks.registry import TASKS, build_task
from longhand.hub_cards.checkpoints.load import OtherModel, lacks_code, locate, read_checkpoint, unpack
from longhand.hub_cards.commands import (
    command_of,
    holding,
    interruptible,
    refusing_in_one_line,
    shell_word,
)
from longhand.hub_cards.options import OneLineParser, add_options, check, option
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

CONTENT, DESTINATION = "content", "destination"
"""Titles of the groups of options in the help."""

_destination = partial(option, group=DESTINATION)
_repository = partial(_destination, "repository on the Hub; made if it does not exist", metavar="USER/NAME", positional=True)


@dataclass(frozen=True, kw_only=True)
class PushCommand:
    """Where a publication goes. The docstring of each kind is its help page."""

    repo_id: str = _repository()
    yes: bool = _destination("push; without --yes the command only shows what it would push", False)
    private: bool = _destination("make a new repository private and refuse a public one (default: public)", False)
    revision: str | None = _destination("branch; made if it does not exist (default: main)", None, metavar="BRANCH")
    commit_message: str | None = _destination("title of the commit (default: Push and what is pushed)", None, metavar="TEXT")

    def publication(self, repo_id: str) -> Publication:
        """The publication that the options describe, checked. Nothing is generated, and the Hub is not asked."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class WrittenCommand(PushCommand):
    """Where a publication goes that a folder may take in place of the Hub."""

    repo_id: str | None = _repository(None)  # type: ignore[assignment]
    output: Path | None = option(
        "write files and card into this new folder, and push nothing",
        None,
        metavar="FOLDER",
        purpose="writing a folder, and pushes nothing",
        excludes=("repo_id", "yes", "private", "revision", "commit_message"),
    )

    def write(self, folder: Path) -> Path:
        """Write the files into a folder, and return it."""
        raise NotImplementedError


@dataclass(frozen=True)
class ModelCommand(PushCommand):
    """Push a checkpoint's folder with a card for the repository.

    Training states are left out, and `best` if it adds nothing.

    examples:
      python -m longhand.hub_cards.push model outputs/addition user/addition          shows the files and the card
      python -m longhand.hub_cards.push model outputs/addition user/addition --yes    pushes them
      python -m longhand.hub_cards.push model outputs/addition user/addition --private --revision trial --yes
    """

    folder: Path = option(
        f"folder of a checkpoint, as train.py writes it ({CHECKPOINTS_FOLDER}/ stays), or a name of "
        f"{command_of('eval')} --list",
        positional=True,
    )
    dataset: str | None = option("dataset of its task on the Hub, named on the card", None, metavar="USER/NAME")
    with_code: bool = option(
        "also push Python files that longhand did not write for this model, changed or additional; read them first", False
    )
    plugin: list[Path] = option(PLUGINS_MEANING, [], metavar="FILE")

    def publication(self, repo_id: str) -> Publication:
        return model_publication(read_checkpoint(self.folder), repo_id, self.dataset, self.with_code)


@dataclass(frozen=True)
class DatasetCommand(WrittenCommand):
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

    task: str = option(f"one of {', '.join(TASKS)}", metavar="TASK", positional=True)
    max_length: list[int] = option("longest operands in digits or the task's unit (default: 30)", [30], metavar="LENGTH")
    min_length: int | None = option(
        "shortest operand (default: the shortest of which a split holds problems, mostly 1)", None, metavar="LENGTH"
    )
    num_samples: int = option("training examples of a configuration (default: %(default)s)", 100_000, metavar="COUNT")
    num_test_samples: int = option("examples of validation, and of test (default: %(default)s)", 1000, metavar="COUNT")
    seed: int = option("seed of all problems (default: %(default)s)", 0)
    fields: list[str] = option(
        "fields of the task's format, such as zero_padding=false (default: the task's own)", [], metavar="NAME=VALUE"
    )
    position_ids: bool = option("rows have position ids, as models take them", False)
    pair_map: bool = option("rows have pair maps, as models take them: tokens times tokens numbers a row", False)
    coupling: str | None = option("rule of the position ids and pair maps (default: the task's own)", None)
    num_proc: int | None = option("processes that make rows (default: 1)", None, metavar="COUNT")
    num_shards: int | None = option(
        "shards that the files are divided into; without --shard, publish what was pushed",
        None,
        metavar="COUNT",
        purpose="a push of several machines",
        excludes=("output",),
    )
    shard: int | None = option(
        "make and push this shard alone, from 0 to num_shards - 1",
        None,
        metavar="INDEX",
        purpose="a shard that waits for the others until the command without --shard publishes them",
        needs=("num_shards",),
        excludes=("output", "revision"),
    )

    def generated(self) -> GeneratedDataset:
        """The dataset that the options describe. Nothing is generated.

        Raises:
            ValueError: a name or a value is not legal.
        """
        given = {}
        for word in self.fields:
            name, is_assigned, value = word.partition("=")
            if not is_assigned or name in given:
                fault = "is given twice" if is_assigned else "has no value"
                raise ValueError(f"--fields takes each field once, as NAME=VALUE, and {name!r} {fault}: got {self.fields}")
            given[name] = yaml.safe_load(value)
        build_task(self.task, **given)
        if self.min_length is not None:
            given["min_length"] = self.min_length
        given |= {name: getattr(self, name) for name in ("position_ids", "pair_map", "coupling") if getattr(self, name)}
        configurations = {f"up_to_{length}": {"max_length": length, **given} for length in self.max_length}
        counts = (self.num_samples, self.num_test_samples, self.num_test_samples)
        return GeneratedDataset(self.task, configurations, dict(zip(SPLITS, counts, strict=True)), self.seed)

    def publication(self, repo_id: str) -> Publication:
        """The dataset, or one shard of it, or all its shards."""
        return dataset_publication(self.generated(), repo_id, self.num_proc, self.num_shards, self.shard)

    def write(self, folder: Path) -> Path:
        return write_generated(self.generated(), folder, self.num_proc)


@dataclass(frozen=True)
class MetricCommand(PushCommand):
    """Push the metric, exact match by length, as a Space from which evaluate.load takes it.

    The last part of the repository's name becomes the name of a Python file: use letters, digits, _ and -.

    examples:
      python -m longhand.hub_cards.push metric user/exact_match_by_length --yes
      then, in Python: evaluate.load("user/exact_match_by_length")
    """

    def publication(self, repo_id: str) -> Publication:
        return metric_publication(repo_id)


@dataclass(frozen=True)
class PageCommand(PushCommand):
    """Push the page of longhand.hub_cards.page as a static Space, which is free.

    examples:
      python -m longhand.hub_cards.push page user/longhand          shows the files and the card
      python -m longhand.hub_cards.push page user/longhand --yes    pushes them
      python -m longhand.hub_cards.push page user/mine --models outputs/addition outputs/subtraction --yes
    """

    models: list[str] = option(
        "folders of runs, names of the zoo or Hub ids; the first one is shown first (default: most of the zoo)",
        [],
        metavar="MODEL",
    )

    def publication(self, repo_id: str) -> Publication:
        return page_publication(repo_id, self.models)


@dataclass(frozen=True)
class DecodingCommand(WrittenCommand):
    """Push parallel greedy decoding, which generate() of models with a window takes where longhand is not installed.

    It has a repository of its own, since transformers would put it in place of a model's own generate().

    examples:
      python -m longhand.hub_cards.push decoding user/parallel-greedy --yes
      then, in Python: model.generate(**inputs, custom_generate="user/parallel-greedy", trust_remote_code=True)
      python -m longhand.hub_cards.push decoding --output outputs/parallel-greedy      a folder is named in the same way
    """

    def publication(self, repo_id: str) -> Publication:
        return decoding_publication(repo_id)

    def write(self, folder: Path) -> Path:
        return write_decoding(folder)


@dataclass(frozen=True)
class CardCommand:
    """Write the card of a checkpoint's folder, README.md, from the files in the folder. Nothing is pushed.

    Every number on the card is read from the configuration, the recipe, the results and the certificate.

    examples:
      python -m longhand.hub_cards.push card outputs/addition
      python -m longhand.hub_cards.push card outputs/addition --repo_id user/addition --dataset user/sums
    """

    folder: Path = option("folder of a checkpoint; its README.md is replaced", positional=True)
    repo_id: str | None = option(
        "repository that the card's code loads from (default: the folder)", None, metavar="USER/NAME"
    )
    dataset: str | None = option(
        "dataset of its task on the Hub, for the metadata (default: none)", None, metavar="USER/NAME"
    )
    plugin: list[Path] = option(PLUGINS_MEANING, [], metavar="FILE")


KINDS: dict[str, type[PushCommand] | type[CardCommand]] = {
    "model": ModelCommand,
    "dataset": DatasetCommand,
    "metric": MetricCommand,
    "page": PageCommand,
    "decoding": DecodingCommand,
    "card": CardCommand,
}
"""The options of each kind of publication."""


def make_parser() -> OneLineParser:
    """The parser of the command line. `kind` is what to push, a key of `KINDS`."""
    style = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser("python -m longhand.hub_cards.push", description=__doc__, formatter_class=style)
    commands = parser.add_subparsers(dest="kind", required=True, title="what to push", metavar="KIND")
    for name, kind in KINDS.items():
        about = inspect.cleandoc(kind.__doc__ or "")
        command = commands.add_parser(name, help=about.partition(".\n")[0], description=about, formatter_class=style)
        add_options(command, kind, CONTENT)
    return parser


def read_options(arguments: list[str] | None) -> PushCommand | CardCommand:
    """Return the options of a command line; None is that of the process.

    Raises:
        ValueError: as `options.parse`.
    """
    values = vars(make_parser().parse_args(arguments))
    options = KINDS[values.pop("kind")](**values)
    check(options)
    return options


def run(options: PushCommand | CardCommand) -> None:
    """Push the publication of the options; without `--yes` only show it. A checkpoint's folder is locked meanwhile."""
    with ExitStack() as held:
        if isinstance(options, ModelCommand | CardCommand):
            for file in options.plugin:
                load_plugin(file)
        if isinstance(options, ModelCommand) and lacks_code(folder := Path(locate(str(options.folder)))):
            unpacked = unpack(str(folder), Path(held.enter_context(tempfile.TemporaryDirectory())))
            options = replace(options, folder=unpacked)
        if isinstance(options, ModelCommand | CardCommand):
            held.enter_context(holding(options.folder, reading=True))
        if isinstance(options, CardCommand):
            print(f"wrote {write_card(read_checkpoint(options.folder), options.repo_id, options.dataset)}")
            return
        if isinstance(options, WrittenCommand) and options.output is not None:
            print(f"wrote {options.write(options.output)}")
            return
        if options.repo_id is None:
            raise ValueError("give the repository USER/NAME to push to, or --output FOLDER to write to")
        publication = options.publication(options.repo_id)
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
        try:
            run(read_options(arguments))
        except OtherModel as error:
            upload = f"hf upload USER/NAME {shell_word(error.pretrained)}"
            raise ValueError(f"{error}; {upload} pushes its folder as it is") from error


if __name__ == "__main__":
    main()
