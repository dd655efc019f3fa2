"""A user's own files: tasks are trained, resumed, evaluated, asked, and refused without them; rules and encodings travel."""

import importlib
import inspect
import json
import linecache
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from plugin_state import forget_plugins
from refusals import refusal
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM, train
from longhand import eval as evaluation
from longhand.data import TASKS, load_task_dataset, make_generator
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.tasks.plugins import HELPERS, PLUGINS, load_plugin, named_plugins
from longhand.data.tasks.registry import build_tokenizer
from longhand.hub_cards import push
from longhand.hub_cards.checkpoints.load import load_checkpoint, read_checkpoint
from longhand.hub_cards.result_rows import read_results
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.encoder_maps import PAIR_MAP_RULES

MAXIMUM = Path(__file__).parents[1] / "not_shown" / "maximum.py"
SHOWN = Path(__file__).parents[1] / "plugins"
SMALL = ["addition", "--task", "maximum", "--reverse", "--until_certified", "False", "--hidden_size", "16",
         "--intermediate_size", "32", "--batch_size", "8", "--max_length", "3", "--validation_lengths", "3",
         "--validation_samples", "4", "--test_lengths", "4", "--test_samples", "4", "--max_steps", "4",
         "--eval_steps", "2"]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a few steps of training, made with a plugin that is elsewhere and is not loaded any more."""
    folder = tmp_path_factory.mktemp("runs") / "maximum"
    train.main([*SMALL, "--plugin", str(MAXIMUM), "--output_dir", str(folder)])
    forget_plugins()
    return folder


def test_a_finished_folder_holds_its_plugin_and_says_which(trained):
    recipe = yaml.safe_load((trained / "recipe.yaml").read_text())
    assert recipe["plugin"] == {"maximum.py": load_plugin(MAXIMUM).sha256} and recipe["reverse"] is True
    for folder in (trained, trained / "best"):
        assert (folder / "maximum.py").read_bytes() == MAXIMUM.read_bytes()
        assert yaml.safe_load((folder / "recipe.yaml").read_text()) == recipe


def test_a_checkpoint_is_evaluated_and_asked_with_its_plugin(trained, tmp_path, capsys):
    options = ["--lengths", "4", "--num_samples", "4", "--output_dir", str(tmp_path)]
    evaluation.main([str(trained), "--plugin", str(MAXIMUM), *options])
    measured = [(row["task"], row["exact_match"], row["token_accuracy"]) for row in read_results(tmp_path / "results.jsonl")]
    kept = [(row["task"], row["exact_match"], row["token_accuracy"]) for row in read_results(trained / "results.jsonl")]
    assert measured == kept[:1] and kept[0][0] == "maximum"
    capsys.readouterr()
    evaluation.main([str(trained), "--plugin", str(trained / "maximum.py"), "--ask", "35>17"])
    assert capsys.readouterr().out
    assert "35>17" in refusal(capsys, evaluation.main, trained, "--plugin", MAXIMUM, "--ask", "35+17")
    assert read_checkpoint(trained).task.describe() == {"task": "maximum", "separate_eos": False, "reverse": True}


@pytest.mark.parametrize("words", [["card"], ["model", "user/maximum"]])
def test_a_checkpoint_is_put_on_a_card_and_pushed_with_its_plugin_only(trained, capsys, words):
    words = [words[0], trained, *words[1:]]
    message = refusal(capsys, push.main, *words)
    assert message.startswith(f"error: {trained} was made with the plugin maximum.py, which is code")
    assert f"--plugin {trained / 'maximum.py'} " in message
    before = (trained / "README.md").read_text()
    push.main([str(word) for word in [*words, "--plugin", MAXIMUM]])
    assert "maximum.py" in before and (trained / "README.md").read_text() == before
    assert words[0] == "card" or "  maximum.py\n" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["", "best"])
def test_without_its_plugin_a_checkpoint_is_refused_and_says_what_to_do(trained, capsys, part):
    folder = trained / part
    said = f"error: {folder} was made with the plugin maximum.py, which is code: read it, then pass --plugin {folder}/max"
    assert refusal(capsys, evaluation.main, folder, "--ask", "35>17").startswith(said)
    with pytest.raises(ValueError, match="which is code"):
        load_checkpoint(str(folder))
    with pytest.raises(ValueError, match="which is code"):
        read_checkpoint(trained)
    assert "which is code" in refusal(capsys, train.main, trained, "--output_dir", trained.parent / "new")
    assert "maximum" not in TASKS


def test_the_copy_beside_a_checkpoint_is_run_if_it_is_trusted(trained, tmp_path, capsys):
    evaluation.main([str(trained), "--trust_remote_code", "--ask", "35>17"])
    assert capsys.readouterr().out and "maximum" in TASKS
    forget_plugins()
    changed = shutil.copytree(trained, tmp_path / "changed")
    (changed / "maximum.py").write_text("raise SystemExit('was run')")
    assert "has changed" in refusal(capsys, evaluation.main, changed, "--trust_remote_code", "--ask", "35>17")
    (changed / "maximum.py").unlink()
    assert "cannot be read" in refusal(capsys, evaluation.main, changed, "--trust_remote_code", "--ask", "35>17")


def test_a_run_is_resumed_with_the_same_plugin_only(tmp_path, capsys, monkeypatch):
    class Cut(BaseException):
        """A run that ends in the middle."""

    def cut(*_):
        raise Cut

    plugin, folder = shutil.copy(MAXIMUM, tmp_path / "maximum.py"), tmp_path / "run"
    arguments = [*SMALL, "--plugin", str(plugin), "--output_dir", str(folder)]
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(train, "save_final", cut)
        train.main(arguments)
    assert (folder / "maximum.py").is_file()
    forget_plugins()
    plugin.write_text(MAXIMUM.read_text() + "# changed\n")
    message = refusal(capsys, train.main, *arguments, "--resume")
    assert "another configuration" in message and "plugin was {'maximum.py': " in message
    forget_plugins()
    train.main([*SMALL, "--plugin", str(folder / "maximum.py"), "--output_dir", str(folder), "--resume"])
    assert (folder / "results.jsonl").is_file()


def test_a_plugin_is_imported_once_whatever_its_folder(tmp_path):
    first = load_plugin(MAXIMUM)
    task = TASKS["maximum"]
    assert load_plugin(shutil.copy(MAXIMUM, tmp_path)) is first
    assert TASKS["maximum"] is task and sys.modules["longhand_plugins.maximum"].Maximum is task
    examples = task().examples(make_generator(0), task().sample_lengths(make_generator(1), 4, 3, 3), "train")
    assert len(examples) == 4


@pytest.mark.parametrize("listed", [False, True])
def test_a_dataset_is_made_with_a_plugin(tmp_path, listed):
    plugin = [MAXIMUM] if listed else str(MAXIMUM)
    options = {"max_length": 5, "num_samples": 30, "min_length": 3, "plugin": plugin}
    rows = load_task_dataset("maximum", **options, num_proc=2, cache_dir=str(tmp_path))[:]
    streamed = load_task_dataset("maximum", **options, streaming=True)
    for prompt, answer, row in zip(rows["prompt"], rows["answer"], streamed, strict=True):
        assert int(answer) == max(map(int, prompt.rstrip("=").split(">")))
        assert (row["prompt"], row["answer"]) == (prompt, answer)


def test_rows_of_a_changed_plugin_are_made_anew(tmp_path):
    plugin = tmp_path / "maximum.py"
    answers = []
    for code in (MAXIMUM.read_text(), MAXIMUM.read_text().replace("second, first)", "first, second)")):
        forget_plugins()
        plugin.write_text(code)
        rows = load_task_dataset(
            "maximum", max_length=5, num_samples=30, min_length=5, plugin=plugin, cache_dir=str(tmp_path / "cache")
        )
        answers.append([int(answer) for answer in rows["answer"]])
    assert all(larger > smaller for larger, smaller in zip(*answers, strict=True))


HELPING = {
    "a module": ("import own_order", {"own_order.py": ""}),
    "a name of a module": ("from own_order import ORDER", {"own_order.py": "ORDER = {order}"}),
    "a module of a module": ("import own_middle", {"own_middle.py": "import own_order", "own_order.py": ""}),
    "a package": ("from own_rules import first", {"own_rules/__init__.py": "", "own_rules/first.py": "from . import order",
                                                  "own_rules/order.py": ""}),
    "a module that is imported late": ("def late():\n    import own_order", {"own_order.py": ""}),
}  # fmt: skip
"""A line of a plugin, and the files that it leads to, the last of which changes."""


@pytest.mark.parametrize("kind", HELPING)
def test_rows_are_made_anew_if_a_module_changes_that_a_plugin_imports(kind, tmp_path, monkeypatch):
    line, files = HELPING[kind]
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "maximum.py").write_text(MAXIMUM.read_text() + f"\n\n{line}\n")
    folders = []
    for order in (1, 2, 1):
        forget_plugins()
        for name in [name for name in sys.modules if name.startswith("own_")]:
            del sys.modules[name]
        for name, code in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            changed = f"ORDER = {order}\n" if name == [*files][-1] else code
            (tmp_path / name).write_text(changed)
        importlib.invalidate_caches()
        load_plugin(tmp_path / "maximum.py")
        builder = TaskDatasetBuilder(task="maximum", max_length=5, num_samples={"train": 3}, cache_dir=tmp_path / "cache")
        folders.append(builder.cache_dir)
    assert folders[0] == folders[2] != folders[1]
    assert {Path(path).name for path in HELPERS} == {Path(name).name for name in files}


READING = {
    "when it is loaded": "CAP = int(open(FILE).read())",
    "when it solves": "class _Late:\n    def __index__(self):\n        return int(FILE.read_text())\n\n\nCAP = _Late()",
    "by a library": "CAP = int(np.loadtxt(FILE))",
}
"""How a plugin may read a number from a file of its own."""

CAPPED = """
from pathlib import Path
import numpy as np
from longhand.data import ColumnTask, register_task

