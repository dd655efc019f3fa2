"""How long the main walks through the package are: calls of its own functions, files, and changes from file to file.

A newcomer reads along them, and each call costs time where a question takes milliseconds. A step that makes a walk longer
says why, and raises the number.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import longhand
from longhand import train
from longhand.modeling import CoupledGPTForCausalLM

PACKAGE = f"{Path(longhand.__file__).parent}/"
TESTS = f"{PACKAGE}tests/"


class Walk(NamedTuple):
    """The length of a walk; a change of file is a call into another file, or the return from it."""

    calls: int
    files: int
    changes: int


def is_of_package(frame: Any) -> bool:
    """Whether a frame is of a function of the package. Comprehensions have frames in some versions of Python only."""
    name = frame.f_code.co_filename
    return name.startswith(PACKAGE) and not name.startswith(TESTS) and not frame.f_code.co_name.startswith("<")


def walk(action: Callable[[], object]) -> Walk:
    """Run something and count its calls."""
    calls, changes, last = Counter[str](), 0, ""

    def count(frame: Any, event: str, _: object) -> None:
        nonlocal changes, last
        if event not in ("call", "return") or not is_of_package(frame):
            return
        if event == "call":
            calls[frame.f_code.co_filename] += 1
        else:
            frame = frame.f_back
            while frame is not None and not is_of_package(frame):
                frame = frame.f_back
        if frame is not None and frame.f_code.co_filename != last:
            last, changes = frame.f_code.co_filename, changes + 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return Walk(calls.total(), len(calls), changes)


class FirstLogits(BaseException):
    """The walk of a training ends here."""


def train_to_first_logits(folder: Path) -> None:
    def stop(module: nn.Module, *_: object) -> None:
        if isinstance(module, CoupledGPTForCausalLM):
            raise FirstLogits

    handle = nn.modules.module.register_module_forward_hook(stop)
    try:
        train.main(["addition", "--use_cpu", "True", "--output_dir", str(folder)])
    except FirstLogits:
        pass
    finally:
        handle.remove()


def give_structure() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 20}
    model = longhand.with_structure(LlamaForCausalLM(LlamaConfig(**sizes)), num_relations=3)
    model(torch.zeros(1, 4, dtype=torch.long), pair_map=torch.zeros(1, 4, 4, dtype=torch.long))


LIMITS = {
    # Each option of the command line asks whether it was given before.
    "train.py addition to the first logits": Walk(1220, 49, 890),
    "longhand.load": Walk(685, 30, 345),
    "a question": Walk(310, 25, 250),
    # Kind and shape of the map are checked by values.py, as those of all inputs.
    "with_structure and a forward pass": Walk(110, 5, 21),
}


@pytest.fixture(scope="module")
def adder():
    return longhand.load("addition")


@pytest.mark.parametrize("name", LIMITS)
def test_no_walk_is_longer_than_its_record(name, adder, tmp_path):
    walks: dict[str, Callable[[], object]] = {
        "train.py addition to the first logits": lambda: train_to_first_logits(tmp_path / str(len([*tmp_path.iterdir()]))),
        "longhand.load": lambda: longhand.load("addition"),
        "a question": lambda: adder("653+49"),
        "with_structure and a forward pass": give_structure,
    }
    # The first time, modules are imported.
    walks[name]()
    found, limit = walk(walks[name]), LIMITS[name]
    assert all(number <= most for number, most in zip(found, limit, strict=True)), f"{found}, recorded is {limit}"
