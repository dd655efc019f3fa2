"""The format of prompts in configurations: which prompts are legal, and what the others are refused with."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from cases import drawn
from huggingface_hub.errors import StrictDataclassError
from test_eval import refusal

from longhand import eval as evaluation
from longhand.data import (
    TASKS,
    Addition,
    AdditionScratchpad,
    EncoderAddition,
    EncoderMultiplication,
    IndexHintedAddition,
    MultiOperandAddition,
    Multiplication,
    Parity,
    load_task_dataset,
    make_generator,
)
from longhand.data.batches import evaluation_draw
from longhand.data.families import DECODER
from longhand.data.proofs import hash_weights
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research.theories.constructions import run as construct
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM, PairwiseBertConfig
from longhand.modeling.inputs import PromptFormat, read_format
from longhand.modeling.vocabulary import HINTS

ORDERS = ("response_reversed", "all_reversed", "plain")
ADDITIONS = [Addition(order=order, zero_padding=padding) for padding in (True, False) for order in ORDERS]
DECODERS = [
    *ADDITIONS,
    Addition(separate_eos=True),
    IndexHintedAddition(),
    MultiOperandAddition(),
    MultiOperandAddition(operands=10),
    AdditionScratchpad(),
    AdditionScratchpad(max_operands=120),
    Multiplication(multiplier_length=1),
    Multiplication(),
    Multiplication(multiplier_length=4),
    Parity(scratchpad=False),
    *(TASKS[name]() for name in ("subtraction", "multiplication_scratchpad", "division", "copy", "reverse", "parity")),
    TASKS["minesweeper"](),
]
ENCODERS = [
    EncoderAddition(),
    EncoderAddition(field_width=9, sampling="shifted"),
    EncoderAddition(field_width=11, varied_field=True),
    EncoderAddition(field_width=9, text_tokens=4),
    EncoderMultiplication(),
    EncoderMultiplication(field_width=14, multiplier_length=3),
    EncoderMultiplication(field_width=14, multiplier_length=2, spill=True, text_tokens=2),
]
TASK_FORMATS = DECODERS + ENCODERS
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def name_of(task) -> str:
    return ", ".join(map(str, task.describe().values()))


@pytest.fixture(params=TASK_FORMATS, ids=name_of)
def task(request):
    return request.param


def config_of(task):
    return task.family.model_class.config_class(**SMALL, **task.family.config_options(task))


def model_of(task):
    torch.manual_seed(0)
    return task.family.model_class(config_of(task)).eval()


def batches(task, longest: int = 8):
    """Tokens of training examples of up to `longest` digits, as training sees them, and the length of their queries."""
    for length in range(1, longest + 1):
        generator = make_generator("formats", length)
        lengths = task.sample_lengths(generator, 1, 1, length)
        # What a group of few problems lacks is in another split.
        lengths = task.group_lengths(generator, lengths[0], 6, 1)
        for own, rows in task.layouts(generator, lengths):
            examples = own.augment(generator, own.examples(generator, lengths[rows], "train"))
            yield torch.from_numpy(examples.tokens).long(), getattr(examples, "query_lengths", None)


def prompts(task) -> list[str]:
    tokenizer = task.family.tokenizer(task)
    found = []
    for tokens, query_lengths in batches(task):
        for row, ids in enumerate(tokens):
            ids = ids if query_lengths is None else ids[1 : query_lengths[row]]
            found.append(tokenizer.decode([token for token in ids.tolist() if token != tokenizer.pad_token_id]))
    return found


def canonical(task, prompt: str) -> str | None:
    """The prompt that a task itself writes for the question that a prompt asks; None if it is none of the task's."""
    try:
        return task.prompt(prompt) if task.family is DECODER else task.prompt(prompt.replace("_", ""))
    except ValueError:
        return None