FILE = Path(__file__).with_name("cap.txt")
{reading}

@register_task
class Capped(ColumnTask):
    name, operands, alphabet, flush = "capped", 1, "0123456789", 0

    def step(self, carry, symbols):
        return min(symbols[0], range(10)[CAP]), 0
"""


@pytest.mark.parametrize("kind", READING)
def test_rows_are_made_anew_if_a_file_changes_that_a_plugin_reads(kind, tmp_path):
    (tmp_path / "capped.py").write_text(CAPPED.format(reading=READING[kind]))
    for cap in (1, 2, 1):
        forget_plugins()
        (tmp_path / "cap.txt").write_text(f"{cap}")
        options = {"max_length": 4, "min_length": 4, "num_samples": 30, "plugin": tmp_path / "capped.py"}
        rows = load_task_dataset("capped", **options, cache_dir=str(tmp_path / "cache"))
        assert max(max(answer) for answer in rows["answer"]) == str(cap)
    assert {Path(path).name for path in HELPERS} == {"cap.txt"}


def test_the_source_of_a_plugin_is_what_was_loaded(tmp_path):
    code = MAXIMUM.read_text() + "# as it was loaded: \N{DEGREE SIGN}\n"
    (tmp_path / "maximum.py").write_text(code, encoding="utf-8")
    load_plugin(tmp_path / "maximum.py")
    (tmp_path / "maximum.py").write_text("changed = True\n")
    linecache.checkcache()
    assert inspect.getsource(sys.modules["longhand_plugins.maximum"]) == code


SECOND_COPY = "from longhand.data import Copy, register_task\nclass SecondCopy(Copy): name = 'copy'\n"


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("my-task.py", "", "must be that of a Python module"),
        ("broken.py", "x = 1\n1 / 0\n", "broken.py fails at line 2: ZeroDivisionError: division by zero"),
        ("broken.py", "def f(:\n", "SyntaxError"),
        ("thief.py", f"{SECOND_COPY}register_task(SecondCopy)", "the task 'copy' exists"),
        ("missing.py", None, "cannot be read"),
    ],
)
def test_a_plugin_that_fails_is_refused_in_one_line(tmp_path, capsys, name, code, expected):
    if code is not None:
        (tmp_path / name).write_text(code)
    message = refusal(capsys, train.main, "addition", "--plugin", tmp_path / name, "--output_dir", tmp_path / "run")
    assert expected in message and PLUGINS == {} and not (tmp_path / "run").exists()


def test_recipes_name_plugins_by_their_hashes():
    assert named_plugins({}) == {} and named_plugins({"plugin": {"a.py": "f00", "b.py": None}}) == {
        "a.py": "f00",
        "b.py": None,
    }
    for illegal in ("a.py", ["a.py"], {"../a.py": None}, 5):
        with pytest.raises(ValueError, match="plugin must map Python files"):
            named_plugins({"plugin": illegal})


@pytest.fixture
def modules(monkeypatch):
    """A rule and an encoding, imported as a user imports modules of their own."""
    monkeypatch.syspath_prepend(SHOWN)
    names = ("distance_rule", "recency_encoding")
    for name in names:
        importlib.import_module(name)
    yield
    for name in names:
        del sys.modules[name]


def with_plugins() -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    options = {"coupling": "distance_to_equals", "position_encoding": "recency", "max_position_ids": 40}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**options)).eval()


ENCODER_ELSEWHERE = """
import sys
sys.modules["longhand"] = None
import torch
from transformers import AutoModelForTokenClassification

