"""Encoders that settle: their passes against an oracle that adds and multiplies by itself, and their certificates."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from publishing_subjects import model_card

import longhand
from longhand import eval as evaluation
from longhand import train
from longhand.data import load_task_dataset, make_generator
from longhand.data.collator import collate_labels
from longhand.data.families import ENCODER
from longhand.data.proofs import CannotCertify, certify, check_neighbourhoods, covering
from longhand.data.proofs.verify_certificate import Refused, verify
from longhand.data.proofs.windows.networks import EncoderRounding
from longhand.data.tasks.encoder_addition import EncoderAddition
from longhand.data.tasks.encoder_multiplication import EncoderMultiplication
from longhand.data.tasks.encoder_multiplication_grid import EncoderMultiplicationGrid
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.data.tokenization import build_encoder_tokenizer
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.load import unpack
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling import settling as settling_module
from longhand.modeling.settling import NO_STATE, LabelCases, cases_at, draw_states, find_answers, pass_targets, settle
from longhand.modeling.vocabulary import FIELD_PAD, NOT_KNOWN, PAD_LABEL, PLUS, STATES, TIMES

SUMS, PRODUCTS, GRIDS = EncoderAddition(), EncoderMultiplication(spill=True), EncoderMultiplicationGrid()
BOTH = pytest.mark.parametrize("task", [SUMS, PRODUCTS], ids=["sums", "products"])
MAPS = {SUMS: ("coupled", (0, 1), 1), PRODUCTS: ("uniform", (-1, 0), 1), GRIDS: ("grid", (-100, 100), 3)}


def build(task: EncoderTask = SUMS, **options) -> PairwiseBertForTokenClassification:
    """A model with random weights."""
    torch.manual_seed(0)
    name, window, most = MAPS[task]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.5}
    maps = {"pair_maps": [name], "relation_range": list(window), "max_multiplier_length": most, "windowed": True}
    config = PairwiseBertConfig(**(sizes | maps | {"label_states": True, "sink": True} | options))
    return PairwiseBertForTokenClassification(config).eval()


def oracle(cases: LabelCases) -> torch.Tensor:
    """Ideal labels of cases as logits, by the arithmetic of columns, one case at a time."""
    slots = (part.tolist() for part in (cases.keys, cases.key_states, cases.relations))
    labels = []
    for token, keys, states, relations in zip(cases.tokens.tolist(), *slots, strict=True):
        seen = [slot for slot in zip(relations, keys, states, strict=True) if slot[0] >= 0]
        labels.append(ideal_sum(token, seen) if len(keys) == 4 else ideal_product(token, seen))
    return torch.nn.functional.one_hot(torch.tensor(labels, dtype=torch.long), len(STATES)).float()


def digit(token: int) -> int:
    return token if token < 10 else 0


def ideal_sum(token: int, seen: list[tuple[int, int, int]]) -> int:
    first = [key for relation, key, state in seen if (relation, state) == (0, NO_STATE)]
    below = [key for relation, key, state in seen if relation == 1]
    label = next((state for relation, _, state in seen if relation == 1 and state != NO_STATE), None)
    carries = {0}
    if below:
        total = sum(map(digit, below))
        one = all(key == FIELD_PAD for key in below)
        shown = {carry: (1 if carry else PAD_LABEL) if one else (total + carry) % 10 for carry in (0, 1)}
        carries = {(total + carry) // 10 for carry in (0, 1) if label in (NOT_KNOWN, shown[carry])}
    if len(carries) > 1:
        return NOT_KNOWN
    (carry,) = carries
    if token == PLUS or (token == FIELD_PAD and first == [FIELD_PAD]):
        return 1 if carry else PAD_LABEL
    return (digit(token) + sum(map(digit, first)) + carry) % 10


def ideal_product(token: int, seen: list[tuple[int, int, int]]) -> int:
    (multiplier,) = (key for relation, key, _ in seen if relation == 2)
    below = [(key, state) for relation, key, state in seen if relation == 0]
    carries = {0}
    for key, state in below:
        product = multiplier * digit(key)
        possible = range(max(multiplier, 1))
        shown = {carry: (product + carry) % 10 if key != FIELD_PAD or carry else PAD_LABEL for carry in possible}
        carries = {(product + carry) // 10 for carry in possible if state in (NOT_KNOWN, shown[carry]) or not multiplier}
    if len(carries) > 1:
        return NOT_KNOWN
    (carry,) = carries
    if token in (TIMES, FIELD_PAD) or (multiplier == 0 and below):
        return carry or PAD_LABEL
    return (multiplier * token + carry) % 10


def draw(task: EncoderTask, digits: int, count: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and right labels of problems; some sums have long runs of nines."""
    generator = make_generator("settling", seed, digits)
    sampled = replace(task, sampling="mixed") if task is SUMS else task
    operands = sampled.draw_operands(generator, np.full((count, 1), digits))
    batch = collate_labels(task.write(operands, digits + int(generator.integers(3)), generator))
    return batch["input_ids"], batch["labels"]


