"""The page pushed as a static Space: what travels, and what is refused."""

import pytest
import yaml

from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.page.build import build_page
from longhand.hub_cards.publishing import commits
from longhand.hub_cards.publishing.page import page_publication
from longhand.hub_cards.publishing.publications import publish


def test_a_static_space_holds_the_page_and_a_card(hub, api):
    models = [zoo("copy"), "addition-tiny"]
    first = publish(page_publication("user/page", models), api=api)
    files = hub.repositories["space", "user/page"].head.files
    assert set(first.changed) == set(files) - {".gitattributes"} == {"index.html", "README.md"}
    assert files["index.html"].decode() == build_page([zoo("copy"), zoo("addition-tiny")])
    card = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    assert card["sdk"] == "static" and "longhand" in card["tags"]
    again = publish(page_publication("user/page", models), api=api)
    assert again.changed == [] and again.sha == first.sha


@pytest.mark.parametrize("models", [["addition", "addition"], ["nothing"]])
def test_models_that_cannot_be_shown_are_refused_before_anything_is_sent(hub, api, capsys, monkeypatch, models):
    for module in (commits,):
        monkeypatch.setattr(module, "HfApi", lambda: api)
    with pytest.raises(SystemExit) as stop:
        command.main(["page", "user/page", "--models", *models, "--yes"])
    assert stop.value.code == 2 and models[0] in capsys.readouterr().err
    assert ("space", "user/page") not in hub.repositories
