"""Prompts and masks, as `forward` and `generate` of both families take them."""

from typing import Any

import numpy as np
import torch
from faults.attempts import Finding, Outcome, attempt, check_answer
from faults.inputs import ODD, Input, Kind, choose
from faults.subjects import Subjects

from longhand.modeling.vocabulary import BOS, EQUALS, PAD, PLUS, TIMES, UNKNOWN

SOLVABLE = [*ODD["legal"], *ODD["either"]]
OPTIONS = ("no_cache", "beams", "static_cache", "cold", "lookup")
"""Damages that are options of `generate`. A response may hold anything that is to be learned or measured by `forward`."""
NO_ENCODER = (
    *("padding", "keep", "two_equals", "no_equals", "no_begin", "two_begins", "left", "mask_hides", "sign_after"),
    *("continued", "wrong_width", *OPTIONS),
)
"""What no encoder has, or what is no damage to one."""


def make_prompt(generator: np.random.Generator) -> Input:
    rows = int(generator.integers(1, 4))
    length = int(generator.integers(1, 12))
    names = ("certified", "certified", "addition", "multi-operand-addition", "multiplication", "reader", "reader")
    return {
        "model": choose(generator, *names),
        "call": choose(generator, "forward", "generate"),
        "numbers": [["".join(map(str, generator.integers(0, 10, size=length))) for _ in range(3)] for _ in range(rows)],
        "longer": int(generator.integers(0, 4)),
        "damage": choose(generator, *ODD["unsolvable"]) if generator.random() < 0.6 else choose(generator, *SOLVABLE),
        "place": float(generator.random()),
    }


def make_problems(given: Input) -> list[tuple[str, str, str]]:
    """Question, response and answer of every row, written here as each model's format says; the first may be longer."""
    problems, model = [], given["model"]
    for row, (first, second, *third) in enumerate(given["numbers"]):
        more = "7" * given["longer"] if row == 0 else ""
        first, second = first + more, second + more
        if model == "multiplication":
            # Its format pads the second number only.
            first, second = str(int(first) or 1), second[:2].zfill(2)
            answer, sign, width = int(first) * int(second), "*", len(first) + 2
            numbers = [first, second]
        elif model == "multi-operand-addition":
            width, sign = len(first) + 1, "+"
            numbers = [number.zfill(width) for number in (first, second, (third or ["5"])[0] + more)]
            answer = sum(map(int, numbers))
        else:
            answer, sign, width, numbers = int(first) + int(second), "+", len(first) + 1, [first, second]
        if row == 0 and given["damage"] == "unpadded":
            numbers[1] = numbers[1][1:] or "1"
            answer = int(numbers[0]) * int(numbers[1]) if sign == "*" else sum(map(int, numbers))
        if row == 0 and given["damage"] == "wrong_width":
            numbers = [f"0{numbers[0]}", *numbers[1:]] if sign == "+" else [numbers[0], f"0{numbers[1]}"]
        problems.append((sign.join(numbers), str(answer).zfill(width)[::-1], str(answer)))
    return problems


def run_prompt(subjects: Subjects, given: Input) -> Outcome:
    if given["model"] == "reader":
        return run_encoder_prompt(subjects, given)
    damage, forward = given["damage"], given["call"] == "forward"
    if forward and damage in (*OPTIONS, "sign_after_equals"):
        damage = "none"
    checkpoint, problems = subjects.checkpoint(given["model"]), make_problems(given)
    shown = [response if forward else "" for _, response, _ in problems]
    if damage == "continued" and not forward:
        shown = [response[: int(given["place"] * len(response))] for _, response, _ in problems]
    elif damage == "sign_after_equals":
        shown[0] = f"+{shown[0][1:]}"
    end = "$" if forward else ""
    texts = [f"{question}={part}{end}" for (question, _, _), part in zip(problems, shown, strict=True)]
    side = "right" if damage == "right_padding" else "left"
    inputs = dict(checkpoint.tokenizer(texts, return_tensors="pt", padding=True, padding_side=side))
    options = damaged_inputs(inputs, damage, given["place"])
    if damage in ("ones_mask", "no_mask") and len(set(map(len, texts))) == 1:
        damage = "none"

    def work():
        with torch.inference_mode():
            if forward:
                predicted = checkpoint.model(**inputs, **options).logits.argmax(-1)
                ids = inputs["input_ids"][:, -predicted.shape[1] :]
                response = (ids == EQUALS).cumsum(1).bool()[:, :-1] & (ids[:, 1:] != PAD)
                return bool((predicted[:, :-1] == ids[:, 1:])[response].all())
            written = checkpoint.model.generate(**inputs, **options)[:, inputs["input_ids"].shape[1] :]
            responses = [
                part + checkpoint.tokenizer.decode(row, skip_special_tokens=True)
                for part, row in zip(shown, written, strict=True)
            ]
            return [checkpoint.task.reader.read(response) for response in responses]

    outcome = attempt(work)
    right = None if damage in ODD["unsolvable"] else True if forward else [answer for *_, answer in problems]
    if outcome.refusal and damage in ODD["legal"]:
        raise Finding(f"a legal prompt is refused, {given['model']}, {damage}")
    check_answer(outcome, outcome.value, right, f", {given['model']}, {given['call']}, {given['damage']}")
    return outcome


