"""Run a study: python -m longhand.hub_cards.research NAME ..., or list the studies: --list

NAME --help says what a study does and which options it takes. A file, my-study.yaml, is a study of one's own.
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import sys
from dataclasses import fields
from importlib import import_module
from typing import Any

from transformers.utils import logging

from longhand.hub_cards.commands import interruptible, refusing_in_one_line
from longhand.hub_cards.options import OneLineParser, add_options, check
from longhand.hub_cards.research.output import add_output, run_measured
from longhand.hub_cards.research.study import is_file, list_studies, load_study

THEORIES = (
    "answers",
    "complexity",
    "constructions",
    "flare",
    "functions",
    "hint_costs",
    "nope_ceiling",
    "ring",
    "rules",
    "wrong_tokens",
)
"""Studies in `theories`."""

STRUCTURED = ("families", "pretrained", "sentences", "table_cells")
"""Studies in `structured`, of models of others."""

ARITHMETIC = "arithmetic"
"""What the proofs assume of a processor, measured: a part of the script for a GPU, and a study of its own on any device."""

STUDIES = tuple(sorted((*THEORIES, *STRUCTURED, ARITHMETIC)))
"""Studies with code of their own. The others are data: `longhand.hub_cards.research.study`."""

GPU = "gpu"
"""What is no study: the script for a GPU."""


def load_code(name: str) -> Any:
    """Return the module that runs a study."""
    if name in (GPU, ARITHMETIC):
        return import_module(f"{__package__}.gpu.{'run' if name == GPU else name}")
    if name not in STUDIES:
        return import_module(f"{__package__}.run")
    return import_module(f"{__package__}.{'theories' if name in THEORIES else 'structured'}.{name}")


def describe_studies() -> str:
    """Return a line for each study: its name and the first line of its docstring, or its question."""
    lines = {name: load_code(name).__doc__.splitlines()[0] for name in (*STUDIES, GPU)}
    lines |= {name: load_study(name).question for name in list_studies()}
    return "\n".join(f"{name:<{max(map(len, lines))}}  {line}" for name, line in lines.items())


def declared_options(code: Any) -> tuple[type, ...]:
    """Return the dataclasses that declare a study's options, with which its function `run` is called."""
    return getattr(code, "OPTIONS", ())


def is_measured(code: Any) -> bool:
    """Whether a study only yields rows, which `run_measured` prints and writes; others have a function `run`."""
    return hasattr(code, "RESULTS") and not hasattr(code, "run")


def make_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a study's options."""
    code = load_code(name)
    prog, style = f"python -m longhand.hub_cards.research {name}", argparse.RawTextHelpFormatter
    parser = OneLineParser(prog=prog, description=code.__doc__, formatter_class=style)
    if hasattr(code, "add_options"):
        code.add_options(parser)
    for kind in declared_options(code):
        add_options(parser, kind)
    if name in STUDIES and hasattr(code, "RESULTS"):
        add_output(parser, code.RESULTS)
    return parser


def read_declared(kind: type, chosen: dict[str, Any]) -> Any:
    """Take the options that a dataclass declares out of those that were chosen, and check them."""
    options = kind(**{option.name: chosen.pop(option.name) for option in fields(kind)})
    check(options)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the study that is named first, with the options that follow; bad input ends with one line and exit status 2."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    logging.disable_progress_bar()
    with interruptible("the same command goes on"), refusing_in_one_line(OSError):
        if name in ("--list", "-h", "--help"):
            print(describe_studies() if name == "--list" else f"{__doc__}\n{describe_studies()}")
            return
        names = [*STUDIES, GPU, *list_studies()]
        if name not in names and not is_file(name):
            raise ValueError(
                f"study {name!r} is unknown: choose from {', '.join(names)}, or give a file such as my-study.yaml"
            )
        chosen = vars(make_parser(name).parse_args(options))
        code = load_code(name)
        if is_measured(code):
            run_measured(code, **chosen)
        else:
            given = [read_declared(kind, chosen) for kind in declared_options(code)]
            code.run(*given, **(chosen if name in (*STUDIES, GPU) else {"name": name, **chosen}))


if __name__ == "__main__":
    main()
