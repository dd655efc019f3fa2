"""Evaluate checkpoints: accuracy by length as a table, a results file and a plot; or one question; or a proof."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

from transformers.utils import logging

from longhand.data import TASKS, Task
from longhand.data.certificates import CannotCertify, coverings, hash_weights
from longhand.data.checks import check_integer
from longhand.data.plugins import load_plugin
from longhand.data.tasks.registry import find_task
from longhand.hub_cards.publishing.card_updates import check_card, update_card
from longhand.hub_cards.publishing.cards import CARD_FILE
from longhand.hub_cards.reports.evaluations import draw_attention, report
from longhand.hub_cards.reports.plots import plot_position_maps
from longhand.hub_cards.runs.certificates import CERTIFICATE_FILE, warn_of_certificate
from longhand.hub_cards.runs.certification import certify_checkpoint, own_folder
from longhand.hub_cards.runs.checkpoint_files import checkpoint_name, is_best
from longhand.hub_cards.runs.checkpoints import Checkpoint, load_checkpoint
from longhand.hub_cards.runs.console import OneLineParser, interruptible, refusing_in_one_line
from longhand.hub_cards.runs.evaluation import (
    check_attention_memory,
    check_attentions,
    check_lengths,
    check_position_maps,
    evaluate_lengths,
    measure_attention,
    measure_places,
    measure_position_maps,
    position_maps,
    token_bar,
)
from longhand.hub_cards.runs.help import describe_zoo
from longhand.hub_cards.runs.hub import check_repo_id
from longhand.hub_cards.runs.language_models import (
    DEFAULT_SHOTS,
    MOST_SHOTS,
    PROMPTS,
    LanguageModel,
    check_text_problems,
    is_language_model,
    load_language_model,
    measure_language_model,
)
from longhand.hub_cards.runs.locks import holding
from longhand.hub_cards.runs.plugins import add_plugin_option
from longhand.hub_cards.runs.recipes import RECIPE_FILE
from longhand.hub_cards.runs.results import (
    ATTENTION_FILE,
    CERTIFICATES_FILE,
    LARGEST,
    PLACES_FILE,
    POSITION_MAPS_FILE,
    RESULTS_FILE,
    Row,
    format_attention,
    format_places,
    format_position_maps,
    read_results,
    write_results,
)
from longhand.hub_cards.runs.zoo import is_in_zoo, locate

COMPLETIONS_FILE = "completions.jsonl"
MOST_LENGTHS = 10_000
MOST_MAPS = 100
"""Most problems over which attention maps are averaged."""

MEASURING = (
    *("lengths", "lengths_b", "num_samples", "seed", "sampling", "decode", "output_places", "attentions", "position_maps"),
    *("update_card", "prompt", "shots", "bf16", "batch_size"),
)
"""Options that only an evaluation takes, not a question or a certificate."""

EXAMPLES = """examples
  python eval.py addition --ask "653+49"
  python eval.py outputs/addition --lengths 10:200:10
  python eval.py user/name --ask "653+49"
  python eval.py outputs/addition --certify
  python eval.py user/name --lengths 300,400 --update_card
  python eval.py outputs/seed-0 outputs/seed-1 outputs/seed-2 --lengths 30,100
  python eval.py outputs/maximum --plugin my_task.py --ask "35>17"
  python eval.py outputs/addition Qwen/Qwen3-0.6B --lengths 1:20 --prompt few_shot
