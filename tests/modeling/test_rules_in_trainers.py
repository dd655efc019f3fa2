"""With a rule, other tools need nothing beside the text: each call of the model has structure."""

import importlib
from dataclasses import dataclass, field

import pytest
import torch
from test_language_solver import QUESTIONS, small
from test_numbers_in_text import CHAT, SINGLE
from transformers import pipeline

import longhand
from longhand.modeling.structured_attention import STRUCTURE

TEXTS = [f"What is {first} + {second}?" for first, second in ((1, 2), (653, 49), (7, 12345), (99, 1))]
ANSWERS = ["3=3", "207=702", "25321=12352", "001=100"]


@dataclass
class Counted:
    """What the calls of a model's first attention were given: the number of related pairs, or None without structure."""

    related: list[int | None] = field(default_factory=list)

    @property
    def all_had_structure(self) -> bool:
        """Whether each call had structure. A token that asks for no digit is related to none."""
        return None not in self.related and sum(number or 0 for number in self.related) > 0


def counted(model):
    """Count the calls of a model's attention."""
    count, attention = Counted(), model.model.layers[0].self_attn
    forward = attention.forward

    def count_and_call(*arguments, **kwargs):
        relations = getattr(kwargs.get(STRUCTURE), "relations", None)
        count.related.append(None if relations is None else int((relations >= 0).sum()))
        return forward(*arguments, **kwargs)

    attention.forward = count_and_call
    return count


@pytest.fixture
def ruled():
    """A small Llama with the rule for numbers behind a chat template, its tokenizer, and its count."""
    tokenizer = SINGLE["digits"]()
    tokenizer.chat_template, tokenizer.pad_token = CHAT, tokenizer.eos_token
    model = small(tokenizer, rule=longhand.numbers_in_text(tokenizer, separator="="))
    return model, tokenizer, counted(model)


def test_a_pipeline_and_a_chat(ruled):
    model, tokenizer, count = ruled
    generator = pipeline("text-generation", model=model, tokenizer=tokenizer)
    chat = [[{"role": "user", "content": text}] for text in TEXTS]
    options = {"max_new_tokens": 5, "do_sample": False, "return_full_text": False}
    together = generator(chat, batch_size=len(chat), **options)
    assert count.all_had_structure and len(count.related) == 5
    assert together == [generator(messages, **options) for messages in chat], "padding changes no answer"
    generator(QUESTIONS, max_new_tokens=2)
    assert count.all_had_structure


def learned(model, before):
    """Whether the table has moved."""
    return not torch.equal(model.structure.table.detach(), before)


def trl_settings(name, folder, **options):
    """Arguments of a trainer of TRL for a few steps on the processor."""
    trl = pytest.importorskip("trl")
    common = {"max_steps": 2, "per_device_train_batch_size": 2, "report_to": "none", "use_cpu": True, "bf16": False}
    return getattr(trl, name)(str(folder), learning_rate=1e-2, save_strategy="no", disable_tqdm=True, **common, **options)


@pytest.mark.slow
def test_supervised_fine_tuning_of_trl(ruled, tmp_path):
    trl = pytest.importorskip("trl")
    datasets = importlib.import_module("datasets")
    model, tokenizer, count = ruled
    before = model.structure.table.detach().clone()
    rows = [
        {"prompt": [{"role": "user", "content": text}], "completion": [{"role": "assistant", "content": answer}]}
        for text, answer in zip(TEXTS, ANSWERS, strict=True)
    ]
    trainer = trl.SFTTrainer(
        model,
        args=trl_settings("SFTConfig", tmp_path),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    assert count.all_had_structure and learned(model, before)


@pytest.mark.slow
def test_preferences_of_trl(ruled, tmp_path):
    trl = pytest.importorskip("trl")
    datasets = importlib.import_module("datasets")
    model, tokenizer, count = ruled
    before = model.structure.table.detach().clone()
    rows = [
        {
            "prompt": [{"role": "user", "content": text}],
            "chosen": [{"role": "assistant", "content": answer}],
            "rejected": [{"role": "assistant", "content": answer[::-1]}],
        }
        for text, answer in zip(TEXTS, ANSWERS, strict=True)
    ]
    # By itself, TRL loads the reference by the model's name, without structure; an adapter of PEFT needs no other one.
    reference = small(tokenizer, rule=model.structure_rule)
    reference_count = counted(reference)
    trainer = trl.DPOTrainer(
        model,
        ref_model=reference,
        args=trl_settings("DPOConfig", tmp_path),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    assert count.all_had_structure and reference_count.all_had_structure and learned(model, before)


@pytest.mark.slow
def test_rewards_of_trl(ruled, tmp_path):
    trl = pytest.importorskip("trl")
    datasets = importlib.import_module("datasets")
    model, tokenizer, count = ruled
    before = model.structure.table.detach().clone()
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in TEXTS]

    def reward(completions, **_):
        return [float(hash(str(completion)) % 7) for completion in completions]

    settings = trl_settings("GRPOConfig", tmp_path, num_generations=2, max_completion_length=4)
    trainer = trl.GRPOTrainer(
        model,
        reward_funcs=reward,
        args=settings,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    assert count.all_had_structure and learned(model, before)


@pytest.mark.slow
def test_lm_evaluation_harness(ruled):
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model, tokenizer, count = ruled
    harness = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, device="cpu")
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
        for text in TEXTS
    ]
    settings = {"until": ["<end>"], "max_gen_toks": 4}
    asked = [Instance("generate_until", {}, (prompt, settings), place) for place, prompt in enumerate(prompts)]
    written = harness.generate_until(asked)
    scored = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(zip(prompts, ANSWERS, strict=True))]
    scores = harness.loglikelihood(scored)
    assert len(written) == len(scores) == len(TEXTS) and count.all_had_structure
    # The harness counts the end of the marker, which is white space, among the tokens that it scores.
    ids = tokenizer(prompts[1] + ANSWERS[1], add_special_tokens=False, return_tensors="pt")["input_ids"]
    scored_tokens = 1 + len(tokenizer(ANSWERS[1], add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        logits = model(ids).logits[0, -scored_tokens - 1 : -1].log_softmax(-1)
    assert scores[1][0] == pytest.approx(float(logits.gather(1, ids[:, -scored_tokens:].T).sum()), abs=1e-3)
