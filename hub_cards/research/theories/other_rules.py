"""Other implementations of the rules of `checked_rules.py`: by Python's library, or written otherwise.

`rules.yaml` says which is of which rule; those of python-stdnum (Arthur de Jong) stand there by their names.
"""

# Used by: rules.py. Changed freely.

import calendar
import datetime
import ipaddress
import re
from itertools import pairwise


def is_leap_year(text: str) -> bool:
    """Whether the calendar of Python has a 29 February in a year."""
    return calendar.isleap(int(text))


def is_date(text: str) -> bool:
    """Whether the calendar of Python has a date. It has no year 0, which is as the year 400."""
    if not re.fullmatch("....(/..){2}", text) or not text.replace("/", "").isdecimal():
        return False
    year = text[:4] if text[:4] != "0000" else "0400"
    try:
        datetime.date.fromisoformat(f"{year}-{text[5:7]}-{text[8:]}")
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """Whether Python reads a text as hours and minutes."""
    if len(text) != 5:
        return False
    try:
        datetime.time.fromisoformat(text)
    except ValueError:
        return False
    return True


ROMAN = dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))
ROMAN_PARTS = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
ROMAN_SYMBOLS = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")


def is_roman(text: str) -> bool:
    """Whether a number from 1 to 3999 is written so."""
    values = [ROMAN[symbol] for symbol in text] + [0]
    value = sum(-value if value < after else value for value, after in pairwise(values))
    rest, written = value, ""
    for part, symbols in zip(ROMAN_PARTS, ROMAN_SYMBOLS, strict=True):
        times, rest = divmod(rest, part) if rest > 0 else (0, rest)
        written += symbols * times
    return 1 <= value <= 3999 and written == text


def is_address(text: str) -> bool:
    """Whether Python reads a text as an address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def is_version(text: str) -> bool:
    """Whether three numbers stand in a text as Python writes them."""
    parts = text.split(".")
    return len(parts) == 3 and all(part.isdecimal() and str(int(part)) == part for part in parts)


def is_color(text: str) -> bool:
    """Whether Python reads a text behind a # as a hexadecimal number."""
    return text[:1] == "#" and len(text) in (4, 7) and "#" not in text[1:] and int(text[1:], 16) >= 0


def is_balanced(text: str) -> bool:
    """Whether nothing is left if pairs of brackets are taken out four times."""
    for _ in range(4):
        text = text.replace("()", "")
    return text == ""


def has_parity(text: str) -> bool:
    """Whether each byte of a text has an even number of ones."""
    count, rest = divmod(len(text), 8)
    return not rest and all(not (byte.bit_count() % 2) for byte in int("0" + text, 2).to_bytes(count + 1, "big"))


def from_gray(text: str) -> str:
    """The binary number of a Gray code by shifts."""
    number = int(text, 2)
    shifted = number
    while shifted := shifted >> 1:
        number ^= shifted
    return format(number, f"0{len(text)}b")


def is_bcd(text: str) -> bool:
    """Whether the hexadecimal digits of a text are decimal."""
    return len(text) % 4 == 0 and format(int(text, 2), f"0{len(text) // 4}x").isdecimal()


def has_separators(text: str) -> bool:
    """Whether Python writes a number so."""
    plain = text.replace(",", "")
    return plain.isdecimal() and f"{int(plain):,}" == text


def is_password(text: str) -> bool:
    """Whether a pattern that looks ahead fits."""
    return re.fullmatch("(?=.*a)(?=.*A)(?=.*1).{8,}", text) is not None


VIN_NUMBERS = str.maketrans(
    {
        symbol: str(value)
        for value, letters in enumerate(("", "AJ", "BKS", "CLT", "DMU", "ENV", "FW", "GPX", "HY", "RZ"))
        for symbol in letters
    }
)


def is_vin(text: str) -> bool:
    """Whether the weighted sum of a vehicle's number, without its ninth symbol, leaves that symbol."""
    values = [int(symbol) for symbol in text.translate(VIN_NUMBERS)]
    if len(values) != 17:
        return False
    # The weights fall from 8 to 2, jump to 10, and fall from 9 to 2 behind the ninth symbol.
    total = sum((8 - place) * value for place, value in enumerate(values[:7])) + 10 * values[7]
    total += sum((9 - place) * value for place, value in enumerate(values[9:]))
    return text[8] == ("X" if total % 11 == 10 else str(total % 11))
