"""Practice of the worst problems: they are of the trained sizes and the training split, and resuming changes nothing."""

import numpy as np
import pytest
import torch
from refusals import refusal
from test_train import SMALL

from longhand import train
from longhand.data.batches import PRACTICE_EVERY
from longhand.data.splits import SPLITS
from longhand.hub_cards.result_rows import read_results
from longhand.hub_cards.training import worst_practice
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import training_batches
from longhand.hub_cards.training.worst_practice import PractiseWorst

NARROW = "--hidden_size 16 --intermediate_size 16 --batch_size 8 --use_cpu True --until_certified False"
RECIPES = {
    "addition-absolute": "--max_length 6",
    "addition-scratchpad": "--max_length 3 --batch_size 8",
    "calculator": "--max_length 4",
    "copy": "--min_length 2 --max_length 5",
    "minesweeper": "--max_length 6",
    "multiplication-2": "--max_length 5",
    "subtraction": "--max_length 4",
    "encoder-addition": "--max_length 4",
    "encoder-multiplication-1": "--max_length 4",
}


def practice(name, folder, number=20):
    """The callback of a run of a recipe whose model has learned nothing, its batches and its model."""
    words = [name, *NARROW.split(), *RECIPES[name].split(), "--practise_worst", str(number), "--output_dir", str(folder)]
    run = parse_run(words)
    torch.manual_seed(0)
    batches, model = training_batches(run), run.task.family.model_class(run.config)
    return PractiseWorst(run, batches, number), batches, model.train()


@pytest.mark.parametrize("name", RECIPES)
def test_practised_problems_are_of_trained_sizes_and_of_the_training_split(name, tmp_path, monkeypatch):
    monkeypatch.setattr(worst_practice, "ROUNDS", 3)
    monkeypatch.setattr(worst_practice, "SIZES", 4)
    callback, batches, model = practice(name, tmp_path)
    before = torch.get_rng_state()
    problems, leads = callback.search(model, step=3)
    assert torch.equal(torch.get_rng_state(), before) and model.training
    assert len(leads) == sum(len(part.digits) for part in problems) == 20 and (np.diff(leads) >= 0).all()
    parts = {part.name: part for part in batches.task.parts}
    for part in problems:
        data, task = callback.run.data, parts[part.task.name]
        shortest, longest = (
            task.shortest_lengths(data.min_length, data.max_length)[0],
            task.longest_lengths(data.max_length)[0],
        )
        assert part.lengths.max() <= longest.max() and part.lengths.sum() >= shortest.sum() * len(part.lengths)
        assert np.isin(part.task.split_of(part.digits, part.lengths), [-1, SPLITS.index("train")]).all()
    batches.practise_worst(problems)
    for index in range(2 * PRACTICE_EVERY):
        batches[index]


def test_a_search_follows_from_weights_step_and_seed(tmp_path):
    callback, _, model = practice("addition-absolute", tmp_path)
    (first, leads), (again, same) = (callback.search(model, step=3) for _ in range(2))
    assert np.array_equal(leads, same)
    assert all(np.array_equal(one.digits, other.digits) for one, other in zip(first, again, strict=True))
    assert not np.array_equal(leads, callback.search(model, step=4)[1])


def test_one_batch_in_so_many_is_of_the_worst_problems_alone(tmp_path):
    callback, batches, model = practice("addition-absolute", tmp_path, number=5)
    usual = [batches.global_batch(index)[0].tokens for index in range(12)]
    problems, _ = callback.search(model, step=3)
    batches.practise_worst(problems)
    known = {
        tuple(row) for part in problems for row in batches.task.rewrite(None, part.digits, part.lengths).tokens.tolist()
    }
    for index, tokens in enumerate(usual):
        drawn = batches.global_batch(index)[0].tokens
        if index % PRACTICE_EVERY:
            assert np.array_equal(drawn, tokens)
        else:
            assert {tuple(row) for row in drawn.tolist()} <= known


@pytest.mark.parametrize(
    "words", ["--num_train_samples 100", "--dataloader_num_workers 1", "--eval_steps 20", "--practise_worst 0"]
)
def test_practice_that_could_not_take_place_is_refused(words, capsys):
    assert "practise_worst" in refusal(capsys, train.main, *SMALL, "--practise_worst", "8", *words.split())


def test_the_tested_lengths_of_a_finished_run_are_searched_and_its_card_says_so(tmp_path):
    train.main(
        [*SMALL, "--max_steps", "2", "--eval_steps", "2", "--test_worst", "0.1", "--output_dir", str(tmp_path / "run")]
    )
    rows = read_results(tmp_path / "run" / "results.jsonl")
    assert all(row["worst_answer"] is not None and row["worst_tried"] >= 4 for row in rows)
    assert "worst problem" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