"""


def parse_lengths(text: str, least: int = 1) -> list[int]:
    """Return `"10:200:10"` (both ends included) or `"30,60,100"` as a list.

    Raises:
        ValueError: the text is neither, or a length is below `least`.
    """
    lengths: Sequence[int]
    try:
        if ":" in text:
            start, stop, *step = map(int, text.split(":"))
            lengths = range(start, stop + 1, *step)
        else:
            lengths = [int(part) for part in text.split(",")]
    except (TypeError, ValueError):
        lengths = []
    if not 0 < len(lengths) <= MOST_LENGTHS or min(lengths) < least:
        raise ValueError(
            f"lengths {text!r}: give START:STOP:STEP such as 10:200:10, or a list such as 30,60,100, of {least} and more, "
            f"{MOST_LENGTHS:,} lengths at most"
        )
    return list(lengths)


class ListZoo(argparse.Action):
    """List the zoo and end, whatever else is given."""

    def __call__(self, parser, *_):
        print(describe_zoo())
        parser.exit()


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog="python eval.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python eval.py MODEL [MODEL ...] [OPTIONS]",
    )
    described = (
        "folder or Hub id of a run or adapter, or of any causal language model, or a name of --list; several of our own are "
        "seeds of one model"
    )
    parser.add_argument("checkpoints", nargs="+", metavar="MODEL", help=described)
    flag: dict[str, Any] = {"action": "store_true"}
    parser.add_argument("--list", action=ListZoo, nargs=0, help="list the certified checkpoints that come with the package")
    add = parser.add_argument_group("what to do, if not to measure accuracy").add_argument
    add("--ask", metavar="QUESTION", help='print the answer to a question such as "653+49"; - reads it from standard input')
    add("--show_work", **flag, help="with --ask: also print the scratchpad, as on paper")
    add(
        "--certify",
        **flag,
        help="check all neighbourhoods: exit status 0 only if the model is proved exact for every length",
    )
    add = parser.add_argument_group("what to evaluate on").add_argument
    add("--lengths", default="10:100:10", help="digits, as START:STOP:STEP or a list (default: %(default)s)")
    add("--lengths_b", help="digits of the second operand, or class of sums: evaluate all pairs and plot a heatmap")
    add("--num_samples", type=int, default=200, help="problems of each length (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the test problems (default: %(default)s)")
    add("--sampling", help="how test problems are drawn, for a task that has the choice, such as cascades")
    add = parser.add_argument_group("what to measure").add_argument
    described = "one forward pass, token by token, or in a few passes; all count the same event (default: teacher_forced)"
    add("--decode", choices=("teacher_forced", "generate", "parallel"), help=described)
    add("--output_places", **flag, help="also measure the accuracy of every digit of the answer")
    add("--attentions", **flag, help="also plot attention maps at the first length, and say which ids each head looks at")
    add("--position_maps", **flag, help="also plot an encoder's pairwise vectors, and how dispersed they are")
    add = parser.add_argument_group("language models of others, see hub_cards/LANGUAGE_MODELS.md").add_argument
    described = "the problem alone, after solved ones, or in the tokenizer's chat template (default: plain)"
    add("--prompt", choices=PROMPTS, help=described)
    described = f"solved problems for --prompt few_shot, 1 to {MOST_SHOTS} (default: {DEFAULT_SHOTS})"
    add("--shots", type=int, choices=range(1, MOST_SHOTS + 1), metavar="NUMBER", help=described)
    add("--bf16", **flag, help="load weights in bfloat16 (default: the type they were saved in)")
    add("--batch_size", type=int, help="prompts at once (default: as many as make some 8,000 tokens with their answers)")
    add = parser.add_argument_group("output").add_argument
    add("--output_dir", type=Path, help="folder to write to (default: outputs/evaluation/NAME)")
    add("--update_card", **flag, help="add the results to the checkpoint's card, in its folder or on the Hub")
    add("--dataset", metavar="USER/NAME", help="with --update_card: dataset that the results are filed under on the Hub")
    group = parser.add_argument_group("checkpoints")
    group.add_argument("--revision", help="branch, tag or commit on the Hub (default: main)")
    group.add_argument("--task", help="task of a checkpoint without recipe.yaml or of language models, or one of several")
    add_plugin_option(group)
    group.add_argument("--trust_remote_code", **flag, help="run the code beside the checkpoints; read it first")
    words = list(sys.argv[1:] if arguments is None else arguments)
    for place in [place for place, word in enumerate(words[:-1]) if word == "--ask"]:
        # A question may start with a minus sign, which argparse takes for an option.
        if words[place + 1].startswith("-") and not words[place + 1].startswith("--"):
            words[place : place + 2] = [f"--ask={words[place + 1]}"]
            break
    return parser.parse_args(words)


def check_options(options: argparse.Namespace) -> None:
    """Raise ValueError for options that are not legal or do not go together, before anything is loaded."""
    lengths = parse_lengths(options.lengths)
    if options.lengths_b is not None:
        if (pairs := len(lengths) * len(parse_lengths(options.lengths_b, least=0))) > MOST_LENGTHS:
            raise ValueError(f"--lengths x --lengths_b must be {MOST_LENGTHS:,} pairs at most, got {pairs:,}")
        if len(options.checkpoints) > 1:
            raise ValueError(f"--lengths_b draws one heatmap: give one checkpoint, got {len(options.checkpoints)}")
    check_integer("--num_samples", options.num_samples, 1)
    check_integer("--seed", options.seed, 0, LARGEST)
    if options.batch_size is not None:
        check_integer("--batch_size", options.batch_size, 1)
    check_question(options)
    if options.dataset is not None:
        if not options.update_card:
            raise ValueError(f"--dataset {options.dataset} is for --update_card, which is not set")
        check_repo_id(options.dataset)
    if options.shots is not None and options.prompt != "few_shot":
        raise ValueError(f"--shots {options.shots} is for --prompt few_shot, got --prompt {options.prompt or 'plain'}")
    if options.update_card:
        check_updated_cards(options)
    check_output(options)


def check_question(options: argparse.Namespace) -> None:
    """Raise ValueError for options that do not go with a question or a certificate."""
    if options.certify and options.ask is not None:
        raise ValueError("--certify and --ask are two questions: ask one at a time")
    if options.show_work and options.ask is None:
        raise ValueError("--show_work is for --ask, which is not set")
    if options.certify or options.ask is not None:
        asked, usual = "--certify" if options.certify else "--ask", parse_arguments([*options.checkpoints])
        if ignored := [name for name in MEASURING if getattr(options, name) != getattr(usual, name)]:
            raise ValueError(f"--{ignored[0]} is for measuring accuracy: leave it out with {asked}")


def check_updated_cards(options: argparse.Namespace) -> None:
    """Raise ValueError if results of these options cannot be added to a card."""
    if options.sampling is not None:
        raise ValueError("--update_card adds accuracy on the task's own problems to a card: leave out --sampling")
    if shipped := [checkpoint_name(source) for source in options.checkpoints if is_in_zoo(source)]:
        raise ValueError(f"--update_card changes a card: {shipped[0]} comes with the package and stays as it is")


def check_output(options: argparse.Namespace) -> None:
    """Raise ValueError if results could not be told apart, or would replace the results of a checkpoint."""
    names = [checkpoint_name(source) for source in options.checkpoints]
    if options.ask is None and len(set(names)) < len(names):
        raise ValueError(f"several checkpoints have one name, so results could not be told apart: {', '.join(names)}")
    folder = output_folder(options)
    if options.ask is None and any((folder / name).exists() for name in ("config.json", RECIPE_FILE)):
        raise ValueError(f"--output_dir {folder} holds a checkpoint with results of its own: choose another folder")


def load_checkpoints(options: argparse.Namespace) -> list[Checkpoint]:
    """Load all checkpoints, and check what is asked of them."""
    for file in options.plugin:
        load_plugin(file)
    others = [source for source in options.checkpoints if is_language_model(source, options.revision)]
    check_language_options(options, others)
    checkpoints = {}
    for source in options.checkpoints:
        if source not in others:
            checkpoints[source] = load_own(source, options)
    task = next((checkpoint.task for checkpoint in checkpoints.values()), None)
    for source in others:
        checkpoints[source] = load_other(source, task, options)
    return [checkpoints[source] for source in options.checkpoints]


def load_own(source: str, options: argparse.Namespace) -> Checkpoint:
    """Load a checkpoint of this package, and check what is asked of it."""
    checkpoint = load_checkpoint(source, options.revision, options.task, options.trust_remote_code)
    if not options.certify:
        warn_of_certificate(Path(source), checkpoint.model, checkpoint.task)
    if options.sampling is not None:
        checkpoint = resample(checkpoint, options.sampling)
    if options.position_maps:
        check_position_maps(checkpoint)
    if options.attentions:
        check_attentions(checkpoint)
    return checkpoint


def load_other(source: str, task: Task | None, options: argparse.Namespace) -> Checkpoint:
    """Load a language model of others.

    Args:
        task: what the first checkpoint of this package was made for; None if there is none.
    """
    is_alone = task is None
    if is_alone and options.task is None:
        raise ValueError(f"{source} is a language model: choose its task with --task, one of {', '.join(TASKS)}")
    task = task or find_task(options.task)().for_evaluation
    if len(task.parts) > 1:
        parts = ", ".join(part.name for part in task.parts)
        raise ValueError(f"{source} is a language model, which is tested on one task: choose one of {parts} with --task")
    how = {name: getattr(options, name) for name in ("revision", "trust_remote_code", "bf16", "batch_size")}
    how |= {"prompt": options.prompt or "plain", "shots": options.shots or DEFAULT_SHOTS}
    checkpoint = load_language_model(source, task, **how)
    return resample(checkpoint, options.sampling) if is_alone and options.sampling is not None else checkpoint


def check_language_options(options: argparse.Namespace, others: list[str]) -> None:
    """Raise ValueError for options that the language models of others, or the checkpoints of this package, cannot take."""
    if not others:
        theirs = {name: getattr(options, name) for name in ("prompt", "bf16", "batch_size")}
        if given := [name for name, value in theirs.items() if value not in (None, False)]:
            raise ValueError(f"--{given[0]} is for language models of others, which none of the checkpoints is")
        return
    names = ("ask", "certify", "output_places", "attentions", "position_maps", "update_card")
    given = [f"--{name}" for name in names if getattr(options, name) not in (None, False)]
    if options.decode not in (None, "generate"):
        given.append(f"--decode {options.decode}")
    if given:
        raise ValueError(f"{given[0]} is for checkpoints of this package: {others[0]} is a language model of others")


def resample(checkpoint: Checkpoint, sampling: str) -> Checkpoint:
    """Return the same checkpoint, to be tested on problems that are drawn otherwise.

    Raises:
        ValueError: its task has no such choice.
    """
    if "sampling" not in {field.name for field in fields(checkpoint.task)}:
        raise ValueError(f"--sampling {sampling}: the task {checkpoint.task.name!r} draws problems in one way only")
    changed: dict[str, Any] = {"sampling": sampling}
    return replace(checkpoint, task=replace(checkpoint.task, **changed))


def ask(checkpoints: list[Checkpoint], question: str, show_work: bool) -> None:
    """Print the answer of each checkpoint, with the work before it if that is asked for."""
    for checkpoint in checkpoints:
        with token_bar(checkpoint.model, "answering") as bar:
            answer = (checkpoint.show_work if show_work else checkpoint.answer)(question, bar)
        print(answer if show_work else checkpoint.task.part_of(question).show_answer(question, answer))


def certify(checkpoints: list[Checkpoint], options: argparse.Namespace) -> None:
    """Print and write what is proved. Exit with status 1 if a checkpoint is not certified.

    Raises:
        ValueError: no certificate is possible for a checkpoint.
    """
    places = [own_folder(checkpoint, source) for source, checkpoint in zip(options.checkpoints, checkpoints, strict=True)]
    for checkpoint, place in zip(checkpoints, places, strict=True):
        model: Any = checkpoint.model
        try:
            coverings(model, checkpoint.task)
        except CannotCertify as error:
            raise ValueError(f"{checkpoint.name}: {error}{remove_certificate(place)}") from error
    folder = output_folder(options)
    say_earlier(folder / CERTIFICATES_FILE, checkpoints)
    rows, single = [], len(checkpoints) == 1
    for checkpoint, place in zip(checkpoints, places, strict=True):
        elsewhere = folder / (CERTIFICATE_FILE if single else f"certificate-{file_name(checkpoint)}.json")
        rows.append(
            certify_checkpoint(checkpoint, place / CERTIFICATE_FILE if place else elsewhere, place, show_proof=single)
        )
        if not rows[-1]["certified"] and (stale := stale_card(place)):
            print(f"warning{stale}", file=sys.stderr)
    write_results(rows, folder / CERTIFICATES_FILE)
    if not all(row["certified"] for row in rows):
        raise SystemExit(1)


def remove_certificate(folder: Path | None) -> str:
    """Remove the certificate of a checkpoint that cannot have one, if there is one; return what to say of it."""
    if folder is None or not (folder / CERTIFICATE_FILE).is_file():
        return ""
    (folder / CERTIFICATE_FILE).unlink()
    return f"; {folder / CERTIFICATE_FILE} did not hold and was removed{stale_card(folder)}"


def stale_card(folder: Path | None) -> str:
    """Return what to say if the card in a folder calls a model certified that is not; nothing if it does not."""
    if folder is None or not (card := folder / CARD_FILE).is_file() or b"**Certified.**" not in card.read_bytes():
        return ""
    return f": {card} still says Certified, python -m longhand.hub_cards.cards {folder} writes it anew"


def evaluate(checkpoints: list[Checkpoint], options: argparse.Namespace) -> None:
    """Measure accuracy, and what else is asked for.

    Raises:
        ValueError: the checkpoints are of several tasks, cannot take the lengths or cannot decode so, or a card cannot be
            updated. Nothing is measured or written then.
    """
    lengths = operand_lengths(checkpoints, options)
    tested = [part for checkpoint in checkpoints for part in checkpoint.by_part()]
    if options.update_card:
        for source in options.checkpoints:
            check_card(card_place(source), options.revision)
    folder = output_folder(options)
    say_earlier(folder / RESULTS_FILE, checkpoints)
    rows, completions, how = [], [], {name: getattr(options, name) for name in ("num_samples", "seed")}
    for checkpoint in tested:
        own = lengths[checkpoint.task]
        if isinstance(checkpoint, LanguageModel):
            measured, written = measure_language_model(checkpoint, own, **how)
            completions += written
        else:
            how_decoded = options.decode or "teacher_forced"
            measured = evaluate_lengths(
                checkpoint.model, checkpoint.task, own, name=checkpoint.name, decode=how_decoded, **how
            )
        known = {} if checkpoint.run_seconds is None else {"run_seconds": checkpoint.run_seconds}
        rows += [row | known for row in measured]
    trained = next((checkpoint.trained_lengths for checkpoint in checkpoints if checkpoint.trained_lengths), None)
    report(rows, folder, trained, seeds=len(checkpoints) > 1 and not completions)
    if completions:
        write_results(completions, folder / COMPLETIONS_FILE)
        print(f"wrote {folder / COMPLETIONS_FILE}")
    if options.update_card:
        update_cards(rows, checkpoints, options)
    if options.output_places:
        write_places(tested, lengths, options, folder)
    if options.position_maps:
        write_position_maps(checkpoints, folder)
    if options.attentions:
        write_attention(tested, lengths, options, folder)


def operand_lengths(checkpoints: list[Checkpoint], options: argparse.Namespace) -> dict[Task, list[tuple[int, ...]]]:
    """Return the digits of every operand for each size to evaluate, by the task, or the part of it, that is tested.

    Raises:
        ValueError: the checkpoints are of several tasks, cannot take the lengths or cannot decode so.
    """
    first, *others = checkpoints
    if different := [checkpoint.name for checkpoint in others if checkpoint.task.name != first.task.name]:
        raise ValueError(f"one table holds one task: {first.name} was made for {first.task.name!r}, {different[0]} was not")
    if options.lengths_b is not None and len(first.task.parts) > 1:
        parts = ", ".join(part.name for part in first.task.parts)
        raise ValueError(f"--lengths_b draws one heatmap: choose one of {parts} with --task")
    sizes: list[tuple[int, ...]] = [(length,) for length in parse_lengths(options.lengths)]
    if options.lengths_b is not None:
        # A class of sums may be 0. `operand_lengths` of other tasks refuses it.
        sizes = list(product(parse_lengths(options.lengths), parse_lengths(options.lengths_b, least=0)))
    lengths = {}
    for checkpoint in chain.from_iterable(checkpoint.by_part() for checkpoint in checkpoints):
        lengths[checkpoint.task] = own = [checkpoint.task.operand_lengths(*size) for size in sizes]
        if isinstance(checkpoint, LanguageModel):
            check_text_problems(checkpoint, own, options.num_samples, options.seed)
            continue
        check_lengths(checkpoint.model, checkpoint.task, own, options.num_samples, arguments="--num_samples or --lengths")
        if options.attentions:
            check_attention_memory(checkpoint.model, checkpoint.task, own[0], min(options.num_samples, MOST_MAPS))
        if options.decode in ("generate", "parallel"):
            checkpoint.task.family.check_generation(checkpoint.task)
    return lengths


def output_folder(options: argparse.Namespace) -> Path:
    """Return the folder of an evaluation. Results of an earlier one in it are replaced."""
    return options.output_dir or Path("outputs", "evaluation", checkpoint_name(options.checkpoints[0]).replace("/", "--"))


def changed_folders(options: argparse.Namespace) -> set[Path]:
    """Return the checkpoints' folders that get a certificate or a new card."""
    sources = options.checkpoints if options.certify else map(card_place, options.checkpoints) if options.update_card else ()
    return {Path(source).resolve() for source in sources if Path(source).is_dir() and not is_in_zoo(source)}


