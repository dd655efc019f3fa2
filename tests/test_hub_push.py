"""A push of a checkpoint: one complete commit, whatever fails on the way."""

import json
import shutil

import pytest
from huggingface_hub import HfApi
from publishing_subjects import change_a_weight, held, make_best, measure, model_files

from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.publications import push_model


def test_the_checkpoint_travels_without_training_states_and_pickles_and_comes_back(hub, api, folder, tmp_path):
    renamed = folder.rename(tmp_path / "renamed")
    (renamed / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    (renamed / "checkpoints" / "checkpoint-10" / "optimizer.pt").write_bytes(b"moments")
    for name in ("trainer_state.json", "training_args.bin"):
        (renamed / name).write_bytes(b"{}")
    push_model(renamed, "user/adder", api=api)
    assert held(hub) == model_files(renamed, "user/adder")
    named = {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml", "results.jsonl", "README.md"}
    assert named | {"modeling_coupled_gpt.py", "coupling.py"} <= set(held(hub))
    assert not {"trainer_state.json", "training_args.bin", "checkpoints/checkpoint-10/optimizer.pt"} & set(held(hub))
    assert b"user/adder" in held(hub)["README.md"] and not (renamed / "README.md").exists()
    api.snapshot_download("user/adder", local_dir=(downloaded := tmp_path / "other-name"))
    assert not push_model(downloaded, "user/adder", api=api).is_new


def test_a_best_checkpoint_that_adds_nothing_is_left_out(hub, api, folder):
    make_best(folder)
    measure(folder, {5: 0.95}, {5: 0.625})
    push_model(folder, "user/adder", api=api)
    assert "best/model.safetensors" in held(hub) and b"| 5 | 0.6250 |" in held(hub)["README.md"]
    shutil.copy(folder / "model.safetensors", folder / "best")
    measure(folder, {5: 0.95}, {5: 0.625})
    push_model(folder, "user/adder", api=api)
    assert not any(path.startswith("best/") for path in held(hub))
    assert b"0.6250" not in held(hub)["README.md"] and b"`best/` is left out" in held(hub)["README.md"]
    assert [row["model"] for row in map(json.loads, held(hub)["results.jsonl"].splitlines())] == ["adder"]
    assert len(read_results(folder / "results.jsonl")) == 2


FAULTS = {
    "busy": ("POST", "/commit/", {"status": 429}),
    "commit lost in the middle": ("POST", "/commit/", {"kind": "cut"}),
    "upload": ("PUT", "/large/", {"kind": "cut"}),
    "everything": ("GET", "/api/", {"status": 503}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_push_that_fails_changes_nothing_and_the_same_push_goes_on(hub, api, folder, name):
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
    assert held(hub) == model_files(folder, "user/adder") and "results.jsonl" in before


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
    assert held(hub) == model_files(folder, "user/adder") | {"notes.md": b"mine"}


def test_a_model_of_the_package_is_pushed_with_its_code_which_its_certificate_names(at_home, tmp_path):
    command.main(["model", "copy", "user/mine", "--yes"])
    files = held(at_home, "user/mine")
    for path, content in files.items():
        (tmp_path / path).write_bytes(content)
    certificate = read_checkpoint(tmp_path).certificate
    assert certificate["certified"] and certificate["files"] == hash_files(tmp_path)
    assert {"modeling_coupled_gpt.py", "verify_certificate.py"} <= set(files) and b"auto_map" in files["config.json"]
    assert b"**Certified.**" in files["README.md"]
    assert b'from_pretrained("user/mine", trust_remote_code=True)' in files["README.md"]
