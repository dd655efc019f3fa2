"""Column tasks: a transducer as a table, and the tokens, position ids, relations and prompts that follow from its shape.

The operands of a column task are words of one width over an alphabet, aligned in columns. A pass is a sequential transducer
that reads the columns one by one. In each column the pass writes one symbol, and after the last column `flush` more. A task
makes one pass or several. A later pass may read what earlier passes wrote. A configuration holds the table
(`CoupledGPTConfig.transducer`), so that a checkpoint needs no other file.
"""

# Used by: configuration_coupled_gpt.py, configuration_pairwise_bert.py, inputs.py, settling.py, data, data/learning,
# data/learning/questions, data/machines, data/proofs, data/tasks. Bound by: the digest of the code that travels with a
# checkpoint: run .ci/code.

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from .coupling import CouplingRule, Plan
from .query_forms import row_markers
from .relations import Relation
from .vocabulary import GREATER, TOKENS

DIRECTIONS = ("ones_first", "top_first")

OWN_RELATIONS = 2
"""A label's relations to itself (0) and to the label before it (1); those of the window come after them."""

MOST_SYMBOLS = 256
"""Most symbols of an alphabet, and most symbols that a pass writes."""

RESERVED = "$=>"
"""Characters that no alphabet holds: they begin a text, a response and a further pass."""


@dataclass(frozen=True)
class Pass:
    """One pass over the columns.

    Attributes:
        writes: the symbols that may be written, one character each.
        direction: `"ones_first"` or `"top_first"`, the order in which columns are read and written.
        flush: columns beyond the operands, in which every operand reads symbol 0.
        start: the first state.
        window: first and last column, counted from a token's own in the direction of the pass, whose symbols a token sees.
        symmetric: whether operands have one id at the second level, so that a token cannot tell them apart.
        write: (states, inputs) places in `writes`; the operand, or earlier pass, that is read first is most significant.
        next: (states, inputs) states.
        reads: what is read: 0.. are the operands, and after them come the earlier passes.
    """

    writes: str
    direction: str
    flush: int
    start: int
    window: tuple[int, int]
    symmetric: bool
    write: Sequence[Sequence[int]]
    next: Sequence[Sequence[int]]
    reads: tuple[int, ...]

    def sees_operands_alike(self, operands: int) -> bool:
        """Whether the pass reads all of so many operands or none, so that they may share their ids."""
        return len(set(range(operands)) & set(self.reads)) in (0, operands)


