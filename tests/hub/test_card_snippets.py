"""The code on cards: it reads answers as the task does, and runs where longhand is not installed."""

import os
import re
import subprocess
import sysconfig
import venv
from importlib import import_module
from pathlib import Path

import pytest

from longhand.data import TASKS, EncoderAddition, EncoderMultiplication
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.eval import load_checkpoint
from longhand.hub_cards.publishing.examples import decoder_example, snippet
from longhand.hub_cards.publishing.publications import push_model

SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
ENCODER_FORMATS = [
    EncoderAddition(),
    EncoderAddition(field_width=9, varied_field=True, sampling="shifted", text_tokens=2),
    EncoderAddition(field_width=6, sampling="cascades"),
    EncoderMultiplication(multiplier_length=2),
    EncoderMultiplication(multiplier_length=3, field_width=7, spill=True),
]


@pytest.mark.parametrize("task", ENCODER_FORMATS, ids=str)
def test_snippets_of_encoder_tasks_ask_for_the_tokens_of_the_answer(task):
    code = snippet(task, "user/name")
    compile(code, "snippet", "exec")
    prompt, sign, field, width, right = re.search(
        r'tokenizer\("(.*([+*])(.*))", .*logits\[0, -(\d+):\].*# right is (\d+)$', code, re.DOTALL
    ).groups()
    assert prompt == task.for_evaluation.prompt(prompt.replace("_", "")) or task.field_width is None
    assert int(width) == task.answer_width(len(field))
    first, second = (int(number.strip("_")) for number in prompt.split(sign))
    assert int(right) == (first + second if sign == "+" else first * second)


@pytest.mark.parametrize("name", [name for name in TASKS if issubclass(TASKS[name], DecoderTask)])
def test_snippets_of_every_task_are_python_and_read_answers_as_the_task_does(name):
    task = TASKS[name]()
    code = snippet(task, "user/name")
    compile(code, "snippet", "exec")
    reader = re.search(r"print\((.*)\)  # right is (.*)$", code)
    query, response = decoder_example(task)
    assert query.startswith("$") and f'tokenizer("{query[1:]}"' in code
    modules = {name: import_module(name) for name in re.findall(r"^import (\w+)$", code, re.MULTILINE)}
    assert eval(reader[1], {**modules, "response": response}) == task.reader.read(response) == reader[2]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> Path:
    """The interpreter of an environment that has this one's packages, without longhand."""
    place = tmp_path_factory.mktemp("stranger")
    venv.create(place, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    for own in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
        for entry in own.iterdir():
            # One by one: a folder that is named in a .pth file would bring longhand along where it is installed in it.
            # The .pth files here are left out, since an editable installation is made of one.
            if "longhand" not in entry.name and entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return place / "bin" / "python"


def run_alone(stranger, hub, place: Path, code: str, **variables: str) -> str:
    """What code prints in a process that cannot import this package and uses the Hub on loopback."""
    script = place / "script.py"
    script.write_text(code)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
    environment = own | hub.environment(place / "home", **variables)
    done = subprocess.run([stranger, script], env=environment, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


MORE = """
try:
    import longhand
except ModuleNotFoundError as error:
    print(error)
from transformers import pipeline
generator = pipeline("text-generation", model="user/adder", revision="first", trust_remote_code=True)
print([answer["generated_text"] for (answer,) in generator(["12+34=", "99+01="], return_full_text=False)])
"""


@pytest.mark.thorough
def test_snippets_and_pipelines_run_online_through_faults_and_then_offline(
    hub, api, folder, small_encoder, stranger, tmp_path
):
    push_model(folder, "user/adder", api=api)
    push_model(small_encoder, "user/reader", api=api)
    api.create_tag("user/adder", tag="first")
    repository = hub.repositories["model", "user/adder"]
    snippet, encoder_snippet = (
        SNIPPET.search(hub.repositories["model", name].head.files["README.md"].decode())[1]
        for name in ("user/adder", "user/reader")
    )
    hub.fail("GET", f"/resolve/{repository.head.sha}/model.safetensors", kind="cut")
    first, second, right = map(int, re.search(r'tokenizer\("(\d+)\+(\d+)=".*# right is (\d+)', snippet, re.DOTALL).groups())
    assert first + second == right
    # This encoder has learned nothing: right is what the package reads from it.
    question = re.search(r'tokenizer\("(.*)", return', encoder_snippet)[1].replace("_", "")
    read = load_checkpoint(str(small_encoder)).answer(question)
    code = f"{encoder_snippet}\n{snippet}\n"
    printed = f"{read}\n{right}\n"
    assert run_alone(stranger, hub, tmp_path, code + MORE) == f"{printed}No module named 'longhand'\n['640', '001']\n"
    assert hub.faults[0].times == 0
    hub.requests.clear()
    assert run_alone(stranger, hub, tmp_path, code, HF_HUB_OFFLINE="1") == printed
    assert hub.requests == []
