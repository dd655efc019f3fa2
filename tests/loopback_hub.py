"""A Hub on loopback for tests: repositories in memory behind the routes that huggingface_hub, transformers and datasets use.

    with LoopbackHub() as hub:
        token = hub.add_token("writer", "alice")
        HfApi(endpoint=hub.endpoint, token=token).create_repo("alice/model")

It keeps commits, branches, tags, large files (LFS, never Xet) and tokens, and makes the faults that a test asks
for. Clients that read their endpoint when they are imported go into processes of their own, with `environment`.
"""

import base64
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote

import yaml

LARGE_SUFFIXES = (".safetensors", ".parquet", ".png", ".bin")
DATE = "2024-01-01T00:00:00.000Z"
KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
YAML_BLOCK = re.compile(r"^---\n(.*?)\n---(\n|$)", re.DOTALL)


@dataclass(frozen=True)
class Commit:
    """A state of a repository: the content of every file by its path, and the commit before."""

    sha: str
    parent: str | None
    title: str
    files: dict[str, bytes]


@dataclass
class Repository:
    """Commits by their sha; branches and tags point at them.

    Attributes:
        kind: `"model"`, `"dataset"` or `"space"`.
    """

    kind: str
    name: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, title: str, files: dict[str, bytes]) -> Commit:
        parent = self.branches.get(branch)
        listing = "".join(f"{path} {hashlib.sha256(content).hexdigest()}\n" for path, content in sorted(files.items()))
        sha = hashlib.sha1(f"{len(self.commits)} {parent} {title}\n{listing}".encode()).hexdigest()
        self.commits[sha] = Commit(sha, parent, title, files)
        self.branches[branch] = sha
        return self.commits[sha]

    def find(self, revision: str) -> Commit | None:
        """The commit that a branch, a tag or a sha names."""
        revision = revision.removeprefix("refs/heads/")
        return self.commits.get(self.branches.get(revision) or self.tags.get(revision) or revision)

    def history(self, commit: Commit) -> list[Commit]:
        commits = [commit]
        while commits[-1].parent is not None:
            commits.append(self.commits[commits[-1].parent])
        return commits

    @property
    def head(self) -> Commit:
        return self.commits[self.branches["main"]]


@dataclass
class Fault:
    """What goes wrong with the next requests that fit.

    Attributes:
        kind: `"status"`: nothing is done and `status` is answered. `"cut"`: the connection is lost in the middle of the
            request's body if it has one, else in the middle of the response's. `"lost"`: all is done, but the connection is
            lost before the response.
        method: HTTP method.
        path: regular expression that the path holds.
        times: requests that are still to go wrong.
    """

    kind: Literal["status", "cut", "lost"]
    method: str
    path: str
    times: int = 1
    status: int = 500


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str | None = None, **extra: Any):
        super().__init__(message)
        self.status, self.code, self.extra = status, code, extra


class LoopbackHub:
    """The server; `endpoint` is its address once it is entered.

    Attributes:
        repositories: by kind and name.
        requests: method and path of every request that arrived.
        faults: those yet to be made.
    """

    def __init__(self):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.large_files: dict[str, bytes] = {}
        self.tokens: dict[str, tuple[str, str]] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()

    def __enter__(self) -> "LoopbackHub":
        handler = type("BoundHandler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add_token(self, token: str, user: str, role: Literal["read", "write"] = "write") -> str:
        self.tokens[token] = (user, role)
        return token

    def add_repository(self, name: str, files: dict[str, bytes], kind: str = "model") -> Repository:
        """A public repository with these files."""
        repository = self.repositories[kind, name] = Repository(kind, name, private=False)
        repository.commit("main", "initial commit", files)
        return repository

    def fail(self, method: str, path: str, kind: str = "status", **options: Any) -> None:
        """Makes the next requests that fit go wrong, see `Fault`."""
        self.faults.append(Fault(kind, method, path, **options))

    def environment(self, home: Path, token: str | None = None, **variables: str) -> dict[str, str]:
        """Variables that point another process at this Hub, with a cache of its own in `home`."""
        names = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
        quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "127.0.0.1"}
        return names | quiet | ({"HF_TOKEN": token} if token else {}) | variables

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.path, path):
                    fault.times -= 1
                    return fault
        return None


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


ROUTES: list[tuple[str, re.Pattern, Callable]] = []
NAME = r"(?P<name>gpt2|[^/]+/[^/]+)"
OF_KIND = rf"/api/(?P<kind>models|datasets|spaces)/{NAME}"
PREFIXED = rf"/(?:(?P<kind>datasets|spaces)/)?{NAME}"


