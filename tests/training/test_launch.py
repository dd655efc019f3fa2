"""What `accelerate launch` sets is what a run is: recorded, or refused by name; and the configurations for it."""

import os
import subprocess
import sys
from copy import copy
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from cases import all_but
from kinds import few_problems, recipes_of_kinds
from refusals import refusal
from safetensors.torch import load_file
from test_train import KILLED_AT_STEP_12, SMALL

from longhand import train
from longhand.hub_cards.recipes import list_recipes, read_recipe
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.launcher import CONFIGURATIONS, LARGEST_MODEL
from longhand.hub_cards.training.trainer import training_batches

LAUNCHED = {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_DYNAMO_BACKEND": "NO", "ACCELERATE_DYNAMO_MODE": "default"}
FILES = sorted(CONFIGURATIONS.glob("*.yaml"))


@pytest.fixture
def launched(monkeypatch):
    """Set the variables that `accelerate launch` sets, and these too."""

    def launch(**variables: str) -> None:
        for name, value in (LAUNCHED | variables).items():
            monkeypatch.setenv(name, value)

    return launch


def parsed(folder, *words):
    return parse_run([*SMALL, *words, "--use_cpu", "True", "--output_dir", str(folder)])


@pytest.mark.parametrize(
    ("variables", "values"),
    [
        ({}, {}),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, {"bf16": True}),
        ({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}, {"gradient_accumulation_steps": 4}),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, {"torch_compile": True}),
    ],
)
def test_what_the_launcher_sets_is_an_argument_of_the_run_and_stands_in_its_recipe(variables, values, launched, tmp_path):
    plain = parsed(tmp_path).recipe
    launched(**variables)
    run = parsed(tmp_path)
    assert run.recipe == {**plain, **values}
    assert {name: getattr(run.training, name) for name in values} == values
    said = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    assert parsed(tmp_path, *said).recipe == run.recipe


@pytest.mark.parametrize(
    ("variables", "words", "expected"),
    [
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, ["--bf16", "False"], "bf16 True, but the command line says False"),
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, ["--bf16"], "bf16 False, but the command line says True"),
        ({"ACCELERATE_MIXED_PRECISION": "fp8"}, [], "fp8"),
        ({"ACCELERATE_DYNAMO_BACKEND": "EAGER"}, [], "ACCELERATE_DYNAMO_BACKEND EAGER"),
        (
            {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_MODE": "max-autotune"},
            [],
            "ACCELERATE_DYNAMO_MODE max-autotune",
        ),
        ({"ACCELERATE_USE_FSDP": "true"}, [], "FSDP is not supported"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, [], "DeepSpeed is not supported"),
        ({}, ["--fsdp", "full_shard"], "FSDP is not supported"),
        ({}, ["--deepspeed", "zero.json"], "DeepSpeed is not supported"),
    ],
)
def test_contradictions_and_what_divides_a_model_are_refused_by_name(variables, words, expected, launched, tmp_path, capsys):
    launched(**variables)
    message = refusal(capsys, train.main, *SMALL, *words, "--output_dir", tmp_path / "run")
    assert expected in message
    if "not supported" in expected:
        assert "64 million parameters" in message and "--config_file hub_cards/launch/gpus.yaml" in message
    assert not list(tmp_path.iterdir())


def test_precision_of_a_recipe_against_the_launcher_is_refused(launched, tmp_path, capsys):
    launched(ACCELERATE_MIXED_PRECISION="fp16")
    message = refusal(capsys, train.main, "paper-addition", "--output_dir", tmp_path / "run")
    assert "bf16 False, but the recipe says True" in message


def test_a_run_resumes_only_with_the_precision_that_it_began_with(launched, tmp_path, capsys):
    run = parsed(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text(yaml.safe_dump(run.recipe))
    launched(ACCELERATE_MIXED_PRECISION="bf16")
    words = [*SMALL, "--use_cpu", "True", "--resume", "--output_dir", tmp_path / "run"]
    assert "bf16 was None, now True" in refusal(capsys, train.main, *words)


def test_several_processes_that_became_one_are_told_with_the_command_that_starts_two(launched, capsys):
    launched(MASTER_ADDR="127.0.0.1")
    with pytest.raises(SystemExit):
        train.main(["no-such-recipe"])
    note, _ = capsys.readouterr().err.splitlines()
    assert "started one" in note and "--config_file hub_cards/launch/cpus.yaml" in note


def test_arguments_of_a_run_are_as_they_were_after_its_trainer_is_made(tmp_path):
    run = parsed(tmp_path)
    before = copy(vars(run.training))
    train.make_trainer(run)
    assert vars(run.training) == before


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_configuration_is_one_of_accelerate(file):
    stated = yaml.safe_load(file.read_text(encoding="utf-8"))
    config = load_config_from_file(str(file)).to_dict()
    assert stated.items() <= config.items()


# One call, so that lines of two processes do not mix.
SHOW = """
import os
os.write(1, f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n".encode())
"""


def start(*words: object) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "accelerate.commands.launch", *map(str, words)]
    return subprocess.Popen(command, **pipes, env={**os.environ, "ACCELERATE_LOG_LEVEL": "error"})


