"""Batches of evaluation follow a budget of memory: no pass needs more than the bound that divides them, nor far less."""

import pytest
import torch
from cases import drawn, in_turn
from kinds import recipes_of_kinds
from position_subjects import DECODERS, ENCODERS, LIKE_OTHERS, SETTLING, build, encode, texts_of

from longhand.data.batches import draw_batch
from longhand.data.collator import IGNORED
from longhand.data.metrics import preprocess_logits
from longhand.hub_cards.evaluation import budget
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research.gpu.memory import LiveBytes
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import validation_batches

KINDS = [name for name in recipes_of_kinds() if name != "encoder-multiplication-grid"]
"""A recipe of each kind but the one whose passes take longest."""
RECIPES = [
    *drawn(KINDS, 8),
    *(pytest.param(name, marks=pytest.mark.release) for name in list_recipes() if name not in KINDS),
]

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def bytes_of(model, batch, autocast=False):
    """The most bytes of a pass and of what is counted of it."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast), LiveBytes() as counted:
        options = {"use_cache": False} if model.can_generate() else {}
        preprocess_logits(model)(model(**batch, **options).logits.float(), batch["labels"])
    return counted.peak


def bytes_of_a_row(model, draw, autocast=False, few=2, more=4):
    """By how many bytes a pass grows with each row."""
    least, most = (bytes_of(model, draw(rows), autocast) for rows in (few, more))
    return (most - least) / (more - few)


def check(model, draw):
    bound = budget.bytes_of_row(model.config, draw(1))
    for autocast in (False, True):
        assert bytes_of_a_row(model, draw, autocast) <= bound


@pytest.mark.parametrize("layers", [2, pytest.param(None, marks=pytest.mark.release)], ids=["two layers", "all layers"])
@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_needs_more_than_the_bound(name, layers):
    run = parse_run([name, "--use_cpu", "True", "--bf16", "False"])
    # A third layer should need the memory that the second one gives back; the first one alone has fewer queries.
    run.config.num_hidden_layers = min(layers or run.config.num_hidden_layers, run.config.num_hidden_layers)
    model = run.task.family.model_class(run.config).eval()
    part = run.task.for_evaluation.parts[-1]
    lengths = part.operand_lengths(min(max(run.data.validation_lengths), max(8, run.data.min_length)))
    check(model, lambda rows: draw_batch(model, part, lengths, rows, split="train"))


SETTLED = [f"settling, {kind}" for kind in SETTLING]


@pytest.mark.parametrize(("name", "attention"), in_turn([*DECODERS, *ENCODERS, *SETTLED], ["eager", "sdpa"], LIKE_OTHERS))
def test_no_encoding_needs_more_than_the_bound_for_rows_of_several_lengths(name, attention):
    model = build(name, attn_implementation=attention).float().eval()
    texts = [text for text in texts_of(name) for _ in range(2)]

    def draw(rows):
        batch = dict(encode(name, *texts[:rows], "+".join(["12345"] * 2) if name not in DECODERS else texts[0]))
        batch["labels"] = batch["input_ids"].clamp(max=10)
        return {key: value[:rows] for key, value in batch.items()}

    check(model, draw)


@pytest.mark.release
@pytest.mark.parametrize("name", [name for name in list_recipes() if name.startswith("paper-")])
def test_largest_validations_of_the_papers_fit_and_are_large(name):
    run = parse_run([name, "--use_cpu", "True", "--bf16", "False"])
    model = run.task.family.model_class(run.config).eval()
    part = run.task.for_evaluation.parts[-1]
    lengths = part.operand_lengths(max(run.data.validation_lengths))

    def draw(rows):
        return draw_batch(model, part, lengths, rows)

    # Long passes: two of few rows, in float32 alone.
    needed, bound = bytes_of_a_row(model, draw, few=1, more=3), budget.bytes_of_row(run.config, draw(1))
    # Far less memory than there is would leave a GPU idle.
    assert bound / 5 < needed <= bound
    rows = budget.rows_at_once(run.config, draw(1), 10_000, CUDA)
    assert rows * draw(1)["input_ids"].shape[1] > 10_000


def test_validations_and_evaluations_are_divided_by_the_budget(monkeypatch):
    run = parse_run(["addition", "--use_cpu", "True", "--validation_samples", "11", "--validation_lengths", "5"])
    model = run.task.family.model_class(run.config)
    (batches,) = validation_batches(run, model).values()
    assert [len(batch["input_ids"]) for batch in map(batches.__getitem__, range(len(batches)))] == [11]
    monkeypatch.setattr(budget, "CACHED_TOKENS", 4 * int((batches[0]["labels"][0] != IGNORED).sum()))
    (batches,) = validation_batches(run, model).values()
    assert [len(batch["input_ids"]) for batch in map(batches.__getitem__, range(len(batches)))] == [4, 4, 3]


def test_a_pass_on_an_accelerator_takes_more_rows_and_any_problem_at_least_one():
    run = parse_run(["addition", "--use_cpu", "True"])
    model = run.task.family.model_class(run.config)
    for digits, most in ((5, 10**6), (100, 10**6), (1_000_000, 1)):
        batch = draw_batch(model, run.task, (digits, digits))
        on_cpu, on_device = (budget.rows_at_once(run.config, batch, most, device) for device in (CPU, CUDA))
        assert 1 <= on_cpu <= on_device
    assert on_cpu == on_device == 1
