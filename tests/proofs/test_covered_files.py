"""The package and the verifier agree, each by lists and checks of its own, on what no certificate covers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cases import all_but
from certificate_subjects import change_json
from test_certificates_of_folders import UNCOVERED

from longhand.data.proofs import verify_certificate
from longhand.data.tasks.column_task import ColumnTask
from longhand.hub_cards.checkpoints import covered_files
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER, copy_verifier
from longhand.hub_cards.checkpoints.load import load_checkpoint, unpack

SETTINGS = [
    *(("tokenizer_config.json", setting) for setting in (
        {"model_max_length": 100}, {"model_max_length": True}, {"model_max_length": 2**40}, {"padding_side": "right"},
        {"clean_up_tokenization_spaces": 0}, {"eos_token": "<eos>"}, {"add_prefix_space": True}, {"local_files_only": False},
        {"tokenizer_class": "PreTrainedTokenizerFast"}, {"tokenizer_class": "BertTokenizer"}, {"backend": None},
    )),
    *(("tokenizer.json", setting) for setting in (
        {"truncation": {"max_length": 9}}, {"padding": {"strategy": "BatchLongest"}},
    )),
    *(("config.json", setting) for setting in (
        {"auto_map": None}, {"auto_map": {"AutoModel": None}}, {"auto_map": []}, {"tie_word_embeddings": True},
        {"auto_map": {"AutoConfig": "vocabulary.Any"}}, {"task": 7}, {"task": {"task": "a<b"}},
        {"task": {"task": "a" * 101}},
        {"task": {"task": "addition", "order": ["x"]}},
    )),
]  # fmt: skip
FILES = ["model.pt", "chat_template.jinja", "special_tokens_map.json", "more.py", "custom_generate/generate.py", "notes.txt"]
FILES += ["yaml.py", "my_rule.py", "packaging.so", "tqdm.pyc", "yaml/__init__.py", "longhand/__init__.pyc"]
MISSING = [*verify_certificate.READ, "relations.py"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> dict[str, Path]:
    """A decoder, an encoder and a column task of the zoo, with their code."""
    place = tmp_path_factory.mktemp("unpacked")
    return {name: unpack(name, place) for name in ("copy", "encoder-addition", "gray-code")}


@pytest.fixture(params=all_but(["copy"], ["copy", "encoder-addition", "gray-code"]))
def folder(request, unpacked, tmp_path) -> Path:
    """A copy of each."""
    return Path(shutil.copytree(unpacked[request.param], tmp_path / request.param))


def verdicts(folder: Path, task) -> tuple[bool, bool]:
    """Whether the package, and the verifier, refuse a folder."""
    refused = []
    for check in (lambda: covered_files.check_covered(folder, task), lambda: verify_certificate.check_folder(folder)):
        try:
            check()
        except (ValueError, OSError):
            refused.append(True)
        else:
            refused.append(False)
    return refused[0], refused[1]


def test_both_have_the_same_lists():
    for name in ("READ", "IDLE", "LOADED", "LIBRARIES", "INSTALLED"):
        assert {*getattr(covered_files, name)} == {*getattr(verify_certificate, name)}, name


def test_both_refuse_the_same_folders(folder):
    """Every damage of one file, of a decoder, an encoder and a task that travels as a table."""
    task = load_checkpoint(str(folder)).task
    assert verdicts(folder, task) == (False, False)
    kept = folder.parent / "kept"
    shutil.copytree(folder, kept)

    def damaged(change) -> tuple[bool, bool]:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        change(folder)
        return verdicts(folder, task)

    def write(name: str) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")

    for file, setting in SETTINGS:
        package, verifier = damaged(lambda folder, file=file, setting=setting: change_json(folder / file, **setting))
        assert package == verifier, (file, setting, package)
    for name in FILES:
        package, verifier = damaged(lambda folder, name=name: write(name))
        assert package == verifier, (name, package)
    for name in MISSING:
        package, verifier = damaged(lambda folder, name=name: (folder / name).unlink(missing_ok=True))
        assert package == verifier, (name, package)
    for name, change in UNCOVERED.items():
        try:
            package, verifier = damaged(change)
        except FileNotFoundError:
            # An encoder has no settings of generation, and code of its own.
            continue
        # What only the package knows of a model, the settings that it returns and its own code, is checked elsewhere.
        assert package <= verifier or isinstance(task, ColumnTask), name


def test_a_folder_gets_the_verifier_if_that_knows_it_and_asks_it_as_a_program_of_its_own(unpacked, tmp_path):
    folder = Path(shutil.copytree(unpacked["copy"], tmp_path / "copy"))
    (folder / VERIFIER.name).unlink(missing_ok=True)
    assert copy_verifier(folder) is None and (folder / VERIFIER.name).read_bytes() == VERIFIER.read_bytes()
    change_json(folder / "config.json", hidden_act="gelu")
    assert "certificate.json: files" in copy_verifier(folder) and not (folder / VERIFIER.name).exists()


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["folder", "--help"]])
def test_help_of_the_verifier_is_shown_with_status_0(words):
    done = subprocess.run([sys.executable, VERIFIER, *words], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: longhand-verify") and not done.stderr
