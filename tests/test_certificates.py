"""Certificates: the check against exhaustive evaluation, its coverage against a search of what tokens see."""

import json
import random
import re
import shutil
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from longhand import eval as evaluation
from longhand.data import TASKS, Addition, Copy, CouplingCollator, MultiplicationScratchpad, make_generator
from longhand.data.certificates import (
    CannotCertify,
    Certificate,
    Check,
    certify,
    check_neighbourhoods,
    covering,
    hash_weights,
)
from longhand.data.certificates import certificate as certificate_module
from longhand.data.certificates.certificate import ROUNDING_FACTOR, _conclude
from longhand.data.certificates.check import neighbourhood_predictions
from longhand.data.families.decoder import DECODER
from longhand.data.metrics import response_matches
from longhand.data.tasks import addition as addition_module
from longhand.data.tasks.task import Task
from longhand.data.tokenization import build_tokenizer
from longhand.hub_cards.publishing.cards import render_model_card
from longhand.hub_cards.publishing.push import model_files
from longhand.hub_cards.runs.certificates import hash_files
from longhand.hub_cards.runs.results import read_results
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.pair_maps import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import EQUALS, PAD, TOKENS, decode

ORDERS = ["response_reversed", "all_reversed"]
every_order = pytest.mark.parametrize("order", ORDERS)


def load(folder) -> CoupledGPTForCausalLM:
    return CoupledGPTForCausalLM.from_pretrained(folder).eval()


def untrained(task: Task | None = None, **options) -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    coupling = (task or Addition()).coupling
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "coupling": coupling}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | options))).eval()


@dataclass(frozen=True)
class FewerProblems(Addition):
    """Addition with the covering problems of the first batches only, for checks of form and not of truth."""

    def covering(self, relation_range, layers):
        covering = super().covering(relation_range, layers)
        return replace(covering, batches=islice(covering.batches, 2))


@pytest.fixture(scope="module")
def damaged(main_job) -> dict[int, CoupledGPTForCausalLM]:
    """The main job's model with more and more noise on its weights, by the number of wrong predictions; 0 comes last."""
    models = {}
    for strength in range(1, 40):
        model = load(main_job)
        torch.manual_seed(strength)
        with torch.no_grad():
            for parameter in model.model.layers.parameters():
                parameter += 0.02 * strength * parameter.std(correction=0) * torch.randn_like(parameter)
        wrong = check_neighbourhoods(model, Addition()).wrong
        models.setdefault(wrong, model) if wrong else models.update({0: model})
        if len(models) == 5:
            break
    return models


def slightly_wrong(damaged) -> CoupledGPTForCausalLM:
    return damaged[min(wrong for wrong in damaged if wrong)]


