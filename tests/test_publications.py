"""What holds for every kind of publication: how it is shown, pushed, repeated, described, and refused."""

import argparse
import re
import shlex
from pathlib import Path

import pytest
from huggingface_hub import HfApi, RepoCard, constants
from loopback_hub import port_of_nobody
from publishing_subjects import committed, held, refusal

from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.page.build import build_page
from longhand.hub_cards.publishing.commits import TYPES, CannotPush
from longhand.hub_cards.publishing.publications import metric_publication, publish

KINDS = {"model": "model", "dataset": "dataset", "metric": "space", "page": "space"}
"""The type of repository of each kind."""

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def words(folder):
    """The words of the command line that push a small publication of a kind."""

    def of(kind: str, name: str = "user/made") -> list[str]:
        sums = ["addition", name, "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]
        small = {"model": [str(folder), name], "dataset": sums, "page": [name, "--models", "copy"]}
        return [kind, *small.get(kind, [name])]

    return of


@every_kind
def test_what_is_shown_is_pushed_in_one_commit_and_once(at_home, words, kind, capsys):
    command.main(words(kind))
    shown = capsys.readouterr().out
    assert at_home.requests == []
    command.main([*words(kind), "--commit_message", "hello", "--yes"])
    repository = at_home.repositories[KINDS[kind], "user/made"]
    assert [commit.title for commit in repository.history(repository.head)] == ["hello", "initial commit"]
    pushed = held(at_home, "user/made", KINDS[kind])
    listed = re.findall(r"^ *([\d,]+)  (\S+)$", shown.partition("\n\n")[0], re.MULTILINE)
    assert {path: int(size.replace(",", "")) for size, path in listed} == {
        path: len(content) for path, content in pushed.items()
    }
    assert pushed["README.md"].decode() in shown
    assert listed == re.findall(r"^ *([\d,]+)  (\S+)$", capsys.readouterr().out, re.MULTILINE)
    at_home.requests.clear()
    command.main([*words(kind), "--yes"])
    assert committed(at_home) == [] and repository.head.title == "hello"


@every_kind
def test_the_card_names_the_kind_and_no_file_names_this_machine(at_home, words, folder, kind):
    command.main([*words(kind), "--yes"])
    files = held(at_home, "user/made", KINDS[kind])
    assert {"longhand", f"longhand-{kind}"} <= set(RepoCard(files["README.md"].decode()).data.to_dict()["tags"])
    places = [str(place).encode() for place in (Path.home(), folder.parent)]
    assert not [path for path, content in files.items() for place in places if place + b"/" in content]


@every_kind
def test_a_repository_of_another_kind_or_of_others_is_not_changed(at_home, words, kind, capsys):
    others = [other for other in KINDS if other != kind and KINDS[other] == KINDS[kind]]
    cards = [f"---\ntags: [longhand, longhand-{other}]\n---\n" for other in others]
    mine = [{"README.md": card.encode()} for card in (*cards, "---\ntags: [longhand]\n---\n")]
    for files in (*mine, {"model.safetensors": b"x", "README.md": b""}):
        repository = at_home.add_repository("user/made", {}, KINDS[kind])
        repository.commit("main", "by hand", files)
        before = repository.head
        assert "user/made" in refusal(capsys, command.main, *words(kind), "--yes")
        assert repository.head is before and committed(at_home) == []
    for type_ in set(TYPES) - {KINDS[kind]}:
        at_home.repositories = {(type_, "user/made"): at_home.add_repository("user/made", {}, type_)}
        assert type_ in refusal(capsys, command.main, *words(kind), "--yes")
        assert set(at_home.repositories) == {(type_, "user/made")}


@every_kind
def test_a_new_repository_is_private_if_asked_and_a_public_one_is_then_refused(at_home, words, kind, capsys):
    command.main([*words(kind), "--private", "--revision", "trial", "--yes"])
    repository = at_home.repositories[KINDS[kind], "user/made"]
    assert repository.private and set(repository.branches) == {"main", "trial"}
    assert "README.md" in repository.find("trial").files and len(repository.history(repository.head)) == 1
    repository.private = False
    assert "user/made" in refusal(capsys, command.main, *words(kind), "--private", "--yes")


@every_kind
def test_an_empty_repository_is_taken_and_files_of_others_stay(at_home, words, kind):
    at_home.add_repository("user/made", {"README.md": b"---\nlicense: mit\n---\n"}, KINDS[kind])
    command.main([*words(kind), "--yes"])
    repository = at_home.repositories[KINDS[kind], "user/made"]
    first, last = held(at_home, "user/made", KINDS[kind]), sorted(repository.head.files)[-1]
    damaged = {path: content for path, content in first.items() if path != last} | {"notes/mine.md": b"mine"}
    repository.commit("main", "by hand", damaged)
    command.main([*words(kind), "--yes"])
    assert held(at_home, "user/made", KINDS[kind]) == first | {"notes/mine.md": b"mine"}


@pytest.mark.parametrize(
    ("kind", "fault", "path"),
    [*((kind, "lost", "/commit/") for kind in KINDS),
     *(("metric", fault, path) for fault in ("lost", "cut", "status") for path in ("/commit/", "/repos/create"))],
)  # fmt: skip
def test_a_push_that_was_cut_off_goes_on_and_nothing_is_sent_twice(at_home, words, kind, fault, path, capsys):
    at_home.fail("POST", path, kind=fault, status=400)
    refusal(capsys, command.main, *words(kind), "--yes")
    command.main([*words(kind), "--yes"])
    assert len(at_home.repositories[KINDS[kind], "user/made"].commits) == 2


@every_kind
@pytest.mark.parametrize("name", ["adder", "user/", "user/a--b", "user/a b", "a/b/c", "user/a\n", "user/" + "x" * 100, ""])
def test_names_that_are_not_legal(at_home, words, kind, name, capsys):
    refusal(capsys, command.main, *words(kind, name), "--yes")
    assert at_home.requests == []


@pytest.mark.parametrize(
    "options",
    [
        *(["--revision", name] for name in ("refs/heads/a", "", "a b", "a..b", "a/", "a.lock", ".a", "0" * 40, "a\n")),
        *(["--commit_message", text] for text in ("two\nlines", "not \udcff UTF-8")),
    ],
    ids=repr,
)
def test_a_branch_or_a_title_that_is_not_legal_changes_nothing(at_home, words, options, capsys):
    assert options[0].lstrip("-") in refusal(capsys, command.main, *words("metric"), *options, "--yes")
    assert at_home.requests == []


@pytest.mark.parametrize(
    ("token", "name", "named"),
    [(None, "user/made", "token"), ("unknown", "user/made", "token"), ("reader", "user/made", "reader"),
     ("secret", "other/made", "other"), ("secret", "user/reserved", "reserved")],
)  # fmt: skip
def test_the_hub_refuses(hub, monkeypatch, tmp_path, token, name, named):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    hub.add_token("secret", "user")
    hub.add_token("reader", "user" if named != "reader" else "reader", "read")
    name = name.replace("user", "reader") if named == "reader" else name
    with pytest.raises(CannotPush, match=named):
        publish(metric_publication(name), api=HfApi(endpoint=hub.endpoint, token=token))
    assert hub.repositories == {}


def test_a_hub_that_is_not_there_and_offline_mode_are_named(hub, api, monkeypatch):
    nobody = HfApi(endpoint=f"http://127.0.0.1:{port_of_nobody()}", token="secret")
    with pytest.raises(CannotPush):
        publish(metric_publication("user/made"), api=nobody)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CannotPush, match="HF_HUB_OFFLINE"):
        publish(metric_publication("user/made"), api=api)


