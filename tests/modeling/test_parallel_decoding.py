"""Parallel decoding gives what greedy decoding gives, in fewer passes."""

from functools import wraps

import pytest
import torch
from cases import in_turn
from transformers.generation import StoppingCriteria, StoppingCriteriaList

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand import eval as evaluation
from longhand.data import TASKS
from longhand.data.batches import check_lengths, draw_batch
from longhand.data.collator import IGNORED
from longhand.data.tasks.registry import build_tokenizer
from longhand.hub_cards.evaluation import measure as measuring
from longhand.modeling import parallel_decoding
from longhand.modeling.parallel_decoding import parallel_greedy

TASK_SIZES = {
    "addition": (30, 30),
    "subtraction": (30, 30),
    "parity": (30,),
    "copy": (30,),
    "reverse": (30,),
    "multi_operand_addition": (12, 12, 12),
    "multiplication": (12, 2),
    "addition_scratchpad": (5, 5, 5),
    "multiplication_scratchpad": (4, 3),
    "division": (15, 1),
}
TEXTS = [f"{'372' * 10}+{'518' * 10}=", "653+049=", "1+1="]

tokenizer = build_tokenizer()


def build(**options) -> CoupledGPTForCausalLM:
    """A model that has learned nothing, in float64: nearly equal logits may change places in float32."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 48, "max_position_ids": 60}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**sizes | options)).double().eval()


def both(model, **inputs):
    """Greedy decoding, and parallel decoding."""
    return tuple(model.generate(**inputs, do_sample=False, **how) for how in ({}, {"custom_generate": parallel_greedy}))


@pytest.fixture
def passes(monkeypatch):
    """The number of tokens of every forward pass whose logits were computed."""
    kept, forward = [], CoupledGPTForCausalLM.forward

    @wraps(forward)
    def count(self, *arguments, **options):
        output = forward(self, *arguments, **options)
        kept.append(output.logits.shape[:2].numel())
        return output

    monkeypatch.setattr(CoupledGPTForCausalLM, "forward", count)
    return kept


@pytest.mark.parametrize(("name", "layers"), in_turn(TASK_SIZES, [1, 2]))
def test_every_task_is_decoded_as_greedy_decoding_does(name, layers):
    task = TASKS[name]()
    options = task.family.config_options(task)
    model = build(num_hidden_layers=layers, **options)
    batch = draw_batch(model, task, TASK_SIZES[name], 4)
    prompts = batch["input_ids"][:, : int((batch["labels"] != IGNORED).int().argmax(1)[0])]
    greedy, parallel = both(model, input_ids=prompts, attention_mask=torch.ones_like(prompts))
    assert torch.equal(greedy, parallel)


@pytest.mark.parametrize("options", [{}, {"max_new_tokens": 50}, {"max_new_tokens": 3}, {"use_cache": False}], ids=str)
@pytest.mark.parametrize("layers", [1, 3])
def test_padded_batches_equal_greedy_decoding(layers, options):
    model = build(num_hidden_layers=layers)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    greedy, parallel = both(model, **batch, **options)
    assert torch.equal(greedy, parallel)


def test_a_model_without_a_window_is_refused():
    model = build(position_encoding="learned")
    with pytest.raises(ValueError, match="with a window"):
        model.generate(**tokenizer(TEXTS[1], return_tensors="pt"), do_sample=False, custom_generate=parallel_greedy)


def test_end_tokens_end_each_response_of_a_batch():
    model = build()
    batch = tokenizer(["653+049=", "111+222=", "999+001="], padding=True, return_tensors="pt")
    long = model.generate(**batch, do_sample=False, max_new_tokens=30, eos_token_id=None)[:, 9:]
    for ends in ([long[0, 0].item()], long[:, 1].tolist(), long[:, 4].tolist()):
        greedy, parallel = both(model, **batch, eos_token_id=ends, max_new_tokens=30)
        assert torch.equal(greedy, parallel) and torch.isin(greedy[0, 9:], torch.tensor(ends)).any()


def test_a_trained_sum_takes_few_passes_and_later_ones_only_what_changed(main_job, passes):
    model = CoupledGPTForCausalLM.from_pretrained(main_job).eval()
    digits = "".join(map(str, torch.randint(0, 10, (600,), generator=torch.Generator().manual_seed(0)).tolist()))
    inputs = tokenizer(f"{digits}+{digits[::-1]}=", return_tensors="pt")
    greedy = model.generate(**inputs, do_sample=False)
    steps = len(passes)
    passes.clear()
    assert torch.equal(model.generate(**inputs, do_sample=False, custom_generate=parallel_greedy), greedy)
    assert len(passes) < steps / 20
    assert sum(passes) < 4 * steps


def test_slow_progress_takes_no_more_passes_than_the_ordinary_loop_and_few_more_predictions(passes):
    # The response is a chain: every token depends on the one before, in a way that nothing has learned.
    model = build(num_hidden_layers=2)
    inputs = tokenizer(f"{'372' * 25}+{'518' * 25}=", return_tensors="pt")
    greedy = model.generate(**inputs, do_sample=False)
    steps = len(passes)
    passes.clear()
    assert torch.equal(model.generate(**inputs, do_sample=False, custom_generate=parallel_greedy), greedy)
    assert len(passes) <= steps
    assert sum(passes) <= parallel_decoding.COST * (steps + parallel_decoding.FIRST_TOKENS)


class Never(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.zeros(len(input_ids), dtype=torch.bool)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"do_sample": True}, "sample"),
        ({"num_beams": 2}, "beam search"),
        ({"repetition_penalty": 1.5}, "RepetitionPenaltyLogitsProcessor"),
        ({"suppress_tokens": [3]}, "SuppressTokensLogitsProcessor"),
        ({"min_new_tokens": 3}, "MinNewTokensLengthLogitsProcessor"),
        ({"max_time": 3.0}, "MaxTimeCriteria"),
        ({"stopping_criteria": StoppingCriteriaList([Never()])}, "Never"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores"),
    ],
)
def test_what_is_not_greedy_is_refused_by_name(options, named):
    prompts = tokenizer(TEXTS[1], return_tensors="pt")
    with pytest.raises(ValueError, match=f"parallel decoding is greedy decoding.* does not take .*{named}"):
        build().generate(**prompts, custom_generate=parallel_greedy, **{"do_sample": False, **options})


def test_sequences_alone_are_returned_in_a_dictionary():
    output = build().generate(
        **tokenizer(TEXTS[0], return_tensors="pt"),
        do_sample=False, custom_generate=parallel_greedy, return_dict_in_generate=True,
    )  # fmt: skip
    assert list(output) == ["sequences"]


def test_evaluation_in_parallel_counts_the_same_event(main_job):
    checkpoint = evaluation.load_checkpoint(str(main_job))
    model = checkpoint.model
    with torch.no_grad():
        # Some responses become wrong.
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    ways = ("teacher_forced", "generate", "parallel")
    lengths = check_lengths(model, checkpoint.task, [(9, 9)])
    rows = [measuring.evaluate_lengths(checkpoint, lengths, num_samples=60, decode=way)[0] for way in ways]
    assert len({row["exact_match"] for row in rows}) == 1
    assert [row["decode"] for row in rows] == list(ways)


def test_a_question_is_answered_in_few_passes(main_job, passes, capsys):
    first, second = "7" * 400, "8" * 399
    evaluation.main([str(main_job), "--ask", f"{first}+{second}"])
    assert capsys.readouterr().out.strip() == str(int(first) + int(second))
    assert len(passes) < 40
    passes.clear()
    evaluation.main([str(main_job), "--ask", "653+49"])
    assert capsys.readouterr().out.strip() == "702" and len(passes) < 5


def test_small_passes_give_the_same(monkeypatch):
    model = build(num_hidden_layers=2)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    greedy = model.generate(**inputs, do_sample=False)
    monkeypatch.setattr(parallel_decoding, "MOST_PREDICTIONS", 5)
    assert torch.equal(model.generate(**inputs, do_sample=False, custom_generate=parallel_greedy), greedy)


def test_a_plan_of_a_map_is_decoded_as_greedy_decoding_does():
    """A map takes the place of the ids that a model's rule derives; a map for each head is refused by its reason."""
    torch.manual_seed(0)
    for options in ({}, {"coupling": "given", "num_relations": 5}, {"num_hidden_layers": 2}):
        model = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=32, intermediate_size=16, **options)).eval()
        inputs = tokenizer(["653+049=", "111+222="], return_tensors="pt")
        columns = inputs["input_ids"].shape[1] + 6
        pair_map = torch.randint(-1, 3, (1, columns, columns)).masked_fill(torch.eye(columns).bool(), 0)
        plan = {"pair_map": pair_map, "suppress_tokens": None, "max_new_tokens": 6}
        expected = model.generate(**inputs, **plan)
        assert torch.equal(model.generate(**inputs, **plan, custom_generate=parallel_greedy), expected)
        plan["pair_map"] = pair_map.unsqueeze(1).expand(-1, 4, -1, -1)
        with pytest.raises(ValueError, match="one map for all heads"):
            model.generate(**inputs, **plan, custom_generate=parallel_greedy)
