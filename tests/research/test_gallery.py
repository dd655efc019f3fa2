"""The gallery is what the code and the results files say, and its drawings show what models see."""

import pytest
import torch

from longhand.data import TASKS
from longhand.hub_cards.publishing.examples import decoder_example, encoder_example, family_card
from longhand.hub_cards.research import gallery
from longhand.hub_cards.training.arguments import parse_run

WINDOWED = ("addition", "addition-scratchpad", "copy", "minesweeper", "multiplication-2", "subtraction", "three-summands",
            "encoder-addition", "encoder-multiplication-3")  # fmt: skip


@pytest.mark.thorough
def test_the_page_is_up_to_date():
    page = gallery.GALLERY.read_text(encoding="utf-8")
    assert page == gallery.render(), "python -m longhand.hub_cards.research.pages writes it"


def test_every_task_has_a_section():
    page = gallery.GALLERY.read_text(encoding="utf-8")
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == ["Shipped models", *TASKS]


def marks(drawing: str) -> tuple[int, list[int]]:
    """The place of `?`, and those of `^`."""
    text = ""
    for block in drawing.split("\n\n"):
        *lines, last = block.splitlines()
        width = max(map(len, lines))
        text += (last if last.startswith("    sees") else "").ljust(width)[12:] + " "
    cells = text[::2]
    return cells.index("?"), [place for place, cell in enumerate(cells) if cell == "^"]


@pytest.mark.parametrize("recipe", WINDOWED)
def test_a_drawing_marks_what_changes_a_prediction(recipe):
    """If a marked token is replaced by another, the logits of one layer change at `?`; an unmarked one changes nothing."""
    run = parse_run([recipe, "--num_hidden_layers", "1"])
    family = run.task.family
    query, seen = marks(family_card(run.task).draw_sight(run.task, run.config))
    torch.manual_seed(0)
    model = family.model_class(run.config).eval()
    text = "".join(token for token, _ in encoder_example(run.task.for_evaluation)) if family.name == "encoder" else None
    tokens = family.tokenizer(run.task.for_evaluation)(
        text or "".join(decoder_example(run.task))[1:], return_tensors="pt"
    ).input_ids
    assert tokens.shape[1] > max(seen)
    places = [place for place, token in enumerate(tokens[0].tolist()) if token < 10 or run.task.name == "minesweeper"][1:]
    options = {} if text else {"position_ids": model.model.plan_position_ids(tokens, tokens.shape[1])}
    with torch.inference_mode():
        right = model(tokens, **options).logits[0, query]
        for place in places:
            changed = tokens.clone()
            changed[0, place] = (tokens[0, place] + 1) % 10
            differs = not torch.equal(model(changed, **options).logits[0, query], right)
            assert differs == (place == query or place in seen), place
