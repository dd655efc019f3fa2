"""What a function takes: numbers or texts, over which symbols. What is not said is tried, and what is assumed is told."""

# Used by: mutants.py, data/learning. Changed freely.

import inspect
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from reprlib import repr as shorten

from longhand.data.learning.questions.branches import Branches
from longhand.data.learning.questions.constants import Constants, constants_of
from longhand.data.learning.questions.drawing import Drawing
from longhand.data.learning.questions.functions import SECONDS, Refused
from longhand.data.learning.questions.meetings import with_what_operands_meet
from longhand.data.learning.questions.probes import ProbeSearch, related_numbers
from longhand.data.learning.questions.readings import is_written
from longhand.data.learning.questions.strewn import Strewn, strewn_of
from longhand.data.learning.questions.words import DIGITS, LETTERS, MOST_LETTERS, Word, Words, number_as_text
from longhand.data.tasks.patterns import PRINTABLE, symbols_of_pattern

OUTSIDE = "outside"
"""What is answered to a text that is not of the domain, if the function raises for it."""

REPEATED = (1, 2, 3, 5, 8, 13, 16)
"""Numbers of symbols in the texts by which is tried whether a function takes a symbol."""


@dataclass(frozen=True)
class WithinDomain:
    """A function of texts of a domain: to others it answers `OUTSIDE` where it raises."""

    function: Callable[..., object]
    pattern: re.Pattern[str]

    def __call__(self, *texts: str) -> object:
        """The answer of the function.

        Raises:
            Exception: the function raises for texts of the domain.
        """
        try:
            return self.function(*texts)
        except (Exception, SystemExit):
            if all(map(self.pattern.fullmatch, texts)):
                raise
            return OUTSIDE


@dataclass(frozen=True)
class Operands:
    """What a function takes.

    Attributes:
        function: the function, which answers to all words.
        words: how its arguments are words.
        assumed: what was assumed of them, with the argument that changes it.
        branches: the ways that the function's code has gone.
    """

    function: Callable[..., object]
    words: Words
    assumed: str
    branches: Branches


def operands_of(
    function: Callable[..., object], base: int, alphabet: str | None, domain: str | None, seconds: float = SECONDS
) -> Operands:
    """What a function takes.

    Args:
        domain: a regular expression of the texts that the function takes.
        seconds: of processor time in which the function has to be learned.

    Raises:
        Refused: base, alphabet or domain are not legal, or there are too many different columns.
    """
    if not 2 <= base <= len(DIGITS):
        raise Refused(f"base must be 2 to {len(DIGITS)}, got {base}")
    operands = count_operands(function)
    check_annotations(function, operands)
    constants, kept = constants_of(function), _defaults(function)
    reason = ""
    if domain is not None:
        pattern, symbols = read_domain(domain)
        function, alphabet = WithinDomain(function, pattern), alphabet or symbols
        constants = replace(constants, texts=(*constants.texts, domain))
    are_texts = alphabet is not None
    if not are_texts:
        are_texts, reason = takes_texts(function, operands, constants, seconds)
    if alphabet is None:
        alphabet, more = accepted_symbols(function, operands, constants) if are_texts else (DIGITS[:base], "")
        reason = "; ".join(filter(None, [reason, more]))
    check_alphabet(alphabet)
    words = Words(alphabet, operands, not are_texts)
    if words.count > MOST_LETTERS:
        raise Refused(
            f"{operands} operands over {words.base} symbols have {words.count:,} different columns, and {MOST_LETTERS:,} "
            "are legal: take a smaller base or alphabet"
        )
    held = replace(words, fragments=strewn_of(constants, words).drawn)
    strewn = strewn_of(with_what_operands_meet(constants, function, held, seconds), words)
    words = replace(words, fragments=strewn.drawn, untried=strewn.untried)
    branches = Branches(function, constants.codes)
    words = replace(words, single_out=partial(single_out, strewn, words, branches))
    return Operands(function, words, "; ".join([_assumed(words, reason), *kept]), branches)


def single_out(strewn: Strewn, words: Words, branches: Branches) -> list[Word]:
    """The words that a function may turn on; the same ones whenever they are asked for."""
    drawing = Drawing(strewn, words, random.Random(0))
    found = drawing.words_with_constants()
    found += [
        words.columns([number_as_text(number, words.alphabet) for number in row])
        for row in related_numbers(strewn.values, words, random.Random(0))
    ]
    search = ProbeSearch(branches, drawing, [words.texts(word) for word in found])
    return list(dict.fromkeys([*found, *map(words.columns, search.questions())]))


def _defaults(function: Callable[..., object]) -> list[str]:
    """What is said of the parameters with a default value, which are no operands."""
    parameters = inspect.signature(function).parameters.values()
    kept = [parameter for parameter in parameters if parameter.default is not parameter.empty]
    return [f"{parameter.name} keeps its default, {shorten(parameter.default)}" for parameter in kept]


def _assumed(words: Words, reason: str) -> str:
    """What is assumed of operands, and what changes it, in words."""
    several = "operands are" if words.operands > 1 else "the operand is"
    because = f", since {reason}" if reason else ""
    if words.are_numbers:
        kind = "numbers" if words.operands > 1 else "a number"
        return f"{several} {kind} in base {words.base}{because} (--base takes another, --alphabet or --domain takes texts)"
    kind = "texts" if words.operands > 1 else "a text"
    return f"{several} {kind} over {words.alphabet!r}{because} (--alphabet or --domain takes others)"