@dataclass(frozen=True)
class Transducer:
    """The table of a column task.

    Attributes:
        alphabet: the symbols of the operands, one character each.
        operands: how many operands a problem has.
        sign: stands between operands; empty if there is one.
        answer: `"all"` if what the last pass writes is the answer, `"last"` if its last symbol is, `"joined"` if the answer
            is what all passes write, one after the other, without blanks `_`.
        passes: in the order in which they are written.
    """

    alphabet: str
    operands: int
    sign: str
    answer: str
    passes: tuple[Pass, ...]

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary: `vocabulary.TOKENS`, then the other characters in the order of alphabet, sign and `writes`."""
        characters = dict.fromkeys(self.alphabet + self.sign + "".join(table_pass.writes for table_pass in self.passes))
        return (*TOKENS, *(character for character in characters if character not in TOKENS))

    @cached_property
    def rows(self) -> tuple[list[int], list[int]]:
        """Ids at the second level: of each operand, and of each pass. No two pairs of a pass and what it reads differ alike.

        Operands have the ids 1 to n, or all 1 if no pass can tell them apart. Pass q, from 0, has (largest + 1) * 2**q.
        """
        shared = all(table_pass.symmetric for table_pass in self.passes)
        operands = [1 if shared else place + 1 for place in range(self.operands)]
        return operands, [(operands[-1] + 1) * 2**place for place in range(len(self.passes))]

    def relations_of(self, place: int) -> list[tuple[Relation, int, int]]:
        """The relations that a token of one pass sees, each with the column, counted from its own, and with what is there.

        What is there is numbered as in `Pass.reads`. Operands of one row share a relation.
        """
        table_pass, (operands, passes) = self.passes[place], self.rows
        sign = 1 if table_pass.direction == "ones_first" else -1
        seen = [
            (column, source)
            for column in range(table_pass.window[0], table_pass.window[1] + 1)
            for source in table_pass.reads
        ]
        rows = [*operands, *passes]
        return [((sign * column, passes[place] - rows[source]), column, source) for column, source in seen]

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """The window of a model: for each pass, column by column, what a token sees."""
        every = [relation for place in range(len(self.passes)) for relation, _, _ in self.relations_of(place)]
        return tuple(dict.fromkeys(every))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes of an encoder that settles: the symbols that are written, then `>` for a label that is not known."""
        return (*self.passes[0].writes, TOKENS[GREATER])

    @cached_property
    def label_slots(self) -> list[tuple[int, int, int]]:
        """What a label sees besides itself and the label before it: what a decoder's token of the column before it sees.

        Each is a relation, a column and an operand. Columns count from the one before the label's own, in the direction of
        the pass. Operands that cannot be told apart share a relation.
        """
        place_of = {relation: OWN_RELATIONS + place for place, relation in enumerate(self.relations)}
        return [(place_of[relation], column, source) for relation, column, source in self.relations_of(0)]

    @property
    def label_relations(self) -> int:
        """How many relations a label has."""
        return OWN_RELATIONS + len(self.relations)

    @cached_property
    def states_beyond(self) -> list[int]:
        """The states before a window of an encoder's token that lies beyond the operands as a whole."""
        (table_pass,) = self.passes
        now = {state for row in table_pass.next for state in row}
        found = set(now)
        for _ in range(table_pass.flush - 2 + table_pass.window[0]):
            now = {table_pass.next[state][0] for state in now}
            found |= now
        return sorted(found)

    def sizes(self, place: int) -> list[int]:
        """How many symbols there are in each word that a pass reads."""
        words = [self.alphabet] * self.operands + [table_pass.writes for table_pass in self.passes]
        return [len(words[source]) for source in self.passes[place].reads]

    def check_tables(self) -> None:
        """Raise ValueError unless the table of every pass fits what it reads and writes."""
        for place, table_pass in enumerate(self.passes):
            shape = (len(table_pass.write), prod(self.sizes(place)))
            for table, largest in ((table_pass.write, len(table_pass.writes)), (table_pass.next, shape[0])):
                legal = len(table) == shape[0] and all(len(row) == shape[1] for row in table)
                if not legal or min(map(min, table)) < 0 or max(map(max, table)) >= largest:
                    raise ValueError(
                        f"pass {place + 1} of the transducer must have tables {shape} of numbers below {largest}"
                    )

    @property
    def _room(self) -> tuple[int, int]:
        """Ids at the first level above the top column of the operands and below the ones."""
        flush = {
            name: [table_pass.flush for table_pass in self.passes if table_pass.direction == name] for name in DIRECTIONS
        }
        above = max([*flush["ones_first"], min(1, len(flush["top_first"]))])
        return above, max(1, *flush["top_first"], 1)

    @cached_property
    def rule(self) -> CouplingRule:
        """The coupling rule `columns` for tables of this shape."""
        return CouplingRule(name="columns", plan=self._plan, levels=2, capacity=self._capacity, relations=self.relations)

    def _capacity(self, ids: int) -> str:
        above, below = self._room
        return f"operands of {ids - above - below} symbols"

    def _plan(self, input_ids: Tensor, columns: int) -> Plan:
        """Plan as `coupling_rules.columns` draws.

        Raises:
            ValueError: a row is not of the form `$A=` or `$A+B=`, with operands of one width over the alphabet.
        """
        begin, equals = self.markers(input_ids)
        width = (equals - begin - self.operands) // self.operands
        column = torch.arange(columns, device=input_ids.device)
        above, _ = self._room
        place = (column - begin - 1) % (width + 1)
        operand = (column - begin - 1).div(width + 1, rounding_mode="floor").clamp(0, self.operands - 1)
        in_query = (column > begin) & (column < equals)
        # Columns have ids from the top down; a sign stands below the ones, and in no row.
        operands, passes = self.rows
        by_column = torch.where(in_query, above + 1 + place, 0)
        by_row = torch.where(in_query & (place < width), torch.tensor(operands, device=column.device)[operand], 0)
        first = equals
        for table_pass, row in zip(self.passes, passes, strict=True):
            length = width + table_pass.flush + 1
            step = column - first  # 0 is the token that begins the pass
            inside = (step >= 0) & (step < length)
            ids = above + width + 1 - step if table_pass.direction == "ones_first" else above + step
            by_column, by_row = torch.where(inside, ids, by_column), torch.where(inside, row, by_row)
            first = first + length
        return Plan(torch.stack([by_column, by_row], dim=1), (first - equals).max())

    def markers(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns of `$` and of `=`, (batch or 1, 1) each."""
        symbols = torch.tensor([self.tokens.index(symbol) for symbol in self.alphabet], device=input_ids.device)
        separator = self.tokens.index(self.sign) if self.sign else None
        rows = (self.operands, self.operands)
        # As a product of all pairs, which ONNX has too; `torch.isin` searches.
        is_symbol = (input_ids.unsqueeze(-1) == symbols).any(-1)
        found = row_markers(input_ids, self.form, is_symbol, separator, rows, self.tokens)
        return found[:, :1], found[:, 2:]

    @property
    def form(self) -> str:
        """The form of a prompt, in words."""
        words = f"one word over {self.alphabet!r}" if self.operands == 1 else f"words of one width over {self.alphabet!r}"
        return f"'${self.sign.join('ABCDEFGHIJKLMNOPQRSTUVWXYZ'[place % 26] for place in range(self.operands))}=', {words}"

    # A transducer also says which prompts are legal, see `inputs.PromptFormat`.

    @property
    def response(self) -> str:
        """Regular expression of the beginnings of a response."""
        rows = [f"[{re.escape(table_pass.writes)}]*" for table_pass in self.passes]
        return rows[0] + "".join(f"(?:>{row}" for row in rows[1:]) + ")?" * (len(rows) - 1)

    @property
    def shown(self) -> str:
        """A legal prompt, as a message shows it."""
        word = (self.alphabet[1:3] + self.alphabet)[:2]
        return repr(self.sign.join([word] * self.operands) + "=")

    def fault(self, text: str) -> str | None:
        """Return what is wrong with `$`, a prompt and the beginning of a response or nothing; None if it is legal."""
        if not text.startswith("$"):
            return "it does not begin with '$'"
        prompt, equals, response = text[1:].partition("=")
        words = prompt.split(self.sign) if self.sign else [prompt]
        legal = equals and len(words) == self.operands and all(words) and set().union(*words) <= set(self.alphabet)
        if not legal:
            return f"it is not of the form {self.form}"
        if len(widths := sorted(set(map(len, words)), reverse=True)) > 1:
            return f"its parts must have one width, got {' and '.join(map(str, widths))}"
        if response and not re.fullmatch(self.response, response):
            return f"{response!r} after the first '=' is not the beginning of a response"
        return None


def read_transducer(table: Mapping[str, Any]) -> Transducer:
    """Return the transducer that a configuration holds, see `CoupledGPTConfig`.

    Raises:
        ValueError: a field is missing or unknown, or its value is not legal.
    """
    try:
        given = dict(table)
        passes = given.pop("passes")
        operands, sign = given.get("operands", 1), given.get("sign", "")
        read = []
        for place, stated in enumerate(passes):
            values = {"reads": range(operands), "flush": 0, "start": 0, **stated}
            values |= {"window": tuple(values["window"]), "reads": tuple(values["reads"])}
            read.append(Pass(**values))
            _check_pass(read[-1], place, operands)
        transducer = Transducer(**{"operands": 1, "answer": "all", **given, "sign": sign}, passes=tuple(read))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"transducer must hold the fields of modeling/transducer.py: {error}") from error
    check_characters_of(transducer)
    return transducer


def check_characters_of(transducer: Transducer) -> None:
    """Raise ValueError for symbols that stand twice, are reserved or are no single characters."""
    words = {"alphabet": transducer.alphabet} | {
        f"writes of pass {k + 1}": p.writes for k, p in enumerate(transducer.passes)
    }
    for name, symbols in words.items():
        if not 1 <= len(symbols) <= MOST_SYMBOLS or len(set(symbols)) < len(symbols):
            raise ValueError(f"{name} must be 1 to {MOST_SYMBOLS} different characters, got {symbols!r}")
        for symbol in symbols:
            if symbol in RESERVED or symbol == transducer.sign or symbol.isspace() or not symbol.isprintable():
                raise ValueError(f"{name} has the character {symbol!r}, which is reserved: choose another")
    if transducer.operands > 1 and (len(transducer.sign) != 1 or transducer.sign in RESERVED):
        raise ValueError(f"sign must be one character between operands and none of {RESERVED!r}, got {transducer.sign!r}")
    if transducer.answer not in ("all", "last", "joined"):
        raise ValueError(f"answer must be 'all', 'last' or 'joined', got {transducer.answer!r}")


def _check_pass(table_pass: Pass, place: int, operands: int) -> None:
    """Raise ValueError unless what a pass reads exists and its numbers are legal, see `Transducer.check_tables`."""
    name = f"transducer: pass {place + 1}"
    if table_pass.direction not in DIRECTIONS:
        raise ValueError(f"{name} must have a direction of {' or '.join(DIRECTIONS)}, got {table_pass.direction!r}")
    if not table_pass.reads or min(table_pass.reads) < 0 or max(table_pass.reads) >= operands + place:
        raise ValueError(f"{name} must read operands or earlier passes, 0 to {operands + place - 1}, got {table_pass.reads}")
    if len(set(table_pass.reads)) < len(table_pass.reads) or (
        table_pass.symmetric and not table_pass.sees_operands_alike(operands)
    ):
        raise ValueError(
            f"{name} must read a word once, and all operands or none if it is symmetric, "
            f"got symmetric {table_pass.symmetric} and reads {table_pass.reads}"
        )
    if (
        table_pass.flush < 0
        or not 0 <= table_pass.start < len(table_pass.write)
        or len(table_pass.window) != 2
        or table_pass.window[0] > table_pass.window[1]
    ):
        raise ValueError(
            f"{name} has flush {table_pass.flush}, start {table_pass.start} and window {table_pass.window}, "
            "which are not legal"
        )


def table_of(transducer: Transducer | None) -> dict[str, object] | None:
    """Return what `read_transducer` reads, as JSON has it; None for None."""
    if transducer is None:
        return None
    values = {name: getattr(transducer, name) for name in ("alphabet", "operands", "sign", "answer")}
    passes = []
    for table_pass in transducer.passes:
        fields_of_pass = {**vars(table_pass), "window": list(table_pass.window), "reads": list(table_pass.reads)}
        if fields_of_pass["reads"] == list(range(transducer.operands)):
            del fields_of_pass["reads"]
        passes.append(fields_of_pass)
    return {**values, "passes": passes}
