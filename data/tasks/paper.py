"""Work as on paper: numbers in columns, a sign before a number, a line above a result."""

LINE = ("", "")
"""A row that is a line."""


def write_columns(rows: list[tuple[str, str]]) -> str:
    """Rows of a sign and a number below each other; a number that is shifted to the left ends with spaces."""
    width = max(len(sign) + len(number) for sign, number in rows) + 1
    return "\n".join("-" * width if row == LINE else f"{row[0]}{row[1]:>{width - len(row[0])}}".rstrip() for row in rows)


def plain(number: str) -> str:
    """A number without leading zeros."""
    return number.lstrip("0") or "0"
