"""Show checkpoints on a page in the browser: one file, without a server.

examples:
  python -m longhand.hub_cards.page                                  the checkpoints that come with the package
  python -m longhand.hub_cards.page outputs/addition user/copy
  python -m longhand.hub_cards.page --output longhand.html           writes the file and opens nothing
"""

# Used by: whoever runs or imports it. Changed freely.

import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging

from longhand.hub_cards.checkpoints.load import locate
from longhand.hub_cards.commands import interruptible, read_citation, refusing_in_one_line, write_atomically
from longhand.hub_cards.options import option, parse, parser_of
from longhand.hub_cards.page.build import build_page, default_sources


@dataclass(frozen=True)
class PageOptions:
    """The command line. Help says what the options mean."""

    checkpoints: list[str] = option(
        "folders or Hub ids of checkpoints, or names of the zoo, the first one to be shown first (default: most of the zoo)",
        [],
        metavar="MODEL",
        positional=True,
    )
    output: Path | None = option("write the page there instead of opening it", None, metavar="FILE")
    repository: str | None = option(
        "address to which the page links (default: the repository of CITATION.cff)", None, metavar="URL"
    )


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input ends with one line and exit status 2."""
    logging.disable_progress_bar()
    with interruptible("no page is written"), refusing_in_one_line(OSError):
        parser = parser_of(PageOptions, prog="python -m longhand.hub_cards.page", description=__doc__)
        options = parse(parser, PageOptions, arguments)
        repository = options.repository or read_citation().get("repository-code")
        page = build_page([locate(source) for source in options.checkpoints] or default_sources(), repository)
        file = options.output or Path(tempfile.mkdtemp(prefix="longhand-")) / "longhand.html"
        write_atomically(file, page)
        print(f"{file}: {len(page.encode()):,} bytes")
        if options.output is None:
            webbrowser.open(file.resolve().as_uri())


if __name__ == "__main__":
    main()
