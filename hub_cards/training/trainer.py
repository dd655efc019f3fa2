"""The Trainer of a run: its model, its batches, and what it does at every validation."""

# Used by: search_report.py, hub_cards/research/gpu, train.py. Changed freely.

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.pytorch_utils import Conv1D

from longhand.data.batches import EvaluationBatches, FixedBatches, FreshBatches
from longhand.data.collator import IGNORED
from longhand.data.families import Family
from longhand.data.formatting import is_repeated, repeat_row
from longhand.data.metrics import measure, preprocess_logits, response_losses
from longhand.data.proofs.check import CannotCertify, Check, check_neighbourhoods, coverings
from longhand.data.splits import make_generator
from longhand.data.tasks.task import Task
from longhand.hub_cards.commands import one_line
from longhand.hub_cards.evaluation.budget import rows_at_once
from longhand.hub_cards.result_rows import Row
from longhand.hub_cards.training.arguments import BEST, Run
from longhand.hub_cards.training.fields import LARGEST_SEED
from longhand.hub_cards.training.run_folder import STATE_FILE, GivenUp, write_hashes
from longhand.modeling.pretrained import NotFinite, find_not_finite
from longhand.modeling.values import send

RESPONSE_LOSS = "response_loss"
"""The metric that takes the place of Trainer's loss, a mean over batches."""


PATIENCE = 10
"""Checks without fewer wrong predictions after which a seed is given up."""

WRONG, PREDICTIONS = "wrong_predictions", "predictions"
"""What a check leaves in the log of a Trainer, which its checkpoints hold."""


class CastTogether(torch.autograd.Function):
    """Casts tensors to another type, and their gradients back: all in one kernel, where autocast has one for each tensor."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.before = tensors[0].dtype
        # What a step does not use has no gradient, rather than zeros, by which weights would decay.
        ctx.set_materialize_grads(False)
        return _cast(tensors, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        cast = iter(_cast([gradient for gradient in gradients if gradient is not None], ctx.before))
        return None, *(None if gradient is None else next(cast) for gradient in gradients)


def _cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    cast = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(cast, [*tensors])
    return tuple(cast)


def autocast_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained float32 parameters, by name, that autocast casts: those of linear layers alone."""
    linear: dict[str, Tensor] = {}
    others: set[Tensor] = set()
    for place, module in model.named_modules():
        for name, weights in module.named_parameters(recurse=False):
            if type(module) in (nn.Linear, Conv1D) and weights.dtype == torch.float32 and weights.requires_grad:
                linear[f"{place}.{name}"] = weights
            else:
                others.add(weights)
    return {name: weights for name, weights in linear.items() if weights not in others}


