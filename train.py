"""Train a model by a recipe, certify and evaluate it, write its folder and its card, and push it."""

# Used by: hub_cards/research/gpu. Changed freely.

# First of all: imports take seconds, and torch reads once how threads wait.
from longhand.hub_cards.starting import all_is_imported, use_helpful_threads

# isort: split
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import torch
from huggingface_hub import HfApi
from safetensors import SafetensorError
from torch import distributed
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils import logging

from longhand.data.batches import check_lengths
from longhand.data.proofs.check import Check
from longhand.data.tasks.column_task import ColumnTask
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE, Checkpoint, is_certified
from longhand.hub_cards.commands import (
    command_of,
    holding,
    interruptible,
    one_line,
    read_object,
    refusing_in_one_line,
    shell_word,
    with_commands,
    write_atomically,
)
from longhand.hub_cards.recipes import describe_recipes
from longhand.hub_cards.result_rows import VALIDATION_FILE, Row, read_results, write_results
from longhand.hub_cards.training.arguments import Run, parse_run, read_arguments
from longhand.hub_cards.training.fields import UNSET
from longhand.hub_cards.training.launcher import idle_gpus, lacking_processes
from longhand.hub_cards.training.run_folder import (
    GivenUp,
    claim_folder,
    give_up,
    is_complete,
    keep_as_best,
    read_given_up,
    relocate_best,
    remove_checkpoints,
    save_final,
    start_folder,
)
from longhand.hub_cards.training.trainer import (
    PATIENCE,
    BatchTrainer,
    NotFinite,
    check_sizes,
    following,
    given_up,
    last_check,
    resume_ended,
    trainer_of,
    training_batches,
    validation_batches,
    validation_rows,
)

if TYPE_CHECKING:
    from longhand.data.learning.report import Learned

all_is_imported()

CHECKPOINTS_PLOT = "checkpoints.png"
FEWEST_DRAWN = 3
"""Validations, and validated lengths, from which on a picture shows them."""

USAGE = """Train a model by a recipe, evaluate it and write its folder.

python train.py [RECIPE] [--ARGUMENT VALUE ...]     RECIPE is a name below, a recipe.yaml, or a run's folder or repository
python train.py RECIPE --help                       the arguments that a recipe takes, with its own values as defaults
python train.py RECIPE --dry_run                    what a run would do, and what it refuses, without training
python train.py --list                              all recipes

examples
  python train.py                                   the main job: the recipe "addition"
  python train.py addition-absolute --learning_rate 2e-3
  python train.py copy-absolute --encoding fire     another position encoding, with what has to change with it
  python train.py addition --push_to_hub            publish the finished run as USER/addition (--hub_model_id USER/NAME)
  python train.py columns --function "lambda a, b: a + b"       the machine behind a function is found, then trained
  python train.py columns --function my_rule.py                 or behind the one function of a file, or FILE.py:NAME
  python train.py columns --examples sums.jsonl                 or behind examples alone
  python train.py addition --plugin my_task.py --task my_task
  accelerate launch --config_file hub_cards/launch/gpus.yaml train.py                    a process for each GPU
  accelerate launch --config_file hub_cards/launch/cpus.yaml train.py --use_cpu True     two processes on CPUs
"""

