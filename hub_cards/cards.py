"""Writes the card of a checkpoint's folder.

python -m longhand.hub_cards.cards outputs/addition
python -m longhand.hub_cards.cards outputs/addition --repo_id user/name
"""

import argparse
from pathlib import Path

from transformers.utils import logging

from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.runs.console import refusing_in_one_line


def main(arguments: list[str] | None = None) -> None:
    """Console entry: bad input ends with one line and exit status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m longhand.hub_cards.cards",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="a checkpoint's folder; its README.md is written")
    parser.add_argument("--repo_id", metavar="USER/NAME", help="where it will be published")
    parser.add_argument("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, for the metadata")
    options = parser.parse_args(arguments)
    logging.disable_progress_bar()
    with refusing_in_one_line():
        print(f"wrote {write_card(options.folder, options.repo_id, options.dataset)}")


if __name__ == "__main__":
    main()
