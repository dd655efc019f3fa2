"""Run a study: python -m longhand.hub_cards.studies NAME ..., or list the studies: --list

NAME --help says what a study does and which options it takes.
"""

import argparse
import sys
from importlib import import_module

from transformers.utils import logging

from longhand.hub_cards.runs.console import OneLineParser, refusing_in_one_line

STUDIES = ("complexity", "constructions", "nope_ceiling", "ring")


def describe_studies() -> str:
    """Return a line for each study: its name and the first line of its docstring."""
    width = max(map(len, STUDIES))
    return "\n".join(f"{name:<{width}}  {import_module(f'{__package__}.{name}').__doc__}" for name in STUDIES)


def main(arguments: list[str] | None = None) -> None:
    """Run the study that is named first, with the options that follow; bad input ends with one line and exit status 2."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("--list", "-h", "--help"):
        print(describe_studies() if name == "--list" else f"{__doc__}\n{describe_studies()}")
        return
    logging.disable_progress_bar()
    with refusing_in_one_line(OSError):
        if name not in STUDIES:
            problem = f"study {name!r} is unknown" if name else "no study is named"
            raise ValueError(f"{problem}: choose from {', '.join(STUDIES)}")
        study = import_module(f"{__package__}.{name}.study")
        parser = OneLineParser(
            prog=f"python -m longhand.hub_cards.studies {name}",
            description=study.__doc__,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        study.add_options(parser)
        study.run(**vars(parser.parse_args(options)))


if __name__ == "__main__":
    main()
