"""One HTML file of the page's scripts and of checkpoints: it opens by a double click, and asks nothing of any server."""

# Used by: __main__.py, hub_cards/publishing. Changed freely.

import html
import inspect
import json
import re
import textwrap
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging

from longhand.data.tasks.column_task import TABLES, ColumnTask
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE, Checkpoint, checkpoint_name
from longhand.hub_cards.checkpoints.load import list_zoo, load_checkpoint, zoo
from longhand.hub_cards.commands import read_object, read_text
from longhand.hub_cards.recipes import read_settings

logger = logging.get_logger(__name__)

FOLDER = Path(__file__).parent
WORKER = ("network", "dense", "sheets", "solve", "search", "worker")
"""Scripts of the worker, each after those that it imports."""

MOST_BYTES = 6_200_000
"""Of the file, so that it opens within a second."""

MOST_CODE = 30
"""Lines of a task's step that are shown."""


SETTINGS = read_settings(FOLDER / "page.yaml")
"""What the page shows of which checkpoints, in which words; the file says what its fields mean."""

RULES = {name: SETTINGS[name] for name in ("runs", "couplings", "words", "format", "sentences")}
"""What decides whether a folder that is opened in the page can be shown, for own.js."""

RUNS, COUPLINGS, WORDS, FORMAT, SENTENCES = RULES.values()

LESSON: dict[str, str] = SETTINGS["lesson"]

OWN, FAILING = "Own tasks", "Models that fail"

COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

LESSONS_FOLDER = FOLDER / "lessons"
"""Checkpoints that are trained to fail on sums longer than their own, for the lesson."""


def default_sources() -> list[str]:
    """The folders of the checkpoints of a page for which none is named: those of the zoo, and those that fail."""
    failing = [str(LESSONS_FOLDER / name) for name in LESSON if (LESSONS_FOLDER / name).is_dir()]
    return [zoo(name) for name in shown_by_default()] + failing


def shown_by_default() -> list[str]:
    """The checkpoints that a page shows if none is named: those of the zoo that it can run, without a few."""
    wanted = [name for name in list_zoo() if name not in SETTINGS["left_out"]]
    return [name for name in wanted if not unfit(read_object(Path(zoo(name), "config.json")))]


def build_page(sources: Sequence[str], repository: str | None = None) -> str:
    """The page as HTML, with the checkpoints of some folders or Hub ids.

    Args:
        sources: of checkpoints; the first one is shown at the beginning.
        repository: address (https) of this package's repository, to which the page then links.

    Raises:
        ValueError: two checkpoints have one name, one cannot be loaded (`load_checkpoint`), none can be shown, the file
            would be too large, or the address of the repository does not begin with https.
    """
    if repository is not None and not re.fullmatch(r"https://[^\s\"'<>]+", repository):
        raise ValueError(f"repository must be an address such as https://github.com/user/longhand, got {repository!r}")
    names = [checkpoint_name(source) for source in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"two checkpoints have one name, so they could not be told apart: {', '.join(sources)}")
    models, weights = [], []
    for place, checkpoint in enumerate(map(load_checkpoint, sources)):
        models.append(model := describe(checkpoint) | {"weights": f"weights-{place}"})
        if model["unfit"]:
            logger.warning(f"{checkpoint.name} is named on the page, and not shown: {model['unfit']}")
        if not model["unfit"]:
            packed = pack((checkpoint.folder / "model.safetensors").read_bytes())
            weights.append(f'<script type="text/plain" id="weights-{place}">{packed}</script>')
    if all(model["unfit"] for model in models):
        raise ValueError(f"none of these models can be shown: {models[0]['name']}: {models[0]['unfit']}")
    if not all(any(model["name"] == name and not model["unfit"] for model in models) for name in LESSON):
        models = [model | {"lesson": ""} for model in models]
    data = json.dumps(models, ensure_ascii=False).replace("<", "\\u003c")
    parts = {
        "/* page.css */": (FOLDER / "page.css").read_text(encoding="utf-8"),
        "/* data */": data,
        "/* rules */": json.dumps(RULES, ensure_ascii=False).replace("<", "\\u003c"),
        "<!-- repository -->": f' The code: <a href="{html.escape(repository)}">longhand</a>.' if repository else "",
        "<!-- weights -->": "".join(weights),
        "/* worker */": f"{join_scripts(WORKER)}\nlisten(self);",
        "/* page */": join_scripts(("drawing", "own", "page")),
    }
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    # One pass replaces all marks: a script that is put in may hold the text of a mark itself.
    page = re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], page)
    if (size := len(page.encode())) > MOST_BYTES:
        raise ValueError(f"the page would have {size:,} bytes, and {MOST_BYTES:,} is the most: name fewer models")
    return page


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """The facts that the page shows of a checkpoint besides its weights; `unfit` says why the page cannot show it."""
    text, certificate = read_text(checkpoint.folder / "config.json"), checkpoint.folder / CERTIFICATE_FILE
    parts = checkpoint.task.parts
    return {
        "name": checkpoint.name,
        "config": text,
        "certificate": read_text(certificate) if certificate.is_file() else None,
        "unfit": unfit(json.loads(text)),
        "about": caption(checkpoint.task),
        "group": group_of(checkpoint),
        "state": "carry" if checkpoint.task.name in SETTINGS["carries"] else "state",
        "lesson": LESSON.get(checkpoint.name, ""),
        "order": list(LESSON).index(checkpoint.name) if checkpoint.name in LESSON else None,
        "examples": [part.example_question for part in parts],
        "code": show_code(type(parts[0])),
    }


