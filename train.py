"""Train a model by a recipe, evaluate it and write its folder."""

import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers.utils import logging

from longhand.data.certificates import CannotCertify, covering
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.commits import check_push, own_repo_id
from longhand.hub_cards.publishing.families import family_card
from longhand.hub_cards.publishing.push import push_command, push_model
from longhand.hub_cards.reports.evaluations import report
from longhand.hub_cards.runs.arguments import Publishing, Run, parse_run
from longhand.hub_cards.runs.certificates import CERTIFICATE_FILE
from longhand.hub_cards.runs.certification import certify_checkpoint
from longhand.hub_cards.runs.checkpoints import BEST_FOLDER, load_checkpoint
from longhand.hub_cards.runs.console import interruptible, one_line, refusing_in_one_line
from longhand.hub_cards.runs.evaluation import evaluate_lengths
from longhand.hub_cards.runs.folder import claim_folder, relocate_best, remove_checkpoints, save_final, start_folder
from longhand.hub_cards.runs.help import describe_recipe, describe_recipes
from longhand.hub_cards.runs.recipes import list_recipes
from longhand.hub_cards.runs.trainer import BatchTrainer, NotFinite, make_trainer, resume_certified


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
    remove_checkpoints(run)
    print(f"trained and evaluated in {time.perf_counter() - began:.0f} seconds\n\nwhat next:")
    plugins = "".join(f" --plugin {run.folder / plugin.name}" for plugin in run.plugins)
    for options in what_next(trainer.model, run):
        print(f"  python eval.py {run.folder} {options}{plugins}")
    return certified


def evaluate_final(run: Run, began: float) -> bool:
    """Evaluate what was saved, the last checkpoint and the best one, as eval.py does, and write the results.

    Returns:
        False if the run should have ended with a certificate and did not.
    """
    certified = True
    if run.training.until_certified:
        certified = certify_checkpoint(load_checkpoint(str(run.folder)), run.folder / CERTIFICATE_FILE, run.folder)[
            "certified"
        ]
    lengths = [run.task.for_evaluation.operand_lengths(length) for length in run.data.test_lengths]
    rows = []
    for folder in (run.folder, run.folder / BEST_FOLDER):
        if folder.is_dir():
            checkpoint = load_checkpoint(str(folder))
            rows += evaluate_lengths(
                checkpoint.model, checkpoint.task, lengths, name=checkpoint.name, num_samples=run.data.test_samples
            )
    seconds = round(time.perf_counter() - began, 1)
    report([{**row, "run_seconds": seconds} for row in rows], run.folder, (run.data.min_length, run.data.max_length))
    return certified


def what_next(model: Any, run: Run) -> list[str]:
    """Return options of eval.py that make sense for the model."""
    task, lengths = run.task, run.data.test_lengths
    options = [f'--ask "{task.example_question}"'] if task.answers_questions else []
    with suppress(CannotCertify):
        covering(model, task)
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
        print(f"\n{push_model(run.folder, place.name, private=place.private, revision=place.revision, api=api)}")
    except (ValueError, OSError, RuntimeError) as error:
        reason = f"{run.folder} is complete but was not pushed: {one_line(error)}"
        print(f"error: {reason}; push it by: {by_hand(run, place)}", file=sys.stderr)
        raise SystemExit(1) from error


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
    if show_help(arguments):
        return
    logging.disable_progress_bar()
    with interruptible("the same command with --resume continues the run, if it has begun"):
        run_command(arguments)


def run_command(arguments: list[str]) -> None:
    """Check everything, train, and push what is to be pushed."""
    # The other types are how libraries refuse the arguments of a schedule, a reporter or a folder.
    with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
        run = parse_run(arguments)
        checkpoint = claim_folder(run)
        place = check_publishing(run)
        # A family without a card is refused here, and not after training.
        family_card(run.task)
        trainer = make_trainer(run)
    # No process may write into the folder before all have looked into it.
    run.training.distributed_state.wait_for_everyone()
    try:
        certified = train(run, trainer, checkpoint)
    except NotFinite as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise SystemExit(1) from error
    if not certified:
        unpushed = f"; it was not pushed: {by_hand(run, place)} does it all the same" if place else ""
        print(f"error: not certified after {trainer.state.global_step} steps{unpushed}", file=sys.stderr)
        raise SystemExit(1)
    if place and trainer.is_world_process_zero():
        publish(run, place)


if __name__ == "__main__":
    main()