class BatchTrainer(Trainer):
    """Trainer over datasets of whole batches (`longhand.data.batches`), which every process indexes for itself.

    So Accelerate does not shard the dataloaders. Training stops at the first loss or checkpoint that is not finite.

    Raises:
        NotFinite: a loss or a weight is NaN or infinite; earlier checkpoints are kept.
    """

    model: Any
    sizes_for_best: list[str]
    """The validated sizes that choose the best checkpoint."""
    validated: int
    """Problems of each validated size."""
    best_by_loss: bool
    """Whether the loss at these sizes chooses it, instead of exact match."""

    def evaluate(self, eval_dataset=None, *args, **kwargs):
        """Validate all sizes, and print a line; the metrics say by `BEST` how far the model generalizes."""
        metrics = super().evaluate(eval_dataset, *args, **kwargs)
        if eval_dataset is None:
            matches, tokens, loss = (
                float(np.mean([metrics[f"eval_{size}_{name}"] for size in self.sizes_for_best]))
                for name in ("exact_match", "token_accuracy", "loss")
            )
            # Right tokens count for less than one problem more that is right: they decide among equals alone.
            problems = len(self.sizes_for_best) * self.validated
            metrics[BEST] = -loss if self.best_by_loss else matches + tokens / (2 * problems)
            if self.is_world_process_zero():
                sizes: Any = self.eval_dataset
                accuracy = "  ".join(f"{size}: {metrics[f'eval_{size}_exact_match']:.3f}" for size in sizes)
                losses = [logs["loss"] for logs in self.state.log_history if "loss" in logs]
                shown = "".join(f"  loss {logged:.5f}" for logged in losses[-1:])
                tqdm.write(f"step {self.state.global_step:6d}{shown}  exact match at digits  {accuracy}")
        return metrics

    def _prepare_input(self, data):
        """As Trainer's; a repeated row is moved once, and no copy makes the host wait."""
        if not isinstance(data, torch.Tensor):
            return super()._prepare_input(data)
        if is_repeated(data):
            return repeat_row(self._prepare_input(data[:1]), len(data))
        return send(data, self.args.device)

    def _get_num_items_in_batch(self, batch_samples, device):
        """As Trainer's; the number is sent as the batch is."""
        if self.args.world_size > 1:
            # Processes add their numbers on the device.
            return super()._get_num_items_in_batch(batch_samples, device)
        number = super()._get_num_items_in_batch(batch_samples, torch.device("cpu"))
        return send(number, device) if isinstance(number, torch.Tensor) else number

    @cached_property
    def cast_together(self) -> dict[str, Tensor]:
        """The parameters, by name, that a step of training casts together, see `autocast_weights`.

        None for a graph that is compiled, nor where layers are computed again when the cast parameters are gone.
        """
        run = self.args
        is_left = not (run.bf16 or run.fp16) or run.torch_compile or run.gradient_checkpointing
        return {} if is_left else autocast_weights(self.model)

    def compute_loss(self, model, inputs, *args, **kwargs):
        """As Trainer's; `cast_together` are cast first, unless a wrapper of the model counts on its own parameters."""
        if not (self.cast_together and model is self.model and model.training):
            return super().compute_loss(model, inputs, *args, **kwargs)
        dtype = torch.bfloat16 if self.args.bf16 else torch.float16
        cast = dict(zip(self.cast_together, CastTogether.apply(dtype, *self.cast_together.values()), strict=True))

        def with_cast(**inputs: Any) -> Any:
            return functional_call(model, cast, (), inputs, tie_weights=False)

        return super().compute_loss(with_cast, inputs, *args, **kwargs)

    def prediction_step(self, model, inputs, *args, **kwargs):
        """As Trainer's step; rows that are not `counted` have no supervised tokens."""
        counted = inputs.pop("counted", None)
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        if counted is not None and labels is not None:
            labels = labels.masked_fill(~counted.to(labels.device).unsqueeze(1), IGNORED)
        return loss, logits, labels

    def evaluation_loop(self, *args, **kwargs):
        """As Trainer's loop; the loss is the mean over all response tokens, however they are divided."""
        output = super().evaluation_loop(*args, **kwargs)
        metrics = output.metrics
        for name in [name for name in metrics if name.endswith(RESPONSE_LOSS)]:
            metrics[f"{name.removesuffix(RESPONSE_LOSS)}loss"] = metrics.pop(name)
        return output

    def create_optimizer(self, model=None):
        """Make the optimizer of `optim`, with Muon beside it if it has a rate."""
        if self.optimizer is None and (rate := self.args.muon_learning_rate) is not None:
            from longhand.hub_cards.training.muon import MuonBeside, layer_matrices

            other = super().create_optimizer(model)
            self.optimizer = MuonBeside(layer_matrices(self.model), other, lr=rate, weight_decay=self.args.weight_decay)
        return super().create_optimizer(model)

    def get_decay_parameter_names(self, model):
        """As Trainer's, but no parameter of one dimension: norms and factors are no matrices."""
        matrices = {name for name, weights in model.named_parameters() if weights.ndim > 1}
        return [name for name in super().get_decay_parameter_names(model) if name in matrices]

    def create_scheduler(self, num_training_steps, optimizer=None):
        """Make the schedule of the first `decay_steps` steps; the rate of the last of them holds for the steps after."""
        steps = min(num_training_steps, self.args.decay_steps or num_training_steps)
        schedule = cast(LambdaLR, super().create_scheduler(steps, optimizer))
        if steps < num_training_steps:
            schedule.lr_lambdas = [_held(rate, steps - 1) for rate in schedule.lr_lambdas]
        return schedule

    def get_train_dataloader(self) -> DataLoader:
        """The batches of `train_dataset` as they are, one by one."""
        return self._one_by_one(self.train_dataset)

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        """The batches of the validation of a size, given by its name or by its batches."""
        by_length: Any = self.eval_dataset
        return self._one_by_one(by_length[eval_dataset] if isinstance(eval_dataset, str) else eval_dataset)

    def training_step(self, *args, **kwargs):
        """As Trainer's step; the run ends if the model finds that the loss is not finite."""
        try:
            return super().training_step(*args, **kwargs)
        except NotFinite as error:
            self._refuse(str(error).partition(":")[0])

    def _save_checkpoint(self, *args, **kwargs):
        self.check_weights()
        try:
            super()._save_checkpoint(*args, **kwargs)
        # torch and safetensors raise errors of their own when a file cannot be written.
        except (RuntimeError, SafetensorError) as error:
            raise OSError(f"the checkpoint of step {self.state.global_step} cannot be saved: {one_line(error)}") from error

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        # Process 0 writes trainer_state.json after this, which says that the checkpoint is complete.
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            write_hashes(Path(output_dir))

    def check_weights(self) -> None:
        """Raise NotFinite if a weight is NaN or infinite."""
        if broken := find_not_finite(dict(self.model.named_parameters())):
            self._refuse(f"weights are NaN or infinite ({', '.join(broken[:3])})")

    def _refuse(self, reason: str) -> NoReturn:
        training = self.args
        raise NotFinite(
            f"training stopped at step {self.state.global_step + 1}: {reason}; nothing of this step is saved, choose a "
            f"learning_rate below {training.learning_rate}"
        )

    def _one_by_one(self, batches) -> DataLoader:
        workers = self.args.dataloader_num_workers
        return DataLoader(batches, batch_size=1, shuffle=False, collate_fn=_only, num_workers=workers)


