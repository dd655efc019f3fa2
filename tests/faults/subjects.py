"""What is attacked: a certified adder, an encoder that has learned nothing, and constructions, which are right untrained."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from longhand import train
from longhand.data import EncoderAddition
from longhand.hub_cards.checkpoints.files import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.research.constructions.study import run as construct
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification

CONSTRUCTED = ("addition", "multi-operand-addition", "multiplication")
LONGEST = 30
"""Digits up to which the constructions are right."""


@dataclass(frozen=True)
class Subjects:
    """The folders of what is attacked.

    Attributes:
        certified: finished folder of a certified adder.
        reader: folder of an encoder of additions.
        scratch: folder to write to.
    """

    certified: Path
    reader: Path
    scratch: Path

    def folder(self, name: str) -> Path:
        """The folder of `"certified"`, of `"reader"` or of a construction, which is made when it is first asked for."""
        if name not in CONSTRUCTED:
            return {"certified": self.certified, "reader": self.reader}[name]
        folder = self.scratch / "constructed" / name
        if not folder.exists():
            construct(name, LONGEST, folder)
        return folder

    @cache  # noqa: B019
    def checkpoint(self, name: str) -> Checkpoint:
        return load_checkpoint(str(self.folder(name)))


def make_subjects(scratch: Path, certified: Path | None = None) -> Subjects:
    """Make them in a folder; train the adder unless one is given."""
    subjects = Subjects(certified or scratch / "certified" / "addition", scratch / "reader", scratch / "work")
    subjects.scratch.mkdir()
    if certified is None:
        train_certified(subjects.certified)
    make_encoder(subjects.reader)
    return subjects


def train_certified(folder: Path) -> Path:
    train.main(["addition", "--test_lengths", "30", "--test_samples", "20", "--output_dir", str(folder)])
    return folder


def make_encoder(folder: Path) -> None:
    """Write an encoder that has learned nothing."""
    task = EncoderAddition()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = PairwiseBertConfig(pair_maps=["relative", "coupled"], initializer_range=0.5, **sizes)
    PairwiseBertForTokenClassification(config).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe({"recipe": "reader", **task.describe(), "min_length": 1, "max_length": 4}, folder / "recipe.yaml")
