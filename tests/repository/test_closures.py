"""What a command imports: closures are counted, so that a run loads what it uses and no closure grows unseen."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from package_files import ROOT, lines_of_code, tree

import longhand
from longhand import data
from longhand.data import proofs
from longhand.data.on_demand import import_after

MOST = {"begin": (77, 12_100), "ask": (69, 11_200)}
"""Files and lines of `train.py addition` when its first step begins, and of `eval.py addition --ask`."""

KNOWN = {
    "import longhand": (3, 175),
    "the verifier": (5, 2_102),
    "datasets": (53, 8_902),
    "ask": (68, 10_961),
    "begin": (76, 11_789),
    "train": (95, 14_977),
}
"""Files and lines of code, without comments and docstrings, of each closure when it was last looked at."""

GROWTH = 1.1
"""A closure that grows by more than a tenth needs a reason, and new numbers above."""

PROGRAM = '''
import json, os, sys

def closure(then):
    """Files of the package that a process of its own has loaded after it has run a function."""
    reading, writing = os.pipe()
    if not os.fork():
        try:
            then()
        except SystemExit as end:
            print("the command ended with status", end.code, file=sys.stderr)
        finally:
            # Some packages are folders without a file.
            loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] == "longhand"]
            files = {module.__file__ for module in loaded if getattr(module, "__file__", None)}
            os.write(writing, json.dumps(sorted(files)).encode())
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        return json.load(pipe)

def import_longhand():
    import longhand

def verify():
    from longhand.data.proofs.verify_certificate import main
    main(["--help"])

def load_datasets():
    from longhand.data import load_task_dataset

def ask():
    from longhand.eval import main
    main(["addition", "--ask", "653+49"])

def begin():
    from longhand.hub_cards.training.arguments import parse_run
    from longhand.train import make_trainer
    make_trainer(parse_run(["addition", "--use_cpu", "True", "--output_dir", sys.argv[1] + "-begun"]))

def train():
    from longhand.train import main
    small = "--max_steps 1 --eval_steps 1 --validation_samples 2 --test_samples 2 --test_lengths 3 --batch_size 2"
    main(["addition", "--use_cpu", "True", "--output_dir", sys.argv[1], *small.split()])

found = {"import longhand": closure(import_longhand), "the verifier": closure(verify)}
import datasets, torch, transformers
found |= {"datasets": closure(load_datasets), "ask": closure(ask)}
found |= {"begin": closure(begin), "train": closure(train)}
print(json.dumps(found))
'''
"""Prints the files of each closure. Libraries are imported once, and each command runs in a copy of this process."""


@pytest.fixture(scope="module")
def closures(tmp_path_factory) -> dict[str, list[str]]:
    """The files of each closure."""
    program = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("closures") / "run")]
    printed = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = json.loads(printed.splitlines()[-1])
    return {name: [str(Path(file).relative_to(ROOT)) for file in files] for name, files in found.items()}


@pytest.mark.thorough
def test_no_closure_grows_by_a_tenth_unseen(closures):
    for name, files in closures.items():
        lines = sum(len(lines_of_code(file)) for file in files)
        most_files, most_lines = (int(GROWTH * number) for number in KNOWN[name])
        assert len(files) <= most_files and lines <= most_lines, (
            f"{name} loads {len(files)} files with {lines:,} lines, and {most_files} with {most_lines:,} are allowed: "
            "import what is rarely used in the function that uses it, or write the new numbers into KNOWN"
        )


@pytest.mark.thorough
def test_a_training_run_loads_what_it_uses(closures):
    files = closures["begin"]
    unused = ("data/learning/", "data/proofs/lengths/", "data/proofs/verify", "hub_cards/page/", "hub_cards/research/")
    assert not [file for file in [*files, *closures["train"]] if file.startswith(unused)]
    certificates = ("data/proofs/certificate.py", "hub_cards/checkpoints/certificate_file.py")
    at_its_end = (*certificates, "hub_cards/checkpoints/load.py")
    assert not {*at_its_end} & {*files} and {*at_its_end} <= {*closures["train"]}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MOST)
def test_the_main_commands_load_few_files(closures, name):
    files = closures[name]
    lines = sum(len(lines_of_code(file)) for file in files)
    most_files, most_lines = MOST[name]
    assert len(files) <= most_files and lines <= most_lines, f"{name} loads {len(files)} files, {lines:,} lines"


@pytest.mark.thorough
def test_a_question_loads_no_proof_of_windows_and_a_run_its_own_task_alone(closures):
    assert not [file for file in closures["ask"] if file.startswith("data/proofs/windows/")]
    files = {file for name in ("ask", "begin") for file in closures[name] if file.startswith("data/tasks/")}
    bases = ("__init__", "column_task", "decoder_task", "plugins", "reader", "registry", "task")
    assert files == {f"data/tasks/{name}.py" for name in (*bases, "addition")}


IMPORTS = [
    "import longhand, sys; assert not {'torch', 'transformers'} & {*sys.modules}; from transformers import AutoConfig",
    pytest.param(
        "from longhand.data import proofs; from transformers.models.auto import AutoConfig", marks=pytest.mark.release
    ),
    pytest.param("import transformers, longhand; AutoConfig = transformers.AutoConfig", marks=pytest.mark.release),
    pytest.param("from longhand import CoupledGPTConfig; from transformers import AutoConfig", marks=pytest.mark.release),
    pytest.param("import longhand; longhand.modeling; from transformers import AutoConfig", marks=pytest.mark.release),
]
USES = """
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForTokenClassification
small = dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=1)
AutoModelForCausalLM.from_config(AutoConfig.for_model("coupled_gpt", **small))
AutoModel.from_config(AutoConfig.for_model("coupled_gpt", **small))
AutoModelForTokenClassification.from_config(AutoConfig.for_model("pairwise_bert", **small))
AutoModel.from_config(AutoConfig.for_model("pairwise_bert", **small))
import sys, longhand.eval
assert not {"datasets", "evaluate", "matplotlib"} & {*sys.modules}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("imports", IMPORTS)
def test_auto_classes_know_the_models_whatever_is_imported_first(imports):
    """Importing longhand loads neither torch nor transformers, and nobody meets Auto classes that do not know its models.

    Questions need no libraries of datasets and pictures.
    """
    subprocess.run([sys.executable, "-c", imports + USES], check=True)


