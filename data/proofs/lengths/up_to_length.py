"""Proofs of one length after the other, for models with one layer whose tokens see all tokens before them.

For each length there is one of three verdicts. *Proved*: every problem of this length is answered rightly, rounding
included. *Refuted*: a problem is not, which the model was asked by greedy decoding. *Open*: neither was found.

A token of the response has the symbols of few columns to go by. Each choice of them is a case, and all other tokens are far:
`attention_error.py` bounds what they do. A shortest path over columns, with the transducer's state, finds the worst far
symbols that a legal problem has. Where these, and the bound of what is not linear, eat a lead, `far_boxes.py` looks at the
case again. hub_cards/PROOF.md has the theorem.
"""

# Used by: eval.py, hub_cards/checkpoints, hub_cards/evaluation, hub_cards/research/gpu. Bound by: verdicts of single
# lengths, by `BOUND` in data/proofs/lengths/up_to_length.py.

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from longhand.data.families import DECODER
from longhand.data.machines.texts import TextRuns
from longhand.data.proofs.check import CannotCertify
from longhand.data.proofs.lengths.attention_error import (
    AttendedLayer,
    Bounds,
    Cases,
    QueryPlace,
    Tables,
    check_bounded,
)
from longhand.data.proofs.lengths.far_boxes import Boxes, far_boxes_of
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.task import Task
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.inputs import read_format
from longhand.modeling.stored_names import read_as_stored
from longhand.modeling.vocabulary import EQUALS, decode

BOUND = 1
"""The version of the bound and of the search, which is raised by hand: a verdict of another version may be wrong.

It rests on five files: this one, `attention_error.py`, `far_boxes.py`, `windows/rounding.py` and `machines/texts.py`. A test
compares their syntax trees with those that are recorded for the version, so that a comment or a docstring changes nothing.
"""

MOST_CASES = 500_000
"""More cases at one token are refused."""

NUMBERS_AT_ONCE = 2**24
"""Effects of tokens, or costs of columns, that are held at once."""

CASES_AT_ONCE = 512
"""Cases that are bounded at once, at most: a budget of seconds ends between them."""

SPLIT_CASES = 20_000
"""Most cases into which those of one token are split by the symbols of further columns."""

MOST_BOXES = 100_000
"""Most boxes of one case that are looked at."""

FEW_BOXES = 1000
"""The same for further cases of a length of which one stays open."""

BOXES_AT_ONCE = 64
"""Boxes that are looked at together."""

ASKED_OF_BOXES = 4
"""Problems that the model is asked for some boxes."""

ASKED = 64
"""Most problems of one token of the response that the model is asked."""


@dataclass(frozen=True)
class LengthVerdict:
    """What is known of all problems of one length.

    Attributes:
        length: the length; see `Task.operand_lengths`.
        verdict: `"proved"`, `"refuted"` or `"open"`.
        cases: how many choices of the few symbols were bounded.
        open: how many of these were not closed.
        lead: of a length that is open, the smallest lead that is left after all bounds, in logits; None if there is none.
        problem, answer, right: a problem that the model gets wrong, what it writes and what is right; None if none is known.
        seconds: what it took.
        boxes: how many boxes were looked at, of those cases that a first look did not close.
        budget: the seconds after which the rest of the cases stayed open; None if there was no limit.
        bound: `BOUND` of the code that found this.
        taken_over: whether this was read from a certificate of whoever made it, and not found by who says it now.
    """

    length: int
    verdict: str
    cases: int
    open: int
    lead: float | None
    problem: str | None
    answer: str | None
    right: str | None
    seconds: float
    boxes: int = 0
    budget: float | None = None
    bound: int = BOUND
    taken_over: bool = False


