"""Families of transformers carry structure alike in every implementation of attention, or are refused."""

import pytest
from cases import all_but
from transformers.utils import logging

from longhand.hub_cards.research.structured.families import DECODERS, ENCODERS, NOT_SUPPORTED, OTHERS, RESULTS, measure
from longhand.hub_cards.result_rows import read_results

KNOWN = {row["family"]: row for row in read_results(RESULTS)}
SAMPLE = ("gemma2", "gpt2", "opt", "qwen2_moe", "modernbert", "roberta", "bloom", "falcon_h1", "t5")
CLOSE = 2e-5


def check(kind: str, flex: bool) -> None:
    logging.set_verbosity_error()
    row = measure(kind, flex)
    assert row["carries"] == KNOWN[kind]["carries"], row
    if not row["carries"]:
        assert row["refused"] and "\n" not in row["refused"]
        return
    assert row["zeros"] == 0 and row["changed"] > 0.01 and row.get("generate", 0) == 0
    for name in ("mask", "sdpa", "flex", "gradients", "padding"):
        assert row.get(name, 0.0) == NOT_SUPPORTED or row.get(name, 0.0) <= CLOSE, (name, row)


@pytest.mark.parametrize("kind", all_but(["falcon_h1"], SAMPLE))
def test_some_families_agree_or_are_refused(kind):
    check(kind, flex=False)


@pytest.mark.release
@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS, *OTHERS])
def test_every_family_agrees_or_is_refused(kind):
    check(kind, flex=True)


def test_the_table_has_every_family_and_thirty_that_carry_structure():
    assert list(KNOWN) == [*DECODERS, *ENCODERS, *OTHERS]
    assert sum(row["carries"] for row in KNOWN.values()) >= 30
