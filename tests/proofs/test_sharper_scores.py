"""Sharper scores: the factors grow as asked, and nothing else does."""

from types import SimpleNamespace

import pytest
import torch
from refusals import refusal
from test_train import SMALL

from longhand import train
from longhand.hub_cards.training.sharper_scores import FACTOR, FIRST_SHARE, LAST_SHARE, SharperScores
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

STEPS = 21


def test_factors_of_scores_grow_evenly_and_nothing_else_changes():
    config = CoupledGPTConfig(hidden_size=8, num_attention_heads=2, head_dim=4, num_hidden_layers=2, qk_norm=True)
    model = CoupledGPTForCausalLM(config)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    callback, grown = SharperScores(5.0), []
    for step in range(1, STEPS + 1):
        callback.on_step_end(None, SimpleNamespace(global_step=step, max_steps=STEPS), None, model=model)
        factors = [weight / before[name] for name, weight in model.named_parameters() if name.endswith(FACTOR)]
        assert len(factors) == config.num_hidden_layers
        every = torch.stack(factors)
        torch.testing.assert_close(every, every[0, 0].expand_as(every))
        grown.append(every[0, 0].item())
    assert grown[-1] == pytest.approx(5.0)
    growing = [
        step for step, (last, now) in enumerate(zip([1.0, *grown], grown, strict=False), 1) if now > last * (1 + 1e-6)
    ]
    assert growing[0] > FIRST_SHARE * STEPS and growing[-1] < LAST_SHARE * STEPS + 1
    for name, weight in model.named_parameters():
        assert name.endswith(FACTOR) or torch.equal(weight, before[name])


@pytest.mark.parametrize("words", ["--qk_norm False --sharper_scores 3", "--qk_norm True --sharper_scores 1"])
def test_scores_that_have_no_factor_or_do_not_grow_are_refused(words, capsys):
    assert "sharper_scores" in refusal(capsys, train.main, *SMALL, *words.split())


def test_an_encoder_has_no_factors_of_scores(capsys):
    assert "sharper_scores" in refusal(capsys, train.main, "encoder-addition", "--sharper_scores", "3")


def test_a_recipe_names_the_growth(tmp_path):
    folder = tmp_path / "run"
    words = "--qk_norm True --sharper_scores 3 --max_steps 2 --eval_steps 2"
    train.main([*SMALL, *words.split(), "--output_dir", str(folder)])
    assert "sharper_scores: 3.0" in (folder / "recipe.yaml").read_text(encoding="utf-8")
