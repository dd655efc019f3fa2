"""Evaluate checkpoints: accuracy by length as a table, a results file and a plot; or one question; or a proof.

The story, from top to bottom: options, loading, then one of three acts: answer a question, prove, or measure.
"""

# Used by: hub_cards/research, hub_cards/research/gpu. Changed freely.

# First of all: imports take seconds, and torch reads once how threads wait.
from longhand.hub_cards.starting import all_is_imported, use_helpful_threads

# isort: split
import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, count, product
from pathlib import Path
from typing import Literal

import torch
from transformers.utils import logging

from longhand.data.proofs.check import CannotCertify, check_in_precision, coverings
from longhand.data.tasks.plugins import PLUGINS_MEANING, load_plugin
from longhand.data.tasks.registry import build_task, find_task
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.certificate_file import certify_checkpoint, check_certifiable, own_folder
from longhand.hub_cards.checkpoints.checkpoint import (
    CARD_FILE,
    CERTIFICATE_FILE,
    Checkpoint,
    checkpoint_name,
    file_name,
    is_certified,
)
from longhand.hub_cards.checkpoints.load import (
    OtherModel,
    OtherWithStructure,
    describe_zoo,
    is_in_zoo,
    load_checkpoint,
    locate,
)
from longhand.hub_cards.checkpoints.solver import answers_of, say_unproved
from longhand.hub_cards.commands import command_of, holding, interruptible, refusing_in_one_line, with_commands
from longhand.hub_cards.options import MOST_NUMBERS, numbers_of, option, parse, parser_of
from longhand.hub_cards.recipes import RECIPE_FILE
from longhand.hub_cards.result_rows import (
    CERTIFICATES_FILE,
    LARGEST,
    MIXED,
    RESULTS_FILE,
    Row,
    hardware,
    read_results,
    write_results,
)

all_is_imported()

EXAMPLES = """examples
  python eval.py addition --ask "653+49"
  python eval.py outputs/addition --lengths 10:200:10
  python eval.py outputs/addition-absolute --lengths 10,30 --worst 20
  python eval.py user/name --ask "653+49"
  python eval.py outputs/addition --certify
  python eval.py outputs/addition --certify --dtype bfloat16      what this device computes there; no certificate
  python eval.py outputs/addition-absolute --certify --lengths 1:30
  python eval.py outputs/seed-0 outputs/seed-1 outputs/seed-2 --lengths 30,100      their medians
  python eval.py addition addition-tiny outputs/mine --lengths 30,100               different models, compared by name
  python eval.py outputs/maximum --plugin my_task.py --ask "35>17"
  python eval.py Qwen/Qwen3-0.6B --lengths 1:20    prints how lm-evaluation-harness measures a model of others
  python eval.py Qwen/Qwen3-0.6B --lengths 1:20 --worst 30      searches for a sum of each size that it gets wrong
"""

LENGTHS = "10:100:10"
MOST_NAMES = 3
"""Models whose names the default folder of an evaluation has."""

ACT, WHERE, WHAT = "what to do, if not to measure accuracy", "what to evaluate on", "what to measure"
"""Groups of options. Those of the last two are for an evaluation alone, not for a question or a certificate."""

_of_lengths = partial(option, group=ACT, purpose="proofs of single lengths", needs=("certify", "lengths"))
_measuring = partial(option, purpose="measuring accuracy", excludes=("certify", "ask"))