def group_of(checkpoint: Checkpoint) -> str:
    """The heading under which the page lists a checkpoint."""
    if checkpoint.folder.parent == LESSONS_FOLDER:
        return FAILING
    return next((group for group, names in SETTINGS["groups"].items() if checkpoint.task.name in names), OWN)


def caption(task: Any) -> str:
    """What a task does, in a sentence that names no field of it."""
    if task.name not in SETTINGS["captions"]:
        return (type(task).__doc__ or "").split("\n")[0].replace("`", "")
    said = {name: getattr(task, name, None) for name in ("radix", "operation", "modulus", "factor")}
    said["radix"] = said["radix"] or 10
    if operands := getattr(task, "operands", None):
        said["operands"] = COUNTS[operands] if operands < len(COUNTS) else operands
    if digits := getattr(task, "multiplier_length", None):
        said["multiplier_length"] = f"{COUNTS[digits] if digits < len(COUNTS) else digits} digit{'s' if digits > 1 else ''}"
    return SETTINGS["captions"][task.name].format(**said)


def unfit(config: dict[str, Any]) -> str:
    """Why the page cannot run a model of this configuration; empty if it can. `unfit` of own.js says the same."""
    task = config.get("task") or {}
    if max(json.dumps(config.get("transducer"), ensure_ascii=False)) > "\uffff":
        return SENTENCES["symbols"]
    if not task.get("task"):
        return SENTENCES["task"]
    if "grid" in str(task.get("task")):
        return SENTENCES["grid"]
    if config.get("model_type") == "pairwise_bert" and config.get("transducer"):
        return SENTENCES["encoder"]
    kind = "dense" if config.get("position_encoding") in RUNS["dense"]["position_encoding"] else config.get("model_type")
    if kind not in RUNS:
        return SENTENCES["kind"]
    legal = {name: (config.get(name), values) for name, values in RUNS[kind].items()}
    legal |= {f"task.{name}": (task[name], [value]) for name, value in FORMAT.items() if name in task}
    if kind != "pairwise_bert":
        name = str(task.get("task"))
        rule = "columns" if config.get("transducer") else COUPLINGS.get(name, name)
        rules = [rule, "sequential", f"{rule}_marked_top"] if kind == "dense" else [rule]
        legal["coupling"] = config.get("coupling"), rules
    for name, (value, values) in legal.items():
        # To Python, 1 is True, and to a file it is not.
        if not any(value == allowed and isinstance(value, bool) == isinstance(allowed, bool) for allowed in values):
            wanted = " or ".join(map(say, values))
            return f"it has a setting that this page does not run, {WORDS[name]}: {say(value)} instead of {wanted}"
    return ""


def say(value: object) -> str:
    """The value of a setting as a person says it, such as `response reversed`."""
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("_", " ")


def show_code(task: type) -> str:
    """The lines of a column task's step on a column; nothing for others, whose code speaks of arrays."""
    if not issubclass(task, ColumnTask) or task.__module__ == TABLES:
        return ""
    method = task.passes[0].step if task.passes else task.step
    lines = textwrap.dedent(inspect.getsource(method)).splitlines()
    if len(lines) > MOST_CODE:
        lines[MOST_CODE:] = ["    ..."]
    return "\n".join(lines)


def join_scripts(names: Sequence[str]) -> str:
    """Modules as one script, since a page that is opened as a file cannot import."""
    texts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in names]
    text = "\n".join(re.sub(r"(?m)^export ", "", re.sub(r'(?m)^import .*? from ".*";\n', "", text)) for text in texts)
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def pack(weights: bytes) -> str:
    """The bytes of a safetensors file as text, 7 bits a character; `unpack` in worker.js is its inverse.

    The bytes of all values stand in planes, first bytes first, and are deflated. A script of HTML cannot hold three of the
    128 characters as they are: 0, carriage return and `<`; these stand 256 higher.
    """
    start = 8 + int.from_bytes(weights[:8], "little")
    planes = np.frombuffer(weights[start:], np.uint8).reshape(-1, 4).T
    bits = np.unpackbits(np.frombuffer(zlib.compress(weights[:start] + planes.tobytes(), 9), np.uint8))
    rows = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7)
    characters = np.packbits(rows, axis=1)[:, 0] >> 1
    return characters.tobytes().decode("ascii").translate({code: code + 256 for code in (0, ord("\r"), ord("<"))})
