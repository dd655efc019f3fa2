"""How an answer is read from what a language model wrote: strictly and leniently.

Strict: the output without spaces and blank lines around it, up to its first line break, is the answer and nothing else.

Lenient: the output holds the answer where a reader would look for it. Only the first line counts, since a model may go on
with problems of its own. If that line begins with a number, and no sign of arithmetic follows, this number is read
(`702, and 12+3=15`). Otherwise the line's last number is read (`653+49=702`). Commas between thousands are left out. A minus
and a decimal fraction belong to the number. An answer with other characters, such as a board, is read in the same way, with
words of the digits and the answer's own characters in the place of numbers.

Both leave out what stands before the last `</think>`, and from a `<think>` on that does not end.

This file imports the standard library alone: the task files of lm-evaluation-harness take a copy of it along.
"""

# Used by: other_models.py, hub_cards. Changed freely.

import re

NUMBER = r"(?<![0-9A-Za-z.])-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?![0-9A-Za-z])"


def is_exact(completion: str, answer: str) -> bool:
    """Whether the output is the answer by the strict reading."""
    return _written(completion).split("\n")[0].strip() == answer


def is_lenient_match(completion: str, answer: str) -> bool:
    """Whether the output holds the answer by the lenient reading."""
    text = _written(completion).split("\n")[0]
    word = NUMBER if answer.removeprefix("-").isdecimal() else rf"(?<![0-9A-Za-z])[0-9{re.escape(answer)}]+(?![0-9A-Za-z])"
    result = re.match(rf"[^0-9A-Za-z-]*({word})(?!\s*[-+*/=^])", text)
    words = [result[1]] if result else re.findall(word, text)
    return bool(words) and words[-1].replace(",", "") == answer


def _written(completion: str) -> str:
    """The output without what a model thought, and without space around it."""
    return completion.rpartition("</think>")[2].partition("<think>")[0].strip()


def process_results(doc: dict, results: list[str]) -> dict[str, float]:
    """Both scores of one problem, as lm-evaluation-harness asks for them.

    Args:
        doc: a row with the column `answer`.
        results: the output.
    """
    completion, answer = results[0], doc["answer"]
    return {"exact_match": float(is_exact(completion, answer)), "lenient_match": float(is_lenient_match(completion, answer))}
