"""Trains a model by a recipe, evaluates it and writes its folder.

python train.py                                     the main job: the recipe "addition"
python train.py addition-absolute --learning_rate 2e-3
python train.py --list                              all recipes
python train.py addition --push_to_hub              publishes the finished run as USER/addition (--hub_model_id USER/NAME)
accelerate launch --num_processes 2 train.py        several processes, the same global batches
"""

import json
import os
import shutil
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
from huggingface_hub import HfApi
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerState, set_seed
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from longhand.data import EvaluationBatches, FixedBatches, FreshBatches, make_generator
from longhand.data.certificates import CannotCertify, Check, check_neighbourhoods, covering
from longhand.eval import certify_checkpoint, check_lengths, check_weights, evaluate_lengths, load_checkpoint, report
from longhand.hub_cards.metrics.exact_match_by_length.counting import summarize
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.commits import check_push, own_repo_id
from longhand.hub_cards.publishing.push import push_command, push_model
from longhand.hub_cards.reports.results import RESULTS_FILE
from longhand.hub_cards.runs.arguments import CHECKPOINTS_FOLDER, Run, describe_arguments, parse_run
from longhand.hub_cards.runs.checkpoints import BEST_FOLDER
from longhand.hub_cards.runs.console import refusing_in_one_line
from longhand.hub_cards.runs.recipes import RECIPE_FILE, list_recipes, read_recipe, replace_file, write_recipe


class BatchTrainer(Trainer):
    """Trainer over datasets of whole batches (`longhand.data.batches`), which every process indexes for itself.

    The dataloaders are therefore not handed to Accelerate for sharding; all else is the Trainer's.
    """

    def get_train_dataloader(self) -> DataLoader:
        return self._one_by_one(self.train_dataset)

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        return self._one_by_one(self.eval_dataset[eval_dataset] if isinstance(eval_dataset, str) else eval_dataset)

    def _one_by_one(self, batches) -> DataLoader:
        workers = self.args.dataloader_num_workers
        return DataLoader(batches, batch_size=1, shuffle=False, collate_fn=_only, num_workers=workers)


def _only(items: list) -> dict:
    (batch,) = items
    return batch


