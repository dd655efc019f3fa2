"""A push of a checkpoint: one complete commit, whatever fails on the way."""

import json
import shutil

import pytest
from huggingface_hub import HfApi
from loopback_hub import LARGE_SUFFIXES
from publishing_subjects import change_a_weight, contents, held, make_best, measured, row

from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.files import hash_files
from longhand.hub_cards.checkpoints.folder import read_checkpoint
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.evaluation.results import read_results, write_results
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.publications import model_files, push_model


def test_the_checkpoint_travels_and_no_training_state(hub, api, folder):
    (folder / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-10" / "optimizer.pt").write_bytes(b"moments")
    (folder / "trainer_state.json").write_text("{}")
    done = push_model(folder, "user/adder", api=api)
    assert held(hub) == contents(model_files(folder, "user/adder"))
    named = {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml", "results.jsonl", "README.md"}
    assert named | {"modeling_coupled_gpt.py", "coupling.py"} <= set(held(hub))
    assert not any("checkpoint-" in path or path == "trainer_state.json" for path in held(hub))
    assert done.sha == hub.repositories["model", "user/adder"].head.sha
    assert set(done.changed) == set(held(hub)) and not done.removed
    assert b"user/adder" in held(hub)["README.md"] and not (folder / "README.md").exists()
    assert set(hub.large_files.values()) == {held(hub)[path] for path in held(hub) if path.endswith(LARGE_SUFFIXES)}


def test_a_best_checkpoint_that_adds_nothing_is_left_out(hub, api, folder):
    make_best(folder)
    rows = [row(5, 0.95), row(5, 0.625, model="adder/best")]
    write_results(rows, folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    assert "best/model.safetensors" in held(hub) and b"| 5 | 0.6250 |" in held(hub)["README.md"]
    shutil.copy(folder / "model.safetensors", folder / "best")
    write_card(folder)
    push_model(folder, "user/adder", api=api)
    assert not any(path.startswith("best/") for path in held(hub))
    assert b"0.6250" not in held(hub)["README.md"] + (folder / "README.md").read_bytes()
    assert b"`best/` is left out" in (folder / "README.md").read_bytes()
    assert [row["model"] for row in map(json.loads, held(hub)["results.jsonl"].splitlines())] == ["adder"]
    assert len(read_results(folder / "results.jsonl")) == 2
    assert push_model(folder, "user/adder", api=api).changed == []


def test_what_trainer_leaves_is_pushed_without_a_recipe_and_without_pickles(hub, api, folder, capsys):
    for file in ("recipe.yaml", "results.jsonl"):
        (folder / file).unlink()
    (folder / "training_args.bin").write_bytes(b"pickle")
    command.main(["model", str(folder), "user/adder"])
    assert "note: training_args.bin" in capsys.readouterr().out
    push_model(folder, "user/adder", api=api)
    assert "model.safetensors" in held(hub) and "training_args.bin" not in held(hub)
    card = held(hub)["README.md"].decode()
    assert "Not known: no `recipe.yaml` says how." in card and "## Reproduce" not in card


def test_a_folder_that_was_renamed_keeps_its_results(hub, api, folder, tmp_path):
    """The hash of the weights tells that they are its own; a repository's name may be another one too."""
    write_results([measured(5, 1.0, "adder", folder)], folder / "results.jsonl")
    renamed = folder.rename(tmp_path / "renamed")
    push_model(renamed, "user/other-name", api=api)
    assert b"| 5 | 1.0000 |" in held(hub, "user/other-name")["README.md"]
    api.snapshot_download("user/other-name", local_dir=(downloaded := tmp_path / "other-name"))
    assert push_model(downloaded, "user/other-name", api=api).changed == []


def test_a_push_sends_what_changed_and_removes_what_is_gone(hub, api, folder):
    make_best(folder)
    best = {f"best/{file.name}" for file in (folder / "best").iterdir()}
    push_model(folder, "user/adder", api=api)
    strangers = {"notes.md": b"of the user", "best/more.txt": b"too"}
    repository = hub.repositories["model", "user/adder"]
    repository.commit("main", "by hand", {**repository.head.files, **strangers})
    shutil.rmtree(folder / "best")
    write_results([row(5, 0.5)], folder / "results.jsonl")
    done = push_model(folder, "user/adder", api=api)
    assert done.changed == ["README.md", "results.jsonl"] and set(done.removed) == best
    assert held(hub) == contents(model_files(folder, "user/adder")) | strangers
    assert len(repository.commits) == 4


FAULTS = {
    "commit": ("POST", "/commit/", {"status": 500}),
    "busy": ("POST", "/commit/", {"status": 429}),
    "commit lost in the middle": ("POST", "/commit/", {"kind": "cut"}),
    "upload": ("PUT", "/large/", {"kind": "cut"}),
    "everything": ("GET", "/api/", {"status": 503}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_one_line_and_changes_nothing_and_the_same_push_goes_on(hub, api, folder, name):
    write_results([measured(5, 0.95, "adder", folder)], folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    before = held(hub)
    change_a_weight(folder)
    (folder / "results.jsonl").unlink()
    method, path, options = FAULTS[name]
    hub.fail(method, path, times=10_000, **options)
    with pytest.raises(CannotPush, match=r"^[^\n]*$"):
        push_model(folder, "user/adder", api=api)
    assert held(hub) == before
    hub.faults.clear()
    push_model(folder, "user/adder", api=api)
    assert held(hub) == contents(model_files(folder, "user/adder"))


def test_a_commit_of_another_at_the_same_moment_is_not_lost(hub, api, folder, monkeypatch):
    push_model(folder, "user/adder", api=api)
    repository, create = hub.repositories["model", "user/adder"], HfApi.create_commit

    def create_commit(self, *arguments, **options):
        repository.commit("main", "other", {**repository.head.files, "notes.md": b"mine"})
        return create(self, *arguments, **options)

    (folder / "results.jsonl").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(HfApi, "create_commit", create_commit)
        with pytest.raises(CannotPush):
            push_model(folder, "user/adder", api=api)
    assert repository.head.title == "other"
    push_model(folder, "user/adder", api=api)
    assert held(hub) == contents(model_files(folder, "user/adder")) | {"notes.md": b"mine"}


@pytest.mark.parametrize("source", ["copy", zoo("copy")], ids=["name", "folder"])
def test_a_model_of_the_package_is_pushed_with_its_code_which_its_certificate_names(at_home, tmp_path, source):
    command.main(["model", source, "user/mine", "--yes"])
    files = held(at_home, "user/mine")
    for path, content in files.items():
        (tmp_path / path).write_bytes(content)
    certificate = read_checkpoint(tmp_path).certificate
    assert certificate["certified"] and certificate["files"] == hash_files(tmp_path)
    assert {"modeling_coupled_gpt.py", "verify_certificate.py"} <= set(files) and b"auto_map" in files["config.json"]
    assert b"**Certified.**" in files["README.md"]
    assert b'from_pretrained("user/mine", trust_remote_code=True)' in files["README.md"]
    assert {json.loads(line)["model"] for line in files["results.jsonl"].splitlines()} == {"copy"}
