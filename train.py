"""Train a model by a recipe, evaluate it and write its folder."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from safetensors import SafetensorError
from torch import OutOfMemoryError, distributed
from transformers.utils import logging

from longhand.data.certificates import CannotCertify, coverings
from longhand.hub_cards.checkpoints.certificate_file import certify_checkpoint
from longhand.hub_cards.checkpoints.files import BEST_FOLDER, CERTIFICATE_FILE
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.console import interruptible, one_line, refusing_in_one_line
from longhand.hub_cards.evaluation.measure import evaluate_lengths
from longhand.hub_cards.evaluation.report import report
from longhand.hub_cards.locks import holding
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.commits import check_push, own_repo_id
from longhand.hub_cards.publishing.families import family_card
from longhand.hub_cards.publishing.push import push_command, push_model
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.training.arguments import Run, parse_run
from longhand.hub_cards.training.help import describe_recipe, describe_recipes
from longhand.hub_cards.training.resuming import relocate_best
from longhand.hub_cards.training.run_folder import (
    claim_folder,
    is_certified,
    is_complete,
    is_pushed,
    remove_checkpoints,
    save_final,
    start_folder,
    write_pushed,
)
from longhand.hub_cards.training.trainer import BatchTrainer, NotFinite, make_trainer, resume_certified
from longhand.hub_cards.training.training_arguments import Publishing, check_processes


def train(run: Run, trainer: BatchTrainer, checkpoint: Path | None) -> bool:
    """Train, from a checkpoint if there is one, then save and evaluate. `finish` says what is returned."""
    began = time.perf_counter()
    if trainer.is_world_process_zero():
        start_folder(run)
        parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
        print(
            f"{run.name}: {parameters:,} parameters, {run.data.min_length} to {run.data.max_length} digits, "
            f"{run.training.max_steps} steps of {run.training.batch_size}" + (f", from {checkpoint}" if checkpoint else "")
        )
    if checkpoint and trainer.is_world_process_zero():
        relocate_best(checkpoint)
    run.training.distributed_state.wait_for_everyone()
    if not (checkpoint and resume_certified(trainer, run, checkpoint)):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return finish(run, trainer, began) if trainer.is_world_process_zero() else True


def finish(run: Run, trainer: BatchTrainer, began: float) -> bool:
    """Save the run, evaluate it and write its card.

    Args:
        began: `time.perf_counter()` when the run began.

    Returns:
        False if the run should have ended with a certificate and did not.
    """
    save_final(trainer, run)
    certified = evaluate_final(run, began)
    write_card(run.folder)
    remove_checkpoints(run.folder)
    print(f"trained and evaluated in {time.perf_counter() - began:.0f} seconds\n\nwhat next:")
    plugins = "".join(f" --plugin {run.folder / plugin.name}" for plugin in run.plugins)
    for options in what_next(trainer.model, run):
        print(f"  python eval.py {run.folder} {options}{plugins}")
    return certified


def evaluate_final(run: Run, began: float) -> bool:
    """Evaluate what was saved, the last checkpoint and the best one, as eval.py does, and write the results.

    If both have the same weights, they are evaluated once.

    Returns:
        False if the run should have ended with a certificate and did not.
    """
    certified = True
    if run.training.until_certified:
        file = run.folder / CERTIFICATE_FILE
        certified = certify_checkpoint(load_checkpoint(str(run.folder)), file, run.folder, anew=False)["certified"]
    rows: list[dict[str, Any]] = []
    measured: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for folder in (run.folder, run.folder / BEST_FOLDER):
        for checkpoint in load_checkpoint(str(folder)).by_part() if folder.is_dir() else ():
            model, task, name = checkpoint.model, checkpoint.task, checkpoint.name
            what = checkpoint.weights, task.name
            if what not in measured:
                lengths = [task.operand_lengths(length) for length in run.data.test_lengths]
                measured[what] = evaluate_lengths(model, task, lengths, name=name, num_samples=run.data.test_samples)
            rows += [{**row, "model": name} for row in measured[what]]
    seconds = round(time.perf_counter() - began, 1)
    report([{**row, "run_seconds": seconds} for row in rows], run.folder, (run.data.min_length, run.data.max_length))
    return certified


def what_next(model: Any, run: Run) -> list[str]:
    """Return options of eval.py that make sense for the model."""
    task, lengths = run.task, run.data.test_lengths
    options = [f'--ask "{part.example_question}"' for part in task.parts if part.answers_questions]
    with suppress(CannotCertify):
        coverings(model, task)
        options.append("--certify")
    with suppress(ValueError):
        task.family.check_generation(task)
        sizes = ",".join(map(str, dict.fromkeys((lengths[0], lengths[-1]))))
        options.append(f"--lengths {sizes} --decode generate")
    return options + [f"--lengths {lengths[0]} --attentions"] * ("attentions" in model.can_record_outputs)


def check_publishing(run: Run) -> Publishing | None:
    """Check that the Hub accepts the push; return where to push, as a whole repository id, or None if nowhere.

    Raises:
        CannotPush, ValueError: it does not, see `commit_files`.
    """
    place = run.publishing
    if place is None:
        return None
    api = HfApi(token=place.token)
    repo_id = own_repo_id(place.name, api)
    check_push(repo_id, "model", api, private=place.private, revision=place.revision)
    return replace(place, name=repo_id)


def publish(run: Run, place: Publishing) -> None:
    """Push the finished run. If that fails, the run stays as it is and the error says how to push it later."""
    api = HfApi(token=place.token)
    try:
        push = push_model(run.folder, place.name, private=place.private, revision=place.revision, api=api)
    except (ValueError, OSError, RuntimeError) as error:
        reason = f"{run.folder} is complete but was not pushed: {one_line(error)}"
        print(f"error: {reason}; push it by: {by_hand(run, place)}", file=sys.stderr)
        raise SystemExit(1) from error
    print(f"\n{push}")
    write_pushed(run.folder, place.name, place.revision)


def by_hand(run: Run, place: Publishing) -> str:
    """Return the command that pushes the finished run."""
    return push_command(run.folder, place.name, place.private, place.revision)


def show_help(arguments: list[str]) -> bool:
    """Answer `--list` and `--help`; return False if neither is asked for."""
    if arguments == ["--list"]:
        recipes = list_recipes()
        width = max(map(len, recipes))
        for name, description in recipes.items():
            print(f"{name:{width}} {description}")
        return True
    if not (asked := {"--help", "-h"} & set(arguments)):
        return False
    rest = [word for word in arguments if word not in asked]
    with refusing_in_one_line():
        print(describe_recipe(rest) if rest else describe_recipes())
    return True


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input ends with one line and exit status 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with interruptible("the same command with --resume continues the run, if it has begun"):
        if show_help(arguments):
            return
        logging.disable_progress_bar()
        run_command(arguments)


def run_command(arguments: list[str]) -> None:
    """Check everything, train, and push what is to be pushed."""
    with ExitStack() as held:
        # The other types are how libraries refuse the arguments of a schedule, a reporter or a folder.
        with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
            run = parse_run(arguments)
            check_processes(run.training)
            # A family without a card is refused here, and not after training.
            family_card(run.task)
            start = look_once(run, lambda: look(run, held))
            trainer = None if start.complete else make_trainer(run)
        if trainer is not None:
            train_or_stop(run, trainer, start)
        if start.place and run.training.process_index == 0:
            publish(run, start.place)


@dataclass(frozen=True)
class Start:
    """What a run starts from.

    Attributes:
        checkpoint: where it is resumed from, if anywhere.
        place: where it is pushed to, if anywhere.
        complete: whether only the push is left.
    """

    checkpoint: Path | None
    place: Publishing | None
    complete: bool


def look(run: Run, held: ExitStack) -> Start:
    """Take the run's folder until `held` is closed, and look what is left to do.

    Raises:
        ValueError, CannotPush: the folder is in use, holds something else or is finished, or the Hub refuses the push.
    """
    held.enter_context(holding(run.folder))
    checkpoint, place, complete = claim_folder(run), check_publishing(run), is_complete(run.folder)
    if place and complete:
        if run.training.until_certified and not is_certified(run.folder):
            raise ValueError(f"{run.folder} is complete but not certified: {by_hand(run, place)} pushes it all the same")
        if is_pushed(run.folder, place.name, place.revision):
            raise ValueError(f"{run.folder} holds a finished run that was pushed to {place.name}: nothing is left to resume")
    return Start(checkpoint, place, complete)


def look_once(run: Run, look: Callable[[], Start]) -> Start:
    """Let the main process look, and tell all others. What it refuses, in one line, ends them all."""
    seen: list[Any] = [None]
    if run.training.process_index == 0:
        # It prints the line before the others end: a launcher stops all processes as soon as one ends.
        with suppress(SystemExit), refusing_in_one_line(OSError):
            seen = [look()]
    if run.training.world_size > 1:
        distributed.broadcast_object_list(seen)
    if seen[0] is None:
        raise SystemExit(2)
    return seen[0]


def train_or_stop(run: Run, trainer: BatchTrainer, start: Start) -> None:
    """Train; what stops a run ends the program with one line, what to do, and exit status 1."""
    try:
        if train(run, trainer, start.checkpoint):
            return
        reason = f"not certified after {trainer.state.global_step} steps"
        if start.place:
            reason += f"; it was not pushed: {by_hand(run, start.place)} does it all the same"
    except (NotFinite, MemoryError, OutOfMemoryError) as error:
        reason = one_line(error) or "out of memory"
    except (OSError, SafetensorError) as error:
        reason = f"{one_line(error)}; the same command with --resume continues the run"
    print(f"error: {reason}", file=sys.stderr)
    raise SystemExit(1)


if __name__ == "__main__":
    main()
