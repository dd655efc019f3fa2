"""Runs a study: python -m longhand.hub_cards.studies NAME ..., with --help for its options."""

import sys
from importlib import import_module

STUDIES = ("complexity", "constructions", "nope_ceiling", "ring")


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] not in STUDIES:
        print(f"{__doc__}\n\nNAME is one of {', '.join(STUDIES)}", file=sys.stderr)
        raise SystemExit(2)
    import_module(f"longhand.hub_cards.studies.{arguments[0]}.study").main(arguments[1:])


if __name__ == "__main__":
    main()
