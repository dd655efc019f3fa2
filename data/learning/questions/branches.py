"""The ways that a function's code goes: which branches questions enter, and questions that enter further ones.

The code is watched instruction by instruction (`sys.settrace`), so that both ways of a condition within a line are known. A
question by which the code goes a new way is kept, and further questions are made of it, so that of conditions behind each
other each is met by itself.
"""

# Used by: operands.py, probes.py, data/learning. Changed freely.

import dis
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from longhand.data.learning.questions.constants import named
from longhand.data.learning.questions.words import Argument

MOST_STEPS = 200_000
"""Instructions of one call that are watched; a call of more of them is given up."""

MOST_COUNTED = 16
"""How often a call goes one way is told apart up to so many times."""

LONGEST_SHOWN = 80
"""Symbols of the source of a condition."""

Way = tuple[CodeType, int, bool]
"""A code, the place of a jump in it, and whether it jumps."""


class TooManySteps(BaseException):
    """A call does not end soon. It is no Exception, so that a function that catches exceptions does not go on."""


@dataclass(frozen=True)
class Jump:
    """An instruction behind which a code goes one way or another.

    Attributes:
        target: the instruction that follows if it jumps.
        name: of its kind of instruction.
        condition: the instruction that computes what it looks at.
        ways: whether it jumps, for each way that does not end in an error at once.
    """

    target: int
    name: str
    condition: dis.Instruction
    ways: tuple[bool, ...]

    def value(self, jumps: bool) -> str:
        """What the condition is if it jumps, or if it does not."""
        if self.name.endswith("NONE"):
            return "None" if jumps != self.name.endswith("NOT_NONE") else "another than None"
        return "true" if jumps == ("IF_TRUE" in self.name) else "false"


@dataclass(frozen=True)
class WatchPlan:
    """What is watched of a code.

    Attributes:
        jumps: by the place of their instruction.
        lines: the places of the instructions of each line, but for lines that raise an error.
    """

    jumps: Mapping[int, Jump]
    lines: Mapping[int, frozenset[int]]


def plan_of(code: CodeType) -> WatchPlan:
    """What is watched of a code."""
    instructions = list(dis.get_instructions(code))
    numbers = {instruction.offset: number for number, instruction in enumerate(instructions)}
    raising = {_line_of(instruction) for instruction in instructions if instruction.opname in _ERRORS}
    jumps: dict[int, Jump] = {}
    lines: dict[int, set[int]] = {}
    for number, instruction in enumerate(instructions):
        line, name = _line_of(instruction), instruction.opname
        if line is not None and line not in raising and name not in _NOTHING:
            lines.setdefault(line, set()).add(instruction.offset)
        is_loop = name == "FOR_ITER"
        if not is_loop and ("JUMP" not in name or "_IF_" not in name):
            continue
        # How often a loop runs is counted. It ends in one way, and that it does not begin is seen at its lines.
        followers = {} if is_loop else {True: numbers[instruction.argval], False: number + 1}
        ways = tuple(jumps_there for jumps_there, first in followers.items() if not _fails(instructions[first:]))
        if instructions[number - 1].opname == "MATCH_SEQUENCE" or instructions[max(0, number - 3)].opname == "GET_LEN":
            # A pattern of a tuple asks whether it is one.
            continue
        condition = next(before for before in instructions[number - 1 :: -1] if before.opname not in _BEFORE_JUMPS)
        jump = Jump(instruction.argval, name, condition, ways)
        jumps[instruction.offset] = jump
        # A jump over many instructions is told of at the place of its argument's first part, which stands before it.
        while instructions[number - 1].opname == "EXTENDED_ARG":
            number -= 1
            jumps[instructions[number].offset] = jump
    return WatchPlan(jumps, {line: frozenset(places) for line, places in lines.items()})


_ERRORS = ("RAISE_VARARGS", "RERAISE")
_NOTHING = ("RESUME", "RETURN_GENERATOR", "NOP", "PUSH_EXC_INFO", "COPY_FREE_VARS", "MAKE_CELL")
_BEFORE_JUMPS = ("EXTENDED_ARG", "TO_BOOL", "COPY", "NOT_TAKEN", "UNARY_NOT", "CACHE")


def _line_of(instruction: dis.Instruction) -> int | None:
    return instruction.positions.lineno if instruction.positions else None


