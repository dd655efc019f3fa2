"""The files of the package and their syntax trees, read once, by the first of the tests that look at code."""

import ast
import tokenize
from functools import cache
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = tuple(
    str(file.relative_to(ROOT))
    for file in [
        *(ROOT / name for name in ("__init__.py", "train.py", "eval.py")),
        *ROOT.glob("[dhm]*/**/*.py"),
    ]
    # Examples are programs of a user.
    if "examples" not in file.parts
)


@cache
def tree(file: str) -> ast.Module:
    """The syntax tree of a file of the package."""
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@cache
def lines_of_code(file: str) -> frozenset[int]:
    """The numbers of a file's lines of code: neither comments nor docstrings."""
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO((ROOT / file).read_text(encoding="utf-8")).readline):
        if token.type not in ignored:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return frozenset(lines)
