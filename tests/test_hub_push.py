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
from longhand.hub_cards.publishing.commits import CannotPush, Repository, commit_files
from longhand.hub_cards.publishing.publications import model_files, push_model
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
    "commit": ("POST", "/commit/", {"status": 500}),
    "busy": ("POST", "/commit/", {"status": 429}),
    "commit lost in the middle": ("POST", "/commit/", {"kind": "cut"}),
    "upload": ("PUT", "/large/", {"kind": "cut"}),
    "everything": ("GET", "/api/", {"status": 503}),
    "branches": ("GET", "/api/models/user/adder/refs", {"status": 503}),
    "results": ("GET", "/resolve/.*/results.jsonl", {"status": 503}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_one_line_and_changes_nothing_and_the_same_push_goes_on(hub, api, folder, name):
    weights = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_results([{**ROW, "weights": weights}], folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    before = held(hub)
    (folder / "model.safetensors").write_bytes(change_a_weight(before["model.safetensors"]))
    (folder / "results.jsonl").unlink()
    method, path, options = FAULTS[name]
    hub.fail(method, path, times=10_000, **options)
    with pytest.raises(CannotPush, match=r"^[^\n]*$"):
        push_model(folder, "user/adder", api=api)
    assert held(hub) == before
    hub.faults.clear()
    push_model(folder, "user/adder", api=api)
    assert held(hub) == contents(model_files(folder, "user/adder"))


def change_a_weight(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("path", ["/commit/", "/repos/create"])
def test_a_push_whose_answer_is_lost_is_not_made_twice(hub, api, files, path):
    hub.fail("POST", path, kind="lost")
    with pytest.raises(CannotPush, match="push again"):
        send(api, files)
    send(api, files)
    assert held(hub) == files and len(hub.repositories["model", "user/adder"].commits) == 2


def test_a_hub_that_is_not_there(files):
    with pytest.raises(CannotPush, match="the connection to the Hub failed"):
        send(HfApi(endpoint=f"http://127.0.0.1:{port_of_nobody()}", token="secret"), files)


def test_offline_mode_is_named(hub, api, files, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CannotPush, match="HF_HUB_OFFLINE is set"):
        send(api, files)


def test_a_commit_of_another_at_the_same_moment_is_not_lost(hub, api, files, monkeypatch):
    send(api, files)
    repository, create = hub.repositories["model", "user/adder"], HfApi.create_commit

    def create_commit(self, *arguments, **options):
        repository.commit("main", "other", {**repository.head.files, "notes.md": b"mine"})
        return create(self, *arguments, **options)

    changed = files | {"results.jsonl": b""}
    with monkeypatch.context() as patch:
        patch.setattr(HfApi, "create_commit", create_commit)
        with pytest.raises(CannotPush, match="push again"):
            send(api, changed)
    assert repository.head.title == "other"
    send(api, changed)
    assert held(hub) == changed | {"notes.md": b"mine"}


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
def test_the_hub_refuses(hub, api, files, monkeypatch, tmp_path, token, name, message):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    hub.add_token("reader", "user", "read")
    api = HfApi(endpoint=hub.endpoint, token=token)
    with pytest.raises(CannotPush, match=message):
        commit_files(files, Repository(name, "model", "model", api=api), "x")
    assert hub.repositories == {}


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


OURS = b"---\ntags: [longhand, longhand-model]\n---\n"
STRANGERS = {
    "another model": [{"model.safetensors": b"x", "README.md": b""}],
    "the tag of no kind": [{"model.safetensors": b"x", "README.md": b"---\ntags: [longhand]\n---\n"}],
    "a card that someone wrote": [{"README.md": b""}, {"README.md": b"Mine."}],
    "another kind": [{"README.md": b"---\ntags: [longhand, longhand-decoding]\n---\n"}],
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_repository_of_others_or_of_another_kind_is_not_changed(hub, api, files, name):
    first, *rest = STRANGERS[name]
    repository = hub.add_repository("user/adder", first)
    for more in rest:
        repository.commit("main", "by hand", more)
    before = held(hub)
    with pytest.raises(CannotPush, match="is a decoding of longhand" if name == "another kind" else "'longhand-model'"):
        send(api, files)
    assert held(hub) == before and written(hub) == []
    repository.commit("main", "the tag", {**before, "README.md": OURS})
    send(api, files)
    assert held(hub).items() >= files.items()


def test_an_empty_repository_is_taken(hub, api, files):
    hub.add_repository("user/adder", {"README.md": b"---\nlicense: mit\n---\n"})
    send(api, files)
    assert held(hub) == files


def test_what_is_to_be_private_does_not_go_where_all_can_read_it(hub, api, folder):
    before = hub.add_repository("user/adder", {"README.md": OURS}).head
    with pytest.raises(CannotPush, match="user/adder is public already"):
        push_model(folder, "user/adder", private=True, api=api)
    assert hub.repositories["model", "user/adder"].head == before


@pytest.mark.parametrize("revision", ["refs/heads/trial", "", "a b", "a..b", "-a", "a/", "a.lock", ".a", "0" * 40])
def test_a_revision_that_is_no_name_of_a_branch_changes_nothing(hub, api, folder, revision):
    with pytest.raises(ValueError, match="revision must be the name of a branch"):
        push_model(folder, "user/adder", revision=revision, api=api)
    assert hub.requests == []
