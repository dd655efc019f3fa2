import re

import pytest

from longhand.hub_cards.reports import documents
from longhand.hub_cards.runs.recipes import list_recipes

TEXT = documents.README.read_text()
COMPARISONS = documents.COMPARISONS.read_text()
ENCODERS = documents.ENCODERS.read_text()


@pytest.mark.parametrize("text", [TEXT, COMPARISONS, ENCODERS], ids=["README.md", "COMPARISONS.md", "ENCODERS.md"])
def test_figures_are_those_of_the_results_files(text):
    assert documents.render(text) == text


def test_figures_come_from_the_results(monkeypatch):
    row = {"model": "x", "length": 30, "num_samples": 5, "seed": 0, "hardware": "abacus", "run_seconds": 7.2}
    rows = [{**row, "model": name, "exact_match": value} for name, value in (("x", 0.25), ("y", 0.75), ("z", 1.0))]
    monkeypatch.setattr(documents, "published_results", lambda: {"a-recipe": rows})
    empty = "<!-- results no-recipe -->\n<!-- end -->"
    text = f"{empty}\nkept\n<!-- results a-recipe -->\nold\n<!-- end -->\n{empty}"
    rendered = documents.render(text)
    assert "| x | 0.250 | 7 |" in rendered and "| **median** | **0.750** |" in rendered and "abacus" in rendered
    assert rendered.count("No results yet.") == 2 and "\nkept\n" in rendered and "old" not in rendered
    assert documents.render(rendered) == rendered


def test_snippet_prints_what_the_page_says(main_job, capsys):
    snippet = re.search(r"```python\n(.*?)```\n\n    (.*?)\n", TEXT, flags=re.DOTALL)
    exec(snippet[1].replace("outputs/addition", str(main_job)), {})
    assert capsys.readouterr().out.strip() == snippet[2]


def test_every_recipe_is_explained():
    for name in list_recipes():
        assert f"`{name}`" in TEXT


def test_every_measured_thing_has_a_table():
    blocks = re.findall(r"<!-- results (\S+) -->", TEXT + COMPARISONS + ENCODERS)
    assert sorted(blocks) == sorted(documents.published_blocks())
    assert "No results yet." not in TEXT + COMPARISONS + ENCODERS


def result(model: str, length: int, exact_match: float) -> dict:
    return {"model": model, "length": length, "length_b": length, "num_samples": 9, "seed": 0, "hardware": "abacus",
            "exact_match": exact_match, "run_seconds": 7.2}  # fmt: skip


def test_study_tells_last_and_best_checkpoints_apart():
    rows = [result("x-seed0", 10, 1.0), result("x-seed0", 20, 0.5), result("x-seed0/best", 10, 1.0),
            result("x-seed0/best", 20, 0.96), result("y-seed0", 10, 0.2), result("y-seed0", 20, 0.1)]  # fmt: skip
    table = documents.study_table(rows)
    assert "| x | 1.000 | 0.500 | 10 | >= 20 | 7 |" in table
    assert "| y | 0.200 | 0.100 | 0 |  | 7 |" in table


def test_tasks_stand_beside_their_encodings(monkeypatch):
    monkeypatch.setattr(documents, "_window_cell", lambda recipe: f"window of {recipe}")
    rows = [result("copy--nope-seed0/best", 10, 0.2), result("copy--coupled-seed0/best", 10, 1.0),
            result("reverse--nope-seed0/best", 10, 1.0), result("reverse--nope-seed0", 10, 0.0)]  # fmt: skip
    table = documents.tasks_table(rows, [result("nope-seed0/best", 10, 0.0), result("alibi-seed0/best", 10, 0.0)])
    assert "| task | window | coupled | nope | the papers' learned table |" in table
    assert "| addition | window of addition-short |  | 0 | 40 -> 200 |" in table
    assert "| copy | window of copy | >= 10 | 0 | 40 -> 300 |" in table
    assert "| reverse | window of reverse |  | >= 10 | 40 -> 300 |" in table
