import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import torch
from datasets.distributed import split_dataset_by_node
from huggingface_hub import HfApi, constants
from loopback_hub import LARGE_SUFFIXES, port_of_nobody
from safetensors.torch import load_file, save_file

from longhand.data import load_task_dataset
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.certificates import hash_weights
from longhand.hub_cards import push as command
from longhand.hub_cards.publishing import card_updates, commits, push
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.commits import WAITS, CannotPush, commit_files
from longhand.hub_cards.publishing.push import is_dataset_file, is_model_file, model_files, push_dataset, push_model
from longhand.hub_cards.runs.certificates import hash_files
from longhand.hub_cards.runs.results import read_results, write_results
from longhand.hub_cards.studies.constructions.study import run as construct
from longhand.modeling import CoupledGPTForCausalLM

ROW = {"model": "adder", "task": "addition", "length": 5, "length_b": 5, "num_samples": 20, "seed": 0, "seconds": 0.1}
ROW |= {"decode": "teacher_forced", "exact_match": 0.95, "token_accuracy": 0.99, "hardware": "CPU"}
WITH_OTHER_LIBRARIES = """
import json
from datasets import load_dataset
from huggingface_hub import constants
from longhand import eval
from longhand.data import collate_rows
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer
for name, model_class in (("adder", AutoModelForCausalLM), ("reader", AutoModelForTokenClassification)):
    eval.main([f"user/{name}", "--lengths", "4", "--num_samples", "10", "--output_dir", name, "--update_card"])
    model = model_class.from_pretrained(f"user/{name}", revision="main")
    assert type(model).__module__.startswith("longhand.modeling."), type(model)
    assert AutoConfig.from_pretrained(f"user/{name}").to_dict() == model.config.to_dict()
    assert AutoTokenizer.from_pretrained(f"user/{name}")("12+34").input_ids
for repository, configuration in (("sums", None), ("sums", "plain"), ("labelled", "all")):
    stream = load_dataset(f"user/{repository}", configuration, split="test", streaming=True)
    with open(f"{repository}-{configuration}.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\\n" for row in stream)
loss = model(**collate_rows(list(stream))).loss
assert loss > 0
for offline in (False, True):
    constants.HF_HUB_OFFLINE = offline
    eval.main(["user/adder", "--ask", "12+34"])
"""
CONFIGURATIONS = {"short": {"max_length": 6}, "plain": {"max_length": 9, "order": "plain"}}
NUM_SAMPLES = {"train": 40, "validation": 10, "test": 10}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "adder"
    construct("addition", 30, folder)
    write_results([ROW], folder / "results.jsonl")
    (folder / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-10" / "optimizer.pt").write_bytes(b"moments")
    (folder / "trainer_state.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def files(built) -> dict[str, bytes]:
    """What is published of the checkpoint."""
    return contents(model_files(built, "user/adder"))


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "adder"))


def contents(files: dict) -> dict[str, bytes]:
    return {path: content if isinstance(content, bytes) else content.read_bytes() for path, content in files.items()}


def held(hub, name="user/adder", kind="model") -> dict[str, bytes]:
    """What the repository holds, but for what every new one does."""
    files = hub.repositories[kind, name].head.files
    return {path: content for path, content in files.items() if path != ".gitattributes"}


def send(api, files):
    """As `push_model` does, without reading the folder."""
    return commit_files(files, "user/adder", "model", is_ours=is_model_file, commit_message="Push adder", api=api)


def written(hub) -> list[tuple[str, str]]:
    """Requests that could change something."""
    return [(method, path) for method, path in hub.requests if method in ("POST", "PUT", "DELETE")]


