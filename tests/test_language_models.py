"""Language models of others in eval.py: what they are asked, how their answers are read, and what is refused."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_language_models import (
    ARCHITECTURES,
    add,
    add_without_carries,
    calculator,
    last_sum,
    make_tokenizer,
    save_random_model,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForCausalLM,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    RwkvConfig,
    RwkvForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.generation import GenerateDecoderOnlyOutput

from longhand import eval as evaluation
from longhand.data import TASKS, Addition, AdditionScratchpad, EvaluationBatches, make_generator
from longhand.data.columns import example_columns
from longhand.data.text import text_problems
from longhand.hub_cards.evaluation import language_models
from longhand.hub_cards.evaluation.language_models import is_language_model, measure_language_model, write_prompts
from longhand.hub_cards.evaluation.measure import evaluate_lengths
from longhand.hub_cards.evaluation.reading import is_exact, is_lenient_match
from longhand.hub_cards.evaluation.report import report
from longhand.hub_cards.evaluation.results import format_table, read_results
from longhand.modeling.vocabulary import decode


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        evaluation.main(list(map(str, arguments)))
    assert stop.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.strip().splitlines() if line.startswith("error: ")]
    return line


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("models") / "llama", chat=True)


@pytest.mark.parametrize(
    ("output", "strict", "lenient", "in_chat"),
    [
        ("702", True, True, True),
        (" 702 \n12+3=15", True, True, False),
        ("\n\n702", True, True, True),
        ("702.", False, True, True),
        ("702, and 12+3=15", False, True, False),
        ("653+49=702", False, True, True),
        ("653 + 49 = 702\n12+3=15", False, True, False),
        ("The answer is **702**.", False, True, True),
        ("First 3+9=12.\nSo the sum is \\boxed{702}", False, False, True),
        ("<think>653 and 49 is 701</think>\n\n702", True, True, True),
        ("<think>so 653 and 49 is 702", False, False, False),
        ("-702", False, False, False),
        ("702.5", False, False, False),
        ("7,02", False, False, False),
        ("0702", False, False, False),
        ("7020", False, False, False),
        ("x702", False, False, False),
        ("", False, False, False),
        ("no idea", False, False, False),
        ("703\n702", False, False, True),
        ("702 or 703", False, True, False),
    ],
)
def test_how_answers_are_read(output, strict, lenient, in_chat):
    assert is_exact(output, "702") == strict
    assert is_lenient_match(output, "702") == lenient
    assert is_lenient_match(output, "702", chat=True) == in_chat


def test_commas_between_thousands_are_left_out():
    assert is_lenient_match("The sum is 1,234,567.", "1234567") and not is_exact("1,234,567", "1234567")
    assert not is_lenient_match("1,234,56", "123456")


@pytest.mark.parametrize(("output", "right"), [("M2112M", True), ("It is M2112M.", True), ("M2112", False), ("2112", False)])
def test_an_answer_with_other_characters_is_read_as_a_word(output, right):
    assert is_lenient_match(output, "M2112M") == right


def test_zeros_in_front_of_a_string_are_part_of_it():
    assert is_lenient_match("062", "062") and not is_lenient_match("62", "062")


@pytest.mark.parametrize("name", [name for name, kind in TASKS.items() if len(kind().parts) == 1])
def test_a_question_in_text_is_the_problem_that_our_own_models_are_given(name):
    task = TASKS[name]().for_evaluation
    lengths = task.operand_lengths(6)
    prompts, answers = text_problems(task, lengths, 20, 3, "test")
    batches = EvaluationBatches(task, lengths, 20, 3, "test", 20, collator=lambda examples, generator: examples)
    examples, _ = batches.global_batch(0)
    assert len(set(prompts)) > 2 and len(prompts) == len(answers) == 20
    assert all(prompt.endswith("=") for prompt in prompts)
    if task.family.name == "decoder":
        queries = [decode(row[1:end]) for row, end in zip(examples.tokens, examples.query_lengths, strict=True)]
        assert list(map(task.prompt, prompts)) == queries
    sign = getattr(task, "sign", None)
    if sign is not None:
        numbers = [list(map(int, prompt[:-1].split(sign))) for prompt in prompts]
        assert not any(re.search(r"(?<!\d)0\d", prompt) for prompt in prompts)
        combine = {"+": sum, "-": lambda pair: pair[0] - pair[1], "*": lambda pair: pair[0] * pair[1]}
        combine["/"] = lambda pair: "{} remainder {}".format(*divmod(*pair))
        assert answers == [str(combine[sign](problem)) for problem in numbers]


def test_answers_are_those_of_the_datasets():
    task = TASKS["minesweeper"]()
    lengths = task.operand_lengths(4)
    prompts, answers = text_problems(task, lengths, 5, 0, "test")
    digits = task.draw(make_generator(0, "test", "evaluation", *lengths), np.tile(lengths, (5, 1)), "test")
    columns = example_columns(task, digits, np.tile(lengths, (5, 1)), np.dtype(np.int32))
    assert (prompts, answers) == (columns["prompt"].to_pylist(), columns["answer"].to_pylist())


@pytest.mark.parametrize("prompt", ["plain", "few_shot", "chat"])
def test_a_model_that_adds_rightly_is_right(prompt):
    model = calculator(Addition(), add, prompt=prompt)
    rows, problems = measure_language_model(model, [(1, 1), (5, 5), (7, 3)], num_samples=30)
    assert [(row["exact_match"], row["lenient_match"]) for row in rows] == [(1, 1)] * 3
    assert all(row["decode"] == "generate" and row["prompt"] == prompt for row in rows)
    assert {row.get("shots") for row in rows} == {4 if prompt == "few_shot" else None}
    assert len(problems) == 90 and all(problem["output"] == problem["answer"] for problem in problems)


def test_a_model_that_forgets_carries_scores_what_python_says():
    model = calculator(Addition(), add_without_carries)
    (row,), problems = measure_language_model(model, [(2, 2)], num_samples=200)
    right = [int(add_without_carries(problem["prompt"]) == str(sum(last_sum(problem["prompt"])))) for problem in problems]
    assert row["exact_match"] == row["lenient_match"] == sum(right) / 200 and 0 < sum(right) < 200


def test_a_model_that_talks_is_right_by_the_lenient_reading_alone():
    model = calculator(Addition(), lambda prompt: f"The answer is **{add(prompt)}**.", prompt="chat")
    (row,), _ = measure_language_model(model, [(4, 4)], num_samples=10)
    assert (row["exact_match"], row["lenient_match"]) == (0, 1)


def test_the_answer_of_a_long_problem_is_not_cut():
    model = calculator(Addition(), lambda prompt: f"  {add(prompt)}")
    (row,), _ = measure_language_model(model, [(60, 60)], num_samples=5)
    assert row["exact_match"] == 1


def test_solved_problems_come_first_and_do_not_change_with_their_number():
    written = {}
    for shots in (1, 3):
        model = calculator(Addition(), add, prompt="few_shot", shots=shots)
        prompts, _ = write_prompts(model, (3, 3), 5, 0)
        written[shots] = prompts[0].split("\n")
        assert len({tuple(prompt.split("\n")[:-1]) for prompt in prompts}) == 1
    assert len(written[3]) == 4 and written[3][0] == written[1][0] and written[3][-1] == written[1][-1]
    for line in written[3][:-1]:
        assert line.split("=")[1] == add(line)
    tested = {prompt for prompt, _ in [*zip(*text_problems(Addition(), (3, 3), 100, 0, "test"), strict=True)]}
    assert not tested & {line.split("=")[0] + "=" for line in written[3][:-1]}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_random_models_of_known_kinds_are_measured(tmp_path, kind, capsys):
    folder = save_random_model(tmp_path / kind, kind)
    arguments = ["--task", "addition", "--lengths", "1:3", "--num_samples", "10", "--output_dir", str(tmp_path / "out")]
    evaluation.main([str(folder), *arguments])
    rows = read_results(tmp_path / "out" / "results.jsonl")
    assert [(row["model"], row["length"], row["decode"]) for row in rows] == [
        (kind, length, "generate") for length in (1, 2, 3)
    ]
    assert all("token_accuracy" not in row and row["weights"] for row in rows)
    assert "lenient" in capsys.readouterr().out
    assert len(read_results(tmp_path / "out" / "completions.jsonl")) == 30
    assert (tmp_path / "out" / "accuracy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("prompt", ["plain", "chat"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_outputs_do_not_depend_on_the_batch_size(tmp_path, kind, prompt, monkeypatch):
    folder = save_random_model(tmp_path / kind, kind, chat=True, seed=1, max_position_embeddings=1024)
    model = language_models.load_language_model(str(folder), AdditionScratchpad(), prompt=prompt)
    lengths = [(3, 3), (9, 9, 9)]

    def outputs():
        _, problems = measure_language_model(model, lengths, num_samples=6)
        return [problem["output"] for problem in problems]

    whole = outputs()
    monkeypatch.setattr(language_models, "TOKENS_PER_BATCH", 1)
    assert outputs() == whole and any(whole)


def sizes_of_batches(model, monkeypatch):
    """The list that the number of prompts of every call of `generate` is added to."""
    sizes, generate = [], model.model.generate

    def record(input_ids, **options):
        sizes.append(len(input_ids))
        return generate(input_ids=input_ids, **options)

    monkeypatch.setattr(model.model, "generate", record)
    return sizes


def test_a_batch_has_as_many_prompts_as_asked_for(monkeypatch):
    model = calculator(Addition(), add, batch_size=4)
    sizes = sizes_of_batches(model, monkeypatch)
    (row,), _ = measure_language_model(model, [(3, 3)], num_samples=10)
    assert row["exact_match"] == 1 and sizes[-3:] == [4, 4, 2]


def test_weights_are_loaded_in_bfloat16_on_request(llama, tmp_path, capsys):
    rows = []
    for option in ([], ["--bf16", "--batch_size", "3"]):
        arguments = [str(llama), "--task", "addition", "--lengths", "2", "--num_samples", "5", *option]
        evaluation.main([*arguments, "--output_dir", str(tmp_path)])
        rows += read_results(tmp_path / "results.jsonl")
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"] and rows[0]["weights"] != rows[1]["weights"]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("[...] DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_ends_is_one_clear_error(error, monkeypatch):
    model = calculator(Addition(), add)
    generate = model.model.generate

    def fail(input_ids, **options):
        if len(input_ids) > 1:
            raise error
        return generate(input_ids=input_ids, **options)

    monkeypatch.setattr(model.model, "generate", fail)
    with pytest.raises(ValueError, match="does not suffice for 9 prompts at once: choose --batch_size below 9, --bf16 or"):
        measure_language_model(model, [(3, 3)], num_samples=9)


def test_weights_that_do_not_fit_are_refused_before_they_are_loaded(llama, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("longhand.data.memory.available_memory", lambda device: 2**10)
    bare = shutil.copytree(llama, tmp_path / "bare")
    (bare / "model.safetensors").write_bytes(b"not read")
    monkeypatch.setattr("longhand.hub_cards.checkpoints.sources.check_weights", lambda folder: None)
    said = refusal(capsys, bare, "--task", "addition")
    assert re.search(r"the [\d,]+ weights of .*bare in float32 need about", said) and "--bf16" in said


def test_a_model_that_reads_padding_takes_one_prompt_at_a_time(tmp_path, capsys):
    """Rwkv reads padding as text, and Bart counts positions from it on."""
    sizes = {"vocab_size": len(make_tokenizer()), "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(0)
    layers = {"decoder_layers": 1, "decoder_attention_heads": 1, "decoder_ffn_dim": 8, "init_std": 0.5}
    models = {
        "rwkv": RwkvForCausalLM(RwkvConfig(hidden_size=16, attention_hidden_size=16, num_hidden_layers=2, **sizes)),
        "bart": BartForCausalLM(BartConfig(d_model=16, **layers, **sizes, is_encoder_decoder=False)),
    }
    for name, model in models.items():
        for weights in filter(lambda weights: weights.ndim > 1, model.parameters()):
            torch.nn.init.normal_(weights, std=0.5)
        model.save_pretrained(tmp_path / name)
        make_tokenizer().save_pretrained(tmp_path / name)
        arguments = ["--task", "addition", "--lengths", "12", "--num_samples", "6", "--output_dir", str(tmp_path / "out")]
        said = refusal(capsys, tmp_path / name, *arguments)
        assert f"{name} reads the padding before shorter prompts of a batch" in said and "--batch_size 1" in said
        evaluation.main([str(tmp_path / name), *arguments, "--batch_size", "1"])


def test_a_model_that_cannot_write_is_refused_before_any_time_is_spent(monkeypatch):
    model = calculator(Addition(), add)
    for fault, said in ((lambda **_: 1 / 0, "division by zero"), (not_numbers, "its logits are NaN in float32")):
        monkeypatch.setattr(model.model, "generate", fault)
        with pytest.raises(ValueError, match=f"calculator cannot write answers: {said}"):
            measure_language_model(model, [(3, 3)], num_samples=2)


def not_numbers(input_ids, **_):
    return GenerateDecoderOnlyOutput(input_ids, logits=(torch.full((len(input_ids), 9), torch.nan),))


def test_an_output_is_the_same_beside_shorter_prompts(llama):
    model = language_models.load_language_model(str(llama), Addition())
    prompts = ["1+2=", "12345678901234567890+1=", "5+5="]
    together = language_models.complete(model, prompts, 8)
    assert together == [language_models.complete(model, [prompt], 8)[0] for prompt in prompts]


def test_decoding_is_greedy_whatever_the_model_comes_with(tmp_path, llama):
    folder = shutil.copytree(llama, tmp_path / "sampled")
    settings = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 3.0, "eos_token_id": [0], "min_new_tokens": 4}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    outputs = []
    for source in (llama, folder, folder):
        model = language_models.load_language_model(str(source), Addition())
        outputs.append(language_models.complete(model, ["653+49=", "12+3="], 12))
    assert outputs[0] == outputs[1] == outputs[2]


def test_generation_ends_after_the_first_line(llama):
    tokenizer = language_models.load_language_model(str(llama), Addition()).tokenizer
    texts = ["5+5=", "5+5=\n", "5+5=7", "5+5=\n7\n8"]
    ends = [
        language_models.FirstLine(tokenizer, 4)(
            torch.tensor([tokenizer("....").input_ids + tokenizer(text[4:]).input_ids]), None
        )
        for text in texts
    ]
    assert [bool(end) for end in ends] == [False, False, False, True]


def test_our_curve_and_a_language_models_stand_in_one_picture(main_job, llama, tmp_path, capsys):
    arguments = ["--lengths", "1:3", "--num_samples", "10", "--output_dir", str(tmp_path)]
    evaluation.main([str(llama), str(main_job), *arguments])
    rows = read_results(tmp_path / "results.jsonl")
    assert [row["model"] for row in rows] == ["llama"] * 3 + ["addition"] * 3
    assert [row["exact_match"] for row in rows[3:]] == [1, 1, 1] and {row["decode"] for row in rows[3:]} == {
        "teacher_forced"
    }
    printed = capsys.readouterr().out
    assert "median" not in printed and "lenient" in printed


def test_rows_of_both_kinds_are_drawn_and_read_together(main_job, tmp_path):
    own = evaluation.load_checkpoint(str(main_job))
    rows = evaluate_lengths(own.model, own.task, [(2, 2), (4, 4)], name="ours", num_samples=10)
    more, _ = measure_language_model(calculator(Addition(), add_without_carries), [(2, 2), (4, 4)], num_samples=10)
    report(rows + more, tmp_path, (1, 3))
    assert read_results(tmp_path / "results.jsonl") == rows + more
    table = format_table(rows + more).splitlines()
    assert len({len(line) for line in table}) == 1


@pytest.mark.parametrize("option", ["--certify", "--output_places", "--attentions", "--position_maps", "--update_card"])
def test_options_for_our_own_models_are_refused_by_name(llama, capsys, option):
    message = refusal(capsys, llama, "--task", "addition", option)
    assert f"{option} is for checkpoints of this package" in message and "llama" in message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--task", "addition", "--ask", "653+49"], "--ask is for checkpoints of this package"),
        (["--task", "addition", "--decode", "teacher_forced"], "--decode teacher_forced is for checkpoints"),
        ([], "choose its task with --task, one of addition"),
        (["--task", "sums"], "task 'sums' is unknown"),
        (["--task", "addition", "--shots", "3"], "--shots 3 is for --prompt few_shot, got --prompt plain"),
        (["--task", "addition", "--prompt", "few_shot", "--shots", "17"], "17"),
        (["--task", "addition", "--prompt", "poem"], "poem"),
        (["--task", "addition", "--lengths", "300"], "has 512 positions, but size 300 x 300 needs"),
        (["--task", "addition", "--lengths", "99999999"], "lengths must be an integer from 1 to 1,000,000"),
        (["--task", "copy", "--sampling", "cascades"], "draws problems in one way only"),
        (["--task", "addition", "--batch_size", "0"], "--batch_size must be an integer of at least 1, got 0"),
    ],
)
def test_what_a_language_model_cannot_do_is_refused(llama, capsys, tmp_path, options, expected):
    assert expected in refusal(capsys, llama, *options, "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_prompts_are_for_language_models_alone(main_job, capsys):
    for option in (["--prompt", "chat"], ["--bf16"], ["--batch_size", "4"]):
        assert f"{option[0]} is for language models of others" in refusal(capsys, main_job, *option)


def test_a_chat_needs_a_template(tmp_path, capsys):
    folder = save_random_model(tmp_path / "plain")
    expected = "the tokenizer of plain has no chat template: choose --prompt plain or few_shot"
    assert expected in refusal(capsys, folder, "--task", "addition", "--prompt", "chat")


@pytest.mark.parametrize(("model", "name"), [("bert", "BertForMaskedLM"), ("vit", "ViTForImageClassification")])
def test_a_model_of_another_kind_is_refused_by_its_class(tmp_path, capsys, model, name):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    made = BertForMaskedLM(BertConfig(**sizes)) if model == "bert" else ViTForImageClassification(ViTConfig(**sizes))
    made.save_pretrained(tmp_path / model)
    assert f"is a {name}, not a causal language model" in refusal(capsys, tmp_path / model, "--task", "addition")


def test_weights_must_be_whole_and_in_safetensors(tmp_path, capsys):
    folder = save_random_model(tmp_path / "damaged")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lack what config.json names (model.norm.weight)" in refusal(capsys, folder, "--task", "addition")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "holds no .safetensors file" in refusal(capsys, folder, "--task", "addition")


def test_our_own_checkpoints_are_never_taken_for_others(main_job, small_encoder, tmp_path):
    bare = shutil.copytree(main_job, tmp_path / "bare", ignore=shutil.ignore_patterns("recipe.yaml", "best", "check*"))
    foreign = save_random_model(tmp_path / "gpt2", "gpt2")
    assert is_language_model(str(foreign))
    assert not any(is_language_model(str(folder)) for folder in (main_job, small_encoder, bare, tmp_path))
    with pytest.raises(ValueError, match="there is no such folder"):
        is_language_model(str(tmp_path / "none"))
    shutil.copy(main_job / "recipe.yaml", foreign)
    assert not is_language_model(str(foreign))


def test_a_tokenizer_without_tokens_for_a_prompt_is_refused(tmp_path, capsys):
    folder = save_random_model(tmp_path / "words")
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "1": 1, "=": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    assert "has no tokens for the prompt" in refusal(capsys, folder, "--task", "addition", "--lengths", "2")


def test_a_tokenizer_that_ends_prompts_is_refused(tmp_path, capsys):
    folder = save_random_model(tmp_path / "ends")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    assert "with its end token" in refusal(capsys, folder, "--task", "addition", "--lengths", "2")


@pytest.mark.slow
def test_a_model_on_the_hub_is_measured_and_again_without_the_hub(hub, tmp_path):
    folder = save_random_model(tmp_path / "qwen3", "qwen3")
    hub.add_repository("someone/qwen", {file.name: file.read_bytes() for file in folder.iterdir()})
    command = [sys.executable, "-m", "longhand.eval", "someone/qwen", "--task", "copy", "--lengths", "4"]
    for offline in ("0", "1"):
        environment = os.environ | hub.environment(tmp_path / "home", HF_HUB_OFFLINE=offline)
        done = subprocess.run(
            [*command, "--num_samples", "4"], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        (row,) = read_results(tmp_path / "outputs" / "evaluation" / "someone--qwen" / "results.jsonl")
        assert row["model"] == "someone/qwen" and row["task"] == "copy"
