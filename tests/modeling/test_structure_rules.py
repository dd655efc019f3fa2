"""A model derives its structure from its tokens by a rule, in the forward pass and at each step of generate()."""

import json
import warnings
from dataclasses import dataclass

import pytest
import torch
from structured_subjects import COLUMNS, RELATIONS, TOKENS, ids_of, in_pairs, plain
from transformers import DynamicCache

import longhand
from longhand.modeling.structure_rules import STRUCTURE_RULES, structure_rule

DECODERS = ("llama", "mistral", "gemma3")
PARTS = ("pair_map", "position_bias", "attention_mask", "position_ids", "levels")
PADDING = 3


@dataclass(frozen=True)
class FromTokens:
    """Structure that follows from the two tokens of each pair; padding has no say in it."""

    parts: tuple[str, ...] = PARTS[:4]

    def __call__(self, input_ids, attention_mask):
        own, other = input_ids.unsqueeze(2), input_ids.unsqueeze(1)
        mixed = own * 7 + other * 5
        everything = {
            "pair_map": mixed % (RELATIONS + 1) - 1,
            "position_bias": ((mixed % 11).float() / 4).unsqueeze(1),
            "attention_mask": ((mixed % 3 > 0).tril() | torch.eye(own.shape[1], dtype=torch.bool)).unsqueeze(1),
            "position_ids": (attention_mask.cumsum(1) // 2).clamp(min=0),
        }
        given = {part: everything[part] for part in self.parts if part in everything}
        if "levels" in self.parts:
            given["position_ids"] = torch.stack([attention_mask.cumsum(1) // 2, input_ids % 4], dim=1)
        return given


def ruled(parts, kind="llama", implementation="eager", rule=None):
    """A model with random tables and a rule of these parts."""
    tables = {"levels": 2} if "levels" in parts else {"num_relations": RELATIONS} if "pair_map" in parts else {}
    model = longhand.with_structure(plain(kind, implementation), rule=rule or FromTokens(parts), **tables)
    if tables:
        with torch.no_grad():
            model.structure.table.copy_(torch.randn(model.structure.table.shape, generator=torch.Generator().manual_seed(3)))
    return model


def greedy(model, ids, rule, steps=COLUMNS - TOKENS):
    """The best tokens by forward passes over all tokens, each of which is given what the rule says of them."""
    for _ in range(steps):
        given = {"attention_mask": torch.ones_like(ids), **rule(ids, torch.ones_like(ids))}
        best = model(ids, use_cache=False, **given).logits[:, -1].argmax(-1)
        ids = torch.cat([ids, best.unsqueeze(1)], dim=1)
    return ids


EACH = [(part,) for part in PARTS] + [PARTS[:4], ("levels", "attention_mask")]
CACHES = [{}, {"use_cache": False}, {"cache_implementation": "static"}, {"cached": 4}]


@pytest.mark.parametrize("parts", EACH, ids=" ".join)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_forward_is_given_what_the_rule_says(parts, implementation):
    model, ids = ruled(parts, implementation=implementation), ids_of()
    said = FromTokens(parts)(ids, torch.ones_like(ids))
    with torch.no_grad():
        by_rule, given = model(ids).logits, model(ids, **said).logits
        without = plain("llama", implementation)(ids).logits
    assert torch.equal(by_rule, given) and not torch.allclose(by_rule, without, atol=1e-3)


def test_an_encoder_asks_the_rule_too():
    parts = PARTS[:3]
    model, ids = ruled(parts, "bert", "sdpa"), ids_of()
    said = FromTokens(parts)(ids, torch.ones_like(ids))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (0, 3))
    padded = torch.nn.functional.pad(ids, (0, 3), value=5)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, model(ids, **said).logits)
        torch.testing.assert_close(model(padded, attention_mask=mask).logits[:, :TOKENS], model(ids).logits)


@pytest.mark.parametrize("parts", EACH, ids=" ".join)
def test_generate_asks_the_rule_at_each_step(parts):
    model = ruled(parts, implementation="sdpa")
    with torch.no_grad():
        expected = greedy(model, ids_of(), FromTokens(parts))
    for options in CACHES:
        assert torch.equal(generate(model, **options), expected), options


@pytest.mark.parametrize("kind", DECODERS[1:])
@pytest.mark.parametrize("parts", [PARTS[:1], PARTS[2:3], PARTS[:4]], ids=" ".join)
def test_layers_with_windows_generate_by_a_rule_too(kind, parts):
    model = ruled(parts, kind, "sdpa")
    with torch.no_grad():
        expected = greedy(model, ids_of(), FromTokens(parts))
    assert torch.equal(generate(model), expected) and torch.equal(generate(model, use_cache=False), expected)


def generate(model, cached=0, ids=None, **options):
    """Greedy tokens; of so many tokens a cache has keys before."""
    ids = ids_of() if ids is None else ids
    if cached:
        options["cache"] = DynamicCache(config=model.config)
        said = model.structure_rule(ids[:, :cached], torch.ones(2, cached).long())
        with torch.no_grad():
            model(ids[:, :cached], cache=options["cache"], **said)
    return model.generate(ids, do_sample=False, eos_token_id=None, max_new_tokens=COLUMNS - TOKENS, **options)


@pytest.mark.parametrize("parts", EACH, ids=" ".join)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_padding_on_the_left_changes_no_token(parts, implementation):
    model = ruled(parts, implementation=implementation)
    expected = generate(model)[:, TOKENS:]
    around = (PADDING, 0)
    ids, mask = (torch.nn.functional.pad(part, around) for part in (ids_of(), torch.ones(2, TOKENS).long()))
    assert torch.equal(generate(model, ids=ids, attention_mask=mask)[:, TOKENS + PADDING :], expected)


@pytest.mark.parametrize("options", [{"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "top_k": 5}], ids=str)
def test_beams_and_samples_are_the_same_with_and_without_a_cache(options):
    model, written = ruled(PARTS[:4], implementation="sdpa"), []
    for use_cache in (True, False):
        torch.manual_seed(0)
        written.append(model.generate(ids_of(), eos_token_id=None, max_new_tokens=6, use_cache=use_cache, **options))
    assert torch.equal(*written)


def test_given_structure_wins():
    model, ids = ruled(PARTS[:4]), ids_of()
    other = FromTokens(("pair_map",))(ids.flip(1), torch.ones_like(ids))
    same = ruled(("pair_map",), rule=FromTokens(("pair_map",)))
    same.structure_rule = same.base_model.structure_rule = None
    with torch.no_grad():
        assert torch.equal(model(ids, **other).logits, same(ids, **other).logits)


def test_the_base_of_a_model_asks_the_rule_once():
    """Some trainers call the base of a model and its head by themselves."""
    calls = []

    def rule(input_ids, attention_mask):
        calls.append(1)
        return FromTokens()(input_ids, attention_mask)

    model, ids = ruled(PARTS[:4], rule=rule), ids_of()
    with torch.no_grad():
        expected = model(ids).logits
        assert len(calls) == 1
        assert torch.equal(model.lm_head(model.base_model(ids).last_hidden_state), expected)


@pytest.mark.parametrize("parts", [PARTS[1:2], PARTS[2:3], (*PARTS[:3],)], ids=" ".join)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_masks_and_biases_are_plans_too(parts, added, rows):
    """A mask may be of bools, or be added to scores; one row stands for all."""
    rule, model = FromTokens(parts), ruled(parts, implementation="sdpa")
    model.structure_rule = model.base_model.structure_rule = None
    tokens = torch.randint(3, 60, (rows, COLUMNS), generator=torch.Generator().manual_seed(5))
    plan = rule(tokens, torch.ones_like(tokens))
    if added and "attention_mask" in plan:
        plan["attention_mask"] = torch.zeros(plan["attention_mask"].shape).masked_fill(~plan["attention_mask"], -1e30)
    ids = ids_of()
    with torch.no_grad():
        for columns in range(TOKENS, COLUMNS):
            given = {name: part[..., :columns, :columns] for name, part in plan.items()}
            best = model(ids, use_cache=False, **{"attention_mask": torch.ones_like(ids), **given}).logits[:, -1].argmax(-1)
            ids = torch.cat([ids, best.unsqueeze(1)], dim=1)
    for options in ({}, {"use_cache": False}, {"cache_implementation": "static"}):
        written = model.generate(ids_of(), do_sample=False, eos_token_id=None, **plan, **options)
        assert torch.equal(written, ids), options


def looks_ahead(part):
    """A rule whose part depends on the last token."""

    def rule(input_ids, attention_mask):
        said = FromTokens((part, "attention_mask"))(input_ids, attention_mask)
        name = "position_ids" if part == "levels" else part
        last = input_ids[:, -1:] % 2
        shape = (-1, *[1] * (said[name].ndim - 1))
        said[name] = said[name] & (last.view(shape) > 0) if part == "attention_mask" else said[name] + last.view(shape)
        return said

    return rule


@pytest.mark.parametrize("part", PARTS)
def test_a_rule_that_looks_ahead_is_refused(part):
    longhand.check_rule(FromTokens((part, "attention_mask")), ids_of())
    longhand.check_rule(FromTokens((part,)), [ids_of(), ids_of()[:, 2:]])
    with pytest.raises(ValueError, match=r"^the rule rule looks ahead.*") as refusal:
        longhand.check_rule(looks_ahead(part), ids_of())
    assert "\n" not in str(refusal.value)


def test_a_mask_that_shows_what_follows_is_refused_but_for_a_prefix():
    def prefix(input_ids, attention_mask):
        columns = torch.arange(input_ids.shape[1])
        return {"attention_mask": ((columns <= columns.unsqueeze(1)) | (columns < 4))[None, None]}

    longhand.check_rule(prefix, ids_of(), prompt=4)
    with pytest.raises(ValueError, match="looks ahead"):
        longhand.check_rule(prefix, ids_of())


WRONG = {
    "another shape": ({"pair_map": torch.zeros(2, TOKENS, TOKENS + 1).long()}, "must be"),
    "another batch": ({"position_bias": torch.zeros(3, 1, TOKENS, TOKENS)}, "must be"),
    "a mask of tokens": ({"attention_mask": torch.ones(2, TOKENS).long()}, "attention_mask must be"),
    "no relation": ({"pair_map": torch.full((1, TOKENS, TOKENS), RELATIONS)}, "must be in"),
    "another word": ({"pair_maps": torch.zeros(1, TOKENS, TOKENS)}, "pair_map"),
    "no tensor": ({"pair_map": [[0]]}, "tensor"),
    "no dict": (torch.zeros(2), "dict"),
    "ids of levels": ({"position_ids": torch.ones(1, 2, TOKENS).long()}, "levels"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_rule_that_says_something_else_is_refused_in_a_line(case):
    answer, reason = WRONG[case]
    model = ruled(("pair_map",), rule=lambda input_ids, attention_mask: answer)
    for call in (lambda: model(ids_of()), lambda: generate(model)):
        with pytest.raises(ValueError, match=reason) as refusal:
            call()
        assert "the rule" in str(refusal.value) and "\n" not in str(refusal.value)


def test_what_cannot_be_asked_as_a_rule_is_refused_in_a_line():
    def of_tokens(input_ids):
        return {}

    calls = [
        lambda: longhand.with_structure(plain(), rule=of_tokens),
        lambda: longhand.check_rule(of_tokens, ids_of()),
        lambda: longhand.check_rule("numbers", ids_of()),
        lambda: longhand.check_rule(FromTokens(), ["12+34"]),
        lambda: longhand.check_rule(FromTokens(), "12+34"),
        lambda: longhand.check_rule(FromTokens(), ids_of()[0]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"must (be|take)") as refusal:
            call()
        assert "\n" not in str(refusal.value)


def test_tokens_that_the_rule_cannot_read_are_refused():
    model, ids = ruled(PARTS[:4]), ids_of()
    embeddings, cache = model.get_input_embeddings()(ids), DynamicCache(config=model.config)
    model(ids[:, :4], cache=cache, **FromTokens()(ids[:, :4], torch.ones(2, 4).long()))
    calls = [
        lambda: model(inputs_embeds=embeddings),
        lambda: model(ids[:, 4:], cache=cache),
        lambda: model.generate(inputs_embeds=embeddings, max_new_tokens=2),
        lambda: model.generate(ids[:, 4:], attention_mask=torch.ones_like(ids), cache=cache, max_new_tokens=2),
        lambda: model.generate(ids, max_new_tokens=2, prompt_lookup_num_tokens=2),
        lambda: longhand.with_structure(plain(), rule="numbers"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="rule"):
            call()


@structure_rule
@dataclass(frozen=True)
class RegisteredForTests:
    """A rule with an argument."""

    num_relations: int = RELATIONS
    step: int = 1

    def __call__(self, input_ids, attention_mask):
        return {"pair_map": (input_ids.unsqueeze(1) * self.step + input_ids.unsqueeze(2)) % self.num_relations}


def test_a_registered_rule_is_saved_by_name_and_arguments(tmp_path):
    rule = RegisteredForTests(step=2)
    model = longhand.with_structure(plain(), rule=rule)
    torch.nn.init.normal_(model.structure.table)
    model.save_structure(tmp_path / "structure")
    model.save_pretrained(tmp_path / "whole")
    assert not list(tmp_path.rglob("*.py"))
    for folder in ("structure", "whole"):
        again = longhand.with_structure(plain(), tmp_path / folder)
        assert again.structure_rule == rule and torch.equal(again(ids_of()).logits, model(ids_of()).logits)
    held = STRUCTURE_RULES.pop("RegisteredForTests")
    try:
        with pytest.raises(ValueError, match=r"RegisteredForTests.*import"):
            longhand.with_structure(plain(), tmp_path / "structure")
        assert longhand.with_structure(plain(), tmp_path / "structure", rule=rule).structure_rule == rule
    finally:
        STRUCTURE_RULES["RegisteredForTests"] = held
    with pytest.raises(ValueError, match="dataclass"):
        structure_rule(type("NoFields", (), {}))


OWN_FILE = """
from dataclasses import dataclass
HELPER

def whole(input_ids, attention_mask):
    return {"pair_map": mixed(input_ids, 1)}

@dataclass
class Stepped:
    step: int
    def __call__(self, input_ids, attention_mask):
        return {"pair_map": mixed(input_ids, self.step)}

def made(step):
    return lambda input_ids, attention_mask: {"pair_map": mixed(input_ids, step)}
""".replace("HELPER", "from .own_helper import mixed")


def test_a_rule_of_a_file_travels_with_the_model(tmp_path, monkeypatch):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "own_helper.py").write_text(
        f"def mixed(ids, step):\n    return (ids[:, None] * step + ids[..., None]) % {RELATIONS}\n"
    )
    (package / "own_rules.py").write_text(OWN_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    from own_package import own_rules  # type: ignore[import-not-found]

    for number, rule in enumerate((own_rules.whole, own_rules.Stepped(3))):
        model, folder = ruled(("pair_map",), rule=rule), tmp_path / str(number)
        model.save_structure(folder)
        with pytest.raises(ValueError, match=r"own_rules.py.*trust_remote_code"):
            longhand.with_structure(plain(), folder)
        again = longhand.with_structure(plain(), folder, trust_remote_code=True)
        assert torch.equal(again(ids_of()).logits, model(ids_of()).logits)
        again.save_structure(tmp_path / f"{number}-again")
        assert (tmp_path / f"{number}-again" / "own_rules.py").read_text() == OWN_FILE
        (folder / "own_rules.py").unlink()
        with pytest.raises(ValueError, match="has no rule"):
            longhand.with_structure(plain(), folder, trust_remote_code=True)
    ruled(("pair_map",), rule=own_rules.made(2)).save_structure(tmp_path / "made")
    with pytest.raises(ValueError, match="was not saved"):
        longhand.with_structure(plain(), tmp_path / "made", trust_remote_code=True)


def test_a_rule_without_tables_is_saved(tmp_path):
    model = longhand.with_structure(plain(), rule=in_pairs)
    model.save_structure(tmp_path)
    described = json.loads((tmp_path / "structure_config.json").read_text())["rule"]
    assert described == {"name": "in_pairs", "arguments": None, "file": "structured_subjects.py"}
    again = longhand.with_structure(plain(), tmp_path, trust_remote_code=True)
    assert torch.equal(again(ids_of()).logits, model(ids_of()).logits)
    with pytest.raises(ValueError, match="no tables to save, and no rule"):
        longhand.with_structure(plain()).save_structure(tmp_path)


@pytest.mark.parametrize("given", [{}, {"position_ids": torch.arange(TOKENS).unsqueeze(0)}], ids=["nothing", "positions"])
def test_training_without_structure_warns_once(given):
    model = longhand.with_structure(plain(), num_relations=RELATIONS, rule=FromTokens() if given else None).train()
    with pytest.warns(UserWarning, match="learn nothing"):
        model(ids_of(), **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(ids_of(), **given)
        ruled(PARTS[:4]).train()(ids_of())
        longhand.with_structure(plain(), num_relations=RELATIONS).eval()(ids_of())
        ruled(("position_ids",)).train()(ids_of())


def test_lora_beside_tables_that_are_not_trained_warns_once():
    peft = pytest.importorskip("peft")
    given = FromTokens(("pair_map",))(ids_of(), torch.ones_like(ids_of()))
    for saved in (None, ["structure"]):
        model = longhand.with_structure(plain(), num_relations=RELATIONS)
        config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=saved)
        adapted = peft.get_peft_model(model, config).train()
        if saved is None:
            with pytest.warns(UserWarning, match="modules_to_save"):
                adapted(ids_of(), **given)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            adapted(ids_of(), **given)


def test_tables_have_their_own_rate_in_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    peft = pytest.importorskip("peft")
    model = longhand.with_structure(plain(), num_relations=RELATIONS, rule=FromTokens(("pair_map",)))
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["structure"])
    adapted = peft.get_peft_model(model, config)
    optimizer = torch.optim.AdamW(longhand.structure_parameters(adapted, learning_rate=1e-3))
    rows = [{"input_ids": row.tolist(), "labels": row.tolist()} for row in ids_of(8)]
    arguments = TrainingArguments(
        str(tmp_path), max_steps=2, report_to="none", use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant"
    )
    Trainer(adapted, arguments, train_dataset=rows, optimizers=(optimizer, None)).train()
    others, tables = optimizer.param_groups
    assert tables["lr"] == pytest.approx(20 * others["lr"]) and len(tables["params"]) == 1
    assert float(tables["params"][0].detach().abs().max()) > 0.01 and len(others["params"]) == 4
    assert len(longhand.structure_parameters(plain(), 1e-3)) == 1
    with pytest.raises(ValueError, match="trainable"):
        longhand.structure_parameters(plain().requires_grad_(False), 1e-3)
