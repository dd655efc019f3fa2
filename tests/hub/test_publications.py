"""What holds for every kind of publication: how it is shown, pushed, repeated, described, and refused."""

import argparse
import re
import shlex
import shutil
from pathlib import Path

import pytest
from huggingface_hub import HfApi, RepoCard, constants
from loopback_hub import port_of_nobody
from publishing_subjects import committed, held
from refusals import refusal

from longhand.data.proofs import verify_certificate
from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.load import zoo
from longhand.hub_cards.page.build import build_page
from longhand.hub_cards.publishing.commits import TYPES, CannotPush
from longhand.hub_cards.publishing.publications import metric_publication, publish

every_kind = pytest.mark.parametrize("kind", TYPES)


@pytest.fixture
def words(folder):
    """The words of the command line that push a small publication of a kind."""

    def of(kind: str, name: str = "user/made") -> list[str]:
        sums = ["addition", name, "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]
        small = {"model": [str(folder), name], "dataset": sums, "page": [name, "--models", "copy"]}
        return [kind, *small.get(kind, [name])]

    return of


@every_kind
def test_what_is_shown_is_pushed_in_one_commit_and_once(at_home, words, folder, kind, capsys):
    command.main(words(kind))
    shown = capsys.readouterr().out
    assert at_home.requests == []
    at_home.fail("POST", "/commit/", kind="lost")
    refusal(capsys, command.main, *words(kind), "--commit_message", "hello", "--yes")
    command.main([*words(kind), "--yes"])
    assert "holds all this already" in capsys.readouterr().out
    repository = at_home.repositories[TYPES[kind], "user/made"]
    assert [commit.title for commit in repository.history(repository.head)] == ["hello", "initial commit"]
    pushed = held(at_home, "user/made", TYPES[kind])
    listed = re.findall(r"^ *([\d,]+)  (\S+)$", shown.partition("\n\n")[0], re.MULTILINE)
    assert {path: int(size.replace(",", "")) for size, path in listed} == {
        path: len(content) for path, content in pushed.items() if path != "style.css"
    }
    card = pushed["README.md"].decode()
    assert card in shown and {"longhand", f"longhand-{kind}"} <= set(RepoCard(card).data.to_dict()["tags"])
    places = [str(place).encode() for place in (Path.home(), folder.parent)]
    assert not [path for path, content in pushed.items() for place in places if place + b"/" in content]
    at_home.requests.clear()
    command.main([*words(kind), "--yes"])
    assert committed(at_home) in ([], [f"/api/{TYPES[kind]}s/user/made/commit/main"]) and repository.head.title == "hello"


@every_kind
def test_a_repository_of_another_kind_or_of_others_is_not_changed(at_home, words, kind, capsys):
    others = [other for other in TYPES if other != kind and TYPES[other] == TYPES[kind]]
    cards = [f"---\ntags: [longhand, longhand-{other}]\n---\n" for other in others]
    mine = [{"README.md": card.encode()} for card in (*cards, "---\ntags: [longhand]\n---\n")]
    for files in (*mine, {"model.safetensors": b"x", "README.md": b""}):
        repository = at_home.add_repository("user/made", {}, TYPES[kind])
        repository.commit("main", "by hand", files)
        before = repository.head
        assert "user/made" in refusal(capsys, command.main, *words(kind), "--yes")
        assert repository.head is before and committed(at_home) == []


@every_kind
def test_a_new_repository_is_private_if_asked_and_a_public_one_is_then_refused(at_home, words, kind, capsys):
    command.main([*words(kind), "--private", "--revision", "trial", "--yes"])
    repository = at_home.repositories[TYPES[kind], "user/made"]
    assert repository.private and set(repository.branches) == {"main", "trial"}
    assert "README.md" in repository.find("trial").files and len(repository.history(repository.head)) == 1
    repository.private = False
    assert "user/made" in refusal(capsys, command.main, *words(kind), "--private", "--yes")
    for option in ("--revision", "--commit_message"):
        assert "two" in refusal(capsys, command.main, *words(kind), option, "two\nlines", "--yes")


@every_kind
def test_an_empty_repository_is_taken_and_files_of_others_stay(at_home, words, kind):
    at_home.add_repository("user/made", {"README.md": b"---\nlicense: mit\n---\n"}, TYPES[kind])
    command.main([*words(kind), "--yes"])
    repository = at_home.repositories[TYPES[kind], "user/made"]
    first, last = held(at_home, "user/made", TYPES[kind]), sorted(repository.head.files)[-1]
    damaged = {path: content for path, content in first.items() if path != last} | {"notes/mine.py": b"mine"}
    repository.commit("main", "by hand", damaged)
    command.main([*words(kind), "--yes"])
    assert held(at_home, "user/made", TYPES[kind]) == first | {"notes/mine.py": b"mine"}


@pytest.mark.parametrize("name", ["adder", "user/a--b", "a/b/c", ""])
def test_names_that_are_not_legal(at_home, words, name, capsys):
    for kind in TYPES:
        refusal(capsys, command.main, *words(kind, name), "--yes")
    assert at_home.requests == []


@pytest.mark.parametrize(
    ("token", "name", "named"),
    [(None, "user/made", "token"), ("unknown", "user/made", "token"), ("reader", "user/made", "only read"),
     ("secret", "other/made", "other"), ("secret", "user/reserved", "reserved")],
)  # fmt: skip
def test_the_hub_refuses(hub, monkeypatch, tmp_path, token, name, named):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    hub.add_token("secret", "user")
    hub.add_token("reader", "user", "read")
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


def test_the_page_of_a_space_is_that_of_its_models(at_home, capsys):
    command.main(["page", "user/page", "--models", zoo("copy"), "addition-tiny", "--yes"])
    files = held(at_home, "user/page", "space")
    assert files["index.html"].decode() == build_page([zoo("copy"), zoo("addition-tiny")])
    assert RepoCard(files["README.md"].decode()).data.to_dict()["sdk"] == "static"
    assert "nothing" in refusal(capsys, command.main, "page", "user/other", "--models", "nothing", "--yes")
    for name in ("counting", "a.b"):
        assert name in refusal(capsys, command.main, "metric", f"user/{name}", "--yes")
    assert set(at_home.repositories) == {("space", "user/page")}


@pytest.mark.parametrize(
    "more",
    [["--max_length", "0"], ["--num_samples", "0"], ["--min_length", "7"], ["--num_shards", "9"], ["--shard", "0"],
     *(["--fields", field] for field in ("zero_padding", "colour=red", "max_length=3", "zero_padding=[1"))],
    ids=" ".join,
)  # fmt: skip
def test_values_that_no_dataset_can_have_are_refused(words, more, capsys):
    refusal(capsys, command.main, *words("dataset"), *more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--fields", "order=plain", "order=all_reversed"], "'order' is given twice"),
        (["--fields", "order=plain", "--fields", "order=plain"], "'order' is given twice"),
        (["--fields", "zero_padding"], "'zero_padding' has no value"),
        (["--shard", "0"], "give --num_shards too"),
    ],
)
def test_what_would_be_ignored_or_guessed_is_refused_by_name(words, more, said, capsys):
    assert said in refusal(capsys, command.main, *words("dataset"), *more)


