"""Models of others learn structure by the ways that their users know: Trainer, PEFT, TRL, Accelerate, torch.compile, DDP."""

import inspect
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import peft
import pytest
import torch
from structured_subjects import RELATIONS, TOKENS, ids_of, map_of, plain, structured
from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

import longhand
from longhand import CoupledGPTConfig, CoupledGPTForCausalLM

QUIET = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_strategy": "no"}


def rows(count, tokens=6):
    """Rows whose label is the token that the pair map points at: relation 1, at a place that the tokens do not tell."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        ids = torch.randint(3, 13, (tokens,), generator=generator)
        place = torch.randint(tokens, (tokens,), generator=generator)
        pairs = torch.full((tokens, tokens), -1).scatter_(1, place.unsqueeze(1), 1)
        made.append({"input_ids": ids.tolist(), "labels": (ids[place] % 2).tolist(), "pair_map": pairs.tolist()})
    return made


@pytest.mark.slow
def test_a_plain_trainer_learns_to_read_a_map(tmp_path):
    torch.manual_seed(0)
    model = longhand.with_structure(plain("bert"), num_relations=2, relations_enter="key", trainable="all")
    with torch.no_grad():
        for weights in model.parameters():
            # Those of other tests are large, so that differences show.
            weights.mul_(0.3 if weights.ndim == 2 else 1.0)
    options = {"max_steps": 200, "per_device_train_batch_size": 64, "learning_rate": 2e-3, "warmup_steps": 10}
    arguments = TrainingArguments(tmp_path, **options, **QUIET)
    Trainer(model, arguments, train_dataset=rows(4000), data_collator=longhand.collate_rows).train()
    batch = longhand.collate_rows(rows(200, tokens=12))
    labels = batch.pop("labels")
    with torch.no_grad():
        right = (model.eval()(**batch).logits.argmax(-1) == labels).float().mean()
        hidden = batch | {"pair_map": torch.full_like(batch["pair_map"], -1)}
        guessed = (model(**hidden).logits.argmax(-1) == labels).float().mean()
    # Trained on half as many tokens.
    assert right > 0.85 and guessed < 0.7


def test_trainer_keeps_the_columns_of_structure_and_trains_the_tables_alone(tmp_path):
    from datasets import Dataset

    model = longhand.with_structure(plain("bert"), num_relations=2)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    dataset = Dataset.from_list([row | {"note": "text"} for row in rows(64)])
    arguments = TrainingArguments(tmp_path, max_steps=3, per_device_train_batch_size=8, learning_rate=0.1, **QUIET)
    trainer = Trainer(model, arguments, train_dataset=dataset, data_collator=longhand.collate_rows)
    trainer.train()
    changed = {name for name, weights in model.state_dict().items() if not torch.equal(weights, before[name])}
    assert changed == {"structure.table"}
    trainer.save_model(tmp_path / "saved")
    again = longhand.with_structure(plain("bert"), tmp_path / "saved")
    assert torch.equal(again.structure.table, model.structure.table)


def test_lora_beside_tables_is_saved_and_loaded_by_peft(tmp_path):
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], modules_to_save=["structure"], init_lora_weights=False)
    base = longhand.with_structure(plain(), num_relations=RELATIONS)
    expected = base(ids_of()).logits
    adapted = peft.get_peft_model(base, config)
    trained = {name for name, weights in adapted.named_parameters() if weights.requires_grad}
    assert any("lora" in name for name in trained) and any("structure" in name for name in trained)
    optimizer = torch.optim.SGD([weights for weights in adapted.parameters() if weights.requires_grad], lr=1.0)
    adapted(ids_of(), pair_map=map_of(), labels=ids_of()).loss.backward()
    optimizer.step()
    table = base.structure.modules_to_save["default"].table
    assert table.abs().max() > 0 and base.structure.original_module.table.abs().max() == 0
    output = adapted.eval()(ids_of(), pair_map=map_of()).logits
    with adapted.disable_adapter():
        assert torch.equal(adapted(ids_of()).logits, expected)
        assert torch.equal(adapted(ids_of(), pair_map=map_of()).logits, expected)
    written = adapted.generate(input_ids=ids_of(), pair_map=map_of(2, TOKENS + 4), do_sample=False, eos_token_id=None)
    assert written.shape == (2, TOKENS + 4)

    adapted.save_pretrained(tmp_path / "adapter")
    fresh = longhand.with_structure(plain(), num_relations=RELATIONS)
    again = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    assert torch.equal(again(ids_of(), pair_map=map_of()).logits, output)
    base.save_structure(tmp_path / "structure")
    alone = longhand.with_structure(plain(), tmp_path / "structure")
    assert torch.equal(alone.structure.table, table)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(merged(ids_of(), pair_map=map_of()).logits, output, atol=1e-4, rtol=1e-4)


def test_the_structure_that_is_saved_is_what_a_call_reads(tmp_path):
    model = structured()
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["structure"])).eval()
    adapted.add_adapter("without tables", peft.LoraConfig(target_modules=["q_proj"]))
    before = model.structure.original_module.table.clone()
    with torch.no_grad():
        model.structure.modules_to_save["default"].table.add_(1.0)

    def saved():
        model.save_structure(tmp_path)
        return longhand.with_structure(plain(), tmp_path).structure.table

    assert torch.equal(saved(), before + 1)
    with adapted.disable_adapter():
        assert torch.equal(saved(), before)
    adapted.set_adapter("without tables")
    assert torch.equal(saved(), before)
    assert torch.equal(adapted(ids_of(), pair_map=map_of()).logits, structured()(ids_of(), pair_map=map_of()).logits)
    adapted.set_adapter("default")
    names = ["default", "without tables"]
    assert adapted(ids_of(), adapter_names=names).logits.isfinite().all()
    for rows in (1, 2):
        with pytest.raises(ValueError, match="adapter_names") as refusal:
            adapted(ids_of(), pair_map=map_of(rows), adapter_names=names)
        assert "\n" not in str(refusal.value)


def hooked(model):
    from accelerate.hooks import ModelHook, add_hook_to_module

    return add_hook_to_module(model, ModelHook())


def dispatched(model):
    from accelerate import dispatch_model

    return dispatch_model(model, {"": "cpu"}, main_device="cpu", force_hooks=True)


def offloaded(model):
    from accelerate import cpu_offload

    return cpu_offload(model, execution_device="cpu")


@pytest.mark.parametrize("place", [hooked, dispatched, offloaded])
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_a_model_that_accelerate_dispatched_carries_structure(kind, place):
    expected = structured(kind)
    model = longhand.with_structure(place(plain(kind)), num_relations=RELATIONS)
    assert "pair_map" in inspect.signature(model.forward).parameters
    with torch.no_grad():
        model.structure.table.copy_(expected.structure.table)
    for changed, own in ((model, expected), (model.base_model, expected.base_model)):
        assert torch.equal(changed(ids_of(), pair_map=map_of())[0], own(ids_of(), pair_map=map_of())[0])
    for changed in (model, expected):
        changed(ids_of(), pair_map=map_of())[0].square().mean().backward()
    assert torch.equal(model.structure.table.grad, expected.structure.table.grad)


def fine_tune(trl, model, row, collator, tmp_path, **options):
    """Train a model by TRL for two steps, on rows of which each is the same."""
    from datasets import Dataset
    from small_language_models import make_tokenizer

    options = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 0.1, **options}
    trl.SFTTrainer(
        model,
        trl.SFTConfig(str(tmp_path), **options, **QUIET),
        train_dataset=Dataset.from_list([row] * 16),
        data_collator=collator,
        processing_class=make_tokenizer(),
    ).train()


KEEPS_COLUMNS = {"remove_unused_columns": False, "dataset_kwargs": {"skip_prepare_dataset": True}}


@pytest.mark.slow
def test_the_fine_tuning_of_trl_reads_rows_of_structure_or_says_that_a_column_was_dropped(tmp_path):
    trl = pytest.importorskip("trl", reason="pip install trl")
    words = {"input_ids": ids_of(1)[0].tolist(), "labels": ids_of(1)[0].tolist(), "pair_map": map_of(1)[0].tolist()}
    collator = partial(longhand.collate_rows, required=["pair_map"])
    # Whether a column is dropped depends on the version of TRL; if it is, the collator says so, and else it is trained by.
    for dropping in ({}, {"remove_unused_columns": False}):
        model = longhand.with_structure(plain(), num_relations=RELATIONS)
        refusal = None
        try:
            fine_tune(trl, model, words, collator, tmp_path, **dropping)
        except ValueError as error:
            refusal = str(error)
        assert "no pair_map" in refusal if refusal else model.structure.table.any()
    model = longhand.with_structure(plain(), num_relations=RELATIONS)
    with pytest.warns(UserWarning, match="drop a column"):
        fine_tune(trl, model, words, longhand.collate_rows, tmp_path, dataset_kwargs={"skip_prepare_dataset": True})
    assert not model.structure.table.any()
    fine_tune(trl, model, words, collator, tmp_path, **KEEPS_COLUMNS)
    assert model.structure.table.abs().max() > 0


def test_a_trainer_whose_rows_have_a_misspelt_column_says_so(tmp_path):
    from datasets import Dataset

    model = longhand.with_structure(plain("bert"), num_relations=2)
    dataset = Dataset.from_list(
        [{"pairs" if name == "pair_map" else name: part for name, part in row.items()} for row in rows(8)]
    )
    collator = partial(longhand.collate_rows, required=["pair_map"])
    arguments = TrainingArguments(tmp_path, max_steps=1, **QUIET)
    with pytest.raises(ValueError, match="no pair_map"):
        Trainer(model, arguments, train_dataset=dataset, data_collator=collator).train()
    with pytest.raises(ValueError, match="pairs"):
        partial(longhand.collate_rows, required=["pairs"])(rows(2))


class KeepsTokensAlone(Trainer):
    """Drops all columns but tokens and labels before its collator, as TRL's trainers do."""

    def _set_signature_columns_if_needed(self):
        self._signature_columns = ["input_ids", "labels"]


