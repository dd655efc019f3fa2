import ast
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import longhand
from longhand.hub_cards.commands import read_citation

ROOT = Path(__file__).parents[2]
LINKS = re.compile(r"(!?)\[[^\[\]]*\]\(([^)\s]+)\)")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_folder_of_code_is_in_the_package_list():
    folders = {path.parent.relative_to(ROOT) for path in ROOT.glob("*/**/*.py")}
    code = {folder for folder in folders if folder.parts[0] in ("modeling", "data", "hub_cards")}
    listed = {Path(*name.split(".")[1:]) for name in PYPROJECT["tool"]["setuptools"]["packages"]}
    assert code | {Path()} == listed


@pytest.fixture(scope="module")
def building():
    """`setup.py` as a module."""
    spec = importlib.util.spec_from_file_location("building", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("code", [None, "https://example.org/user/longhand"])
def test_where_no_path_leads_to_a_file_every_link_of_the_readme_is_absolute_or_absent(building, code):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    described = building.describe(readme, code, "0.2.0")
    before, after = LINKS.findall(readme), LINKS.findall(described)
    paths = [(mark, target) for mark, target in before if not target.startswith("https:")]
    assert any(mark for mark, _ in paths) and any(not mark for mark, _ in paths)
    assert all(target.startswith("https:") for _, target in after)
    assert len(after) == len(before) - (0 if code else len(paths))
    if code:
        assert "REPOSITORY" not in described and f"git clone {code} longhand && cd longhand\n" in described
        for mark, target in paths:
            assert (mark, f"{code}/{'raw' if mark else 'blob'}/v0.2.0/{target}") in after
    # All words but those of left-out pictures stay.
    else:
        words = re.sub(r"!\[[^\]]*\]\((?!https)\S+\)", "", readme)
        assert re.sub(r"\[([^\[\]]*)\]\((?!https)\S+?\)", r"\1", words).split()[5:] == described.split()[5:]


def test_the_builder_reads_the_version_and_the_repository_of_the_citation(building, tmp_path, monkeypatch):
    assert building.cited("version") == longhand.__version__
    assert building.cited("repository-code") == read_citation().get("repository-code")
    monkeypatch.setattr(building, "ROOT", tmp_path)
    for written in ("https://example.org/a", '"https://example.org/a"'):
        (tmp_path / "CITATION.cff").write_text(f"title: longhand\nrepository-code: {written}\n")
        assert building.cited("repository-code") == "https://example.org/a"


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