def settled(task: EncoderTask, input_ids: torch.Tensor, label=oracle) -> torch.Tensor:
    return settle(input_ids, find_answers(MAPS[task][0], input_ids, *MAPS[task][1:]), label)


@BOTH
@pytest.mark.parametrize("digits", [1, 2, 30])
def test_ideal_passes_end_with_the_answer(task, digits):
    input_ids, labels = draw(task, digits)
    logits, states = settled(task, input_ids)
    answer = labels >= 0
    assert torch.equal(states[answer], labels[answer]) and torch.equal(logits.argmax(-1)[answer], labels[answer])
    assert (states[~answer] == NO_STATE).all() and (logits.argmax(-1)[~answer] == NOT_KNOWN).all()


@BOTH
def test_targets_of_training_are_those_of_the_oracle(task):
    for digits in (1, 2, 6):
        input_ids, labels = draw(task, digits, count=40)
        answers = find_answers(MAPS[task][0], input_ids, *MAPS[task][1:])
        torch.manual_seed(digits)
        states = draw_states(labels, answers)
        assert ((states == labels) | (states == NOT_KNOWN))[labels >= 0].all() and (states[labels < 0] == NO_STATE).all()
        cases = cases_at(input_ids.flatten(), states.flatten(), answers.places, answers.keys, answers.relations)
        targets = pass_targets(MAPS[task][0], input_ids, states, labels)
        assert torch.equal(targets.flatten()[answers.places], oracle(cases).argmax(-1))
        assert (targets[labels < 0] == -100).all()


def test_zero_times_a_number_is_zero():
    digits = np.zeros((1, 2, 3), dtype=np.uint8)
    digits[0, 1] = 3, 5, 6
    batch = collate_labels(PRODUCTS.write(digits, 4))
    _, states = settled(PRODUCTS, batch["input_ids"])
    assert "".join(STATES[state] for state in states[0, 1:]) == "____0"


@BOTH
def test_every_case_of_ideal_passes_is_covered_with_its_ideal_label(task):
    covered = task.covering(MAPS[task][1], 1)
    known = dict(zip(map(case_key, zip(*covered.cases, strict=True)), covered.right.tolist(), strict=True))
    assert len(known) == len(covered.right)
    met = set()

    def record(cases):
        logits = oracle(cases)
        labels = logits.argmax(-1).tolist()
        for key, label in zip(map(case_key, zip(*cases, strict=True)), labels, strict=True):
            assert known[key] == label
            met.add(key)
        return logits

    for digits in (1, 2, 3, 12):
        settled(task, draw(task, digits, count=80)[0], record)
    assert len(met) > 1500


