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

from longhand.data.plugins import add_plugin_option, load_plugin
from longhand.hub_cards.console import OneLineParser, interruptible, refusing_in_one_line
from longhand.hub_cards.locks import holding
from longhand.hub_cards.publishing.cards import write_card


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input ends with one line and exit status 2."""
    style = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser("python -m longhand.hub_cards.cards", description=__doc__, formatter_class=style)
    add = parser.add_argument
    add("folder", type=Path, help="folder of a checkpoint; its README.md is replaced")
    add("--repo_id", metavar="USER/NAME", help="repository that the card's code loads from (default: the folder)")
    add("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, for the metadata (default: none)")
    add_plugin_option(parser)
    logging.disable_progress_bar()
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        options = parser.parse_args(arguments)
        for file in options.plugin:
            load_plugin(file)
        with holding(options.folder, reading=True):
            print(f"wrote {write_card(options.folder, options.repo_id, options.dataset)}")


if __name__ == "__main__":
    main()