folder, again, output = sys.argv[1:]
model = AutoModelForTokenClassification.from_pretrained(folder, trust_remote_code=True)
torch.save(model(torch.tensor([[1, 2, 10, 9, 5]])).logits, output)
model.save_pretrained(again)
"""


@pytest.mark.release
def test_an_encoder_with_a_pair_map_from_a_plugin_is_saved_with_its_code(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(SHOWN)
    importlib.import_module("partner_map")
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = PairwiseBertForTokenClassification(PairwiseBertConfig(pair_maps=["partner"], **sizes)).eval()
    folder, again, tokens = tmp_path / "checkpoint", tmp_path / "again", torch.tensor([[1, 2, 10, 9, 5]])
    logits, pair_map = model(tokens).logits, PAIR_MAP_RULES["partner"].derive(tokens, torch.ones(1, 5, dtype=torch.bool))
    assert torch.equal(model(tokens, pair_map=pair_map).logits, logits)
    model.save_pretrained(folder)
    script = tmp_path / "script.py"
    script.write_text(ENCODER_ELSEWHERE)
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": ""}
    command = [sys.executable, "-I", script, folder, again, tmp_path / "logits.pt"]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=300, capture_output=True)
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), logits)
    for name in ("plugin_partner_map.py", "with_plugins.py", "config.json"):
        assert (again / name).read_text() == (folder / name).read_text(), name
    del PAIR_MAP_RULES["partner"], sys.modules["partner_map"]
    with pytest.raises((ValueError, StrictDataclassError), match=r"--plugin partner_map.py, or"):
        AutoModelForTokenClassification.from_pretrained(folder, trust_remote_code=False)


def test_a_checkpoint_says_which_plugins_it_needs(modules, tmp_path):
    with_plugins().save_pretrained(tmp_path / "checkpoint")
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    assert config["plugins"] == ["distance_rule.py", "recency_encoding.py"]
    assert set(config["auto_map"].values()) == {
        f"with_plugins.{name}" for name in ("CoupledGPTConfig", "CoupledGPTModel", "CoupledGPTForCausalLM")
    }
    del COUPLING_RULES["distance_to_equals"]
    with pytest.raises((ValueError, StrictDataclassError), match=r"--plugin distance_rule.py recency_encoding.py, or"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint", trust_remote_code=False)


BESIDE = """
import sys
import torch
import longhand
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, pipeline

