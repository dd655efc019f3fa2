"""Rows carry what models take: position ids of any levels and pair maps, streamed and on disk, for every task."""

import numpy as np
import pytest
import torch
from cases import all_but, drawn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import longhand
from longhand.data import SPLITS, TASKS, Addition, build_task, load_task_dataset
from longhand.data.families import DECODER
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
    coupled_generate,
)
from longhand.modeling.encoder_maps import RULE_IDS

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
STRUCTURE = {"position_ids": True, "pair_map": True}


def rows_of(task, count=12, **options):
    return list(load_task_dataset(task, **{"max_length": 5, "num_samples": count, "streaming": True} | options))


def model_of(task, coupling=None, **options):
    """A small model of random weights that derives structure by the task's rule, or by another one."""
    torch.manual_seed(0)
    options = task.family.config_options(task) | SMALL | options
    if task.family is DECODER:
        return CoupledGPTForCausalLM(CoupledGPTConfig(**options | ({"coupling": coupling} if coupling else {}))).eval()
    rule = coupling or task.settling_map
    return PairwiseBertForTokenClassification(PairwiseBertConfig(pair_maps=[rule], **options)).eval()


@pytest.mark.parametrize("name", drawn(TASKS, 6))
def test_every_task_makes_every_split_with_default_arguments(name):
    dataset = load_task_dataset(name, split=None, max_length=8, num_samples=20, streaming=True)
    prompts = [{row["prompt"] for row in dataset[split]} for split in SPLITS]
    assert all(prompts) and not prompts[0] & prompts[1] and not prompts[0] & prompts[2] and not prompts[1] & prompts[2]


@pytest.mark.parametrize("name", TASKS)
def test_a_model_computes_the_same_from_rows_as_from_the_tokens(name):
    task = build_task(name)
    batch = longhand.collate_rows(rows_of(name, **STRUCTURE))
    tokens, mask = batch["input_ids"], batch["attention_mask"]
    given = {name: batch[name] for name in ("position_ids", "pair_map")}
    if task.family is not DECODER and task.settling_map not in RULE_IDS:
        # A model with this rule settles, and takes no map of others; a model of given structure does.
        relations = int(given["pair_map"].max()) + 1
        config = PairwiseBertConfig(**SMALL, vocab_size=len(task.tokens), pair_maps=["given"], num_relations=relations)
        model = PairwiseBertForTokenClassification(config).eval()
        unrelated = torch.full_like(given["pair_map"], -1)
        logits = [model(tokens, mask, pair_map=pair_map).logits for pair_map in (given["pair_map"], unrelated)]
        assert not torch.equal(*logits)
        return
    model = model_of(task)
    with torch.inference_mode():
        derived = model(tokens, mask).logits
        for names in (["position_ids"], ["pair_map"]):
            logits = model(tokens, mask, **{name: given[name] for name in names}).logits
            torch.testing.assert_close(logits[mask > 0], derived[mask > 0])


@pytest.mark.parametrize(
    ("name", "coupling", "options"),
    [
        ("addition", "sequential", {"relation_range": (-3, 2), "windowed": False}),
        ("addition", "abacus", {"relation_range": (-1, 1)}),
        ("subtraction", "subtraction", {"relation_range": (0, 1, -1, 1), "windowed": False}),
        ("encoder_addition", "relative", {"relation_range": (-4, 4), "windowed": True}),
        ("encoder_multiplication", "relative", {}),
    ],
)
def test_another_rule_range_and_window_are_those_of_a_model_with_the_same_options(name, coupling, options):
    batch = longhand.collate_rows(rows_of(name, coupling=coupling, **STRUCTURE, **options))
    bounds = {"relation_range": list(options["relation_range"])} if options else {}
    dropout = {"attention_probs_dropout_prob": 0.0} if name.startswith("encoder") else {}
    model = model_of(build_task(name), coupling, **{**options, **bounds, **dropout})
    tokens, mask = batch["input_ids"], batch["attention_mask"]
    with torch.inference_mode():
        derived, mapped = (model(tokens, mask, **given).logits for given in ({}, {"pair_map": batch["pair_map"]}))
    torch.testing.assert_close(mapped[mask > 0], derived[mask > 0])


