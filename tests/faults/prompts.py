"""Prompts and masks, as `forward` and `generate` of both families take them."""

from typing import Any

import torch
from faults.attempts import attempt

from longhand.modeling.vocabulary import EQUALS, PAD, PLUS, UNKNOWN

LEGAL = ("left_padding", "int32")
"""Prompts that must be answered."""
EITHER = ("ones_mask", "unpadded")
"""Prompts that may be refused, but if they are answered, then rightly. All others must be refused."""


def make_sums(case: dict) -> list[tuple[str, str]]:
    """Question and response of every row; the first may be longer."""
    problems = []
    for row, (first, second, *_) in enumerate(case["numbers"]):
        if row == 0:
            first, second = (number + "7" * case["longer"] for number in (first, second))
            if case["damage"] == "unpadded":
                second = second[1:] or "1"
        problems.append((f"{first}+{second}", str(int(first) + int(second)).zfill(len(first) + 1)[::-1]))
    return problems


def try_prompt(checkpoint, case: dict) -> None:
    damage, forward, sums = case["damage"], case["call"] == "forward", make_sums(case)
    encoder = not checkpoint.model.can_generate()
    if encoder:
        # The rows of a batch, in fields of one width, are labelled as each is alone.
        pairs = [[str(int(number)) for number in question.split("+")] for question, _ in sums]
        texts = ["+".join(number.rjust(max(map(len, pair)), "_") for number in pair) for pair in pairs]
    else:
        texts = [f"{question}={response}$" if forward else f"{question}=" for question, response in sums]
    side = "right" if encoder else "left"
    inputs = dict(checkpoint.tokenizer(texts, return_tensors="pt", padding=True, padding_side=side))
    options = damaged_inputs(inputs, damage, case["place"])

    def label() -> bool:
        logits = checkpoint.model(**inputs, **options).logits
        alone = [checkpoint.model(**checkpoint.tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
        return all(torch.allclose(row[: len(own)], own, atol=1e-3) for row, own in zip(logits, alone, strict=True))

    def predict() -> bool:
        predicted = checkpoint.model(**inputs, **options).logits.argmax(-1)
        ids = inputs["input_ids"][:, -predicted.shape[1] :]
        response = (ids == EQUALS).cumsum(1).bool()[:, :-1] & (ids[:, 1:] != PAD)
        return bool((predicted[:, :-1] == ids[:, 1:])[response].all())

    def write() -> bool:
        written = checkpoint.model.generate(**inputs, **options)[:, inputs["input_ids"].shape[1] :]
        responses = checkpoint.tokenizer.batch_decode(written, skip_special_tokens=True)
        return responses == [response for _, response in sums]

    with torch.inference_mode():
        outcome = attempt(label if encoder else predict if forward else write)
    if damage in LEGAL:
        assert outcome.value
    elif damage in EITHER:
        assert outcome.value or outcome.refusal or outcome.words
    else:
        assert outcome.refusal or outcome.words


def damaged_inputs(inputs: dict[str, Any], damage: str, place: float) -> dict[str, Any]:
    """Damage inputs in place; return further arguments of the call."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    rows, columns = ids.shape
    # A digit of the last number before `=` or before the end.
    end = ((ids[0] == EQUALS).nonzero().flatten().tolist() or [columns])[0]
    sign = int((ids[0, :end] == PLUS).nonzero()[-1])
    column = end - 1 - int(place * (end - 1 - sign))
    masks = {
        "ones_mask": torch.ones_like(mask),
        "mask_columns": mask[:, :-1],
        "mask_flat": mask[0],
        "mask_none_visible": torch.zeros_like(mask),
    }
    if damage in masks:
        inputs["attention_mask"] = masks[damage]
    if damage == "mask_hides_a_digit":
        mask[0, column] = 0
    tokens = {"id_too_large": 10**3, "id_negative": -1, "id_huge": 2**40, "unknown_token": UNKNOWN, "space": UNKNOWN}
    tokens |= {"two_plus": PLUS, "two_equals": EQUALS}
    if damage in tokens:
        ids[0, column] = tokens[damage]
    shapes = {"flat": lambda x: x[0], "no_batch": lambda x: x[:0], "no_tokens": lambda x: x[:, :0]}
    if damage in shapes:
        inputs.update({name: shapes[damage](value) for name, value in inputs.items()})
    kinds = {"float_ids": ids.float(), "text_ids": "653+049=", "int32": ids.int()}
    if damage in kinds:
        inputs["input_ids"] = kinds[damage]
    return {
        "positions_negative": {"position_ids": torch.full((rows, columns), -5)},
        "positions_huge": {"position_ids": torch.full((rows, columns), 2**40)},
    }.get(damage, {})