def _held(rate: Callable[[int], float], last: int) -> Callable[[int], float]:
    """Return a schedule's rate by step, which no longer changes after the step `last`."""
    return lambda step: rate(min(step, last))


def _only(items: list) -> dict:
    (batch,) = items
    return batch


class ProgressBar(ProgressCallback):
    """A progress bar, above which validations print a line each."""

    def on_train_begin(self, args, state, control, **kwargs):
        # A bar redraws itself, which suits terminals. A log gets the lines alone.
        if state.is_world_process_zero:
            self.training_bar = tqdm(total=state.max_steps, dynamic_ncols=True, disable=args.disable_tqdm or None)
        self.current_step = 0

    def on_prediction_step(self, args, state, control, **kwargs):
        """Show no bar: validations are short."""

    def on_log(self, args, state, control, **kwargs):
        """Print nothing of what reporters get."""


class UntilCertified(TrainerCallback):
    """Check the model's neighbourhoods at every validation, practise those that fail, and stop when none fails.

    It also stops a seed that is given up, see `given_up`.

    Attributes:
        last: the last check, so that a certificate of the same weights needs none of its own; None before the first.

    Raises:
        CannotCertify: no certificate is possible for the model and task. This is known before training.
    """

    def __init__(self, run: Run, model: PreTrainedModel, batches: FreshBatches):
        self.task = run.task.for_evaluation
        self.ratio = run.training.certified_ratio
        self.batches = batches
        self.last: Check | None = None
        try:
            coverings(model, self.task)
        except CannotCertify as error:
            raise CannotCertify(f"{error}; train without one by --until_certified False") from error

    def check(self, model: PreTrainedModel) -> Check:
        """Check a model. The rounding bound is complete only when the margins already suffice to stop."""
        # The first step is sooner without what makes certificates.
        from longhand.data.proofs.certificate import check_thoroughly

        self.last = check_thoroughly(model, self.task, enough=self.ratio)
        return self.last

    def reached(self, check: Check) -> bool:
        """Whether the run may stop: nothing is wrong, and every lead is at least `certified_ratio` times its bound."""
        return check.ratio is not None and check.ratio >= self.ratio

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        # A resumed run repeats the check of the step that was saved, so that the same problems are practised.
        if state.global_step:
            self.batches.practise(check_neighbourhoods(model, self.task).failing)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % args.eval_steps:
            return
        check = self.check(model)
        # Before the checkpoint of this step is written: what it holds says whether the seed is given up.
        state.log_history.append({"step": state.global_step, WRONG: check.wrong, PREDICTIONS: check.predictions})
        self.batches.practise(check.failing)
        if state.is_world_process_zero:
            least = "more" if self.reached(check) else "less"
            ratio = "" if check.ratio is None else f", {check.ratio:,.3g} times its rounding or {least}"
            tqdm.write(
                f"step {state.global_step:6d}  wrong predictions {check.wrong:,} of {check.predictions:,}, "
                f"smallest margin {check.margin:.3f}{ratio}"
            )
            for part, part_check in check.parts.items():
                tqdm.write(
                    f"{'':13}{part:24}  {part_check.wrong:,} of {part_check.predictions:,}, margin {part_check.margin:.3f}"
                )
        if self.reached(check) or given_up(state, args):
            control.should_training_stop = True