folder, output = sys.argv[1:]
inputs = AutoTokenizer.from_pretrained(folder)("653+049=", return_tensors="pt")
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
direct = longhand.CoupledGPTForCausalLM.from_pretrained(folder, trust_remote_code=True)
config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
given = AutoModelForCausalLM.from_pretrained(folder, config=config, trust_remote_code=True)
torch.save([one(**inputs).logits for one in (model, direct, given)], output)
assert AutoModel.from_pretrained(folder, trust_remote_code=True).config.coupling == "distance_to_equals"
pipeline("text-generation", folder, trust_remote_code=True)("653+049=", max_new_tokens=2)
longhand.CoupledGPTForCausalLM.from_pretrained(longhand.zoo("addition-tiny"), trust_remote_code=True)
"""


@pytest.mark.release
def test_a_checkpoint_with_plugins_runs_with_trust_where_this_package_is_imported_without_them(modules, tmp_path):
    model, tokenizer, folder = with_plugins(), build_tokenizer(), tmp_path / "checkpoint"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    script = tmp_path / "script.py"
    script.write_text(BESIDE)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, script, folder, tmp_path / "logits.pt"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    logits = model(**tokenizer("653+049=", return_tensors="pt")).logits
    for loaded in torch.load(tmp_path / "logits.pt"):
        torch.testing.assert_close(loaded, logits)


def test_checkpoints_without_plugins_name_none(tmp_path):
    CoupledGPTConfig().save_pretrained(tmp_path)
    assert "plugin" not in (tmp_path / "config.json").read_text()
    assert not (tmp_path / "with_plugins.py").exists()


def test_a_plugin_that_cannot_travel_is_refused(modules, tmp_path, monkeypatch):
    text = (SHOWN / "distance_rule.py").read_text()
    (tmp_path / "rule.py").write_text(text.replace("longhand.modeling.coupling import", "longhand.modeling import"))
    del COUPLING_RULES["distance_to_equals"]
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("rule")
    with pytest.raises(ValueError, match=r"the line 'from longhand\.modeling import .*'; import from the module"):
        with_plugins().save_pretrained(tmp_path / "checkpoint")
    del sys.modules["rule"]
    assert not (tmp_path / "checkpoint" / "config.json").exists()
