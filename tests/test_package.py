import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_folder_of_code_is_in_the_package_list():
    folders = {path.parent.relative_to(ROOT) for path in ROOT.glob("*/**/*.py")}
    code = {folder for folder in folders if folder.parts[0] in ("modeling", "data", "hub_cards")}
    listed = {Path(*name.split(".")[1:]) for name in PYPROJECT["tool"]["setuptools"]["packages"]}
    assert code | {Path()} == listed


def test_torch_has_an_upper_bound():
    (torch,) = (name for name in PYPROJECT["project"]["dependencies"] if name.startswith("torch"))
    assert "<" in torch


@pytest.mark.parametrize("file", sorted((ROOT / "modeling").glob("[!_]*.py")), ids=lambda file: file.name)
def test_modeling_files_can_travel_with_a_checkpoint(file):
    """Remote code gets the siblings that are imported as `from .name import`, and nothing else of this package."""
    allowed = sys.stdlib_module_names | {"torch", "transformers", "huggingface_hub"}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= allowed
        if isinstance(node, ast.ImportFrom):
            sibling = node.level == 1 and node.module is not None and "." not in node.module
            assert sibling or (node.level == 0 and node.module.split(".")[0] in allowed)


def test_hooks_before_a_commit_are_checks_of_the_ci():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["entry"] for hook in hooks} <= set(map(str.strip, (ROOT / ".ci" / "run").read_text().splitlines()))


def test_questions_need_no_libraries_of_datasets_and_pictures():
    code = "import sys, longhand.eval; print({'datasets', 'evaluate', 'matplotlib'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