def is_right_on_all_problems(model: CoupledGPTForCausalLM, width: int) -> bool:
    """Exact match on every pair of digit strings of this width, leading zeros included."""
    collator = CouplingCollator(model.config.coupling, model.config.max_position_ids)
    for first in range(0, 100**width, 10**5):
        index = np.arange(first, min(first + 10**5, 100**width))
        digits = (index[:, None] // 10 ** np.arange(2 * width) % 10).reshape(-1, 2, width).astype(np.uint8)
        batch = collator(Addition().format(digits, np.full((len(digits), 2), width)))
        labels = batch.pop("labels")
        with torch.inference_mode():
            if not response_matches(model(**batch, use_cache=False).logits, labels)[:, 0].all():
                return False
    return True


def test_main_job_ends_with_the_certificate_of_its_weights(main_job):
    certificate = json.loads((main_job / "certificate.json").read_text())
    assert certificate["certified"] is True
    assert certificate["weights"] == hash_weights(load(main_job))
    assert certificate["wrong"] == 0 and certificate["failures"] == []
    assert certificate["ratio"] >= ROUNDING_FACTOR and certificate["margin"] > certificate["bound"] > 0
    assert certificate["problems"] == 100 + 100**2 + 2 * 100**2
    assert certificate["predictions"] == 100 * 3 + 100**2 * 4 + 2 * 100**2 * 5
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


def test_reported_failures_are_sums_that_the_model_really_writes_wrong(damaged):
    tokenizer, prefixes = build_tokenizer(), set()
    for wrong, model in damaged.items():
        failures = check_neighbourhoods(model, Addition()).failures
        assert bool(failures) == (wrong > 0) and len(failures) <= 10
        for failure in failures:
            query, response = failure.problem.removeprefix("$").split("=")
            first, second = query.split("+")
            assert response == str(int(first) + int(second)).zfill(len(first) + 1)[::-1] + "$"
            assert response.startswith(failure.prefix + failure.right)
            tokens = tokenizer(f"{query}=", return_tensors="pt").input_ids
            written = tokenizer.decode(model.generate(tokens, do_sample=False)[0, tokens.shape[1] :])
            assert written != response
            assert written.startswith(failure.prefix + failure.instead)
            prefixes.add(len(failure.prefix))
    assert len(prefixes) > 1


def test_no_prediction_is_wrong_iff_all_sums_of_up_to_three_digits_are_right(main_job, damaged):
    # The good model is the easy case: the strongest noise without a mistake, and the weakest with one, are the hard ones.
    assert 0 in damaged and len(damaged) > 2
    for wrong, model in damaged.items():
        assert all(is_right_on_all_problems(model, width) for width in (1, 2, 3)) == (wrong == 0)


@pytest.mark.parametrize("forgets_to_end", [False, True])
def test_problems_called_failing_are_exactly_those_that_a_model_gets_wrong(main_job, damaged, forgets_to_end):
    model = load(main_job) if forgets_to_end else damaged[max(damaged)]
    if forgets_to_end:
        with torch.no_grad():
            model.lm_head.weight[Addition().end_token] = 0
    check = check_neighbourhoods(model, Addition())
    collator = CouplingCollator(model.config.coupling, model.config.max_position_ids)
    wrong_problems, wrong_predictions = set(), 0
    for digits, lengths in Addition().covering((0, 1), 1).batches:
        batch = collator(Addition().format(digits, lengths))
        labels = batch.pop("labels")
        with torch.inference_mode():
            exact, right, supervised = response_matches(model(**batch).logits, labels).T.numpy()
        wrong_problems |= {problem.tobytes() for problem in digits[exact == 0]}
        wrong_predictions += (supervised - right).sum()
    assert check.wrong == wrong_predictions
    assert {problem.tobytes() for problems in check.failing for problem in problems.digits} == wrong_problems
    assert all((lengths == digits.shape[2]).all() for _, digits, lengths in check.failing)


def layouts(task, digits, lengths):
    """The tokens of problems, (count, columns) for each layout: which columns hold a digit, and how many there are."""
    tokens = task.format(digits, lengths).tokens
    layout = np.where(tokens == PAD, 2, tokens < 10)
    rows, which = np.unique(layout, axis=0, return_inverse=True)
    return [torch.from_numpy(tokens[which.ravel() == number][:, row < 2]).long() for number, row in enumerate(rows)]


def relations_of(task, tokens, relation_range):
    """What each token of problems of one layout sees in one layer, (columns, columns)."""
    ids = COUPLING_RULES[task.coupling].plan(tokens[:1], tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids, ids, relation_range, True)[0]
    return relations.masked_fill(~torch.ones_like(relations).bool().tril(), NOT_RELATED)


def neighbourhoods_and_next_tokens(task, tokens, relation_range) -> Counter:
    """How often each (neighbourhood, right next token) occurs in the responses, one layer, found from all pairs."""
    relations = relations_of(task, tokens, relation_range)
    begin = int((tokens[0] == EQUALS).int().argmax())
    seen = torch.where(relations >= 0, tokens.unsqueeze(1) * 100 + relations + 1, 0)[:, begin:-1]
    seen = seen.sort(-1, descending=True).values[..., :16]
    seen = torch.nn.functional.pad(seen, (0, 16 - seen.shape[-1]))
    rows = torch.cat([tokens[:, begin:-1, None], seen, tokens[:, begin + 1 :, None]], dim=-1).flatten(0, 1)
    distinct, counts = np.unique(rows.numpy().astype(np.int16), axis=0, return_counts=True)
    return Counter({(row[:-1].tobytes(), int(row[-1])): int(count) for row, count in zip(distinct, counts, strict=True)})


def all_covered(task, batches, relation_range) -> Counter:
    same_layout = (tokens for digits, lengths in batches for tokens in layouts(task, digits, lengths))
    return sum((neighbourhoods_and_next_tokens(task, tokens, relation_range) for tokens in same_layout), Counter())


FORMATS = [Addition(order=order, zero_padding=padded) for padded in (True, False) for order in ORDERS]
every_format = pytest.mark.parametrize("task", FORMATS, ids=lambda task: f"{task.order}-{task.zero_padding}")
# Other windows take millions of covering problems.
cheap_windows = pytest.mark.parametrize("relation_range", [(0, 1), (1, 1)])


def numbers(digits, lengths, padded):
    """Problems of numbers with these digits and lengths; a number without padding has no 0 on top."""
    if padded:
        return digits, np.full(digits.shape[:2], digits.shape[2])
    columns, lengths = np.arange(digits.shape[2]), lengths[..., None]
    digits = np.where(columns < lengths, digits, 0)
    return np.where((columns == lengths - 1) & (columns > 0) & (digits == 0), 1, digits).astype(np.uint8), lengths[..., 0]


@cheap_windows
@every_format
def test_what_tokens_of_other_sums_see_and_what_comes_next_occurs_in_the_covering_problems(task, relation_range):
    generator = np.random.default_rng(0)
    covered = all_covered(task, task.covering(relation_range, 1).batches, relation_range)
    four_digits = np.stack(np.meshgrid(*[np.array([0, 4, 9], dtype=np.uint8)] * 8), axis=-1).reshape(-1, 2, 4)
    problems = [numbers(four_digits, generator.integers(1, 5, size=(len(four_digits), 2)), task.zero_padding)]
    for width in (4, 7, 20):
        digits = generator.integers(0, 10, size=(2000, 2, width), dtype=np.uint8)
        digits[:1000, 1] = np.where(generator.random((1000, width)) < 0.9, 9 - digits[:1000, 0], digits[:1000, 1])
        problems.append(numbers(digits, generator.integers(1, width + 1, size=(2000, 2)), task.zero_padding))
    assert all_covered(task, problems, relation_range).keys() <= covered.keys()


@every_format
def test_covering_problems_are_legal_groups_of_one_longest_operand(task):
    for digits, lengths in task.covering((0, 1), 1).batches:
        assert lengths.max(axis=1).tolist() == [digits.shape[2]] * len(digits)
        examples = task.format(digits, lengths)
        for tokens, length in zip(examples.tokens, examples.query_lengths, strict=True):
            assert re.fullmatch(task.prompt_format.pattern, decode(tokens[1:length]))


@pytest.mark.parametrize(("order", "relation_range", "decided", "refused"), [
    ("response_reversed", (0, 1), True, False), ("all_reversed", (0, 1), True, False),
    ("response_reversed", (1, 1), False, False),
    ("all_reversed", (0, 0), False, True), ("response_reversed", (0, 0), False, True), ("plain", (-1, 0), False, True),
])  # fmt: skip
def test_one_neighbourhood_with_two_right_answers_is_wrong_for_every_model(order, relation_range, decided, refused):
    task, model = Addition(order=order), untrained(Addition(order=order), relation_range=list(relation_range))
    answers = defaultdict(Counter)
    some = Addition().covering((0, 1), 1).batches
    for (neighbourhood, token), count in all_covered(task, some, relation_range).items():
        answers[neighbourhood][token] += count
    unavoidable = sum(counts.total() - max(counts.values()) for counts in answers.values())
    assert (unavoidable == 0) == decided
    if refused:
        with pytest.raises(CannotCertify, match=r"no window can hold|no model can be right"):
            check_neighbourhoods(model, task)
    else:
        assert check_neighbourhoods(model, task).wrong >= unavoidable


def classes(tokens, relations, layers, number):
    """What each token of one problem can know after so many layers, as a number that equal knowledge shares."""
    known = tokens.tolist()
    relations = relations.tolist()
    for _ in range(layers):
        known = [
            number.setdefault(
                (own, tuple(sorted((known[k], r) for k, r in enumerate(row[: t + 1]) if r != NOT_RELATED))),
                len(number) + 100,
            )
            for t, (own, row) in enumerate(zip(known, relations, strict=True))
        ]
    return known


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("relation_range", [(0, 1), (-1, 1), (0, 2), (1, 2)])
@every_format
def test_each_token_of_a_long_sum_knows_what_one_of_a_short_covering_problem_does(task, relation_range, layers):
    generator, padded = random.Random(0), task.zero_padding
    low, high = relation_range
    below, above = layers * max(-low, 0), layers * max(high, 0)
    reach = below + above + 1
    largest = (100 if padded else 110) * 10 ** (reach - 2)
    number = {}

    def problem(operands):
        lengths = np.array([[len(operand) for operand in operands]])
        digits = np.array([operand + [0] * (lengths.max() - len(operand)) for operand in operands], dtype=np.uint8)
        (tokens,) = layouts(task, digits[None], lengths)
        known = classes(tokens[0], relations_of(task, tokens, relation_range), layers, number)
        return known, tokens[0].tolist(), tokens[0].tolist().index(EQUALS)

    for widths in [(1, 1), (2, 2), (3, 3), (4, 4), (7, 7), (20, 20)] + [(1, 3), (7, 2), (3, 9), (12, 5)] * (not padded):
        first = [generator.randrange(10) for _ in range(max(widths))]
        second = [9 - digit if generator.random() < 0.6 else generator.randrange(10) for digit in first]
        operands = [operand[:width] for operand, width in zip((first, second), widths, strict=True)]
        if not padded:
            operands = [[*operand[:-1], operand[-1] or 4] if len(operand) > 1 else operand for operand in operands]
        known, tokens, equals = problem(operands)
        for step in range(len(tokens) - equals - 1):
            column = step - 1
            lowest = max(column - below, 0)
            end = column + above + 1
            short = [operand[lowest:end] for operand in operands]
            if not padded:
                short = [
                    part + [1] * (len(operand) > end and part[-1] == 0)
                    for part, operand in zip(short, operands, strict=True)
                ]
            assert all(int("".join(map(str, part[::-1])) or 0) < largest for part in short)
            if lowest > 0:
                # One column passes on the carry of all those below.
                values = [int("".join(map(str, operand[:lowest][::-1]))) for operand in operands]
                carry = sum(values) >= 10 ** min(lowest, max(map(len, operands)))
                short = [[9 * carry, *part] for part in short]
                column += 1 - lowest
            short_known, short_tokens, short_equals = problem(short)
            short_step = column + 1
            assert short_known[short_equals + short_step] == known[equals + step]
            assert short_tokens[short_equals + short_step + 1] == tokens[equals + step + 1]


@pytest.mark.parametrize("relation_range", [(0, 1), (1, 1), (-1, 1)])
@pytest.mark.parametrize("padded", [True, False])
def test_covering_problems_are_as_many_as_announced(padded, relation_range):
    covering = Addition(zero_padding=padded).covering(relation_range, 1)
    assert sum(len(digits) for digits, _ in covering.batches) == covering.count


def test_covering_problems_are_all_short_ones_and_then_those_with_a_carry_column():
    widths = defaultdict(list)
    for digits, lengths in Addition().covering((0, 1), 1).batches:
        assert lengths.shape == digits.shape[:2] and (lengths == digits.shape[2]).all()
        widths[digits.shape[2]].append(digits)
    widths = {width: np.concatenate(parts) for width, parts in widths.items()}
    assert {width: len(digits) for width, digits in widths.items()} == {1: 100, 2: 100**2, 3: 2 * 100**2}
    for digits in widths.values():
        assert digits.max() == 9
        assert len(np.unique(digits.reshape(len(digits), -1), axis=0)) == len(digits)
    assert {tuple(ones) for ones in widths[3][:, :, 0].tolist()} == {(0, 0), (9, 9)}


@pytest.mark.parametrize(("task", "predictions"), [
    (Addition(), 140_300), (Addition(separate_eos=True), 140_300), (Addition(order="all_reversed"), 140_300),
    (Addition(zero_padding=False), 153_495), (Addition(zero_padding=False, order="all_reversed"), 153_495),
], ids=str)  # fmt: skip
def test_untrained_model_of_any_format_is_checked_and_found_wrong(task, predictions):
    model = untrained(task, eos_token_id=task.end_token)
    check = check_neighbourhoods(model, task)
    assert 0 < check.wrong <= check.predictions == predictions
    assert check.margin < 0
    assert len(check.failures) == 10
    assert all(failure.problem.endswith(TOKENS[task.end_token]) for failure in check.failures)


def test_distinct_neighbourhoods_are_counted_as_a_search_finds_them(main_job):
    covered = all_covered(Addition(), Addition().covering((0, 1), 1).batches, (0, 1))
    check = check_neighbourhoods(load(main_job), Addition(), thorough=True)
    assert check.neighbourhoods == len({neighbourhood for neighbourhood, _ in covered})


@pytest.mark.parametrize("size", [333, 100_000])
def test_size_of_a_batch_changes_nothing_but_rounding(damaged, size, monkeypatch):
    for model in (damaged[0], slightly_wrong(damaged)):
        before = check_neighbourhoods(model, Addition())
        with monkeypatch.context() as patch:
            patch.setattr(addition_module, "_COVERING_BATCH", size)
            after = check_neighbourhoods(model, Addition())
        assert after.margin == pytest.approx(before.margin, abs=1e-4)
        assert (after.wrong, after.problems, after.predictions) == (before.wrong, before.problems, before.predictions)
        assert sorted(failure.problem for failure in after.failures) == sorted(
            failure.problem for failure in before.failures
        )


@pytest.mark.parametrize("training", [True, False])
def test_check_leaves_the_model_as_it_was(training):
    model = untrained().train(training)
    before = hash_weights(model)
    check_neighbourhoods(model, FewerProblems(), thorough=True)
    assert model.training == training
    assert hash_weights(model) == before and model.dtype == torch.float32


def test_margin_within_rounding_proves_nothing(main_job):
    """Units of float64 are 2^29 times smaller than those of float32, units of bfloat16 2^16 times larger.

    In float64 no lead asks for a fine bound.
    """
    exact, usual = (certify(load(main_job).to(dtype), FewerProblems()) for dtype in (torch.float64, torch.float32))
    assert exact.certified and exact.bound < usual.bound * 2**-24
    for dtype in (torch.bfloat16, torch.float16):
        coarse = certify(load(main_job).to(dtype), FewerProblems())
        assert coarse.wrong == 0 and coarse.bound > coarse.margin > 0 and coarse.ratio < 1
        assert not coarse.certified and coarse.proof == []
        assert re.search(r"Nothing is proved.*float16 the smallest quotient .* is 0.*, not 10\.", coarse.statement)


def test_equal_logits_and_logits_that_are_no_numbers_are_wrong():
    model = untrained()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    check = check_neighbourhoods(model, FewerProblems())
    assert check.wrong == check.predictions and check.margin == 0
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    certificate = certify(model, FewerProblems())
    assert certificate.wrong == certificate.predictions and not certificate.certified
    assert certificate.margin is None and certificate.failures[0].margin is None


REFUSED = {
    "no window": ({"windowed": False}, {}, "the model has no window"),
    "learned table": ({"position_encoding": "learned"}, {}, "the model has no window"),
    "too many problems": ({"relation_range": [-2, 2]}, {}, "30,101,010,100 problems to cover"),
    "too many in three layers": ({"num_hidden_layers": 3}, {}, "in 3 layer"),
    "next column unseen": ({"relation_range": [-1, 0]}, {}, "the next digit's column is out of sight"),
    "carry unseen": ({"coupling": "addition_plain"}, {"order": "plain"}, "which no window can hold"),
    "carry unseen, unpadded": (
        {"coupling": "addition_plain"},
        {"order": "plain", "zero_padding": False},
        "which no window can hold",
    ),
    "another end token": ({"eos_token_id": 18}, {}, "the task ends with token 17, but decoding stops at eos_token_id 18"),
    "activation without a bound": (
        {"hidden_act": "tanh"},
        {},
        "hidden_act 'tanh' has no bound of its rounding: choose one of",
    ),
    "rule of another format": ({}, {"order": "plain"}, "coupling rule 'addition', not 'addition_plain'"),
}


@pytest.mark.parametrize(("options", "format", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_certified_is_refused_before_any_work(options, format, expected):
    for function in (check_neighbourhoods, certify):
        with pytest.raises(CannotCertify, match=expected):
            function(untrained(**options), Addition(**format))


@pytest.mark.parametrize("name", ["no window", "learned table", "too many problems", "carry unseen"])
def test_certify_command_refuses_in_one_line(name, main_job, tmp_path, capsys):
    options, format, expected = REFUSED[name]
    folder = shutil.copytree(main_job, tmp_path / "addition")
    (folder / "certificate.json").unlink()
    untrained(**options).save_pretrained(folder)
    if format:
        recipe = (folder / "recipe.yaml").read_text()
        assert "order: response_reversed" in recipe
        (folder / "recipe.yaml").write_text(recipe.replace("order: response_reversed", "order: plain"))
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(folder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert stop.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert error[-1].startswith("error: addition: no certificate: ") and expected in error[-1]
    assert not (folder / "certificate.json").exists()


def test_decoding_that_stops_elsewhere_is_not_certified(main_job):
    model = load(main_job)
    model.generation_config.eos_token_id = 14
    with pytest.raises(CannotCertify, match="decoding stops at eos_token_id 14"):
        certify(model, Addition())


def test_a_model_that_accepts_other_prompts_than_its_task_writes_is_not_certified(main_job):
    model = load(main_job)
    model.config.prompt_format = {**model.config.prompt_format, "equal_widths": False}
    with pytest.raises(CannotCertify, match="prompt_format of the model's config is not that of the task 'addition'"):
        certify(model, Addition())


def test_certificate_of_other_weights_is_said_to_be_one(main_job, damaged, tmp_path, capsys):
    folder = shutil.copytree(main_job, tmp_path / "addition")
    evaluation.main([str(folder), "--ask", "1+1"])
    assert "warning" not in capsys.readouterr().err
    slightly_wrong(damaged).save_pretrained(folder)
    evaluation.main([str(folder), "--ask", "1+1"])
    assert "certificate.json is not of these files (model.safetensors differs)" in capsys.readouterr().err


@pytest.fixture
def adder(main_job, tmp_path) -> Path:
    """A copy of the certified folder."""
    return Path(shutil.copytree(main_job, tmp_path / "addition"))


def change_json(file, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def swap_digits(folder) -> None:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"3": 3', '"3": 4').replace('"4": 4', '"4": 3'))


def misread_two_digits(folder) -> None:
    change_json(folder / "tokenizer.json", normalizer={"type": "Replace", "pattern": {"String": "65"}, "content": "11"})


SETTINGS = {
    "suppress_tokens": [7],
    "max_new_tokens": 3,
    "max_time": 0.001,
    "repetition_penalty": 5.0,
    "no_repeat_ngram_size": 2,
}
CHANGES = {
    **{f"generation_config {name}": ("generation_config.json", {name: value}) for name, value in SETTINGS.items()},
    **{f"config {name}": ("config.json", {name: value}) for name, value in SETTINGS.items()},
    "tokenizer_config": ("tokenizer_config.json", {"add_prefix_space": True}),
}


def refuses_certificate(folder, expected) -> None:
    """A card and a push of the folder are refused with this reason."""
    for function in (render_model_card, lambda place: model_files(place, "user/adder")):
        with pytest.raises(ValueError, match=expected):
            function(folder)


@pytest.mark.parametrize(("name", "changes"), CHANGES.values(), ids=CHANGES)
def test_a_certificate_is_stale_when_a_file_that_decides_an_answer_has_other_settings(name, changes, adder, capsys):
    change_json(adder / name, **changes)
    with suppress(SystemExit):
        evaluation.main([str(adder), "--ask", "653+49"])
    assert f"warning: {adder}/certificate.json is not of these files ({name} differs)" in capsys.readouterr().err
    refuses_certificate(adder, f"certificate.json is not of these files .{name} differs.")


@pytest.mark.parametrize(("change", "expected"), [
    (lambda folder: (folder / "more.py").write_text("print()"), "more.py is new"),
    (lambda folder: (folder / "coupling.py").write_text("print()"), "coupling.py differs"),
    (lambda folder: (folder / "generation_config.json").unlink(), "generation_config.json is missing"),
    (lambda folder: shutil.copy(folder / "model.safetensors", folder / "other.safetensors"), "other.safetensors is new"),
])  # fmt: skip
def test_a_certificate_is_stale_when_files_come_or_go(change, expected, adder, capsys):
    change(adder)
    evaluation.main([str(adder), "--ask", "653+49"])
    assert f"certificate.json is not of these files ({expected})" in capsys.readouterr().err
    refuses_certificate(adder, f"certificate.json is not of these files .{expected}.")


@pytest.mark.parametrize("change", [swap_digits, misread_two_digits])
def test_a_tokenizer_that_reads_other_digits_is_neither_asked_nor_certified_nor_shown(change, adder, capsys):
    change(adder)
    change_json(adder / "certificate.json", files=hash_files(adder))
    for options in (["--ask", "3+4"], ["--certify"]):
        with pytest.raises(SystemExit):
            evaluation.main([str(adder), *options])
        assert "tokenizer.json" in capsys.readouterr().err
    refuses_certificate(adder, "tokenizer.json")


def test_code_that_is_not_checked_is_not_certified_until_the_model_is_saved_again(adder, capsys):
    before = (adder / "certificate.json").read_bytes()
    code = adder / "modeling_coupled_gpt.py"
    code.write_text(code.read_text().replace("self.lm_head(", "-self.lm_head("))
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify"])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "did not write for this model" in line and ": modeling_coupled_gpt.py;" in line
    assert (adder / "certificate.json").read_bytes() == before
    load(adder).save_pretrained(adder)
    evaluation.main([str(adder), "--certify", "--output_dir", str(adder.parent / "out")])
    assert "Certified" in render_model_card(adder)


def test_a_card_that_still_says_certified_is_named_when_the_model_is_not(adder, damaged, tmp_path, capsys):
    slightly_wrong(damaged).save_pretrained(adder)
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert f"{adder / 'README.md'} still says Certified" in capsys.readouterr().err
    change_json(adder / "generation_config.json", max_new_tokens=3)
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify"])
    assert f"{adder / 'README.md'} still says Certified" in capsys.readouterr().err


def test_a_certificate_is_of_the_format_that_the_recipe_names(adder, capsys):
    """A word of each file: the recipe's format, and a certificate that names another one."""
    task = Addition(zero_padding=False).describe()
    change_json(adder / "certificate.json", task=task)
    evaluation.main([str(adder), "--ask", "653+49"])
    assert "certificate.json is of another task or format (zero_padding was False, is True)" in capsys.readouterr().err
    refuses_certificate(adder, "another task or format")
    for folder in (adder, adder / "best"):
        recipe = (folder / "recipe.yaml").read_text()
        (folder / "recipe.yaml").write_text(recipe.replace("zero_padding: true", "zero_padding: false"))
    refuses_certificate(adder, "certificate|zero_padding")


def test_a_true_written_by_hand_is_not_believed(adder, damaged):
    """The files and the hash of the weights are right, only the check is not what was found."""
    model = slightly_wrong(damaged)
    model.save_pretrained(adder)
    (adder / "results.jsonl").unlink()
    change_json(adder / "certificate.json", weights=hash_weights(model), files=hash_files(adder))
    refuses_certificate(adder, "certificate.json, field certified: it is True, but a new check finds False")


@pytest.mark.parametrize(("field", "value"), [
    ("certified", "yes"), ("certified", False), ("weights", 3), ("task", []), ("files", None), ("statement", [1]),
    ("statement", "All sums are right."), ("proof", 7), ("problems", "many"), ("predictions", -1), ("predictions", True),
    ("neighbourhoods", 6217.5), ("wrong", "none"), ("wrong", 1), ("margin", None), ("margin", float("nan")),
    ("margin", 999.0), ("margin", [[2.0]]), ("margin", 10**400), ("bound", 1e-9), ("ratio", 1e9), ("ratio", 0),
    ("ratio", "high"), ("failures", {}), ("limits", {}),
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_a_field_of_another_value_or_type_is_refused_by_its_name(field, value, adder):
    change_json(adder / "certificate.json", **{field: value})
    refuses_certificate(adder, rf"certificate.json.*field {field}\b.*--certify again$")


@pytest.mark.parametrize("field", [item.name for item in fields(Certificate)])
def test_a_missing_field_is_refused_by_its_name_and_a_question_is_answered(field, adder, capsys):
    certificate = json.loads((adder / "certificate.json").read_text())
    del certificate[field]
    (adder / "certificate.json").write_text(json.dumps(certificate))
    refuses_certificate(adder, f"certificate.json.*field {field}.*missing.*--certify again$")
    evaluation.main([str(adder), "--ask", "653+49"])
    out, err = capsys.readouterr()
    assert out.strip() == "702" and err.count("\n") == (field in ("certified", "weights", "task", "files", "ratio"))


@pytest.mark.parametrize("content", ["null", "[]", "{", "[" * 100_000, "{}", '{"wrong": ' + "9" * 5000 + "}"])
def test_a_broken_certificate_is_refused_by_its_name(content, adder):
    (adder / "certificate.json").write_text(content)
    refuses_certificate(adder, f"^{adder}/certificate.json[^\n]*$")


def test_numbers_of_another_processor_agree_and_the_check_is_made_once(adder, monkeypatch):
    certificate = json.loads((adder / "certificate.json").read_text())
    names = {"margin": ".4g", "bound": ".2g", "ratio": ",.0f"}
    other = {name: certificate[name] * 1.005 for name in names}
    proof = certificate["proof"]
    for name, form in names.items():
        proof = [step.replace(f" {certificate[name]:{form}}", f" {other[name]:{form}}") for step in proof]
    change_json(adder / "certificate.json", **other, proof=proof)
    render_model_card(adder)
    monkeypatch.setattr(certificate_module, "check_neighbourhoods", None)
    assert "**Certified.**" in render_model_card(adder, "user/adder")
    change_json(adder / "certificate.json", proof=certificate["proof"])
    refuses_certificate(adder, "field proof")


def test_where_no_certificate_is_possible_none_is_left(adder, capsys):
    change_json(adder / "generation_config.json", repetition_penalty=5.0)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(adder), "--certify"])
    assert stop.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "repetition_penalty=5.0" in error and f"{adder}/certificate.json did not hold and was removed" in error
    assert not (adder / "certificate.json").exists()


def test_only_the_checkpoints_own_question_writes_into_its_folder(adder, tmp_path, capsys):
    """Without a recipe the task is the user's word, so the certificate does not go beside the weights, nor is one lost."""
    before = (adder / "certificate.json").read_bytes()
    (adder / "recipe.yaml").unlink()
    evaluation.main([str(adder), "--certify", "--task", "addition", "--output_dir", str(tmp_path / "out")])
    outside = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert outside["certified"] and outside["files"] is None
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify", "--task", "copy", "--output_dir", str(tmp_path / "out")])
    assert (adder / "certificate.json").read_bytes() == before
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--task", "addition", "--ask", "1+1", "--revision", "main"])
    assert f"--revision main is for a repository on the Hub, but {adder} is a folder" in capsys.readouterr().err


def test_a_link_to_another_folders_certificate_is_replaced_and_not_followed(adder, tmp_path):
    other = tmp_path / "elsewhere.json"
    (adder / "certificate.json").rename(other)
    (adder / "certificate.json").symlink_to(other)
    before = other.read_bytes()
    evaluation.main([str(adder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert other.read_bytes() == before and not (adder / "certificate.json").is_symlink()


def test_results_never_go_into_a_checkpoints_folder(main_job, tmp_path, monkeypatch, capsys):
    """The default folder of results may be where a checkpoint is."""
    folder = shutil.copytree(main_job, tmp_path / "outputs" / "evaluation" / "addition")
    monkeypatch.chdir(tmp_path)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for options in (["--certify"], ["--lengths", "3"]):
        with pytest.raises(SystemExit):
            evaluation.main([str(folder), *options])
        assert "holds a checkpoint with results of its own" in capsys.readouterr().err
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def certifiable() -> list[tuple[Task, str]]:
    """Every task that can be certified, with each of its coupling rules that can."""
    pairs = []
    for task in (*(task() for task in TASKS.values() if task.family is DECODER), Addition(order="all_reversed")):
        for rule in task.couplings:
            with suppress(CannotCertify):
                covering(untrained(task, coupling=rule), task)
                pairs.append((task, rule))
    return pairs


@pytest.mark.parametrize(("task", "rule"), certifiable(), ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_bound_that_a_certificate_states_is_the_codes_own(task, rule):
    model = untrained(task, coupling=rule)
    limits = _conclude(Check(wrong=1), model, task).limits
    levels, largest = model.config.position_levels, limits["position_ids"]
    ids = torch.tensor([[0, largest - 1, largest, largest - 1, largest]]).expand(1, levels, -1)
    tokens = torch.tensor([[17, 1, 2, 3, 4]])
    pairs = model.model.position_encoding.pair_map(ids, ids)
    dense = model(tokens, pair_map=pairs, position_ids=ids).logits
    torch.testing.assert_close(model(tokens, position_ids=ids).logits, dense)
    with pytest.raises(ValueError, match="position ids"):
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


def test_listed_neighbourhoods_get_the_logits_that_they_have_in_problems():
    """A model that is trained a little: what the check sees of it is what decoding sees, right and wrong."""
    task = MultiplicationScratchpad()
    # In double precision: how far float32 rounds depends on the processor.
    model = untrained(task, windowed=True, num_attention_heads=13, head_dim=2, relation_init="one_per_head").double()
    relations = COUPLING_RULES[task.coupling].relations
    lengths = np.tile([2, 2], (300, 1))
    batch = CouplingCollator(task.coupling, 20)(task.examples(make_generator(0), lengths, "train"))
    right = batch.pop("labels")[:, -batch["logits_to_keep"] + 1 :]
    logits = model(**batch).logits[:, :-1]
    relation_of = coupled_pair_map(batch["position_ids"], batch["position_ids"], relations, True)[0]
    columns = range(right.shape[1])
    first = batch["input_ids"].shape[1] - batch["logits_to_keep"]

    def described(example: int, place: int) -> tuple:
        column = first + place
        tokens = batch["input_ids"][example].tolist()
        keys = [(int(relation_of[column, key]), tokens[key]) for key in range(1, column + 1)]
        return tokens[column], tuple(sorted(pair for pair in keys if pair[0] != NOT_RELATED))

    in_problems = {described(row, place): (logits[row, place], right[row, place]) for row in range(300) for place in columns}
    found = 0
    for listed in neighbourhood_predictions(model, task.covering(relations, 1).batches):
        computed = model(**listed.inputs).logits[:, 0]
        related = listed.inputs["neighbours"].relations[:, -1, 1:].tolist()
        keys = listed.inputs["input_ids"].tolist()
        for row, (relations_of_row, tokens) in enumerate(zip(related, keys, strict=True)):
            pairs = zip(relations_of_row, tokens[1:-1], strict=True)
            name = tokens[-1], tuple(sorted(pair for pair in pairs if pair[0] != NOT_RELATED))
            if name in in_problems:
                found += 1
                torch.testing.assert_close(computed[row], in_problems[name][0])
                assert listed.right[row] == in_problems[name][1]
    assert found == len(in_problems) > 1000


def test_check_of_listed_neighbourhoods_counts_every_one_and_names_what_is_wrong():
    task = MultiplicationScratchpad()
    model = untrained(task, num_attention_heads=13, head_dim=2)
    check = check_neighbourhoods(model, task, thorough=True)
    relations = COUPLING_RULES[task.coupling].relations
    assert check.problems is None and check.failing == []
    assert check.predictions == covering(model, task).count == task.covering(relations, 1).count
    assert 0 < check.wrong < check.predictions and len(check.failures) == 10
    assert re.match(r"'=' that sees 0 at \(1, 'only query', 'neither'\), ", check.failures[0].problem)
    with pytest.raises(CannotCertify, match="worked out for one layer"):
        covering(untrained(task, num_hidden_layers=2), task)


@pytest.mark.parametrize(("name", "value"), [("repetition_penalty", 5.0), ("max_new_tokens", 3), ("num_beams", 2)])
def test_no_certificate_where_decoding_is_changed(name, value):
    model = CoupledGPTForCausalLM(CoupledGPTConfig())
    covering(model, Addition())
    setattr(model.generation_config, name, value)
    with pytest.raises(CannotCertify, match=f"changes how tokens are chosen .{name}={value}"):
        covering(model, Addition())


def test_a_wrong_token_of_a_larger_vocabulary_is_a_failure_like_others():
    model = CoupledGPTForCausalLM(CoupledGPTConfig(coupling="copy", vocab_size=300))
    certificate = certify(model, Copy())
    assert not certificate.certified and certificate.failures
