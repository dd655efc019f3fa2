"""What CONTRIBUTING.md shows is what stands in tests/plugins, and its commands run."""

import ast
import inspect
import re
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch
from package_files import FILES, ROOT, tree

from longhand import CoupledGPTConfig, train
from longhand import eval as evaluation
from longhand.data import TASKS, load_task_dataset
from longhand.data.tasks.plugins import load_plugin
from longhand.data.tasks.registry import build_tokenizer
from longhand.data.tokenization import build_encoder_tokenizer
from longhand.hub_cards import push
from longhand.hub_cards.checkpoints.load import load_checkpoint, read_checkpoint
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.encoder_maps import PAIR_MAP_RULES
from longhand.modeling.position_encodings import POSITION_ENCODINGS

pytestmark = pytest.mark.usefixtures("undrawn")

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PLUGINS = ROOT / "tests" / "plugins"
SHOWN = dict(re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```\n", TEXT, flags=re.DOTALL))
COMMANDS = [
    re.sub("    #.*", "", block).splitlines()
    for block in re.findall(r"```bash\n(python train\.py .*?)\n```", TEXT, flags=re.DOTALL)
]
SMALL = ["--hidden_size", "16", "--batch_size", "8", "--max_length", "3", "--validation_lengths", "3", "--test_lengths", "4",
         "--validation_samples", "4", "--test_samples", "4", "--max_steps", "4", "--eval_steps", "2",
         "--until_certified", "False"]  # fmt: skip


def test_every_example_is_shown_as_it_stands_in_its_file():
    assert {file.name: file.read_text(encoding="utf-8") for file in PLUGINS.iterdir() if file.is_file()} == SHOWN


VISITED = """
import os, sys
from longhand import train
from longhand.modeling import CoupledGPTForCausalLM

def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>":
        files.add(frame.f_code.co_filename)

def forward_once(model, *arguments, **options):
    output = forward(model, *arguments, **options)
    sys.settrace(None)
    print(*sorted(files), sep="\\n", flush=True)
    os._exit(0)

files, forward = set(), CoupledGPTForCausalLM.forward
CoupledGPTForCausalLM.forward = forward_once
sys.settrace(note)
train.main(["addition", "--output_dir", sys.argv[1]])
"""
"""A program that prints the files whose functions run before the first logits of the recipe `addition`."""


@pytest.mark.thorough
def test_the_files_of_one_problem_are_those_that_run(forks, tmp_path):
    (section,) = re.findall(r"^## One problem.*?(?=^## )", TEXT, flags=re.DOTALL | re.MULTILINE)
    script = tmp_path / "visited.py"
    script.write_text(VISITED, encoding="utf-8")
    done = forks.run(["python", str(script), str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    files = [Path(line).resolve() for line in done.stdout.splitlines() if line.startswith("/")]
    visited = {str(file.relative_to(ROOT)) for file in files if file.is_relative_to(ROOT)}
    assert visited == set(re.findall(r"`([\w/]+\.py)`", section))


def test_each_example_has_a_command():
    used = {word for command in COMMANDS for word in shlex.split(command[0])}
    assert {name for name in SHOWN if name.endswith(".py")} <= used


@cache
def imported_names() -> list[tuple[str, set[str]]]:
    """The file and the names of each statement that imports from a module."""
    return [
        (file, {name.name for name in node.names})
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ImportFrom)
    ]


@pytest.mark.parametrize("kind", [kind for kind in TASKS.values() if not kind.__subclasses__()], ids=lambda kind: kind.name)
def test_a_new_task_takes_one_further_line(kind):
    """The registry's line is the only one outside a task's own file that imports its class; others may be made of it."""
    made_of_it = [other for other in TASKS.values() if kind in getattr(other, "members", ())]
    own = {str(Path(inspect.getfile(task)).relative_to(ROOT)) for task in (kind, *made_of_it)}
    importing = [
        file
        for file, names in imported_names()
        if file not in own and not file.startswith("hub_cards/research/") and kind.__name__ in names
    ]
    assert importing == ["data/tasks/__init__.py"]


@pytest.mark.parametrize("commands", COMMANDS, ids=lambda commands: shlex.split(commands[0])[4])
def test_the_commands_of_an_example_run(commands, tmp_path, monkeypatch, capsys):
    """Trained with sizes of a test, evaluated, asked, made into a dataset and put on a card."""
    for file in PLUGINS.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    (_, script, *words), *others = map(shlex.split, commands)
    plugin = words[words.index("--plugin") + 1]
    assert script == "train.py"
    train.main([*words, *SMALL])
    (folder,) = Path("outputs").iterdir()
    for _, script, *options in others:
        assert script in ("eval.py", f"{folder}/verify_certificate.py") and options[0] == str(folder)
        if script == "eval.py":
            evaluation.main(options)
    capsys.readouterr()
    with_plugin = [str(folder), "--plugin", plugin]
    evaluation.main([*with_plugin, "--lengths", "3,4", "--num_samples", "4"])
    assert re.search(rf"^{folder.name}(: \w+)? +4 ", capsys.readouterr().out, flags=re.MULTILINE)
    checkpoint = load_checkpoint(str(folder))
    task, question = checkpoint.task, checkpoint.task.example_question
    evaluation.main([*with_plugin, "--ask", question])
    assert capsys.readouterr().out == f"{checkpoint.answer(question)}\n"
    load_plugin(plugin)
    made = load_task_dataset(task.name, split="test", max_length=3, num_samples=4, cache_dir=str(tmp_path / "cache"))
    assert len(made) == 4 and {"prompt", "answer"} <= set(made.column_names)
    push.main(["card", *with_plugin])
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"`{task.name}`" in card and f"--plugin {plugin}" in card and read_checkpoint(folder).rows


def test_the_rule_draws_what_it_computes():
    load_plugin(PLUGINS / "distance_rule.py")
    rule = COUPLING_RULES["distance_to_equals"]
    tokens, ids = (line.split() for line in inspect.getdoc(rule.plan).splitlines()[-2:])
    query = build_tokenizer()("".join(tokens[1 : tokens.index("=") + 1]), return_tensors="pt")["input_ids"]
    plan = rule.plan(query, len(tokens))
    assert plan.position_ids.tolist() == [[list(map(int, ids))]]


def test_the_pair_map_draws_what_it_computes():
    load_plugin(PLUGINS / "partner_map.py")
    rule, text = PAIR_MAP_RULES["partner"], inspect.getdoc(PAIR_MAP_RULES["partner"].derive)
    tokens = re.search(r"^tokens +(.+)$", text, re.MULTILINE)[1].split()
    rows = re.findall(r"^ +(\S) {2,}([\d.](?: [\d.])+)$", text, re.MULTILINE)
    assert [query for query, _ in rows] == tokens
    drawn = [[-1 if cell == "." else int(cell) for cell in row.split()] for _, row in rows]
    batch = build_encoder_tokenizer()(["".join(tokens), "1+2"], padding=True, return_tensors="pt")
    whole, padded = rule.derive(batch["input_ids"], batch["attention_mask"].bool())
    assert whole.tolist() == drawn and max(map(max, drawn)) == rule.relations - 1
    assert padded[:3, :3].tolist() == [[0, -1, 1], [3, 0, 2], [1, -1, 0]] and (padded[3:] == -1).all()


def test_the_encoding_has_a_bias_for_every_head():
    load_plugin(PLUGINS / "recency_encoding.py")
    config = CoupledGPTConfig(position_encoding="recency", hidden_size=24, num_attention_heads=3)
    encoding = POSITION_ENCODINGS["recency"](config)
    encoding.init_weights()
    query_ids, key_ids = torch.tensor([[[4, 2]]]), torch.tensor([[[4, 3, 1]]])
    relations = encoding.pair_map(query_ids, key_ids)
    assert relations.tolist() == [[[0, 1, 3], [2, 1, 1]]] and relations.dtype == torch.int32
    bias = encoding.bias(relations, layer=0)
    assert bias.shape == (*relations.shape, 3)
    torch.testing.assert_close(bias, -0.1 * relations[..., None].expand(-1, -1, -1, 3).float())
