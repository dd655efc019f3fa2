"""The page of `longhand.hub_cards.page` as a static Space: one HTML file and a card."""

from collections.abc import Sequence
from pathlib import Path

from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.evaluation.results import Row
from longhand.hub_cards.page.build import build_page, shown_by_default
from longhand.hub_cards.publishing.cards import CARD_FILE
from longhand.hub_cards.publishing.commits import Files
from longhand.hub_cards.publishing.examples import ENVIRONMENT
from longhand.hub_cards.publishing.publications import Publication

PAGE_FILE = "index.html"


def page_publication(repo_id: str, models: Sequence[str] = ()) -> Publication:
    """The page for a static Space on the Hub.

    Args:
        models: what it shows: folders of runs, names of the zoo, or Hub ids; by default most of the zoo.

    Raises:
        ValueError: a name is not legal. Making the files raises what `build_page` does.
    """
    sources = [locate(source) for source in models or shown_by_default()]

    def make_files(place: Path, rows: list[Row]) -> Files:
        on_the_hub = [source for source in sources if not Path(source).is_dir()]
        card = ENVIRONMENT.get_template("page_card.md").render(models=on_the_hub)
        return {PAGE_FILE: build_page(sources).encode(), CARD_FILE: f"{card}\n".encode()}

    return Publication(repo_id, "space", "page", "the page", is_page_file, make_files)


def is_page_file(path: str) -> bool:
    """Whether a path in a repository is written by a push of the page."""
    return path in (CARD_FILE, PAGE_FILE, "style.css")