def written_by(task, prompt: str) -> bool:
    """Whether a task itself writes this prompt for some question."""
    if isinstance(task, EncoderAddition | EncoderMultiplication):
        if task.text_tokens:
            prompt = re.sub("[a-z]", "", prompt)
        if re.search("[0-9]_|_$", prompt):
            return False
        if task.field_width is None or task.varied_field:
            task = replace(task, varied_field=False, field_width=len(re.split("[+*]", prompt)[-1]) or 1)
        return canonical(replace(task, text_tokens=0), prompt) == prompt
    if isinstance(task, IndexHintedAddition):
        hints = [ord(hint) for hint in re.findall(f"[{HINTS[0]}-{HINTS[-1]}]", prompt)]
        shift = min(hints, default=ord(HINTS[0])) - ord(HINTS[0])
        prompt = "".join(chr(ord(letter) - shift) if letter in HINTS else letter for letter in prompt)
    numbers = re.split(r"[^0-9]+", re.sub(f"[{HINTS[0]}-{HINTS[-1]}]", "", prompt))[:-1]
    sign = task.sign or None
    if sign is None:
        return canonical(task, prompt) == prompt
    if getattr(task, "order", None) == "all_reversed":
        numbers = [number[::-1] for number in numbers]
    # Formats that always pad write more zeros than a question has.
    spare = {"multi_operand_addition": 1, "index_hinted_addition": 1, "addition_scratchpad": len(str(len(numbers) - 1))}
    numbers = [number[spare.get(task.name, 0) :] for number in numbers]
    return canonical(task, sign.join(numbers)) == prompt


def is_legal(task, prompt: str) -> bool:
    return task.prompt_format.prompt_fault(prompt) is None


@pytest.mark.parametrize("task", drawn(TASK_FORMATS, 10), ids=name_of)
def test_prompts_are_legal_exactly_if_the_task_itself_writes_them(task):
    generator = make_generator("mutations")
    family = [other for other in TASK_FORMATS if other.family is task.family]
    letters = "0123456789+-*/=>M_ " + HINTS[:4]
    found = {True: 0, False: 0}
    for other in family:
        for prompt in prompts(other)[::6]:
            mutants = [prompt]
            for _ in range(3):
                place, letter = int(generator.integers(len(prompt) + 1)), letters[generator.integers(len(letters))]
                cut = int(generator.integers(2))
                mutants.append(prompt[:place] + letter * int(generator.integers(2)) + prompt[place + cut :])
            for mutant in mutants:
                assert is_legal(task, mutant) == written_by(task, mutant), mutant
                found[is_legal(task, mutant)] += 1
    assert min(found.values()) > 10


def test_prompt_of_a_question_is_legal(task):
    for asked in (task, task.for_evaluation):
        assert is_legal(task, asked.prompt(asked.example_question))
    assert is_legal(task, task.prompt_format.example)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        *((Addition(), text) for text in ("653+49=", "007+1=", "$653+49=", "653-049=")),
        (Addition(zero_padding=False), "653+049="),
        (TASKS["division"](), "653/0="),
        (EncoderAddition(), "653+49"),
        (TASKS["minesweeper"](), "M_>M="),
    ],
    ids=str,
)
def test_refusal_names_row_prompt_and_a_legal_one(task, text):
    model = model_of(task)
    inputs = task.family.tokenizer(task)([task.prompt_format.example, text], padding=True, return_tensors="pt")
    calls = [model.forward, model.generate] if task.family is DECODER else [model.forward]
    for call in calls:
        with pytest.raises(ValueError, match=r"^row 1 of input_ids, ") as refused:
            call(**inputs)
        message = str(refused.value)
        assert repr(text.replace(" ", "<unk>")) in message and f"{task.name!r}" in message
        assert f"a legal prompt is {task.prompt_format.shown}" in message


WRITERS = [each for each in (make() for make in TASKS.values()) if each.family is DECODER]


