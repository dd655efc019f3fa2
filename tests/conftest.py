"""How tests are run, and what several files share: one run of the main job, an encoder's checkpoint, and a Hub on loopback.

The process that only hands out tests loads this file too, so what takes long to import is imported in the fixtures.
"""

import gc
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forking import Forks
from huggingface_hub import HfApi, constants
from loopback_hub import LoopbackHub
from made_once import make_once

# One thread for each test process and for each process that a test starts: there are more test processes than cores,
# and threads that wait for a core make small models many times slower. Read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without bytecode, each of many processes would compile torch and transformers anew, for longer than most tests take.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start no second process for the tests of one file; otherwise three for two cores, since many tests wait for others."""
    (*others, last) = config.args
    return 0 if not others and ".py" in last else 3 * (os.cpu_count() or 2) // 2


LONGEST = (
    *("test_readme_commands.py", "test_gpu_script.py", "test_examples.py", "test_contributing.py"),
    *("test_kills.py", "test_launch.py"),
)
"""Files of tests that take longest, or whose scripts one process forks. They begin first: no other test process waits for
them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Call tests in a browser thorough, and run what is slow last: tests marked so, and those that need the main job."""
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker(pytest.mark.thorough)

    def rank(item: pytest.Item) -> tuple[bool, bool]:
        is_slow = item.get_closest_marker("slow") is not None or "main_job" in item.fixturenames
        is_long = item.path.name in LONGEST and bool({"thorough", "release"} & {mark.name for mark in item.iter_markers()})
        return not is_long, is_slow

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Leave out the tests and libraries, which stay to the end, whenever Python looks for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def new_process():
    """Whatever a test registers is gone after it, as at the end of a process."""
    from plugin_state import forget_plugins

    yield
    forget_plugins()


@pytest.fixture(scope="session")
def main_job(tmp_path_factory) -> Path:
    """The finished folder of the default recipe, tested at fewer lengths than it names itself. Copy it to change it."""
    from longhand import train

    def run(folder: Path) -> None:
        options = ["--test_lengths", "30", "200", "--test_samples", "50"]
        train.main(["addition", *options, "--output_dir", str(folder)])

    return make_once(tmp_path_factory, "addition", run)


@pytest.fixture(scope="session")
def forks(tmp_path_factory) -> Iterator[Forks]:
    """Runs scripts where `longhand` is the package and nothing else of the clone is found."""
    path = tmp_path_factory.mktemp("path")
    (path / "longhand").symlink_to(Path(__file__).parents[1])
    with Forks(path, os.environ | {"PYTHONPATH": str(path)}, tmp_path_factory.mktemp("printed")) as forks:
        yield forks


@pytest.fixture(scope="session")
def small_encoder(tmp_path_factory) -> Path:
    """The folder of an encoder that has learned nothing, with results made up: what it says is the same everywhere."""
    import torch

    from longhand.data import EncoderAddition
    from longhand.data.proofs import hash_weights
    from longhand.hub_cards.recipes import write_recipe
    from longhand.hub_cards.result_rows import write_results
    from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification

    folder, task = tmp_path_factory.mktemp("encoder") / "reader", EncoderAddition()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = PairwiseBertConfig(pair_maps=["relative", "coupled"], initializer_range=0.5, **sizes)
    PairwiseBertForTokenClassification(config).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe({"recipe": "reader", **task.describe(), "min_length": 1, "max_length": 4}, folder / "recipe.yaml")
    row = {"model": "reader", "task": "encoder_addition", "length": 4, "length_b": 4, "num_samples": 1234, "seed": 7}
    row |= {"seconds": 0.1, "decode": "teacher_forced", "exact_match": 0.25, "token_accuracy": 0.875, "hardware": "some CPU"}
    row["weights"] = hash_weights(PairwiseBertForTokenClassification.from_pretrained(folder))
    write_results([row], folder / "results.jsonl")
    return folder


@pytest.fixture(scope="session")
def adder(tmp_path_factory) -> Path:
    """The folder of a model that adds, built and not trained, with results made up. Copy it to change it."""
    from publishing_subjects import measure

    from longhand.hub_cards.research.theories.constructions import run as construct

    folder = tmp_path_factory.mktemp("built") / "adder"
    construct("addition", 60, folder)
    measure(folder, {5: 1.0, 40: 0.8125})
    return folder


@pytest.fixture
def folder(adder, tmp_path) -> Path:
    """A copy of the adder."""
    return Path(shutil.copytree(adder, tmp_path / "adder"))


@pytest.fixture
def uncompiled():
    """Runs what is compiled, such as flex attention, as it is written: compilers take seconds or minutes for each shape."""
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.fixture
def undrawn(monkeypatch):
    """Leaves the files of plots empty: to draw them takes longer than a small run."""
    from longhand.hub_cards.evaluation import plots

    monkeypatch.setattr(plots, "save_figure", lambda figure, file: file.touch())


@pytest.fixture
def hub():
    with LoopbackHub() as hub:
        yield hub


@pytest.fixture
def api(hub, monkeypatch) -> HfApi:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return HfApi(endpoint=hub.endpoint, token=hub.add_token("secret", "user"))


@pytest.fixture
def at_home(hub, api, monkeypatch):
    """The Hub, in the place of huggingface.co for commands that run in this process."""
    for module in ("train", "hub_cards.publishing.commits"):
        monkeypatch.setattr(f"longhand.{module}.HfApi", lambda token=None: api)
    return hub
