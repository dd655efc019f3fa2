"""Plugin files that are damaged, do too much, or do too little."""

from pathlib import Path

import numpy as np
from faults.attempts import Finding, Outcome, attempt_in_child, check_answer, check_named
from faults.inputs import ODD, Input, Kind, choose, draw_seed
from faults.subjects import Subjects

from longhand import eval as evaluation
from longhand.data.plugins import REGISTRIES, load_plugin

PLUGINS = sorted((Path(__file__).parents[2] / "plugins").glob("*.py"))


def make_plugin(generator: np.random.Generator) -> Input:
    changes = ("line", "line", "character", "cut", "added", "added", "none", "name", "bytes")
    return {"file": choose(generator, *PLUGINS).name, "change": choose(generator, *changes), "seed": draw_seed(generator)}


def change_code(code: str, change: str, generator: np.random.Generator) -> bytes:
    """The code with a line or a character gone or changed, cut off, or with a line more."""
    lines = code.splitlines(keepends=True)
    place, character = int(generator.integers(len(lines))), int(generator.integers(len(code)))
    if change == "line":
        del lines[place]
    elif change == "added":
        lines.insert(place, f"{choose(generator, *ODD['code'])}\n")
    elif change == "character":
        return (code[:character] + choose(generator, *ODD["inserted"]) + code[character:]).encode(errors="surrogatepass")
    elif change == "bytes":
        return code[:character].encode() + bytes(generator.integers(0, 256, size=4, dtype=np.uint8))
    elif change == "cut":
        return code[:character].encode()
    return "".join(lines).encode()


def run_plugin(subjects: Subjects, given: Input) -> Outcome:
    """A plugin is loaded or refused by its name. Refused, it leaves nothing registered. Either way the adder stays right."""
    generator = np.random.default_rng(given["seed"])
    (source,) = [file for file in PLUGINS if file.name == given["file"]]
    name = choose(generator, *ODD["plugin_names"]) if given["change"] == "name" else "fuzzed.py"
    file = subjects.scratch / name
    file.write_bytes(change_code(source.read_text(), given["change"], generator))

    def load():
        before = {kind: dict(registry) for kind, registry in REGISTRIES.items()}
        try:
            load_plugin(file)
        except ValueError:
            if before != {kind: dict(registry) for kind, registry in REGISTRIES.items()}:
                raise AssertionError("a refused plugin stays registered") from None
            raise

    def ask():
        evaluation.main([str(subjects.certified), "--plugin", str(file), "--ask", "653+49"])

    loaded, asked = attempt_in_child(load), attempt_in_child(ask)
    file.unlink()
    check_named(loaded, name)
    check_named(asked, name)
    if (loaded.refusal is None) != (asked.refusal is None):
        raise Finding("a plugin is refused by one command only")
    check_answer(asked, asked.printed.strip(), "702")
    return loaded


KINDS = {"plugin": Kind(make_plugin, run_plugin, 2)}