@pytest.mark.parametrize("name", ["addition", "subtraction", "minesweeper", "encoder_addition", "settling_plus_one"])
def test_rows_with_structure_are_the_rows_without_it_streamed_and_on_disk(name, tmp_path, monkeypatch):
    # Several parts of a table, and of a shard.
    monkeypatch.setattr("longhand.data.columns._MAP_CELLS", 2**11)
    monkeypatch.setattr("longhand.data.builder._SHARD_ROWS", 32)
    plain, streamed = rows_of(name, 70), rows_of(name, 70, **STRUCTURE)
    for num_proc in (None, 2):
        stored = load_task_dataset(
            name, max_length=5, num_samples=70, num_proc=num_proc, cache_dir=tmp_path / str(num_proc), **STRUCTURE
        )
        assert list(stored) == streamed
    (part,) = rows_of(name, 70, pair_map=True, rows={"train": (40, 41)})
    assert part == {**plain[40], "pair_map": streamed[40]["pair_map"]}
    for row, bare in zip(streamed, plain, strict=True):
        ids, pair_map = np.array(row.pop("position_ids")), np.array(row.pop("pair_map"))
        tokens = len(row["input_ids"])
        assert row == bare and ids.shape[-1] == tokens and pair_map.shape == (tokens, tokens)


def test_ids_of_any_levels_and_maps_are_padded_as_what_is_not_there():
    rows = [
        {"input_ids": [5] * size, "labels": [1] * size, "position_ids": [[7] * size] * 3, "pair_map": [[2] * size] * size}
        for size in (1, 3)
    ]
    batch = longhand.collate_rows(rows, pad_token_id=99)
    assert batch["input_ids"].tolist() == [[5, 99, 99], [5, 5, 5]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[1, -100, -100], [1, 1, 1]]
    assert batch["position_ids"].tolist() == [[[7, 0, 0]] * 3, [[7, 7, 7]] * 3]
    assert batch["pair_map"].tolist() == [[[2, -1, -1], [-1, -1, -1], [-1, -1, -1]], [[2, 2, 2]] * 3]


ROW = {"input_ids": [1, 2], "labels": [-100, 2], "position_ids": [1, 2], "pair_map": [[0, -1], [0, 0]]}
LEVELS, HEADS = [[1, 2], [0, 1]], [[[0, -1], [0, 0]]] * 3
MALFORMED = [
    *((name, values) for name in ROW for values in ([1.0, 2.0], "12", ["1", "2"], [True, False])),
    *((name, [1, 2, 3]) for name in ("labels", "position_ids")),
    *((name, []) for name in ROW),
    *((name, [None, 1]) for name in ROW),
    ("input_ids", 7),
    ("input_ids", [[1, 2]]),
    ("input_ids", [-1, 2]),
    ("labels", [-101, 2]),
    ("position_ids", [-1, 2]),
    ("position_ids", LEVELS),
    ("position_ids", [LEVELS]),
    ("pair_map", [[0]]),
    ("pair_map", [[0, 0], [0]]),
    ("pair_map", [[0, 0], [0, -2]]),
    ("pair_map", HEADS),
    ("pair_map", [HEADS]),
    ("attention_mask", [1, 1, 1]),
]


@pytest.mark.parametrize("collate", [longhand.collate_rows, longhand.CouplingCollator()])
def test_a_malformed_row_is_refused_by_column_and_row(collate):
    for name, values in MALFORMED:
        rows = [{**ROW, "attention_mask": [1, 1]} for _ in range(3)]
        rows[1][name] = values
        with pytest.raises(ValueError, match=f"{name} .*row 1") as refusal:
            collate(rows)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize("place", [0, 2])
def test_a_column_is_in_every_row_or_in_none(name, place):
    for lacking in ({}, {name: None}):
        rows = [{**ROW} for _ in range(3)]
        del rows[place][name]
        rows[place] |= lacking
        with pytest.raises(ValueError, match=f"row {place} .* no {name}"):
            longhand.collate_rows(rows)


