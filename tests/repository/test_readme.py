import json
import re
import sys
from pathlib import Path

import pytest
from made_once import make_once

from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research import pages as documents

README = Path(__file__).parents[2] / "README.md"
GUIDE = documents.HUB_CARDS / "GUIDE.md"

PAGES = {page.name: page.read_text(encoding="utf-8") for page in (README, GUIDE, *documents.PAGES)}
TEXT = PAGES["README.md"]
EVERYTHING = "\n".join(PAGES.values())


@pytest.fixture(scope="session")
def blocks(tmp_path_factory) -> dict[str, str]:
    """What pages show of results, made by one test process."""

    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "blocks.json").write_text(json.dumps(documents.all_blocks(EVERYTHING)), encoding="utf-8")

    return json.loads((make_once(tmp_path_factory, "blocks", write) / "blocks.json").read_text(encoding="utf-8"))


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_figures_are_those_of_the_results_files(page, blocks):
    assert documents.render(PAGES[page], blocks) == PAGES[page]


@pytest.mark.thorough
def test_check_ends_with_one_if_a_page_is_out_of_date(tmp_path, monkeypatch, blocks):
    monkeypatch.setattr(documents, "all_blocks", lambda pages: blocks)
    monkeypatch.setattr(documents.gallery, "render", documents.gallery.GALLERY.read_text)
    monkeypatch.setattr(sys, "argv", ["reports", "--check"])
    for text, status in ((PAGES["RESULTS.md"], 0), (PAGES["RESULTS.md"].replace("1.000", "0.999", 1), 1)):
        page = tmp_path / "RESULTS.md"
        page.write_text(text, encoding="utf-8")
        monkeypatch.setattr(documents, "PAGES", [page])
        with pytest.raises(SystemExit) as end:
            documents.main()
        assert bool(end.value.code) == bool(status) and page.read_text(encoding="utf-8") == text


def test_snippets_print_what_the_page_says(capsys):
    solver = re.search(r"```python\n((?:(?!```).)*print.*?)```", TEXT, flags=re.DOTALL)[1]
    exec(solver, {})
    assert capsys.readouterr().out.split() == re.findall(r"print.*# (\d+)$", solver, flags=re.MULTILINE)
    generate = re.search(r"```python\n((?:(?!```).)*generate.*?)```\n\n    (.*?)\n", PAGES["GUIDE.md"], flags=re.DOTALL)
    exec(generate[1], {})
    assert capsys.readouterr().out.strip() == generate[2] and f"`{generate[2]}`" in TEXT


def test_every_recipe_is_explained():
    assert [name for name in list_recipes() if f"`{name}`" not in EVERYTHING] == []


@pytest.mark.thorough
def test_every_measured_thing_has_a_table(blocks):
    assert sorted(set(re.findall(r"<!-- results (\S+) -->", EVERYTHING))) == sorted(blocks)
    assert "No results yet." not in EVERYTHING


def anchors(text):
    """The anchors of a page's headings, as the Hub and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_a_list_of_contents_is_complete():
    listed = {}
    for name, text in PAGES.items():
        entries = re.findall(r"^- \[([^\]]*)\]\(#", text, re.MULTILINE)
        if entries:
            listed[name] = entries
            assert entries == re.findall(r"^## (.*)$", text, re.MULTILINE), name
    assert "RESULTS.md" in listed


@pytest.mark.parametrize("page", [README, *documents.HUB_CARDS.glob("*.md")], ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for place, anchor in re.findall(r"\]\(((?:[\w.]+/)+[\w./-]*\w|)(?:#([\w-]+))?\)", text):
        target = (page.parent / place) if place else page
        assert target.is_file(), place
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), anchor