def case_key(case) -> tuple:
    """A case as a value, whatever stands in slots without a key."""
    token, state, keys, states, relations = (part.tolist() for part in case)
    slots = zip(relations, keys, states, strict=True)
    return (token, state, *sorted(slot for slot in slots if slot[0] >= 0))


@BOTH
@pytest.mark.parametrize("sink", [True, False])
def test_one_pass_by_cases_equals_the_pass_over_all_tokens(task, sink):
    model = build(task, sink=sink)
    task = replace(task, text_tokens=3)
    generator = make_generator("pass", sink)
    batch = collate_labels(task.write(task.draw_operands(generator, np.full((5, 1), 4)), 6, generator))
    labels = batch.pop("labels")
    input_ids = batch["input_ids"]
    answers = model.model.find_answers(input_ids)
    states = draw_states(labels, answers)
    cases = cases_at(input_ids.flatten(), states.flatten(), answers.places, answers.keys, answers.relations)
    expected = model.label_cases(cases)
    for options in ({}, {"output_attentions": True}):
        logits = model(**batch, states=states, **options).logits.flatten(0, 1)[answers.places]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_a_row_that_never_settles_says_so_and_does_not_disturb_others():
    input_ids = build_encoder_tokenizer()(["12+95", "17+25"], return_tensors="pt").input_ids
    passes = []

    def label(cases):
        # The ones of the first sum, 2 and 5, swing for ever.
        logits = oracle(cases)
        swings = (cases.tokens == 5) & (cases.keys == 2).any(1)
        passes.append(len(logits))
        logits[swings] = torch.nn.functional.one_hot(cases.states[swings].eq(7).long() + 7, len(STATES)).float()
        return logits

    logits, states = settled(SUMS, input_ids, label)
    assert "".join(STATES[label] for label in logits[0, 2:].argmax(-1)) == "???"
    assert "".join(STATES[label] for label in logits[1, 2:].argmax(-1)) == "_42"
    assert len(passes) == 4 and (states[0, 2:] == NOT_KNOWN).all()


def test_a_sink_lets_a_head_count_equal_keys():
    for sink in (False, True):
        torch.manual_seed(0)
        model = build(sink=sink)
        pair = LabelCases(
            *map(torch.tensor, ([3], [NOT_KNOWN], [[3, 0, 0, 0]], [[NOT_KNOWN, -1, -1, -1]], [[0, -1, -1, -1]]))
        )
        twin = pair._replace(
            keys=torch.tensor([[3, 3, 0, 0]]),
            key_states=torch.tensor([[NOT_KNOWN, NOT_KNOWN, -1, -1]]),
            relations=torch.tensor([[0, 0, -1, -1]]),
        )
        assert torch.allclose(model.label_cases(pair), model.label_cases(twin), atol=1e-5) != sink


def test_training_draws_states_and_reaches_every_weight():
    model = build().train()
    input_ids, labels = draw(SUMS, 5, count=50)
    losses = [model(input_ids, labels=labels).loss for _ in range(2)]
    assert losses[0] != losses[1]
    losses[0].backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())
    assert torch.isfinite(model.eval()(input_ids, labels=labels).loss)


def test_inputs_that_cannot_settle_are_refused(monkeypatch):
    model, input_ids = build(), draw(SUMS, 3)[0]
    with pytest.raises(ValueError, match="states are for a model with label_states"):
        model.model(input_ids)
    for states in (torch.full_like(input_ids, 12), torch.zeros_like(input_ids[:, 1:])):
        with pytest.raises(ValueError, match=r"states must be .*, got"):
            model(input_ids, states=states)
    with pytest.raises(ValueError, match="must have one '\\+' or"):
        model(input_ids[:, :2])
    with pytest.raises(ValueError, match="max_multiplier_length = 1 digits, got 2"):
        build(PRODUCTS)(build_encoder_tokenizer()("12*34", return_tensors="pt").input_ids)
    monkeypatch.setattr(settling_module, "MOST_TOKENS", input_ids.numel() - 1)
    with pytest.raises(ValueError, match="a batch may have"):
        model(input_ids)


