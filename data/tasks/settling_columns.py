"""Column tasks for an encoder that settles: `3f+a1=>>>`, where each `>` becomes a symbol of the answer."""

# Used by: registry.py. Changed freely.

from functools import lru_cache
from typing import ClassVar

import numpy as np

from longhand.data.collator import IGNORED
from longhand.data.families import ENCODER
from longhand.data.formatting import LabelledTokens, check_longest
from longhand.data.machines.covering import SEARCHED, CoveringCases, agree, hide_labels
from longhand.data.machines.sights import number_rows
from longhand.data.tasks.column_task import SETTLING, ColumnTask
from longhand.data.tasks.encoder_task import KNOWN_OR_NOT
from longhand.modeling.encoder_maps import COLUMNS
from longhand.modeling.settling import NO_STATE
from longhand.modeling.transducer import OWN_RELATIONS
from longhand.modeling.vocabulary import EQUALS, GREATER

_IDEAL = (
    "In an ideal pass a label becomes the right one if it is the same in every run of the transducer in which the token "
    "sees the same; else it is not known. If the label before is known, or there is none, the label is decided: the search "
    "found no two runs that differ there. A known label is right and stays, since what decided it stays. The first label "
    "that is not known becomes known, since the label before it is known or there is none."
)


class SettlingColumns(ColumnTask):
    """Base of the column tasks that an encoder learns; `settling_task` makes them.

    The label in column i is read at `>`. It sees itself, the token before it with its label, and the operands that a
    decoder's token of column i - 1 sees:

        input    3 f + a 1 = > > >
        label    . . . . . . 0 e 0      3f + a1 = e0, the ones first
    """

    family = ENCODER
    settling_map: ClassVar[str] = COLUMNS

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, of which the last one is for a label that is not known."""
        return self.transducer.labels

    @property
    def drawn_on_cards(self) -> "SettlingColumns":
        """The task whose example cards draw."""
        return self.for_evaluation

    @property
    def suggested_arguments(self):
        return {"max_length": self.trained_length}

    def check_settling(self) -> None:
        """Raise ValueError unless there is one pass, which reads the operands in their order."""
        passes = self.transducer.passes
        if len(passes) > 1 or passes[0].reads != tuple(range(self.operands)):
            raise ValueError(
                f"an encoder that settles makes one pass over all operands, but the task {self.name!r} has {len(passes)} "
                "passes, or reads them in another order: train a decoder"
            )

    def layout(self, lengths: np.ndarray) -> tuple[int, ...]:
        """Nothing but the digits decides how a problem is written."""
        return ()

    def write(self, digits: np.ndarray, generator: np.random.Generator | None = None) -> LabelledTokens:
        """Problems (count, operands, width), ones first, as tokens and labels."""
        self.check_settling()
        examples, (written,) = self.format(digits, np.full(digits.shape[:2], digits.shape[2])), self.solve(digits)
        query = int(examples.query_lengths[0]) - 1
        tokens = np.full((len(digits), query + written.shape[1]), GREATER, dtype=examples.tokens.dtype)
        labels = np.full(tokens.shape, IGNORED, dtype=np.int16)
        # An encoder reads no `$`.
        tokens[:, :query], labels[:, query:] = examples.tokens[:, 1 : query + 1], written
        return LabelledTokens(tokens, labels)

    def examples(self, generator, lengths, split):
        digits = self.draw(generator, lengths, split)
        check_longest(digits, lengths)
        return self.write(digits)

    def rewrite(self, generator, digits, lengths):
        return self.write(digits)

    def has_label(self, tokens: np.ndarray) -> np.ndarray:
        """Which tokens of a problem (tokens,) have labels."""
        return tokens == GREATER

    def answer_labels(self, tokens: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The labels (count, columns) as a decoder writes them, and a mask of those that are not `IGNORED`."""
        return labels, labels != IGNORED

    def prompt(self, question):
        prompt = super().prompt(question)
        width = (len(prompt) - self.operands) // self.operands
        return prompt + self.tokens[GREATER] * (width + self.transducer.passes[0].flush)

    def covering(self, window, layers):
        self.check_settling()
        return _covering(self)


@lru_cache(maxsize=4)
def _covering(task: SettlingColumns) -> CoveringCases:
    """Every case, from the neighbourhoods of a decoder, in which the label before is known; here it may not be known yet."""
    (sight,) = task.sights
    found = sight.find()
    number = np.full(len(task.tokens), NO_STATE)
    number[[task.tokens.index(symbol) for symbol in task.labels[:-1]]] = np.arange(len(task.labels) - 1)
    rows = np.flatnonzero(found.right != task.end_token)
    before, read, right = found.tokens[rows], found.keys[rows], number[found.right[rows]]
    # The label before is read at `>`; `=` has none.
    keys = np.column_stack([np.full(len(rows), GREATER), np.where(before == EQUALS, EQUALS, GREATER), read])
    labels = np.column_stack([right, number[before], np.full(read.shape, NO_STATE)])
    relations = [*range(OWN_RELATIONS), *(OWN_RELATIONS + relation for relation in sight.relations)]
    decided = agree(number_rows(keys), right)
    about = {"argument": f"{SEARCHED} {KNOWN_OR_NOT}", "ideal": _IDEAL, "task": task}
    return hide_labels(
        keys, labels, relations, decided, len(task.labels) - 1, graph=sight.graph, paths=found.paths[rows], **about
    )


@lru_cache(maxsize=64)
def settling_task(kind: type[ColumnTask]) -> type[SettlingColumns]:
    """The task of an encoder that settles for a column task, with its fields."""
    name = SETTLING + kind.name
    about = {"__doc__": f"The column task {kind.name} for an encoder that settles.", "__module__": kind.__module__}
    return type(name, (SettlingColumns, kind), {"name": name, **about})