def test_rows_of_arrays_levels_and_heads_make_the_batch_of_lists():
    lists = [{**ROW, "position_ids": LEVELS, "pair_map": HEADS, "prompt": "1+1"} for _ in range(2)]
    batch = longhand.collate_rows(lists)
    for make in (np.array, torch.tensor):
        made = longhand.collate_rows([{name: make(own) for name, own in row.items() if name != "prompt"} for row in lists])
        assert batch.keys() == made.keys() and all(torch.equal(batch[name], made[name]) for name in batch)


def test_a_mask_of_rows_is_passed_on():
    rows = [{"input_ids": [1, 2], "attention_mask": [0, 1]}, {"input_ids": [1], "attention_mask": [1]}]
    assert longhand.collate_rows(rows)["attention_mask"].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("rows", [[], None, {"input_ids": [1]}, [[1, 2]], "1\n2"])
def test_what_is_no_list_of_rows_is_refused(rows):
    with pytest.raises(ValueError, match="rows") as refusal:
        longhand.collate_rows(rows)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("filler", [None, 1.5, "0", True, -1, 10**30])
def test_padding_is_a_whole_number(filler):
    with pytest.raises(ValueError, match="pad_token_id"):
        longhand.collate_rows([ROW], pad_token_id=filler)


LEARNED = {"position_encoding": "learned", "max_position_ids": 50}


@pytest.mark.parametrize("given", [False, True])
def test_a_collator_moves_the_ids_of_each_row_to_random_starts(given):
    rows = rows_of("addition_scratchpad" if given else "addition", 200, position_ids=given)
    collator = longhand.CouplingCollator(None if given else "addition", 60, "random_start")
    fixed, batch = longhand.CouplingCollator(collator.coupling)(rows), collator(rows)
    ids, moved = fixed["position_ids"], batch["position_ids"]
    assert ((ids > 0) == (moved > 0)).all() and moved.max() <= 60
    # At every level, one number a row.
    offset = (moved - ids).where(ids > 0, 0).amax(-1, keepdim=True)
    assert torch.equal(moved, (ids + offset).where(ids > 0, 0)) and offset.unique().numel() > 40
    assert (offset.flatten(1).amin(0) == 0).all()


def test_random_ids_are_a_function_of_the_seed_and_of_the_rows_in_their_order():
    rows = rows_of("addition", 20)
    ids = {}
    for name, seed, chosen in [
        ("batch", 0, rows),
        ("again", 0, rows),
        ("seed", 1, rows),
        ("order", 0, rows[::-1]),
        ("others", 0, rows[:19]),
    ]:
        # Other draws of the process, as in a resumed one, change nothing.
        torch.rand(3)
        collator = longhand.CouplingCollator("addition", 200, "random_start", seed=seed)
        ids[name] = collator(chosen)["position_ids"].amax(1)
    assert torch.equal(ids["batch"], ids["again"])
    others = {"seed": ids["seed"], "order": ids["order"].flip(0), "others": ids["others"]}
    for name, own in others.items():
        assert (own != ids["batch"][: len(own)]).float().mean() > 0.8, name
    # Alone in its batch, each row has a start of its own.
    alone = [int(longhand.CouplingCollator("addition", 200, "random_start")([row])["position_ids"].amax()) for row in rows]
    assert len(set(alone)) > 15


class Killed(Exception):
    pass


class KilledAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise Killed


@pytest.mark.parametrize("kind", all_but(["map in two workers"], ["map", "map in two workers", "stream"]))
def test_a_plain_trainer_with_random_starts_that_is_killed_resumes_bit_for_bit(kind, tmp_path):
    streaming = kind == "stream"
    workers = 2 if kind == "map in two workers" else 0

    def trainer_into(name, killed_at=None):
        model = model_of(build_task("addition"), **LEARNED)
        # A map is met twice, and the run is killed in the second epoch. Trainer skips no whole epoch of a stream.
        count = 64 if streaming else 16
        rows = load_task_dataset("addition", max_length=5, num_samples=count, streaming=streaming, cache_dir=tmp_path)
        arguments = TrainingArguments(
            tmp_path / name, max_steps=8, per_device_train_batch_size=4, learning_rate=0.01, save_steps=5, use_cpu=True,
            report_to="none", disable_tqdm=True, dataloader_num_workers=workers,
        )  # fmt: skip
        collator = longhand.CouplingCollator.for_model(model)
        callbacks = [KilledAt(killed_at)] if killed_at else None
        return Trainer(model, arguments, train_dataset=rows, data_collator=collator, callbacks=callbacks)

    whole = trainer_into("whole")
    whole.train()
    with pytest.raises(Killed):
        trainer_into("cut", killed_at=7).train()
    resumed = trainer_into("cut")
    resumed.train(resume_from_checkpoint=True)
    for name, weights in whole.model.state_dict().items():
        assert torch.equal(weights, resumed.model.state_dict()[name]), name