class Layout(NamedTuple):
    """The texts of one length.

    Attributes:
        length, columns: of the operands, and of the response without the end token.
        tokens: (places, most tokens) what may stand at each place; a row repeats its first token at the end.
        ids: (levels, places), or None.
        layers: see `TextRuns.layers`.
        response: the place of `=`.
        places: (words, columns) where a word's column stands, -1 if it has none.
        choice: (places, vocabulary) the place of a token in a row of `tokens`, -1 if it is not there.
    """

    length: int
    columns: int
    tokens: Tensor
    ids: Tensor | None
    layers: list[np.ndarray]
    response: int
    places: dict[tuple[int, int], int]
    choice: np.ndarray


class LengthProver:
    """A model and a task, for which lengths are proved.

    Raises:
        CannotCertify: the model or the task is none for which this is possible; the message says why.
    """

    def __init__(self, model: PreTrainedModel, task: Task):
        # `_check` refuses models and tasks that are not of decoders. The bound reads weights by their names in files.
        self.model = cast(CoupledGPTForCausalLM, read_as_stored(model))
        self.task = cast(DecoderTask, task)
        try:
            self._check()
            task.text_runs(ordered=True)
            self.layer = AttendedLayer(self.model)
        except ValueError as error:
            raise CannotCertify(f"no certificate up to a length: {error}") from error
        # Of problems that were answered wrongly at the last length that is refuted, and whether the operands are ordered.
        self.wrong_runs = np.zeros((0, 0), dtype=np.int64)
        self.ordered = False

    def _check(self) -> None:
        model, task = self.model, self.task
        if task.family is not DECODER:
            raise ValueError("an encoder reads all tokens in one pass, so no token has few others to go by")
        if len(task.parts) > 1:
            raise ValueError(f"name one of the tasks {', '.join(part.name for part in task.parts)} with --task")
        if model.model.position_encoding.windowed:
            raise ValueError("the model has a window: --certify without --lengths proves every length")
        DECODER.check_greedy(task, model)
        stated = model.config.prompt_format and read_format(model.config.prompt_format)
        if stated is not None and task.prompt_format not in (stated, *getattr(stated, "formats", ())):
            raise ValueError(f"prompt_format of the model's config is not that of the task {task.name!r}")
        check_bounded(model)

    def verdict(self, length: int, budget: float | None = None) -> LengthVerdict:
        """Prove or refute one length.

        Args:
            budget: seconds after which the rest of the cases stay open; None for no limit. What was begun then is finished:
                the tables of one column, some hundred cases or some boxes.

        Raises:
            ValueError: the model cannot take the length, or there are too many cases.
        """
        began = time.perf_counter()
        with torch.inference_mode():
            found = self._verdict(length, began + (math.inf if budget is None else budget))
        verdict = "refuted" if found.wrong else "open" if found.open else "proved"
        lead = found.lead if verdict == "open" and math.isfinite(found.lead) else None
        problem, answer, right = found.wrong or (None, None, None)
        return LengthVerdict(
            length=length,
            verdict=verdict,
            cases=found.cases,
            open=found.open,
            lead=lead,
            problem=problem,
            answer=answer,
            right=right,
            seconds=round(time.perf_counter() - began, 1),
            boxes=found.boxes,
            budget=budget,
        )

    def _verdict(self, length: int, until: float) -> "Found":
        runs, ordered = self.task.text_runs(ordered=False), False
        layout = self.layout(runs, length)
        if not _alike(layout, runs):
            runs, ordered = self.task.text_runs(ordered=True), True
            layout = self.layout(runs, length)
        if ordered != self.ordered:
            self.wrong_runs, self.ordered = self.wrong_runs[:0], ordered
        if wrong := self.ask_runs(runs, layout, stretched(self.wrong_runs, runs, layout)):
            return Found(wrong=wrong)
        tables = self.layer.tables(layout.tokens, layout.ids)
        # Few columns decide the first and the last tokens, which have few cases: a wrong problem there is found soon.
        columns = [-1, *reversed(range(layout.columns))]
        total, left = Found(), []
        # A wrong problem of any column is found before the long second look at cases of the first ones.
        for column in tqdm(columns, desc=f"length {length}", disable=None, leave=False, delay=1):
            if time.perf_counter() > until:
                cases = list_cases(runs, layout, column)
                total = total.add(Found(cases=len(cases.query_token), open=len(cases.query_token)))
                continue
            found, cases = Column(self, runs, layout, tables, column, until).look()
            if found.wrong:
                return total.add(found)
            total = total.add(replace(found, open=0, lead=math.inf))
            if len(cases.query_token):
                left.append((column, cases, found.lead))
        for column, cases, lead in tqdm(left, desc=f"length {length}, boxes", disable=None, leave=False, delay=1):
            if time.perf_counter() > until:
                total = total.add(Found(open=len(cases.query_token), lead=lead))
                continue
            most = FEW_BOXES if total.open else MOST_BOXES
            looking = Column(self, runs, layout, tables, column, until, more := further_columns(runs, layout, column))
            if more:
                found, cases = looking.look()
                total = total.add(replace(found, open=0, lead=math.inf))
            if not total.wrong:
                total = total.add(looking.look_in_boxes(cases, most))
            if total.wrong:
                return total
        return total

    def layout(self, runs: TextRuns, length: int) -> Layout:
        """The texts of one length.

        Raises:
            ValueError: the model cannot take the length.
        """
        task, operands = self.task, self.task.operand_lengths(length)
        digits = np.zeros((1, len(operands), length), dtype=np.uint8)
        text = torch.from_numpy(task.format(digits, np.array([operands])).tokens.astype(np.int64))
        response = len(runs.operands) * (length + runs.padding + 1)
        columns = text.shape[1] - response - 2
        layers = runs.layers(length, columns)
        if text[0, response] != EQUALS or not all(map(len, layers)):
            raise ValueError(f"the texts of the task {task.name!r} of the length {length} are not of the form of its runs")
        may_hold: list[list[int]] = [[token] for token in text[0].tolist()]
        places = {}
        for column, edges in enumerate(layers[1:-1]):
            for word in (*runs.operands, runs.response):
                held = np.unique(runs.graph.labels[edges, word])
                if held[0] >= 0:
                    places[word, column] = place = runs.place(word, column, length)
                    may_hold[place] = held.tolist()
        most = max(map(len, may_hold))
        tokens = torch.tensor([held + held[:1] * (most - len(held)) for held in may_hold])
        choice = np.full((len(tokens), len(task.tokens) + 1), -1)
        for place, tokens_here in enumerate(may_hold):
            choice[place, tokens_here] = range(len(tokens_here))
        ids = None
        if self.model.model.position_encoding.uses_position_ids:
            planned = self.model.model.plan_position_ids(text.to(self.model.device), text.shape[1])
            self.model.model.position_encoding.check(planned)
            ids = planned[0].cpu()
        return Layout(length, columns, tokens, ids, layers, response, places, choice)

    def ask_runs(self, runs: TextRuns, layout: Layout, problems: np.ndarray) -> tuple[str, str, str] | None:
        """Ask the model the problems of runs (problems, columns + 2); return the first that it gets wrong."""
        if not len(problems):
            return None
        graph = runs.graph
        texts = layout.tokens[:, 0].repeat(len(problems), 1)
        for (word, column), place in layout.places.items():
            texts[:, place] = torch.from_numpy(graph.labels[problems[:, column + 1], word])
        if runs.response != runs.following:
            for column in range(layout.columns):
                following = graph.labels[problems[:, column + 1], runs.following]
                texts[:, layout.response + 1 + column] = torch.from_numpy(following)
        texts[:, -1] = torch.from_numpy(graph.labels[problems[:, -1], runs.following])
        said = []
        for batch in texts.split(16):
            logits = self.model(batch.to(self.model.device), use_cache=False).logits
            said.append(logits[:, layout.response : -1].argmax(-1).cpu())
        wrong = (torch.cat(said) != texts[:, layout.response + 1 :]).any(1)
        for row in wrong.nonzero().squeeze(1).tolist():
            text = texts[row].tolist()
            if found := self.ask(text[: layout.response + 1], text[layout.response + 1 :]):
                self.wrong_runs = problems[row : row + 1]
                return found
        return None

    def ask(self, query: list[int], response: list[int]) -> tuple[str, str, str] | None:
        """Ask the model by greedy decoding. Return problem, answer and right response as text if it is wrong."""
        given = torch.tensor([query], device=self.model.device)
        with torch.inference_mode():
            said = self.model.generate(input_ids=given, attention_mask=torch.ones_like(given), do_sample=False)
        written = said[0, len(query) :].tolist()
        if written == response:
            return None
        problem, answer, right = (decode(tokens, self.task.tokens) for tokens in (query[1:], written, response))
        return problem, answer, right


