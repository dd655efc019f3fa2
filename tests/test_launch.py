"""Several processes and several nodes, as `accelerate launch` starts them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from loopback_hub import port_of_nobody
from safetensors.torch import load_file

from longhand import CoupledGPTForCausalLM, train
from longhand.data import Addition
from longhand.hub_cards.evaluation.measure import draw_batch

ROOT = Path(__file__).parent.parent
RESULTS = (ROOT / "hub_cards" / "RESULTS.md").read_text(encoding="utf-8")
SMALL = ["addition", "--hidden_size", "16", "--intermediate_size", "32", "--batch_size", "8", "--max_length", "3",
         "--validation_lengths", "3", "--validation_samples", "4", "--test_lengths", "4", "--test_samples", "4",
         "--max_steps", "4", "--eval_steps", "4", "--until_certified", "False"]  # fmt: skip


def launch(*words, **variables):
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | variables)


@pytest.mark.thorough
def test_two_nodes_with_the_configuration_of_the_page_train_what_one_process_does(tmp_path):
    configuration = yaml.safe_load(re.search(r"<!-- nodes.yaml -->\n```yaml\n(.*?)```", RESULTS, re.DOTALL)[1])
    configuration |= {"main_process_ip": "127.0.0.1", "main_process_port": port_of_nobody(), "num_processes": 2}
    assert configuration["num_machines"] == 2
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump(configuration))
    # Each node has a disk of its own.
    run = [ROOT / "train.py", *SMALL, "--use_cpu", "True", "--output_dir"]
    nodes = [launch("--config_file", file, "--machine_rank", rank, *run, tmp_path / str(rank)) for rank in (0, 1)]
    printed = [node.communicate(timeout=300)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    assert "trained and evaluated" in printed[0] and "trained and evaluated" not in printed[1]
    train.main([*SMALL, "--output_dir", str(tmp_path / "one")])
    one, two = (load_file(tmp_path / folder / "model.safetensors") for folder in ("one", "0"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
def test_two_processes_in_bfloat16_reach_the_loss_of_one(tmp_path):
    half = [*SMALL, "--bf16", "True", "--use_cpu", "True", "--output_dir"]
    two = launch("--cpu", "--num_processes", 2, "--mixed_precision", "bf16", ROOT / "train.py", *half, tmp_path / "two")
    printed = two.communicate(timeout=300)[0]
    assert two.returncode == 0, printed
    train.main([*half, str(tmp_path / "one")])
    models = [CoupledGPTForCausalLM.from_pretrained(tmp_path / name).eval() for name in ("one", "two")]
    batch = draw_batch(models[0], Addition(), (3, 3), 100)
    one, two, untrained = (model(**batch).loss for model in (*models, CoupledGPTForCausalLM(models[0].config)))
    torch.testing.assert_close(one, two, rtol=0.01, atol=0)
    assert one < 0.95 * untrained


def test_processes_that_would_each_train_alone_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as stop:
        train.main([*SMALL, "--output_dir", str(tmp_path / "run")])
    assert stop.value.code == 2 and not list(tmp_path.iterdir())
    error = "error: the launcher started 2 processes, but torch has no GPUs for them: add --use_cpu True"
    assert error in capsys.readouterr().err
