"""Adapters of PEFT in folders and on the Hub, evaluated as the checkpoints that they make of their base."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from fine_tuning import TASKS as NAMES
from publishing_subjects import refusal
from safetensors.torch import load_file, save_file
from small_language_models import save_random_model
from transformers import AutoModelForCausalLM

from longhand import eval as evaluation
from longhand.data import TASKS, EvaluationBatches
from longhand.hub_cards import push as push_command
from longhand.hub_cards.checkpoints import load as loading
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.publishing.publications import push_model
from longhand.hub_cards.recipes import write_recipe
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
)

peft = pytest.importorskip("peft", reason="pip install peft")

SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
MODELS = {
    "addition": (CoupledGPTForCausalLM, CoupledGPTConfig(windowed=True, relation_range=[0, 1], **SIZES)),
    "encoder_addition": (PairwiseBertForTokenClassification, PairwiseBertConfig(**SIZES)),
}
PUSHES = """
import sys
import peft
from longhand import eval as evaluation
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("user/base")
peft.PeftModel.from_pretrained(base, sys.argv[1]).push_to_hub("user/adapter")
again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("user/base"), "user/adapter")
evaluation.main(["user/adapter", "--lengths", "3", "--num_samples", "4", "--output_dir", "out"])
evaluation.main(["user/adapter", "--ask", "12+34"])
"""


def make_base(folder, name="addition"):
    model_class, config = MODELS[name]
    torch.manual_seed(0)
    task = TASKS[name]()
    model_class(config).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe({"task": name, "min_length": 1, "max_length": 4}, folder / "recipe.yaml")


def make_adapter(folder, base, name="addition", targets=("q_proj", "v_proj")):
    """LoRA with weights that change the answers."""
    model = TASKS[name].family.auto_class.from_pretrained(base)
    kind = "CAUSAL_LM" if name == "addition" else "TOKEN_CLS"
    config = peft.LoraConfig(target_modules=list(targets), r=4, task_type=kind, init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    adapted.save_pretrained(folder)
    return adapted.eval()


@pytest.fixture
def adapter(tmp_path):
    make_base(tmp_path / "base")
    make_adapter(tmp_path / "adapter", tmp_path / "base")
    return tmp_path / "adapter"


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_is_merged_into_its_base(name, tmp_path, capsys):
    make_base(tmp_path / "base", name)
    adapted = make_adapter(tmp_path / "adapter", tmp_path / "base", name)
    checkpoint = load_checkpoint(str(tmp_path / "adapter"))
    assert (checkpoint.name, checkpoint.task.name, checkpoint.trained_lengths) == ("adapter", name, None)
    task = checkpoint.task
    batch = EvaluationBatches(task, task.operand_lengths(3), 8, 0, "test", 8, collator=task.family.collator(adapted.config))[
        0
    ]
    logits = checkpoint.model(**batch).logits
    torch.testing.assert_close(logits, adapted(**batch).logits, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(logits, load_checkpoint(str(tmp_path / "base")).model(**batch).logits, atol=1e-3)
    out = ["--output_dir", str(tmp_path / "out")]
    evaluation.main([str(tmp_path / "adapter"), "--lengths", "3", "--num_samples", "4", *out])
    evaluation.main([str(tmp_path / "adapter"), "--ask", task.example_question])
    assert "adapter" in capsys.readouterr().out


def test_the_merged_model_is_certified_in_a_folder_of_its_own(adapter, tmp_path, capsys):
    refusal(capsys, evaluation.main, adapter, "--certify", "--output_dir", tmp_path / "out")
    assert not (adapter / "certificate.json").exists()
    merged = shutil.copytree(tmp_path / "base", tmp_path / "merged")
    load_checkpoint(str(adapter)).model.save_pretrained(merged)
    with pytest.raises(SystemExit) as ended:
        evaluation.main([str(merged), "--certify", "--output_dir", str(tmp_path / "out")])
    assert ended.value.code == 1 and "merged: NOT CERTIFIED" in capsys.readouterr().out


def test_an_adapter_with_the_recipe_of_its_base_is_of_its_task(adapter):
    write_recipe({"task": "addition", "max_length": 7, "min_length": 2}, adapter / "recipe.yaml")
    checkpoint = load_checkpoint(str(adapter))
    assert (checkpoint.task.name, checkpoint.trained_lengths) == ("addition", (2, 7))


def test_an_adapter_of_a_model_of_others_gets_the_command_that_measures_it(tmp_path, capsys):
    base = save_random_model(tmp_path / "llama")
    config = peft.LoraConfig(target_modules=["q_proj"], r=4, task_type="CAUSAL_LM")
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(tmp_path / "adapter")
    said = refusal(capsys, evaluation.main, tmp_path / "adapter", "--lengths", "2")
    assert f"pretrained={base},peft={tmp_path / 'adapter'}" in said


@pytest.mark.thorough
def test_an_adapter_travels_by_the_hub(hub, api, tmp_path):
    make_base(tmp_path / "base")
    push_model(tmp_path / "base", "user/base", api=api)
    make_adapter(tmp_path / "adapter", tmp_path / "base")
    expected = load_checkpoint(str(tmp_path / "adapter")).answer("12+34")
    named = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text()) | {"base_model_name_or_path": "user/base"}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(named))
    environment = os.environ | hub.environment(tmp_path / "home", token="secret")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", PUSHES, str(tmp_path / "adapter")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == expected and (tmp_path / "out" / "results.jsonl").is_file()
    assert "adapter_model.safetensors" in hub.repositories["model", "user/adapter"].head.files


def pickle_weights(folder):
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()


def add_a_checkpoint(folder):
    shutil.copy(folder.parent / "base" / "config.json", folder)


def lose_the_base(folder):
    shutil.rmtree(folder.parent / "base")


def cut_the_weights(folder):
    (folder / "adapter_model.safetensors").write_bytes((folder / "adapter_model.safetensors").read_bytes()[:100])


def change_weights(folder, change):
    weights = load_file(folder / "adapter_model.safetensors")
    change(weights)
    save_file(weights, folder / "adapter_model.safetensors")


def drop_a_weight(folder):
    change_weights(folder, lambda weights: weights.popitem())


def add_a_weight(folder):
    change_weights(folder, lambda weights: weights.update(strange=torch.zeros(1)))


def break_a_weight(folder):
    change_weights(folder, lambda weights: next(iter(weights.values())).fill_(torch.nan))


def name_no_base(folder):
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": None}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def stack_adapters(folder):
    shutil.copytree(folder, folder.parent / "first")
    config = json.loads((folder / "adapter_config.json").read_text()) | {
        "base_model_name_or_path": str(folder.parent / "first")
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def change_tied_embeddings(folder):
    base = folder.parent / "base"
    CoupledGPTForCausalLM(CoupledGPTConfig(tie_word_embeddings=True, **SIZES)).save_pretrained(base)
    make_adapter(folder, base, targets=["lm_head"])


def cut_the_configuration(folder):
    (folder / "adapter_config.json").write_text("{")


def take_another_task(folder):
    write_recipe({"task": "copy"}, folder / "recipe.yaml")


def take_another_format(folder):
    write_recipe({"task": "addition", "zero_padding": False}, folder / "recipe.yaml")


def take_another_kind(folder):
    config = json.loads((folder / "adapter_config.json").read_text()) | {"task_type": "TOKEN_CLS"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def tune_a_prompt(folder):
    shutil.rmtree(folder)
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2, token_dim=16, num_layers=1)
    model = CoupledGPTForCausalLM.from_pretrained(folder.parent / "base")
    peft.get_peft_model(model, config).save_pretrained(folder)


DAMAGES = {
    pickle_weights: "adapter_model.safetensors",
    add_a_checkpoint: "adapter",
    lose_the_base: "base",
    cut_the_weights: "adapter",
    drop_a_weight: "base",
    add_a_weight: "strange",
    break_a_weight: "NaN",
    name_no_base: "base_model_name_or_path",
    stack_adapters: "first",
    change_tied_embeddings: "tied",
    cut_the_configuration: "adapter_config.json",
    take_another_task: "copy",
    take_another_format: "zero_padding",
    take_another_kind: "TOKEN_CLS",
    tune_a_prompt: "PROMPT_TUNING",
}
"""What the refusal names."""


# PEFT warns of tied embeddings, which are refused here.
@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings", "ignore:Setting .save_embedding_layers")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_an_adapter_that_cannot_be_used_is_refused_in_one_line(adapter, damage, capsys):
    damage(adapter)
    assert DAMAGES[damage] in refusal(capsys, evaluation.main, adapter, "--ask", "12+34")


def test_without_peft_one_line_says_how_to_get_it(adapter, capsys, monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    assert "pip install peft" in refusal(capsys, evaluation.main, adapter, "--ask", "12+34")


def test_the_push_of_an_adapter_is_refused_with_the_ways_to_do_it(adapter, capsys):
    assert "push_to_hub" in refusal(capsys, push_command.main, "model", adapter, "user/adapter")
