"""A push of a checkpoint: one complete commit, whatever fails on the way."""

import json
import shutil

import pytest
from huggingface_hub import HfApi, constants
from loopback_hub import LARGE_SUFFIXES, port_of_nobody
from push_subjects import ROW, built, contents, files, folder, held, make_best, send, written

from longhand.data.certificates import hash_weights
from longhand.hub_cards import push as command
from longhand.hub_cards.evaluation.results import read_results, write_results
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.commits import WAITS, CannotPush, commit_files
from longhand.hub_cards.publishing.push import is_model_file, model_files, push_model
from longhand.modeling import CoupledGPTForCausalLM

assert built and files and folder


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
