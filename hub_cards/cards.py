"""Write the card of a checkpoint's folder, README.md, from the files in the folder.

Every number on the card is read from the configuration, the recipe, the results and the certificate.

examples:
  python -m longhand.hub_cards.cards outputs/addition
  python -m longhand.hub_cards.cards outputs/addition --repo_id user/addition --dataset user/sums
  python -m longhand.hub_cards.cards outputs/maximum --plugin my_task.py
"""

import argparse
from pathlib import Path

from transformers.utils import logging

from longhand.data.plugins import load_plugin
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.runs.console import refusing_in_one_line
from longhand.hub_cards.runs.plugins import add_plugin_option


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input ends with one line and exit status 2."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m longhand.hub_cards.cards", description=__doc__, formatter_class=style)
    add = parser.add_argument
    add("folder", type=Path, help="folder of a checkpoint; its README.md is replaced")
    add("--repo_id", metavar="USER/NAME", help="repository that the card's code loads from (default: the folder)")
    add("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, for the metadata (default: none)")
    add_plugin_option(parser)
    options = parser.parse_args(arguments)
    logging.disable_progress_bar()
    with refusing_in_one_line():
        for file in options.plugin:
            load_plugin(file)
        print(f"wrote {write_card(options.folder, options.repo_id, options.dataset)}")


if __name__ == "__main__":
    main()
