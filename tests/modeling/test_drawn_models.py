"""What holds for every legal configuration of both families, on configurations that are drawn at random."""

import pytest
import torch
from cases import drawn
from comparing import assert_same_weights
from drawn_models import DECODER_CHOICES, ENCODER_CHOICES, draw_config, draw_model, inputs_of
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    Trainer,
    TrainingArguments,
)

from longhand.hub_cards.training.trainer import BatchTrainer
from longhand.modeling import CoupledGPTConfig, PairwiseBertConfig

DRAWS = 40

every_family = pytest.mark.parametrize("kind", [CoupledGPTConfig, PairwiseBertConfig])
some_draws = pytest.mark.parametrize("seed", drawn(range(DRAWS), 5))


@every_family
@some_draws
def test_a_model_is_saved_and_loaded_as_it_is(kind, seed, tmp_path):
    model = draw_model(kind, seed)
    model.save_pretrained(tmp_path)
    inputs = inputs_of(model)
    expected = model(**inputs).logits
    auto = AutoModelForCausalLM if model.can_generate() else AutoModelForTokenClassification
    for loader in (auto, type(model)):
        loaded, report = loader.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(report.values()), report
        assert_same_weights(loaded.state_dict(), model.state_dict())
        torch.testing.assert_close(loaded.eval()(**inputs).logits, expected)
    written, own = (config.to_dict() for config in (AutoConfig.from_pretrained(tmp_path), model.config))
    ignored = ("_name_or_path", "transformers_version", "dtype", "architectures")
    assert {name: value for name, value in written.items() if name not in ignored} == {
        name: value for name, value in own.items() if name not in ignored
    }
    AutoModel.from_pretrained(tmp_path)


@some_draws
def test_the_base_models_last_states_times_the_output_matrix_are_the_logits(seed):
    model = draw_model(CoupledGPTConfig, seed)
    inputs = inputs_of(model)
    hidden = model.base_model(**inputs).last_hidden_state
    torch.testing.assert_close(hidden @ model.get_output_embeddings().weight.T, model(**inputs).logits)


@every_family
@some_draws
def test_no_training_decays_a_parameter_of_one_dimension(kind, seed, tmp_path):
    model = draw_model(kind, seed)
    arguments = TrainingArguments(str(tmp_path), weight_decay=0.1, use_cpu=True, report_to="none")
    small = {name for name, weights in model.named_parameters() if weights.ndim < 2}
    for trainer in (Trainer(model, arguments), BatchTrainer(model, arguments)):
        decayed = set(trainer.get_decay_parameter_names(model))
        assert not small & decayed
        assert {name for name in decayed if "_proj.weight" in name}


@pytest.mark.thorough
@every_family
def test_the_draws_are_of_every_kind(kind):
    """Rare combinations aside, such as passes over labels, that other tests build by hand."""
    choices = DECODER_CHOICES if kind is CoupledGPTConfig else ENCODER_CHOICES
    drawn = [draw_config(kind, seed) for seed in range(DRAWS)]
    kinds = {name: len({str(getattr(config, name)) for config in drawn}) for name in choices}
    assert sum(count > 1 for count in kinds.values()) >= len(kinds) - 3, kinds
