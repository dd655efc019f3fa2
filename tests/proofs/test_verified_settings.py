"""What the verifier calls known can be loaded, and nothing beside it is run in the place of a library."""

import json
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from cases import drawn
from certificate_subjects import change_json
from test_verify_files import forge
from transformers import AutoModel, AutoTokenizer, GenerationConfig

from longhand.data.proofs import verify_certificate
from longhand.data.proofs.verify_certificate import Refused, read_checkpoint
from longhand.hub_cards.checkpoints import covered_files
from longhand.hub_cards.checkpoints.load import load_checkpoint, unpack

NAMES = ["copy", "gray-code", "encoder-multiplication-grid"]
"""A decoder, a task that travels as a table, and an encoder."""

VALUES = [None, 3, -1, 2.5, True, "x", "", [], {}, [1], {"a": 1}, 1e99]
METADATA = [None, {}, {"format": 3}, {"format": "x"}, {"format": None}, {"format": ["pt"]}, {"a": "b"}, {"a": 1}, [], "x", 3]
FILES = ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> dict[str, Path]:
    """Certified checkpoints of the zoo, without code, by which they would not be known while the code changes."""
    place, folders = tmp_path_factory.mktemp("unpacked"), {}
    for name in NAMES:
        folder = folders[name] = unpack(name, place)
        for file in folder.glob("*.py"):
            file.unlink()
        settings = json.loads((folder / "config.json").read_text())
        settings.pop("auto_map", None)
        (folder / "config.json").write_text(json.dumps(settings))
        forge(folder)
    return folders


@pytest.fixture
def folder(unpacked, request, tmp_path) -> Path:
    return Path(shutil.copytree(unpacked[request.param], tmp_path / request.param))


def is_known(folder: Path) -> bool:
    """Whether the verifier knows the files of a folder, if the certificate names them as they are."""
    forge(folder)
    with suppress(Refused):
        read_checkpoint(folder)
        return True
    return False


def load(folder: Path) -> None:
    AutoModel.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
    if (folder / "generation_config.json").is_file():
        GenerationConfig.from_pretrained(folder)


def idle_settings() -> Iterator[tuple[str, str]]:
    """Settings that need not stand in a file, by the file."""
    for known in (
        verify_certificate.IDLE_SETTINGS,
        verify_certificate.IDLE_OF_DECODERS,
        verify_certificate.IDLE_OF_ENCODERS,
    ):
        yield from (("config.json", name) for name in known)
    yield from (("generation_config.json", name) for name in verify_certificate.FURTHER_OUTPUTS)
    yield from (("tokenizer_config.json", name) for name in ("is_local", "local_files_only"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", drawn(NAMES, 1), indirect=True)
@pytest.mark.parametrize("file", FILES)
def test_settings_that_the_verifier_knows_can_be_loaded(file, folder):
    assert is_known(folder)
    if not (folder / file).is_file():
        return
    text = (folder / file).read_text()
    names = {*json.loads(text), *(name for place, name in idle_settings() if place == file)}
    loaded = 0
    for name in sorted(names):
        for value in VALUES:
            (folder / file).write_text(text)
            change_json(folder / file, **{name: value})
            if is_known(folder):
                load(folder)
                loaded += 1
    assert loaded or file == "tokenizer.json"


@pytest.mark.parametrize("folder", ["copy"], indirect=True)
@pytest.mark.parametrize("stated", METADATA, ids=str)
def test_weights_that_the_verifier_knows_can_be_loaded(stated, folder):
    content = (folder / "model.safetensors").read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:size]) | {"__metadata__": stated}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content[size:])
    if is_known(folder):
        load(folder)


def imported() -> set[str]:
    """The names that Python would import here: of its own modules, and of what is installed."""
    installed = [place for place in sys.path if "site-packages" in place]
    own = {module.name for module in pkgutil.iter_modules(installed)}
    return {name for name in own | {*sys.stdlib_module_names, "longhand"} if name.isidentifier()}


OTHER_KINDS = ["yaml.so", "yaml.cpython-313-x86_64-linux-gnu.so", "yaml.pyc", "yaml.pyd", "yaml.pyw"]
OTHER_KINDS += ["yaml/__init__.py", "yaml/__init__.pyc", "yaml/__init__.abi3.so"]


@pytest.mark.parametrize("folder", ["gray-code"], indirect=True)
def test_what_python_would_import_in_the_place_of_a_library_is_refused_by_both(folder):
    task = load_checkpoint(str(folder)).task

    def refusals(name: str) -> list[str]:
        """What the verifier and the package say of the folder with a file of this name."""
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("print('VERIFIED')")
        said = []
        for check in (lambda: verify_certificate.check_folder(folder), lambda: covered_files.check_covered(folder, task)):
            with suppress(ValueError):
                check()
                continue
            said.append(name)
        file.unlink()
        if file.parent != folder:
            file.parent.rmdir()
        return said

    assert refusals("my_own_rule.py") == [] and is_known(folder)
    names = [*("yaml", "tqdm", "packaging", "flash_attn", "sitecustomize", "__main__"), *sorted(imported())]
    for name in (*(f"{name}.py" for name in names), *OTHER_KINDS):
        assert len(refusals(name)) == 2, name


def test_the_verifier_knows_the_libraries_that_load_a_checkpoint_where_none_is_installed():
    """By name: those of this package, of transformers and of torch, and what each of them asks for."""
    places: dict[str, list[str]] = {}
    for module, distributions in metadata.packages_distributions().items():
        for distribution in distributions:
            places.setdefault(distribution.lower().replace("-", "_"), []).append(module)
    asked = {"longhand", "transformers", "torch", "huggingface_hub", "tokenizers", "accelerate"}
    for name in [*asked]:
        needed = [line for line in metadata.requires(name) or () if "extra ==" not in line]
        asked |= {re.match(r"[\w-]+", line)[0].lower().replace("-", "_") for line in needed}
    modules = {module for name in asked for module in places.get(name, ()) if module.isidentifier() and module[0] != "_"}
    assert "torch" in modules and modules <= verify_certificate.LIBRARIES