def say_earlier(file: Path, checkpoints: list[Checkpoint]) -> None:
    """Say if a file has earlier results, which are replaced: of these weights or of others.

    Raises:
        ValueError: it cannot be read.
    """
    weights = {checkpoint.name: hash_weights(checkpoint.model) for checkpoint in checkpoints}
    names = {str(row.get("model")): row.get("weights") for row in (read_results(file) if file.exists() else [])}
    others = [name for name, measured in names.items() if measured is None or weights.get(name) != measured]
    if names:
        whose = f"other weights ({', '.join(others)})" if others else "the same weights"
        print(f"{file} has results of {whose}: they are replaced")


def file_name(checkpoint: Checkpoint) -> str:
    """Return a checkpoint's name as a part of a file's."""
    return checkpoint.name.replace("/", "--")


def card_place(source: str) -> str:
    """Return where a checkpoint's card is: the card of a run describes its `best` too."""
    folder = Path(source)
    return str(folder.parent) if is_best(folder) else source


def update_cards(rows: list[Row], checkpoints: list[Checkpoint], options: argparse.Namespace) -> None:
    """Add its results to the card of every checkpoint."""
    for source, checkpoint in zip(options.checkpoints, checkpoints, strict=True):
        own = [row for row in rows if row["model"] == checkpoint.name]
        updated = update_card(card_place(source), own, dataset=options.dataset, revision=options.revision)
        print(updated)


