"""Reports of a machine that was found: three statements that are kept apart."""

# Used by: data/learning, hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from longhand.data.learning.proof import Linear
from longhand.data.learning.questions.words import Words
from longhand.data.tasks.column_task import DOMAIN, OPERANDS, PROVED, ColumnTask

NETWORK = "a certificate proves that the network computes this machine at every length; without one, nothing is proved of it"
"""The statement about the network before there is a certificate."""

ONE_LENGTH = "texts of one length: others are refused"
"""What is said of operands that are texts, since padding would change them."""

UNSEEN = "no question was found for all branches and constants of its code"
"""What is said of a private function in place of these."""


@dataclass(frozen=True)
class Report:
    """The statements about a machine that was found.

    Attributes:
        source: the function, as text, or the name of the file of examples.
        found: the machine in words: states, direction, passes.
        checked: which words were compared with the function, or with the examples.
        proved: the sentence that is proved of the machine.
        legend: from each symbol of an answer that does not stand for itself to its meaning.
        calls: how often the function was called.
        seconds: how long it took.
        one_length: whether operands must have one length.
        linear: the linear function that the machine is proved to compute; None if it is none.
        assumed: what was assumed of the operands, with the argument that changes it; empty if nothing was.
        untried: what the code holds and no word can show; empty if there is nothing.
        unseen: what of the function no question showed; empty if nothing is known to be missing.
        domain: the regular expression of the texts that the function takes; empty if there is none.
        told: what a card tells of the function, see `MEANING` and `CODE`.
    """

    source: str
    found: str
    checked: str
    proved: str
    legend: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    seconds: float = 0.0
    one_length: bool = False
    linear: Linear | None = None
    assumed: str = ""
    untried: str = ""
    unseen: str = ""
    domain: str = ""
    told: dict[str, str] = field(default_factory=dict)

    def without_source(self) -> "Report":
        """The report without what shows the source of the function, or the texts that it takes."""
        return replace(self, untried="", unseen=UNSEEN if self.unseen else "", domain="")

    @property
    def facts(self) -> dict[str, str]:
        """The facts for recipes, cards and certificates: those that are the same whenever the machine is found again."""
        checked = "; ".join(filter(None, [self.checked, self.untried, self.unseen]))
        facts = {"source": self.source, "machine": self.found, "checked": checked, PROVED: self.proved}
        facts |= {"symbols": self.symbols} if self.legend else {}
        facts |= {DOMAIN: self.domain} if self.domain else {}
        facts |= self.told
        return facts | ({OPERANDS: ONE_LENGTH} if self.one_length else {})

    @property
    def symbols(self) -> str:
        """The legend in words; numbers that follow each other are told together."""
        runs: list[list[tuple[str, str]]] = []
        for symbol, value in self.legend.items():
            follows = runs and value.isdigit() and runs[-1][-1][1].isdigit() and int(value) == int(runs[-1][-1][1]) + 1
            if follows:
                runs[-1].append((symbol, value))
            else:
                runs.append([(symbol, value)])
        return ", ".join(
            f"{run[0][0]} is {run[0][1]}"
            if len(run) == 1
            else f"{''.join(symbol for symbol, _ in run)} are {run[0][1]} to {run[-1][1]}"
            for run in runs
        )

    @property
    def lines(self) -> list[str]:
        """The report as lines for a terminal."""
        called = f"{self.calls:,} calls, " if self.calls else ""
        lines = [
            self.source,
            f"  the machine            {self.found} ({called}{self.seconds:.1f} s)",
            f"  checked of the machine {'; '.join(filter(None, [self.checked, self.untried]))}",
            f"  proved of the machine  {self.proved}",
            f"  the network            {NETWORK}",
        ]
        if self.unseen:
            lines.insert(3, f"  not seen of it         {self.unseen}")
        if self.assumed:
            lines.insert(1, f"  assumed                {self.assumed}")
        if self.legend:
            lines.append(f"  symbols                {self.symbols}")
        if self.one_length:
            lines.append(f"  operands               {ONE_LENGTH}")
        return lines


class Learned(NamedTuple):
    """A task that was found, and the report on it."""

    task: ColumnTask
    report: Report


def found_in_words(states: int, words: Words, direction: str, flush: int, answer: str = "all") -> str:
    """The machine of one pass in words.

    Args:
        flush, answer: as of `ColumnTask`.
    """
    more = f", {count_of(flush, 'column')} more than the operands" if flush else ""
    one_symbol = "; the answer is one symbol" if answer == "last" else ""
    return f"{count_of(states, 'state')}, {order_of(words, direction)}{more}{one_symbol}"


def order_of(words: Words, direction: str) -> str:
    """Where reading begins, in words."""
    if words.are_numbers:
        return "from the ones" if direction == "ones_first" else "from the top"
    return "from the end" if direction == "ones_first" else "from the beginning"


def count_of(number: int, noun: str, ending: str = "s") -> str:
    """A number of things."""
    return f"{number:,} {noun}{ending if number != 1 else ''}"


def states_written(reason: str) -> str:
    """A sentence that says that the states are written, why, and at which cost."""
    return f"; the states are written in a pass of their own, {reason}, which costs one symbol more for each column"
