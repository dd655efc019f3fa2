"""The examples run in an empty folder: with few steps in `.ci/run`, and as they stand before a release."""

import json
from pathlib import Path

import pytest
from cases import all_but
from forking import Forks

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

FEW_STEPS = ["--max_steps", "4", "--until_certified", "False", "--test_samples", "10", "--validation_samples", "10"]
SMALLER = {
    "train_sums.py": {'"--max_length", "5", ': f'"--max_length", "5", *{FEW_STEPS}, '},
    "own_rule.py": {'"columns", ': f'"columns", *{FEW_STEPS}, '},
    "own_structure.py": {"max_steps=300": "max_steps=5", "range(2000)": "range(100)"},
    "sums_in_sentences.py": {", 3000\n": ", 5\n", "range(200)": "range(5)"},
    "table_relations.py": {"range(200)": "range(5)"},
    "graph_distances.py": {"range(300)": "range(5)"},
    "text_graph.py": {"range(300)": "range(5)"},
    "fine_tune.py": {"max_steps=400": "max_steps=5", "num_samples=20_000": "num_samples=500"},
}
"""What a run of few steps makes smaller in a script that trains."""


def printed_by(forks: Forks, script: Path, folder: Path) -> list[str]:
    """The lines that a script prints in a folder."""
    done = forks.run(["python", str(script)], folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_every_script_is_known():
    assert sorted(PRINTED) == sorted(file.name for file in EXAMPLES.glob("*.py"))


SIMILAR = ("own_rule.py", "table_relations.py", "text_graph.py", "fine_tune.py")
"""Other scripts, or commands of the guide, show the same kinds of models."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", all_but(SIMILAR, PRINTED))
def test_a_script_runs_with_few_steps(forks, name, tmp_path):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for large, small in SMALLER.get(name, {}).items():
        assert text.count(large) == 1, large
        text = text.replace(large, small)
    script = tmp_path / name
    script.write_text(text, encoding="utf-8")
    printed = "\n".join(printed_by(forks, script, tmp_path))
    if name not in SMALLER:
        assert all(line in printed for line in PRINTED[name]), printed[-2000:]


@pytest.mark.release
@pytest.mark.parametrize("name", SMALLER)
def test_a_script_runs_as_it_stands(forks, name, tmp_path):
    printed = printed_by(forks, EXAMPLES / name, tmp_path)
    for line in PRINTED[name]:
        assert line in "\n".join(printed)
    if name == "own_structure.py":
        assert float(printed[-1].split()[0]) > 0.99
    if name == "sums_in_sentences.py":
        assert all(int(line.split()[0]) > 190 for line in printed[-3:])
    if "shuffled" in printed[-1]:
        # The last line has the share of right answers, and that with shuffled structure.
        right, shuffled = (float(word) for word in printed[-1].split() if word[0].isdigit())
        assert right > 0.9 and shuffled < 0.75
    if name == "fine_tune.py":
        assert float(printed[-1]) > 0.5


def test_the_notebook_runs():
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec("".join(cell["source"]), names)
    assert not names["adder"].tokenizer.decode(names["written"][0], skip_special_tokens=True).startswith("653+049=2070")
