"""What every study with measurements leaves: its rows, a picture, and a table on the terminal."""

from collections.abc import Callable
from pathlib import Path

from longhand.hub_cards.evaluation.results import Row, read_results, write_results


def publish(rows: list[Row], file: Path, draw: Callable[[list[Row], Path], None], table: Callable[[list[Row]], str]) -> None:
    """Write the rows to a file. From that file draw the picture beside it, and print the table of the pages."""
    write_results(rows, file)
    rows = read_results(file)
    draw(rows, picture := file.with_suffix(".png"))
    print(f"{table(rows)}\nwrote {file} and {picture}")
