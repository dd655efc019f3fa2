"""A task that was found as a file of a user's own, to read and to change."""

# Used by: train.py. Changed freely.

from collections.abc import Sequence
from textwrap import indent

from longhand.data.learning.report import Learned
from longhand.data.tasks.column_task import ColumnTask
from longhand.modeling.transducer import Pass

HEADER = '''"""{source}

{about}
"""

from longhand.data import {names}


'''

PLACE = '''def place(symbols):
    """The column of a table in which these symbols stand."""
    found = 0
    for symbol, size in zip(symbols, {sizes}):
        found = found * size + symbol
    return found


'''


def plugin_source(learned: Learned) -> str:
    """The Python source of a plugin that registers the task.

    A linear function is written as the sum that each state, a carry, continues. Other machines are tables: one text a state,
    with a symbol for each column.
    """
    task, report = learned
    several = len(task.passes) > 1
    about = "\n".join(f"{name} of the machine: {text}." for name, text in (("Found", report.found), *_known(report)))
    names = "ColumnPass, ColumnTask, register_task" if several else "ColumnTask, register_task"
    header = HEADER.format(source=f"{report.source}, as a column task.", about=about, names=names)
    fields = [f"name = {task.name!r}", f"operands = {task.operands}", f"alphabet = {task.alphabet!r}"]
    fields += [f"sign = {task.sign!r}"] if task.sign else []
    fields += [f"answer = {task.answer!r}"] if task.answer != "all" else []
    passes = task.transducer.passes
    if several:
        functions = "".join(_step_function(task, place) for place in range(len(passes)))
        fields.append("passes = (")
        fields += [
            f"    ColumnPass(step_{place + 1}, {_pass_arguments(table_pass)})," for place, table_pass in enumerate(passes)
        ]
        fields.append(")")
        method = ""
    else:
        (table_pass,) = passes
        fields += [f"writes = {table_pass.writes!r}"] if table_pass.writes != task.alphabet else []
        fields += [f"direction = {table_pass.direction!r}", f"flush = {table_pass.flush}"]
        functions, method = _one_step(learned, fields)
    body = indent("\n".join(fields), "    ")
    return f"{header}{functions}@register_task\nclass {_class_name(task.name)}(ColumnTask):\n{body}\n{method}"


def _known(report) -> list[tuple[str, str]]:
    known = [("Checked", report.checked), ("Proved", report.proved)]
    return [*known, ("Symbols", report.symbols)] if report.legend else known


def _one_step(learned: Learned, fields: list[str]) -> tuple[str, str]:
    """The tables before the class and the method `step`; the start of a linear function is added to the fields."""
    task, report = learned
    linear = report.linear
    if linear is None:
        method = """
    def step(self, state, symbols):
        column = place(symbols)
        return self.writes.index(WRITE[state][column]), NEXT[state][column]
"""
        (table_pass,) = task.transducer.passes
        if table_pass.writes == task.alphabet:
            method = method.replace("self.writes", "self.alphabet")
        sizes = task.transducer.sizes(0)
        return PLACE.format(sizes=sizes) + _tables(table_pass, ""), method
    if linear.constant:
        fields.append(f"start = {linear.constant}")
    names = [f"digit_{number + 1}" for number in range(task.operands)]
    terms = [name if factor == 1 else f"{factor} * {name}" for factor, name in zip(linear.coefficients, names, strict=True)]
    method = f"""
    def step(self, carry, digits):
        {", ".join(names)}{"," if len(names) == 1 else ""} = digits
        total = {" + ".join(terms)} + carry
        return total % {len(task.alphabet)}, total // {len(task.alphabet)}
"""
    return "", method


def _step_function(task: ColumnTask, place: int) -> str:
    """The tables and the step of one pass of several."""
    number, table_pass = place + 1, task.transducer.passes[place]
    inner = PLACE.format(sizes=task.transducer.sizes(place)).replace("def place", f"def place_{number}")
    return f"""{inner}{_tables(table_pass, f"_{number}")}def step_{number}(state, symbols):
    column = place_{number}(symbols)
    return WRITES_{number}.index(WRITE_{number}[state][column]), NEXT_{number}[state][column]


"""


def _tables(table_pass: Pass, ending: str) -> str:
    """The table of a pass: a text for each state, and its next states."""
    rows = ["".join(table_pass.writes[symbol] for symbol in row) for row in table_pass.write]
    write = _listed([repr(row) for row in rows])
    following = _listed([repr(list(row)) for row in table_pass.next])
    symbols = f"WRITES{ending} = {table_pass.writes!r}\n" if ending else ""
    return f"{symbols}WRITE{ending} = {write}\nNEXT{ending} = {following}\n\n\n"


def _listed(rows: Sequence[str]) -> str:
    return "[\n" + "".join(f"    {row},\n" for row in rows) + "]"


def _pass_arguments(table_pass: Pass) -> str:
    reads = tuple(table_pass.reads)
    return f"writes={table_pass.writes!r}, direction={table_pass.direction!r}, flush={table_pass.flush}, reads={reads}"


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) or "Learned"
