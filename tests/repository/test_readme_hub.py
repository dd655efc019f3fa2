"""What the guide says of the Hub, run as it stands against one on loopback."""

import os
import re
import time
from collections.abc import Iterator

import pytest
from forking import Forks
from huggingface_hub import HfApi, ModelCard, constants
from loopback_hub import LoopbackHub

from longhand.data.tasks.registry import build_tokenizer
from longhand.hub_cards.push import make_parser, push_model
from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.research import pages as documents
from longhand.hub_cards.research.theories.constructions import run as construct
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

SECTION = (documents.HUB_CARDS / "GUIDE.md").read_text().partition("## The Hub\n")[2].partition("\n## ")[0]
GENERATING, PIPELINE, DATASETS, FINE_TUNING = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
FINE_TUNED = (documents.HUB_CARDS / "PUBLISHING.md").read_text().partition("## A fine-tuned")[2].partition("\n## ")[0]
PUSHING, PUBLISHING = re.findall(r"```python\n(.*?)```", FINE_TUNED, re.DOTALL)
SMALLER = {"max_steps=700": "max_steps=2", "100_000": "200", "10}": "3}", "10,30,100": "3,5"}
"""What a test makes smaller."""


@pytest.fixture(scope="module")
def forks_beside_a_hub(tmp_path_factory) -> Iterator[tuple[LoopbackHub, Forks]]:
    """A Hub, and what runs scripts that use it."""
    with LoopbackHub() as hub:
        hub.add_token("secret", "user")
        environment = os.environ | hub.environment(tmp_path_factory.mktemp("home"), token="secret")
        with Forks(tmp_path_factory.mktemp("place"), environment, tmp_path_factory.mktemp("printed")) as forks:
            yield hub, forks


@pytest.fixture
def hub(forks_beside_a_hub, monkeypatch) -> LoopbackHub:
    """The Hub, empty."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    hub, _ = forks_beside_a_hub
    hub.repositories.clear()
    return hub


@pytest.fixture
def forks(forks_beside_a_hub) -> Forks:
    _, forks = forks_beside_a_hub
    return forks


def push_adder(hub, folder, **options):
    return push_model(folder, "user/addition", api=HfApi(endpoint=hub.endpoint, token="secret"), **options)


def run(forks, place, code):
    (place / "script.py").write_text(code)
    done = forks.run(["python", "script.py"], place)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_models_load_and_datasets_are_made_as_the_page_says(hub, forks, tmp_path):
    construct("addition", 60, tmp_path / "addition")
    push_adder(hub, tmp_path / "addition")
    small = DATASETS.replace("1_000_000", "1_000")
    assert small != DATASETS
    local, pushed = re.search(r'folder = (.*?)  # or ("user/addition")', GENERATING).groups()
    loading = f"{GENERATING.replace(local, pushed)}\n{PIPELINE}"
    printed = run(forks, tmp_path, f"{loading}\n{small}\nprint(len(rows), rows.column_names)").splitlines()
    assert printed[0] == re.search(r"```\n\n    (.*?)\n", SECTION)[1]
    assert printed[1] == re.search(r"# (\d+), the ones first", PIPELINE)[1]
    assert "'labels'" in printed[2] and "'longest_cascade'" in printed[2]
    assert printed[3].startswith("1000 [") and all(
        f"`{name}`" in SECTION for name in re.findall(r"'(\w+)'", printed[2].partition("prompt")[0] + printed[3])
    )


@pytest.mark.thorough
def test_the_examples_run_without_an_account(hub, forks, tmp_path):
    """By the folders that the page names beside each id of the Hub, and with nothing on it."""
    make = re.search(r"python -m longhand\.hub_cards\.push (dataset multi_operand_addition .*)", SECTION)[1]
    small = make.replace("--num_samples 20000", "--num_samples 200 --num_test_samples 20")
    code = f"from longhand.hub_cards.push import main\nmain({small.split()})\n"
    others = {"user/sums-of-three": '"outputs/sums-of-three"', "user/addition": 'longhand.zoo("addition")'}
    tuning = FINE_TUNING.replace("max_steps=700", "max_steps=2")
    for pushed, folder in others.items():
        assert f"# or {folder}" in tuning
        tuning = tuning.replace(f'"{pushed}"', folder)
    assert "user/" not in tuning and small != make
    printed = run(forks, tmp_path, f"{code}\n{GENERATING}\n{PIPELINE}\n{tuning}")
    assert "653+049=2070\n2070\n" in printed and hub.repositories == {}
    assert (tmp_path / "outputs" / "addition-of-three" / "model.safetensors").is_file()


@pytest.mark.thorough
def test_the_model_that_was_fine_tuned_is_on_the_hub_with_its_results(hub, forks, tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "relation_range": [0, 1], "windowed": True}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**sizes))
    base = tmp_path / "addition"
    model.save_pretrained(base)
    build_tokenizer().save_pretrained(base)
    write_recipe({"task": "addition"}, base / "recipe.yaml")
    push_adder(hub, base)
    code = "\n".join([PUSHING, FINE_TUNING, PUBLISHING])
    for large, small in SMALLER.items():
        assert large in code, large
        code = code.replace(large, small)
    run(forks, tmp_path, code)
    repository = hub.repositories["model", "user/addition-of-three"]
    assert repository.head.title == "Push addition-of-three"
    assert set(hub.repositories["dataset", "user/sums-of-three"].head.files) >= {"README.md"}
    card = ModelCard(repository.head.files["README.md"].decode())
    assert (card.data.base_model, card.data.datasets) == ("user/addition", ["user/sums-of-three"])
    named = {"exact match, length 3", "exact match, length 5"}
    assert {result.metric_name for result in card.data.eval_results} == named
    before = hub.repositories["model", "user/addition"].head.files["model.safetensors"]
    assert repository.head.files["model.safetensors"] != before


def test_commands_of_the_page_are_legal():
    commands = re.findall(r"python -m longhand\.hub_cards\.push (.*?)(?:  |`|$)", SECTION, re.MULTILINE)
    kinds = [make_parser().parse_args(command.split()).kind for command in commands]
    assert set(kinds) == {"model", "dataset", "metric", "page", "decoding"}