def test_every_argument_has_a_help_text_and_every_kind_an_example():
    command_line = command.make_parser()
    (kinds,) = (action for action in command_line._actions if isinstance(action, argparse._SubParsersAction))
    assert set(kinds.choices) == {*TYPES, "card"}
    for kind, parser in kinds.choices.items():
        assert all(action.help for action in parser._actions)
        examples = re.findall(r"^  python -m longhand\.hub_cards\.push (.*?)(?:   .*)?$", parser.format_help(), re.MULTILINE)
        assert examples and {command_line.parse_args(shlex.split(example)).kind for example in examples} == {kind}


def test_a_copy_of_a_shipped_folder_is_pushed_with_its_code(tmp_path, capsys, at_home):
    """As a name of the zoo is; and what the card says of its code is so."""
    copied = shutil.copytree(zoo("addition-tiny"), tmp_path / "mine")
    shown = []
    for source in (str(copied), "addition-tiny"):
        command.main(["model", source, "user/adder"])
        shown.append(set(re.findall(r"^ *[\d,]+  (\S+\.py)$", capsys.readouterr().out, re.MULTILINE)))
    assert shown[0] == shown[1] and "modeling_coupled_gpt.py" in shown[0] and not list(Path(copied).glob("modeling*"))


@pytest.mark.parametrize("words", [[], ["one", "two"], ["--unknown"]])
def test_wrong_use_of_the_verifier_is_no_refusal_of_a_certificate(words, capsys):
    with pytest.raises(SystemExit) as end:
        verify_certificate.main(words)
    assert end.value.code == 2 and capsys.readouterr().err.startswith("usage: ")


def test_a_model_of_others_is_refused_with_the_command_that_uploads_it(capsys):
    assert "hf upload" in refusal(capsys, command.main, "model", "sums-in-sentences", "user/made")