OTHERS = {
    # As many heads as levels: unnoticed, this one takes each level for a head, if its batch has one row.
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(vocab_size=40, num_key_value_heads=2, max_position_embeddings=64, **SMALL)
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    ),
    "bert": lambda: BertForMaskedLM(BertConfig(vocab_size=40, max_position_embeddings=64, **SMALL)),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("sampling", ["fixed", "random_start"])
@pytest.mark.parametrize("name", OTHERS)
def test_rows_of_two_levels_are_refused_for_a_model_of_others_until_it_has_them(name, sampling, count):
    rows = rows_of("subtraction", count, position_ids=True)
    one_level = rows_of("addition", count, position_ids=True)
    model = OTHERS[name]()
    options = {} if sampling == "fixed" else {"max_position_ids": 40}
    collator = longhand.CouplingCollator.for_model(model, sampling, **options)
    assert torch.isfinite(model(**collator(one_level)).loss)
    with pytest.raises(
        ValueError, match=r"rows have 2 ids a token, and the model reads 1: .*with_structure\(model, levels=2\)"
    ):
        collator(rows)
    structured = longhand.with_structure(OTHERS[name](), levels=2)
    collator = longhand.CouplingCollator.for_model(structured, sampling, **options)
    assert torch.isfinite(structured(**collator(rows)).loss)
    with pytest.raises(ValueError, match="rows have 3 ids a token, and the model reads 2"):
        collator([row | {"position_ids": [*row["position_ids"], row["position_ids"][0]]} for row in rows])


def test_random_ids_are_taken_in_training_alone():
    model = model_of(build_task("addition"), **LEARNED)
    batch = longhand.CouplingCollator.for_model(model)(rows_of("addition"))
    labels = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        assert torch.equal(model.eval()(**batch).logits, model(**labels).logits)
        trained = model.train()(**batch).logits
        assert not torch.equal(trained, model(**labels).logits)
        assert torch.equal(trained, model(**labels, position_ids=batch["drawn_position_ids"]).logits)


TRAINING = {
    "random starts": ({}, {"position_sampling": "random_start", "max_position_ids": 90}, False),
    "factors": ({}, {"position_sampling": "multiplier", "max_multiplier": 5}, False),
    "a ring": ({}, {"position_sampling": "batch_start", "max_position_ids": 10, "wrap_position_ids": True}, False),
    "subsets": (
        {"position_ids": False},
        {"coupling": "addition", "position_sampling": "randomized", "max_position_ids": 90},
        False,
    ),
    "another rule": ({"coupling": "sequential"}, {}, True),
    "no ids in operands": ({"coupling": "abacus"}, {}, True),
}


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("place", [0, -1])
def test_training_on_ids_of_another_rule_says_once_that_generate_plans_by_the_models_own(name, place, caplog):
    columns, sampling, warns = TRAINING[name]
    model = model_of(build_task("addition"), position_encoding="rotary").train()
    rows = sorted(rows_of("addition", **{"position_ids": True} | columns), key=lambda row: len(row["input_ids"]))
    batch = longhand.CouplingCollator(**sampling)([rows[place], *rows])
    for _ in range(2):
        model(**batch)
    assert [record.message.count("generate() plans") for record in caplog.records] == [1] * warns


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"position_sampling": "random"}, "position_sampling 'random' is unknown: choose one of fixed, random_start"),
        ({"position_sampling": "random_start"}, "position_sampling 'random_start' needs max_position_ids"),
        ({"position_sampling": "multiplier"}, "position_sampling 'multiplier' needs max_multiplier"),
        ({"max_position_ids": 9.5}, "max_position_ids must be an integer"),
        ({"position_sampling": "multiplier", "max_multiplier": 0}, "must be an integer"),
        *(({"start": start}, "start must be an integer") for start in (0, "x", 1.0, True, 10**30)),
        *(
            ({"position_sampling": "random_start", "level_position_ids": (9, level)}, "level_position_ids must be an int")
            for level in (0, 9.5, True)
        ),
        ({"coupling": "unknown"}, "coupling must be a rule, or the name of one"),
        ({"wrap_position_ids": True}, "wrap_position_ids is for position_sampling 'random_start' or 'batch_start'"),
        ({"level_position_ids": (9, 9)}, "level_position_ids is for position_sampling 'random_start', got it with 'fixed'"),
        (
            {
                "position_sampling": "random_start",
                "max_position_ids": 9,
                "wrap_position_ids": True,
                "level_position_ids": (9, 9),
            },
            "level_position_ids is for ids that do not wrap",
        ),
        ({"max_multiplier": 3}, "max_multiplier is for position_sampling 'multiplier', got it with 'fixed'"),
        (
            {"position_sampling": "randomized", "max_position_ids": 9},
            "'randomized' needs the coupling rule",
        ),
    ],
    ids=str,
)
def test_a_collator_that_cannot_draw_says_what_it_needs(options, reason):
    with pytest.raises(ValueError, match=reason):
        longhand.CouplingCollator(**options)


