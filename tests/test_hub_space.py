"""The page pushed as a Space: what travels, under which SDK, and what is refused."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.zoo import list_zoo, zoo
from longhand.hub_cards.publishing import card_updates, commits
from longhand.hub_cards.publishing.push import publish
from longhand.hub_cards.publishing.space import GRADIO, is_space_file, package_files, space_publication

ROOT = Path(__file__).parent.parent


def pushed(hub) -> dict[str, bytes]:
    return hub.repositories["space", "user/page"].head.files


def test_a_space_holds_the_app_the_code_the_zoo_and_nothing_else(hub, api):
    first = publish(space_publication("user/page"), api=api)
    files = pushed(hub)
    assert set(first.changed) == set(files) - {".gitattributes"} and all(map(is_space_file, first.changed))
    assert {f"longhand/hub_cards/zoo/{name}/model.safetensors" for name in list_zoo()} <= set(files)
    assert {"longhand/__init__.py", "longhand/hub_cards/space/page.js", "longhand/hub_cards/space/page.css"} <= set(files)
    assert not [path for path in files if path.endswith((".png", ".pyc")) or path.startswith("longhand/tests")]
    assert files["app.py"].decode().endswith("main([])\n")
    compile(files["app.py"], "app.py", "exec")
    again = publish(space_publication("user/page"), api=api)
    assert again.changed == [] and again.sha == first.sha


def test_the_card_names_the_sdk_and_its_tested_version(hub, api):
    publish(space_publication("user/page"), api=api)
    card = yaml.safe_load(pushed(hub)["README.md"].decode().split("---\n")[1])
    assert (card["sdk"], card["sdk_version"], card["app_file"]) == ("gradio", GRADIO, "app.py") and "longhand" in card[
        "tags"
    ]
    repository = hub.repositories["space", "user/page"]
    assert [b"sdk: gradio" in commit.files["README.md"] for commit in repository.history(repository.head)] == [True, True]
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["space"]
    assert re.match(r"gradio>=([\d.]+),<", extra[0])[1] == GRADIO.rpartition(".")[0]


def test_requirements_are_the_packages_own_with_torch_for_a_cpu(hub, api):
    publish(space_publication("user/page"), api=api)
    first, *needed = pushed(hub)["requirements.txt"].decode().splitlines()
    assert first.endswith("whl/cpu") and any(line.startswith("torch") for line in needed)
    assert not [line for line in needed if "extra" in line or line.startswith(("pytest", "gradio"))]


def test_folders_are_copied_and_other_models_named(hub, api, tmp_path):
    command_line = command.make_parser().parse_args(
        ["space", "user/page", "--models", zoo("copy"), "addition", "other/model"]
    )
    publish(command.read_publication(command_line), api=api)
    files = pushed(hub)
    shown = json.loads(re.search(r"main\((.*)\)", files["app.py"].decode())[1])
    assert shown == ["models/copy", "addition", "other/model"]
    assert {"models/copy/model.safetensors", "models/copy/certificate.json"} <= set(
        files
    ) and "models/copy/README.md" not in files
    assert yaml.safe_load(files["README.md"].decode().split("---\n")[1])["models"] == ["other/model"]
    # Without it, the next push removes the copy.
    assert "models/copy/config.json" in publish(space_publication("user/page"), api=api).removed


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["addition", "addition"], "two checkpoints have one name"),
        (["no/such/name"], "no/such/name"),
        (["nothing"], "nothing"),
        ([str(ROOT / "tests")], "checkpoint"),
    ],
)
def test_models_that_cannot_be_shown_are_refused_before_anything_is_sent(hub, api, capsys, monkeypatch, models, message):
    for module in (commits, card_updates):
        monkeypatch.setattr(module, "HfApi", lambda: api)
    with pytest.raises(SystemExit) as stop:
        command.main(["space", "user/page", "--models", *models, "--yes"])
    assert stop.value.code == 2 and message in capsys.readouterr().err
    assert ("space", "user/page") not in hub.repositories


def test_what_travels_is_in_the_wheel_too():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {Path(path).parent for path in package_files() if path.endswith(".py") and "/zoo/" not in path}
    assert folders <= {Path(*name.split(".")[1:]) for name in packages}
