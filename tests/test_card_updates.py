"""New results on a card: in its folder, and on the Hub while others commit."""

import json
from functools import partial

import pytest
from huggingface_hub import HfApi, ModelCard
from publishing_subjects import ROWS, change_a_weight, measured, row, state

from longhand.hub_cards.evaluation.results import read_results, write_results
from longhand.hub_cards.publishing.cards import check_card, render_model_card, update_card, write_card
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.publications import push_model


def test_new_results_are_merged_into_a_folder_and_all_else_stays(folder):
    write_card(folder)
    text = (folder / "README.md").read_text().replace("## Limits\n", "## Limits\n\nBy hand.\n")
    (folder / "README.md").write_text(text)
    new = [measured(length, share, "adder", folder) for length, share in ((40, 0.5), (90, 0.125))]
    update_card(folder, new, dataset="user/sums")
    assert [(r["length"], r["exact_match"]) for r in read_results(folder / "results.jsonl")] == [
        (5, 1.0), (40, 0.5), (90, 0.125),
    ]  # fmt: skip
    updated = (folder / "README.md").read_text()
    assert "| 90 | 0.1250 |" in updated and "0.8125" not in updated and "By hand.\n" in updated
    assert "tested at 3 sizes from 5 to 90" in updated and "tested at 2 sizes" not in updated
    values = [result.metric_value for result in ModelCard(updated).data.eval_results if result.metric_type == "exact_match"]
    assert values == [1.0, 0.5, 0.125]
    assert updated.partition("<!-- end -->")[2] == text.partition("<!-- end -->")[2]
    assert (folder / "accuracy.png").stat().st_size > 1000
    assert {result.dataset_type for result in ModelCard(updated).data.eval_results} == {"user/sums"}
    before = state(folder)
    assert update_card(folder, [{**new[0], "seconds": 99.5}], dataset="user/sums").changed == []
    assert state(folder) == before


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([], "none"),
        ([row(5, 1.0), row(5, 1.0, model="other")], "other"),
        ([row(5, 1.0, weights="0"), row(6, 1.0, weights="1")], "adder"),
        ([row(5, 1.0)], "weights"),
        ([row(5, 1.0, model="other", weights="0")], "other"),
        ([row(5, 1.0, task="copy", weights="0")], "copy"),
        ([row(5, 1.0, weights="0")], "adder"),
        ([row(5, 1.0, model="adder/best", weights="0")], "adder/best"),
    ],
)
def test_rows_that_do_not_belong_are_refused(folder, rows, named):
    write_card(folder)
    before = (folder / "README.md").read_bytes()
    with pytest.raises(ValueError, match=named):
        update_card(folder, rows)
    assert (folder / "README.md").read_bytes() == before


def test_results_of_weights_that_were_replaced_are_neither_shown_nor_added_to(folder):
    write_card(folder)
    write_results([measured(5, 1.0, "adder", folder)], folder / "results.jsonl")
    assert "| 5 | 1.0000 |" in render_model_card(folder)
    change_a_weight(folder)
    new = [measured(6, 1.0, "adder", folder)]
    for refuse in (partial(render_model_card, folder), partial(check_card, folder), partial(update_card, folder, new)):
        with pytest.raises(ValueError, match=r"results\.jsonl"):
            refuse()
    (folder / "results.jsonl").unlink()
    update_card(folder, new)
    assert "| 6 | 1.0000 |" in (folder / "README.md").read_text()


def test_a_card_of_another_make_is_not_touched(folder):
    for text in (None, "---\nlicense: mit\n---\nMine."):
        if text is not None:
            (folder / "README.md").write_text(text)
        with pytest.raises(ValueError, match="adder"):
            update_card(folder, [measured(5, 0.5, "adder", folder)])
    assert read_results(folder / "results.jsonl") == ROWS