@pytest.mark.parametrize("task", drawn([*WRITERS, *DECODERS[1:]], 17), ids=name_of)
def test_a_model_scores_whatever_it_writes_behind_a_legal_prompt(task):
    """As a reward needs it: a response that no problem has, of any tokens, is scored; `generate` continues none."""
    model, tokenizer = model_of(task), task.family.tokenizer(task)
    options = {name: value for name, value in task.describe().items() if name != "task"}
    rows = load_task_dataset(task.name, max_length=6, num_samples=8, streaming=True, **options)
    queries = tokenizer([row["prompt"] for row in rows], padding=True, return_tensors="pt")
    generator = torch.Generator().manual_seed(0)
    written = torch.randint(0, len(task.tokens), (8, 12), generator=generator)
    written[:4, :3] = torch.tensor([tokenizer.convert_tokens_to_ids(sign) for sign in "=0="])
    # An end token, and padding behind it, stand in some rows; two `$` are no end if the end is another token.
    written[4:] = torch.where(written[4:] == task.end_token, 5, written[4:])
    written[4:6, 8:] = torch.tensor([task.end_token, *[tokenizer.pad_token_id] * 3])
    if tokenizer.eos_token_id == tokenizer.bos_token_id:
        written[:4] = torch.where(written[:4] == task.end_token, 5, written[:4])
    inputs = {"input_ids": torch.cat([queries.input_ids, written], dim=1)}
    shown = torch.ones_like(written)
    shown[4:6, 9:] = 0
    inputs["attention_mask"] = torch.cat([queries.attention_mask, shown], dim=1)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    for mode in (True, False):
        output = model.train(mode)(**inputs, labels=labels)
        assert output.logits.isfinite().all() and output.loss.isfinite()
    if not getattr(task.prompt_format, "hints_given", False):
        with pytest.raises(ValueError, match=r"is not the beginning of a response|is of none of the model's formats"):
            model.generate(**{name: own[:1, : queries.input_ids.shape[1] + 3] for name, own in inputs.items()})


def test_only_models_with_a_format_check_prompts_and_it_can_be_set_to_none():
    task = Addition()
    inputs = task.family.tokenizer(task)("653+49=", return_tensors="pt")
    assert CoupledGPTConfig().prompt_format is None and PairwiseBertConfig().task is None
    CoupledGPTForCausalLM(CoupledGPTConfig(**SMALL)).generate(**inputs)
    model = model_of(task)
    model.config.prompt_format = model.config.task = None
    model.generate(**inputs)


def test_sequences_with_ids_of_their_own_are_not_checked_and_generate_always_checks():
    task = Addition()
    model, inputs = model_of(task), task.family.tokenizer(task)("653+49=", return_tensors="pt")
    plan = model.model.plan_position_ids(inputs.input_ids, 12)
    model(**inputs, position_ids=plan[..., :8])
    with pytest.raises(ValueError, match="a legal prompt is"):
        model.generate(**inputs, position_ids=plan)


@pytest.mark.parametrize("task", [Addition(), EncoderAddition()], ids=name_of)
def test_training_on_another_format_is_refused_at_the_first_batch(task):
    model = model_of(task).train()
    inputs = task.family.tokenizer(task)("653+49=" if task.family is DECODER else "653+49", return_tensors="pt")
    given = {"position_ids": torch.arange(8).unsqueeze(0)} if task.family is DECODER else {}
    with pytest.raises(ValueError, match="a legal prompt is"):
        model(**inputs, **given)
    model.config.update({"task": None, "prompt_format": None})
    model(**inputs, **given)


@pytest.mark.parametrize("task", [Addition(order="plain"), EncoderAddition(text_tokens=3)], ids=name_of)
def test_saving_keeps_task_and_format(task, tmp_path):
    model_of(task).save_pretrained(tmp_path)
    config = task.family.model_class.from_pretrained(tmp_path).config
    assert config.task == task.describe() and PromptFormat(**config.prompt_format) == task.prompt_format
    assert json.loads((tmp_path / "config.json").read_text())["task"] == task.describe()


