"""The structure that CONTRIBUTING.md promises: imports go down only, in no circle, and no room is crowded.

Imports in functions and those for type checkers alone count as all others.
"""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from heads import told, users, with_paragraph
from package_files import FILES, ROOT, lines_of_code, tree

GROUND = tuple(f"hub_cards/{name}" for name in ("commands", "options", "recipes", "metrics", "result_rows"))
COMMANDS = "train_and_eval"
ROOMS = (
    *("modeling", "data", *GROUND, "hub_cards/checkpoints", "hub_cards/evaluation"),
    *("hub_cards/training", "hub_cards/page", "hub_cards/publishing", "hub_cards", COMMANDS, "hub_cards/research"),
)
"""From the bottom to the top; a file imports from its own room and from those before it. Research runs the commands."""

MOST_FILES = 12
FLAT = {"modeling", "data/tasks"}
"""Rooms with one file for each subject of a kind, however many there are."""


@cache
def imported(file: str) -> set[str]:
    """The package's own files that a file imports."""
    names = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom):
            package = Path(file).parts[: -node.level] if node.level else ()
            module = ".".join([*package, *filter(None, [node.module])])
            names |= {f"{module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    found = set()
    for name in names:
        path = name.removeprefix("longhand.").replace(".", "/")
        places = (f"{part}{end}" for part in (path, str(Path(path).parent)) for end in (".py", "/__init__.py"))
        found |= set([place for place in places if place in FILES][:1])
    # The files of packages run before the files in them.
    packages = {f"{folder}/__init__.py" for other in found for folder in Path(other).parents}
    around = {f"{folder}/__init__.py" for folder in Path(file).parents}
    return (found | packages & {*FILES} - around) - {file, "__init__.py"}


def room_of(path: str) -> int:
    """The rank of a path's room, the deepest room that holds it."""
    if path in ("train.py", "eval.py"):
        return ROOMS.index(COMMANDS)
    rooms = [room for room in ROOMS if path == f"{room}.py" or path.startswith(f"{room}/")]
    return ROOMS.index(max(rooms, key=len)) if rooms else len(ROOMS)


NAMES = [Path(room).name for room in ROOMS]
"""Rooms by their ranks, as the drawing in CONTRIBUTING.md names them; `hub_cards` are the commands beside its folders."""


def reached(arrows: dict[str, set[str]], first: str) -> set[str]:
    """All rooms that a path of arrows leads to."""
    waiting, found = [*arrows.get(first, ())], set()
    for room in waiting:  # It grows.
        if room not in found:
            found.add(room)
            waiting += arrows.get(room, ())
    return found


def test_the_drawing_of_rooms_has_the_imports_that_follow_from_no_others():
    imports: dict[str, set[str]] = {}
    for file in set(FILES) - {"__init__.py"}:
        room = NAMES[room_of(file)]
        rooms = {NAMES[room_of(other)] for other in imported(file)}
        imports[room] = imports.get(room, set()) | rooms - {room}
    drawing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```mermaid")[1].split("```")[0]
    drawn = {room: {*others.split(" & ")} for room, others in re.findall(r"(\w+) --> (.+)", drawing)}
    needed = {
        room: {other for other in others if not any(other in reached(imports, between) for between in others)}
        for room, others in imports.items()
    }
    assert drawn == {room: others for room, others in needed.items() if others}


@pytest.mark.parametrize("file", FILES)
def test_no_room_reaches_up(file):
    above = [other for other in imported(file) if room_of(other) > room_of(file)]
    assert not above, f"{file} imports from a room above its own: {', '.join(above)}"


def test_imports_make_no_circle():
    try:
        TopologicalSorter({file: imported(file) for file in FILES}).prepare()
    except CycleError as error:
        raise AssertionError("these files import each other: " + " <- ".join(error.args[1])) from error


def test_machines_know_nothing_of_tasks():
    imported_there = {other for file in FILES if file.startswith("data/machines/") for other in imported(file)}
    assert not [other for other in imported_there if other.startswith("data/tasks/")]


def test_modeling_imports_siblings_by_their_own_names():
    """Transformers copies the files that a model's file imports by a name with one dot in front."""
    for file in FILES:
        if file.startswith("modeling/"):
            assert all(other.startswith("modeling/") for other in imported(file)), file
            for node in ast.walk(tree(file)):
                assert not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("longhand")), file
                assert not (isinstance(node, ast.Import) and any(n.name.startswith("longhand") for n in node.names)), file


def test_no_room_is_crowded():
    rooms: dict[str, int] = {}
    for file in FILES:
        if not file.endswith("__init__.py"):
            rooms[str(Path(file).parent)] = rooms.get(str(Path(file).parent), 0) + 1
    crowded = {room for room, files in rooms.items() if files > MOST_FILES} - FLAT
    assert not crowded, f"more than {MOST_FILES} files: {', '.join(sorted(crowded))}"