def write_places(
    checkpoints: list[Checkpoint], lengths: dict[Task, list[tuple[int, ...]]], options: argparse.Namespace, folder: Path
) -> None:
    """Measure and write the accuracy of every digit of the answer."""
    count, seed = options.num_samples, options.seed
    rows = [row for checkpoint in checkpoints for row in measure_places(checkpoint, lengths[checkpoint.task], count, seed)]
    write_results(rows, folder / PLACES_FILE)
    print(f"\n{format_places(rows)}\n\nwrote {folder / PLACES_FILE}")


def write_attention(
    checkpoints: list[Checkpoint], lengths: dict[Task, list[tuple[int, ...]]], options: argparse.Namespace, folder: Path
) -> None:
    """Plot the attention of decoders or encoders, and write which tokens each head looks at."""
    count, rows = min(options.num_samples, MOST_MAPS), []
    for checkpoint in checkpoints:
        operands, part = lengths[checkpoint.task][0], f"-{checkpoint.task.name}" if len(lengths) > 1 else ""
        file = folder / f"attention-{file_name(checkpoint)}{part}.png"
        draw_attention(checkpoint, operands, count, options.seed, file)
        print(f"wrote {file}")
        rows += measure_attention(checkpoint, operands, count, options.seed)
    write_results(rows, folder / ATTENTION_FILE)
    print(f"\n{format_attention(rows)}\n\nwrote {folder / ATTENTION_FILE}")


