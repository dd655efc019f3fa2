"""Every recipe's model on the device against the CPU: losses, gradients, precisions, answers; and short whole runs."""

import math
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils.import_utils import enable_tf32

from longhand import eval as evaluation
from longhand import train
from longhand.data.batches import EvaluationBatches, draw_batch
from longhand.data.collator import IGNORED
from longhand.data.families import to_device
from longhand.data.formatting import Batch
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row, read_results
from longhand.hub_cards.training.arguments import Run, parse_run
from longhand.modeling import parallel_greedy

ROWS, DIGITS = 4, 3
"""Problems of a batch, and their digits."""

CLOSE = 1e-8
"""The largest difference of numbers near 1 that two devices may have in double precision."""

HALF_CLOSE = 0.02
"""The largest share by which autocast may move a loss."""

SMALL_RECIPES = ("addition", "encoder-addition", "paper-attention-probe")
SHORT = {"--max_steps": "20", "--eval_steps": "10", "--batch_size": "32", "--validation_samples": "16"}
SHORT |= {"--test_lengths": "5", "--test_samples": "16"}
RUNS: dict[str, list[str]] = {
    "float32": ["addition", "--until_certified", "False"],
    "practised neighbourhoods": ["addition", "--max_steps", "2000", "--eval_steps", "50", "--batch_size", "256"],
    "practised worst problems": ["addition-absolute", "--practise_worst", "16"],
    "sharper scores": ["addition-absolute-proved"],
    "Muon": ["addition-absolute", "--muon_learning_rate", "0.02"],
    "bf16": ["addition-absolute", "--bf16", "True"],
    "fp16": ["addition-absolute", "--fp16", "True"],
    "TF32": ["addition-absolute", "--tf32", "True"],
    "checkpointed gradients": ["encoder-addition", "--gradient_checkpointing", "True"],
    "settling": ["encoder-addition-settling", "--until_certified", "False"],
    "deterministic kernels": ["addition", "--until_certified", "False", "--full_determinism", "True"],
    "compiled": ["addition-absolute", "--torch_compile", "True"],
}
"""Short runs of train.py, from data to card."""


def run(record: Record) -> None:
    """Compare all recipes, and make the short runs."""
    names = SMALL_RECIPES if record.small else list_recipes()
    for name in names:
        record.measure(name, partial(compare, name, record.device))
    for name, words in list(RUNS.items())[: 1 if record.small else None]:
        record.measure(f"run: {name}", partial(short_run, words, record.small), needs=10)
    record.measure("attention pictures", pictures)


def compare(recipe: str, device: torch.device) -> Row:
    """What a recipe's model computes on a device and on the CPU, in several precisions, and in what the two differ."""
    run = parse_run([recipe, "--use_cpu", "True", "--bf16", "False"])
    # The same numbers whatever is drawn where: dropout has a source of its own on every device.
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(run.config, name):
            setattr(run.config, name, 0.0)
    torch.manual_seed(0)
    model = run.task.family.model_class(run.config)
    batches = list(map(partial(training_batch, run), run.task.parts))
    row: Row = {"what": "model", "parameters": model.num_parameters()}
    row["difference"] = max(difference(model, batch, device) for batch in batches)
    row |= half_precisions(model.float(), batches[0], device)
    if model.can_generate() and run.task.parts[0].answers_questions:
        row["answers_differ"] = answers_differ(run, model, device)
    faults = [name for name in ("float32", "bf16", "fp16") if not row[name] <= HALF_CLOSE]
    faults += ["float64"] * (not row["difference"] < CLOSE) + ["answers"] * bool(row.get("answers_differ"))
    return row | {"faults": faults, "passed": not faults}


def training_batch(run: Run, part: Any) -> Batch:
    """A batch of short problems with the ids of training."""
    digits = max(run.data.min_length, min(DIGITS, run.data.max_length))
    lengths = part.operand_lengths(digits)
    return EvaluationBatches(part, lengths, ROWS, 0, "train", ROWS, collator=run.training_collator)[0]