MOST_LINES = 60
"""Lines of code of a function: a reader has to follow it from beginning to end."""

LONGER = {
    # A step, what it writes and where a run ends, which share their states.
    ("data/proofs/verify_certificate.py", "of_table"): 65,
}
"""Functions that are longer, with their lines; none of them may grow."""


def test_a_reader_can_follow_every_function():
    """A proof is made of lemmas, and a command is a story of steps with names."""
    lengths: dict[tuple[str, str], int] = {}
    for file in FILES:
        for node in ast.walk(tree(file)):
            # A function of few lines has no more lines of code.
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= MOST_LINES:
                lines = len(lines_of_code(file) & {*range(node.lineno, node.end_lineno + 1)})
                # A file may have several functions of one name.
                lengths[file, node.name] = max(lines, lengths.get((file, node.name), 0))
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGER.get(name, MOST_LINES)}
    assert not too_long, f"split these functions into parts of at most {MOST_LINES} lines: {too_long}"
    short_again = [name for name in LONGER if lengths.get(name, 0) <= MOST_LINES]
    assert not short_again, f"take these functions out of LONGER, they are short: {short_again}"


def is_truth(node: ast.expr) -> bool:
    """Whether an expression is a truth value, as far as its form says."""
    if isinstance(node, ast.Call):
        called = node.func
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        return name in {"bool", "any", "all", "isinstance", "exists", "is_file", "is_dir", "startswith", "endswith"}
    if isinstance(node, ast.BoolOp):
        return all(map(is_truth, node.values))
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def is_text_or_list(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    return is_text or isinstance(node, ast.List | ast.Tuple)


def dense(node: ast.AST) -> str:
    """What is denser than plain code in an expression; empty if nothing is."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if is_text_or_list(one) and is_truth(other):
                return "a text or a list times a truth value: write `if`"
    entries = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
    if any(isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple | ast.List) for one in entries):
        return "a list unpacked into a list: write one entry a line"
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        if any(key is None and isinstance(value, ast.Dict) for key, value in pairs):
            return "a mapping unpacked into a mapping: write one entry a line"
    return ""


def test_code_is_not_made_denser_than_it_has_to_be():
    found = [f"{file}:{node.lineno}: {why}" for file in FILES for node in ast.walk(tree(file)) if (why := dense(node))]
    assert not found, "\n".join(found)


SAID_TWICE = {"IGNORED"}
"""Constants that stand in two files: the metric is a folder of its own, which is published without the package."""


def is_telling(value: ast.expr) -> bool:
    """Whether a literal is so long, or so large, that equal ones are likely to say the same."""
    literal = value.operand if isinstance(value, ast.UnaryOp) else value
    if not isinstance(literal, ast.Constant) or isinstance(literal.value, bool):
        return False
    said = literal.value
    return len(said) >= 8 if isinstance(said, str) else isinstance(said, int | float) and said >= 100


def test_a_constant_is_written_in_one_file():
    """The verifier, which shares nothing with the package, has its own."""
    files: dict[tuple[str, str], list[str]] = {}
    for file in set(FILES) - {"data/proofs/verify_certificate.py"}:
        for node in tree(file).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_telling(node.value):
                files.setdefault((node.targets[0].id, ast.unparse(node.value)), []).append(file)
    twice = {name: sorted(own) for (name, _), own in files.items() if len(own) > 1 and name not in SAID_TWICE}
    assert not twice, f"import these constants from one of their files: {twice}"


def test_the_head_of_each_file_says_who_uses_it_and_what_binds_it():
    known = users()
    stale = [file for file in told() if with_paragraph(file, known[file]) != (ROOT / file).read_text(encoding="utf-8")]
    assert not stale, f"run python tests/heads.py, which writes the heads of {', '.join(stale)}"


def test_a_class_has_its_name_alone():
    """The verifier excepted, which imports nothing of the package: a second witness has the same subjects."""
    places: dict[str, list[str]] = {}
    for file in FILES:
        if file != "data/proofs/verify_certificate.py":
            for node in tree(file).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(file)
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice, twice


VAGUE_NAMES = {"own", "each", "what", "one"}


def loop_names(file: str) -> list[tuple[int, str]]:
    """The names that loops and comprehensions of a file give to the elements of what they go through, with their lines."""
    targets = [node.target for node in ast.walk(tree(file)) if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)]
    return [(name.lineno, name.id) for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


@pytest.mark.parametrize("file", FILES)
def test_a_loop_names_what_it_goes_through(file):
    vague = [f"line {line}: {name}" for line, name in loop_names(file) if name in VAGUE_NAMES]
    assert not vague, f"{file}: take the singular of the list: {', '.join(vague)}"