@dataclass(frozen=True)
class EvaluationOptions:
    """The command line, parsed once. Help says what the options mean."""

    checkpoints: list[str] = option(
        "a folder, a Hub id, or a name of --list; several are compared by name, and those whose recipes differ in their "
        "seeds alone by their median",
        metavar="MODEL",
        positional=True,
    )
    ask: str | None = option(
        'print the answer to a question such as "653+49"; - reads a question a line from standard input, and writes an '
        "answer a line; with several models, each line begins with the model's name",
        None,
        group=ACT,
        metavar="QUESTION",
    )
    certify: bool = option(
        "check all neighbourhoods: exit status 0 only if the model is proved exact for every length, or, with --lengths and "
        "without a window, for each of these",
        False,
        group=ACT,
        purpose="a proof",
        excludes=("ask",),
    )
    budget: float | None = _of_lengths(
        "with --certify --lengths: seconds for each length, which then stays open (default: no limit)",
        None,
        metavar="SECONDS",
        above=0,
    )
    jobs: int = _of_lengths(
        "with --certify --lengths: processes that prove lengths at the same time (default: %(default)s)",
        1,
        metavar="PROCESSES",
        least=1,
    )
    trust: bool = _of_lengths(
        "with --certify --lengths: take over what certificate.json says of lengths, so that a run that was stopped goes on; "
        "only of what you proved yourself",
        False,
    )
    # Precisions in which neighbourhoods are checked, and rounding has no bound that would prove anything.
    dtype: Literal["bfloat16", "float16"] | None = option(
        "with --certify: check all neighbourhoods in this precision on this device, which gives no certificate",
        None,
        group=ACT,
        purpose="a check of all neighbourhoods",
        needs=("certify",),
        excludes=("lengths",),
    )
    lengths: list[int] | None = option(
        f"digits, as START:STOP:STEP or a list (default: {LENGTHS}); with --certify, lengths to prove one by one",
        None,
        group=WHERE,
        purpose="measuring accuracy",
        excludes=("ask",),
        least=1,
    )
    # A class of sums may be 0. `operand_lengths` of other tasks refuses 0.
    lengths_b: list[int] | None = _measuring(  # noqa: RUF009
        "digits of the second operand, or class of sums: evaluate all pairs and plot a heatmap", None, group=WHERE
    )
    num_samples: int = _measuring("problems of each length (default: %(default)s)", 200, group=WHERE, least=1)
    seed: int = _measuring("seed of the test problems (default: %(default)s)", 0, group=WHERE, least=0, most=LARGEST)
    start: int = option(
        "smallest position id of every problem, as paper 1 fixes it in evaluation (default: 1, as models derive ids)",
        1,
        group=WHERE,
        metavar="ID",
        least=1,
        most=LARGEST,
        purpose="measuring accuracy with other ids than models derive",
        excludes=("certify", "ask", "output_places", "attentions", "mixed", "worst"),
    )
    sampling: str | None = _measuring(
        "how test problems are drawn, for a task that has the choice, such as cascades", None, group=WHERE
    )
    decode: Literal["teacher_forced", "generate", "parallel"] = _measuring(
        "one forward pass, token by token, or in a few passes; all count the same event (default: %(default)s)",
        "teacher_forced",
        group=WHAT,
    )
    mixed: bool = _measuring(
        "also ask problems whose operands have any sizes up to each length, as longhand.load asks them", False, group=WHAT
    )
    worst: float | None = _measuring(
        "also search each size for this many seconds (default %(const)s) for the worst problem: one that the model gets "
        "wrong, or the one with the lowest lead",
        None,
        group=WHAT,
        metavar="SECONDS",
        bare=10.0,
        above=0,
    )
    output_places: bool = _measuring("also measure the accuracy of every digit of the answer", False, group=WHAT)
    attentions: bool = _measuring(
        "also plot attention at the first length, and say which ids each head looks at", False, group=WHAT
    )
    position_maps: bool = _measuring(
        "also draw an encoder's pairwise vectors, and measure how dispersed they are", False, group=WHAT
    )
    output_dir: Path | None = option(
        "folder to write to (default: outputs/evaluation/NAME, or NAME-2 ... beside results of another evaluation)",
        None,
        group="output",
        purpose="results",
        excludes=("ask",),
    )
    revision: str | None = option("branch, tag or commit on the Hub (default: main)", None, group="checkpoints")
    task: str | None = option("task of a checkpoint that names none, or one of several tasks", None, group="checkpoints")
    plugin: list[Path] = option(PLUGINS_MEANING, [], group="checkpoints", metavar="FILE")
    trust_remote_code: bool = option("run the plugins beside the checkpoints; read them first", False, group="checkpoints")

    @property
    def measured_lengths(self) -> list[int]:
        """The lengths to evaluate, if accuracy is measured."""
        return self.lengths or numbers_of(LENGTHS)

    @property
    def sizes(self) -> list[tuple[int, ...]]:
        """The sizes to evaluate: (length,), or (length, second length) for a heatmap."""
        if self.lengths_b is None:
            return [(length,) for length in self.measured_lengths]
        return list(product(self.measured_lengths, self.lengths_b))

    @property
    def results_file(self) -> str:
        """The name of the file that results are written to."""
        return CERTIFICATES_FILE if self.certify else RESULTS_FILE

    def given_to_measure(self, *used: str) -> list[str]:
        """The names of options that say how to measure and were given, but for those that are used."""
        measuring = [
            option for option in fields(self) if option.metadata["group"] in (WHERE, WHAT) and option.name not in used
        ]
        return [option.name for option in measuring if getattr(self, option.name) != option.default]


