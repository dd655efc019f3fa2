"""Run a study: python -m longhand.hub_cards.studies NAME ..., or list the studies: --list

NAME --help says what a study does and which options it takes.
"""

import argparse
import sys
from importlib import import_module

STUDIES = ("complexity", "constructions", "nope_ceiling", "ring")


def describe_studies() -> str:
    """A line for each study: its name and the first line of its docstring."""
    width = max(map(len, STUDIES))
    packages = (import_module(f"longhand.hub_cards.studies.{name}") for name in STUDIES)
    return "\n".join(f"{name:<{width}}  {package.__doc__}" for name, package in zip(STUDIES, packages, strict=True))


def main(arguments: list[str] | None = None) -> None:
    """Run the study that is named first, with the arguments that follow."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in STUDIES:
        import_module(f"longhand.hub_cards.studies.{arguments[0]}.study").main(arguments[1:])
        return
    parser = argparse.ArgumentParser(
        prog="python -m longhand.hub_cards.studies",
        description=__doc__,
        epilog=describe_studies(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="print the studies, one a line")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"a study: {', '.join(STUDIES)}")
    options, _ = parser.parse_known_args(arguments)
    if options.list:
        print(describe_studies())
    else:
        known = f"choose from {', '.join(STUDIES)}"
        print(
            f"error: {f'study {options.name!r} is unknown' if options.name else 'no study is named'}: {known}",
            file=sys.stderr,
        )
        raise SystemExit(2)


if __name__ == "__main__":
    main()
