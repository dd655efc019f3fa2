"""This package's card in place of the card that transformers' Trainer writes when it pushes a model."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from longhand.data import Task, task_from_recipe
from longhand.hub_cards.checkpoints.files import ANSWER_FILES, CERTIFICATE_FILE, trained_lengths
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.measure import check_lengths, evaluate_lengths
from longhand.hub_cards.evaluation.report import report
from longhand.hub_cards.evaluation.results import Row
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe, write_recipe

WRITTEN_FOR = ("model_name", "tags")
"""Keys that Trainer passes and this card already contains."""


class HubCard(TrainerCallback):
    """Evaluates the model whenever Trainer pushes it, and pushes results, recipe and this package's card with it.

        trainer = Trainer(model, arguments, ...)
        trainer.add_callback(longhand.HubCard(trainer, lengths=[10, 30, 100]))
        trainer.train()
        trainer.push_to_hub()

    `trainer.push_to_hub()` and `push_to_hub=True` with any `hub_strategy` push the folder `output_dir`. Before that,
    process 0 loads what is pushed, measures it, and writes results.jsonl, accuracy.png, recipe.yaml and README.md beside it.
    Entries that recipe.yaml already has, such as a description, stay.
    """

    def __init__(
        self,
        trainer: Trainer,
        lengths: Sequence[int],
        *,
        num_samples: int = 200,
        seed: int = 0,
        dataset: str | None = None,
        trained_lengths: tuple[int, int] | None = None,
    ):
        """Take the place of the trainer's own `create_model_card`.

        Args:
            trainer: of a model whose configuration names its task.
            lengths: digits, or the task's own unit, of the problems to evaluate on.
            num_samples: problems of each length.
            seed: of these problems.
            dataset: Hub id of the dataset that it is trained on, for the card.
            trained_lengths: shortest and longest trained problem, for the card.

        Raises:
            ValueError: the model is of another package, names no task or cannot take a length; the id is not legal; or the
                folder has the certificate of another model.
        """
        self.trainer, self.num_samples, self.seed, self.dataset = trainer, num_samples, seed, dataset
        self.trained_lengths, self.folder = trained_lengths, Path(trainer.args.output_dir or "")
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        self.task = _find_task(model)
        self.lengths = lengths
        if not self.lengths or num_samples < 1:
            raise ValueError(f"lengths and num_samples must not be empty, got {lengths!r} and {num_samples!r}")
        for part in self.task.for_evaluation.parts:
            check_lengths(model, part, map(part.operand_lengths, lengths))
        if dataset is not None:
            check_repo_id(dataset)
        if (self.folder / CERTIFICATE_FILE).exists():
            raise ValueError(f"{self.folder} has the {CERTIFICATE_FILE} of another model: choose another output_dir")
        self.base_model = _find_base(model)
        self.rows: list[Row] = []
        # Trainer writes its own card last, after all callbacks, so we replace its method.
        vars(trainer)["create_model_card"] = self.create_model_card

    def create_model_card(self, **options: Any) -> None:
        """Write the card, as Trainer asks for it when `push_to_hub` has saved the model."""
        if given := sorted(options.keys() - set(WRITTEN_FOR)):
            raise ValueError(f"{given[0]} is for Trainer's own card; HubCard writes the card from what it measures")
        if self.trainer.is_world_process_zero():
            self._write()

    def on_push_begin(self, args, state, control, **kwargs):
        # A push while training takes the weights of the checkpoint just saved, and no code, and writes no card.
        if state.is_world_process_zero:
            # Files that are still being sent must not change.
            self.trainer._finish_current_push()
        checkpoint = self.folder / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if state.is_world_process_zero and self.trainer.is_in_train and checkpoint.is_dir():
            for file in {file for pattern in ANSWER_FILES for file in checkpoint.glob(pattern) if file.parent == checkpoint}:
                shutil.copy(file, self.folder)
            self._write()

    def _write(self) -> None:
        """Evaluate the checkpoint in the folder; write its recipe, results and card."""
        if self.trainer.processing_class is None:
            self.task.family.tokenizer(self.task).save_pretrained(self.folder)
        file = self.folder / RECIPE_FILE
        recipe = (read_recipe(file) if file.is_file() else {}) | self._recipe()
        write_recipe(recipe, file)
        # Loading draws random numbers; training must go on with its own.
        with torch.random.fork_rng():
            checkpoint = load_checkpoint(str(self.folder))
        if not self.rows or self.rows[0]["weights"] != checkpoint.weights:
            how: dict[str, Any] = {"num_samples": self.num_samples, "seed": self.seed}
            self.rows = []
            for part in checkpoint.by_part():
                lengths = check_lengths(part.model, part.task, map(part.task.operand_lengths, self.lengths))
                self.rows += evaluate_lengths(part, lengths, **how)
        report(self.rows, self.folder, trained_lengths(recipe))
        write_card(self.folder, self.trainer.hub_model_id, self.dataset)

    def _recipe(self) -> dict[str, Any]:
        """The known arguments of the training, by their names in a recipe."""
        arguments, state = self.trainer.args, self.trainer.state
        known: dict[str, Any] = {**self.task.describe(), "trained_by": "transformers.Trainer"}
        known["pushed_at_step"] = state.global_step
        if self.base_model != self.trainer.hub_model_id:
            known["base_model"] = self.base_model
        if self.trained_lengths is not None:
            known["min_length"], known["max_length"] = self.trained_lengths
        known["max_steps"] = state.max_steps or None
        known["batch_size"] = arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
        known["lr_scheduler_type"] = str(getattr(arguments.lr_scheduler_type, "value", arguments.lr_scheduler_type))
        known |= {name: getattr(arguments, name) for name in ("learning_rate", "seed", "data_seed")}
        return {name: value for name, value in known.items() if value is not None}


def _find_task(model: Any) -> Task:
    """The task that a model's configuration names.

    Raises:
        ValueError: it names none, or the model is not of the family that learns it.
    """
    if not (named := getattr(model.config, "task", None)):
        raise ValueError(
            "the model's configuration names no task: load or make the model with **task.family.config_options(task)"
        )
    task = task_from_recipe(named)
    if not isinstance(model, task.family.model_class):
        raise ValueError(f"the card is that of a whole {task.family.model_class.__name__}, got a {type(model).__name__}")
    return task


def _find_base(model: Any) -> str | None:
    """The Hub id that a model was loaded from; None if it was made, or loaded from a folder."""
    name = getattr(model.config, "_name_or_path", "")
    with suppress(ValueError):
        check_repo_id(name)
        return None if os.path.isdir(name) else name
    return None
