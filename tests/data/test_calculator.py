"""Tasks made of tasks: the calculator, and one of a user's own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from longhand import eval as evaluation
from longhand import train as training
from longhand.data import Calculator, FreshBatches, build_tokenizer, load_task_dataset, make_generator
from longhand.data.batches import PRACTICE_EVERY
from longhand.data.machines.covering import Practice, Problems
from longhand.data.proofs import Check, check_neighbourhoods, covering, coverings
from longhand.data.proofs.certificate import _conclude
from longhand.data.tasks.composite import LargeSums
from longhand.data.tasks.plugins import load_plugin
from longhand.data.tasks.registry import find_task
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.result_rows import read_results
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import decode

PLUGIN = Path(__file__).parents[1] / "plugins" / "joined.py"
TASK = Calculator(max_operands=4)
RULE = COUPLING_RULES["calculator"]
PARTS = {part.name: part for part in TASK.parts}


def user_task():
    load_plugin(PLUGIN)
    return find_task("copy_or_subtract")()


def untrained(task, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 32, **options}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**task.family.config_options(task), **sizes)).eval()


# The rule.


def test_every_operation_has_levels_and_relations_of_its_own():
    members = [COUPLING_RULES[name] for name in RULE.members]
    assert RULE.levels == sum(rule.levels for rule in members) and len(RULE.relations) == len(set(RULE.relations)) == 19
    first_relation = first_level = 0
    for rule in members:
        own = RULE.relations[first_relation : first_relation + len(rule.relations)]
        assert [relation[first_level : first_level + rule.levels] for relation in own] == list(rule.relations)
        others = {entry for relation in own for entry in (*relation[:first_level], *relation[first_level + rule.levels :])}
        assert others == {"neither"}
        first_relation, first_level = first_relation + len(rule.relations), first_level + rule.levels


def test_rows_of_several_operations_are_planned_as_each_alone():
    tokenizer = build_tokenizer()
    prompts = ["0653+0049=", "049-653=", "12*345=", "0007+0005+0009="]
    batch = tokenizer(prompts, padding=True, return_tensors="pt").input_ids
    plan, columns = RULE.plan(batch, batch.shape[1] + 30), batch.shape[1] + 30
    lengths = []
    for row, prompt in enumerate(prompts):
        tokens = batch[row : row + 1]
        alone = RULE.plan(tokens, columns)
        assert torch.equal(plan.position_ids[row], alone.position_ids[0])
        name = next(name for name in RULE.members if PARTS[name].sign in prompt)
        own = COUPLING_RULES[name].plan(tokens, columns)
        level = sum(COUPLING_RULES[other].levels for other in RULE.members[: RULE.members.index(name)])
        expected = torch.zeros_like(alone.position_ids)
        expected[:, level : level + own.position_ids.shape[1]] = own.position_ids
        assert torch.equal(alone.position_ids, expected) and alone.response_length == own.response_length
        lengths.append(own.response_length)
    assert plan.response_length == max(lengths)


# The task.


@pytest.mark.parametrize(
    ("question", "prompt"),
    [("653+49+871", "0653+0049+0871="), ("49 - 653 =", "049-653="), ("12*34", "12*34="), ("7*007", "7*7=")],
)
def test_a_question_becomes_the_prompt_of_its_operation(question, prompt):
    assert TASK.prompt(question) == prompt
    assert TASK.prompt_format.fault(f"${prompt}") is None


@pytest.mark.parametrize("question", ["12/4", "1+2-3", "-5+3", "7", "2^8", "twelve", ""])
def test_what_it_cannot_do_is_refused_in_one_line_with_what_it_can(question):
    with pytest.raises(ValueError) as refusal:
        TASK.prompt(question)
    assert str(refusal.value) == (
        f"the question {question!r} is not one that the task 'calculator' answers, such as '512+880+300' or '49-653' or "
        "'294*68'"
    )


def test_batches_hold_one_task_each_as_often_as_it_is_trained():
    def batches(seed):
        made = FreshBatches(task=TASK, collator=None, batch_size=4, num_batches=400, min_length=1, max_length=3, seed=seed)
        return [made.global_batch(index)[0].tokens for index in range(400)]

    texts = [[decode(row).partition("=")[0] for row in tokens] for tokens in batches(0)]
    signs = ["".join(sorted({sign for text in texts for sign in re.sub("[0-9$]", "", text)})) for texts in texts]
    assert set(signs) == {"+", "-", "*"}
    total = sum(TASK.trained.values())
    for sign, share in (("+", 3 / total), ("-", 2 / total), ("*", 5 / total)):
        assert abs(signs.count(sign) / 400 - share) < 0.08
    assert all(np.array_equal(*pair) for pair in zip(batches(1), batches(1), strict=True))


def test_large_sums_have_every_top_digit_that_their_operands_allow():
    task = LargeSums(max_operands=10)
    lengths = task.sample_lengths(make_generator(0), 2000, 3, 3)
    examples = task.examples(make_generator(0), lengths, "train")
    assert {decode(row)[-2] for row in examples.tokens} >= set("56789")
    assert all(len(set(row)) == 1 for row in lengths.tolist())


def test_failing_problems_are_practised_as_problems_of_their_own_task():
    task = user_task()
    batches = FreshBatches(task=task, collator=None, batch_size=8, num_batches=9, min_length=1, max_length=4, seed=0)
    digits = np.array([[[5, 1], [7, 0]]], dtype=np.uint8)
    batches.practise(Practice([Problems(task.parts[1], digits, np.full((1, 2), 2))]))
    texts = [decode(row) for index in (0, PRACTICE_EVERY) for row in batches.global_batch(index)[0].tokens]
    assert all(re.fullmatch(r"\$[0-9]*15-[0-9]*07=8[0-9]+\$", text) for text in texts)


# Certificates.


def test_a_check_covers_every_part_and_practises_those_of_problems():
    task = user_task()
    model = untrained(task)
    joined = check_neighbourhoods(model, task, thorough=True)
    checks = joined.parts
    assert list(checks) == ["copy", "subtraction"]
    assert {problems.task for problems in joined.failing.problems} == set(task.parts)
    assert joined.predictions == sum(check.predictions for check in checks.values())
    assert joined.wrong == sum(check.wrong for check in checks.values()) > 0
    assert joined.predictions == sum(part.count for part in coverings(model, task)) and joined.ratio is None
    assert joined.margin == min(check.margin for check in checks.values())
    # Each part is checked as it is by itself, with the ids of the joined rule.
    for part, check in zip(task.parts, checks.values(), strict=True):
        again = check_neighbourhoods(model, part)
        assert (again.wrong, again.predictions) == (check.wrong, check.predictions)


def test_one_statement_names_all_that_is_proved():
    model = untrained(TASK)
    certificate = _conclude(Check(predictions=125_171, wrong=0, margin=2.0, bound=1e-3, ratio=90.0), model, TASK)
    assert certificate.certified and certificate.task == TASK.describe()
    coverage = next(step for step in certificate.proof if step.startswith("Coverage."))
    assert "each with levels of ids of its own" in coverage
    for part in TASK.parts:
        assert f"{part.name}: {part.every_problem}" in certificate.statement
        assert f"{part.name}: {covering(model, part).argument}" in coverage
    assert any(step.startswith("Check. In each of these neighbourhoods the token") for step in certificate.proof)
    assert sum(part.count for part in coverings(model, TASK)) == 125_171
    assert certificate.limits["position_ids"] == 2**21 - 4


# From a recipe to a card.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calculator") / "small"
    options = {"hidden_size": 20, "num_attention_heads": 20, "head_dim": 4, "intermediate_size": 20, "max_steps": 4}
    options |= {"eval_steps": 2, "batch_size": 8, "validation_samples": 4, "test_samples": 4, "until_certified": False}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    training.main(["calculator", *words, "--test_lengths", "2", "3", "--output_dir", str(folder)])
    return folder


def test_a_run_is_validated_and_tested_part_by_part(run):
    rows = [row for row in read_results(run / "results.jsonl") if row["model"] == "small"]
    assert [(row["task"], row["length"]) for row in rows] == [(name, length) for name in PARTS for length in (2, 3)]
    assert load_checkpoint(str(run)).task == Calculator()
    assert json.loads((run / "config.json").read_text())["prompt_format"].keys() == {"formats"}


def test_one_operation_of_a_model_is_evaluated_alone(run, tmp_path, capsys):
    evaluation.main([str(run), "--lengths", "2", "--num_samples", "4", "--output_dir", str(tmp_path / "all")])
    printed = capsys.readouterr().out
    assert all(f"small: {name}" in printed for name in PARTS)
    task = ["--task", "multiplication_scratchpad"]
    output = ["--output_dir", str(tmp_path / "one")]
    evaluation.main([str(run), *task, "--lengths", "2", "--lengths_b", "1:2", "--num_samples", "4", *output])
    rows = read_results(tmp_path / "one" / "results.jsonl")
    assert [(row["task"], row["length"], row["length_b"]) for row in rows] == [
        ("multiplication_scratchpad", 2, 1), ("multiplication_scratchpad", 2, 2)
    ]  # fmt: skip
    for words, reason in [
        (["--lengths", "2", "--lengths_b", "2"], "--lengths_b draws one heatmap: choose one of addition_scratchpad, "),
        (["--task", "copy"], "--task copy is for a checkpoint that names no task"),
    ]:
        with pytest.raises(SystemExit):
            evaluation.main([str(run), *words, "--output_dir", str(tmp_path / "refused")])
        assert reason in capsys.readouterr().err


def test_rows_of_a_dataset_say_which_task_they_are_of():
    rows = list(load_task_dataset("calculator", max_length=3, num_samples=200, streaming=True, position_ids=True))
    assert {row["task"] for row in rows} == set(PARTS)
    for row in rows:
        tokens = torch.tensor([row["input_ids"]])
        expected = RULE.plan(tokens, tokens.shape[1]).position_ids[0]
        assert torch.equal(torch.tensor(row["position_ids"]), expected)
        first, sign, second = re.match(r"([0-9]+)([-+*])(.*)=", row["prompt"]).groups()
        numbers = [int(number) for number in (first, *second.split("+"))]
        answer = {"+": sum(numbers), "-": numbers[0] - numbers[-1], "*": numbers[0] * numbers[-1]}[sign]
        assert int(row["answer"]) == answer
    assert len({row["prompt"] for row in rows}) == len(rows)
