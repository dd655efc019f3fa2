"""What train.py and eval.py do on the Hub, and with the card of a checkpoint's folder."""

import shlex
import shutil
import time

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard, constants
from loopback_hub import LoopbackHub
from publishing_subjects import refusal
from safetensors.torch import load_file, save_file

from longhand import eval as evaluation
from longhand import train
from longhand.hub_cards import push as push_cli
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.publishing.publications import model_files

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
        for module in ("train", "hub_cards.publishing.commits", "hub_cards.publishing.collection"):
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
        (["--hub_model_id", "user/data"], "dataset"),
        (["--hub_model_id", "user/novel"], "novel.txt"),
        (["--hub_model_id", "user/public", "--hub_private_repo", "True"], "user/public"),
        (["--hub_revision", "refs/heads/trial"], "revision"),
        (["--hub_token", "unknown"], "token"),
        (["--hub_token", "reader"], "read"),
        (["--push_to_hub", "False", "--hub_model_id", "user/run", "--hub_token", "x"], "push_to_hub"),
        (["--hub_strategy", "end"], "hub_strategy"),
    ],
    ids=str,
)
def test_what_the_hub_will_not_take_is_not_trained(hub, tmp_path, capsys, monkeypatch, options, message):
    hub.add_token("reader", "user", "read")
    hub.add_repository("user/data", {"data.csv": b"1,2"}, "dataset")
    hub.add_repository("user/novel", {"novel.txt": b"It was"})
    hub.add_repository("user/public", {})
    before = set(hub.repositories)
    monkeypatch.setattr(train, "make_trainer", None)
    assert message in refusal(capsys, train.main, *PUSHED, "--output_dir", tmp_path / "run", *options)
    assert list(tmp_path.iterdir()) == [] and set(hub.repositories) == before


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


@pytest.fixture
def run(main_job, tmp_path):
    return shutil.copytree(main_job, tmp_path / "addition")


def update(*arguments):
    evaluation.main([*map(str, arguments), "--num_samples", "20", "--update_card"])


def test_eval_adds_results_to_the_card_of_a_folder(run, tmp_path):
    before = read_results(run / "results.jsonl")
    update(run, "--lengths", "7,30", "--output_dir", tmp_path / "seven", "--dataset", "user/sums")
    rows = read_results(run / "results.jsonl")
    assert [(row["model"], row["length"], row["num_samples"]) for row in rows] == [
        ("addition", 7, 20), ("addition", 30, 20), ("addition", 200, 50),
        ("addition/best", 30, 50), ("addition/best", 200, 50),
    ]  # fmt: skip
    assert "| 7 | 1.0000 |" in (card := (run / "README.md").read_text()) and "**Certified.**" in card
    update(run / "best", "--lengths", "8", "--output_dir", tmp_path / "eight")
    best = [row["length"] for row in read_results(run / "results.jsonl") if row["model"] == "addition/best"]
    assert best == [8, 30, 200] and len(before) == 4


def test_a_run_may_have_the_name_of_the_folder_of_best_checkpoints(main_job, tmp_path):
    run = shutil.copytree(main_job, tmp_path / "best")
    for file in ("results.jsonl", "certificate.json"):
        (run / file).unlink()
    # The same answers from other weights.
    weights = load_file(run / "best" / "model.safetensors")
    weights["lm_head.weight"] *= 2
    save_file(weights, run / "best" / "model.safetensors", metadata={"format": "pt"})
    update(run, "--lengths", "7", "--output_dir", tmp_path / "seven")
    update(run / "best", "--lengths", "8", "--output_dir", tmp_path / "eight")
    assert [(row["model"], row["length"]) for row in read_results(run / "results.jsonl")] == [("best", 7), ("best/best", 8)]
    before, title, after = (run / "README.md").read_text().partition("best exact match in validation")
    assert "| 7 | 1.0000 |" in before and title and "| 8 | 1.0000 |" in after


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ask", "1+1"], "--ask"),
        (["--certify"], "--certify"),
        (["--dataset", "sums"], "sums"),
    ],
    ids=str,
)
def test_updates_that_cannot_end_well_are_refused_before_any_work(run, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.setattr(evaluation, "evaluate_lengths", None)
    arguments = [run, "--lengths", "7", "--update_card", "--output_dir", tmp_path / "out"]
    assert message in refusal(capsys, evaluation.main, *arguments, *options)
    (run / "README.md").write_text("---\nlicense: mit\n---\nMine.")
    assert "hub_cards.push card" in refusal(capsys, evaluation.main, *arguments)
    assert "--update_card" in refusal(capsys, evaluation.main, run, "--dataset", "user/sums")
    assert not (tmp_path / "out").exists()
