"""Rules of the calendar turn on years that few words have: their machines are right in century years too, or are refused."""

import calendar
import datetime
import random
import re

import pytest

from longhand.data import learn_task
from longhand.data.learning.questions.functions import Refused

DIGITS = "0123456789"
YEARS = (1900, 2000, 2100, 1600, 400, 100, 3200, 5000, 9999, 0)


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def is_day(year: int, month: int, day: int) -> bool:
    days = [31, 29 if is_leap(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]


def year_first(text):
    found = re.fullmatch("([0-9]{4})/([0-9]{2})/([0-9]{2})", text)
    return bool(found) and is_day(*map(int, found.groups()))


def day_first(text):
    found = re.fullmatch("([0-9]{2})/([0-9]{2})/([0-9]{4})", text)
    return bool(found) and is_day(*map(int, reversed(found.groups())))


def month_first(text):
    found = re.fullmatch("([0-9]{2})/([0-9]{2})/([0-9]{4})", text)
    return bool(found) and is_day(int(found[3]), int(found[1]), int(found[2]))


def split_at_signs(text):
    parts = text.split("/")
    return [len(part) for part in parts] == [4, 2, 2] and is_day(*map(int, parts))


def without_signs(text):
    return len(text) == 8 and is_day(int(text[:4]), int(text[4:6]), int(text[6:]))


def of_the_library(text):
    try:
        datetime.datetime.strptime(text, "%Y%m%d")
    except ValueError:
        return False
    return len(text) == 8


def of_numbers(date):
    return is_day(date // 10000, date // 100 % 100, date % 100)


def of_four_digits(text):
    return len(text) == 4 and is_leap(int(text))


def behind_a_sign(text):
    return re.fullmatch("Y[0-9]{4}", text) is not None and is_leap(int(text[1:]))


def before_a_sign(text):
    return re.fullmatch("[0-9]{4}Y", text) is not None and calendar.isleap(int(text[:4]))


def two_years(text):
    return re.fullmatch("[0-9]{4}/[0-9]{4}", text) is not None and is_leap(int(text[:4])) and is_leap(int(text[5:]))


def julian_first(text):
    if re.fullmatch("[0-9]{4}/02/29", text) is None:
        return False
    year = int(text[:4])
    return year % 4 == 0 if year < 1582 else is_leap(year)


def days_of_the_month(text):
    if re.fullmatch("[0-9]{4}/(0[1-9]|1[0-2])", text) is None:
        return 0
    year, month = int(text[:4]), int(text[5:])
    return 29 if month == 2 and is_leap(year) else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


def day_of_the_year(text):
    if re.fullmatch("[0-9]{4}/[0-9]{3}", text) is None:
        return False
    return 1 <= int(text[5:]) <= (366 if is_leap(int(text[:4])) else 365)


SHAPES = {
    year_first: ("{year:04}/{month:02}/{day:02}", DIGITS + "/"),
    day_first: ("{day:02}/{month:02}/{year:04}", DIGITS + "/"),
    month_first: ("{month:02}/{day:02}/{year:04}", DIGITS + "/"),
    split_at_signs: ("{year:04}/{month:02}/{day:02}", DIGITS + "/"),
    without_signs: ("{year:04}{month:02}{day:02}", DIGITS),
    of_the_library: ("{year:04}{month:02}{day:02}", DIGITS),
    of_numbers: ("{year:04}{month:02}{day:02}", None),
    of_four_digits: ("{year:04}", DIGITS),
    behind_a_sign: ("Y{year:04}", DIGITS + "Y"),
    before_a_sign: ("{year:04}Y", DIGITS + "Y"),
    two_years: ("{year:04}/{other:04}", DIGITS + "/"),
    julian_first: ("{year:04}/02/29", DIGITS + "/"),
    days_of_the_month: ("{year:04}/{month:02}", DIGITS + "/"),
    day_of_the_year: ("{year:04}/{of_year:03}", DIGITS + "/"),
}
"""What is written of a date, and the symbols of these texts; None for a number."""

NEVER_FOUND = {split_at_signs, of_the_library}
"""No pattern in their code shows a date, so all words that are tried may be answered alike: then they are refused."""


def drawn_dates(shape: str, count: int) -> list[str]:
    generator = random.Random(1)

    def drawn_year() -> int:
        years = (generator.choice(YEARS), 100 * generator.randrange(100), generator.randrange(10_000))
        return generator.choice(years)

    dates = []
    for _ in range(count):
        is_last_of_february = generator.random() < 0.5
        month, day = (2, 29) if is_last_of_february else (generator.randint(0, 13), generator.randint(0, 32))
        of_year = generator.choice((366, 365, generator.randrange(1000)))
        dates.append(shape.format(year=drawn_year(), other=drawn_year(), month=month, day=day, of_year=of_year))
    return dates


RULES = [pytest.param(rule, marks=pytest.mark.release) for rule in SHAPES]
"""One rule is learned in `.ci/run`, and none in the plain tests: the day must be remembered until the year is read."""


@pytest.mark.parametrize("function", RULES, ids=lambda function: function.__name__)
def test_a_rule_of_the_calendar_is_right_in_century_years_or_is_refused(function):
    shape, alphabet = SHAPES[function]
    try:
        learned = learn_task(function, alphabet=alphabet, name=f"dates_{function.__name__}")
    except Refused as error:
        assert function in NEVER_FOUND, error
        assert "\n" not in str(error)
        return
    for text in drawn_dates(shape, 1000):
        answer = learned.task.answer_to(text)
        value = learned.report.legend.get(answer, answer)
        assert value == str(int(function(int(text) if alphabet is None else text))), text
