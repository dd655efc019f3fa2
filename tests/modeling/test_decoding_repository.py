"""Parallel decoding from a folder and from the Hub, in a process that does not have this package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refusals import refusal

from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.load import unpack
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

PROGRAM = """
import sys
sys.modules["longhand"] = None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

shipped, given, *places = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(shipped, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(shipped)
prompts = tokenizer(["653+049=", "1" * 30 + "+" + "7" * 30 + "="], padding=True, return_tensors="pt")
passes = []
model.register_forward_hook(lambda *_: passes.append(1))
expected = model.generate(**prompts)
one_by_one = len(passes)
plan = torch.randint(1, 15, (2, 30), generator=torch.Generator().manual_seed(2))
own = AutoModelForCausalLM.from_pretrained(given, trust_remote_code=True)
options = {"position_ids": plan, "eos_token_id": None}

for where in places:
    how = {"custom_generate": where, "trust_remote_code": True}
    passes.clear()
    assert torch.equal(model.generate(**prompts, **how), expected)
    assert len(passes) < min(10, one_by_one)
    assert torch.equal(model.generate(**prompts), expected)
    assert torch.equal(own.generate(plan[:, :10], **options, **how), own.generate(plan[:, :10], **options))
    for refused in ({"do_sample": True}, {"num_beams": 2}, {"trust_remote_code": False}):
        try:
            model.generate(**prompts, **{**how, **refused})
        except ValueError as error:
            print(error)
        else:
            raise AssertionError(refused)
"""


@pytest.mark.thorough
def test_models_decode_in_parallel_where_the_package_is_not_installed(hub, at_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command.main(["decoding", "--output", "greedy"])
    command.main(["decoding", "user/parallel-greedy", "--yes"])
    pushed = hub.repositories["model", "user/parallel-greedy"].head.files
    for file in (tmp_path / "greedy" / "custom_generate").iterdir():
        assert pushed[f"custom_generate/{file.name}"] == file.read_bytes()
    shipped = unpack("addition-tiny", tmp_path)
    torch.manual_seed(0)
    config = CoupledGPTConfig(vocab_size=50, hidden_size=32, intermediate_size=32, coupling="given", max_position_ids=30)
    CoupledGPTForCausalLM(config).double().save_pretrained("given")
    places = hub.environment(tmp_path / "home", hub.add_token("reader", "user", "read"))
    words = [sys.executable, "-I", "-c", PROGRAM, str(shipped), "given", "greedy", "user/parallel-greedy"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **places})
    assert done.returncode == 0, done.stderr


def test_the_card_of_a_folder_names_it_as_the_command_did_and_shows_no_other_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place, shown in (("outputs/greedy", "outputs/greedy"), (str(tmp_path / "elsewhere" / "own"), "own")):
        command.main(["decoding", "--output", place])
        card = Path(place, "README.md").read_text()
        assert f'custom_generate="{shown}"' in card and str(tmp_path) not in card


def test_a_folder_that_is_there_is_not_written_over(tmp_path, capsys):
    assert "is there already" in refusal(capsys, command.main, "decoding", "--output", str(tmp_path))
    assert "pushes nothing" in refusal(capsys, command.main, "decoding", "user/made", "--output", str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []
