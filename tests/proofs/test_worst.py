"""The search for the worst problem: what it calls wrong is wrong, and it changes no problem into one that is not legal."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from longhand import eval as evaluation
from longhand.data import build_task
from longhand.data.batches import evaluation_draw
from longhand.data.proofs.worst import WorstSearch, lowest_leads
from longhand.data.splits import SPLITS, make_generator
from longhand.hub_cards.evaluation.worst import find_worst
from longhand.hub_cards.result_rows import read_results

SIZES = {
    "addition": (3,),
    "subtraction": (3,),
    "multiplication": (3, 2),
    "division": (3,),
    "minesweeper": (3, 3),
    "reverse": (4,),
    "addition_scratchpad": (2, 2),
    "encoder_addition": (3,),
    "encoder_multiplication": (2,),
}


def untrained(name):
    """A model of a task with random weights."""
    torch.manual_seed(0)
    task = build_task(name)
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    model_class = task.family.model_class
    model = model_class(model_class.config_class(**{**task.family.config_options(task), **small})).eval()
    return SimpleNamespace(model=model, task=task)


@pytest.mark.parametrize("name", SIZES)
def test_an_untrained_model_is_wrong_in_every_task(name):
    checkpoint = untrained(name)
    operands = checkpoint.task.operand_lengths(*SIZES[name])
    found = find_worst(checkpoint, operands, seconds=1)
    assert found.answer is not None and found.answer != found.right and found.lead <= 0


@pytest.mark.parametrize("split", [None, "train"])
@pytest.mark.parametrize("name", SIZES)
def test_tried_problems_are_legal_and_of_the_split(name, split):
    checkpoint = untrained(name)
    task = checkpoint.task
    operands = task.operand_lengths(*SIZES[name])
    search = WorstSearch(checkpoint.model, task, operands, make_generator(0), kept=30, split=split)
    before = np.inf
    for _ in range(3):
        digits, leads = search.go_on()
        assert len(digits) and len(digits) == len(leads) and (np.diff(leads) >= 0).all()
        assert search.leads[0] <= min(before, leads[0]) and len(search.digits) <= 30
        before = search.leads[0]
        task.written(digits, np.tile(operands, (len(digits), 1)))
        if split is not None:
            assigned = task.split_of(digits, np.tile(operands, (len(digits), 1)))
            assert np.isin(assigned, [-1, SPLITS.index(split)]).all()
        if name == "addition":
            assert (digits[:, :, -1] > 0).all()
    assert len(np.unique(search.digits, axis=0)) == len(search.digits)


def test_the_same_generator_finds_the_same_problems():
    checkpoint = untrained("addition")
    found = []
    for _ in range(2):
        search = WorstSearch(checkpoint.model, checkpoint.task, (3, 2), make_generator("again"))
        for _ in range(3):
            search.go_on()
        found.append((search.digits, search.leads))
    assert np.array_equal(found[0][0], found[1][0]) and np.array_equal(found[0][1], found[1][1])
    assert (found[0][0][:, 1, -1] == 0).all()


def test_the_command_files_and_prints_what_it_found(tmp_path, capsys):
    evaluation.main(
        ["addition-tiny", "--lengths", "3,150", "--num_samples", "5", "--worst", "0.2", "--output_dir", str(tmp_path)]
    )
    rows = read_results(tmp_path / "results.jsonl")
    assert all(row["worst_tried"] > 0 and row["worst_lead"] > 0 and row["worst_answer"] is None for row in rows)
    assert capsys.readouterr().out.count("none found in") == 2


def test_a_search_finds_the_one_problem_that_the_evaluation_found_wrong(monkeypatch):
    checkpoint = untrained("addition")
    task, operands = checkpoint.task, (9, 9)
    generator, lengths = evaluation_draw(task, operands, 100, 5, "test")
    tokens = torch.from_numpy(task.format(task.draw(generator, lengths, "test")[77:78], lengths[:1]).tokens)

    def leads(search, batch):
        return np.where((batch["input_ids"] == tokens).all(1), -1.0, 1.0)

    monkeypatch.setattr(WorstSearch, "_leads", leads)
    found = find_worst(checkpoint, operands, 1e-9, seed=5, num_samples=100)
    assert found.lead == -1 and found.tried == 100 and found.answer is not None


def test_a_problem_that_only_seems_right_is_asked_and_called_wrong():
    """The last one is asked even if its lead is above 0: decoding may differ by rounding."""
    checkpoint = untrained("addition")
    search = WorstSearch(checkpoint.model, checkpoint.task, (3, 3), make_generator(0))
    leads = search._leads
    search._leads = lambda batch: np.abs(leads(batch)) + 1
    found = search.find(0)
    assert found.lead >= 1 and found.answer != found.right


def test_the_lowest_lead_is_that_of_the_weakest_token():
    logits = torch.tensor([[[0.0, 3.0, 1.0], [5.0, 0.0, 1.0], [9.0, 9.0, 9.0]]])
    labels = torch.tensor([[-100, 1, 0]])
    assert lowest_leads(logits, labels, ahead=1).tolist() == [2.0]
    assert lowest_leads(logits, torch.tensor([[1, 0, 2]]), ahead=0).tolist() == [0.0]
