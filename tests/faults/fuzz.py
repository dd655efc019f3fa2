"""A fuzzer of everything that users give: questions, prompts and masks, side files, options, recipes and results.

    python tests/faults/fuzz.py --minutes 60 --seed 7

The same seed gives the same inputs. For every input the fuzzer knows the right answer: by Python's integers for the sum of a
certified adder, by a grammar for what a question is. A wrong answer without a word is the worst fault. A refusal in one line
that names the value is right. Another exception, several lines, or a hang is a fault.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from transformers.utils import logging as transformers_logging

import longhand
from longhand import eval as evaluation
from longhand import train
from longhand.data import TASKS, EncoderAddition
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.reports.plots import plot_accuracy
from longhand.hub_cards.runs.arguments import parse_run, read_arguments
from longhand.hub_cards.runs.checkpoints import Checkpoint, load_checkpoint
from longhand.hub_cards.runs.console import refusing_in_one_line
from longhand.hub_cards.runs.recipes import list_recipes, load_recipe, write_recipe
from longhand.hub_cards.runs.results import (
    format_medians,
    format_table,
    generalizable_length,
    read_results,
    write_results,
)
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.vocabulary import BOS, EQUALS, PAD, PLUS, UNKNOWN

PACKAGE = Path(longhand.__file__).parent
ODD = yaml.safe_load(Path(__file__).with_name("odd.yaml").read_text(encoding="utf-8"))
SECONDS = 10
"""An input that takes longer hangs."""
SPARE_BYTES = 4 * 2**30
"""Memory that one input may take."""


class Finding(Exception):
    """A fault. The message is one line, the same for all inputs with the same fault as far as possible."""


class Hang(BaseException):
    """Not an Exception, so that no handler of the product catches it."""


@dataclass(frozen=True)
class Outcome:
    """What an attempt ended with.

    Attributes:
        value: what was returned; None after a refusal.
        refusal: the message of the refusal, or None.
        place: where in the package it was raised.
        printed: standard output.
        words: warnings, log records and standard error.
    """

    value: Any
    refusal: str | None
    place: str
    printed: str
    words: str


@contextlib.contextmanager
def limits(seconds: float) -> Iterator[None]:
    """Raise Hang after some seconds, and MemoryError if much memory is asked for."""

    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def listening() -> Iterator[io.StringIO]:
    """Collect what transformers logs."""
    heard = io.StringIO()
    handler, logger = logging.StreamHandler(heard), transformers_logging.get_logger("transformers")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


def place_of(error: BaseException) -> str:
    """Where in the package an error was raised or passed through last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
    own = [frame for frame in frames if "tests" not in Path(frame.filename).relative_to(PACKAGE).parts]
    return f"{Path(own[-1].filename).relative_to(PACKAGE)}:{own[-1].name}" if own else "outside the package"