EPILOG = f"""Every recipe also takes --plugin FILE [...], Python files of your own that register tasks, coupling rules or
position encodings; the run's folder gets copies. A decoder's recipe takes --encoding NAME: a position encoding, with all
arguments that have to change with it; what else is given wins. A recipe of a column task takes --write_states: the task
writes its states too, with which any step has a window. Unasked it does so if that leaves less than half to learn, and
never with --write_states False. The value {UNSET} takes back what the recipe gives."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input ends with one line and exit status 2, a run that fails with one line and status 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with interruptible("the same command with --resume continues the run, if it has begun"):
        if arguments == ["--list"]:
            print(describe_recipes())
        elif {"--help", "-h"} & set(arguments):
            show_help([word for word in arguments if word not in ("--help", "-h")])
        else:
            logging.disable_progress_bar()
            train(arguments)


def show_help(arguments: list[str]) -> None:
    """Print all recipes, or the arguments of one with its values."""
    with refusing_in_one_line():
        if not arguments:
            print(f"{with_commands(USAGE)}\n{describe_recipes()}")
            return
        given = read_arguments(arguments)
        given.parser.set_defaults(**given.values)
        print(f"{given.parser.format_help()}\n{EPILOG}")


def train(arguments: list[str]) -> None:
    """Go from a recipe to a trained, certified and evaluated model with a card, and push it."""
    began = time.perf_counter()
    note(lacking_processes(os.environ))
    with ExitStack() as held:
        # Libraries refuse the arguments of a schedule, a reporter or a folder by errors of these types.
        with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
            run = parse_run(arguments)
            if run.training.device.type == "cuda":
                note(idle_gpus(os.environ, torch.cuda.device_count()))
            if run.found and run.training.process_index == 0:
                print("\n".join(run.found.report.lines))
            if without_training := described(run):
                print(without_training)
                return
            start = claim_run(run, held)
            trainer = None if start.complete else make_trainer(following(run, start.given_up))
        finished = train_run(run, trainer, start, began, arguments) if trainer else None
        if start.repo_id and run.training.process_index == 0:
            publish(run, start.repo_id, finished)


def note(line: str | None) -> None:
    """Print a line on stderr, if there is one."""
    if line:
        print(line, file=sys.stderr)


def described(run: Run) -> str | None:
    """What a run says that only writes a plugin, or tells what it would do; None if it trains."""
    if run.found and run.write_plugin:
        return write_task(run.found, Path(run.write_plugin))
    return dry_run(run) if run.training.dry_run else None


def train_run(run: Run, trainer: BatchTrainer, start: "Start", began: float, arguments: list[str]) -> Checkpoint | None:
    """Train, save, certify and evaluate a run; the finished checkpoint in the first process, None in others.

    A run that trains until it is certified, and is not, ends here with exit status 1.

    Args:
        began: when the command began, as `time.perf_counter` counts.
        arguments: of the command, to say how it goes on.
    """
    with stopping_in_one_line(run.folder):
        trainer, steps = train_seeds(run, trainer, start)
        if not trainer.is_world_process_zero():
            return None
        save(run, trainer)
        finished = finish(run, last_check(trainer), began)
    print(f"trained and evaluated in {time.perf_counter() - began:.0f} seconds")
    print("\n".join(["", "what next:", *what_next(run)]))
    if run.training.until_certified and not is_certified(finished.certificate):
        fall_short(run, finished, steps, start, arguments)
    return finished


def fall_short(run: Run, finished: Checkpoint, steps: int, start: "Start", arguments: list[str]) -> NoReturn:
    """Say what a run that is not certified lacks and how it goes on, and end it with exit status 1."""
    from longhand.hub_cards.training.search_report import describe_rest

    print("\n".join(["", *describe_rest(finished.model, run.task.for_evaluation, run.data.max_length)]))
    print(f"what goes on, twice as long: {going_on(arguments, run)}")
    later = f"; it was not pushed: {by_hand(run, start.repo_id)} does it all the same" if start.repo_id else ""
    stop(f"not certified after {steps} steps{later}")


def write_task(found: "Learned", file: Path) -> str:
    """Write a task that was found as a plugin, and return how it is trained.

    Raises:
        ValueError: there is such a file.
    """
    from longhand.data.learning.plugin_file import plugin_source

    if file.exists():
        raise ValueError(f"--write_plugin: {file} exists already")
    write_atomically(file, plugin_source(found))
    return f"wrote {file}: read it, change it, and train it by {command_of('train')} columns --plugin {shell_word(file)}"


def dry_run(run: Run) -> str:
    """Make what a run would train, and return what it would do; see `describe_run`."""
    from longhand.hub_cards.training.search_report import describe_run

    # Trainer makes the folder of its checkpoints.
    folders = [Path(str(run.training.output_dir)), run.folder, *run.folder.parents]
    made = [folder for folder in folders if not folder.exists()]
    try:
        return describe_run(run, make_trainer(run))
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def make_trainer(run: Run) -> BatchTrainer:
    """Make data, model and Trainer."""
    batches = training_batches(run)
    set_seed(run.training.seed)
    model = run.task.family.model_class(run.config)
    use_helpful_threads(model)
    check_sizes(run, model)
    return trainer_of(run, model, batches, validation_batches(run, model))


def train_seeds(run: Run, trainer: BatchTrainer, start: "Start") -> tuple[BatchTrainer, int]:
    """Train the run's seed, and the next one as long as one is given up.

    Args:
        trainer: of the seed that is the run's turn.

    Returns:
        The Trainer of the last seed, and the steps of all.
    """
    if trainer.is_world_process_zero():
        start_folder(run)
        describe_start(run, trainer, start.checkpoint)
    seeds = list(start.given_up)
    train_model(run, trainer, start.checkpoint)
    while last := given_up(trainer.state, trainer.args):
        seeds.append(last)
        trainer = begin_again(run, seeds)
        train_model(run, trainer, None)
    return trainer, sum(seed.steps for seed in seeds) + trainer.state.global_step


def begin_again(run: Run, seeds: list[GivenUp]) -> BatchTrainer:
    """Give up the last of these seeds, say so, and make the Trainer of the next one."""
    wait = run.training.distributed_state.wait_for_everyone
    wait()
    again, last = following(run, seeds), seeds[-1]
    if run.training.process_index == 0:
        give_up(run.folder, seeds)
        print(
            f"step {last.steps:6d}  no fewer wrong predictions in {PATIENCE} checks ({last}): the run begins again with "
            f"seed {again.training.seed} and the {again.training.max_steps:,} steps that are left"
        )
    wait()
    return make_trainer(again)


def describe_start(run: Run, trainer: BatchTrainer, checkpoint: Path | None) -> None:
    """Print what is trained, and from where."""
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    print(
        f"{run.name}: {parameters:,} parameters, {run.data.min_length} to {run.data.max_length} digits, "
        f"{trainer.args.max_steps} steps of {run.training.batch_size}" + (f", from {checkpoint}" if checkpoint else "")
    )
    for line in run.task.describe_sizes(run.data.max_length):
        print(line)
    if checkpoint and run.training.device.type == "cuda" and not run.training.full_determinism:
        print("other bits than without the break are possible: kernels of a GPU are repeated by --full_determinism")


def train_model(run: Run, trainer: BatchTrainer, checkpoint: Path | None) -> None:
    """Train one seed, from a checkpoint if there is one."""
    if checkpoint and trainer.is_world_process_zero():
        relocate_best(checkpoint)
    run.training.distributed_state.wait_for_everyone()
    if not (checkpoint and resume_ended(trainer, checkpoint)):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def save(run: Run, trainer: BatchTrainer) -> None:
    """Put the last and the best weights into the run's folder, and what the validations measured."""
    trainer.check_weights()
    best, tokenizer = trainer.state.best_model_checkpoint, trainer.processing_class
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    save_final(run, trainer.accelerator.unwrap_model(trainer.model), tokenizer, Path(best) if best else None)
    write_results(validation_rows(run, trainer), run.folder / VALIDATION_FILE)