def given_up(state: TrainerState, training: TrainingArguments) -> GivenUp | None:
    """Return the seed of a run if it is given up at the step that it has reached, else None.

    A training until certified may stay at a handful of wrong predictions, whatever it practises, where other first weights
    are certified within seconds. A seed is given up if none of the last `PATIENCE` checks found fewer wrong predictions than
    all checks before, and as many steps are left for the next seed. This follows from the log of the Trainer alone, so a run
    that is repeated, or cut off and resumed, gives up the same seeds at the same steps.
    """
    checks = [logs for logs in state.log_history if WRONG in logs]
    wrong = [int(logs[WRONG]) for logs in checks]
    if len(wrong) <= PATIENCE or training.max_steps - state.global_step < PATIENCE * int(training.eval_steps or 1):
        return None
    fewest = min(wrong[:-PATIENCE])
    # A seed that once had nothing wrong lacks wide margins alone, which grow.
    if fewest == 0 or min(wrong[-PATIENCE:]) < fewest:
        return None
    return GivenUp(training.seed, state.global_step, fewest, int(checks[-1][PREDICTIONS]))


def following(run: Run, seeds: Sequence[GivenUp]) -> Run:
    """Return a run as it goes on after seeds that were given up: with the next seed, and the steps that are left.

    So all seeds together take at most `max_steps`. The problems stay those of `data_seed`.
    """
    training = copy(run.training)
    training.seed = (training.seed + len(seeds)) % (LARGEST_SEED + 1)
    training.max_steps -= sum(seed.steps for seed in seeds)
    return replace(run, training=training)


def training_batches(run: Run) -> FreshBatches | FixedBatches:
    """Return the training data of a run: problems drawn anew for every batch, or a fixed set."""
    training, data = run.training, run.data
    # Lengths that the task does not train raise here, before any file is written.
    for part in run.task.parts:
        part.sample_lengths(make_generator(training.data_seed), 1, data.min_length, data.max_length)
    options: dict[str, Any] = {"min_length": data.min_length, "max_length": data.max_length, "seed": training.data_seed}
    options |= {"batch_size": training.batch_size, "num_batches": training.max_steps, "collator": run.training_collator}
    options |= {"accumulation": training.gradient_accumulation_steps, "mixed": data.batching == "mixed", **_share(run)}
    if data.num_train_samples is None:
        return FreshBatches(run.task, **options)
    return FixedBatches(run.task, data.num_train_samples, **options)


