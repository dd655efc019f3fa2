"""What a check says that is left to the device fits into what CUDA takes, whatever the task, rule or encoding."""

import pytest
import torch
from accelerator import TOO_LONG_MESSAGE, Accelerator, place
from cases import drawn
from test_given_rows import model_of, rows_of

import longhand
from longhand.data import TASKS, build_task
from longhand.data.families import DECODER
from longhand.modeling import values
from longhand.modeling.coupling import COUPLING_RULES, given_rule
from longhand.modeling.position_encodings import POSITION_ENCODINGS
from longhand.modeling.values import require, require_range


@pytest.mark.parametrize("name", drawn(TASKS, 12))
def test_every_message_of_a_training_step_fits(name, monkeypatch):
    said = []
    monkeypatch.setattr(values, "reads_values", lambda tensor: False)
    monkeypatch.setattr(torch, "_assert_async", lambda holds, legal: said.append(legal))
    task = build_task(name)
    batch = longhand.collate_rows(rows_of(task.name, 4, position_ids=task.family is DECODER))
    rule = None if task.family is DECODER else task.settling_map or "relative"
    windowed = {"windowed": True, "attention_probs_dropout_prob": 0.0} if rule == "grid" else {}
    model_of(task, rule, **windowed).train()(**batch).loss.backward()
    assert said and max(len(legal.encode()) for legal in said) < TOO_LONG_MESSAGE


@pytest.mark.parametrize("encoding", POSITION_ENCODINGS)
def test_every_message_of_every_rule_fits(encoding, monkeypatch):
    said = []
    monkeypatch.setattr(values, "reads_values", lambda tensor: False)
    monkeypatch.setattr(torch, "_assert_async", lambda holds, legal: said.append(legal))
    rules = [*COUPLING_RULES.values(), given_rule(3)]
    for rule in rules:

        class Config:
            """What `check` reads."""

            position_encoding, coupling = encoding, rule.name

        Config.rule = rule
        POSITION_ENCODINGS[encoding].check(
            type("Asked", (), {"config": Config, "largest_id": 10**9})(), torch.ones(1, rule.levels, 4, dtype=torch.long)
        )
    assert len(said) == len(rules) and max(len(legal.encode()) for legal in said) < TOO_LONG_MESSAGE


@pytest.mark.parametrize("letter", ["a", "ü", "数"])
def test_a_long_message_keeps_its_beginning_on_a_device_and_all_of_it_on_the_processor(letter):
    legal = "numbers must be small" + letter * 400
    for check in (lambda held: require(held > 0, legal, lambda: "0"), lambda held: require_range(held, 1, 2, lambda: legal)):
        with pytest.raises(ValueError, match=legal):
            check(torch.zeros(2, dtype=torch.long))
        with Accelerator():
            check(place(torch.ones(2, dtype=torch.long)))
            with pytest.raises(RuntimeError, match="numbers must be small"):
                check(place(torch.zeros(2, dtype=torch.long)))
