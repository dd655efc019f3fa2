"""Parameters whose names in files are others than in a model: files, state dicts and hashes stay as they were."""

import pytest
import torch
from comparing import assert_same_weights
from position_subjects import DECODERS
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, Trainer, TrainingArguments

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.proofs import hash_weights
from longhand.hub_cards.checkpoints.load import load_checkpoint, zoo
from longhand.modeling.position_encodings import POSITION_ENCODINGS, PositionEncoding

SCORES = {"position_encoding": "none", "qk_norm": True, "attention_scale": "log_length"}
STORED = {
    "scores": (SCORES, ("self_attn.qk_norm_factor", "self_attn.log_length_factor")),
    "fire": (DECODERS["fire"], ("position_encoding.scale", "position_encoding.threshold_factor")),
}

every_kind = pytest.mark.parametrize("options, names", STORED.values(), ids=STORED)


def build(options):
    torch.manual_seed(0)
    model = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=2, **options))
    with torch.no_grad():
        for weights in model.parameters():
            weights.uniform_(0.5, 1.0)
    return model.eval()


@every_kind
def test_files_and_hashes_have_the_names_that_they_had_and_every_loader_reads_them(options, names, tmp_path):
    model = build(options)
    for folder in (tmp_path / "first", tmp_path / "again"):
        model.save_pretrained(folder)
        written = load_file(folder / "model.safetensors")
        assert all(any(stored.endswith(name) for stored in written) for name in names)
        assert not any(name.endswith(("_norm", "bias_scale", "bias_threshold_factor")) for name in written)
        for loader in (CoupledGPTForCausalLM, AutoModelForCausalLM, AutoModel):
            loaded, report = loader.from_pretrained(folder, output_loading_info=True)
            assert not any(report["missing_keys"]) and {*report["unexpected_keys"]} <= {"lm_head.weight"}
            assert_same_weights(loaded.base_model.state_dict(), model.base_model.state_dict())
        model = CoupledGPTForCausalLM.from_pretrained(folder)
        assert hash_weights(model) == hash_weights(build(options))
    fresh = CoupledGPTForCausalLM(model.config)
    for state in (written, model.state_dict()):
        fresh.load_state_dict(state)
        assert_same_weights(fresh.state_dict(), model.state_dict())


@every_kind
def test_a_plain_trainer_goes_on_from_its_checkpoint(options, names, tmp_path):
    def trainer(steps):
        arguments = TrainingArguments(
            str(tmp_path), max_steps=steps, save_steps=1, use_cpu=True, report_to="none", weight_decay=0.1, learning_rate=0.1
        )
        return Trainer(build(options), arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows])

    rows = torch.randint(1, 10, (64, 6), generator=torch.Generator().manual_seed(0))
    whole = trainer(2)
    whole.train()
    resumed = trainer(2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert_same_weights(resumed.model.state_dict(), whole.model.state_dict())


def test_the_parameters_of_an_encoding_of_ones_own_keep_their_names(tmp_path, monkeypatch):
    class Scaled(PositionEncoding):
        def __init__(self, config):
            super().__init__(config)
            self.scale = torch.nn.Parameter(torch.zeros(3))

    monkeypatch.setitem(POSITION_ENCODINGS, "rotary", Scaled)
    model = build({"position_encoding": "rotary"})
    model.save_pretrained(tmp_path)
    assert "model.position_encoding.scale" in load_file(tmp_path / "model.safetensors")
    loaded, report = CoupledGPTForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert torch.equal(loaded.model.position_encoding.scale, model.model.position_encoding.scale)


def test_the_hash_of_a_shipped_model_with_such_parameters_is_that_of_its_certificate():
    checkpoint = load_checkpoint(zoo("addition-absolute-proved"))
    assert any(name.endswith("self_attn.qk_norm") for name, _ in checkpoint.model.named_parameters())
    assert hash_weights(checkpoint.model) == checkpoint.certificate["weights"]
