"""Autocast to bfloat16 and float16: what float32 trains and answers, they train and answer too."""

import pytest
import torch
from cases import drawn, in_turn
from fine_tuning import TASKS, make_trainer, small_model, some_rows
from given_subjects import LIKE_OTHERS as GIVEN_LIKE_OTHERS
from given_subjects import WORDS, built, given_subject
from position_subjects import INPUTS, LIKE_OTHERS, SUBJECTS, build, encode, texts_of
from refusals import refusal
from transformers import AutoModelForCausalLM, DataCollatorForTokenClassification

from longhand import eval as evaluation
from longhand.data.batches import draw_batch
from longhand.data.proofs import CannotCertify, certify
from longhand.hub_cards.checkpoints.load import list_zoo, load_checkpoint, unpack, zoo
from longhand.modeling.pretrained import LOOK_EVERY, NotFinite
from longhand.modeling.settling import IGNORED
from longhand.modeling.vocabulary import PAD

HALF = [torch.bfloat16, torch.float16]

NEAR = 0.02
"""How far, as a share, a loss may be from that of float32."""


def training_loss(model, batch) -> torch.Tensor:
    torch.manual_seed(0)
    return model.train()(**batch).loss


def assert_trains_as_in_float32(model, batch) -> None:
    """Check logits in evaluation, and the loss and its derivatives in training, in each type of half precision."""
    with torch.no_grad():
        expected = training_loss(model, batch).double()
    unlabelled = {name: value for name, value in batch.items() if name != "labels"}
    # Without a GPU, flex attention has no backward pass.
    learns = model.config._attn_implementation != "flex_attention"
    for dtype in HALF:
        with torch.autocast("cpu", dtype):
            with torch.no_grad():
                assert model.eval()(**unlabelled).logits.isfinite().all()
            with torch.set_grad_enabled(learns):
                loss = training_loss(model, batch)
        torch.testing.assert_close(loss.double(), expected, rtol=NEAR, atol=1e-3)
        if learns:
            model.zero_grad()
            loss.backward()
            derivatives = [weights.grad for weights in model.parameters() if weights.grad is not None]
            assert derivatives and all(each.isfinite().all() for each in derivatives)


def with_wrong_labels(batch: dict, classes: int) -> dict:
    """Other labels than the right ones, so that the loss of a trained model is not so small that rounding is all of it."""
    wrong = (batch["labels"] + 1) % classes
    return {**batch, "labels": wrong.where(batch["labels"] != IGNORED, IGNORED)}


def batch_of_two_sizes(checkpoint, side: str) -> dict:
    rows = []
    for part in checkpoint.task.parts:
        for length in (4, 6):
            drawn = draw_batch(checkpoint.model, part, part.operand_lengths(length), 2)
            for tokens, labels in zip(drawn["input_ids"], drawn["labels"], strict=True):
                kept = tokens != PAD
                rows.append({"input_ids": tokens[kept].tolist(), "labels": labels[kept].tolist()})
    checkpoint.tokenizer.padding_side = side
    return dict(DataCollatorForTokenClassification(checkpoint.tokenizer)(rows))


@pytest.mark.parametrize("name", drawn(list_zoo(), 4))
def test_every_shipped_model_trains_in_half_precision(name):
    checkpoint = load_checkpoint(zoo(name))
    model = checkpoint.model
    classes = model.config.vocab_size if checkpoint.task.family.ahead else model.config.num_labels - 1
    for side in ("left", "right"):
        batch = batch_of_two_sizes(checkpoint, side)
        assert (batch["attention_mask"] == 0).any()
        assert_trains_as_in_float32(model, with_wrong_labels(batch, classes))


ATTENTIONS = ["eager", "sdpa", "flex_attention"]
quiet_flex = pytest.mark.filterwarnings("ignore:flex_attention called without")


def with_other_digits(texts: list[str]) -> list[str]:
    """The texts and more of their forms: in a mean over few tokens, rounding alone would count for more than `NEAR`."""
    digits = "0123456789"
    return [text.translate(str.maketrans(digits, digits[move:] + digits[:move])) for move in range(8) for text in texts]


@quiet_flex
@pytest.mark.parametrize(("name", "attention"), in_turn(SUBJECTS, ATTENTIONS, LIKE_OTHERS))
def test_every_encoding_trains_in_half_precision(name, attention, uncompiled):
    model = build(name, attn_implementation=attention).float()
    texts = with_other_digits(INPUTS[:2] if name.startswith("settling") else texts_of(name))
    for side in ("left", "right"):
        batch = dict(encode(name, *texts, side=side))
        assert (batch["attention_mask"] == 0).any()
        labels = batch["input_ids"] % model.config.num_labels if hasattr(model, "classifier") else batch["input_ids"]
        batch["labels"] = labels.where(batch["attention_mask"] == 1, IGNORED)
        assert_trains_as_in_float32(model, batch)


def with_nobody(structure: dict) -> dict:
    """Structure by whose map, if it has one, the first token, one between and the last see nobody."""
    if "pair_map" not in structure:
        return dict(structure)
    pair_map = structure["pair_map"].clone()
    pair_map[:, [0, 3, -1]] = -1
    return {**structure, "pair_map": pair_map}


HIDDEN = torch.zeros(1, 1, 8, 8).index_fill(2, torch.tensor([0, 5]), -torch.inf)
"""A bias that hides all keys from two tokens."""

