"""Products in a grid whose cells settle: layout, what a cell sees, every case, the answer."""

import inspect
import re
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
import torch
from publishing_subjects import model_card

from longhand import eval as evaluation
from longhand import train
from longhand.data import FreshBatches, make_generator
from longhand.data.collator import collate_labels
from longhand.data.proofs import check_neighbourhoods
from longhand.data.tasks.encoder_multiplication_grid import EncoderMultiplicationGrid, multiply_in_grid
from longhand.data.tasks.reader import digits_of
from longhand.hub_cards.publishing.examples import encoder_example, family_card
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.encoder_maps import GRID, GRID_RELATIONS, grid_keys
from longhand.modeling.settling import NO_STATE, LabelCases, answer_relations, cases_at, find_answers, pass_targets, settle
from longhand.modeling.vocabulary import ENCODER_TOKENS, FIELD_PAD, LABELS, MINUS, NOT_KNOWN, PAD, STATES

TASK = EncoderMultiplicationGrid()
SIZES = [(1, 1), (1, 4), (5, 1), (2, 2), (3, 4), (12, 7)]


def draw(first: int, second: int, count: int = 5) -> np.ndarray:
    """Digits of problems."""
    return TASK.draw(make_generator("grid", first, second), np.tile([[first, second]], (count, 1)), "train")