def encoder_texts(given: Input) -> list[str]:
    """Rows of `A+B` without leading zeros, in fields of one width if they are padded."""
    texts = []
    for text, *_ in make_problems(given):
        numbers = [str(int(number)) for number in text.split("+")]
        width = 0 if given["damage"] == "unpadded" else max(map(len, numbers))
        texts.append("+".join(number.rjust(width, "_") for number in numbers))
    return texts


def run_encoder_prompt(subjects: Subjects, given: Input) -> Outcome:
    """What an encoder says of a row does not depend on the other rows, nor on the padding."""
    checkpoint, damage = subjects.checkpoint("reader"), given["damage"]
    texts = encoder_texts(given)
    inputs = dict(checkpoint.tokenizer(texts, return_tensors="pt", padding=True, padding_side="right"))
    if damage.startswith(NO_ENCODER):
        damage = "none"
    # 21 is a letter.
    if damage == "id_too_large":
        damage = "id_huge"
    options = damaged_inputs(inputs, damage, given["place"])

    def work():
        with torch.inference_mode():
            logits = checkpoint.model(**inputs, **options).logits
            alone = [checkpoint.model(**checkpoint.tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
        return all(torch.allclose(row[: len(own)], own, atol=1e-3) for row, own in zip(logits, alone, strict=True))

    outcome = attempt(work)
    # Without a mask the padding of a batch is an ordinary token.
    if damage in ("ones_mask", "no_mask") and len(set(map(len, texts))) == 1:
        damage = "none"
    right = None if damage in ODD["unsolvable"] else True
    check_answer(outcome, outcome.value, right, f", encoder, {given['damage']}")
    return outcome


def damaged_inputs(inputs: dict[str, Any], damage: str, place: float) -> dict[str, Any]:
    """Damage inputs in place; return further arguments of the call."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    rows, columns = ids.shape
    # A digit of the last number before `=` or before the end.
    end = ((ids[0] == EQUALS).nonzero().flatten().tolist() or [columns])[0]
    sign = int(torch.isin(ids[0, :end], torch.tensor([PLUS, TIMES])).nonzero()[-1])
    column = end - 1 - int(place * (end - 1 - sign))
    if damage == "no_mask":
        inputs.pop("attention_mask")
    masks = {
        "ones_mask": torch.ones_like(mask),
        "bool_mask": mask.bool(),
        "float_mask": mask.float(),
        "int_mask": mask.int(),
        "byte_mask": mask.to(torch.uint8),
        "mask_rows": mask[:1].repeat(rows + 1, 1),
        "mask_columns": mask[:, :-1],
        "mask_flat": mask[0],
        "mask_none_visible": torch.zeros_like(mask),
    }
    if damage in masks:
        inputs["attention_mask"] = masks[damage]
    if damage == "mask_hides_a_digit":
        mask[0, column] = 0
    tokens = {"id_too_large": 21, "id_negative": -1, "id_huge": 2**40, "unknown_token": UNKNOWN, "space": UNKNOWN}
    tokens |= {"two_plus": PLUS, "two_equals": EQUALS, "padding_inside": PAD, "two_begins": BOS}
    if damage in tokens:
        ids[0, column] = tokens[damage]
    for gone, token in (("no_equals", EQUALS), ("no_begin", BOS), ("no_sign", PLUS), ("no_sign", TIMES)):
        if damage == gone:
            ids = inputs["input_ids"] = torch.where(ids == token, 1, ids)
    shapes = {
        "flat": lambda x: x[0],
        "deep": lambda x: x.unsqueeze(0),
        "no_batch": lambda x: x[:0],
        "no_tokens": lambda x: x[:, :0],
    }
    if damage in shapes:
        inputs.update({name: shapes[damage](value) for name, value in inputs.items()})
    kinds = {
        "float_ids": ids.float(),
        "text_ids": "653+049=",
        "int32": ids.int(),
        "int16": ids.short(),
        "bytes": ids.to(torch.uint8),
    }
    if damage in kinds:
        inputs["input_ids"] = kinds[damage]
    return {
        "no_cache": {"use_cache": False},
        "beams": {"num_beams": 3},
        "static_cache": {"cache_implementation": "static"},
        "cold": {"do_sample": True, "temperature": 0.01},
        "lookup": {"prompt_lookup_num_tokens": 3},
        "keep_negative": {"logits_to_keep": -1},
        "keep_too_many": {"logits_to_keep": columns + 5},
        "keep_indices_outside": {"logits_to_keep": torch.tensor([columns + 5])},
        "keep_text": {"logits_to_keep": "all"},
        "keep_last": {"logits_to_keep": 1},
        "pair_map_negative": {"pair_map": torch.full((rows, columns, columns), -7)},
        "pair_map_large": {"pair_map": torch.full((rows, columns, columns), 10**6)},
        "pair_map_shape": {"pair_map": torch.zeros(rows, columns, dtype=torch.long)},
        "positions_shape": {"position_ids": torch.zeros(rows + 3, 2, columns, dtype=torch.long)},
        "positions_negative": {"position_ids": torch.full((rows, columns), -5)},
        "positions_huge": {"position_ids": torch.full((rows, columns), 2**40)},
    }.get(damage, {})


KINDS = {"prompt": Kind(make_prompt, run_prompt, 4)}
