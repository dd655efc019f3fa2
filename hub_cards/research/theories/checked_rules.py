"""Rules that people check, as functions, each of which becomes a proved model by one command:

python -m longhand.train columns --function checked_rules.py:luhn --name luhn

The study `rules` compares their machines with other implementations. Signs that a model's text has for itself, such as `-`,
have another sign in their place.
"""

# Used by: rules.py. Changed freely.

import re


def luhn(card: str) -> bool:
    """Whether the last digit of a card number is its check digit (ISO/IEC 7812)."""
    total = 0
    for place, digit in enumerate(reversed(card)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def iban(digits: str) -> bool:
    """Whether an IBAN that is rearranged and written in digits has the remainder 1 (ISO 7064, mod 97-10)."""
    remainder = 0
    for digit in digits:
        remainder = (10 * remainder + int(digit)) % 97
    return remainder == 1


def isbn_10(isbn: str) -> bool:
    """Whether a text is an ISBN of ten digits, the last of which may be X for 10."""
    if len(isbn) != 10 or "X" in isbn[:9]:
        return False
    values = [10 if symbol == "X" else int(symbol) for symbol in isbn]
    return sum(weight * value for weight, value in zip(range(10, 0, -1), values, strict=True)) % 11 == 0


def isbn_13(isbn: str) -> bool:
    """Whether a text is an ISBN of thirteen digits: it begins with 978 or 979, and its check digit is right."""
    return isbn[:3] in ("978", "979") and ean_13(isbn)


def ean_13(code: str) -> bool:
    """Whether a text is an EAN of thirteen digits with a right check digit."""
    return len(code) == 13 and sum(int(digit) * (1 + 2 * (place % 2)) for place, digit in enumerate(code)) % 10 == 0


def ean_8(code: str) -> bool:
    """Whether a text is an EAN of eight digits with a right check digit."""
    return len(code) == 8 and sum(int(digit) * (3 - 2 * (place % 2)) for place, digit in enumerate(code)) % 10 == 0


def upc(code: str) -> bool:
    """Whether a text is a UPC-A of twelve digits with a right check digit."""
    return len(code) == 12 and sum(int(digit) * (3 - 2 * (place % 2)) for place, digit in enumerate(code)) % 10 == 0


def leap_year(year: int) -> bool:
    """Whether a year of the Gregorian calendar has a 29 February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def iso_date(date: str) -> bool:
    """Whether a text is a date of the years 0000 to 9999 as ISO 8601 writes it, such as 2024/02/29 with / for the dash."""
    found = re.fullmatch(r"([0-9]{4})/([0-9]{2})/([0-9]{2})", date)
    if not found:
        return False
    year, month, day = map(int, found.groups())
    days = [31, 29 if leap_year(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]


def time_of_day(time: str) -> bool:
    """Whether a text is a time from 00:00 to 23:59."""
    return re.fullmatch("([01][0-9]|2[0-3]):[0-5][0-9]", time) is not None


def roman(numeral: str) -> bool:
    """Whether a text is a roman numeral from I to MMMCMXCIX."""
    pattern = "M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})"
    return numeral != "" and re.fullmatch(pattern, numeral) is not None


def ipv4(address: str) -> bool:
    """Whether a text is an IPv4 address: four numbers from 0 to 255 without zeros in front, and dots between them."""
    parts = address.split(".")
    return len(parts) == 4 and all(part.isdecimal() and part == str(int(part)) and int(part) < 256 for part in parts)


def semantic_version(version: str) -> bool:
    """Whether a text is a semantic version of three numbers without zeros in front, such as 1.20.3."""
    return re.fullmatch(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)", version) is not None


def hex_color(color: str) -> bool:
    """Whether a text is a color of three or six hexadecimal digits behind a #, such as #c0ffee."""
    return re.fullmatch("#([0-9a-f]{3}|[0-9a-f]{6})", color) is not None


def balanced(brackets: str) -> bool:
    """Whether brackets are balanced, and never more than four are open."""
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket == "(" else -1
        if not 0 <= depth <= 4:
            return False
    return depth == 0


def even_parity(bits: str) -> bool:
    """Whether a text is whole bytes, each of seven bits and a bit that makes their ones even."""
    return len(bits) % 8 == 0 and all(bits[first : first + 8].count("1") % 2 == 0 for first in range(0, len(bits), 8))


def from_gray(gray: str) -> str:
    """The binary number of a number in Gray code."""
    bits = ""
    for bit in gray:
        bits += bit if bits[-1:] in ("", "0") else "10"[int(bit)]
    return bits


def bcd(bits: str) -> bool:
    """Whether a text is decimal digits in four bits each: no four of them are 10 or more."""
    return len(bits) % 4 == 0 and all(int(bits[first : first + 4], 2) < 10 for first in range(0, len(bits), 4))


def thousands(number: str) -> bool:
    """Whether a text is a whole number with commas between groups of three digits, such as 1,234,567."""
    return re.fullmatch("0|[1-9][0-9]{0,2}(,[0-9]{3})*", number) is not None


def vin(number: str) -> bool:
    """Whether the ninth symbol of a vehicle's number of seventeen symbols is its check digit (49 CFR 565)."""
    values = dict(
        zip("0123456789ABCDEFGHJKLMNPRSTUVWXYZ", [*range(10), *range(1, 9), *range(1, 6), 7, 9, *range(2, 10)], strict=True)
    )
    weights = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
    if len(number) != 17:
        return False
    return (
        "0123456789X"[sum(weight * values[symbol] for weight, symbol in zip(weights, number, strict=True)) % 11] == number[8]
    )


def password(text: str) -> bool:
    """Whether a password has eight symbols or more, with a letter, a capital and a digit: a, A and 1."""
    return len(text) >= 8 and all(symbol in text for symbol in "aA1")
