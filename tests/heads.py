"""The comment under the docstring of each file: who uses the file, and what a change of it is bound by.

`python tests/heads.py` writes these comments.
"""

import ast
import re
import textwrap
from pathlib import Path

from package_files import FILES, ROOT, tree

WIDTH = 125
BEGINNING = "# Used by: "
MOST = 4
"""The most files of the same folder that a line names. Of other folders, the folder is named."""

BOUND = {
    **dict.fromkeys(
        (
            "data/machines/texts.py",
            "data/proofs/lengths/attention_error.py",
            "data/proofs/lengths/far_boxes.py",
            "data/proofs/lengths/up_to_length.py",
            "data/proofs/windows/rounding.py",
        ),
        "verdicts of single lengths, by `BOUND` in data/proofs/lengths/up_to_length.py",
    ),
    "data/proofs/verify_certificate.py": "its own SHA-256 in hub_cards/PROOF.md: run .ci/code",
}
TRAVELS = "the digest of the code that travels with a checkpoint: run .ci/code"


def defined_where(package: str) -> dict[str, str]:
    """For each name that a package's `__init__.py` offers, the file that it comes from."""
    found = {}
    for node in ast.walk(tree(f"{package}/__init__.py")):
        if isinstance(node, ast.ImportFrom) and node.module:
            folder = package if node.level else ""
            file = "/".join(filter(None, [folder, *node.module.removeprefix("longhand.").split(".")])) + ".py"
            if file in FILES:
                found |= {name.asname or name.name: file for name in node.names}
    return found


def files_of(module: str, name: str) -> list[str]:
    """The file that `from module import name` reads, where it is one of the package; `module` is a path without its end."""
    for file in (f"{module}/{name}.py", f"{module}.py"):
        if file in FILES:
            return [file]
    if f"{module}/{name}/__init__.py" in FILES:
        return [f"{module}/{name}/__init__.py"]
    if f"{module}/__init__.py" in FILES:
        return [defined_where(module).get(name, f"{module}/__init__.py")]
    return []


def uses(file: str) -> set[str]:
    """The files of the package that a file imports from."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                module = "/".join([*Path(file).parts[: -node.level], *filter(None, (node.module or "").split("."))])
            elif node.module and node.module.split(".")[0] == "longhand":
                module = "/".join(node.module.split(".")[1:])
            else:
                continue
            for name in node.names:
                found.update(files_of(module, name.name) if module else files_of(name.name, "__init__"))
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("longhand."):
                    found.update(files_of("/".join(name.name.split(".")[1:]), "__init__"))
    return found - {file}


def users() -> dict[str, list[str]]:
    """For each file, the files that import from it; packages that only pass names on are left out."""
    found: dict[str, list[str]] = {file: [] for file in FILES}
    for file in FILES:
        if not file.endswith("__init__.py"):
            for other in uses(file):
                found[other].append(file)
    return found


def paragraph_of(file: str, used_by: list[str]) -> str:
    """Who uses a file, and what a change of it is bound by."""
    folder = Path(file).parent
    near = sorted(Path(user).name for user in used_by if Path(user).parent == folder)
    far = sorted({str(Path(user).parent) if len(Path(user).parts) > 1 else user for user in used_by} - {str(folder)})
    if len(near) > MOST:
        near = [f"{folder}"]
    named = ", ".join([*near, *far]) or "whoever runs or imports it"
    bound = TRAVELS if file.startswith("modeling/") else BOUND.get(file)
    paragraph = f"{BEGINNING[2:]}{named}. " + (f"Bound by: {bound}." if bound else "Changed freely.")
    comment = {"initial_indent": "# ", "subsequent_indent": "# "}
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False, **comment)


def with_paragraph(file: str, used_by: list[str]) -> str:
    """The text of a file with its paragraph as it should be."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines(keepends=True)
    end = tree(file).body[0].end_lineno
    head, rest = "".join(lines[:end]), "".join(lines[end:])
    old = re.match(rf"\n{BEGINNING}[^\n]*\n(?:#[^\n]*\n)*", rest)
    return f"{head}\n{paragraph_of(file, used_by)}\n{rest[old.end() if old else 0 :]}"


def told() -> list[str]:
    """The files that say who uses them: all but those that only pass names on."""
    return [file for file in FILES if not file.endswith("__init__.py") and (ROOT / file).read_text().strip()]


if __name__ == "__main__":
    known = users()
    for file in told():
        (ROOT / file).write_text(with_paragraph(file, known[file]), encoding="utf-8")
