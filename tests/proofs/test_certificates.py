"""Certificates of models: the check against exhaustive evaluation, what it refuses, and the command."""

import json
import math
import re
import shutil
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
import torch
from certificate_subjects import damaged, load, slightly_wrong, untrained

from longhand import eval as evaluation
from longhand.data import TASKS, Addition, Copy, CouplingCollator, Multiplication, MultiplicationScratchpad, make_generator
from longhand.data.families import DECODER
from longhand.data.machines import sights
from longhand.data.metrics import count_matches, right_tokens
from longhand.data.proofs import CannotCertify, Check, certify, check_neighbourhoods, covering, hash_weights
from longhand.data.proofs.certificate import ROUNDING_FACTOR, _conclude
from longhand.data.tasks.task import Task
from longhand.hub_cards.result_rows import read_results
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import PAD

assert damaged


def is_right_on_all_problems(model: CoupledGPTForCausalLM, width: int) -> bool:
    """Exact match on every pair of digit strings of this width, leading zeros included."""
    collator = CouplingCollator(model.config.coupling, model.config.max_position_ids)
    for first in range(0, 100**width, 10**5):
        index = np.arange(first, min(first + 10**5, 100**width))
        digits = (index[:, None] // 10 ** np.arange(2 * width) % 10).reshape(-1, 2, width).astype(np.uint8)
        batch = collator(Addition().format(digits, np.full((len(digits), 2), width)))
        labels = batch.pop("labels")
        with torch.inference_mode():
            if not count_matches(*right_tokens(model(**batch, use_cache=False).logits, labels, 1))[:, 0].all():
                return False
    return True


def test_main_job_ends_with_the_certificate_of_its_weights(main_job):
    certificate = json.loads((main_job / "certificate.json").read_text())
    assert certificate["certified"] is True
    assert certificate["weights"] == hash_weights(load(main_job))
    assert certificate["wrong"] == 0 and certificate["failures"] == []
    assert certificate["ratio"] >= ROUNDING_FACTOR and certificate["margin"] > certificate["bound"] > 0
    assert certificate["predictions"] == certificate["neighbourhoods"] == 6_217
    assert certificate["task"] == Addition().describe()
    assert len(certificate["proof"]) == 6 and not any("{" in step for step in certificate["proof"])


def test_certify_command_ends_with_status_0_and_the_same_certificate(main_job, tmp_path, capsys):
    folder = shutil.copytree(main_job, tmp_path / "addition")
    (folder / "certificate.json").unlink()
    evaluation.main([str(folder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert "addition: CERTIFIED. For operands of every length" in capsys.readouterr().out
    again, before = (json.loads((path / "certificate.json").read_text()) for path in (folder, main_job))
    for certificate in (again, before):
        certificate.pop("proof")
    assert again.pop("margin") == pytest.approx(before.pop("margin"), rel=1e-3)
    assert again == before
    (row,) = read_results(tmp_path / "out" / "certificates.jsonl")
    assert row["model"] == "addition" and row["certified"] and row["weights"] == before["weights"]


def test_hash_changes_with_any_weight_and_with_the_configuration(main_job):
    hashes = {hash_weights(load(main_job))}
    for name, _ in load(main_job).named_parameters():
        model = load(main_job)
        with torch.no_grad():
            weight = model.get_parameter(name).view(-1)
            weight[-1] = torch.nextafter(weight[-1], torch.tensor(torch.inf))
        hashes.add(hash_weights(model))
    for option, value in {"norm_eps": 1e-5, "relation_range": [-1, 0], "hidden_act": "gelu"}.items():
        model = load(main_job)
        setattr(model.config, option, value)
        hashes.add(hash_weights(model))
    assert len(hashes) == 1 + len(list(load(main_job).parameters())) + 3
    assert hash_weights(load(main_job)) in hashes


def test_damaged_model_is_not_certified_and_the_command_ends_with_status_1(main_job, damaged, tmp_path, capsys):
    folder = shutil.copytree(main_job, tmp_path / "addition")
    model = slightly_wrong(damaged)
    model.save_pretrained(folder)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(folder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert stop.value.code == 1
    printed = " ".join(capsys.readouterr().out.split())
    certificate = json.loads((folder / "certificate.json").read_text())
    assert "NOT CERTIFIED. Nothing is proved." in printed
    assert certificate["certified"] is False and certificate["proof"] == [] and certificate["weights"] == hash_weights(model)
    assert 0 < len(certificate["failures"]) <= certificate["wrong"] == check_neighbourhoods(model, Addition()).wrong
    for failure in certificate["failures"]:
        assert f"{failure['problem']} writes {failure['instead']!r} instead of {failure['right']!r}" in printed


@pytest.mark.thorough
def test_no_prediction_is_wrong_iff_all_sums_of_up_to_three_digits_are_right(main_job, damaged):
    # The good model is the easy case: the strongest noise without a mistake, and the weakest with one, are the hard ones.
    assert 0 in damaged and len(damaged) > 2
    for wrong, model in damaged.items():
        assert all(is_right_on_all_problems(model, width) for width in (1, 2, 3)) == (wrong == 0)


@pytest.mark.parametrize(("task", "predictions"), [
    (Addition(), 6_217), (Addition(separate_eos=True), 6_217), (Addition(order="all_reversed"), 6_217),
    (Addition(zero_padding=False), 7_514), (Addition(zero_padding=False, order="all_reversed"), 7_514),
], ids=str)  # fmt: skip
def test_untrained_model_of_any_format_is_checked_and_found_wrong(task, predictions):
    model = untrained(task, eos_token_id=task.end_token)
    check = check_neighbourhoods(model, task)
    assert 0 < check.wrong <= check.predictions == predictions
    assert check.margin < 0
    assert len(check.failures) == 10


@pytest.mark.parametrize("training", [True, False])
def test_check_leaves_the_model_as_it_was(training):
    model = untrained(Copy()).train(training)
    before = hash_weights(model)
    check_neighbourhoods(model, Copy(), thorough=True)
    assert model.training == training
    assert hash_weights(model) == before and model.dtype == torch.float32


def test_equal_logits_and_logits_that_are_no_numbers_are_wrong():
    model = untrained(Copy())
    with torch.no_grad():
        model.lm_head.weight.zero_()
    check = check_neighbourhoods(model, Copy())
    assert check.wrong == check.predictions and check.margin == 0
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(CannotCertify, match="NaN"):
        certify(model, Copy())
    check = check_neighbourhoods(model, Copy())
    assert check.wrong == check.predictions and check.margin == -math.inf and check.failures[0].margin is None


@pytest.mark.parametrize("layers", [1, 2])
def test_listed_neighbourhoods_get_the_logits_that_they_have_in_problems(layers):
    """What the check sees of a model is what decoding sees, right and wrong; also where keys of two layers see `$` alone."""
    task = Multiplication(multiplier_length=1) if layers == 2 else MultiplicationScratchpad()
    rule = COUPLING_RULES["multiplication_by_digits" if layers == 2 else task.coupling]
    options = {"num_hidden_layers": layers, "attention_scale": "zero", "num_attention_heads": 13, "head_dim": 2}
    # In double precision: how far float32 rounds depends on the processor.
    model = untrained(task, coupling=rule.name, relation_init="one_per_head", **options).double()
    lengths = np.tile([3, 1] if layers == 2 else [2, 2], (100, 1))
    batch = CouplingCollator(rule.name, 20)(task.examples(make_generator(0), lengths, "train"))
    right = batch.pop("labels")[:, -batch["logits_to_keep"] + 1 :]
    logits, tokens = model(**batch).logits[:, :-1], batch["input_ids"].tolist()
    relation_of = coupled_pair_map(batch["position_ids"], batch["position_ids"], rule.relations, True)[0].tolist()
    first, in_problems = batch["input_ids"].shape[1] - batch["logits_to_keep"], {}
    for row, place in product(range(len(tokens)), range(right.shape[1])):
        keys = [(relation_of[first + place][key], tokens[row][key]) for key in range(1, first + place + 1)]
        seen = tuple(sorted(pair for pair in keys if pair[0] != NOT_RELATED))
        in_problems[tokens[row][first + place], seen] = logits[row, place], int(right[row, place])
    found = 0
    for listed in covering(model, task).batches:
        names = []
        for own, keys in zip(listed.tokens.tolist(), listed.keys.tolist(), strict=True):
            pairs = zip(listed.relations.tolist(), keys, strict=True)
            names.append((own, tuple(sorted(pair for pair in pairs if pair[1] != PAD))))
        rows = np.array([row for row, name in enumerate(names) if name in in_problems], dtype=int)
        if len(rows):
            expected = [in_problems[names[row]] for row in rows]
            torch.testing.assert_close(listed.take(rows).logits(model), torch.stack([part for part, _ in expected]))
            assert listed.right[rows].tolist() == [token for _, token in expected]
        found += len(rows)
    assert found == len(in_problems) > 300


REFUSED = {
    "no window": ({"windowed": False}, {}, "the model has no window"),
    "too many problems": ({"relation_range": [-2, 2]}, {}, "columns has"),
    "too many in three layers": ({"num_hidden_layers": 3}, {}, "not for 3 layer"),
    "next column unseen": ({"relation_range": [-1, 0]}, {}, "one neighbourhood needs two different next tokens"),
    "carry unseen": ({"coupling": "addition_plain"}, {"order": "plain"}, "which no window can hold"),
    "another end token": ({"eos_token_id": 18}, {}, "the task ends with token 17, but decoding stops at eos_token_id 18"),
    "norm without a bound": ({"norm": "layer"}, {}, "norm 'layer' has no bound of its rounding: choose one of rms"),
    "rule of another format": ({}, {"order": "plain"}, "coupling rule 'addition', not 'addition_plain'"),
}


@pytest.mark.parametrize(("options", "format", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_certified_is_refused_before_any_work(options, format, expected, monkeypatch):
    monkeypatch.setattr(sights, "MOST_NEIGHBOURHOODS", 100_000)
    for function in (check_neighbourhoods, certify):
        with pytest.raises(CannotCertify, match=expected):
            function(untrained(**options), Addition(**format))


def test_a_precision_without_a_bound_is_refused():
    with pytest.raises(CannotCertify, match=r"rounding in torch\.bfloat16 has no bound: choose one of"):
        certify(untrained().bfloat16(), Addition())


def test_a_model_that_accepts_other_prompts_than_its_task_writes_is_not_certified(main_job):
    model = load(main_job)
    model.config.prompt_format = {**model.config.prompt_format, "equal_widths": False}
    with pytest.raises(CannotCertify, match="prompt_format of the model's config is not that of the task 'addition'"):
        certify(model, Addition())


@pytest.mark.parametrize("task", [task() for task in TASKS.values() if getattr(task(), "further_couplings", ())])
def test_a_rule_whose_windows_see_other_tokens_than_the_tasks_is_not_certified(task):
    for rule in task.further_couplings:
        with pytest.raises(CannotCertify, match=f"coupling rule '{rule}'"):
            certify(untrained(task, coupling=rule), task)


def ruled() -> list[tuple[Task, str]]:
    """Every task of a decoder with each of its coupling rules."""
    tasks = (*(task() for task in TASKS.values() if task.family is DECODER), Addition(order="all_reversed"))
    return [(task, rule) for task in tasks for rule in task.couplings]


def is_certifiable(model: CoupledGPTForCausalLM, task: Task) -> bool:
    """Whether a task can be certified with the coupling rule of a model."""
    with suppress(CannotCertify):
        covering(model, task)
        return True
    return False


@pytest.mark.parametrize(("task", "rule"), ruled(), ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_bound_that_a_certificate_states_is_the_codes_own(task, rule):
    model = untrained(task, coupling=rule)
    if not is_certifiable(model, task):
        return
    limits = _conclude(Check(wrong=1), model, task).limits
    levels, largest = model.config.position_levels, limits["position_ids"]
    ids = torch.tensor([[0, largest - 1, largest, largest - 1, largest]]).expand(1, levels, -1)
    tokens = torch.tensor([[17, 1, 2, 3, 4]])
    dense = model(tokens, position_ids=ids, output_attentions=True).logits
    torch.testing.assert_close(model(tokens, position_ids=ids).logits, dense)
    with pytest.raises(ValueError, match=f"must be .*{largest}"):
        model(tokens, position_ids=ids + (ids > 0))
    for count, fits in ((limits["tokens"], True), (limits["tokens"] + 1, False)):
        assert (count**2 <= 2**63) == fits
    beyond = torch.zeros(1, levels, 1, dtype=torch.long).expand(-1, -1, limits["tokens"] + 1)
    with pytest.raises(ValueError, match="tokens is too large"):
        model.model.position_encoding.neighbours(beyond, beyond, None, None)


def test_refusal_of_one_checkpoint_comes_before_the_check_of_another(main_job, tmp_path, capsys):
    other = shutil.copytree(main_job, tmp_path / "other")
    untrained(windowed=False).save_pretrained(other)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(main_job), str(other), "--certify", "--output_dir", str(tmp_path / "out")])
    printed = capsys.readouterr()
    assert stop.value.code == 2 and "error: other: no certificate" in printed.err
    assert "CERTIFIED" not in printed.out and not (tmp_path / "out").exists()


def test_check_of_listed_neighbourhoods_counts_every_one_and_names_what_is_wrong():
    task = MultiplicationScratchpad()
    model = untrained(task, num_attention_heads=13, head_dim=2)
    check = check_neighbourhoods(model, task, thorough=True)
    relations = COUPLING_RULES[task.coupling].relations
    assert sum(len(weak.tokens) for weak in check.failing.neighbourhoods) >= check.wrong
    assert check.predictions == covering(model, task).count == task.covering(relations, 1).count
    assert 0 < check.wrong < check.predictions and len(check.failures) == 10
    assert re.match(r"'.' that sees .*0 at \(1, 'only query', 'neither'\)", check.failures[0].problem)


@pytest.mark.parametrize(("name", "value"), [("repetition_penalty", 5.0), ("max_new_tokens", 3), ("eos_token_id", 14)])
def test_no_certificate_where_decoding_is_changed(name, value):
    model = CoupledGPTForCausalLM(CoupledGPTConfig())
    covering(model, Addition())
    setattr(model.generation_config, name, value)
    with pytest.raises(CannotCertify, match=f"{name}[= ]{value}"):
        covering(model, Addition())
