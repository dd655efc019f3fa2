"""What train.py does on the Hub."""

import shlex
import time
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard, constants
from loopback_hub import LoopbackHub
from publishing_subjects import model_files
from refusals import refusal

from longhand import train
from longhand.hub_cards import push as push_cli
from longhand.hub_cards.checkpoints import load
from longhand.hub_cards.result_rows import read_results

SMALL = ["addition", "--hidden_size", "16", "--intermediate_size", "32", "--batch_size", "8", "--max_length", "3",
         "--validation_lengths", "3", "--validation_samples", "4", "--test_lengths", "4", "--test_samples", "4",
         "--max_steps", "2", "--eval_steps", "2", "--until_certified", "False"]  # fmt: skip
PUSHED = [*SMALL, "--push_to_hub", "--hub_token", "secret"]


@pytest.fixture
def hub(monkeypatch):
    """A Hub that takes the place of huggingface.co in this process."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with LoopbackHub() as hub:
        hub.add_token("secret", "user")
        for module in ("train", "hub_cards.publishing.commits"):
            monkeypatch.setattr(f"longhand.{module}.HfApi", lambda token=None: HfApi(endpoint=hub.endpoint, token=token))
        yield hub


def test_a_finished_run_is_pushed_as_the_command_would(hub, tmp_path):
    folder = tmp_path / "run"
    train.main([*PUSHED, "--hub_private_repo", "True", "--output_dir", str(folder)])
    repository = hub.repositories["model", "user/run"]
    assert [commit.title for commit in repository.history(repository.head)] == ["Push run", "initial commit"]
    expected = model_files(folder, "user/run")
    assert repository.private and set(repository.head.files) - {".gitattributes"} == set(expected)
    # Two steps with one validation: the best weights are the last.
    assert (folder / "best").is_dir() and "best/model.safetensors" not in expected
    assert b'from_pretrained("user/run"' in repository.head.files["README.md"]
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert kept and not any(b"secret" in content for content in (*kept, *repository.head.files.values()))
    assert not {name for name in yaml.safe_load((folder / "recipe.yaml").read_text()) if name.startswith(("hub", "push"))}


def test_the_folder_of_a_run_has_its_card(main_job):
    card = ModelCard.load(main_job / "README.md")
    rows = [row for row in read_results(main_job / "results.jsonl") if not row["model"].endswith("/best")]
    values = [result.metric_value for result in card.data.eval_results if result.metric_type == "exact_match"]
    assert values == [row["exact_match"] for row in rows] and "**Certified.**" in card.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hub_model_id", "other/run"], "other"),
        (["--hub_model_id", "user/a--b"], "user/a--b"),
        (["--hub_model_id", "user/novel"], "novel.txt"),
        (["--hub_model_id", "user/public", "--hub_private_repo", "True"], "user/public"),
        (["--hub_token", "unknown"], "token"),
        (["--hub_token", "reader"], "read"),
        (["--hub_strategy", "end"], "hub_strategy"),
    ],
    ids=str,
)
def test_what_the_hub_will_not_take_is_not_trained(hub, tmp_path, capsys, monkeypatch, options, message):
    hub.add_token("reader", "user", "read")
    hub.add_repository("user/novel", {"novel.txt": b"It was"})
    hub.add_repository("user/public", {})
    before = set(hub.repositories)
    monkeypatch.setattr(train, "make_trainer", None)
    assert message in refusal(capsys, train.main, *PUSHED, "--output_dir", tmp_path / "run", *options)
    assert list(tmp_path.iterdir()) == [] and set(hub.repositories) == before


def test_a_run_loads_each_of_its_checkpoints_once_from_training_to_the_push(hub, tmp_path, monkeypatch):
    loaded, load_model = [], load._load_model

    def counted(source, *rest):
        loaded.append(Path(source))
        return load_model(source, *rest)

    monkeypatch.setattr(load, "_load_model", counted)
    folder = tmp_path / "run"
    train.main([*map(str, PUSHED), "--hub_model_id", "user/adder", "--output_dir", str(folder)])
    assert loaded == [folder, folder / "best"]
    assert "results.jsonl" in hub.repositories["model", "user/adder"].head.files


def test_a_push_that_fails_leaves_the_finished_run_and_the_command_that_pushes_it(hub, tmp_path, capsys, monkeypatch):
    hub.fail("POST", "/commit/", times=10_000)
    folder = tmp_path / "a run"
    arguments = [*PUSHED, "--hub_private_repo", "True", "--hub_model_id", "user/adder", "--output_dir", folder]
    message = refusal(capsys, train.main, *arguments, status=1)
    assert set(model_files(folder, "user/adder")) <= {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert set(hub.repositories["model", "user/adder"].head.files) == {".gitattributes"}
    hub.faults.clear()
    by_hand = message.partition("python -m longhand.hub_cards.push ")[2]
    monkeypatch.setenv("HF_TOKEN", "secret")
    push_cli.main(shlex.split(by_hand))
    assert "results.jsonl" in hub.repositories["model", "user/adder"].head.files


def test_a_run_that_was_to_be_certified_and_is_not_is_not_pushed(hub, tmp_path, capsys):
    folder = tmp_path / "a run"
    arguments = [*PUSHED, "--until_certified", "True", "--output_dir", folder, "--hub_model_id", "user/run"]
    arguments += ["--hub_private_repo", "True", "--hub_revision", "trial"]
    message = refusal(capsys, train.main, *arguments, status=1)
    by_hand = f"python -m longhand.hub_cards.push model '{folder}' user/run --private --revision trial --yes"
    assert by_hand in message
    assert hub.repositories == {} and (folder / "README.md").is_file()
