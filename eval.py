"""Evaluate checkpoints: accuracy by length as a table, a results file and a plot; or one question; or a proof."""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import fields, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

from transformers.utils import logging

from longhand.data import TASKS, Task
from longhand.data.certificates import CannotCertify, coverings, hash_weights
from longhand.data.plugins import load_plugin
from longhand.data.tasks.registry import find_task
from longhand.hub_cards.checkpoints.certificate_file import CERTIFICATE_FILE, warn_of_certificate
from longhand.hub_cards.checkpoints.certification import certify_checkpoint, check_settings, own_folder
from longhand.hub_cards.checkpoints.files import file_name
from longhand.hub_cards.checkpoints.load import Checkpoint, load_checkpoint
from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.console import interruptible, refusing_in_one_line
from longhand.hub_cards.evaluation.language_models import (
    DEFAULT_SHOTS,
    LanguageModel,
    check_text_problems,
    is_language_model,
    load_language_model,
    measure_language_model,
)
from longhand.hub_cards.evaluation.measure import (
    check_attention_memory,
    check_attentions,
    check_lengths,
    check_position_maps,
    evaluate_lengths,
    token_bar,
)
from longhand.hub_cards.evaluation.options import (
    card_place,
    changed_folders,
    check_language_options,
    check_options,
    output_folder,
    parse_arguments,
    parse_lengths,
)
from longhand.hub_cards.evaluation.report import MOST_MAPS, report, write_attention, write_places, write_position_maps
from longhand.hub_cards.evaluation.results import CERTIFICATES_FILE, RESULTS_FILE, Row, read_results, write_results
from longhand.hub_cards.locks import holding
from longhand.hub_cards.publishing.card_updates import check_card, update_card
from longhand.hub_cards.publishing.cards import CARD_FILE

COMPLETIONS_FILE = "completions.jsonl"


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
        warn_of_certificate(Path(source), checkpoint.model, checkpoint.recipe_task or checkpoint.task)
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
    for checkpoint, source, place in zip(checkpoints, options.checkpoints, places, strict=True):
        model: Any = checkpoint.model
        try:
            coverings(model, checkpoint.task)
        except CannotCertify as error:
            raise ValueError(f"{checkpoint.name}: {error}{remove_certificate(place)}") from error
        check_settings(checkpoint, source)
    folder = output_folder(options)
    say_earlier(folder / CERTIFICATES_FILE, checkpoints)
    rows, single = [], len(checkpoints) == 1
    for checkpoint, place in zip(checkpoints, places, strict=True):
        elsewhere = folder / (CERTIFICATE_FILE if single else f"certificate-{file_name(checkpoint.name)}.json")
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
        write_places(tested, lengths, folder=folder, **how)
    if options.position_maps:
        write_position_maps(checkpoints, folder)
    if options.attentions:
        write_attention(tested, lengths, folder=folder, **how)


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


def update_cards(rows: list[Row], checkpoints: list[Checkpoint], options: argparse.Namespace) -> None:
    """Add its results to the card of every checkpoint."""
    for source, checkpoint in zip(options.checkpoints, checkpoints, strict=True):
        own = [row for row in rows if row["model"] == checkpoint.name]
        updated = update_card(card_place(source), own, dataset=options.dataset, revision=options.revision)
        print(updated)


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