def finish(run: Run, check: Check | None, began: float) -> Checkpoint:
    """Load what was saved, once; certify and evaluate it, and write its card.

    Args:
        check: the last one of the training, if it made one.
        began: `time.perf_counter()` when the run began.
    """
    # What reads checkpoints is loaded when there is one.
    from longhand.hub_cards.checkpoints.certificate_file import certify_checkpoint, with_certificate, with_check
    from longhand.hub_cards.checkpoints.load import complete_checkpoint, load_both, load_checkpoint
    from longhand.hub_cards.publishing.cards import write_card

    last, best = load_both(run.folder)
    if run.training.until_certified:
        last = with_check(last, check)
        certify_checkpoint(last, run.folder / CERTIFICATE_FILE, run.folder, show_proof=False)
        last = with_certificate(last)
        if best is not None and is_certified(last.certificate):
            # No checkpoint is better than one that is certified.
            keep_as_best(run.folder)
            best = load_checkpoint(str(best.folder))
    evaluate(run, [last] if best is None else [last, best], began)
    finished = complete_checkpoint(last, best)
    write_card(finished)
    draw_validations(run)
    remove_checkpoints(run.folder)
    return finished


def draw_validations(run: Run) -> None:
    """Draw exact match by length at the validations of a run, if there are several of them and several lengths."""
    rows = read_results(run.folder / VALIDATION_FILE)
    if len({row["step"] for row in rows}) < FEWEST_DRAWN or len(set(run.data.validation_lengths)) < FEWEST_DRAWN:
        return
    from longhand.hub_cards.evaluation.plots import plot_checkpoints

    tasks = {task: [row for row in rows if row["task"] == task] for task in dict.fromkeys(row["task"] for row in rows)}
    trained = dict.fromkeys(tasks, (run.data.min_length, run.data.max_length))
    plot_checkpoints(tasks, run.folder / CHECKPOINTS_PLOT, trained, run.task.size_names[0])
    print(f"wrote {run.folder / CHECKPOINTS_PLOT}")