def commit_meanwhile(monkeypatch, commit) -> None:
    """Calls `commit` once, between the reading of a repository and the first commit of what was made of it."""
    create, others = HfApi.create_commit, [commit]

    def create_commit(self, *arguments, **options):
        if others:
            others.pop()()
        return create(self, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", create_commit)


def test_new_results_reach_the_hub_in_one_commit(hub, api, folder):
    push_model(folder, "user/adder", api=api)
    repository = hub.repositories["model", "user/adder"]
    rows = [measured(90, 0.125, "user/adder", folder)]
    done = update_card("user/adder", rows, dataset="user/sums", api=api)
    assert done.changed == ["README.md", "accuracy.png", "results.jsonl"]
    assert len(repository.commits) == 3
    card = repository.head.files["README.md"].decode()
    assert "| 90 | 0.1250 |" in card and 'from_pretrained("user/adder"' in card
    assert {json.loads(line)["model"] for line in repository.head.files["results.jsonl"].splitlines()} == {"adder"}
    again = update_card("user/adder", rows, dataset="user/sums", api=api)
    assert again.changed == [] and len(repository.commits) == 3


@pytest.fixture
def pushed(hub, api, folder):
    """The repository of a checkpoint."""
    push_model(folder, "user/adder", api=api)
    return hub.repositories["model", "user/adder"]


def test_results_of_other_weights_are_not_added_on_the_hub(hub, api, folder, pushed):
    rows = [measured(90, 0.125, "user/adder", folder)]
    change_a_weight(folder)
    weights = {"model.safetensors": (folder / "model.safetensors").read_bytes()}
    other = pushed.commit("main", "other weights", pushed.head.files | weights)
    with pytest.raises(ValueError, match="user/adder"):
        update_card("user/adder", rows, api=api)
    assert pushed.head is other


def test_results_are_merged_into_what_another_commits_at_the_same_moment(hub, api, folder, pushed, monkeypatch):
    rows = [measured(70, 0.25, "user/adder", folder)]
    commit_meanwhile(monkeypatch, lambda: update_card("user/adder", rows, api=api))
    new = [measured(90, 0.125, "user/adder", folder)]
    with pytest.raises(CannotPush, match="user/adder"):
        update_card("user/adder", new, api=api)
    update_card("user/adder", new, api=api)
    lines = map(json.loads, pushed.head.files["results.jsonl"].splitlines())
    assert [(line["length"], line["exact_match"]) for line in lines] == [(5, 1.0), (40, 0.8125), (70, 0.25), (90, 0.125)]


@pytest.mark.parametrize("name", ["fresh", "best"])
def test_what_was_first_evaluated_on_the_hub_can_be_pushed_after_download(hub, api, folder, tmp_path, name):
    (folder / "results.jsonl").unlink()
    fresh = folder.rename(tmp_path / name)
    push_model(fresh, f"user/{name}", api=api)
    update_card(f"user/{name}", [measured(90, 0.125, f"user/{name}", fresh)], api=api)
    downloaded = tmp_path / "downloads" / name
    api.snapshot_download(f"user/{name}", local_dir=downloaded)
    assert [line["model"] for line in read_results(downloaded / "results.jsonl")] == [name]
    assert "| 90 | 0.1250 |" in (card := render_model_card(downloaded)) and "best exact match in validation" not in card
    assert push_model(downloaded, f"user/{name}", api=api).changed == []


def test_a_folder_that_was_renamed_keeps_its_results(hub, api, folder, tmp_path):
    """The hash of the weights tells that they are its own; a repository's name may be another one too."""
    write_results([measured(5, 1.0, "adder", folder)], folder / "results.jsonl")
    renamed = folder.rename(tmp_path / "renamed")
    assert "| 5 | 1.0000 |" in render_model_card(renamed)
    push_model(renamed, "user/other-name", api=api)
    api.snapshot_download("user/other-name", local_dir=(downloaded := tmp_path / "other-name"))
    assert push_model(downloaded, "user/other-name", api=api).changed == []


def results_of(repository) -> list[tuple[str, int, float]]:
    lines = map(json.loads, repository.head.files["results.jsonl"].splitlines())
    return [(line["model"], line["length"], line["exact_match"]) for line in lines]


@pytest.mark.parametrize("dataset", [None, "user/sums"])
def test_pushing_the_same_weights_again_keeps_the_results_that_were_added(hub, api, folder, pushed, dataset):
    new = [
        measured(length, 0.125, "user/adder", folder, num_samples=count) for length, count in ((5, 10), (40, 9999), (90, 9))
    ]
    update_card("user/adder", new, dataset="user/sums", api=api)
    files = pushed.head.files
    push_model(folder, "user/adder", dataset=dataset, api=api)
    # Of one size the result of more problems.
    assert results_of(pushed) == [("adder", 5, 1.0), ("adder", 40, 0.125), ("adder", 90, 0.125)]
    card = pushed.head.files["README.md"].decode()
    assert "| 90 | 0.1250 |" in card and "| 5 | 1.0000 |" in card and "![exact match by length](accuracy.png)" in card
    assert pushed.head.files["accuracy.png"] and pushed.head.files.keys() == files.keys()
    assert push_model(folder, "user/adder", dataset=dataset, api=api).changed == []


@pytest.mark.parametrize("evaluated", [True, False])
def test_pushing_other_weights_leaves_no_score_of_those_before(hub, api, folder, pushed, evaluated):
    update_card("user/adder", [measured(90, 0.125, "user/adder", folder)], dataset="user/sums", api=api)
    change_a_weight(folder)
    (folder / "results.jsonl").unlink()
    if evaluated:
        write_results([measured(5, 0.5, "adder", folder)], folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    files = pushed.head.files
    assert b"0.1250" not in files["README.md"]
    if evaluated:
        assert results_of(pushed) == [("adder", 5, 0.5)]
    else:
        assert not {"results.jsonl", "accuracy.png"} & set(files)


def test_results_are_added_to_a_branch_and_to_nothing_else(hub, api, folder, pushed):
    api.create_tag("user/adder", tag="first")
    api.create_branch("user/adder", branch="trial")
    rows, head = [measured(90, 0.125, "user/adder", folder)], pushed.head
    for revision in ("first", head.sha, "novel"):
        for refuse in (partial(update_card, "user/adder", rows), partial(check_card, "user/adder")):
            with pytest.raises(ValueError, match=r"user/adder|revision"):
                refuse(revision=revision, api=api)
    update_card("user/adder", rows, revision="trial", api=api)
    assert pushed.head is head and pushed.find("trial").title == "New results"


def test_new_results_for_no_repository(hub, api):
    with pytest.raises(ValueError, match="user/adder"):
        update_card("user/adder", [row(90, 0.125, model="user/adder", weights="0")], api=api)
    assert hub.repositories == {}