def _alike(layout: Layout, runs: TextRuns) -> bool:
    """Whether the operands of each column have the same ids, so that their order cannot matter; without ids none has."""
    if layout.ids is None:
        return True
    columns = range(layout.columns)
    rows = [[layout.places[word, column] for column in columns if (word, column) in layout.places] for word in runs.operands]
    return all(bool((layout.ids[:, row] == layout.ids[:, rows[0]]).all()) for row in rows)


def stretched(problems: np.ndarray, runs: TextRuns, layout: Layout) -> np.ndarray:
    """Runs of shorter problems (problems, columns + 2), made as long as those of a layout by repeating one column.

    A column that leads back to the state from which it comes may be repeated. What is no run of the layout is left out.
    """
    graph, columns = runs.graph, len(layout.layers)
    missing = columns - problems.shape[1]
    if missing < 0:
        return problems[:0]
    longer = [
        np.insert(run, place, np.full(missing, run[place]))
        for run in problems
        for place in np.nonzero(graph.source[run] == graph.target[run])[0]
    ]
    legal = [run for run in longer if all(map(np.isin, run, layout.layers))]
    return np.array(legal[:ASKED], dtype=np.int64).reshape(-1, columns)


def further_columns(runs: TextRuns, layout: Layout, column: int) -> int:
    """By how many further columns cases are split: by all, or all but one, if then one column stays open at most."""
    below, above = column + runs.low, max(0, layout.length - column - 2)
    for more in (below, below - 1):
        if more > 0 and below - more + above <= 1:
            # Too many are refused.
            with suppress(ValueError):
                list_cases(runs, layout, column, more, SPLIT_CASES)
                return more
    return 0