class ListZoo(argparse.Action):
    """List the zoo and end, whatever else is given."""

    def __call__(self, parser, *_):
        print(describe_zoo())
        parser.exit()


def parse_arguments(arguments: list[str] | None) -> EvaluationOptions:
    """Read the command line; None reads that of the process.

    Raises:
        ValueError: as `options.parse`.
    """
    parser = parser_of(
        EvaluationOptions,
        prog=command_of("eval"),
        description=__doc__.splitlines()[0],
        epilog=with_commands(EXAMPLES),
        usage=f"{command_of('eval')} MODEL [MODEL ...] [OPTIONS]",
    )
    described = "list the certified checkpoints that come with the package"
    parser.add_argument("--list", action=ListZoo, nargs=0, default=argparse.SUPPRESS, help=described)
    return parse(parser, EvaluationOptions, join_question(sys.argv[1:] if arguments is None else arguments))


def join_question(words: Sequence[str]) -> list[str]:
    """Return a command line with the value of `--ask` behind a `=`: a question such as -1+2 is no option."""
    joined = list(words)
    for place in [place for place, word in enumerate(words[:-1]) if word == "--ask"]:
        if re.match(r"-[^-]", words[place + 1]):
            joined[place : place + 2] = [f"--ask={words[place + 1]}"]
            break
    return joined


def check_options(options: EvaluationOptions) -> None:
    """Raise ValueError for options that are not legal for these models, before anything is loaded."""
    if len(options.sizes) > MOST_NUMBERS:
        raise ValueError(f"--lengths x --lengths_b must be {MOST_NUMBERS:,} pairs at most, got {len(options.sizes):,}")
    if options.lengths_b is not None and len(options.checkpoints) > 1:
        raise ValueError(f"--lengths_b draws one heatmap: give one checkpoint, got {len(options.checkpoints)}")
    names = [checkpoint_name(source) for source in options.checkpoints]
    if options.ask is None and len(set(names)) < len(names):
        raise ValueError(f"several checkpoints have one name, so results could not be told apart: {', '.join(names)}")
    folder = output_folder(options)
    if options.ask is None and any((folder / name).exists() for name in ("config.json", RECIPE_FILE)):
        raise ValueError(f"--output_dir {folder} holds a checkpoint with results of its own: choose another folder")


def output_folder(options: EvaluationOptions) -> Path:
    """Return the folder of an evaluation, where there is no other one yet; see `free_folder`."""
    if options.output_dir:
        return options.output_dir
    names = [file_name(checkpoint_name(source)) for source in options.checkpoints]
    shown = names if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES}-more"]
    return Path("outputs", "evaluation", "+".join(shown))


def free_folder(options: EvaluationOptions, checkpoints: Sequence[Checkpoint]) -> Path:
    """Return where results go: the first folder in which there are none of another evaluation.

    The folders are the one that is asked for, or else NAME, NAME-2 ... The same evaluation again replaces its results.

    Raises:
        ValueError: the folder that is asked for has results of another evaluation.
    """
    first = output_folder(options)
    others = () if options.output_dir else (first.with_name(f"{first.name}-{number}") for number in count(2))
    for folder in chain([first], others):
        if not is_of_other(folder, options, checkpoints):
            return folder
    raise ValueError(f"--output_dir {first} has results of another evaluation, which would be lost: choose another folder")