@pytest.mark.parametrize("coupling", ["unknown", 3, ["addition"]])
def test_an_unknown_rule_is_refused_with_the_known_ones(coupling):
    for call in (
        lambda: longhand.CouplingCollator(coupling)(rows_of("addition")),
        lambda: coupled_generate(None, coupling, torch.tensor([[1]])),
        lambda: rows_of("addition", position_ids=True, coupling=coupling),
    ):
        with pytest.raises(ValueError, match=r"coupling .*addition"):
            call()


def test_rows_without_ids_and_ids_without_room_are_refused():
    collator = longhand.CouplingCollator(position_sampling="random_start", max_position_ids=3)
    for reason, use in [
        ("rows have no position_ids", lambda: collator(rows_of("addition"))),
        ("max_position_ids must be at least", lambda: collator(rows_of("addition", position_ids=True))),
        (
            "not for position_encoding 'pairwise'",
            lambda: longhand.CouplingCollator.for_model(model_of(Addition()), "random_start"),
        ),
    ]:
        with pytest.raises(ValueError, match=reason):
            use()


# A learned table is trained twice, a quarter of a minute each.
@pytest.mark.release
def test_a_plain_trainer_learns_a_table_of_ids_with_random_starts_and_not_without(tmp_path):
    def trained(random_starts):
        set_seed(0)
        options = {"hidden_size": 96, "num_attention_heads": 2, "intermediate_size": 256, "norm_placement": "pre_post"}
        options |= {"position_init": "orthogonal", "qk_norm": True, "attention_scale": "log_length"}
        model = CoupledGPTForCausalLM(CoupledGPTConfig(position_encoding="learned", max_position_ids=14, **options))
        arguments = TrainingArguments(
            tmp_path, max_steps=800, per_device_train_batch_size=64, learning_rate=4e-3, warmup_steps=50,
            lr_scheduler_type="cosine", weight_decay=0.01, report_to="none", save_strategy="no", use_cpu=True,
        )  # fmt: skip
        rows = load_task_dataset("addition", max_length=5, num_samples=20_000, cache_dir=tmp_path)
        longer = {"min_length": 8, "max_length": 8, "num_samples": 200, "cache_dir": tmp_path}
        trainer = Trainer(
            model, arguments, train_dataset=rows, eval_dataset=load_task_dataset("addition", split="test", **longer),
            data_collator=longhand.CouplingCollator.for_model(model) if random_starts else longhand.collate_rows,
            compute_metrics=longhand.compute_metrics, preprocess_logits_for_metrics=longhand.preprocess_logits(model),
        )  # fmt: skip
        trainer.train()
        return trainer.evaluate()["eval_exact_match"]

    assert trained(random_starts=True) > 0.7
    assert trained(random_starts=False) < 0.1
