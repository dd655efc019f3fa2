import itertools

import numpy as np
import pytest

from longhand.data import SPLITS, Copy, Parity, Reverse, make_generator
from longhand.modeling.vocabulary import decode

ANSWERS = {
    Copy(): lambda text: text,
    Reverse(): lambda text: text[::-1],
    Parity(): lambda text: "".join(str(text[: end + 1].count("1") % 2) for end in range(len(text))),
    Parity(scratchpad=False): lambda text: str(text.count("1") % 2),
}
every_task = pytest.mark.parametrize("task", ANSWERS, ids=lambda task: f"{task.name}-{getattr(task, 'scratchpad', '')}")


@pytest.mark.parametrize(("task", "question", "text"), [
    (Copy(), "1809", "$1809=1809$"),
    (Reverse(), "5962", "$5962=2695$"),
    (Parity(), "1011", "$1011=1101$"),
    (Parity(scratchpad=False), "1011", "$1011=1$"),
    (Copy(separate_eos=True), "0", "$0=0<eos>"),
])  # fmt: skip
def test_text_of_a_string(task, question, text):
    digits = np.array([[[int(symbol) for symbol in question]]], dtype=np.uint8)
    assert decode(task.format(digits, np.array([[len(question)]])).tokens[0]) == text
    assert f"${task.prompt(question)}" == text[: text.index("=") + 1]


@every_task
def test_all_strings_are_equally_likely(task):
    drawn = task.draw_operands(make_generator(0), np.full((80_000, 1), 2))[:, 0]
    counts = np.bincount(drawn @ [task.symbols, 1], minlength=task.symbols**2)
    share = 80_000 / task.symbols**2
    assert len(counts) == task.symbols**2 and np.abs(counts - share).max() < 5 * share**0.5


@every_task
def test_short_strings_belong_to_one_split(task):
    lengths = np.full((200, 1), 9)
    drawn = {split: {bytes(row) for row in task.draw(make_generator(0), lengths, split)[:, 0]} for split in SPLITS}
    for first, second in itertools.combinations(SPLITS, 2):
        assert not drawn[first] & drawn[second]
    # Bits are few: far longer strings of them are kept apart too.
    long = task.draw_operands(make_generator(1), np.full((50, 1), 40))
    assert (task.split_of(long, np.full((50, 1), 40)) >= 0).all() == (task.name == "parity")


def test_the_answer_of_a_scratchpad_is_its_last_parity():
    assert Parity().answer_length((9,)) == 2
    assert Parity(scratchpad=False).answer_length((9,)) is None and Copy().answer_length((9,)) is None