def test_one_commit_holds_the_checkpoint_and_no_training_state(hub, api, folder):
    done = push_model(folder, "user/adder", api=api)
    repository = hub.repositories["model", "user/adder"]
    assert [commit.title for commit in repository.history(repository.head)] == ["Push adder", "initial commit"]
    assert held(hub) == contents(model_files(folder, "user/adder"))
    named = {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml", "results.jsonl", "README.md"}
    assert named | {"modeling_coupled_gpt.py", "coupling.py"} <= set(held(hub))
    assert not any("checkpoint-" in path or path == "trainer_state.json" for path in held(hub))
    assert done.sha == repository.head.sha and set(done.changed) == set(held(hub)) and done.removed == []
    assert b"user/adder" in held(hub)["README.md"]
    assert not (folder / "README.md").exists()


def test_large_files_travel_as_such(hub, api, folder):
    push_model(folder, "user/adder", api=api)
    uploaded = set(hub.large_files.values())
    assert uploaded == {content for path, content in held(hub).items() if path.endswith(LARGE_SUFFIXES)}


def test_a_best_checkpoint_that_adds_nothing_is_left_out(hub, api, folder, capsys):
    make_best(folder)
    rows = [ROW, {**ROW, "model": "adder/best"}]
    write_results(rows, folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    assert "best/model.safetensors" in held(hub) and "best exact match in validation" in held(hub)["README.md"].decode()
    shutil.copy(folder / "model.safetensors", folder / "best")
    command.main(["model", str(folder), "user/adder"])
    assert "note: best/ is not pushed: the last checkpoint has the same weights\n" in capsys.readouterr().out
    write_card(folder)
    assert "left out: the last checkpoint has the same weights" in (folder / "README.md").read_text()
    push_model(folder, "user/adder", api=api)
    assert not any(path.startswith("best/") for path in held(hub))
    assert "best exact match in validation" not in held(hub)["README.md"].decode()
    assert [row["model"] for row in map(json.loads, held(hub)["results.jsonl"].splitlines())] == ["adder"]
    assert len(read_results(folder / "results.jsonl")) == 2
    assert push_model(folder, "user/adder", api=api).changed == []


def test_pushing_twice_changes_nothing(hub, api, folder):
    first = push_model(folder, "user/adder", api=api)
    hub.requests.clear()
    second = push_model(folder, "user/adder", api=api)
    assert second.sha == first.sha and second.changed == second.removed == []
    assert written(hub) == []


def test_a_push_sends_what_changed_and_removes_what_is_gone(hub, api, folder):
    make_best(folder)
    best = {f"best/{file.name}" for file in (folder / "best").iterdir()}
    push_model(folder, "user/adder", api=api)
    strangers = {"notes.md": b"of the user", "best/more.txt": b"too"}
    repository = hub.repositories["model", "user/adder"]
    repository.commit("main", "by hand", {**repository.head.files, **strangers})
    shutil.rmtree(folder / "best")
    write_results([{**ROW, "exact_match": 0.5}], folder / "results.jsonl")
    done = push_model(folder, "user/adder", api=api)
    assert done.changed == ["README.md", "results.jsonl"] and set(done.removed) == best
    assert held(hub) == contents(model_files(folder, "user/adder")) | strangers
    assert len(repository.commits) == 4


def test_private_branch_and_message(hub, api, folder):
    push_model(folder, "user/adder", private=True, revision="trial", commit_message="first", api=api)
    repository = hub.repositories["model", "user/adder"]
    assert repository.private and set(repository.branches) == {"main", "trial"}
    assert repository.find("trial").title == "first" and "config.json" in repository.find("trial").files
    assert set(repository.head.files) == {".gitattributes"}
    assert push_model(folder, "user/adder", revision="trial", api=api).changed == []


FAULTS = {
    "500 at the commit": ("POST", "/commit/", {"times": 2}),
    "503 at the first request": ("GET", "/api/whoami", {"status": 503}),
    "500 at the upload": ("PUT", "/large/", {}),
    "500 for a long time": ("POST", "/preupload/", {"times": 7}),
    "429": ("POST", "/commit/", {"status": 429, "retry_after": 77}),
    "upload lost in the middle": ("PUT", "/large/", {"kind": "cut"}),
    "upload lost for a long time": ("PUT", "/large/", {"kind": "cut", "times": 7}),
    "commit lost in the middle": ("POST", "/commit/", {"kind": "cut", "times": 2}),
    "answer to the commit lost": ("POST", "/commit/", {"kind": "lost"}),
    "answer to the creation lost": ("POST", "/repos/create", {"kind": "lost"}),
    "listing lost in the middle": ("GET", "/api/models/user/adder/revision", {"kind": "cut"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes_ends_in_one_complete_commit(hub, api, files, waits, name):
    method, path, options = FAULTS[name]
    hub.fail(method, path, **options)
    done = send(api, files)
    assert hub.faults[0].times == 0
    assert held(hub) == files
    assert len(hub.repositories["model", "user/adder"].commits) == 2
    assert set(done.changed) == set(held(hub))
    assert waits and max(waits) >= (77 if name == "429" else 1)


READING = {
    "branches": "/api/models/user/adder/refs",
    "commit": "/api/models/user/adder/revision",
    "file list": "/api/models/user/adder/tree",
    "results": "/resolve/.*/results.jsonl",
}


@pytest.mark.parametrize("fault", [{"kind": "cut"}, {"status": 503}, {"status": 429, "retry_after": 7}], ids=str)
@pytest.mark.parametrize("name", READING)
def test_a_fault_that_passes_while_results_are_read_loses_none(hub, api, folder, waits, name, fault):
    weights = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_results([{**ROW, "weights": weights}], folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    (folder / "results.jsonl").unlink()
    hub.fail("GET", READING[name], times=4, **fault)
    push_model(folder, "user/adder", api=api)
    assert hub.faults[0].times == 0
    assert json.loads(held(hub)["results.jsonl"])["length"] == 5


@pytest.mark.parametrize("name", READING)
def test_a_fault_that_stays_while_results_are_read_changes_nothing(hub, api, folder, waits, name):
    push_model(folder, "user/adder", api=api)
    before = held(hub)
    (folder / "results.jsonl").unlink()
    hub.fail("GET", READING[name], times=10_000, status=503)
    with pytest.raises(CannotPush, match="gave up after"):
        push_model(folder, "user/adder", api=api)
    assert held(hub) == before


LASTING = {
    "500 at the commit": ("POST", "/commit/", {}),
    "429 at the commit": ("POST", "/commit/", {"status": 429, "retry_after": 3}),
    "commit lost in the middle": ("POST", "/commit/", {"kind": "cut"}),
    "upload lost in the middle": ("PUT", "/large/", {"kind": "cut"}),
    "503 everywhere": ("GET", "/api/", {"status": 503}),
}


@pytest.mark.parametrize("name", LASTING)
def test_a_fault_that_stays_ends_in_an_error_and_leaves_what_was_there(hub, api, files, waits, name):
    send(api, files)
    changed = files | {"model.safetensors": files["model.safetensors"] + b" ", "results.jsonl": b""}
    method, path, options = LASTING[name]
    hub.fail(method, path, times=10_000, **options)
    with pytest.raises(CannotPush, match=f"gave up after {len(WAITS) + 1} attempts"):
        send(api, changed)
    assert held(hub) == files
    assert sum(waits) < 600
    hub.faults.clear()
    send(api, changed)
    assert held(hub) == changed


def test_a_hub_that_asks_for_too_long_a_wait_is_not_waited_for(hub, api, files, waits):
    hub.fail("POST", "/repos/create", status=429, retry_after=100_000)
    with pytest.raises(CannotPush, match="asks to wait for 100000 seconds"):
        send(api, files)
    assert sum(waits) == 0


def test_a_hub_that_is_not_there(files, waits):
    api = HfApi(endpoint=f"http://127.0.0.1:{port_of_nobody()}", token="secret")
    with pytest.raises(CannotPush, match="gave up after 6 attempts: the connection to the Hub failed"):
        send(api, files)


def test_on_top_of_a_commit_of_another_at_the_same_moment_all_is_complete(hub, api, files, monkeypatch):
    send(api, files)
    repository, create = hub.repositories["model", "user/adder"], HfApi.create_commit
    raced, kept = [], {path: content for path, content in repository.head.files.items() if path != "config.json"}

    def create_commit(self, *arguments, **options):
        if not raced:
            raced.append(repository.commit("main", "other", kept | {"notes.md": b"mine"}))
        return create(self, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", create_commit)
    changed = files | {"results.jsonl": b""}
    send(api, changed)
    assert held(hub) == changed | {"notes.md": b"mine"}
    assert [commit.title for commit in repository.history(repository.head)][:2] == ["Push adder", "other"]


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [
        (None, "user/adder", "no token"),
        ("unknown", "user/adder", "refuses the token"),
        ("reader", "user/adder", "can only read"),
        ("secret", "other/adder", "may write to user only"),
        ("secret", "user/reserved", "reserved"),
    ],
)
def test_the_hub_refuses(hub, api, files, waits, monkeypatch, tmp_path, token, name, message):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    hub.add_token("reader", "user", "read")
    api = HfApi(endpoint=hub.endpoint, token=token)
    with pytest.raises(CannotPush, match=message):
        commit_files(files, name, "model", is_ours=is_model_file, commit_message="x", api=api)
    assert hub.repositories == {} and waits == []


@pytest.mark.parametrize("name", ["adder", "user/", "user/a--b", "user/a b", "a/b/c", "user/" + "x" * 100, ""])
def test_names_that_are_not_legal(hub, api, folder, name):
    with pytest.raises(ValueError, match="repository name"):
        push_model(folder, name, api=api)
    assert hub.requests == []


@pytest.mark.parametrize("kind", ["dataset", "space"])
def test_a_repository_of_another_kind(hub, api, files, kind):
    hub.add_repository("user/adder", {"data.csv": b"1,2"}, kind)
    with pytest.raises(CannotPush, match=f"user/adder is a {kind} already"):
        send(api, files)
    assert set(hub.repositories) == {(kind, "user/adder")}


@pytest.mark.parametrize("card", [b"", b"---\ntags:\n- llama\n---\n"])
def test_a_repository_that_holds_something_else(hub, api, files, card):
    others = {"model.safetensors": b"of another", "README.md": card}
    hub.add_repository("user/adder", others)
    with pytest.raises(CannotPush, match="holds something else already"):
        send(api, files)
    assert held(hub) == others and written(hub) == []


def remove_config(folder):
    (folder / "config.json").unlink()


def remove_weights(folder):
    (folder / "model.safetensors").unlink()


def cut_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def drop_a_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights.popitem()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def add_pickle(folder):
    torch.save({}, folder / "pytorch_model.bin")


def add_pickle_of_the_best(folder):
    (folder / "best").mkdir()
    torch.save({}, folder / "best" / "training_args.pt")


def change_architecture(folder):
    (folder / "config.json").write_text('{"model_type": "gpt2"}')


def take_results_of_another(folder):
    write_results([{**ROW, "model": "other"}], folder / "results.jsonl")


def take_results_of_another_task(folder):
    write_results([{**ROW, "task": "copy"}], folder / "results.jsonl")


def take_results_of_other_weights(folder):
    write_results([{**ROW, "weights": "0" * 64}], folder / "results.jsonl")


def take_certificate_of_another(folder):
    write_certificate(folder, "0" * 64)


def take_certificate_of_another_format(folder):
    own = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_certificate(folder, own, order="plain")


def claim_a_certificate(folder):
    write_certificate(folder, hash_weights(CoupledGPTForCausalLM.from_pretrained(folder)))


def break_the_best(folder):
    make_best(folder)
    (folder / "best" / "model.safetensors").write_text("x")


def take_best_of_another_task(folder):
    make_best(folder)
    recipe = (folder / "recipe.yaml").read_text().replace("zero_padding: true", "zero_padding: false")
    (folder / "best" / "recipe.yaml").write_text(recipe)


def take_best_with_results_of_another(folder):
    make_best(folder)
    write_results([{**ROW, "model": "other"}], folder / "best" / "results.jsonl")


def remove_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def remove_code(folder):
    (folder / "modeling_coupled_gpt.py").unlink()


def cut_results(folder):
    (folder / "results.jsonl").write_text(json.dumps(ROW)[:50])


def empty_certificate(folder):
    (folder / "certificate.json").write_text("[]")


def list_the_task(folder):
    (folder / "recipe.yaml").write_text("task: [addition]")


def describe_by_a_number(folder):
    (folder / "recipe.yaml").write_text("task: addition\ndescription: 3")


def link_elsewhere(folder):
    (folder.parent / "elsewhere.png").write_text("mine")
    (folder / "plot.png").symlink_to(folder.parent / "elsewhere.png")


def make_best(folder):
    (folder / "best").mkdir()
    for file in [file for file in folder.iterdir() if is_model_file(file.name) and file.name != "results.jsonl"]:
        shutil.copy(file, folder / "best")
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).mul_(2)
    save_file(weights, folder / "best" / "model.safetensors", metadata={"format": "pt"})


def write_certificate(folder, weights, **format_fields):
    task = {"task": "addition", "separate_eos": False, "zero_padding": True, "order": "response_reversed", **format_fields}
    certificate = {"certified": True, "ratio": 20.0, "weights": weights, "task": task, "files": hash_files(folder)}
    (folder / "certificate.json").write_text(json.dumps(certificate))


DAMAGES = {
    remove_config: "is not a checkpoint: it holds no config.json",
    remove_weights: "is not a checkpoint: it holds no .safetensors",
    cut_weights: "truncated or damaged",
    drop_a_weight: "is damaged: its weights files lack what config.json names",
    add_pickle: r"holds pickles \(pytorch_model.bin\)",
    add_pickle_of_the_best: r"holds pickles \(best/training_args.pt\)",
    change_architecture: "it is a 'gpt2' model",
    take_results_of_another: r"is of another checkpoint \(other, not adder\)",
    take_results_of_another_task: r"is of another task \(copy\)",
    take_results_of_other_weights: "results.jsonl is of another checkpoint",
    take_certificate_of_another: "certificate.json is not of this model",
    take_certificate_of_another_format: "certificate.json is of another task or format",
    claim_a_certificate: "certificate.json does not hold .no certificate: the model has no window",
    break_the_best: "best cannot be loaded",
    take_best_of_another_task: "best is of another task",
    take_best_with_results_of_another: r"best/results.jsonl is of another checkpoint \(other, not adder\)",
    remove_tokenizer: "is incomplete: it lacks tokenizer.json",
    remove_code: "is incomplete: it lacks modeling_coupled_gpt.py",
    cut_results: "results.jsonl, line 1: a row must be one JSON object",
    empty_certificate: r"certificate.json must be a JSON object, got '\[\]'",
    list_the_task: r"recipe.yaml: task \['addition'\] is unknown: choose one of",
    describe_by_a_number: "recipe.yaml: description must be text, got 3",
    link_elsewhere: "plot.png in .* is a link to .*elsewhere.png, outside the folder",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_folder_that_cannot_be_published(hub, api, folder, damage):
    damage(folder)
    with pytest.raises(ValueError, match=DAMAGES[damage]):
        push_model(folder, "user/adder", api=api)
    assert hub.requests == []


@pytest.fixture
def at_home(hub, api, monkeypatch):
    """The command's own Hub is this one."""
    for module in (commits, card_updates):
        monkeypatch.setattr(module, "HfApi", lambda: api)
    return hub


def test_without_yes_the_command_shows_files_and_card_and_asks_nobody(at_home, folder, capsys):
    command.main(["model", str(folder), "user/adder"])
    output = capsys.readouterr().out
    size = (folder / "model.safetensors").stat().st_size
    assert f"{size:,}  model.safetensors\n" in output and "\n# adder\n" in output and "nothing was pushed" in output
    assert at_home.requests == []


def test_the_command_pushes_and_says_so(at_home, folder, capsys):
    words = ["model", str(folder), "user/adder", "--private", "--commit_message", "hello", "--yes"]
    command.main(words)
    assert "in one commit" in capsys.readouterr().out
    assert at_home.repositories["model", "user/adder"].head.title == "hello"
    command.main(words)
    assert "nothing was changed" in capsys.readouterr().out


def test_the_command_ends_with_one_line_and_status_2(at_home, folder, capsys):
    for words in (["model", "nowhere", "user/adder"], ["model", str(folder), "other/adder", "--yes"]):
        with pytest.raises(SystemExit) as stop:
            command.main(words)
        assert stop.value.code == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_the_command_pushes_a_dataset(at_home, capsys, monkeypatch, tmp_path):
    words = ["dataset", "addition", "user/sums", "--max_length", "4", "6", "--fields", "zero_padding=false"]
    words += ["--num_samples", "20", "--num_test_samples", "5"]
    command.main(words)
    assert "config_name: up_to_4" in capsys.readouterr().out and at_home.requests == []
    command.main([*words, "--yes"])
    assert "up_to_6/train-00000-of-00001.parquet" in held(at_home, "user/sums", "dataset")
    wrong = [["--max_length", "0"], ["--num_samples", "0"], ["--min_length", "7"]]
    fields = (
        "zero_padding",
        "colour=red",
        "seed=3",
        "split=train",
        "num_samples=3",
        "streaming=true",
        "task=copy",
        "name=a",
    )
    for more in (*wrong, *(["--fields", field] for field in (*fields, "max_length=3", "cache_dir=x", "zero_padding=[1"))):
        with pytest.raises(SystemExit) as stop:
            command.main([*words, *more])
        assert stop.value.code == 2 and capsys.readouterr().err.startswith("error: ")
    repository = at_home.repositories["dataset", "user/sums"]
    assert len(repository.commits) == 2


def test_the_command_takes_the_shortest_length_of_a_task_with_few_short_problems(at_home, capsys):
    words = ["dataset", "parity", "user/bits", "--max_length", "9", "--num_samples", "20", "--num_test_samples", "5"]
    with pytest.raises(SystemExit):
        command.main(words)
    advice = re.search(r"take min_length (\d+)", capsys.readouterr().err)
    command.main([*words, "--min_length", advice[1]])
    assert f"{advice[1]} to 9" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["model", "dataset", "metric", "decoding"])
def test_what_is_shown_is_what_is_pushed(at_home, folder, capsys, kind):
    sums = ["addition", "user/made", "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]
    words = [kind, *{"model": [str(folder), "user/made"], "dataset": sums}.get(kind, ["user/made"])]
    command.main(words)
    shown = capsys.readouterr().out
    command.main([*words, "--yes"])
    pushed = held(at_home, "user/made", {"metric": "space", "decoding": "model"}.get(kind, kind))
    assert capsys.readouterr().out.partition("\n\n")[0].splitlines()[:-1] == shown.partition("\n\n")[0].splitlines()
    assert all(f"{len(content):>14,}  {path}\n" in shown for path, content in pushed.items())
    assert f" bytes in {len(pushed)} files\n" in shown and pushed["README.md"].decode() in shown


def test_every_argument_has_a_help_text_and_every_kind_an_example(capsys):
    command_line = command.make_parser()
    (kinds,) = (action for action in command_line._actions if isinstance(action, argparse._SubParsersAction))
    assert set(kinds.choices) == {"model", "dataset", "metric", "decoding"}
    for kind, parser in kinds.choices.items():
        assert all(action.help for action in parser._actions)
        examples = re.findall(r"^  python -m longhand\.hub_cards\.push (.*?)(?:   .*)?$", parser.format_help(), re.MULTILINE)
        assert examples and {command_line.parse_args(example.split()).kind for example in examples} == {kind}


def test_only_tables_of_splits_are_taken_for_our_own():
    ours = {"README.md", "up_to_4/train-00000-of-00001.parquet"}
    assert {
        path
        for path in (*ours, "more.parquet", "mine/all.parquet", "a/b/test-00000-of-00001.parquet")
        if is_dataset_file(path)
    } == ours


def push_sums(api, **changes):
    options = {"num_samples": NUM_SAMPLES, "seed": 3, **changes}
    return push_dataset("addition", "user/sums", options.pop("configurations", CONFIGURATIONS), api=api, **options)


def test_a_dataset_is_one_commit_and_the_same_bytes_again(hub, api):
    first = push_sums(api)
    repository = hub.repositories["dataset", "user/sums"]
    assert len(repository.commits) == 2
    paths = [f"{name}/{split}-00000-of-00001.parquet" for name in CONFIGURATIONS for split in NUM_SAMPLES]
    assert set(first.changed) == {"README.md", *paths}
    again = push_sums(api)
    assert again.changed == [] and again.sha == first.sha
    fewer = push_sums(api, configurations={"short": CONFIGURATIONS["short"]})
    assert fewer.changed == ["README.md"] and set(fewer.removed) == {path for path in paths if path.startswith("plain")}


def test_what_the_hub_refuses_is_not_generated(hub, api, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    hub.add_repository("user/sums", {"data.csv": b"1,2"}, "dataset")
    with pytest.raises(CannotPush, match="holds something else already"):
        push_sums(api)
    hub.tokens.clear()
    with pytest.raises(CannotPush, match="refuses the token"):
        push_sums(api)
    assert written(hub) == []


def test_a_dataset_in_several_files_holds_the_same_rows(hub, api, monkeypatch, tmp_path):
    monkeypatch.setattr(push, "ROWS_PER_FILE", 15)
    push_sums(api)
    files = held(hub, "user/sums", "dataset")
    parts = sorted(path for path in files if path.startswith("short/train"))
    assert parts == [f"short/train-{part:05d}-of-00003.parquet" for part in range(3)]
    for part in parts:
        (tmp_path / Path(part).name).write_bytes(files[part])
    read = datasets.load_dataset("parquet", data_files=[str(tmp_path / Path(part).name) for part in parts], split="train")
    made = load_task_dataset("addition", split="train", num_samples=40, seed=3, max_length=6, streaming=True)
    assert list(read) == list(made)


def test_a_published_dataset_names_its_columns_and_sizes_and_is_read_in_parts(hub, api, monkeypatch, tmp_path):
    monkeypatch.setattr(push, "FEWEST_ROWS", 10)
    push_sums(api)
    for path, content in held(hub, "user/sums", "dataset").items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    for name, arguments in CONFIGURATIONS.items():
        info = datasets.load_dataset_builder(str(tmp_path), name, cache_dir=str(tmp_path / "cache")).info
        assert info.features == load_task_dataset("addition", num_samples=1, streaming=True, **arguments).features
        assert {split: own.num_examples for split, own in info.splits.items()} == NUM_SAMPLES
        assert info.download_size == sum(file.stat().st_size for file in (tmp_path / name).glob("*.parquet"))
    stream = datasets.load_dataset(str(tmp_path), "short", split="train", streaming=True)
    nodes = [list(split_dataset_by_node(stream, rank, 2)) for rank in range(2)]
    assert stream.num_shards == 4
    assert sorted(row["prompt"] for node in nodes for row in node) == sorted(row["prompt"] for row in stream)
    part = datasets.load_dataset(str(tmp_path), "short", split="train[:10%]", cache_dir=str(tmp_path / "cache"))
    assert list(part) == list(stream)[:4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"configurations": {}}, "at least one"),
        ({"configurations": {"a": {"max_length": 5, "colour": "red"}}}, "has no field 'colour'"),
        ({"configurations": {"a": {"max_length": 5}, "b": {"max_length": 5, "order": "up"}}}, "order 'up' is unknown"),
        *(
            ({"configurations": {name: {"max_length": 5}}}, "a configuration's name must be of letters")
            for name in ("a/b", "..", ".hidden", "-a", "", "größer", "README.md")
        ),
        ({"num_samples": {"train": 0}}, "num_samples"),
        ({"num_samples": {"all": 5}}, "split 'all' is unknown"),
    ],
)
def test_a_dataset_that_cannot_be_made(hub, api, changes, message, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    with pytest.raises(ValueError, match=message):
        push_sums(api, **changes)
    assert hub.requests == []


def files_below(folder: Path) -> dict[str, bytes]:
    links = {path for path in folder.rglob("snapshots/*/*") if path.is_file()}
    return {path.name: path.read_bytes() for path in links}


@pytest.mark.parametrize("times", [1, 3])
def test_a_download_that_is_cut_off_goes_on_where_it_stopped(hub, api, files, tmp_path, times):
    send(api, files)
    hub.fail("GET", "/resolve/.*/model.safetensors", kind="cut", times=times)
    api.snapshot_download("user/adder", cache_dir=tmp_path / "cache")
    assert hub.faults[0].times == 0
    found = files_below(tmp_path / "cache")
    assert {name: found[name] for name in files} == files


def test_a_truncated_download_is_an_error_and_leaves_no_half_file(hub, api, files, tmp_path):
    send(api, files)
    hub.fail("GET", "/resolve/.*/model.safetensors", kind="truncated", times=10_000)
    with pytest.raises(OSError, match="should be of size"):
        api.hf_hub_download("user/adder", "model.safetensors", cache_dir=tmp_path / "cache")
    assert files_below(tmp_path / "cache") == {}
    hub.faults.clear()
    file = api.hf_hub_download("user/adder", "model.safetensors", cache_dir=tmp_path / "cache")
    assert Path(file).read_bytes() == files["model.safetensors"]


@pytest.mark.slow
def test_eval_and_load_dataset_read_what_was_pushed(hub, api, files, small_encoder, tmp_path):
    send(api, files)
    push_model(small_encoder, "user/reader", api=api)
    push_sums(api)
    labelled = {"max_length": 4, "field_width": 6, "sampling": "shifted"}
    push_dataset("encoder_addition", "user/labelled", {"all": labelled}, num_samples=NUM_SAMPLES, seed=3, api=api)
    environment = os.environ | hub.environment(tmp_path / "home", token="secret")
    command = [sys.executable, "-c", WITH_OTHER_LIBRARIES]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.endswith("\n46\n46\n")
    for name, exact_match in (("adder", 1.0), ("reader", 0.0)):
        (result,) = read_results(tmp_path / name / "results.jsonl")
        assert (result["model"], result["exact_match"]) == (f"user/{name}", exact_match)
        head = hub.repositories["model", f"user/{name}"].head
        assert head.title == "New results" and f"| 4 | {exact_match:.4f} |" in head.files["README.md"].decode()
        assert json.loads(head.files["results.jsonl"].splitlines()[0])["length"] == 4
    written = {
        "sums-None": ("addition", CONFIGURATIONS["short"]),
        "sums-plain": ("addition", CONFIGURATIONS["plain"]),
        "labelled-all": ("encoder_addition", labelled),
    }
    for file, (task, arguments) in written.items():
        made = load_task_dataset(task, split="test", num_samples=10, seed=3, streaming=True, **arguments)
        read = [json.loads(line) for line in (tmp_path / f"{file}.jsonl").read_text().splitlines()]
        assert read == [json.loads(json.dumps(row)) for row in made] and len(read) == 10