FURTHER = {
    "nothing": {},
    "bias": {"position_bias": HIDDEN},
    "lowest bias": {"position_bias": HIDDEN.clamp(min=torch.finfo(torch.float32).min)},
    "mask": {"attention_mask": (HIDDEN == 0)},
    "both": {"position_bias": HIDDEN, "attention_mask": HIDDEN.clamp(min=torch.finfo(torch.float32).min)},
    "left": {"attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]])},
    "right": {"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])},
}


@quiet_flex
@pytest.mark.parametrize(("name", "attention"), in_turn(built(), ATTENTIONS, GIVEN_LIKE_OTHERS))
def test_given_structure_trains_in_half_precision(name, attention, uncompiled):
    model, structure = given_subject(name)
    model = model.float()
    model.set_attn_implementation(attention)
    structure = with_nobody(structure)
    if "position_ids" in structure:
        structure["position_ids"] = structure["position_ids"].clamp(min=1)
    tokens = (WORDS + torch.arange(16).unsqueeze(1)) % model.config.vocab_size
    for further in FURTHER.values():
        labels, mask = tokens % 7, further.get("attention_mask")
        if mask is not None and mask.ndim == 2:
            labels, further = labels.where(mask == 1, IGNORED), {"attention_mask": mask.expand(len(tokens), -1)}
        assert_trains_as_in_float32(model, {"input_ids": tokens, "labels": labels, **structure, **further})


# What is not finite goes nowhere.


@pytest.mark.parametrize("task", TASKS)
def test_a_plain_training_that_is_not_finite_stops_and_saves_nothing(task, tmp_path):
    model, rows = small_model(task), some_rows(task, 8)
    trainer = make_trainer(
        model, tmp_path / "run", rows, max_steps=4, learning_rate=1e38, save_strategy="steps", save_steps=1
    )
    with pytest.raises(NotFinite, match="NaN or infinite") as refusal:
        trainer.train()
    assert "\n" not in str(refusal.value) and trainer.state.global_step <= 2
    with torch.no_grad():
        next(model.parameters())[0, 0] = torch.nan
    with pytest.raises(NotFinite, match="not saved"):
        trainer.save_model(str(tmp_path / "saved"))
    assert not list(tmp_path.glob("**/*.safetensors"))


@pytest.mark.parametrize("name", ["addition", "encoder-addition-settling", "encoder-addition"])
def test_a_loss_that_is_not_finite_ends_training_in_each_way_to_learn(name):
    checkpoint = load_checkpoint(zoo(name))
    batch = batch_of_two_sizes(checkpoint, checkpoint.tokenizer.padding_side)
    model = checkpoint.model.train()
    assert model(**batch).loss.isfinite()
    model.get_input_embeddings().weight.data.fill_(torch.inf)
    with pytest.raises(NotFinite, match="embed_tokens"):
        model(**batch)
    # In evaluation a loss is a measurement.
    assert not model.eval()(**batch).loss.isfinite()
    with pytest.raises(CannotCertify, match="NaN or infinite"):
        certify(model, checkpoint.task)


def test_on_an_accelerator_the_loss_is_looked_at_now_and_then(monkeypatch):
    model, loss = small_model("addition").train(), torch.tensor(torch.nan)
    monkeypatch.setattr(torch.Tensor, "device", property(lambda _: torch.device("cuda")))
    looks = []
    for _ in range(2 * LOOK_EVERY):
        try:
            model.check_loss(loss, torch.tensor([1]))
        except NotFinite:
            looks.append(True)
    assert len(looks) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["copy", pytest.param("encoder-multiplication-grid", marks=pytest.mark.release)])
def test_neighbourhoods_are_checked_in_a_lower_precision_without_a_certificate(name, dtype, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = unpack(name, tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    evaluation.main([str(folder), "--certify", "--dtype", dtype])
    said = capsys.readouterr().out
    assert dtype in said and "no certificate" in said and "CERTIFIED" not in said
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_model_that_is_wrong_in_a_lower_precision_ends_with_status_1(tmp_path, capsys):
    folder = unpack("copy", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight.neg_()
    model.save_pretrained(folder)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(folder), "--certify", "--dtype", "bfloat16"])
    assert stop.value.code == 1 and "wrong:" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--dtype", "bfloat16"], ["--certify", "--lengths", "3", "--dtype", "bfloat16"]])
def test_a_lower_precision_is_refused_where_no_neighbourhoods_are_checked(words, capsys):
    assert "--dtype" in refusal(capsys, evaluation.main, "copy", *words)


def in_eight_bits(weights: torch.Tensor) -> torch.Tensor:
    """The numbers that rows stand for which are stored in 8 bits, with a scale each."""
    scale = weights.abs().amax(-1, keepdim=True).clamp(min=1e-9) / 127
    return (weights / scale).round() * scale


@pytest.mark.parametrize("store", [lambda weights: weights.bfloat16().float(), in_eight_bits], ids=["bfloat16", "int8"])
def test_weights_that_are_stored_shorter_are_certified_as_the_numbers_that_they_are(store):
    checkpoint = load_checkpoint(zoo("copy"))
    before = certify(checkpoint.model, checkpoint.task)
    with torch.no_grad():
        for weights in checkpoint.model.parameters():
            weights.copy_(store(weights))
    after = certify(checkpoint.model, checkpoint.task)
    assert before.certified and after.certified and before.weights != after.weights
