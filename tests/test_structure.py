"""The structure that CONTRIBUTING.md promises: no room reaches up, functions are short, nothing is written twice."""

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GROUND = tuple(f"hub_cards/{name}" for name in ("console", "files", "locks", "hub", "recipes", "plugins", "metrics"))
ROOMS = (
    *("modeling", "data", *GROUND, "hub_cards/evaluation/results", "hub_cards/checkpoints", "hub_cards/evaluation"),
    *("hub_cards/training", "hub_cards/publishing", "hub_cards", "hub_cards/research", "hub_cards/space"),
)
"""From the bottom to the top; a file imports from its own room and from those before it. train.py and eval.py are above."""

MOST_LINES, MOST_BRANCHES, RUN = 60, 12, 6
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler)

FILES = sorted(file for room in ("modeling", "data", "hub_cards") for file in (ROOT / room).rglob("*.py"))
FILES += [ROOT / name for name in ("__init__.py", "train.py", "eval.py")]


def room_of(path: str) -> int:
    """The rank of a path's room, the deepest room that holds it."""
    rooms = [rank for rank, room in enumerate(ROOMS) if path == room or path.startswith(f"{room}/")]
    return min(rooms, default=len(ROOMS))


def code_lines(tree: ast.Module, text: str) -> dict[int, str]:
    """Lines of code by number: no blank lines, comments and docstrings."""
    texts = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in layout)
    numbers = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - texts
    return {number: line.strip() for number, line in enumerate(text.splitlines(), 1) if number in numbers}


def imported(tree: ast.Module, file: Path) -> set[str]:
    """Paths, relative to the root, of the package's own modules that a file imports."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "longhand":
            inner = node.module.removeprefix("longhand").strip(".").replace(".", "/")
            modules |= {f"{inner}/{name.name}".strip("/") for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            modules.add(str((file.parent / (node.module or "").replace(".", "/")).relative_to(ROOT)))
        elif isinstance(node, ast.Import):
            modules |= {name.name.replace(".", "/")[9:] for name in node.names if name.name.startswith("longhand.")}
    return modules


SOURCES = {file: file.read_text(encoding="utf-8") for file in FILES}
TREES = {file: ast.parse(text) for file, text in SOURCES.items()}
CODE = {file: code_lines(TREES[file], text) for file, text in SOURCES.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_room_reaches_up(file):
    own = room_of(str(file.relative_to(ROOT)))
    above = [module for module in imported(TREES[file], file) if module != "__version__" and room_of(module) > own]
    assert not above, f"{file.relative_to(ROOT)} imports from a room above its own: {', '.join(above)}"


def test_modeling_imports_siblings_only():
    for file in (ROOT / "modeling").glob("*.py"):
        assert all(module.startswith("modeling") for module in imported(TREES[file], file)), file.name
        assert not any(line.startswith(("from ..", "import longhand")) for line in CODE[file].values()), file.name


def test_functions_are_short():
    long = []
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                lines = sum(node.lineno <= number <= node.end_lineno for number in CODE[file])
                branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(node))
                if lines > MOST_LINES or branches > MOST_BRANCHES:
                    long.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines, {branches} branches")
    assert not long, "divide these functions:\n" + "\n".join(long)


def test_no_run_of_six_lines_stands_twice():
    places = defaultdict(list)
    for file, code in CODE.items():
        lines = [(number, line) for number, line in code.items() if any(map(str.isalnum, line))]
        lines = [(number, line) for number, line in lines if not line.startswith(("import ", "from "))]
        for first in range(len(lines) - RUN + 1):
            run = lines[first : first + RUN]
            places[tuple(line for _, line in run)].append((file, run[0][0]))
    twice = [
        ", ".join(f"{file.relative_to(ROOT)}:{number}" for file, number in found)
        for run, found in places.items()
        if len(found) > 1 and not is_interface(run)
    ]
    assert not twice, "write these once:\n" + "\n".join(twice)


def is_interface(run: tuple[str, ...]) -> bool:
    """Whether lines are arguments by name, or a `forward` with them, which transformers makes every model file repeat.

    Trainer and generate() read the arguments off the signature of the class with a head, and the class without a head is a
    model of its own, so both must name them.
    """
    arguments = [line for line in run if line not in ("def forward(", "self,")]
    return all(line.endswith(",") and ("=" in line or ": " in line) for line in arguments)