class ProgressLines(ProgressCallback):
    """A progress bar, and above it one line for every validation of all lengths."""

    def __init__(self, lengths: list[int]):
        super().__init__()
        self.lengths = lengths
        self.loss: float | None = None
        self.exact_match: dict[int, float] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        # A bar that redraws itself is for terminals; a log gets the lines alone.
        if state.is_world_process_zero:
            self.training_bar = tqdm(total=state.max_steps, dynamic_ncols=True, disable=None)
        self.current_step = 0

    def on_prediction_step(self, args, state, control, **kwargs):
        """Validations are short: no bar of their own."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.loss = logs.get("loss", self.loss)
        for length in self.lengths:
            if (value := logs.get(f"eval_{length}_exact_match")) is not None:
                self.exact_match[length] = value
        if len(self.exact_match) == len(self.lengths):
            if state.is_world_process_zero and self.training_bar is not None:
                accuracy = "  ".join(f"{length}: {value:.3f}" for length, value in self.exact_match.items())
                loss = "" if self.loss is None else f"  loss {self.loss:.5f}"
                self.training_bar.write(f"step {state.global_step:6d}{loss}  exact match at digits  {accuracy}")
            self.exact_match = {}


class UntilCertified(TrainerCallback):
    """Checks the model's neighbourhoods at every validation, lets failing ones be practised, and stops when none fails.

    Raises:
        CannotCertify: at once, where no certificate is possible for the model and task.
    """

    def __init__(self, run: Run, model: PreTrainedModel, batches: FreshBatches):
        self.task, self.margin, self.batches = run.task, run.training.certified_margin, batches
        try:
            covering(model, self.task)
        except CannotCertify as error:
            raise CannotCertify(f"{error}; train without one by --until_certified False") from error

    def reached(self, check: Check) -> bool:
        return check.wrong == 0 and check.margin >= self.margin

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # Resumed: the check of the step that was saved, so that the same problems are practised.
        if state.global_step:
            self.batches.practise(check_neighbourhoods(model, self.task).failing)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % args.eval_steps:
            return
        check = check_neighbourhoods(model, self.task)
        self.batches.practise(check.failing)
        if state.is_world_process_zero:
            tqdm.write(
                f"step {state.global_step:6d}  wrong predictions {check.wrong:,} of {check.predictions:,}, "
                f"smallest margin {check.margin:.3f}"
            )
        if self.reached(check):
            control.should_training_stop = True


def make_trainer(run: Run) -> BatchTrainer:
    """Model, batches and Trainer of a run.

    Raises:
        ValueError: batches cannot be divided, or lengths do not fit the model.
    """
    training, data, task = run.training, run.data, run.task
    accumulation = training.gradient_accumulation_steps
    process = {"process": training.process_index, "processes": training.world_size}
    batching = {
        "batch_size": training.batch_size,
        "num_batches": training.max_steps,
        "accumulation": accumulation,
        **process,
    }
    lengths = {"min_length": data.min_length, "max_length": data.max_length, "seed": training.data_seed}
    collator = run.training_collator
    if data.num_train_samples is None:
        batches = FreshBatches(task, **lengths, collator=collator, **batching)
    else:
        batches = FixedBatches(task, data.num_train_samples, **lengths, collator=collator, **batching)

    # Lengths that the task does not train raise here, before any file is written.
    task.sample_lengths(make_generator(training.data_seed), 1, data.min_length, data.max_length)
    set_seed(training.seed)
    model = task.family.model_class(run.config)
    used = [data.max_length, *data.validation_lengths, *data.test_lengths]
    tested = task.for_evaluation
    check_lengths(model, tested, [tested.operand_lengths(length) for length in used])
    check_lengths(model, task.widest, [task.operand_lengths(data.max_length)])
    # Starts of position ids are drawn only while training: one example shows whether the longest operands leave room.
    EvaluationBatches(task, task.operand_lengths(data.max_length), 1, training.data_seed, "train", 1, collator=collator)[0]
    until_certified = UntilCertified(run, model, batches) if training.until_certified else None
    samples = -(-data.validation_samples // training.world_size) * training.world_size
    validation = {
        str(length): EvaluationBatches(
            tested,
            tested.operand_lengths(length),
            samples,
            training.data_seed,
            "validation",
            samples,
            collator=tested.family.collator(run.config),
            **process,
        )
        for length in data.validation_lengths
    }
    training.per_device_train_batch_size = training.batch_size // (training.world_size * accumulation)
    training.per_device_eval_batch_size = samples // training.world_size
    training.save_steps = training.eval_steps
    training.eval_strategy = training.save_strategy = "steps"
    training.metric_for_best_model = f"eval_{max(data.validation_lengths)}_loss"
    training.greater_is_better = False
    trainer = BatchTrainer(
        model=model,
        args=training,
        train_dataset=batches,
        eval_dataset=validation,
        processing_class=task.family.tokenizer(task),
        compute_metrics=_mean_matches,
        preprocess_logits_for_metrics=task.family.count_matches,
    )
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ProgressLines(sorted(set(data.validation_lengths))))
    if until_certified:
        trainer.add_callback(until_certified)
    trainer.create_optimizer_and_scheduler(training.max_steps)
    return trainer


def _mean_matches(prediction) -> dict[str, float]:
    exact, right, supervised = prediction.predictions.T
    accuracy = summarize(exact, right, supervised, np.zeros(len(exact)))
    return {name: accuracy[name] for name in ("exact_match", "token_accuracy")}


def claim_folder(run: Run) -> Path | None:
    """Checks that the output folder is new, or holds this very run unfinished; returns the checkpoint to resume from.

    Raises:
        ValueError: the folder holds a finished run, an unfinished one without `--resume`, or another run's files.
    """
    folder = run.folder
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: choose a folder")
    if (folder / RESULTS_FILE).exists():
        raise ValueError(f"{folder} holds a finished run: remove it or choose another --output_dir")
    recipe_file = folder / RECIPE_FILE
    if not recipe_file.exists():
        if any(path.is_file() for path in folder.rglob("*")):
            raise ValueError(f"{folder} holds files but no run ({RECIPE_FILE} is missing): choose another --output_dir")
        if run.training.resume:
            raise ValueError(f"--resume: {folder} holds no run to continue")
        return None
    if not run.training.resume:
        raise ValueError(f"{folder} holds an unfinished run: continue it with --resume, or remove it")
    before = read_recipe(recipe_file)
    different = [key for key in {**before, **run.recipe} if before.get(key) != run.recipe.get(key)]
    if different:
        listed = ", ".join(f"{key} was {before.get(key)!r}, now {run.recipe.get(key)!r}" for key in different)
        raise ValueError(f"--resume: {folder} holds a run of another configuration ({listed})")
    return last_checkpoint(folder / CHECKPOINTS_FOLDER)


def last_checkpoint(folder: Path) -> Path | None:
    """The latest complete checkpoint. Trainer writes trainer_state.json last, so one without it was cut off."""
    for checkpoint in sorted(folder.glob(f"{PREFIX_CHECKPOINT_DIR}-[0-9]*"), key=_step, reverse=True):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text())
            check_weights(checkpoint)
            for file in checkpoint.glob("*.pt"):
                if not zipfile.is_zipfile(file):
                    raise ValueError(f"{file} is truncated")
        except (OSError, ValueError):
            print(f"{checkpoint} was cut off while it was written and is passed over")
        else:
            return checkpoint
    return None


def _relocate_best(checkpoint: Path) -> None:
    """Lets the state name the best checkpoint where the folder is now: it keeps the path of the run that wrote it."""
    file = checkpoint / "trainer_state.json"
    state = json.loads(file.read_text())
    if state["best_model_checkpoint"] is not None:
        state["best_model_checkpoint"] = str(checkpoint.parent / Path(state["best_model_checkpoint"]).name)
        replace_file(file, json.dumps(state, indent=2, sort_keys=True) + "\n")


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def save_final(trainer: BatchTrainer, run: Run) -> None:
    """Puts the last weights at the run's root and the best ones in `best`, each whole or not at all."""
    partial = run.folder / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.save_pretrained(partial)
    trainer.processing_class.save_pretrained(partial)
    if (best := trainer.state.best_model_checkpoint) is not None:
        keep = ("*.safetensors", "*.py", "config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json")
        (partial / BEST_FOLDER).mkdir()
        for file in (file for pattern in keep for file in Path(best).glob(pattern)):
            shutil.copy2(file, partial / BEST_FOLDER / file.name)
        write_recipe(run.recipe, partial / BEST_FOLDER / RECIPE_FILE)
    shutil.rmtree(run.folder / BEST_FOLDER, ignore_errors=True)
    for path in partial.iterdir():
        os.replace(path, run.folder / path.name)
    partial.rmdir()