class MakesBatchesOfItsOwn(Trainer):
    """Makes its batches of the tokens of rows, as trainers of preferences and rewards do."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        pairs = torch.cat([inputs["input_ids"], inputs["input_ids"].flip(0)])
        return model(input_ids=pairs, labels=pairs).loss


def own_decoder(coupling):
    return CoupledGPTForCausalLM(CoupledGPTConfig(coupling=coupling, windowed=False, hidden_size=16, intermediate_size=16))


def train_on(kind, model, part, folder, **collating):
    from datasets import Dataset

    words = {"input_ids": [2, 3, 4, 5], "labels": [2, 3, 4, 5], **part}
    arguments = TrainingArguments(folder, max_steps=1, **QUIET)
    collator = partial(longhand.collate_rows, **collating)
    kind(model, arguments, train_dataset=Dataset.from_list([words] * 8), data_collator=collator).train()


IDS, MAP = {"position_ids": [1, 2, 2, 1]}, {"pair_map": [[0] * 4] * 4}


@pytest.mark.parametrize("coupling", ["given", "addition"])
def test_ids_of_an_own_decoder_that_a_trainer_drops_are_missed(coupling, tmp_path):
    with pytest.raises(ValueError, match="no position_ids"):
        train_on(KeepsTokensAlone, own_decoder(coupling), IDS, tmp_path, required=["position_ids"])
    train_on(Trainer, own_decoder(coupling), IDS, tmp_path, required=["position_ids"])
    absent = [{"input_ids": [2, 3, 4], "position_ids": None}]
    with pytest.raises(ValueError, match="no position_ids"):
        longhand.collate_rows(absent, required=["position_ids"])


@pytest.mark.parametrize("kind", [KeepsTokensAlone, MakesBatchesOfItsOwn])
def test_structure_that_a_trainer_loses_is_missed_without_a_collator_that_requires_it(kind, tmp_path):
    model = longhand.with_structure(plain(), num_relations=RELATIONS, trainable="all")
    with pytest.warns(UserWarning, match="drop a column"):
        train_on(kind, model, MAP, tmp_path)
    with pytest.raises(ValueError, match="position_ids"):
        train_on(kind, own_decoder("given"), IDS, tmp_path)


@pytest.mark.parametrize("flattened", ["rows joined to one", "rows of another trainer's own"])
def test_batches_that_others_made_without_structure_warn(flattened):
    model = longhand.with_structure(plain(), num_relations=RELATIONS).train()
    words = [{"input_ids": row.tolist(), "labels": row.tolist(), "pair_map": map_of(1)[0].tolist()} for row in ids_of(2)]
    if flattened.startswith("rows joined"):
        batch = DataCollatorWithFlattening()(words)
    else:
        batch = {"input_ids": ids_of(), "attention_mask": torch.ones(2, TOKENS, dtype=torch.long)}
    assert "pair_map" not in batch
    with pytest.warns(UserWarning, match="drop a column"):
        model(**batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param("llama", marks=pytest.mark.thorough), pytest.param("bert", marks=pytest.mark.release)]
)
def test_compiled_models_agree_without_a_break_of_their_graph(kind):
    model = structured(kind, "sdpa")
    expected = model(ids_of(), pair_map=map_of()).logits
    expected.square().mean().backward()
    slope, model.structure.table.grad = model.structure.table.grad, None
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    output = compiled(ids_of(), pair_map=map_of(), attention_mask=torch.ones(2, TOKENS)).logits
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    output.square().mean().backward()
    torch.testing.assert_close(model.structure.table.grad, slope, atol=1e-4, rtol=1e-4)


RANK = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from structured_subjects import ids_of, map_of, structured
import torch.distributed as distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
distributed.init_process_group("gloo")
rank, folder = distributed.get_rank(), Path(sys.argv[2])

def slopes(model):
    own = slice(rank, rank + 1)
    model(ids_of()[own], pair_map=map_of()[own]).logits.square().mean().backward()

model = structured("llama", "sdpa", num_relations=5)
slopes(torch.nn.parallel.DistributedDataParallel(model))
sharded, mesh = structured("llama", "sdpa", num_relations=5), init_device_mesh("cpu", (2,))
for layer in sharded.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(sharded, mesh=mesh)
slopes(sharded)
split = sharded.structure.table.grad.full_tensor()
sharded.save_structure(folder / "structure", is_main_process=rank == 0)
# As Accelerate's get_state_dict does it.
gathered = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
sharded.save_pretrained(folder / "model", is_main_process=rank == 0, state_dict=gathered)
if rank == 0:
    torch.save([model.structure.table.grad, split], folder / "grads.pt")
distributed.destroy_process_group()
"""