def test_tasks_whose_answers_begin_elsewhere_are_refused():
    for task, labels in ((EncoderMultiplication(), 1), (EncoderMultiplication(multiplier_length=2, spill=True), 3)):
        with pytest.raises(ValueError, match=rf"so written has {labels} label\(s\)"):
            ENCODER.check_config(task, build(PRODUCTS).config)


@pytest.mark.parametrize(("options", "expected"), [
    ({"relation_range": [0, 2]}, r"those of relation_range \[0, 1\], not \[0, 2\]"),
    ({"pair_maps": ["relative"]}, "those of pair_maps 'coupled', not 'relative'"),
])  # fmt: skip
def test_what_has_no_certificate_is_refused(options, expected):
    with pytest.raises(CannotCertify, match=expected):
        covering(build(**options), SUMS)


class Right(PairwiseBertForTokenClassification):
    """Gives the ideal label in every case; with `swaps`, 8 in place of 9 and 9 in place of 8."""

    swaps = False

    def label_cases(self, cases):
        logits = oracle(cases)
        if self.swaps:
            logits[:, [8, 9]] = logits[:, [9, 8]]
        return logits


@BOTH
def test_a_model_is_right_in_all_cases_iff_it_is_ideal(task):
    model = Right(build(task).config).eval()
    check = check_neighbourhoods(model, task)
    targets = task.covering(MAPS[task][1], 1).right
    assert (check.wrong, check.margin, check.predictions) == (0, 1.0, len(targets)) and not check.failing
    model.swaps = True
    check = check_neighbourhoods(model, task)
    assert check.wrong == int(((targets == 8) | (targets == 9)).sum())
    assert {(failure.right, failure.instead) for failure in check.failures} <= {("8", "9"), ("9", "8")}
    assert 0 < sum(len(problems.digits) for problems in check.failing.problems) <= check.wrong


def lively(task: EncoderTask, dtype: torch.dtype) -> PairwiseBertForTokenClassification:
    """A model with random weights, biases and norms that are not those at the start of training."""
    model = build(task, hidden_act="gelu_pytorch_tanh").to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight += 0.3 * torch.randn(weight.shape)
    return model


@BOTH
@torch.inference_mode()
def test_rounding_of_a_pass_stays_within_its_bound(task):
    covered = task.covering(MAPS[task][1], 1)
    some = covered.take(np.random.default_rng(0).permutation(covered.count)[:300])
    right, leads, bounds = some.right.unsqueeze(1), {}, {}
    for dtype in (torch.float32, torch.float64):
        model = lively(task, dtype)
        exact, bounds[dtype] = EncoderRounding(model).lead_and_bound(some)
        others = exact.isfinite()
        logits = model.label_cases(some.cases).double()
        leads[dtype] = logits.gather(1, right) - logits
        assert ((leads[dtype] - exact)[others].abs() <= bounds[dtype][others]).all()
    torch.testing.assert_close(leads[torch.float64][others], exact[others], atol=1e-11, rtol=0)
    assert (bounds[torch.float64] < 1e-6).all() and bounds[torch.float32].isfinite().all()
    moved = (leads[torch.float32] - exact)[others].abs() / bounds[torch.float32][others]
    assert moved.max() > 1e-4


@torch.inference_mode()
def test_large_weights_that_cancel_in_a_pass_are_refused():
    some, model = SUMS.covering((0, 1), 1).take(np.arange(50)), lively(SUMS, torch.float32)
    layer = model.model.layers[0]
    layer.up_proj.weight[1], layer.up_proj.bias[1] = layer.up_proj.weight[0], layer.up_proj.bias[0]
    layer.down_proj.weight[:, 0], layer.down_proj.weight[:, 1] = 2.0**24, -(2.0**24)
    lead, bound = EncoderRounding(model).lead_and_bound(some)
    assert (lead < bound).any(1).all()