@pytest.mark.parametrize("name", ["user/counting", "user/exact.match"])
def test_names_that_the_metric_s_file_cannot_have(at_home, name, capsys):
    assert name in refusal(capsys, command.main, "metric", name, "--yes")


def test_the_page_of_a_space_is_that_of_its_models(at_home, capsys):
    command.main(["page", "user/page", "--models", zoo("copy"), "addition-tiny", "--yes"])
    files = held(at_home, "user/page", "space")
    assert files["index.html"].decode() == build_page([zoo("copy"), zoo("addition-tiny")])
    assert RepoCard(files["README.md"].decode()).data.to_dict()["sdk"] == "static"
    for models in (["addition", "addition"], ["nothing"]):
        assert models[0] in refusal(capsys, command.main, "page", "user/other", "--models", *models, "--yes")
    assert ("space", "user/other") not in at_home.repositories


@pytest.mark.parametrize(
    "more",
    [
        ["--max_length", "0"],
        ["--num_samples", "0"],
        ["--min_length", "7"],
        ["--num_proc", "0"],
        *(["--fields", field] for field in ("zero_padding", "colour=red", "seed=3", "split=train", "num_samples=3",
          "streaming=true", "task=copy", "name=a", "max_length=3", "cache_dir=x", "zero_padding=[1")),
    ],
    ids=" ".join,
)  # fmt: skip
def test_values_that_no_dataset_can_have_are_refused(at_home, words, more, capsys):
    refusal(capsys, command.main, *words("dataset"), *more)


def test_every_argument_has_a_help_text_and_every_kind_an_example():
    command_line = command.make_parser()
    (kinds,) = (action for action in command_line._actions if isinstance(action, argparse._SubParsersAction))
    assert set(kinds.choices) == {*KINDS, "card"}
    for kind, parser in kinds.choices.items():
        assert all(action.help for action in parser._actions)
        examples = re.findall(r"^  python -m longhand\.hub_cards\.push (.*?)(?:   .*)?$", parser.format_help(), re.MULTILINE)
        assert examples and {command_line.parse_args(shlex.split(example)).kind for example in examples} == {kind}