def list_cases(runs: TextRuns, layout: Layout, own_column: int, more: int = 0, most: int = MOST_CASES) -> Cases:
    """Each choice of the symbols in the columns that decide what is right next to the token of one column, -1 for `=`.

    Args:
        more: further columns below them, of which each choice of the symbols is a case of its own.

    Raises:
        ValueError: there are more than `most` cases, some of them perhaps alike.
    """
    graph, own_place = runs.graph, layout.response + 1 + own_column
    held = np.zeros((1, own_place + 1), dtype=np.int64)
    for place in {at for at in layout.places.values() if at <= own_place}:
        held[:, place] = -1
    vertices, right = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    first = max(-1, own_column + runs.low - more)
    for column in range(first, own_column + 2):
        edges = layout.layers[column + 1]
        if column == first:
            before, after = np.zeros(len(edges), dtype=np.int64), edges
        else:
            before, chosen = np.nonzero(vertices[:, None] == graph.source[edges][None])
            after = edges[chosen]
        held, vertices = held[before], graph.target[after]
        for word in (*runs.operands, runs.response):
            place = layout.places.get((word, column), -1)
            if 0 <= place <= own_place:
                held[:, place] = layout.choice[place, graph.labels[after, word]]
        right = graph.labels[after, runs.following]
        if column <= own_column:
            right = np.zeros_like(right)
        if len(held) > most:
            raise ValueError(f"there are more than {most:,} cases at one token of the response")
        held_somewhere = held[:, (held >= 0).any(axis=0)]
        distinct = np.unique(np.column_stack([held_somewhere, vertices, right]), axis=0, return_index=True)[1]
        held, vertices, right = held[distinct], vertices[distinct], right[distinct]
    held_somewhere = held[:, (held >= 0).any(axis=0)]
    distinct = np.unique(np.column_stack([held_somewhere, right]), axis=0, return_index=True)[1]
    tokens = torch.from_numpy(held[distinct])
    return Cases(tokens[:, own_place], tokens, torch.from_numpy(right[distinct]))