def test_a_module_is_imported_right_after_another_one(tmp_path, monkeypatch):
    """Once, before the statement that imports the first one goes on; and at once, if the first one is there."""
    (tmp_path / "first_of_two.py").write_text("import sys\nassert 'second_of_two' not in sys.modules\n")
    (tmp_path / "second_of_two.py").write_text("import first_of_two\n")
    (tmp_path / "third_of_two.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = [*sys.meta_path]
    try:
        import_after("first_of_two", then="second_of_two")
        assert not {"first_of_two", "second_of_two"} & {*sys.modules}
        first = import_module("first_of_two")
        assert "second_of_two" in sys.modules and sys.meta_path == before
        assert Path(first.__file__).parent == tmp_path and first.__spec__.loader is first.__loader__
        assert first.__loader__.get_source("first_of_two").startswith("import sys")
        import_after("first_of_two", then="third_of_two")
        assert "third_of_two" in sys.modules and sys.meta_path == before
    finally:
        for name in ("first", "second", "third"):
            sys.modules.pop(f"{name}_of_two", None)


@pytest.mark.parametrize("package", [longhand, data, proofs], ids=lambda package: package.__name__)
def test_names_that_are_imported_on_demand_are_those_that_type_checkers_see(package):
    file = Path(package.__file__).relative_to(ROOT)
    (checked,) = [node for node in tree(str(file)).body if isinstance(node, ast.If)]
    seen = [(node.module, name.name) for node in checked.body for name in node.names if name.name != "*"]
    tables = [node for node in ast.walk(tree(str(file))) if isinstance(node, ast.Dict)]
    stated = [(module.value, name.value) for node in tables for name, module in zip(node.keys, node.values, strict=True)]
    assert sorted(seen) == sorted(stated)
    assert all(getattr(package, name) is getattr(import_module(module), name) for module, name in seen)
    assert {name for _, name in seen} <= {*dir(package)} and {*package.__all__} >= {name for _, name in seen}


def test_every_task_is_a_name_of_data_and_its_files_are_attributes():
    """As before names were imported on demand."""
    assert data.Addition is import_module("longhand.data.tasks.addition").Addition and "Addition" in data.__all__
    assert data.batches is import_module("longhand.data.batches")
    with pytest.raises(AttributeError, match=r"module 'longhand\.data' has no attribute 'addition_of'"):
        _ = data.addition_of
