"""CoupledGPT's forward pass."""

import pytest
import torch
from datasets import Dataset
from position_subjects import assert_close, build
from transformers import Trainer, TrainingArguments

import longhand
from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.tasks.registry import build_tokenizer
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule, Plan
from longhand.modeling.coupling_rules import addition, sequential

TOKENS = build_tokenizer()("653+049=2070$", return_tensors="pt").input_ids

every_encoding = pytest.mark.parametrize("encoding", ["none", "learned", "rotary, coupled", "pairwise", "windowed"])


@pytest.fixture
def two_levels(monkeypatch) -> str:
    """The name of a rule whose levels are the ids of `addition` and of `sequential`."""

    def plan(input_ids, columns):
        plans = [rule(input_ids, columns) for rule in (addition, sequential)]
        return Plan(torch.cat([each.position_ids for each in plans], dim=1), plans[0].response_length)

    monkeypatch.setitem(COUPLING_RULES, "two", CouplingRule("two", plan, 2, str))
    return "two"


@pytest.mark.parametrize("levels", [1, 2])
@every_encoding
def test_first_layer_on_distinct_inputs_equals_inputs_embeds(encoding, levels, two_levels):
    coupling = {"coupling": two_levels, "position_levels": 2, "share_level_tables": False} if levels == 2 else {}
    model = build(encoding, **coupling)
    batch = torch.cat([TOKENS, build_tokenizer()("111+222=333$$", return_tensors="pt").input_ids])
    ids = model.model.plan_position_ids(batch, batch.shape[1]) if encoding != "none" else None
    embeds = model.model.embed_tokens(batch)
    assert_close(model(batch).logits, model(inputs_embeds=embeds, position_ids=ids).logits)


@pytest.mark.parametrize("shared", [True, False])
def test_learned_tables_of_two_levels_are_added(two_levels, shared):
    encoding = build("learned", coupling=two_levels, position_levels=2, share_level_tables=shared).model.position_encoding
    first, second = encoding.tables[0].weight, encoding.tables[0 if shared else 1].weight
    assert len(encoding.tables) == (1 if shared else 2)
    embedded = encoding.embed(torch.zeros(1, 2, 32).double(), torch.tensor([[[3, 0], [1, 2]]]))
    assert_close(embedded[0], torch.stack([first[3] + second[1], first[0] + second[2]]))


def test_sum_too_long_for_the_learned_table_is_refused_with_the_longest_that_fits():
    model = build("learned", max_position_ids=5)
    model(TOKENS)
    with pytest.raises(ValueError, match=r"must be in 0..5, 0 for none .*operands of 3 digits.*, got 6"):
        model(build_tokenizer()("1234+1=", return_tensors="pt").input_ids)


def test_illegal_token_ids_are_named_before_the_prompt_is_checked():
    model = CoupledGPTForCausalLM.from_pretrained(longhand.zoo("addition")).train()
    ids = torch.ones(1, 5, dtype=torch.long)
    for illegal in (999, -3):
        with pytest.raises(ValueError, match=rf"^input_ids must be in 0\.\.20, the vocabulary, got {illegal}$"):
            model(input_ids=ids * illegal, position_ids=ids)
    with pytest.raises(ValueError, match=r"^input_ids must be a tensor of integers"):
        model(input_ids=ids.float(), position_ids=ids)
    with pytest.raises(ValueError, match="is no prompt of the task 'addition'"):
        model(input_ids=ids, position_ids=ids)


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (CoupledGPTForCausalLM, CoupledGPTConfig()),
        (PairwiseBertForTokenClassification, PairwiseBertConfig(hidden_size=8, num_hidden_layers=1)),
    ],
    ids=["decoder", "encoder"],
)
def test_trainer_keeps_the_columns_that_forward_reads(model_class, config, tmp_path):
    columns, kept = {"input_ids", "attention_mask", "labels"}, set()

    def collate(rows):
        kept.update(rows[0])
        return {"input_ids": torch.tensor([row["input_ids"] for row in rows])}

    rows = Dataset.from_dict({name: [[1]] for name in (*columns, "operands")})
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    next(iter(Trainer(model_class(config), arguments, data_collator=collate, train_dataset=rows).get_train_dataloader()))
    assert columns <= kept and "operands" not in kept


def test_a_saved_model_cannot_be_loaded_with_a_rule_of_another_number_of_levels(tmp_path):
    CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="coupling 'subtraction' has 2 level"):
        CoupledGPTForCausalLM.from_pretrained(tmp_path, coupling="subtraction")