def evaluate_final(run: Run, began: float) -> bool:
    """Evaluates what was saved, the last checkpoint and the best one, as eval.py does, and writes the results.

    Returns:
        False where the run should have ended with a certificate and did not.
    """
    certified = (
        not run.training.until_certified or certify_checkpoint(load_checkpoint(str(run.folder)), run.folder)["certified"]
    )
    task = run.task.for_evaluation
    lengths = [task.operand_lengths(length) for length in run.data.test_lengths]
    rows = []
    for folder in (run.folder, run.folder / BEST_FOLDER):
        if folder.is_dir():
            checkpoint = load_checkpoint(str(folder))
            rows += evaluate_lengths(
                checkpoint.model, checkpoint.task, lengths, name=checkpoint.name, num_samples=run.data.test_samples
            )
    seconds = round(time.perf_counter() - began, 1)
    for row in rows:
        row["run_seconds"] = seconds
    report(rows, run.folder, (run.data.min_length, run.data.max_length))
    return certified


def resume_certified(trainer: BatchTrainer, run: Run, checkpoint: Path) -> bool:
    """Whether the run was cut off after its model was certified, so that no step is left; the model is then loaded."""
    callbacks = [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, UntilCertified)]
    if not callbacks:
        return False
    trainer._load_from_checkpoint(str(checkpoint))
    if not callbacks[0].reached(check_neighbourhoods(trainer.model, run.task)):
        return False
    trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    return True