def write_position_maps(checkpoints: list[Checkpoint], folder: Path) -> None:
    """Plot the pairwise vectors of encoders, and write how dispersed they are."""
    for checkpoint in checkpoints:
        file = folder / f"positions-{file_name(checkpoint)}.png"
        low, high = checkpoint.model.config.relation_range
        plot_position_maps(position_maps(checkpoint.model), low, high, file)
        print(f"wrote {file}")
    rows = [row for checkpoint in checkpoints for row in measure_position_maps(checkpoint)]
    write_results(rows, folder / POSITION_MAPS_FILE)
    print(f"\n{format_position_maps(rows)}\n\nwrote {folder / POSITION_MAPS_FILE}")


def run(options: argparse.Namespace) -> None:
    options.checkpoints = [locate(source) for source in options.checkpoints]
    check_options(options)
    with ExitStack() as held:
        for folder in changed_folders(options):
            held.enter_context(holding(folder))
        checkpoints = load_checkpoints(options)
        if options.ask is not None:
            # A shell takes no argument of 128 KiB and more.
            ask(checkpoints, sys.stdin.read().strip("\n") if options.ask == "-" else options.ask, options.show_work)
            return
        held.enter_context(holding(output_folder(options)))
        if options.certify:
            certify(checkpoints, options)
        else:
            evaluate(checkpoints, options)


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input ends with one line and exit status 2."""
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        logging.disable_progress_bar()
        run(parse_arguments(arguments))


if __name__ == "__main__":
    main()
