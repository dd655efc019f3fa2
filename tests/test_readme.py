import re

from longhand.hub_cards import readme
from longhand.hub_cards.recipes import list_recipes

TEXT = readme.README.read_text()


def test_figures_are_those_of_the_results_files():
    assert readme.render(TEXT) == TEXT


def test_figures_come_from_the_results(monkeypatch):
    row = {"model": "x", "length": 30, "num_samples": 5, "seed": 0, "hardware": "abacus", "run_seconds": 7.2}
    rows = [{**row, "model": name, "exact_match": value} for name, value in (("x", 0.25), ("y", 0.75), ("z", 1.0))]
    monkeypatch.setattr(readme, "published_results", lambda: {"a-recipe": rows})
    empty = "<!-- results no-recipe -->\n<!-- end -->"
    text = f"{empty}\nkept\n<!-- results a-recipe -->\nold\n<!-- end -->\n{empty}"
    rendered = readme.render(text)
    assert "| x | 0.250 | 7 |" in rendered and "| **median** | **0.750** |" in rendered and "abacus" in rendered
    assert rendered.count("No results yet.") == 2 and "\nkept\n" in rendered and "old" not in rendered
    assert readme.render(rendered) == rendered


def test_snippet_prints_what_the_page_says(main_job, capsys):
    snippet = re.search(r"```python\n(.*?)```\n\n    (.*?)\n", TEXT, flags=re.DOTALL)
    exec(snippet[1].replace("outputs/addition", str(main_job)), {})
    assert capsys.readouterr().out.strip() == snippet[2]


def test_every_recipe_is_explained():
    for name in list_recipes():
        assert f"`{name}`" in TEXT


def test_every_measured_thing_has_a_table():
    blocks = set(re.findall(r"<!-- results (\S+) -->", TEXT))
    assert blocks == set(readme.published_blocks())
    assert "No results yet." not in TEXT
