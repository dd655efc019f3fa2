"""Readers of answers: one declaration reads a text, a column of texts, and is written as code on cards."""

import numpy as np
import pytest

from longhand.data import TASKS, Parity, make_generator
from longhand.data.tasks.reader import AnswerReader

ALL_STEPS = AnswerReader(dropped='a-z"', separators='>"', last=9, ones_first=True, leading_zeros=False, padding="_")
REMAINDER = AnswerReader(separators="=", ones_first=True, remainder=">")
READERS = dict.fromkeys(
    [*(part.reader for kind in TASKS.values() for part in kind().parts), Parity().reader, ALL_STEPS, REMAINDER]
)


def random_responses(count: int) -> list[str]:
    generator = make_generator("responses")
    characters = np.array(list("0000123456789=>_+-MĀāĂǉ"))
    lengths = generator.integers(1, 12, size=count)
    return ["".join(generator.choice(characters, size=length)) for length in lengths] + ["0", "00", "0=00", "_0_"]


@pytest.mark.parametrize("reader", READERS, ids=repr)
def test_code_reads_whatever_holds_an_answer_as_the_reader_does(reader):
    code = reader.code("response")
    modules = {name: __import__(name) for name in reader.imports}
    for response in random_responses(500):
        if reader.read(response):
            assert eval(code, {**modules, "response": response}) == reader.read(response), response


@pytest.mark.parametrize(
    ("reader", "code"),
    [
        (AnswerReader(), "text"),
        (AnswerReader(last=2), "text[-2:]"),
        (AnswerReader(padding="_"), 'text.strip("_")'),
        (AnswerReader(ones_first=True, leading_zeros=False), 'text[::-1].lstrip("0") or "0"'),
        (AnswerReader(separators=">="), 're.split("[>=]", text)[-1]'),
        (AnswerReader(dropped="a-z", ones_first=True), 're.sub("[a-z]", "", text)[::-1]'),
    ],
)
def test_code_says_no_more_than_the_reader_does(reader, code):
    assert reader.code("text") == code
    assert reader.imports == (("re",) if "re." in code else ())