def certificate_place(checkpoint: Checkpoint, folder: Path, is_single: bool) -> Path:
    """Return the file of a certificate: in the checkpoint's own folder, or beside the results if it has none."""
    if (beside_model := own_folder(checkpoint)) is not None:
        return beside_model / CERTIFICATE_FILE
    return folder / (CERTIFICATE_FILE if is_single else f"certificate-{file_name(checkpoint.name)}.json")


def is_of_other(folder: Path, options: EvaluationOptions, checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether a folder has results of other models, sizes or options; a file that cannot be read is of another one."""
    file = folder / options.results_file
    if not file.is_file():
        return False
    try:
        rows = read_results(file)
    except ValueError:
        return True
    expected = {checkpoint.name: checkpoint.weights for checkpoint in checkpoints}
    if {row.get("model"): row.get("weights") for row in rows} != expected:
        return True
    if options.certify:
        return False
    tasks = [part.task for checkpoint in checkpoints for part in checkpoint.by_part()]
    sizes = {task.size(task.operand_lengths(*size)) for task in tasks for size in options.sizes}
    how = (options.num_samples, options.seed, options.decode, options.worst is not None, options.start, options.mixed)
    before = {
        (row["num_samples"], row["seed"], row["decode"], "worst_tried" in row, row.get("start", 1), MIXED in row)
        for row in rows
    }
    same_sizes = {(row["length"], row["length_b"]) for row in rows} == sizes
    # Rows do not say how their problems were drawn, where a task has the choice.
    return before != {how} or not same_sizes or options.sampling is not None


def counted_once(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints without those that have the weights, and the task, of one before; say which these are."""
    kept: dict[tuple[str, str], Checkpoint] = {}
    for checkpoint in checkpoints:
        first = kept.setdefault((checkpoint.weights, checkpoint.task.name), checkpoint)
        if first is not checkpoint:
            print(f"{checkpoint.name} has the weights of {first.name}: it counts once")
    return list(kept.values())


def load_checkpoints(options: EvaluationOptions) -> list[Checkpoint]:
    """Load all checkpoints, and check what is asked of them.

    Raises:
        OtherModel: a model of others is to be searched for its worst problem, or one with structure is asked.
        ValueError: as `load_checkpoint`; of a model of others, the command that measures it.
    """
    for file in options.plugin:
        load_plugin(file)
    checkpoints = []
    for source in options.checkpoints:
        try:
            checkpoint = load_checkpoint(source, options.revision, options.task, options.trust_remote_code)
            use_helpful_threads(checkpoint.model)
        except OtherWithStructure as error:
            if options.ask is not None:
                raise
            raise ValueError(f"{error}: give --ask") from error
        except OtherModel as error:
            if options.worst is not None and options.ask is None:
                raise
            raise measured_elsewhere(error, options) from error
        if checkpoint.fault and not options.certify:
            print(f"warning: {checkpoint.fault}", file=sys.stderr)
        if options.sampling is not None:
            described = checkpoint.task.describe() | {"sampling": options.sampling}
            checkpoint = replace(checkpoint, task=build_task(str(described.pop("task")), **described))
        if options.position_maps or options.attentions:
            from longhand.hub_cards.evaluation.measure import check_attentions, check_position_maps

            if options.position_maps:
                check_position_maps(checkpoint)
            if options.attentions:
                check_attentions(checkpoint)
        checkpoints.append(checkpoint)
    return checkpoints


def measured_elsewhere(error: OtherModel, options: EvaluationOptions) -> ValueError:
    """Return the refusal of a model of others, with the command that measures it."""
    from longhand.hub_cards.harness import command_for

    how = {name: getattr(options, name) for name in ("task", "revision", "num_samples", "seed")}
    command = command_for(error.pretrained, options.measured_lengths, **how)
    return ValueError(f"{error}; lm-evaluation-harness measures it on the same problems: {command}")


def search_other(source: str, options: EvaluationOptions) -> None:
    """Print the worst problem of each size that a search finds for a language model of others.

    Raises:
        ValueError: an option is not used here, or something is missing; the message names it.
    """
    from longhand.hub_cards.evaluation.other_models import worst_texts

    assert options.worst is not None, "else the command that measures the model is shown"
    ignored = options.given_to_measure("lengths", "worst", "seed")
    if ignored or options.output_dir or len(options.checkpoints) > 1:
        raise ValueError(
            f"{source} is a model of others, of which --worst prints the worst problems alone: leave out "
            + (f"--{ignored[0]}" if ignored else "--output_dir" if options.output_dir else "the other models")
        )
    task = find_task(options.task or "addition")()
    how = {"revision": options.revision, "trust_remote_code": options.trust_remote_code}
    for line in worst_texts(source, task, options.measured_lengths, options.worst, options.seed, **how):
        print(line)


def read_questions(options: EvaluationOptions) -> list[str]:
    """Return what is asked: the question given, or the lines of standard input."""
    return sys.stdin.read().strip().splitlines() if options.ask == "-" else [str(options.ask)]


def ask_in_sentences(refused: OtherWithStructure, options: EvaluationOptions) -> None:
    """Print the answers of a language model of others with structure, an answer a line.

    Raises:
        ValueError: a task is given, it is asked beside other models, or it refuses a question; nothing was printed then.
    """
    from longhand.hub_cards.checkpoints.language_model import load_language_model

    if len(options.checkpoints) > 1:
        raise ValueError(f"{refused.pretrained} is a language model with structure: ask it alone")
    model = load_language_model(refused.pretrained, options.revision, options.trust_remote_code, options.task)
    for answer in model.answers(read_questions(options)):
        print(answer)


def ask(checkpoints: list[Checkpoint], questions: list[str]) -> None:
    """Print the answers of each checkpoint, an answer a line, behind the checkpoint's name if there are several.

    Raises:
        ValueError: see `answers_of`; nothing was printed of that checkpoint.
    """
    for checkpoint in checkpoints:
        say_unproved(checkpoint)
        for answer in answers_of(checkpoint, questions):
            print(f"{checkpoint.name}\t{answer}" if len(checkpoints) > 1 else answer)
        if is_certified(checkpoint.certificate):
            try:
                check_certifiable(checkpoint)
            except ValueError as error:
                print(f"warning: its certificate does not hold: {error}", file=sys.stderr)
            else:
                machine = ", for the machine that was found" if checkpoint.task.learned else ""
                print(f"its certificate says: exact{machine} at every length; --certify checks that", file=sys.stderr)


def certify(checkpoints: list[Checkpoint], options: EvaluationOptions, folder: Path) -> None:
    """Print and write what is proved. Exit with status 1 if that is not all that was asked.

    Raises:
        ValueError: no certificate is possible for a checkpoint. Nothing is proved or written then.
    """
    act = certify_every_length if options.lengths is None else certify_single_lengths
    rows = act(checkpoints, options, folder)
    write_results(rows, folder / options.results_file)
    if not all(row["certified"] or is_proved(row) for row in rows):
        raise SystemExit(1)


def certify_every_length(checkpoints: list[Checkpoint], options: EvaluationOptions, folder: Path) -> list[Row]:
    """Check all neighbourhoods of each checkpoint, print what that proves and write a certificate; return their rows.

    Raises:
        ValueError: as `certify`.
    """
    for checkpoint in checkpoints:
        try:
            coverings(checkpoint.model, checkpoint.task)
        except CannotCertify as error:
            # Without a window, the certificate in the folder may be one of single lengths.
            advice = by_length(checkpoint)
            removed = "" if advice else remove_certificate(own_folder(checkpoint))
            raise ValueError(f"{checkpoint.name}: {error}{removed}{advice}") from error
        check_certifiable(checkpoint)
    say_earlier(folder / options.results_file)
    rows, is_single = [], len(checkpoints) == 1
    for checkpoint in checkpoints:
        beside_model, file = own_folder(checkpoint), certificate_place(checkpoint, folder, is_single)
        rows.append(certify_checkpoint(checkpoint, file, beside_model, show_proof=is_single))
        if not rows[-1]["certified"] and (stale := stale_card(beside_model)):
            print(f"warning{stale}", file=sys.stderr)
    return rows


def certify_single_lengths(checkpoints: list[Checkpoint], options: EvaluationOptions, folder: Path) -> list[Row]:
    """Prove lengths of each checkpoint one by one, print and write what is proved; return a row for each checkpoint.

    Raises:
        ValueError: as `certify`.
    """
    from longhand.data.batches import check_lengths
    from longhand.data.proofs.lengths.up_to_length import LengthProver
    from longhand.hub_cards.checkpoints.length_certificate import certify_lengths

    asked, rows = options.lengths or [], []
    for checkpoint in checkpoints:
        try:
            LengthProver(checkpoint.model, checkpoint.task)
        except CannotCertify as error:
            raise ValueError(f"{checkpoint.name}: {error}") from error
        check_certifiable(checkpoint)
        check_lengths(checkpoint.model, checkpoint.task, map(checkpoint.task.operand_lengths, asked))
    say_earlier(folder / options.results_file)
    how = (options.budget, options.jobs, options.trust)
    for checkpoint in checkpoints:
        file = certificate_place(checkpoint, folder, len(checkpoints) == 1)
        rows.append(certify_lengths(checkpoint, asked, file, own_folder(checkpoint), *how))
    return rows


def check_precision(checkpoints: list[Checkpoint], dtype: str) -> None:
    """Print what a check in a lower precision finds on this device; no file is written. Exit with status 1 if it is wrong.

    Raises:
        ValueError: as `check_in_precision`.
    """
    checks = []
    for checkpoint in checkpoints:
        check = check_in_precision(checkpoint.model, checkpoint.task, getattr(torch, dtype))
        checks.append(check)
        device = hardware(checkpoint.model.device)
        print(
            f"{checkpoint.name}: in {dtype} on this device ({device}), {check.wrong:,} of {check.predictions:,} predictions "
            f"in all neighbourhoods are wrong, and the smallest lead is {check.margin:.4g}. This is no certificate: sums in "
            "another order, as in other batches or on other devices, may be rounded otherwise, and nothing bounds that."
        )
        for failure in check.failures:
            print(f"  wrong: {failure.problem}  {failure.right!r} is right, and {failure.instead!r} leads")
    if any(check.wrong for check in checks):
        raise SystemExit(1)


def is_proved(row: Row) -> bool:
    """Whether a row of certificates.jsonl is of single lengths, each of which is proved."""
    return "lengths" in row and all(verdict["verdict"] == "proved" for verdict in row["lengths"])


def by_length(checkpoint: Checkpoint) -> str:
    """Return that lengths of a checkpoint can be proved one by one, if that is so."""
    from longhand.data.proofs.lengths.up_to_length import LengthProver

    with suppress(CannotCertify):
        LengthProver(checkpoint.model, checkpoint.task)
        return "; --lengths 1:30 proves single lengths"
    return ""


def remove_certificate(folder: Path | None) -> str:
    """Remove the certificate of a checkpoint that cannot have one, if there is one; return what to say of it."""
    if folder is None or not (folder / CERTIFICATE_FILE).is_file():
        return ""
    (folder / CERTIFICATE_FILE).unlink()
    return f"; {folder / CERTIFICATE_FILE} no longer applies and was deleted{stale_card(folder)}"


def stale_card(folder: Path | None) -> str:
    """Return what to say if the card in a folder calls a model certified that is not; nothing if it does not."""
    if folder is None or not (card := folder / CARD_FILE).is_file() or b"**Certified.**" not in card.read_bytes():
        return ""
    return f": {card} still says Certified, python -m longhand.hub_cards.push card {folder} writes it anew"


def evaluate(checkpoints: list[Checkpoint], options: EvaluationOptions, folder: Path) -> None:
    """Measure accuracy, and what else is asked for.

    Raises:
        ValueError: the checkpoints are of several tasks, cannot take the lengths or cannot decode so. Nothing is measured or
            written then.
    """
    from longhand.hub_cards.evaluation.measure import (
        evaluate_lengths,
        report,
        seed_groups,
        write_attention,
        write_places,
        write_position_maps,
    )

    lengths = operand_lengths(checkpoints, options)
    tested = [part for checkpoint in checkpoints for part in checkpoint.by_part()]
    say_earlier(folder / options.results_file)
    rows: list[Row] = []
    num_samples, seed = options.num_samples, options.seed
    for checkpoint in tested:
        rows += evaluate_lengths(
            checkpoint,
            lengths[checkpoint.task],
            num_samples=num_samples,
            seed=seed,
            decode=options.decode,
            worst=options.worst,
            start=options.start,
            mixed=lengths[checkpoint.task] if options.mixed else (),
        )
    # Models that were trained on other lengths have no shade in common.
    trained = {checkpoint.trained_lengths for checkpoint in checkpoints if checkpoint.trained_lengths}
    report(rows, folder, trained.pop() if len(trained) == 1 else None, seed_groups(checkpoints))
    if options.output_places:
        write_places(tested, lengths, num_samples, seed, folder)
    if options.position_maps:
        write_position_maps(checkpoints, folder)
    if options.attentions:
        write_attention(tested, lengths, num_samples, seed, folder)


def operand_lengths(checkpoints: list[Checkpoint], options: EvaluationOptions) -> dict[Task, list[tuple[int, ...]]]:
    """Return what `check_lengths` says of the sizes to evaluate, by the task, or the part of it, that is tested.

    Raises:
        ValueError: the checkpoints are of several tasks, cannot take the lengths or cannot decode so.
    """
    from longhand.data.batches import check_lengths

    first, *others = checkpoints
    if different := [checkpoint.name for checkpoint in others if checkpoint.task.name != first.task.name]:
        raise ValueError(f"one table holds one task: {first.name} was made for {first.task.name!r}, {different[0]} was not")
    if different := [checkpoint.name for checkpoint in others if checkpoint.task.transducer != first.task.transducer]:
        raise ValueError(
            f"one table holds one task: {different[0]} was made for another step than {first.name}, though both tasks are "
            f"called {first.task.name!r}"
        )
    if options.lengths_b is not None and len(first.task.parts) > 1:
        parts = ", ".join(part.name for part in first.task.parts)
        raise ValueError(f"--lengths_b draws one heatmap: choose one of {parts} with --task")
    lengths = {}
    for checkpoint in chain.from_iterable(checkpoint.by_part() for checkpoint in checkpoints):
        model, task = checkpoint.model, checkpoint.task
        sizes = [task.operand_lengths(*size) for size in options.sizes]
        lengths[task] = check_lengths(model, task, sizes, options.start)
        if options.decode != "teacher_forced":
            task.family.check_generation(task)
    return lengths


def say_earlier(file: Path) -> None:
    """Warn that earlier results in a file will be replaced."""
    if file.exists():
        print(f"{file} has earlier results: they are replaced")


def run(options: EvaluationOptions) -> None:
    """Load the checkpoints, then answer, certify or measure."""
    options = replace(options, checkpoints=[locate(source) for source in options.checkpoints])
    check_options(options)
    with ExitStack() as held:
        for source in options.checkpoints if options.certify else ():
            if Path(source).is_dir() and not is_in_zoo(source):
                held.enter_context(holding(Path(source)))
        try:
            checkpoints = load_checkpoints(options)
        except OtherWithStructure as error:
            ask_in_sentences(error, options)
            return
        except OtherModel as error:
            search_other(error.pretrained, options)
            return
        if options.ask is not None:
            ask(checkpoints, read_questions(options))
            return
        if not options.certify:
            checkpoints = counted_once(checkpoints)
        if options.dtype is not None:
            check_precision(checkpoints, options.dtype)
            return
        folder = free_folder(options, checkpoints)
        held.enter_context(holding(folder))
        if options.certify:
            certify(checkpoints, options, folder)
        else:
            evaluate(checkpoints, options, folder)


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input ends with one line and exit status 2."""
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        logging.disable_progress_bar()
        run(parse_arguments(arguments))


if __name__ == "__main__":
    main()