# README's commands start processes by cpus.yaml, and gpus.yaml differs from it by what runs on a GPU alone.
@pytest.mark.thorough
@pytest.mark.parametrize(
    "file", all_but([CONFIGURATIONS / f"{name}.yaml" for name in ("cpus", "gpus")], FILES), ids=lambda file: file.stem
)
def test_configuration_starts_its_processes(file, tmp_path):
    """Two processes on this machine: of one node, or of two nodes that meet on loopback."""
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    options: list[object] = ["--config_file", file, "--num_processes", 2]
    ranks = range(load_config_from_file(str(file)).num_machines)
    if len(ranks) > 1:
        options += ["--main_process_ip", "127.0.0.1"]
    started = [start(*options, "--main_process_port", 29571, "--machine_rank", rank, script) for rank in ranks]
    outputs = [process.communicate(timeout=180) for process in started]
    assert sorted(line for out, _ in outputs for line in out.splitlines() if line.startswith("process")) == [
        "process 0 of 2",
        "process 1 of 2",
    ], outputs


@pytest.mark.release
def test_two_processes_in_bfloat16_are_recorded_shown_and_resumed(tmp_path):
    """The recipe says bf16, the card too, and the run that was killed goes on to the bits of one that was not.

    That it does not go on in another precision, `test_a_run_resumes_only_with_the_precision_that_it_began_with` shows.
    """
    script = tmp_path / "killed.py"
    script.write_text(KILLED_AT_STEP_12)
    package = [Path(train.__file__), *SMALL, "--use_cpu", "True"]
    launcher = ["--config_file", CONFIGURATIONS / "cpus.yaml", "--mixed_precision", "bf16", "--main_process_port", 29572]

    def run(*words: object) -> tuple[str, str]:
        return start(*launcher, *words).communicate(timeout=300)

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    printed = run(*package, "--output_dir", whole)
    assert "find_unused_parameters" not in printed[1]
    assert read_recipe(whole / "recipe.yaml")["bf16"] is True, printed
    assert "computed in bfloat16 where autocast does `True`" in (whole / "README.md").read_text()
    run(script, *package[1:], "--output_dir", cut)
    assert not (cut / "model.safetensors").exists() and (cut / "checkpoints" / "checkpoint-10" / "rng_state_1.pth").exists()
    resumed = run(*package, "--resume", "--output_dir", cut)
    assert f"from {cut / 'checkpoints' / 'checkpoint-10'}\n" in resumed[0], resumed
    weights, plain = (load_file(folder / "model.safetensors") for folder in (whole, cut))
    assert all(weights[name].equal(plain[name]) for name in weights)
    train.main([*SMALL, "--use_cpu", "True", "--output_dir", str(tmp_path / "float32")])
    other = load_file(tmp_path / "float32" / "model.safetensors")
    assert any(not torch.allclose(weights[name], other[name], atol=1e-5) for name in weights)


@pytest.mark.parametrize("name", list_recipes())
def test_no_recipe_has_a_larger_model_than_the_refusal_says(name, tmp_path):
    run = parse_run([name, "--use_cpu", "True", "--output_dir", str(tmp_path / "run")])
    with torch.device("meta"):
        model = run.task.family.model_class(run.config)
    assert model.num_parameters() <= LARGEST_MODEL


@pytest.mark.release
@pytest.mark.parametrize("name", recipes_of_kinds())
def test_every_parameter_gets_a_gradient(name, tmp_path):
    """Several processes do not look for parameters without one."""
    words = [*few_problems(name), "--use_cpu", "True", "--batch_size", "2", "--output_dir", str(tmp_path / "run")]
    run = parse_run([name, *words])
    model = run.task.family.model_class(run.config).train()
    model(**training_batches(run)[0]).loss.backward()
    assert [name for name, weights in model.named_parameters() if weights.grad is None] == []