def attempt(work: Callable[[], Any], seconds: float = SECONDS) -> Outcome:
    """Do something that may be refused: by a ValueError of one line, or by exit status 2 and one line `error: ...`.

    Raises:
        Finding: it ended otherwise.
    """
    printed, errors = io.StringIO(), io.StringIO()
    value = refusal = None
    place = ""
    with (
        warnings.catch_warnings(record=True) as warned,
        listening() as logged,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        warnings.simplefilter("always")
        try:
            with limits(seconds):
                value = work()
        except ValueError as error:
            refusal, place = str(error), place_of(error)
            if len(refusal.strip().splitlines()) != 1:
                raise Finding(f"a message of several lines or none, {place}") from error
        except SystemExit as stop:
            if stop.code not in (None, 0):
                refusal, place = _refusal_of_command(stop, errors.getvalue()), place_of(stop.__cause__ or stop)
        except Hang as error:
            raise Finding(f"a hang, {place_of(error)}") from error
        except Exception as error:
            raise Finding(f"{type(error).__name__}, {place_of(error)}") from error
    words = "".join((errors.getvalue(), logged.getvalue(), *(str(warning.message) for warning in warned)))
    return Outcome(value, refusal, place, printed.getvalue(), words)


def _refusal_of_command(stop: SystemExit, errors: str) -> str:
    """The line with which a command refused."""
    *before, last = errors.strip().splitlines() or [""]
    if stop.code not in (1, 2) or not last.startswith("error: ") or any(not line.startswith("warning: ") for line in before):
        raise Finding(f"exit status {stop.code} without exactly one error line, but with {last[:30]!r}")
    return last


def check_named(outcome: Outcome, *names: str) -> None:
    """Raise Finding unless a refusal names one of these."""
    if outcome.refusal is not None and not any(name in outcome.refusal for name in names if name):
        raise Finding(f"a refusal that does not name what it refuses, {outcome.place}")


def check_answer(outcome: Outcome, answer: Any, right: Any, about: str = "") -> None:
    """Raise Finding for a wrong answer without a word.

    Args:
        right: the right answer; None if the input must be refused.
        about: what to tell apart in the message.
    """
    if outcome.refusal is None and not outcome.words and (right is None or answer != right):
        raise Finding(
            ("a wrong answer without a word" if right is not None else "an answer to what is no legal input") + about
        )


def make_encoder(folder: Path) -> None:
    """Write an encoder that has learned nothing."""
    task = EncoderAddition()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = PairwiseBertConfig(pair_maps=["relative", "coupled"], initializer_range=0.5, **sizes)
    PairwiseBertForTokenClassification(config).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe({"recipe": "reader", **task.describe(), "min_length": 1, "max_length": 4}, folder / "recipe.yaml")


@dataclass(frozen=True)
class Subjects:
    """What is attacked.

    Attributes:
        certified: finished folder of a certified adder.
        reader: folder of an encoder of additions.
        scratch: folder to write to.
    """

    certified: Path
    reader: Path
    scratch: Path

    @cached_property
    def adder(self) -> Checkpoint:
        return load_checkpoint(str(self.certified))

    @cached_property
    def encoder(self) -> Checkpoint:
        return load_checkpoint(str(self.reader))


Input = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A source of inputs.

    Attributes:
        make: makes an input, which JSON can hold.
        run: tries it; raises Finding.
        share: how often it is tried beside others.
    """

    make: Callable[[np.random.Generator], Input]
    run: Callable[[Subjects, Input], None]
    share: int


def choose(generator: np.random.Generator, *values: Any) -> Any:
    return values[int(generator.integers(len(values)))]


def number(generator: np.random.Generator, most: int = 30) -> str:
    return "".join(map(str, generator.integers(0, 10, size=generator.integers(1, most + 1))))


# Questions.

SIGNS = {"subtraction": "-"} | dict.fromkeys(["addition", "encoder_addition", "index_hinted_addition"], "+")
SIGNS |= dict.fromkeys(["multiplication", "multiplication_scratchpad", "encoder_multiplication"], "*")
STRINGS = {"copy": "0-9", "reverse": "0-9", "parity": "01"}


def make_question(generator: np.random.Generator) -> Input:
    task = choose(generator, *TASKS)
    sign = SIGNS.get(task, choose(generator, "+", "=", "_", ">"))
    text = number(generator) + sign + number(generator) if generator.random() < 0.8 else TASKS[task]().example_question
    for _ in range(generator.integers(0, 4)):
        place = int(generator.integers(0, len(text) + 1))
        if generator.random() < 0.3:
            text = text[:place] + text[place + 1 :]
        else:
            text = text[:place] + choose(generator, *ODD["inserted"]) + text[place:]
    return {"task": task, "question": text}


def grammar(task: str) -> str | None:
    """Which questions are legal: ASCII digits, with ASCII spaces around numbers and at most one `=` at the end."""
    if task in SIGNS:
        return rf"\s*([0-9]+)\s*{re.escape(SIGNS[task])}\s*([0-9]+)\s*=?\s*"
    return rf"\s*([{STRINGS[task]}]+)\s*=?\s*" if task in STRINGS else None


def run_question(subjects: Subjects, given: Input) -> None:
    """A prompt must be refused or hold the question's own numbers; the certified adder and the encoder must answer it."""
    name, question = given["task"], given["question"]
    task = TASKS[name]()
    outcome = attempt(lambda: task.prompt(question))
    check_named(outcome, repr(question)[1:-1], question[:10] or "''", *map(repr, question), "multiplier_length")
    match = re.fullmatch(grammar(name) or ".*", question, re.ASCII | re.DOTALL)
    if outcome.refusal is None and match is None:
        raise Finding("an answer to what is no legal input")
    if name == "addition" and match:
        answer = attempt(lambda: subjects.adder.answer(question))
        if answer.refusal is not None:
            raise Finding("a legal question is refused")
        check_answer(answer, answer.value, str(int(match[1]) + int(match[2])))
    if name == "encoder_addition" and match and max(map(len, match.groups())) < 5:
        attempt(lambda: subjects.encoder.answer(question))


# Prompts and masks.

SOLVABLE = [*ODD["legal"], "ones_mask", "no_mask", "right_padding", "unpadded"]


def make_prompt(generator: np.random.Generator) -> Input:
    rows = int(generator.integers(1, 4))
    length = int(generator.integers(1, 12))
    return {
        "family": choose(generator, "decoder", "decoder", "encoder"),
        "call": choose(generator, "forward", "generate"),
        "numbers": [["".join(map(str, generator.integers(0, 10, size=length))) for _ in range(2)] for _ in range(rows)],
        "longer": int(generator.integers(0, 4)),
        "damage": choose(generator, *ODD["unsolvable"]) if generator.random() < 0.6 else choose(generator, *SOLVABLE),
        "place": float(generator.random()),
    }


def prompt_texts(given: Input) -> list[str]:
    """Rows of `A+B=`; the first one is longer in some."""
    numbers = [list(pair) for pair in given["numbers"]]
    numbers[0] = [number + "7" * given["longer"] for number in numbers[0]]
    if given["damage"] == "unpadded":
        numbers[0][1] = numbers[0][1][1:] or "1"
    return [f"{first}+{second}" for first, second in numbers]


def run_prompt(subjects: Subjects, given: Input) -> None:
    if given["family"] == "encoder":
        return run_encoder_prompt(subjects, given)
    texts, damage = prompt_texts(given), given["damage"]
    checkpoint = subjects.adder
    sums = [str(sum(map(int, text.split("+")))) for text in texts]
    forward = given["call"] == "forward"
    wholes = []
    for text, total in zip(texts, sums, strict=True):
        width = max(map(len, text.split("+"))) + 1
        wholes.append(f"{text}=" + (f"{total.zfill(width)[::-1]}$" if forward else ""))
    side = "right" if damage == "right_padding" else "left"
    inputs = dict(checkpoint.tokenizer(wholes, return_tensors="pt", padding=True, padding_side=side))
    options = damaged_inputs(inputs, damage, given["place"])
    if damage in ("ones_mask", "no_mask") and len({len(whole) for whole in wholes}) == 1:
        damage = "none"

    def work():
        with torch.inference_mode():
            if forward:
                predicted = checkpoint.model(**inputs, **options).logits.argmax(-1)
                ids = inputs["input_ids"][:, -predicted.shape[1] :]
                response = (ids == EQUALS).cumsum(1).bool()[:, :-1] & (ids[:, 1:] != PAD)
                return bool((predicted[:, :-1] == ids[:, 1:])[response].all())
            output = checkpoint.model.generate(**inputs, **options)
            decode = checkpoint.tokenizer.decode
            responses = [decode(row[inputs["input_ids"].shape[1] :], skip_special_tokens=True) for row in output]
            return [checkpoint.task.reader.read(response) for response in responses]

    outcome = attempt(work)
    right = None if damage in ODD["unsolvable"] else True if forward else sums
    if outcome.refusal and damage in ODD["legal"]:
        raise Finding("a legal prompt is refused")
    check_answer(outcome, outcome.value, right, f", decoder, {given['call']}, {given['damage']}")


def encoder_texts(given: Input) -> list[str]:
    """Rows of `A+B` without leading zeros, in fields of one width if they are padded."""
    texts = []
    for text in prompt_texts(given):
        numbers = [str(int(number)) for number in text.split("+")]
        width = 0 if given["damage"] == "unpadded" else max(map(len, numbers))
        texts.append("+".join(number.rjust(width, "_") for number in numbers))
    return texts


def run_encoder_prompt(subjects: Subjects, given: Input) -> None:
    checkpoint, damage = subjects.encoder, given["damage"]
    texts = encoder_texts(given)
    inputs = dict(checkpoint.tokenizer(texts, return_tensors="pt", padding=True, padding_side="right"))
    # What no encoder has, what is no damage to one, and 21, which is a letter.
    if damage.startswith(("padding", "keep", "two_equals", "no_equals", "no_begin", "two_begins", "left", "mask_hides")):
        return
    if damage == "id_too_large":
        damage = "id_huge"
    options = damaged_inputs(inputs, damage, given["place"])

    def work():
        with torch.inference_mode():
            logits = checkpoint.model(**inputs, **options).logits
            alone = [checkpoint.model(**checkpoint.tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
        return all(torch.allclose(row[: len(own)], own, atol=1e-3) for row, own in zip(logits, alone, strict=True))

    outcome = attempt(work)
    # Without a mask the padding of a batch is an ordinary token.
    if damage in ("ones_mask", "no_mask") and len({len(text) for text in texts}) == 1:
        damage = "none"
    right = None if damage in ODD["unsolvable"] else True
    check_answer(outcome, outcome.value, right, f", encoder, {given['damage']}")


def damaged_inputs(inputs: dict[str, Any], damage: str, place: float) -> dict[str, Any]:
    """Damage inputs in place; return further arguments of the call."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    rows, columns = ids.shape
    # A digit of the second number, which is the last one before `=` or before the end.
    ends = (ids[0] == EQUALS).nonzero().flatten().tolist() or [columns]
    column = ends[0] - 1 - int(place * (ends[0] - 1 - int((ids[0] == PLUS).nonzero()[0])))
    if damage == "no_mask":
        inputs.pop("attention_mask")
    masks = {
        "ones_mask": torch.ones_like(mask),
        "bool_mask": mask.bool(),
        "mask_rows": mask[:1].repeat(rows + 1, 1),
        "mask_columns": mask[:, :-1],
        "mask_flat": mask[0],
        "mask_none_visible": torch.zeros_like(mask),
    }
    if damage in masks:
        inputs["attention_mask"] = masks[damage]
    if damage == "mask_hides_a_digit":
        mask[0, column] = 0
    tokens = {"id_too_large": 21, "id_negative": -1, "id_huge": 2**40, "unknown_token": UNKNOWN, "space": UNKNOWN}
    tokens |= {"two_plus": PLUS, "two_equals": EQUALS, "padding_inside": PAD, "two_begins": BOS}
    if damage in tokens:
        ids[0, column] = tokens[damage]
    for gone, token in (("no_equals", EQUALS), ("no_begin", BOS), ("no_plus", PLUS)):
        if damage == gone:
            inputs["input_ids"] = torch.where(ids == token, 1, ids)
    shapes = {
        "flat": lambda x: x[0],
        "deep": lambda x: x.unsqueeze(0),
        "no_batch": lambda x: x[:0],
        "no_tokens": lambda x: x[:, :0],
    }
    if damage in shapes:
        inputs.update({name: shapes[damage](value) for name, value in inputs.items()})
    kinds = {"float_ids": ids.float(), "text_ids": "653+049=", "int32": ids.int()}
    if damage in kinds:
        inputs["input_ids"] = kinds[damage]
    return {
        "keep_negative": {"logits_to_keep": -1},
        "keep_too_many": {"logits_to_keep": columns + 5},
        "keep_indices_outside": {"logits_to_keep": torch.tensor([columns + 5])},
        "keep_text": {"logits_to_keep": "all"},
        "keep_last": {"logits_to_keep": 1},
        "pair_map_negative": {"pair_map": torch.full((rows, columns, columns), -7)},
        "pair_map_large": {"pair_map": torch.full((rows, columns, columns), 10**6)},
        "pair_map_shape": {"pair_map": torch.zeros(rows, columns, dtype=torch.long)},
        "positions_shape": {"position_ids": torch.zeros(rows + 3, 2, columns, dtype=torch.long)},
        "positions_negative": {"position_ids": torch.full((rows, columns), -5)},
        "positions_huge": {"position_ids": torch.full((rows, columns), 2**40)},
    }.get(damage, {})


# Side files.

QUESTION, SUM = "1234567890+9753108642", "10987676532"


def make_side_file(generator: np.random.Generator) -> Input:
    file = choose(generator, *ODD["side_files"])
    change = choose(generator, "value", "value", "value", "delete", "swap", "add", "text", "whole", "bytes", "place")
    given: Input = {"file": file, "change": change, "seed": int(generator.integers(2**31))}
    if change == "value":
        given["value"] = choose(generator, *ODD["values"])
    elif change == "add":
        given["file"] = choose(generator, "config.json", "generation_config.json")
        given["name"], given["value"] = choose(generator, *ODD["settings"].items())
    elif change == "whole":
        given["text"], given["times"] = choose_text(generator)
    elif change == "place":
        given["what"] = choose(generator, "fifo", "folder", "loop", "missing", "unreadable", "null device")
    return given


def choose_text(generator: np.random.Generator) -> tuple[str, int]:
    """What a whole file is replaced by, and how many times it is repeated."""
    return choose(generator, ("[", 100_000), ('{"a":', 5000), *((text, 1) for text in ODD["whole_files"]))


def paths(document: Any, path: tuple = ()) -> Iterator[tuple]:
    """The places of all values in a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


def change_document(document: Any, given: Input) -> str:
    """Change a value somewhere; return its name."""
    generator = np.random.default_rng(given["seed"])
    if given["change"] == "add":
        document[given["name"]] = given["value"]
        return given["name"]
    places = list(paths(document))
    if not places:
        return ""
    *parents, last = choose(generator, *places)
    parent = document
    for key in parents:
        parent = parent[key]
    if given["change"] == "delete":
        del parent[last]
    elif given["change"] == "swap":
        other = choose(generator, *(list(parent) if isinstance(parent, dict) else range(len(parent))))
        parent[last], parent[other] = parent[other], parent[last]
    else:
        parent[last] = given["value"]
    return str(last)


def read_document(file: Path) -> Any:
    text = file.read_text()
    if file.suffix == ".yaml":
        return yaml.safe_load(text)
    return [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)


def write_document(document: Any, file: Path) -> None:
    if file.suffix == ".yaml":
        text = yaml.safe_dump(document, allow_unicode=True)
    elif file.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in document)
    else:
        text = json.dumps(document, indent=1)
    file.write_text(text)


def damage_file(file: Path, given: Input) -> str:
    """Change a side file; return the name of the field that was changed, if it is one field."""
    generator = np.random.default_rng(given["seed"])
    change, content = given["change"], file.read_bytes()
    if change in ("value", "delete", "swap", "add") and file.suffix != ".safetensors":
        document = read_document(file)
        name = change_document(document, given)
        write_document(document, file)
        return name
    if change == "whole":
        file.write_text(given["text"] * given.get("times", 1))
    elif change == "place":
        file.unlink()
        {
            "fifo": lambda: os.mkfifo(file),
            "folder": file.mkdir,
            "loop": lambda: file.symlink_to(file.name),
            "missing": lambda: None,
            "unreadable": lambda: file.symlink_to("/proc/self/mem"),
            "null device": lambda: file.symlink_to("/dev/null"),
        }[given["what"]]()
    else:
        # Bytes are cut off, inserted or changed; in weights the header too.
        place = int(generator.integers(0, min(len(content), 3000) if generator.random() < 0.7 else len(content)))
        changed = {
            0: content[:place],
            1: content[:place] + bytes(generator.integers(0, 256, size=3, dtype=np.uint8)) + content[place:],
            2: content[:place] + bytes(generator.integers(0, 256, size=4, dtype=np.uint8)) + content[place + 4 :],
        }
        file.write_bytes(changed[int(generator.integers(3))])
    return ""


@contextlib.contextmanager
def unblocking(file: Path) -> Iterator[None]:
    """End reads of a FIFO that has no writer, from outside: what waits in a library's own code hears no alarm."""
    if not file.is_fifo():
        yield
        return
    script = f"while sleep {SECONDS}; do : > {file}; done"
    guard = subprocess.Popen(["sh", "-c", script], start_new_session=True, stderr=subprocess.DEVNULL)
    began = time.perf_counter()
    try:
        yield
    finally:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()
    if time.perf_counter() - began > SECONDS - 1:
        raise Finding("a hang on a FIFO")


def run_side_file(subjects: Subjects, given: Input) -> None:
    """The certified adder must answer, warn, or refuse by a name; its card must not certify what answers wrongly."""
    folder = subjects.scratch / "addition"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(subjects.certified, folder, ignore=shutil.ignore_patterns("best", "*.png", "README.md"))
    file = folder / given["file"]
    field = damage_file(file, given)
    with unblocking(file):
        asked = attempt(lambda: evaluation.main([str(folder), "--ask", QUESTION]))
        check_answer(asked, asked.printed.strip(), SUM, f", {file.name} {given.get('name', '')}".rstrip())
        # A file may be refused for what another one says, but then that one is named.
        named = *ODD["side_files"], "generation_config", ".safetensors", "--task", *words_of(field, given.get("value", ""))
        check_named(asked, *named)
        wrong = asked.refusal is not None or asked.printed.strip() != SUM
        written = attempt(lambda: write_card(folder))
        check_named(written, *named)
    if written.refusal is None and wrong and "**Certified.**" in (folder / "README.md").read_text():
        raise Finding("a card certifies what answers wrongly")


# Options and recipes.


def words_of(*texts: Any) -> list[str]:
    """What a refusal may name: whole texts, as they are or in the notation of Python, and the words in them."""
    given = list(map(str, texts))
    return [*given, *(repr(text)[1:-1] for text in given), *(word for text in given for word in re.findall(r"\w+", text))]


def option_names() -> list[str]:
    actions = read_arguments([]).parser._option_string_actions
    return sorted({action.dest for action in actions.values()} - set(ODD["hazards"]))


def make_options(generator: np.random.Generator) -> Input:
    words = [choose(generator, *list_recipes())] if generator.random() < 0.5 else []
    for _ in range(generator.integers(1, 4)):
        words.append(f"--{choose(generator, *option_names())}")
        words += [choose(generator, *ODD["words"]) for _ in range(generator.integers(0, 3))]
    return {"words": words}


def run_options(subjects: Subjects, given: Input) -> None:
    def work():
        with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
            parse_run([*given["words"], "--output_dir", str(subjects.scratch / "run")])

    # Recipes for a GPU are refused where there is none.
    check_named(attempt(work), "bf16", *words_of(*given["words"]))


def make_recipe(generator: np.random.Generator) -> Input:
    given = {"recipe": choose(generator, *list_recipes()), "seed": int(generator.integers(2**31))}
    given["change"] = choose(generator, "value", "value", "value", "delete", "swap", "text", "whole")
    if given["change"] == "value":
        given["value"] = choose(generator, *ODD["values"])
    elif given["change"] == "whole":
        given["text"], given["times"] = choose_text(generator)
    return given


def run_recipe(subjects: Subjects, given: Input) -> None:
    file = subjects.scratch / "recipe.yaml"
    recipe = load_recipe(given["recipe"])
    write_recipe(recipe, file)
    field = damage_file(file, given)

    def work():
        with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
            return parse_run([str(file), "--output_dir", str(subjects.scratch / "run")])

    outcome = attempt(work)
    check_named(outcome, "recipe.yaml", field, "bf16", *words_of(*recipe, given.get("text", "")))


def make_evaluation(generator: np.random.Generator) -> Input:
    words = ["--lengths", choose(generator, *ODD["lengths"])]
    more = {
        "--lengths_b": ODD["lengths"],
        "--num_samples": ("1", "3", "0", "-1", "x", "1.5", "", "1000000000000", "99999999999999999999"),
        "--seed": ("0", "-1", "x", "4294967296", "99999999999999999999", "1.5"),
        "--sampling": ("cascades", "uniform", "", "x"),
        "--decode": ("generate", "teacher_forced", "x"),
        "--task": ("addition", "copy", "parity", "subtraction", "multi_operand_addition", "x", ""),
        "--ask": ("1+2", "-1+2", "", "--", "1+2=", "-", "\uff11+1"),
        "--output_dir": ("", "SCRATCH/out", "SCRATCH/" + "n" * 300, "/dev/null", "/proc/x", "SCRATCH/\x00"),
        "--dataset": ("user/name", "", "x"),
        "--revision": ("main", "", "x"),
        "--plugin": ("x.py", "", "/dev/null"),
    }
    for name in generator.permutation(list(more))[: generator.integers(0, 3)]:
        words += [str(name), choose(generator, *more[name])]
    return {"words": words}


def run_evaluation(subjects: Subjects, given: Input) -> None:
    """The certified adder is right at every length that is evaluated, and these are the lengths asked for."""
    out = subjects.scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = [word.replace("SCRATCH", str(subjects.scratch)) for word in given["words"]]
    if "--num_samples" not in words:
        words += ["--num_samples", "2"]
    if "--output_dir" not in words:
        words += ["--output_dir", str(out)]
    with contextlib.chdir(subjects.scratch):
        outcome = attempt(lambda: evaluation.main([str(subjects.certified), *words]))
    check_named(outcome, *words_of(*words), "lengths")
    if outcome.refusal is None and "--ask" in words:
        check_answer(outcome, outcome.printed.strip(), "3")
    elif outcome.refusal is None and out.is_dir():
        rows = read_results(out / "results.jsonl")
        if any(row["exact_match"] != 1 for row in rows):
            raise Finding("a certified model is measured as wrong")
        text = given["words"][1]
        listed = re.fullmatch(r"[0-9,]+", text) and "--lengths_b" not in words
        if listed and [row["length"] for row in rows] != [int(part) for part in text.split(",")]:
            raise Finding("other lengths than asked for")


# Results.


def make_results(generator: np.random.Generator) -> Input:
    change = choose(generator, "value", "value", "value", "delete", "swap", "text", "whole")
    given: Input = {"change": change, "seed": int(generator.integers(2**31)), "plot": bool(generator.random() < 0.1)}
    if change == "value":
        given["value"] = choose(generator, *ODD["values"])
    elif change == "whole":
        given["text"], given["times"] = choose_text(generator)
    return given


def run_results(subjects: Subjects, given: Input) -> None:
    file = subjects.scratch / "results.jsonl"
    shutil.copyfile(subjects.certified / "results.jsonl", file)
    field = damage_file(file, given)
    read = attempt(lambda: read_results(file))
    check_named(read, file.name)

    def report():
        format_table(read.value)
        format_medians(read.value)
        generalizable_length(read.value)
        write_results(read.value, file)
        if given["plot"]:
            plot_accuracy(read.value, file.with_suffix(".png"), (1, 30), ("digits", "digits"))

    if read.value and attempt(report).refusal is not None:
        raise Finding(f"a row that was read cannot be shown ({field})")


KINDS = {
    "question": Kind(make_question, run_question, 4),
    "prompt": Kind(make_prompt, run_prompt, 4),
    "side file": Kind(make_side_file, run_side_file, 6),
    "options": Kind(make_options, run_options, 4),
    "recipe": Kind(make_recipe, run_recipe, 3),
    "evaluation": Kind(make_evaluation, run_evaluation, 1),
    "results": Kind(make_results, run_results, 3),
}


def make_input(kind: str, seed: int, place: int) -> Input:
    """The input of a kind at a place of the sequence that a seed gives."""
    return KINDS[kind].make(np.random.default_rng([seed, place, *kind.encode()]))


def fault(kind: str, subjects: Subjects, given: Input) -> str | None:
    """What is wrong with how an input is taken; None if nothing."""
    try:
        KINDS[kind].run(subjects, given)
    except Finding as finding:
        return str(finding)
    return None


def shorten(kind: str, subjects: Subjects, given: Input) -> Input:
    """Leave out characters of a question, or words of a command, as long as the fault stays the same."""
    wanted = fault(kind, subjects, given)
    for name in {"question": ["question"], "options": ["words"], "evaluation": ["words"]}.get(kind, []):
        place = 0
        while place < len(given[name]):
            shorter = {**given, name: given[name][:place] + given[name][place + 1 :]}
            if shorter[name] and fault(kind, subjects, shorter) == wanted:
                given = shorter
            else:
                place += 1
    return given


def sequence(seed: int) -> Iterator[tuple[str, int]]:
    """Kinds in turn, each as often as its share says, with the places of their inputs."""
    turn = [kind for kind, source in KINDS.items() for _ in range(source.share)]
    places: Counter[str] = Counter()
    while True:
        for kind in turn:
            yield kind, places[kind]
            places[kind] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--certified", type=Path, help="folder of a certified adder; by default one is trained")
    parser.add_argument("--examples", type=int, default=1, help="inputs to print of each fault")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        subjects = Subjects(options.certified or scratch / "certified" / "addition", scratch / "reader", scratch / "work")
        subjects.scratch.mkdir()
        if options.certified is None:
            train.main(["addition", "--test_lengths", "30", "--test_samples", "20", "--output_dir", str(subjects.certified)])
        make_encoder(subjects.reader)
        end, tried = time.monotonic() + 60 * options.minutes, Counter()
        found: Counter[tuple[str, str]] = Counter()
        for kind, number in sequence(options.seed):
            if time.monotonic() > end:
                break
            if kind not in options.kinds:
                continue
            given = make_input(kind, options.seed, number)
            tried[kind] += 1
            if (what := fault(kind, subjects, given)) is None:
                continue
            found[kind, what] += 1
            if found[kind, what] <= options.examples:
                case = {"kind": kind, "seed": options.seed, "number": number, "fault": what}
                print(json.dumps({**case, "input": shorten(kind, subjects, given)}), flush=True)
    print(f"{sum(tried.values())} inputs ({', '.join(f'{count} {kind}' for kind, count in tried.items())})")
    for (kind, what), count in found.most_common():
        print(f"{count:6d}  {kind}: {what}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
