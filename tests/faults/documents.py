"""Side files, changed in ways that a user, a library or a disk may change them."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from faults.attempts import SECONDS, Finding
from faults.inputs import ODD, Input, choose, draw_seed


def choose_change(generator: np.random.Generator, *more: str) -> Input:
    """How a file is changed: a value, a field or the text of a document; and the further changes that are named."""
    change = choose(generator, "value", "value", "value", "delete", "swap", "text", "whole", *more)
    given: Input = {"change": change, "seed": draw_seed(generator)}
    if change == "value":
        given["value"] = choose(generator, *ODD["values"])
    elif change == "add":
        given["name"], given["value"] = choose(generator, *ODD["settings"].items())
    elif change == "whole":
        texts = ("[", 100_000), ('{"a":', 5000), *((text, 1) for text in ODD["whole_files"])
        given["text"], given["times"] = choose(generator, *texts)
    elif change == "place":
        given["what"] = choose(generator, "fifo", "folder", "loop", "missing", "unreadable", "null device")
    return given


def paths(document: Any, path: tuple = ()) -> Iterator[tuple]:
    """The places of all values in a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


def change_document(document: Any, given: Input) -> str:
    """Change a value somewhere; return its name."""
    generator = np.random.default_rng(given["seed"])
    if given["change"] == "add":
        document[given["name"]] = given["value"]
        return given["name"]
    places = list(paths(document))
    if not places:
        return ""
    *parents, last = choose(generator, *places)
    parent = document
    for key in parents:
        parent = parent[key]
    if given["change"] == "delete":
        del parent[last]
    elif given["change"] == "swap":
        other = choose(generator, *(list(parent) if isinstance(parent, dict) else range(len(parent))))
        parent[last], parent[other] = parent[other], parent[last]
    else:
        parent[last] = given["value"]
    return str(last)


def read_document(file: Path) -> Any:
    text = file.read_text()
    if file.suffix == ".yaml":
        return yaml.safe_load(text)
    return [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)


def write_document(document: Any, file: Path) -> None:
    if file.suffix == ".yaml":
        text = yaml.safe_dump(document, allow_unicode=True)
    elif file.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in document)
    else:
        text = json.dumps(document, indent=1)
    file.write_text(text)


def damage_file(file: Path, given: Input) -> str:
    """Change a side file; return the name of the field that was changed, if it is one field."""
    generator = np.random.default_rng(given["seed"])
    change, content = given["change"], file.read_bytes()
    if change in ("value", "delete", "swap", "add") and file.suffix != ".safetensors":
        document = read_document(file)
        name = change_document(document, given)
        write_document(document, file)
        return name
    if change == "whole":
        file.write_text(given["text"] * given.get("times", 1))
    elif change == "place":
        file.unlink()
        {
            "fifo": lambda: os.mkfifo(file),
            "folder": file.mkdir,
            "loop": lambda: file.symlink_to(file.name),
            "missing": lambda: None,
            "unreadable": lambda: file.symlink_to("/proc/self/mem"),
            "null device": lambda: file.symlink_to("/dev/null"),
        }[given["what"]]()
    else:
        # Bytes are cut off, inserted or changed; in weights the header too.
        place = int(generator.integers(0, min(len(content), 3000) if generator.random() < 0.7 else len(content)))
        changed = {
            0: content[:place],
            1: content[:place] + bytes(generator.integers(0, 256, size=3, dtype=np.uint8)) + content[place:],
            2: content[:place] + bytes(generator.integers(0, 256, size=4, dtype=np.uint8)) + content[place + 4 :],
        }
        file.write_bytes(changed[int(generator.integers(3))])
    return ""


@contextlib.contextmanager
def unblocking(file: Path) -> Iterator[None]:
    """End reads of a FIFO that has no writer, from outside: what waits in a library's own code hears no alarm."""
    if not file.is_fifo():
        yield
        return
    script = f"while sleep {SECONDS}; do : > {file}; done"
    guard = subprocess.Popen(["sh", "-c", script], start_new_session=True, stderr=subprocess.DEVNULL)
    began = time.perf_counter()
    try:
        yield
    finally:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()
    if time.perf_counter() - began > SECONDS - 1:
        raise Finding("a hang on a FIFO")