@pytest.mark.release
def test_two_processes_have_the_derivatives_of_one_and_write_whole_tables(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*launched, str(script), str(Path(__file__).parents[1]), str(tmp_path)], check=True, env=environment)
    model = structured("llama", "sdpa", num_relations=RELATIONS)
    model(ids_of(), pair_map=map_of()).logits.square().mean().backward()
    for grad in torch.load(tmp_path / "grads.pt"):
        torch.testing.assert_close(grad, model.structure.table.grad, atol=1e-6, rtol=1e-4)
    for folder in ("structure", "model"):
        again = longhand.with_structure(plain(), tmp_path / folder)
        assert torch.equal(again.structure.table, model.structure.table)
    assert torch.equal(again(ids_of(), pair_map=map_of()).logits, structured()(ids_of(), pair_map=map_of()).logits)


def test_a_state_dict_that_was_gathered_is_written_and_a_split_table_is_refused(tmp_path, monkeypatch):
    model = structured()
    whole = {name: weights + 1 for name, weights in model.state_dict().items()}
    for save in (model.save_structure, model.save_pretrained):
        # Own dictionaries, since transformers empties what it is given.
        save(tmp_path / save.__name__, state_dict=dict(whole))
        again = longhand.with_structure(plain(), tmp_path / save.__name__)
        assert torch.equal(again.structure.table, whole["structure.table"])
    # A card of a structure is written anew, and one of a whole model stays.
    card = tmp_path / "save_structure" / "README.md"
    own = card.read_text()
    for before, after in ((own + "older", own), ("# A whole model", "# A whole model")):
        card.write_text(before)
        model.save_structure(tmp_path / "save_structure")
        assert card.read_text() == after
    # All arguments in the order of transformers.
    model.save_pretrained(tmp_path / "ordered", True, None, False, "1GB")
    assert (tmp_path / "ordered" / "structure.safetensors").exists()
    # What is pushed is what was saved, by one process.
    pushed = []
    monkeypatch.setattr(type(model), "push_to_hub", lambda *given, **named: pushed.append(given), raising=False)
    with pytest.raises(ValueError, match="push_to_hub"):
        model.save_pretrained(tmp_path / "pushed", state_dict=whole, push_to_hub=True)
    model.save_pretrained(tmp_path / "pushed", is_main_process=False, push_to_hub=True)
    assert not pushed
    # As FSDP's first version and DeepSpeed leave it.
    model.structure.table.data = torch.empty(0)
    with pytest.raises(ValueError, match="split over"):
        model.save_structure(tmp_path / "split")
    assert not (tmp_path / "split").exists()


def test_a_model_without_tables_has_none_to_save(tmp_path):
    model = longhand.with_structure(plain())
    with pytest.raises(ValueError, match="has no tables to save"):
        model.save_structure(tmp_path / "structure")
    model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "structure").exists() and not list((tmp_path / "model").glob("structure*"))


@pytest.mark.release
def test_structure_needs_no_build_of_torch_with_processes():
    """Builds without distributed training lack `torch.distributed.tensor`, and transformers does not import it there."""
    program = (
        "import sys, torch; torch.distributed.is_available = lambda: False; sys.modules['torch.distributed.tensor'] = None; "
        "import longhand; longhand.with_structure"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_accelerate_prepares_and_a_state_is_resumed(tmp_path):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = longhand.with_structure(plain(), num_relations=RELATIONS)
    optimizer = torch.optim.SGD([model.structure.table], lr=1.0)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    accelerator.backward(prepared(ids_of(), pair_map=map_of(), labels=ids_of()).loss)
    optimizer.step()
    accelerator.save_state(str(tmp_path))
    table = model.structure.table.clone()
    with torch.no_grad():
        model.structure.table.zero_()
    accelerator.load_state(str(tmp_path))
    assert torch.equal(model.structure.table, table) and table.abs().max() > 0