def batch_of(first: int, second: int, count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    batch = collate_labels(TASK.write(draw(first, second, count), first, second))
    return batch["input_ids"], batch["labels"]


def number(digits: np.ndarray) -> int:
    """The number with these digits, ones first."""
    return int("".join(map(str, digits[::-1].tolist())))


def build(**options) -> PairwiseBertForTokenClassification:
    """A model with random weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.5}
    config = PairwiseBertConfig(**sizes, pair_maps=[GRID], windowed=True, label_states=True, sink=True, **options)
    return PairwiseBertForTokenClassification(config).eval()


def lines(text: str) -> list[str]:
    """The three lines of a grid drawn on the left, and on the right, of a docstring."""
    drawn = re.findall(r"^ {4,}(?:input)? +(0  1  2 \*|-_ -_ -_ \d) +(?:label)? +(.+)$", text, re.M)
    assert len(drawn) == 3
    return [" ".join(side).replace(" ", "") for side in zip(*drawn, strict=True)]


@pytest.mark.parametrize("documented", [EncoderMultiplicationGrid, grid_keys])
def test_layout_draws_its_picture(documented):
    inputs, labels = lines(inspect.getdoc(documented))
    assert inputs == TASK.prompt("12*34")
    written = TASK.write(digits_of(["12", "34"]), 2, 2).labels[0]
    shown = "".join(LABELS[label] if label >= 0 else "." for label in written)
    heads = [token if token in "012*34" else "" for token in inputs]
    with_heads = "".join(head if label == "." else label for head, label in zip(heads, shown, strict=True))
    assert labels in (shown, with_heads)


@pytest.mark.parametrize("sizes", SIZES)
def test_answer_is_the_product_and_every_cell_adds_up(sizes):
    first, second = sizes
    digits = draw(first, second)
    examples = TASK.write(digits, first, second)
    labels, kept = TASK.answer_labels(examples.tokens, examples.labels)
    assert kept.all() and labels.shape[1] == first + second
    for problem, answer in zip(digits, labels, strict=True):
        assert number(answer[::-1]) == number(problem[0, :first]) * number(problem[1, :second])
    heads = np.pad(digits[:, 0, :first], ((0, 0), (0, 1)))
    sums, carries = (part.astype(int) for part in multiply_in_grid(heads, digits[:, 1, :second]))
    for row, column in product(range(second), range(first + 1)):
        above = sums[:, row - 1, column + 1] if row and column < first else 0
        right = carries[:, row, column - 1] if column else 0
        expected = heads[:, column].astype(int) * digits[:, 1, row] + above + right
        assert (10 * carries[:, row, column] + sums[:, row, column] == expected).all()
    assert (TASK.has_label(examples.tokens[0]) == (examples.labels[0] >= 0)).all()


def place_of(first: int, row: int, column: int, kind: int) -> int:
    """The place in a text of a cell's carry (kind 0) or sum digit (1), columns counted from the left."""
    return first + 2 + row * (2 * first + 3) + 2 * column + kind


@pytest.mark.parametrize("sizes", SIZES[:-1])
def test_a_cell_sees_its_heads_and_two_neighbours(sizes):
    first, second = sizes
    input_ids, _ = batch_of(first, second, count=2)
    tokens = input_ids.shape[1]
    expected = torch.full((tokens, tokens), -1)
    for row, column, kind in product(range(second), range(first + 1), range(2)):
        own = place_of(first, row, column, kind)
        expected[own, own] = 0
        expected[own, column] = 1
        expected[own, place_of(first, row, first + 1, 0)] = 2
        if row and column:
            expected[own, place_of(first, row - 1, column - 1, 1)] = 3
        if column < first:
            expected[own, place_of(first, row, column + 1, 0)] = 4
    derived = answer_relations(find_answers(GRID, input_ids, (), 0), input_ids.shape)
    assert torch.equal(derived, expected.expand_as(derived))
    # The same from both sides of a batch with padding.
    padded = torch.nn.functional.pad(input_ids, (3, 2), value=PAD)
    answers = find_answers(GRID, padded, (), 0)
    assert (
        answers.relations.tolist() == list(range(GRID_RELATIONS))
        and len(answers.places) == int((expected >= 0).any(1).sum()) * 2
    )
    for place, row, keys in zip(answers.places.tolist(), answers.rows.tolist(), answers.keys.tolist(), strict=True):
        start = row * padded.shape[1] + 3
        for relation, key in enumerate(keys):
            found = (expected[place - start] == relation).nonzero().flatten().tolist()
            assert found == ([key - start] if key >= 0 else [])


NO_GRIDS = (
    *("12+34", "12*34", "*4", "012*", "012*-_-_4", "012*-_-_-_", "012*-_-_-__", "012*_-_-_-4", "01_*-_-_-_4"),
    "012*-_-_-_4-_-_-_",
)


@pytest.mark.parametrize("text", NO_GRIDS)
def test_what_is_not_a_grid_is_refused(text):
    tokens = torch.tensor([[ENCODER_TOKENS.index(character) for character in text]])
    with pytest.raises(ValueError, match=r"row 0 of input_ids (is not a grid such as 012|must have one)"):
        find_answers(GRID, tokens, (), 0)


def test_every_row_of_a_batch_must_be_a_grid_of_the_model_s_format():
    """Also if all rows have the layout of the first one, which is a grid."""
    texts = ["012*-_-_-_4-_-_-_3", "012*-_-_-_4-_-__-3"]
    input_ids = torch.tensor([[ENCODER_TOKENS.index(character) for character in text] for text in texts])
    with pytest.raises(ValueError, match="row 1 of input_ids is not a grid"):
        find_answers(GRID, input_ids, (), 0)
    states = torch.where(torch.isin(input_ids, torch.tensor([MINUS, FIELD_PAD])), NOT_KNOWN, NO_STATE)
    model = build(task=TASK.describe(), prompt_format=asdict(TASK.prompt_format)).train()
    # A grid whose first number lacks the 0 above it.
    input_ids[1] = input_ids[0]
    input_ids[1, 0] = 1
    labels = torch.where(states == NO_STATE, -100, 0)
    for training, given in ((True, {"labels": labels}), (True, {"labels": labels, "states": states}), (False, {})):
        with pytest.raises(ValueError, match=r"row 1 of input_ids, .* it is not of the form"):
            model.train(training)(input_ids, **given)


def arithmetic(cases: LabelCases) -> torch.Tensor:
    """Ideal labels of cases (cases,), by multiplying and adding."""
    _, first, second, above, right = cases.key_states.unbind(1)
    missing = cases.relations < 0
    above, right = (torch.where(missing[:, slot], 0, cases.key_states[:, slot]) for slot in (3, 4))
    assert (first == NO_STATE).all() and (second == NO_STATE).all() and not missing[:, :3].any()
    total = cases.keys[:, 1] * cases.keys[:, 2] + above + right
    label = torch.where(cases.tokens == MINUS, total // 10, total % 10)
    return torch.where((above == NOT_KNOWN) | (right == NOT_KNOWN), NOT_KNOWN, label)


def oracle(cases: LabelCases) -> torch.Tensor:
    return torch.nn.functional.one_hot(arithmetic(cases), len(STATES)).float()


@pytest.mark.parametrize("sizes", SIZES)
def test_ideal_passes_end_with_the_product_as_a_wavefront(sizes):
    first, second = sizes
    input_ids, labels = batch_of(first, second)
    passes = []

    def label(cases):
        passes.append(len(cases.tokens))
        return oracle(cases)

    _, states = settle(input_ids, find_answers(GRID, input_ids, (), 0), label)
    assert torch.equal(states[labels >= 0], labels[labels >= 0]) and (states[labels < 0] == NO_STATE).all()
    # A cell settles in pass 1 + column + 2 row, and one more pass changes nothing.
    assert len(passes) == first + 2 * (second - 1) + 2


def cases_of(input_ids: torch.Tensor, states: torch.Tensor) -> tuple[LabelCases, torch.Tensor]:
    """The cases of all cells of grids, and their places."""
    answers = find_answers(GRID, input_ids, (), 0)
    return cases_at(input_ids.flatten(), states.flatten(), *answers[::2], answers.relations), answers.places


class Right(PairwiseBertForTokenClassification):
    """Gives the ideal label in every case; with `swaps`, 8 in place of 9 and 9 in place of 8."""

    swaps = False

    def label_cases(self, cases):
        # Leads above `CLOSE`.
        logits = 5 * oracle(cases)
        return logits[:, [*range(8), 9, 8, 10, 11]] if self.swaps else logits


def some_known(labels: torch.Tensor) -> torch.Tensor:
    """States in which some labels are known."""
    known = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.6
    return torch.where(labels < 0, NO_STATE, torch.where(known, labels, NOT_KNOWN))


def rows_of(cases: LabelCases, right: torch.Tensor) -> set[tuple[int, ...]]:
    """Cases as values, with -2 in place of keys that there are not."""
    missing = cases.relations < 0
    parts = [cases.tokens[:, None], cases.states[:, None], right[:, None]]
    parts += [part.masked_fill(missing, -2) for part in (cases.keys, cases.key_states)]
    return set(map(tuple, torch.cat(parts, dim=1).tolist()))


def test_the_list_has_every_case_that_passes_over_small_and_long_products_meet_and_practice_writes_it():
    covered, met = TASK.covering(None, 1), set()
    listed = rows_of(covered.cases, covered.right)
    assert len(listed) == covered.count == 31_976 and torch.equal(arithmetic(covered.cases), covered.right)
    for first, second in (*product(range(1, 4), repeat=2), (1, 9), (30, 4)):
        input_ids, labels = batch_of(first, second, 200)
        cases, places = cases_of(input_ids, states := some_known(labels))
        targets = pass_targets(GRID, input_ids, states, labels).flatten()[places]
        assert torch.equal(targets, arithmetic(cases))
        kept = (cases.states == NOT_KNOWN) | (targets != NOT_KNOWN)
        met |= rows_of(LabelCases(*(part[kept] for part in cases)), targets[kept])
    assert met <= listed and len(met) > 0.5 * len(listed)
    written = collate_labels(TASK.write_cases(covered))
    cases, places = cases_of(written["input_ids"], written["states"])
    chosen = written["labels"].flatten()[places] >= 0
    assert rows_of(LabelCases(*(part[chosen] for part in cases)), written["labels"].flatten()[places][chosen]) == listed


def test_a_model_is_right_in_all_cases_iff_it_is_ideal_and_practises_all_and_weak_ones_again():
    model, right = Right(build().config).eval(), TASK.covering(None, 1).right
    check = check_neighbourhoods(model, TASK)
    assert check.wrong == 0 and check.predictions == sum(part.count for part in check.failing.cases) == len(right)
    model.swaps = True
    check = check_neighbourhoods(model, TASK)
    assert check.wrong == int(((right == 8) | (right == 9)).sum())
    assert sum(part.count for part in check.failing.cases) == 2 * len(right)
    batches = FreshBatches(TASK, 1, 4, 0, batch_size=200, num_batches=2, collator=collate_labels)
    batches.practise(check.failing)
    batch = batches[0]
    assert ((batch["labels"] >= 0).sum(1) == 1).all()
    model = build().train()
    model(**batch).loss.backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


def test_the_shipped_model_multiplies_long_numbers(capsys):
    evaluation.main(["encoder-multiplication-grid", "--ask", f"{'9' * 25}*{'9' * 20}"])
    assert int(capsys.readouterr().out.split()[-1]) == int("9" * 25) * int("9" * 20)


def test_one_pass_by_cases_equals_the_pass_over_all_tokens():
    model, (input_ids, labels) = build(), batch_of(3, 4)
    cases, places = cases_of(input_ids, states := some_known(labels))
    expected = model.label_cases(cases)
    with torch.inference_mode():
        for options in ({}, {"output_attentions": True}):
            output = model(input_ids, states=states, labels=labels, **options)
            torch.testing.assert_close(output.logits.flatten(0, 1)[places], expected, rtol=1e-4, atol=1e-4)
    # Training computes the tokens with labels alone.
    trained = model.train()(input_ids, states=states, labels=labels)
    torch.testing.assert_close(trained.logits[0], expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(trained.loss, output.loss)


@pytest.mark.release
def test_commands_take_a_run(tmp_path, capsys):
    folder, (out, maps) = tmp_path / "brief", (["--output_dir", str(tmp_path / name)] for name in ("out", "maps"))
    options = ["--until_certified", "False", "--max_steps", "2", "--eval_steps", "1", "--batch_size", "8"]
    options += ["--validation_lengths", "2", "--validation_samples", "4", "--test_lengths", "2", "--test_samples", "4"]
    train.main(["encoder-multiplication-grid", *options, "--output_dir", str(folder)])
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(folder), "--certify", *out])
    assert stop.value.code == 1 and "NOT CERTIFIED. Nothing is proved." in " ".join(capsys.readouterr().out.split())
    evaluation.main([str(folder), "--lengths", "1,2", "--lengths_b", "1,3", "--num_samples", "3", *out])
    evaluation.main([str(folder), "--lengths", "2", "--num_samples", "3", "--position_maps", "--attentions", *maps])
    card = model_card(folder)
    assert "heads the columns of a grid" in card and "**Not certified.**" in card
    (question,) = re.findall(r'tokenizer\("([^"]+)"', card)
    assert question == "".join(token for token, _ in encoder_example(TASK))


def test_a_card_s_code_reads_the_answer():
    prompt, lines = family_card(TASK).ask(TASK)
    right = int(lines[-1].partition("# right is ")[2])
    model = Right(build().config).eval()
    printed = []
    inputs = {"input_ids": torch.tensor([[ENCODER_TOKENS.index(character) for character in prompt]])}
    exec("\n".join(lines), {"model": model, "inputs": inputs, "print": printed.append})
    assert printed == [str(right)]
