"""The examples run as they stand, in an empty folder, and print what is right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "hub_cards" / "examples"
PRINTED = {
    "ask.py": ["702", "['2', '1000000000000', '111111111011111111100']", "408"],
    "train_sums.py": [f"1{'0' * 50}"],
    "own_rule.py": ["['0', '1', '1']"],
    "own_structure.py": ["of the nodes of trees of 127 nodes are right"],
    "sums_in_sentences.py": ["702"],
    "table_relations.py": ["of the cells are right"],
    "graph_distances.py": ["of the nodes are right"],
    "text_graph.py": ["of the words are right"],
    "fine_tune.py": [],
}
"""What each script prints, among other lines."""


def test_every_script_is_known():
    assert sorted(PRINTED) == sorted(file.name for file in EXAMPLES.glob("*.py"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", PRINTED)
def test_a_script_runs_in_an_empty_folder(name, tmp_path):
    root = EXAMPLES.parents[1]
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "longhand").symlink_to(root)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "path")}
    words = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    for line in PRINTED[name]:
        assert line in done.stdout, done.stdout[-2000:]
    if name == "own_structure.py":
        assert float(done.stdout.splitlines()[-1].split()[0]) > 0.99
    if name == "sums_in_sentences.py":
        assert int(done.stdout.splitlines()[-1].split()[0]) > 40
    if "shuffled" in done.stdout:
        # The last line has the share of right answers, and that with shuffled structure.
        right, shuffled = (float(word) for word in done.stdout.splitlines()[-1].split() if word[0].isdigit())
        assert right > 0.9 and shuffled < 0.75
    if name == "fine_tune.py":
        assert float(done.stdout.splitlines()[-1]) > 0.5


def test_the_notebook_runs():
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec("".join(cell["source"]), names)
    assert not names["adder"].tokenizer.decode(names["written"][0], skip_special_tokens=True).startswith("653+049=2070")