def check_alphabet(alphabet: str) -> None:
    """Raise `Refused` unless an alphabet is legal."""
    is_expression = re.match(r"\[.*\w-\w.*\]", alphabet)
    if not alphabet or is_expression or len(set(alphabet)) < len(alphabet):
        texts = "a regular expression of texts" + (f", such as {alphabet + '+'!r}," if is_expression else "")
        raise Refused(f"--alphabet must be one symbol or more, each once, got {alphabet!r}: {texts} is for --domain")
    if illegal := [symbol for symbol in alphabet if not is_written(symbol)]:
        raise Refused(f"the alphabet {alphabet!r} has the reserved symbol {illegal[0]!r}: let another stand for it")


def count_operands(function: Callable[..., object]) -> int:
    """How many arguments a function takes.

    Raises:
        Refused: the number is not fixed, or none.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise Refused(f"the arguments of {function!r} are not known: wrap it, such as lambda a, b: f(a, b)") from error
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not needed or any(parameter.kind not in plain for parameter in needed):
        raise Refused(f"a function must take one operand or more by position, got {inspect.signature(function)}")
    return len(needed)


def _annotations(function: Callable[..., object]) -> dict[str, object]:
    """The annotations of a function's parameters by name; those that are written as texts are looked up."""
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, SyntaxError, TypeError, AttributeError):
        parameters = inspect.signature(function).parameters
    annotations = {name: parameter.annotation for name, parameter in parameters.items()}
    return {name: note for name, note in annotations.items() if note is not inspect.Parameter.empty}


def check_annotations(function: Callable[..., object], operands: int) -> None:
    """Raise `Refused` if the annotation of an operand is a class that neither whole numbers nor texts belong to."""
    notes = _annotations(function)
    for name in [*inspect.signature(function).parameters][:operands]:
        kind = notes.get(name)
        # Unions, list[int] and protocols are of other types, and say nothing here.
        if isinstance(kind, type) and type(kind) is type and not any(issubclass(legal, kind) for legal in (int, str)):
            raise Refused(f"operands are whole numbers, int, or texts, str, and the function takes {name}: {kind.__name__}")


def takes_texts(function: Callable[..., object], operands: int, constants: Constants, seconds: float) -> tuple[bool, str]:
    """Whether a function takes texts and no numbers, and the reason: its annotations, what fails, or what its code holds.

    Args:
        seconds: of processor time in which the function has to be learned.

    Raises:
        Refused: its annotations say both.
    """
    notes = [_annotations(function).get(name) for name in [*inspect.signature(function).parameters][:operands]]
    kinds = {"text" if note is str else "number" for note in notes if note in (str, int)}
    if len(kinds) > 1:
        raise Refused("the annotations say that some operands are texts and others numbers: let all be of one kind")
    if kinds:
        return kinds == {"text"}, "the annotations say so"
    takes_numbers = any(_error_of(function, [number] * operands) in ("", "other") for number in (12, 0, 12345678))
    texts_fail = all(_error_of(function, [text] * operands) == "kind" for text in ("ab", "12"))
    if not takes_numbers and not texts_fail:
        return True, "the function fails for numbers"
    if takes_numbers and not texts_fail and constants.texts and not constants.numbers:
        # A function such as s in ("yes", "no") fails for neither. Another one computes a number from a text.
        held = with_what_operands_meet(constants, function, Words(DIGITS[:10], operands, True), seconds)
        holds_numbers = bool(held.numbers) or any(symbol.isdecimal() for text in held.texts for symbol in text)
        return not holds_numbers, "" if holds_numbers else "its code holds texts and no numbers"
    return False, ""


def _error_of(function: Callable[..., object], arguments: Sequence[object]) -> str:
    """How a function fails: "kind" if it does not take such arguments, "other" for other reasons; empty if it does not."""
    try:
        function(*arguments)
    except (TypeError, AttributeError):
        return "kind"
    except (Exception, SystemExit):
        return "other"
    return ""


def accepted_symbols(function: Callable[..., object], operands: int, constants: Constants) -> tuple[str, str]:
    """The symbols of the texts that a function takes, and why these, if not all letters are taken.

    Raises:
        Refused: the function raises for all texts that are tried.
    """

    def is_taken(symbol: str) -> bool:
        return any(not _error_of(function, [symbol * count] * operands) for count in REPEATED)

    refused = next((symbol for symbol in LETTERS if not is_taken(symbol)), None)
    held = {symbol for text in constants.texts for symbol in text if is_written(symbol)}
    if refused is None:
        if not held or held & set(LETTERS):
            return LETTERS, ""
        more = "".join(sorted(held))
        # Capitals may be compared with small letters too.
        alphabet = LETTERS + more if any(symbol.isalpha() for symbol in held) else more
        return alphabet, f"its code holds texts over {more!r}"
    taken = "".join(symbol for symbol in PRINTABLE if is_written(symbol) and is_taken(symbol))
    if not taken:
        raise Refused(
            "the function raises for all texts of one symbol that were tried: say what it takes by --alphabet or --domain"
        )
    return taken, f"the function raises for {refused!r}"


def read_domain(domain: str) -> tuple[re.Pattern[str], str]:
    """A regular expression of texts, and the symbols that these have.

    Raises:
        Refused: it is none, or its texts have no symbols or reserved ones.
    """
    try:
        pattern = re.compile(domain)
    except re.error as error:
        raise Refused(f"--domain {domain!r} is no regular expression: {error}") from error
    symbols = symbols_of_pattern(domain)
    if not symbols:
        raise Refused(f"--domain {domain!r} has no symbols")
    if reserved := [symbol for symbol in symbols if not is_written(symbol)]:
        raise Refused(f"--domain {domain!r} has the reserved symbol {reserved[0]!r}: let another stand for it")
    return pattern, symbols