def train(run: Run, trainer: BatchTrainer, checkpoint: Path | None) -> bool:
    """Trains, from a checkpoint if there is one, then saves and evaluates; see `evaluate_final` for what it returns."""
    began = time.perf_counter()
    if trainer.is_world_process_zero():
        run.folder.mkdir(parents=True, exist_ok=True)
        write_recipe(run.recipe, run.folder / RECIPE_FILE)
        parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
        print(
            f"{run.name}: {parameters:,} parameters, {run.data.min_length} to {run.data.max_length} digits, "
            f"{run.training.max_steps} steps of {run.training.batch_size}" + (f", from {checkpoint}" if checkpoint else "")
        )
    if checkpoint and trainer.is_world_process_zero():
        _relocate_best(checkpoint)
    run.training.distributed_state.wait_for_everyone()
    if not (checkpoint and resume_certified(trainer, run, checkpoint)):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if trainer.is_world_process_zero():
        save_final(trainer, run)
        certified = evaluate_final(run, began)
        write_card(run.folder)
        for path in (run.folder / CHECKPOINTS_FOLDER).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
            shutil.rmtree(path)
        if not any((run.folder / CHECKPOINTS_FOLDER).iterdir()):
            (run.folder / CHECKPOINTS_FOLDER).rmdir()
        print(f"trained and evaluated in {time.perf_counter() - began:.0f} seconds\n\nwhat next:")
        for options in what_next(trainer.model, run):
            print(f"  python eval.py {run.folder} {options}")
        return certified
    return True


def check_publishing(run: Run) -> str | None:
    """The repository that the run is to be pushed to, after a look whether the Hub would take it; None without one.

    Raises:
        CannotPush, ValueError: it would not, see `commit_files`.
    """
    if run.publishing is None:
        return None
    api = HfApi(token=run.publishing.token)
    repo_id = own_repo_id(run.publishing.name, api)
    check_push(repo_id, "model", api, private=run.publishing.private, revision=run.publishing.revision)
    return repo_id


def publish(run: Run, repo_id: str) -> None:
    """Pushes the finished run; where that fails, the run stays as it is and the error says how to push it later."""
    place = {"private": run.publishing.private, "revision": run.publishing.revision}
    try:
        print(f"\n{push_model(run.folder, repo_id, **place, api=HfApi(token=run.publishing.token))}")
    except (ValueError, OSError, RuntimeError) as error:
        by_hand = push_command(run.folder, repo_id, **place)
        reason = " ".join(str(error).split())
        print(f"error: {run.folder} is complete but was not pushed: {reason}; push it by: {by_hand}", file=sys.stderr)
        raise SystemExit(1) from error


def what_next(model: PreTrainedModel, run: Run) -> list[str]:
    """Options of eval.py that make sense for the model."""
    options = [f"--lengths {run.data.test_lengths[0]} --attentions"]
    try:
        run.task.family.check_generation(run.task)
    except ValueError:
        pass
    else:
        options[:0] = [f"--lengths {run.data.test_lengths[0]},{run.data.test_lengths[-1]} --decode generate"]
    if run.task.answers_questions:
        options[:0] = [f'--ask "{run.task.example_question}"']
    try:
        covering(model, run.task)
    except CannotCertify:
        return options
    return [*options[:1], "--certify", *options[1:]]


def main(arguments: list[str] | None = None) -> None:
    """Console entry: bad input ends with one line and exit status 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--list"]:
        for name, description in list_recipes().items():
            print(f"{name:28} {description}")
        return
    if set(arguments) & {"--help", "-h"}:
        print(__doc__)
        print("Arguments, set by a recipe or on the command line; all others of transformers.TrainingArguments work too.\n")
        print(describe_arguments())
        return
    logging.disable_progress_bar()
    # Other types are how the libraries below refuse arguments: a schedule's, a reporter's, a folder's.
    with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
        run = parse_run(arguments)
        checkpoint = claim_folder(run)
        repo_id = check_publishing(run)
        trainer = make_trainer(run)
    # No process may write into the folder before all have looked into it.
    run.training.distributed_state.wait_for_everyone()
    certified = train(run, trainer, checkpoint)
    if not certified:
        unpushed = ""
        if repo_id:
            by_hand = push_command(run.folder, repo_id, run.publishing.private, run.publishing.revision)
            unpushed = f"; it was not pushed: {by_hand} does it all the same"
        print(f"error: not certified after {trainer.state.global_step} steps{unpushed}", file=sys.stderr)
        raise SystemExit(1)
    if repo_id and trainer.is_world_process_zero():
        publish(run, repo_id)


if __name__ == "__main__":
    main()
