import re
import sys
from pathlib import Path

import pytest

from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research import pages as documents
from longhand.hub_cards.research import tables

README = Path(__file__).parents[1] / "README.md"

PAGES = {page.name: page.read_text(encoding="utf-8") for page in (README, *documents.PAGES)}
TEXT = PAGES["README.md"]
EVERYTHING = "\n".join(PAGES.values())


@pytest.fixture(scope="module")
def blocks():
    return documents.all_blocks(EVERYTHING)


@pytest.mark.parametrize("page", PAGES)
def test_figures_are_those_of_the_results_files(page, blocks):
    assert documents.render(PAGES[page], blocks) == PAGES[page]


def test_check_ends_with_one_if_a_page_is_out_of_date(tmp_path, monkeypatch, blocks):
    monkeypatch.setattr(documents, "all_blocks", lambda pages: blocks)
    monkeypatch.setattr(sys, "argv", ["reports", "--check"])
    for text, status in ((PAGES["RESULTS.md"], 0), (PAGES["RESULTS.md"].replace("1.000", "0.999", 1), 1)):
        page = tmp_path / "RESULTS.md"
        page.write_text(text, encoding="utf-8")
        monkeypatch.setattr(documents, "PAGES", [page])
        with pytest.raises(SystemExit) as end:
            documents.main()
        assert int(end.value.code) == status and page.read_text(encoding="utf-8") == text


def test_figures_come_from_the_results():
    row = {"model": "x", "length": 30, "num_samples": 5, "seed": 0, "hardware": "abacus", "run_seconds": 7.2}
    rows = [{**row, "model": name, "exact_match": value} for name, value in (("x", 0.25), ("y", 0.75), ("z", 1.0))]
    empty = "<!-- results no-recipe -->\n<!-- end -->"
    text = f"{empty}\nkept\n<!-- results a-recipe -->\nold\n<!-- end -->\n{empty}"
    blocks = {"a-recipe": tables.by_length_table(rows)}
    rendered = documents.render(text, blocks)
    assert "| x | 0.250 | 7 |" in rendered and "| **median** | **0.750** |" in rendered and "abacus" in rendered
    assert rendered.count("No results yet.") == 2 and "\nkept\n" in rendered and "old" not in rendered
    assert documents.render(rendered, blocks) == rendered


def test_snippet_prints_what_the_page_says(capsys):
    snippet = re.search(r"```python\n(import longhand.*?)```\n\n    (.*?)\n", TEXT, flags=re.DOTALL)
    exec(snippet[1], {})
    assert capsys.readouterr().out.strip() == snippet[2]


def test_every_recipe_is_explained():
    assert [name for name in list_recipes() if f"`{name}`" not in EVERYTHING] == []


def test_the_first_page_is_short():
    assert len(TEXT.splitlines()) <= 250


def test_every_measured_thing_has_a_table(blocks):
    assert sorted(set(re.findall(r"<!-- results (\S+) -->", EVERYTHING))) == sorted(blocks)
    assert "No results yet." not in EVERYTHING


def anchors(text):
    """The anchors of a page's headings, as the Hub and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [README, *documents.HUB_CARDS.glob("*.md")], ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for place, anchor in re.findall(r"\]\(((?:[\w.]+/)+[\w./-]*\w|)(?:#([\w-]+))?\)", text):
        target = (page.parent / place) if place else page
        assert target.is_file(), place
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), anchor


def result(model: str, length: int, exact_match: float) -> dict:
    return {"model": model, "length": length, "length_b": length, "num_samples": 9, "seed": 0, "hardware": "abacus",
            "exact_match": exact_match, "run_seconds": 7.2}  # fmt: skip


def test_table_aligns_numbers_to_the_right_and_ends_with_its_note():
    lines = [{"a": "1", "b": "1", "c": "**no**"}, {"a": "2", "b": "2 to 3 digits", "c": ""}]
    table = "| a | b | c |\n| --- | ---: | --- |\n| 1 | 1 | **no** |\n| 2 | 2 to 3 digits |  |\n"
    assert tables.render_table(lines) == table and tables.render_table(lines, "Note.") == f"{table}\nNote.\n"


def test_tasks_stand_beside_their_encodings():
    windows = {panel["recipe"]: [result("x-seed0", 10, 1.0)] for panel in tables.OVERVIEW["panels"]}
    windows["addition-short"] = windows["copy"]
    reach = {
        "copy--nope": "0",
        "copy--coupled": ">= 10",
        "reverse--nope": "not fitted",
        "addition--nope": "0",
        "addition--t5": "0",
    }
    table = tables.tasks_table(reach, windows, {"copy": [{"certified": True}, {"certified": False}]})
    assert "| task | window | coupled | nope | the papers' learned table |" in table
    assert "| addition | `addition-short`: >= 10 |  | 0 | 40 -> 200 |" in table
    assert "| copy | `copy`: every size, certified (1 of 2 seeds) | >= 10 | 0 | 40 -> 300 |" in table
    assert "| reverse | `reverse`: >= 10 |  | not fitted | 40 -> 300 |" in table