@dataclass(frozen=True)
class Found:
    """What a search found; see `LengthVerdict`."""

    cases: int = 0
    open: int = 0
    lead: float = math.inf
    wrong: tuple[str, str, str] | None = None
    boxes: int = 0

    def add(self, more: "Found") -> "Found":
        """What this and another search found together."""
        wrong = self.wrong or more.wrong
        lead = min(self.lead, more.lead)
        return Found(self.cases + more.cases, self.open + more.open, lead, wrong, self.boxes + more.boxes)


class Column:
    """The proof at the token of the response in one column, -1 for `=`."""

    def __init__(
        self,
        prover: LengthProver,
        runs: TextRuns,
        layout: Layout,
        tables: Tables,
        column: int,
        until: float,
        more: int = 0,
    ):
        """
        Args:
            more: see `list_cases`.
        """
        self.prover, self.runs, self.layout, self.column, self.until = prover, runs, layout, column, until
        self.place = layout.response + 1 + column
        self.cases = list_cases(runs, layout, column, more)
        self.query = QueryPlace(prover.layer, tables, self.place, self.cases)
        self._prepare_paths()

    def _prepare_paths(self) -> None:
        """For the edges of each column: their vertices, and which token they hold at which seen place."""
        graph, layout, runs = self.runs.graph, self.layout, self.runs
        self.steps = []
        opened = {place: number for number, place in enumerate(self.query.open.tolist())}
        for column, edges in enumerate(layout.layers, -1):
            held = []
            for word in (*runs.operands, runs.response):
                place = layout.places.get((word, column), -1)
                if 0 <= place <= self.place:
                    choice = torch.from_numpy(layout.choice[place, graph.labels[edges, word]])
                    held.append((place, opened.get(place), choice))
            following = torch.from_numpy(graph.labels[edges, runs.following]) if column == self.column + 1 else None
            source, target = (torch.from_numpy(part[edges]) for part in (graph.source, graph.target))
            self.steps.append((source, target, held, following))
        self.vertices = int(max(graph.source.max(), graph.target.max(), graph.end)) + 1

    def _costs(self, cases: Cases, effects: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each column, the vertices of its edges and what each costs each case, (cases, edges)."""
        for source, target, held, following in self.steps:
            cost = effects.new_zeros(len(effects), len(source))
            for place, number, choice in held:
                if number is not None:
                    cost = cost + effects[:, number][:, choice]
                kept = (cases.held[:, place, None] < 0) | (cases.held[:, place, None] == choice)
                cost = cost.masked_fill(~kept, math.inf)
            if following is not None:
                cost = cost.masked_fill(following != cases.right[:, None], math.inf)
            yield source, target, cost

    def least(self, cases: Cases, effects: Tensor) -> Tensor:
        """(cases,) the least sum of effects that a problem with the symbols of a case has; infinite if there is none.

        Effects that overflow may have infinite sums too: whether there is such a problem, `occurs` says.
        """
        cost = effects.new_full((len(effects), self.vertices), math.inf)
        cost[:, 0] = 0
        for source, target, step in self._costs(cases, effects):
            through = cost[:, source] + step
            cost = torch.full_like(cost, math.inf).scatter_reduce(1, target.expand_as(through), through, "amin")
        return cost[:, self.runs.graph.end]

    def occurs(self, cases: Cases) -> Tensor:
        """(cases,) whether a problem has the symbols of a case: whether there is a path where no token costs anything."""
        nothing = torch.zeros((), dtype=torch.float64)
        return (
            self.least(cases, nothing.expand(len(cases.query_token), len(self.query.open), self.query.weight.shape[3])) == 0
        )

    def worst_runs(self, cases: Cases, effects: Tensor) -> np.ndarray:
        """(cases, columns + 2) the edges of the problems that `least` finds; every case has one."""
        cost = effects.new_full((len(effects), self.vertices), math.inf)
        cost[:, 0] = 0
        costs, steps = [cost], list(self._costs(cases, effects))
        for source, target, step in steps:
            through = costs[-1][:, source] + step
            costs.append(torch.full_like(cost, math.inf).scatter_reduce(1, target.expand_as(through), through, "amin"))
        vertex = torch.full((len(effects),), self.runs.graph.end)
        edges = []
        for (source, target, step), before, layer in zip(
            reversed(steps), reversed(costs[:-1]), reversed(self.layout.layers), strict=True
        ):
            through = (before[:, source] + step).masked_fill(target != vertex[:, None], math.inf)
            best = through.argmin(1)
            edges.append(layer[best.numpy()])
            vertex = source[best]
        return np.stack(edges[::-1], axis=1)

    def look(self) -> tuple[Found, Cases]:
        """Bound all cases, and ask the model the worst problems of those that are not closed. Return these cases too."""
        cases, worst, problems = self._close(self.cases)
        wrong = self._ask(problems) if len(cases.query_token) else None
        return Found(len(self.cases.query_token), len(cases.query_token), worst, wrong), cases

    def _close(self, cases: Cases) -> tuple[Cases, float, np.ndarray]:
        """Bound cases.

        Returns:
            Those that are not closed; the smallest lead that is left, in logits; and the runs of the problems that take most
            from one lead of each, the lowest to first order first.
        """
        tokens = self.query.weight.shape[3] * max(1, len(self.query.open)) * self.prover.layer.heads
        at_once = max(16, min(CASES_AT_ONCE, NUMBERS_AT_ONCE // (4 * tokens)))
        lowest, kept, leads, runs = math.inf, [], [], []
        for rows in torch.arange(len(cases.query_token)).split(at_once):
            if time.perf_counter() > self.until:
                kept.append(rows)
                continue
            # If the nearest rival is not closed, the others tell nothing more.
            for nearest in (True, False):
                some = cases.take(rows)
                bounds = self.query.bounds(some, nearest)
                left, taken = self._left(some, bounds, at_once)
                unclosed = torch.zeros(len(rows), dtype=torch.bool)
                unclosed[bounds.case[~(left > 0)]] = True
                # Of these, no problem has some.
                suspects = unclosed.nonzero().squeeze(1)
                unclosed[suspects] = self.occurs(some.take(suspects))
                failed = (~(left > 0) & unclosed[bounds.case]).nonzero().squeeze(1)
                lowest = min([lowest, *left[(left > 0) | unclosed[bounds.case]].tolist()])
                first = (bounds.lead + taken)[failed] * bounds.scale[failed]
                order = first.argsort()[:ASKED]
                leads.append(first[order])
                worst = bounds.take(failed[order])
                runs.append(self.worst_runs(some.take(worst.case), worst.effects))
                kept.append(rows[unclosed])
                rows = rows[~unclosed][torch.isin((~unclosed).nonzero().squeeze(1), bounds.case)]
                if not len(rows):
                    break
        problems = np.zeros((0, len(self.layout.layers)), dtype=np.int64)
        if leads:
            problems = np.concatenate(runs)[torch.cat(leads).argsort()[:ASKED].numpy()]
        return cases.take(torch.cat(kept).unique()), lowest, problems

    def _left(self, cases: Cases, bounds: Bounds, at_once: int) -> tuple[Tensor, Tensor]:
        """(pairs,) what is left of leads, in logits, and what effects of a problem's tokens take at most."""
        parts = [
            (cases.take(bounds.case[rows]), bounds.effects[rows]) for rows in torch.arange(len(bounds.case)).split(at_once)
        ]
        taken = torch.cat([self.least(*part) for part in parts]) if len(bounds.case) else bounds.lead
        return bounds.left(taken), taken

    def look_in_boxes(self, cases: Cases, most: int) -> Found:
        """Look again at cases that the first look did not close.

        Args:
            most: boxes of a case; see `MOST_BOXES`.
        """
        total = Found()
        for row in range(len(cases.query_token)):
            if time.perf_counter() > self.until:
                return total.add(Found(open=len(cases.query_token) - row))
            found = self._look_at_case(cases.take(torch.tensor([row])), FEW_BOXES if total.open else most)
            total = total.add(found)
            if total.wrong:
                break
        return total

    def _look_at_case(self, case: Cases, most: int) -> Found:
        """Look at one case in boxes, and halve those that are not closed, until all are or too many are looked at."""
        bounds = self.query.bounds(case, nearest=False)
        left, _ = self._left(case, bounds, len(bounds.case))
        rivals = bounds.rival[~(left > 0)]
        far = far_boxes_of(self.query, case)
        if far is None:
            return Found(open=1, lead=float(left.min()))
        waiting, pairs = far.whole(), torch.ones(1, len(rivals), dtype=torch.bool)
        looked, lowest = 0, math.inf
        while len(waiting.low):
            if looked >= most or time.perf_counter() > self.until:
                return Found(open=1, lead=lowest, boxes=looked)
            last = torch.arange(max(0, len(waiting.low) - BOXES_AT_ONCE), len(waiting.low))
            boxes, box_pairs = waiting.take(last), pairs[last]
            waiting, pairs = waiting.take(torch.arange(int(last[0]))), pairs[: last[0]]
            occurs = far.occurs(boxes).nonzero().squeeze(1)
            boxes, box_pairs = boxes.take(occurs), box_pairs[occurs]
            looked += len(occurs)
            if not len(occurs):
                continue
            asked = box_pairs.any(0).nonzero().squeeze(1)
            found = far.look(boxes, int(case.right[0]), rivals[asked], partial(self._least_of_case, case))
            failed = torch.zeros_like(box_pairs)
            failed[:, asked] = box_pairs[:, asked] & ~(found.left > 0) & found.occurs.unsqueeze(1)
            box, rival = failed[:, asked].nonzero(as_tuple=True)
            if not len(box):
                continue
            lowest = min(lowest, float((found.left * found.scale)[box, rival].min()))
            lows = (found.first * found.scale)[box, rival].argsort()[:ASKED_OF_BOXES]
            effects = found.effects[box[lows], rival[lows]]
            if wrong := self._ask(self.worst_runs(case.take(torch.zeros(len(lows), dtype=torch.long)), effects)):
                return Found(open=1, lead=lowest, wrong=wrong, boxes=looked)
            halved = failed.any(1).nonzero().squeeze(1)
            halves = boxes.take(halved).halves(found.score[halved].argmax(1))
            waiting = Boxes(torch.cat([waiting.low, halves.low]), torch.cat([waiting.high, halves.high]))
            pairs = torch.cat([pairs, failed[halved], failed[halved]])
        return Found(boxes=looked)

    def _least_of_case(self, case: Cases, effects: Tensor) -> Tensor:
        """(boxes, rivals) as `least`, for one case and effects (boxes, rivals, open, tokens)."""
        flat = effects.flatten(0, 1)
        edges = max(len(step[0]) for step in self.steps)
        at_once = max(16, NUMBERS_AT_ONCE // edges)
        parts = [self.least(case.take(torch.zeros(len(chunk), dtype=torch.long)), chunk) for chunk in flat.split(at_once)]
        return torch.cat(parts).unflatten(0, effects.shape[:2])

    def _ask(self, runs: np.ndarray) -> tuple[str, str, str] | None:
        """Ask the model the problems of runs; return the first that it gets wrong."""
        return self.prover.ask_runs(self.runs, self.layout, np.unique(runs, axis=0))