def step(model: Any, batch: Batch, device: torch.device) -> list[torch.Tensor]:
    """Loss and gradients of a training step, on the CPU."""
    model.to(device).train().zero_grad()
    torch.manual_seed(0)
    loss = model(**to_device(batch, device)).loss
    loss.backward()
    return [loss.detach().cpu(), *(weights.grad.cpu() for weights in model.parameters() if weights.grad is not None)]


def difference(model: PreTrainedModel, batch: Batch, device: torch.device) -> float:
    """The largest difference of losses and gradients between a device and the CPU, in double precision.

    Of a tensor with numbers above 1, it is a share of the largest.
    """
    model.double()
    expected, found = step(model, batch, torch.device("cpu")), step(model, batch, device)
    assert len(expected) == len(found)
    apart = [float((one - other).abs().max()) for one, other in zip(expected, found, strict=True)]
    return max(value / max(1.0, float(one.abs().max())) for value, one in zip(apart, expected, strict=True))


def half_precisions(model: PreTrainedModel, batch: Batch, device: torch.device) -> Row:
    """By how much the loss differs in each precision from that of double precision, as a share of it; infinite for NaN."""
    expected = float(step(model.double(), batch, device)[0])
    model.float()
    row: Row = {}
    for name, dtype in (("float32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss, *gradients = step(model, batch, device)
        finite = bool(loss.isfinite()) and all(bool(own.isfinite().all()) for own in gradients)
        row[name] = abs(float(loss) - expected) / abs(expected) if finite else math.inf
    return row


def answers_differ(run: Run, model: PreTrainedModel, device: torch.device) -> int:
    """How many greedy answers of a device and of the CPU differ, by each way to decode, in double precision."""
    task = run.task.parts[0].for_evaluation
    lengths = task.operand_lengths(max(run.data.min_length, DIGITS))
    batch = draw_batch(model, task, lengths, ROWS, split="train")
    # Rows of tasks whose queries differ in length have no common prompt.
    first = (batch["labels"] != IGNORED).int().argmax(1)
    if len(set(first.tolist())) > 1:
        return 0
    prompts = batch["input_ids"][:, : int(first[0])]
    ways: list[dict[str, Any]] = [{}]
    if model.model.position_encoding.windowed:
        ways.append({"custom_generate": parallel_greedy})
    wrong = 0
    for way in ways:
        written = [_write(model.double(), prompts, where, way) for where in (torch.device("cpu"), device)]
        wrong += ROWS if written[0].shape != written[1].shape else int((written[0] != written[1]).any(1).sum())
    return wrong


def _write(model: Any, prompts: torch.Tensor, device: torch.device, way: dict[str, Any]) -> torch.Tensor:
    model.to(device).eval()
    given = prompts.to(device)
    return model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=12, **way).cpu()


def short_run(words: list[str], small: bool) -> Row:
    """A run of train.py from data to card.

    Raises:
        SystemExit: it failed.
    """
    with TemporaryDirectory() as folder:
        short = [word for pair in SHORT.items() if pair[0] not in words for word in pair]
        device = ["--use_cpu", "True"] if small else []
        try:
            train.main([*words, *short, *device, "--output_dir", f"{folder}/run"])
        finally:
            # These settings of a run are those of the whole process.
            torch.use_deterministic_algorithms(False)
            enable_tf32(False)
        (*_, last) = read_results(Path(folder, "run", "validation.jsonl"))
        return {"what": "run", "steps": last["step"], "token_accuracy": last["token_accuracy"], "passed": True}


def pictures() -> Row:
    """eval.py draws attention of a decoder and of an encoder."""
    for name in ("addition", "encoder-addition"):
        with TemporaryDirectory() as folder:
            words = ["--lengths", "5", "--num_samples", "20", "--attentions", "--output_places"]
            evaluation.main([name, *words, "--output_dir", folder])
    return {"what": "eval.py", "passed": True}
