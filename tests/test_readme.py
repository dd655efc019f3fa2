import re

from longhand.hub_cards import readme
from longhand.hub_cards.recipes import list_recipes

TEXT = readme.README.read_text()


def test_figures_are_those_of_the_results_files():
    assert readme.render(TEXT) == TEXT


def test_figures_come_from_the_results(monkeypatch):
    row = {"model": "x", "length": 30, "num_samples": 5, "seed": 0, "hardware": "abacus", "run_seconds": 7.2}
    rows = [{**row, "exact_match": 0.25}, {**row, "model": "y", "exact_match": 0.75}, {**row, "model": "z", "exact_match": 1}]
    monkeypatch.setattr(readme, "published_results", lambda: {"a-recipe": rows})
    text = "before\n<!-- results a-recipe -->\nold\n<!-- end -->\n<!-- results b -->\nold\n<!-- end -->\nafter"
    rendered = readme.render(text)
    assert "| x | 0.250 | 7 |" in rendered and "| **median** | **0.750** |" in rendered and "abacus" in rendered
    assert "No results yet." in rendered and "old" not in rendered
    assert readme.render(rendered) == rendered


def test_snippet_prints_what_the_page_says(main_job, capsys):
    snippet = re.search(r"```python\n(.*?)```\n\n    (.*?)\n", TEXT, flags=re.DOTALL)
    exec(snippet[1].replace("outputs/addition", str(main_job)), {})
    assert capsys.readouterr().out.strip() == snippet[2]


def test_every_recipe_is_explained():
    for name in list_recipes():
        assert f"`{name}`" in TEXT