def evaluate(run: Run, checkpoints: list[Checkpoint], began: float) -> None:
    """Evaluate the last checkpoint and the best one as eval.py does, and write the results.

    If both have the same weights, they are evaluated once.
    """
    from longhand.hub_cards.checkpoints.certificate_file import proves
    from longhand.hub_cards.evaluation.measure import evaluate_lengths, report

    rows: list[Row] = []
    measured: dict[tuple[str, str], list[Row]] = {}
    for checkpoint in (part for whole in checkpoints for part in whole.by_part()):
        task, key = checkpoint.task, (checkpoint.weights, checkpoint.task.name)
        if key not in measured:
            lengths = check_lengths(checkpoint.model, task, map(task.operand_lengths, run.data.test_lengths))
            samples, worst = run.data.test_samples, run.training.test_worst
            # What is not proved says how often it is right where operands have different lengths.
            mixed = [] if checkpoint.certificate and proves(checkpoint.certificate) else lengths[:1]
            measured[key] = evaluate_lengths(checkpoint, lengths, num_samples=samples, worst=worst, mixed=mixed)
        rows += [{**row, "model": checkpoint.name} for row in measured[key]]
    seconds = round(time.perf_counter() - began, 1)
    report([{**row, "run_seconds": seconds} for row in rows], run.folder, (run.data.min_length, run.data.max_length))


def what_next(run: Run) -> list[str]:
    """Return commands of eval.py to try next."""
    task = run.task
    options = [f'--ask "{part.example_question}"' for part in task.parts if part.answers_questions]
    if run.training.until_certified:
        options.append("--certify")
    options.append(f"--lengths {run.data.test_lengths[-1]}")
    # A checkpoint that holds its task as a table needs no plugin.
    plugins = "".join(
        f" --plugin {shell_word(run.folder / plugin.name)}" for plugin in run.plugins if task.transducer is None
    )
    return [f"  {command_of('eval')} {shell_word(run.folder)} {option}{plugins}" for option in options]


def going_on(arguments: list[str], run: Run) -> str:
    """Return the command that trains a run again for twice as many steps, beside it, with sizes that show everything."""
    changed = {"--max_steps": str(2 * run.training.max_steps), "--output_dir": f"{run.folder}-{2 * run.training.max_steps}"}
    if isinstance(run.task, ColumnTask) and run.data.max_length < run.task.trained_length:
        changed["--max_length"] = str(run.task.trained_length)
    kept, words = [], iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name in changed:
            if not value:
                next(words, None)
        elif name != "--resume":
            kept.append(word)
    return f"{command_of('train')} {shlex.join([*kept, *(word for pair in changed.items() for word in pair)])}"