def _fails(instructions: Sequence[dis.Instruction]) -> bool:
    """Whether instructions end in an error before they end otherwise."""
    for instruction in instructions:
        name = instruction.opname
        if name in _ERRORS:
            return True
        if "JUMP" in name or "RETURN" in name or name in ("FOR_ITER", "YIELD_VALUE"):
            return False
    return False


class Branches:
    """The ways that a function's code has gone.

    Args:
        function: takes texts or whole numbers.
        codes: of the function, and of those that it calls, which are watched.

    Attributes:
        steps: how many instructions were watched.
    """

    def __init__(self, function: Callable[..., object], codes: Iterable[CodeType]):
        self.function, self.steps = function, 0
        self._plans = {code: plan_of(code) for code in codes}
        self._ways: dict[Way, int] = {}
        self._places: dict[CodeType, set[int]] = {code: set() for code in self._plans}

    def is_new(self, arguments: Sequence[Argument | float | None]) -> bool:
        """Call the function: whether its code goes a way that it never went, or goes one more often than ever."""
        gone: Counter[Way] = Counter()
        self._watch(arguments, gone)
        more = {way: count for way, count in gone.items() if min(count, MOST_COUNTED) > self._ways.get(way, 0)}
        self._ways |= more
        return bool(more)

    def _watch(self, arguments: Sequence[Argument | float | None], gone: Counter[Way]) -> None:
        """Call the function, and count the ways of its code."""
        last_step = self.steps + MOST_STEPS

        def enter(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
            code = frame.f_code
            plan = self._plans.get(code)
            if plan is None:
                return None
            jumps, places = plan.jumps, self._places[code]
            jump, jumped_at = None, 0

            def step(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
                nonlocal jump, jumped_at
                if event != "opcode":
                    return step
                place = frame.f_lasti
                if jump is not None:
                    gone[code, jumped_at, place == jump.target] += 1
                places.add(place)
                jump, jumped_at = jumps.get(place), place
                self.steps += 1
                if self.steps > last_step:
                    raise TooManySteps
                return step

            # From Python 3.13 on, a frame asks for its instructions only if it has a function to tell them.
            frame.f_trace = step
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return step

        before = sys.gettrace()
        # Python 3.12 tells instructions only if a frame has asked for them before.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(enter)
        try:
            with suppress(Exception, SystemExit, TooManySteps):
                self.function(*arguments)
        finally:
            sys.settrace(before)

    @property
    def not_gone(self) -> tuple[str, ...]:
        """The ways that the code never went, in words. Of code that never ran, nothing is said."""
        found: dict[str, None] = {}
        for code, plan in self._plans.items():
            places = self._places[code]
            # A condition of a loop stands twice in its code: before the loop and at its end.
            possible, seen = dict[tuple[str, str], None](), set[tuple[str, str]]()
            for place, jump in plan.jumps.items() if places else ():
                source = _source(code, jump.condition)
                if place in places:
                    possible |= dict.fromkeys((source, jump.value(jumps_there)) for jumps_there in jump.ways)
                for jumps_there in (True, False):
                    if (code, place, jumps_there) in self._ways:
                        seen.add((source, jump.value(jumps_there)))
            conditions = [f"{source} is {value}" for source, value in possible if (source, value) not in seen]
            lines = [line for line, offsets in plan.lines.items() if places and not offsets & places]
            # A condition says enough of the lines behind it.
            found |= dict.fromkeys(conditions or (_line(code, line) for line in lines))
        return tuple(found)


def sentence_of(not_gone: Sequence[str]) -> str:
    """The ways that no question went, in words for a card; empty if there are none."""
    return f"no question was found for which, in its code, {named(not_gone, '; ')}" if not_gone else ""


def _source(code: CodeType, instruction: dis.Instruction) -> str:
    """The source of an instruction, a long one shortened; or its line, if there is no source."""
    position = instruction.positions
    if position is None or position.lineno is None:
        return f"a condition of {code.co_name}"
    lines = [line.encode() for line in linecache.getlines(code.co_filename)]
    if position.end_lineno is None or position.end_lineno > len(lines):
        return f"a condition in line {position.lineno}"
    held = lines[position.lineno - 1 : position.end_lineno]
    held[-1] = held[-1][: position.end_col_offset]
    held[0] = held[0][position.col_offset :]
    return _shown(b"".join(held).decode())


def _line(code: CodeType, line: int) -> str:
    text = linecache.getline(code.co_filename, line).strip()
    return f"line {line} is reached" + (f", {_shown(text)}" if text else "")


def _shown(source: str) -> str:
    text = " ".join(source.split())
    return f"`{text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '...'}`"