def validation_batches(run: Run, model: PreTrainedModel) -> dict[str, EvaluationBatches]:
    """Return the problems of each validated size, by its name in metrics, in batches that fit into memory.

    Raises:
        ValueError: a size does not fit the model, or there is no problem of it.
    """
    training, samples = run.training, run.data.validation_samples
    family, task = run.task.family, run.task.for_evaluation
    collator = family.collator(run.config)
    batches: dict[str, EvaluationBatches] = {}
    for length in sorted(set(run.data.validation_lengths)):
        for size, part in validated_sizes(task, length).items():
            operands = part.operand_lengths(length)
            problems = EvaluationBatches(part, operands, samples, training.data_seed, "validation", 1, collator=collator)
            one = problems[0]
            family.check_inputs(part, model, one)
            # Every process has as many as it can take at once.
            share = rows_at_once(run.config, one, -(-samples // training.world_size), training.device)
            batches[size] = problems.divided(share * training.world_size, **_share(run))
    return batches


def counts_and_losses(model: PreTrainedModel, family: Family) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return `preprocess_logits`, which also gives the summed loss of each response (count,) in float64."""
    count, ahead = preprocess_logits(model), family.ahead

    def both(logits: torch.Tensor | tuple[torch.Tensor, ...], labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = logits[0] if isinstance(logits, tuple) else logits
        return count(first, labels), response_losses(first, labels, ahead)

    return both


def validation_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """All metrics of `counts_and_losses`, and the mean loss of a response token; rows without labels are left out."""
    matches, losses = cast(tuple[np.ndarray, np.ndarray], prediction.predictions)
    counted = matches[:, 2] > 0
    return measure(matches[counted]) | {RESPONSE_LOSS: float(losses[counted].sum() / matches[counted, 2].sum())}


def validated_sizes(task: Task, length: int) -> dict[str, Task]:
    """Return the parts of a task by the names of one length of theirs in metrics."""
    if len(task.parts) == 1:
        return {str(length): task}
    return {f"{part.name}_{length}": part for part in task.parts}


def validation_rows(run: Run, trainer: BatchTrainer) -> list[Row]:
    """Return what the validations of a run measured, step by step: a row of `VALIDATION_FILE` for each step and size."""
    samples, task = run.data.validation_samples, run.task.for_evaluation
    sizes = {
        size: {"task": part.name, "length": length}
        for length in sorted(set(run.data.validation_lengths))
        for size, part in validated_sizes(task, length).items()
    }
    return [
        {"model": run.folder.resolve().name, **sizes[size], "step": logs["step"], "num_samples": samples}
        | {name: round(logs[f"eval_{size}_{name}"], 6) for name in ("exact_match", "token_accuracy")}
        for logs in trainer.state.log_history
        for size in sizes
        if f"eval_{size}_exact_match" in logs
    ]


def _share(run: Run) -> dict[str, int]:
    """Return which share of each batch this process takes."""
    return {"process": run.training.process_index, "processes": run.training.world_size}


def check_sizes(run: Run, model: PreTrainedModel) -> None:
    """Raise ValueError if the longest problems that the run trains or tests do not fit the model.

    The test split must also hold problems of the shortest size that is tested, which fit where longer ones do.
    """
    data, collator = run.data, run.task.family.collator(model.config)

    def problem(part: Task, length: int, split: str, seed: int = 0) -> EvaluationBatches:
        return EvaluationBatches(part, part.operand_lengths(length), 1, seed, split, 1, collator=collator)

    for part in run.task.for_evaluation.parts:
        # Refused where the test split holds none.
        problem(part, min(data.test_lengths), "test")
        part.family.check_inputs(part, model, problem(part, max(data.test_lengths), "test")[0])
    for part in run.task.parts:
        trained = problem(part.widest, data.max_length, "train", run.training.data_seed)
        part.family.check_inputs(part.widest, model, trained[0])
        # Starts of position ids are drawn only while training: one problem shows whether the longest operands leave room.
        run.training_collator(*trained.global_batch(0))


def trainer_of(
    run: Run, model: PreTrainedModel, batches: FreshBatches | FixedBatches, validation: dict[str, EvaluationBatches]
) -> BatchTrainer:
    """Return the Trainer of a model on batches; `resume_ended` and `train()` go on from it.

    Raises:
        ValueError: optimizer and schedule cannot be made, or no certificate is possible.
    """
    training, data, task = run.training, run.data, run.task
    trainer = BatchTrainer(
        model=model,
        args=training,
        train_dataset=batches,
        eval_dataset=validation,
        processing_class=task.family.tokenizer(task),
        compute_metrics=validation_metrics,
        preprocess_logits_for_metrics=cast(Any, counts_and_losses(model, run.task.family)),
    )
    beyond = [length for length in data.validation_lengths if length > data.max_length] or data.validation_lengths
    chosen = [max(beyond)] if run.best_by_loss else beyond
    trainer.best_by_loss, trainer.validated = run.best_by_loss, data.validation_samples
    trainer.sizes_for_best = [size for length in chosen for size in validated_sizes(task, length)]
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ProgressBar())
    if training.until_certified:
        assert isinstance(batches, FreshBatches), "a fixed training set is refused where practice is asked for"
        trainer.add_callback(UntilCertified(run, model, batches))
    if training.sharper_scores:
        from longhand.hub_cards.training.sharper_scores import SharperScores

        # Before the search for the worst problems, which asks the model that goes on to be trained.
        trainer.add_callback(SharperScores(training.sharper_scores))
    if training.practise_worst:
        from longhand.hub_cards.training.worst_practice import PractiseWorst

        assert isinstance(batches, FreshBatches), "a fixed training set is refused where practice is asked for"
        trainer.add_callback(PractiseWorst(run, batches, training.practise_worst))
    trainer.create_optimizer_and_scheduler(training.max_steps)
    return trainer


def until_certified(trainer: BatchTrainer) -> UntilCertified | None:
    """Return the callback that ends a training as soon as the model is certified, if it has one."""
    callbacks = trainer.callback_handler.callbacks
    return next((callback for callback in callbacks if isinstance(callback, UntilCertified)), None)


def last_check(trainer: BatchTrainer) -> Check | None:
    """Return the last check of a training, if it made one."""
    until = until_certified(trainer)
    return None if until is None else until.last


def resume_ended(trainer: BatchTrainer, checkpoint: Path) -> bool:
    """Whether a checkpoint is the end of a training: its model is certified, or its seed is given up.

    No step is left then, and the model and the state of the checkpoint are loaded.
    """
    until = until_certified(trainer)
    if until is None:
        return False
    trainer._load_from_checkpoint(str(checkpoint))
    model, state = trainer.model, TrainerState.load_from_json(str(checkpoint / STATE_FILE))
    if not given_up(state, trainer.args) and not until.reached(until.check(model)):
        return False
    trainer.state = state
    return True