def route(methods: str, pattern: str):
    """Decorator: the method answers requests of these methods whose path has this form."""

    def register(function: Callable) -> Callable:
        ROUTES.extend((method, re.compile(pattern), function) for method in methods.split())
        return function

    return register


class Handler(BaseHTTPRequestHandler):
    """One request: its fault if there is one, else the first route that fits."""

    hub: LoopbackHub
    protocol_version = "HTTP/1.1"
    # Headers and body leave together: apart, each answer would wait for the client's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.path_only, _, query = self.path.partition("?")
        self.query = {name: values[0] for name, values in parse_qs(query).items()}
        self.hub.requests.append((self.command, self.path_only))
        fault = self.hub.next_fault(self.command, self.path_only)
        length = int(self.headers.get("Content-Length") or 0)
        if fault and fault.kind == "cut" and length:
            self.rfile.read(length // 2)
            return self.hang_up()
        self.body = self.rfile.read(length)
        if fault and fault.kind == "status":
            return self.send(as_json({"error": "made by the test"}, fault.status))
        try:
            with self.hub.lock:
                answer = self.dispatch()
        except Refusal as refusal:
            answer = as_json({"error": str(refusal), **refusal.extra}, refusal.status)
            answer.headers["X-Error-Message"] = str(refusal)
            if refusal.code:
                answer.headers["X-Error-Code"] = refusal.code
        if fault and fault.kind == "lost":
            return self.hang_up()
        self.send(answer, cut=fault is not None and fault.kind == "cut")

    do_HEAD = do_POST = do_PUT = do_GET

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, answer: Answer, cut: bool = False) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        if cut:
            self.wfile.flush()
            self.hang_up()
        self.wfile.flush()

    def log_message(self, *arguments) -> None:
        """Tests are quiet."""

    def dispatch(self) -> Answer:
        for method, pattern, function in ROUTES:
            if method == self.command and (match := pattern.fullmatch(self.path_only)):
                groups = {name: unquote(value) for name, value in match.groupdict().items() if value is not None}
                if "kind" in pattern.groupindex:
                    groups["kind"] = KINDS[groups.get("kind", "models")]
                return function(self, **groups)
        raise Refusal(404, f"no route for {self.command} {self.path_only}")

    def user(self) -> tuple[str, str] | None:
        """Name and role of whoever asks; None without a token."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()
        if token and token not in self.hub.tokens:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return self.hub.tokens.get(token)

    def check_write(self, name: str) -> None:
        if (user := self.user()) is None:
            raise Refusal(401, "Invalid username or password.")
        if user[1] != "write" or user[0] != name.partition("/")[0]:
            raise Refusal(403, f"Forbidden: you must use a write token of {name.partition('/')[0]}")

    def repository(self, kind: str, name: str) -> Repository:
        repository = self.hub.repositories.get((kind, name))
        if repository is None or (repository.private and (self.user() or ("",))[0] != name.partition("/")[0]):
            raise Refusal(404 if self.user() else 401, "Repository not found", "RepoNotFound")
        return repository

    def commit_of(self, repository: Repository, revision: str) -> Commit:
        if (commit := repository.find(revision)) is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    @route("GET", "/api/whoami-v2")
    def whoami(self) -> Answer:
        if (user := self.user()) is None:
            raise Refusal(401, "Invalid username or password.")
        access = {"accessToken": {"displayName": "test", "role": user[1]}}
        return as_json({"type": "user", "name": user[0], "orgs": [], "auth": {"type": "access_token", **access}})

    @route("POST", "/api/repos/create")
    def create(self) -> Answer:
        wanted = json.loads(self.body)
        user = self.user()
        owner = wanted.get("organization") or (user[0] if user else "")
        kind, name = wanted.get("type") or "model", f"{owner}/{wanted['name']}"
        self.check_write(name)
        url = f"{self.hub.endpoint}/{'' if kind == 'model' else kind + 's/'}{name}"
        if (kind, name) in self.hub.repositories:
            raise Refusal(409, "You already created this repository", url=url)
        if wanted["name"].lower() == "reserved":
            raise Refusal(400, f"Invalid repo name: {wanted['name']} is reserved")
        private = bool(wanted.get("private")) or wanted.get("visibility") == "private"
        files = {".gitattributes": b"*.safetensors filter=lfs\n"}
        if kind == "space":
            if wanted.get("sdk") not in ("static", "gradio", "docker"):
                raise Refusal(400, "a Space needs an sdk")
            files["README.md"] = f"---\nsdk: {wanted['sdk']}\n---\nCheck out the configuration reference\n".encode()
            if wanted["sdk"] == "static":
                files |= {"index.html": b"<html></html>", "style.css": b""}
        repository = self.hub.repositories[kind, name] = Repository(kind, name, private)
        repository.commit("main", "initial commit", files)
        return as_json({"url": url, "name": name, "id": name})

    @route("GET", rf"{OF_KIND}(?:/revision/(?P<revision>[^/]+))?")
    def info(self, kind: str, name: str, revision: str = "main") -> Answer:
        repository = self.repository(kind, name)
        commit = self.commit_of(repository, revision)
        siblings = [
            {"rfilename": path} | (_blob(path, content) if self.query.get("blobs") else {})
            for path, content in sorted(commit.files.items())
        ]
        card = _card_data(commit.files.get("README.md", b""))
        info = {"_id": "0", "id": name, "author": name.partition("/")[0], "sha": commit.sha, "private": repository.private}
        info |= {"lastModified": DATE, "createdAt": DATE, "gated": False, "disabled": False, "downloads": 0, "likes": 0}
        return as_json(info | {"tags": card.get("tags", []), "siblings": siblings, "cardData": card})

    @route("GET", rf"{OF_KIND}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.*))?")
    def tree(self, kind: str, name: str, revision: str, folder: str = "") -> Answer:
        commit = self.commit_of(self.repository(kind, name), revision)
        entries = _entries(commit)
        below = [entry for entry in entries if not folder or entry["path"].startswith(f"{folder}/")]
        if folder and not below:
            raise Refusal(404, f"{folder} does not exist on {revision}", "EntryNotFound")
        if self.query.get("recursive", "false").lower() not in ("true", "1"):
            depth = folder.count("/") + 1 if folder else 0
            below = [entry for entry in below if entry["path"].count("/") == depth]
        return as_json(below)

    @route("POST", rf"{OF_KIND}/paths-info/(?P<revision>[^/]+)")
    def paths_info(self, kind: str, name: str, revision: str) -> Answer:
        form = self.headers.get("Content-Type", "").startswith("application/json")
        paths = json.loads(self.body)["paths"] if form else parse_qs(self.body.decode()).get("paths", [])
        commit = self.commit_of(self.repository(kind, name), revision)
        return as_json([entry for entry in _entries(commit) if entry["path"] in paths])

    @route("GET", rf"{OF_KIND}/commits/(?P<revision>[^/]+)")
    def commits(self, kind: str, name: str, revision: str) -> Answer:
        repository = self.repository(kind, name)
        history = repository.history(self.commit_of(repository, revision))
        extra = {"message": "", "date": DATE, "authors": []}
        return as_json([{"id": commit.sha, "title": commit.title, **extra} for commit in history])

    @route("POST", rf"{OF_KIND}/branch/(?P<branch>[^/]+)")
    def branch(self, kind: str, name: str, branch: str) -> Answer:
        repository = self.repository(kind, name)
        self.check_write(name)
        if branch in repository.branches:
            raise Refusal(409, "Reference already exists")
        start = (json.loads(self.body) if self.body else {}).get("startingPoint") or "main"
        repository.branches[branch] = self.commit_of(repository, start).sha
        return as_json({})

    @route("POST", rf"{OF_KIND}/tag/(?P<revision>[^/]+)")
    def tag(self, kind: str, name: str, revision: str) -> Answer:
        repository = self.repository(kind, name)
        self.check_write(name)
        repository.tags[json.loads(self.body)["tag"]] = self.commit_of(repository, revision).sha
        return as_json({})

    @route("POST", "/api/validate-yaml")
    def validate_yaml(self) -> Answer:
        errors = _card_errors(json.loads(self.body)["content"])
        listed = [{"message": error} for error in errors]
        return as_json({"errors": listed, "warnings": []}, 400 if errors else 200)

    @route("POST", rf"{OF_KIND}/preupload/(?P<revision>[^/]+)")
    def preupload(self, kind: str, name: str, revision: str) -> Answer:
        self.check_write(name)
        commit = self.commit_of(self.repository(kind, name), revision)
        files = []
        for file in json.loads(self.body)["files"]:
            path = file["path"]
            old = _blob(path, commit.files[path]) if path in commit.files else {}
            oid = old["lfs"]["sha256"] if "lfs" in old else old.get("blobId")
            mode = "lfs" if path.endswith(LARGE_SUFFIXES) else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return as_json({"files": files})

    @route("POST", rf"{PREFIXED}\.git/info/lfs/objects/batch")
    def large_file_batch(self, kind: str, name: str) -> Answer:
        self.check_write(name)
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            actions = {"upload": {"href": f"{self.hub.endpoint}/large/{wanted['oid']}"}}
            objects.append(wanted if wanted["oid"] in self.hub.large_files else wanted | {"actions": actions})
        return as_json({"transfer": "basic", "objects": objects})

    @route("PUT", r"/large/(?P<oid>[0-9a-f]{64})")
    def large_file(self, oid: str) -> Answer:
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise Refusal(400, "the content is not that of its hash")
        self.hub.large_files[oid] = self.body
        return as_json({})

    @route("POST", rf"{OF_KIND}/commit/(?P<revision>[^/]+)")
    def make_commit(self, kind: str, name: str, revision: str) -> Answer:
        repository = self.repository(kind, name)
        self.check_write(name)
        if revision not in repository.branches:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        header, *operations = (json.loads(line) for line in self.body.splitlines())
        files, parent = dict(self.commit_of(repository, revision).files), header["value"].get("parentCommit")
        if parent is not None and parent != repository.branches[revision]:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                if value["oid"] not in self.hub.large_files:
                    raise Refusal(400, f"{value['path']} was not uploaded")
                files[value["path"]] = self.hub.large_files[value["oid"]]
            elif operation["key"] == "deletedFile" and files.pop(value["path"], None) is None:
                raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
        if errors := _card_errors(files.get("README.md", b"").decode()):
            raise Refusal(400, "; ".join(errors))
        commit = repository.commit(revision, header["value"]["summary"], files)
        url = f"{self.hub.endpoint}/{'' if kind == 'model' else kind + 's/'}{name}/commit/{commit.sha}"
        return as_json({"success": True, "commitOid": commit.sha, "commitUrl": url, "hookOutput": ""})

    @route("GET HEAD", rf"{PREFIXED}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
    def resolve(self, kind: str, name: str, revision: str, path: str) -> Answer:
        commit = self.commit_of(self.repository(kind, name), revision)
        headers = {"X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes"}
        if path not in commit.files:
            answer = as_json({"error": "Entry not found"}, 404)
            answer.headers |= headers | {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}
            return answer
        content = commit.files[path]
        blob = _blob(path, content)
        headers["ETag"] = f'"{blob["blobId"]}"'
        if "lfs" in blob:
            headers |= {"ETag": f'"{blob["lfs"]["sha256"]}"', "X-Linked-Etag": f'"{blob["lfs"]["sha256"]}"'}
            headers["X-Linked-Size"] = str(len(content))
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{quote(Path(path).name)}"
        if (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) and self.command == "GET":
            start, stop = int(wanted[1]), int(wanted[2] or len(content) - 1) + 1
            headers["Content-Range"] = f"bytes {start}-{min(stop, len(content)) - 1}/{len(content)}"
            return Answer(content[start:stop], 206, headers)
        return Answer(content, 200, headers)


def _blob(path: str, content: bytes) -> dict[str, Any]:
    """Size and hashes as the listing of a repository has them."""
    blob = {"size": len(content), "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()}
    if path.endswith(LARGE_SUFFIXES):
        blob["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return blob


def _entries(commit: Commit) -> list[dict[str, Any]]:
    """Folders and files of a commit as the tree route has them."""
    folders = {str(parent) for path in commit.files for parent in Path(path).parents} - {"."}
    last = {"lastCommit": {"id": commit.sha, "title": commit.title, "date": DATE}}
    entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": folder, **last} for folder in folders]
    for path, content in commit.files.items():
        blob = _blob(path, content)
        entry = {"type": "file", "oid": blob["blobId"], "size": blob["size"], "path": path, **last}
        if "lfs" in blob:
            entry["lfs"] = {"oid": blob["lfs"]["sha256"], "size": blob["size"], "pointerSize": 134}
        entries.append(entry)
    return sorted(entries, key=lambda entry: entry["path"])


def _card_data(card: bytes) -> dict[str, Any]:
    match = YAML_BLOCK.match(card.decode())
    return (yaml.safe_load(match[1]) or {}) if match else {}


def _card_errors(content: str) -> list[str]:
    """What the Hub refuses in a card's metadata, as far as these tests need it."""
    try:
        data = _card_data(content.encode())
    except yaml.YAMLError as error:
        return [f"the metadata is not YAML: {error}"]
    errors = []
    for result in (result for model in data.get("model-index", []) for result in model.get("results", [])):
        required = (("task", "type"), ("dataset", "type"), ("dataset", "name"))
        errors += [f"model-index: {a}.{b} is required" for a, b in required if not result.get(a, {}).get(b)]
        if not all({"type", "value"} <= set(metric) for metric in result["metrics"]):
            errors.append("model-index: a metric needs type and value")
    return errors


def port_of_nobody() -> int:
    """A port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