@pytest.mark.parametrize("task", [Addition(), EncoderAddition()], ids=name_of)
def test_hash_of_weights_is_as_without_task_and_format(task):
    model = model_of(task)
    before = hash_weights(model)
    model.config.task = model.config.prompt_format = None
    assert hash_weights(model) == before


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_names_its_task_in_the_configuration(name, tmp_path):
    run = parse_run([name, "--bf16", "False", "--output_dir", str(tmp_path / "run")])
    assert run.config.task == run.task.describe()
    stated = run.config.prompt_format
    assert (stated and read_format(stated)) == run.task.prompt_format
    # Splits hold problems of the sizes that are validated and tested, which training checks before its first step.
    for part in run.task.for_evaluation.parts:
        for split, sizes in (("validation", run.data.validation_lengths), ("test", run.data.test_lengths)):
            generator, lengths = evaluation_draw(part, part.operand_lengths(min(sizes)), 1, 0, split)
            assert len(part.examples(generator, lengths, split)) == 1


def test_a_construction_names_its_task(tmp_path):
    construct("multi-operand-addition", 10, tmp_path / "built")
    assert load_checkpoint(str(tmp_path / "built")).model.config.task == MultiOperandAddition().describe()
    assert json.loads((tmp_path / "built" / "config.json").read_text())["task"]["operands"] == 3


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        *((values, "prompt_format must hold the fields of") for values in ({"pattern": "("}, {"response": "["})),
        ({"pattern": None}, "prompt_format must hold the fields of"),
        ({"example": "1+1"}, "example of prompt_format, '1\\+1', is not legal"),
        ({"length": 3}, "prompt_format must hold the fields of a PromptFormat"),
    ],
    ids=str,
)
def test_a_configuration_with_a_damaged_format_is_refused(changed, expected):
    with pytest.raises((StrictDataclassError, ValueError)) as refused:
        CoupledGPTConfig(prompt_format=asdict(Addition().prompt_format) | changed)
    assert re.search(expected, str(refused.value.__cause__ or refused.value))


def save(folder: Path, task) -> Path:
    model_of(task).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "task", [Addition(order="plain"), MultiOperandAddition(operands=4), EncoderAddition(field_width=9)], ids=name_of
)
def test_a_checkpoint_without_recipe_is_evaluated_on_the_task_of_its_configuration(task, tmp_path, capsys):
    folder = save(tmp_path / "model", task)
    assert load_checkpoint(str(folder)).task == task
    assert load_checkpoint(str(folder), task=task.name).task == task
    evaluation.main([str(folder), "--lengths", "3", "--num_samples", "4", "--output_dir", str(tmp_path / "out")])
    assert f'"task": "{task.name}"' in (tmp_path / "out" / "results.jsonl").read_text()
    message = refusal(capsys, folder, "--task", "parity", "--ask", "11")
    assert message == (
        f"error: --task parity is for a checkpoint that names no task: {folder} is of task {task.name!r} (config.json)"
    )


def test_recipe_and_configuration_must_name_one_task(tmp_path, capsys):
    folder = save(tmp_path / "model", Addition())
    for text, named in (("task: copy\n", "copy"), ("task: addition\nzero_padding: false\n", "'zero_padding': False")):
        (folder / "recipe.yaml").write_text(text)
        message = refusal(capsys, folder, "--ask", "1+1")
        assert "'task': 'addition'" in message and named in message


def test_prompts_of_a_checkpoint_from_before_formats_are_checked_too(tmp_path):
    folder = save(tmp_path / "model", Addition())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({name: config[name] for name in config if name not in ("task", "prompt_format")})
    )
    (folder / "recipe.yaml").write_text("task: addition\n")
    checkpoint = load_checkpoint(str(folder))
    with pytest.raises(ValueError, match="a legal prompt is"):
        checkpoint.model.generate(**checkpoint.tokenizer("653+49=", return_tensors="pt"))


def test_options_of_a_task_make_a_checkpoint_one_of_another_task(tmp_path):
    folder, other = save(tmp_path / "model", Addition()), MultiOperandAddition()
    model = CoupledGPTForCausalLM.from_pretrained(folder, **DECODER.config_options(other))
    model.save_pretrained(folder)
    assert load_checkpoint(str(folder)).task == other
