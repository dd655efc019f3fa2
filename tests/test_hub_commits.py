"""Commits on the Hub by themselves: what is refused before anything changes, and which failures are waited out."""

import pytest
from huggingface_hub import HfApi, constants

from longhand.hub_cards.publishing.commits import WAITS, CannotPush, check_push, commit_files

CARD = b"---\ntags:\n- longhand\n---\nAdds."
FILES = {"README.md": CARD, "config.json": b"{}"}


def send(api, **options):
    options = {"is_ours": lambda path: path in FILES, "commit_message": "Push adder", **options}
    return commit_files(options.pop("files", FILES), "user/adder", "model", api=api, **options)


def held(hub) -> dict[str, bytes]:
    return hub.repositories["model", "user/adder"].head.files


def fail_uploads(monkeypatch, errors: list[Exception]) -> None:
    """The next commits fail as the upload of a large file by Xet does."""
    create = HfApi.create_commit

    def create_commit(self, *arguments, **options):
        if errors:
            raise errors.pop(0)
        return create(self, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", create_commit)


def wrapped(cause: Exception) -> RuntimeError:
    error = RuntimeError("Error while uploading 'model.safetensors' to the Hub.")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("error sending request"),
        TimeoutError("deadline has elapsed"),
        RuntimeError("Network error: connection reset by peer"),
        wrapped(ConnectionResetError("reset")),
    ],
    ids=repr,
)
def test_an_upload_that_xet_loses_is_repeated(hub, api, waits, monkeypatch, error):
    fail_uploads(monkeypatch, [error, error])
    send(api)
    assert held(hub).items() >= FILES.items() and waits == [1, 2]


@pytest.mark.parametrize(
    ("error", "message", "attempts"),
    [
        (ConnectionError("error sending request"), "gave up after 6 attempts: the connection to the Hub failed", 6),
        (ConnectionError("HTTP status client error (403 Forbidden)"), "user/adder cannot be pushed: HTTP status.*403", 1),
        (RuntimeError("Network error: 401 Unauthorized"), "user/adder cannot be pushed: Network error: 401", 1),
        (PermissionError("Authentication error: expired"), "user/adder cannot be pushed: Authentication error", 1),
        (RuntimeError("Data processing error"), "user/adder cannot be pushed: Data processing error", 1),
    ],
    ids=repr,
)
def test_an_upload_that_xet_refuses_or_goes_on_losing_ends_in_one_line(
    hub, api, waits, monkeypatch, error, message, attempts
):
    fail_uploads(monkeypatch, errors := [error] * 20)
    with pytest.raises(CannotPush, match=message):
        send(api)
    assert 20 - len(errors) == attempts and len(waits) == attempts - 1 <= len(WAITS)
    assert set(held(hub)) == {".gitattributes"}


def test_a_rate_limit_is_waited_for_as_long_as_it_lasts(hub, api, waits):
    hub.fail("POST", "/commit/", status=429, reset_after=55, times=2)
    send(api)
    assert waits == [56, 56] and held(hub).items() >= FILES.items()
    waits.clear()
    hub.fail("POST", "/commit/", status=429, reset_after=3000)
    with pytest.raises(CannotPush, match="the Hub answered 429 and asks to wait for 3001 seconds"):
        send(api, files={"README.md": CARD})
    assert waits == []


def test_offline_mode_is_named_and_not_waited_for(hub, api, waits, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for ask in (send, lambda api: check_push("user/adder", "model", api)):
        with pytest.raises(CannotPush, match="HF_HUB_OFFLINE is set: unset it to push"):
            ask(api)
    assert hub.requests == [] and waits == []


def test_what_is_to_be_private_does_not_go_where_all_can_read_it(hub, api):
    before = hub.add_repository("user/adder", {"README.md": CARD}).head
    for ask in (lambda: send(api, private=True), lambda: check_push("user/adder", "model", api, private=True)):
        with pytest.raises(CannotPush, match="user/adder is public already"):
            ask()
    assert hub.repositories["model", "user/adder"].head == before
    hub.repositories["model", "user/adder"].private = True
    send(api, private=True)
    assert held(hub) == FILES


def test_a_new_private_repository_is_private_even_if_the_answer_to_its_creation_is_lost(hub, api):
    hub.fail("POST", "/repos/create", kind="lost")
    send(api, private=True)
    assert hub.repositories["model", "user/adder"].private


@pytest.mark.parametrize(
    "revision",
    ["refs/heads/trial", "refs/pr/1", "", "a b", "a..b", "-a", "a/", "/a", "a//b", "a.lock", "a.", ".a", "0" * 40],
)
def test_a_revision_that_is_no_branch_s_name_changes_nothing(hub, api, revision):
    for ask in (lambda: send(api, revision=revision), lambda: check_push("user/adder", "model", api, revision=revision)):
        with pytest.raises(ValueError, match="revision must be the name of a branch"):
            ask()
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["main", "trial", "v1.0-rc_2", "0" * 39])
def test_other_revisions_are_branches(hub, api, revision):
    send(api, revision=revision)
    assert hub.repositories["model", "user/adder"].find(revision).files.items() >= FILES.items()


@pytest.mark.parametrize("card", [b"Mine alone.", b"---\nlicense: mit\n---\n\n# A story\n"])
def test_a_card_that_someone_wrote_is_not_replaced(hub, api, card):
    hub.add_repository("user/adder", {"README.md": card})
    for ask in (lambda: send(api), lambda: check_push("user/adder", "model", api)):
        with pytest.raises(CannotPush, match=r"user/adder holds something else already \(a README.md with text"):
            ask()
    assert held(hub) == {"README.md": card}


@pytest.mark.parametrize("card", [b"", b"---\nlicense: mit\n---\n", b"---\r\nlicense: mit\r\n---\r\n"])
def test_a_card_that_the_hub_made_is_replaced(hub, api, card):
    hub.add_repository("user/adder", {"README.md": card})
    send(api)
    assert held(hub) == FILES


def test_a_card_that_cannot_be_looked_at_now_is_asked_for_again(hub, api, waits):
    hub.add_repository("user/adder", {"README.md": b"---\nlicense: mit\n---\n"})
    hub.fail("HEAD", "/resolve/", kind="lost", times=2)
    send(api)
    assert held(hub) == FILES and waits == [1, 2]


def test_a_lost_tag_is_named_together_with_its_mend(hub, api):
    send(api)
    repository = hub.repositories["model", "user/adder"]
    repository.commit("main", "by hand", {**FILES, "README.md": b"---\nlicense: mit\n---\nAdds."})
    with pytest.raises(CannotPush, match=r"no tag 'longhand'.*put the tag 'longhand' back into its card"):
        send(api)
    repository.commit("main", "by hand", FILES | {"config.json": b"[]"})
    send(api)
    assert held(hub) == FILES
