"""Show checkpoints on a page in the browser.

examples:
  python -m longhand.hub_cards.space                          the checkpoints that come with the package
  python -m longhand.hub_cards.space outputs/addition
  python -m longhand.hub_cards.space outputs/addition outputs/multiplication-scratchpad --port 8080
"""

import argparse

from transformers.utils import logging

from longhand.hub_cards.checkpoints.zoo import list_zoo, locate
from longhand.hub_cards.console import OneLineParser, interruptible, refusing_in_one_line


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser("python -m longhand.hub_cards.space", description=__doc__, formatter_class=style)
    add = parser.add_argument
    described = (
        "folders or Hub ids of runs, or names of the zoo; the first one is shown at the beginning (default: all of the zoo)"
    )
    add("checkpoints", nargs="*", metavar="MODEL", help=described)
    add("--port", type=int, help="port of the page (default: the first free one from 7860 on)")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input ends with one line and exit status 2."""
    logging.disable_progress_bar()
    with interruptible("the page is closed"), refusing_in_one_line(OSError):
        options = make_parser().parse_args(arguments)
        try:
            from longhand.hub_cards.space.app import launch
        except ModuleNotFoundError as error:
            raise ValueError(f"the page needs {error.name}: pip install 'longhand[space]'") from error
        sources = [locate(source) for source in options.checkpoints or list_zoo()]
        launch(sources, server_port=options.port)


if __name__ == "__main__":
    main()
