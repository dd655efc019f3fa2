"""Plugin files that are damaged, do too much, or do too little."""

from pathlib import Path

import numpy as np
from faults.attempts import Finding, Outcome, attempt_in_child, check_answer, check_named
from faults.inputs import ODD, Input, Kind, choose
from faults.subjects import Subjects

from longhand import eval as evaluation
from longhand.data.plugins import load_plugin

PLUGINS = sorted((Path(__file__).parents[2] / "plugins").glob("*.py"))


def make_plugin(generator: np.random.Generator) -> Input:
    """Which file is changed, how, and where: as a share of its lines or characters."""
    change = choose(generator, "line", "line", "character", "cut", "added", "added", "none", "name", "bytes")
    given: Input = {"file": choose(generator, *PLUGINS).name, "change": change, "place": float(generator.random())}
    lists = {"character": "inserted", "added": "code", "name": "plugin_names"}
    return given | ({"text": choose(generator, *ODD[lists[change]])} if change in lists else {})


def change_code(code: str, given: Input) -> bytes:
    """The code with a line or a character gone or changed, cut off, or with a line more."""
    lines, change = code.splitlines(keepends=True), given["change"]
    place, character = int(given["place"] * len(lines)), int(given["place"] * len(code))
    if change == "line":
        del lines[place]
    elif change == "added":
        lines.insert(place, f"{given['text']}\n")
    elif change in ("character", "cut", "bytes"):
        more = code[character:] if change == "character" else ""
        end = b"\xff\x00\x1a" if change == "bytes" else b""
        return (code[:character] + given.get("text", "") + more).encode(errors="surrogatepass") + end
    return "".join(lines).encode()


def run_plugin(subjects: Subjects, given: Input) -> Outcome:
    """A plugin is loaded or refused by its name. Either way the adder stays right."""
    (source,) = [file for file in PLUGINS if file.name == given["file"]]
    name = given["text"] if given["change"] == "name" else "fuzzed.py"
    file = subjects.scratch / name
    file.write_bytes(change_code(source.read_text(), given))

    def ask():
        evaluation.main([str(subjects.certified), "--plugin", str(file), "--ask", "653+49"])

    loaded, asked = attempt_in_child(lambda: load_plugin(file)), attempt_in_child(ask)
    file.unlink()
    check_named(loaded, name)
    check_named(asked, name)
    if (loaded.refusal is None) != (asked.refusal is None):
        raise Finding("a plugin is refused by one command only")
    check_answer(asked, asked.printed.strip(), "702")
    return loaded


KINDS = {"plugin": Kind(make_plugin, run_plugin, 2)}