def publish(run: Run, repo_id: str, finished: Checkpoint | None) -> None:
    """Push the finished run. If that fails, the run stays as it is and the error says how to push it later.

    Args:
        finished: the run's checkpoint, if this process has made it.
    """
    from longhand.hub_cards.checkpoints.load import read_checkpoint
    from longhand.hub_cards.publishing.publications import model_publication
    from longhand.hub_cards.publishing.publications import publish as push_publication

    place = run.publishing
    assert place is not None
    api = HfApi(token=place.hub_token)
    try:
        publication = model_publication(finished or read_checkpoint(run.folder), repo_id)
        push = push_publication(publication, private=place.hub_private_repo, revision=place.hub_revision, api=api)
    except (ValueError, OSError, RuntimeError) as error:
        stop(f"{run.folder} is complete but was not pushed: {one_line(error)}; push it by: {by_hand(run, repo_id)}")
    print(f"\n{push}")


def by_hand(run: Run, repo_id: str) -> str:
    """Return the command that pushes the finished run."""
    from longhand.hub_cards.publishing.publications import push_command

    place = run.publishing
    assert place is not None
    return push_command(run.folder, repo_id, place.hub_private_repo, place.hub_revision)


def stop(reason: str) -> NoReturn:
    """End the program with one line and exit status 1."""
    print(f"error: {reason}", file=sys.stderr)
    raise SystemExit(1)


@contextmanager
def stopping_in_one_line(folder: Path) -> Iterator[None]:
    """End the program with one line, what to do, and exit status 1, if something stops a run that has begun."""
    try:
        yield
    except NotFinite as error:
        stop(one_line(error))
    except BrokenPipeError:
        raise
    except (OSError, SafetensorError) as error:
        stop(f"{folder} keeps its last checkpoint: {one_line(error)}; the same command with --resume continues the run")


class Start(NamedTuple):
    """Where a run starts, and where it is pushed to.

    Attributes:
        given_up: the seeds of the weights that were given up.
        checkpoint: where it is resumed from, if anywhere.
        repo_id: where it is pushed to on the Hub, if anywhere.
        complete: whether only the push is left.
    """

    given_up: list[GivenUp]
    checkpoint: Path | None
    repo_id: str | None
    complete: bool


def claim_run(run: Run, held: ExitStack) -> Start:
    """Let the main process look what is left to do, and tell all others. What it refuses, in one line, ends them all."""
    seen: list[Start | None] = [None]
    if run.training.process_index == 0:
        # It prints the line before the others end: a launcher stops all processes as soon as one ends.
        with suppress(SystemExit), refusing_in_one_line(OSError):
            seen = [look(run, held)]
    if run.training.world_size > 1:
        distributed.broadcast_object_list(seen)
    if seen[0] is None:
        raise SystemExit(2)
    return seen[0]


def look(run: Run, held: ExitStack) -> Start:
    """Take the run's folder until `held` is closed, and look what is left to do.

    Raises:
        ValueError, CannotPush: the folder is in use, holds something else or is finished, or the Hub refuses the push.
    """
    held.enter_context(holding(run.folder))
    checkpoint = claim_folder(run)
    complete = is_complete(run.folder)
    repo_id = None
    if place := run.publishing:
        from longhand.hub_cards.publishing.commits import Repository, check_push, own_repo_id

        api = HfApi(token=place.hub_token)
        repo_id = own_repo_id(place.hub_model_id or run.folder.resolve().name, api)
        check_push(Repository(repo_id, "model", bool(place.hub_private_repo), place.hub_revision, api))
        if complete and run.training.until_certified and not is_certified(read_object(run.folder / CERTIFICATE_FILE)):
            raise ValueError(f"{run.folder} is complete but not certified: {by_hand(run, repo_id)} pushes it all the same")
    return Start(read_given_up(run.folder), checkpoint, repo_id, complete)


if __name__ == "__main__":
    main()