@pytest.fixture(scope="module")
def briefly_trained(tmp_path_factory):
    """The folder of a run of two steps, without a certificate."""
    folder = tmp_path_factory.mktemp("settling") / "brief"
    options = ["--until_certified", "False", "--max_steps", "2", "--eval_steps", "1", "--batch_size", "8"]
    options += ["--validation_lengths", "5", "--validation_samples", "4", "--test_lengths", "5", "--test_samples", "4"]
    train.main(["encoder-addition-settling", *options, "--output_dir", str(folder)])
    return folder


# README's commands do it too.
@pytest.mark.release
def test_commands_take_an_encoder_that_settles(briefly_trained, tmp_path, capsys):
    out = ["--output_dir", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(briefly_trained), "--certify", *out])
    assert stop.value.code == 1 and "NOT CERTIFIED. Nothing is proved." in " ".join(capsys.readouterr().out.split())
    written = json.loads((briefly_trained / "certificate.json").read_text())
    assert written["wrong"] > 0 and written["task"] == SUMS.describe() and "that sees" in written["failures"][0]["problem"]
    evaluation.main(
        [str(briefly_trained), "--lengths", "4,70", "--num_samples", "3", "--position_maps", "--attentions", *out]
    )
    assert (tmp_path / "out" / "attention-brief.png").is_file()
    card = model_card(briefly_trained)
    assert "until no label changes" in card and "**Not certified.**" in card


def test_a_model_whose_labels_have_other_names_is_not_certified():
    model = build(SUMS)
    model.config.id2label = {**model.config.id2label, 8: "9", 9: "8"}
    with pytest.raises(CannotCertify, match="but id2label names"):
        certify(model, SUMS)


@pytest.mark.release
def test_the_shipped_model_is_verified_until_it_is_damaged_and_adds_a_million_digits(tmp_path, capsys):
    folder = unpack("encoder-addition-settling", tmp_path)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["certified"] and certificate["neighbourhoods"] == len(SUMS.covering((0, 1), 1).right)
    assert len(certificate["proof"]) == 7 and not any("{" in step for step in certificate["proof"])
    verify(folder)
    assert f"VERIFIED. {certificate['statement']}" in capsys.readouterr().out
    model = PairwiseBertForTokenClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        model.classifier.bias[8] += 1e3
    assert not certify(model, SUMS).certified
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    model.save_pretrained(damaged)
    certificate["files"] = hash_files(damaged)
    (damaged / "certificate.json").write_text(json.dumps(certificate))
    with pytest.raises(Refused, match="another token leads the right one"):
        verify(damaged)
    out = ["--output_dir", str(tmp_path / "out")]
    evaluation.main([str(folder), "--lengths", "1000000", "--num_samples", "1", *out])
    (row,) = (json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines())
    assert row["exact_match"] == 1.0
    capsys.readouterr()
    evaluation.main([str(folder), "--ask", f"{'9' * 50}+1"])
    assert capsys.readouterr().out.split()[-1] == f"1{'0' * 50}"
    card = model_card(folder)
    assert "**Certified.**" in card and "`python verify_certificate.py .`" in card


@pytest.mark.parametrize(
    "name", ["encoder-addition-settling", "encoder-multiplication-1-settling", "encoder-multiplication-grid"]
)
def test_a_plain_training_step_asks_a_certified_model_only_for_what_it_knows(name):
    """Its loss is that of one pass from drawn states, which are none that no pass could give."""
    model = longhand.PairwiseBertForTokenClassification.from_pretrained(longhand.zoo(name)).train()
    task, options = model.config.task["task"], {field: own for field, own in model.config.task.items() if field != "task"}
    batch = longhand.collate_rows(list(load_task_dataset(task, max_length=5, num_samples=64, streaming=True, **options)))
    torch.manual_seed(0)
    with torch.inference_mode():
        assert model(**batch).loss < 0.05
