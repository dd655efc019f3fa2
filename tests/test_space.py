"""The page without a browser: what a model does with a question, where tokens stand, and the HTML that says so."""

import html
import json
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from longhand.data import TASKS
from longhand.data.certificates import check as check_module
from longhand.data.certificates import check_neighbourhoods
from longhand.data.tasks.questions import digits_of
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.space import __main__ as command
from longhand.hub_cards.space import reading
from longhand.hub_cards.space.actions import ask, check, measure
from longhand.hub_cards.space.comparison import PICTURES, draw_comparison, read_series
from longhand.hub_cards.space.drawing import draw_error, draw_reading, escape
from longhand.hub_cards.space.layout import lay_out
from longhand.hub_cards.space.proof import draw_certificate, draw_checked
from longhand.hub_cards.space.reading import Exhibit
from longhand.modeling.coupling import plan_position_ids
from longhand.modeling.vocabulary import ALL_TOKENS

DRAWN = {
    ("addition", "653+49"): "$  653 / +  049 / =$0702",
    ("multi_operand_addition", "653+49+871"): "$ 0653 / + 0049 / + 0871 / =$1573",
    ("subtraction", "653-49"): "$ 653 / - 049 / =$604",
    ("multiplication_scratchpad", "94*687"): "$    94 / *   687 / =   658 / +  752  / + 564   / = 00658 / > 08178 / >$64578",
    ("addition_scratchpad", "8+7+21"): "$ 008 / + 007 / + 021 / = 000 / > 008 / > 015 / >$036",
    ("signed_subtraction", "49-653"): "$ 049 / - 653 / = 396 / -$604",
    ("division", "8764/7"): "$8764  / /   7  / =1310  / >1252$",
    ("copy", "1809"): "$1809  / =1809$",
    ("reverse", "5962"): "$ 5962 / =$5962",
    ("minesweeper", "M__>__M"): "$M__  / >__M  / =M21  /  12M$",
}
"""Questions and their right responses as on paper; a number that is written ones first stands the right way round."""


class Tags(HTMLParser):
    """Checks that tags close in order, and keeps names and attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def buttons(text):
    """What the script reads off every token of the response."""
    return [attributes for tag, attributes in Tags(text).seen if tag == "button"]


@pytest.fixture(scope="module")
def adder():
    return Exhibit(zoo("addition"))


@pytest.fixture(scope="module")
def exhibits(adder):
    return {"addition": adder, "copy": Exhibit(zoo("copy"))}


def right_tokens(task, question):
    """Tokens of a question and its right response, and the number of tokens of the query."""
    if task.name == "minesweeper":
        board = [[row] for row in question.split(">")]
        digits = np.array([[[cell == "M" for cell in row[0]] for row in board]], dtype=np.uint8)
        examples = task.format(digits, np.full((1, len(board)), digits.shape[2]))
    else:
        numbers = task.read_question(question) if hasattr(task, "sign") else [question]
        digits = digits_of(numbers)
        if task.name in ("copy", "reverse"):
            digits = digits[:, :, ::-1]
        examples = task.format(digits, np.array([[len(number) for number in numbers]]))
    return examples.tokens[0], int(examples.query_lengths[0])


def lay_out_right(task, question, coupling=None):
    tokens, query = right_tokens(task, question)
    ids = plan_position_ids(coupling or task.coupling, torch.from_numpy(tokens[None, :query].astype(np.int64)), len(tokens))[
        0
    ]
    ids, texts = ids[ids.any(1)].tolist(), [ALL_TOKENS[token] for token in tokens]
    return texts, ids, lay_out(texts, ids, query, coupling or task.coupling, task.reader.ones_first)


@pytest.mark.parametrize(("task", "question"), DRAWN, ids=lambda value: str(value))
def test_numbers_stand_below_each_other_as_on_paper(task, question):
    texts, ids, layout = lay_out_right(TASKS[task](), question)
    rows, columns = (1 + max(place[axis] for place in layout.places) for axis in (0, 1))
    grid = [[" "] * columns for _ in range(rows)]
    for text, (row, column) in zip(texts, layout.places, strict=True):
        assert grid[row][column] == " "
        grid[row][column] = text
    assert " / ".join(map("".join, grid)) == DRAWN[task, question]
    assert all(grid[row][0] == "=" for row in layout.blocks) and layout.blocks
    if layout.level is not None:
        # Tokens of one column have one id.
        digits = [place for place, text in enumerate(texts[:-1]) if text.isdigit() and ids[layout.level][place]]
        assert len({(layout.places[place][1], ids[layout.level][place]) for place in digits}) == len(
            {layout.places[place][1] for place in digits}
        )


@pytest.mark.parametrize("part", TASKS["calculator"]().parts, ids=lambda part: part.name)
def test_a_model_of_several_tasks_is_drawn_as_the_models_of_each(part):
    question = next(question for name, question in DRAWN if name == part.name)
    assert lay_out_right(part, question, "calculator") == lay_out_right(part, question)


def test_a_response_of_uncoupled_ids_ends_at_the_last_column():
    task = TASKS["addition"]()
    tokens, query = right_tokens(task, "653+49")
    texts = [ALL_TOKENS[token] for token in tokens]
    layout = lay_out(texts, [list(range(len(texts)))], query, "sequential", ones_first=True)
    assert layout.level is None
    ones = [layout.places[place][1] for place in (3, query - 2, query)]
    assert len(set(ones)) == 1


@pytest.mark.parametrize("question", ["653+49", "9+99999", "0+0", "00012+3="])
def test_a_reading_is_what_the_model_answers_and_sees(adder, question):
    read = adder.read(question)
    first, second = (int(number) for number in re.findall("[0-9]+", question))
    assert read.answer == adder.checkpoint.answer(question) == str(first + second)
    assert len(read.sights) == len(read.tokens) - read.query_length and read.tokens[-1] == "$"
    ids = np.array(read.ids[0])
    for sight in read.sights:
        # Under the window 0..1 a token sees its own column and the next, and `$`.
        seen = set(np.flatnonzero((ids == 0) | np.isin(ids[sight.query] - ids, (0, 1)))) & set(range(sight.query + 1))
        assert set(sight.keys) == seen and sight.query == sight.written - 1 and not sight.hidden
        assert np.array(sight.weights).shape == (4, len(sight.keys))
        assert all(abs(sum(row) - 100) <= len(row) for row in sight.weights)


def test_the_strongest_tokens_are_shown_where_a_token_sees_many(adder, monkeypatch):
    whole = adder.read("653+49").sights[2]
    monkeypatch.setattr(reading, "MOST_SEEN", 2)
    some = adder.read("653+49").sights[2]
    strongest = sorted(np.max(whole.weights, axis=0))[-2:]
    assert sorted(np.max(some.weights, axis=0)) == strongest and some.hidden == len(whole.keys) - 2


def test_the_drawing_holds_every_token_and_what_it_was_written_from(adder):
    text = ask({"addition": adder}, "addition", "653+49")
    read = adder.read("653+49")
    tokens = buttons(text)
    assert "702</output>" in text and "certified" in text and len(tokens) == len(read.sights)
    assert [json.loads(token["data-sight"])["keys"] for token in tokens] == [sight.keys for sight in read.sights]
    assert [token["tabindex"] for token in tokens] == ["0"] + ["-1"] * (len(tokens) - 1)
    heads = next(attributes["data-heads"] for _, attributes in Tags(text).seen if "data-heads" in attributes)
    assert json.loads(heads) == ["head 1", "head 2", "head 3", "head 4"]
    places = {attributes["data-place"] for _, attributes in Tags(text).seen if "data-place" in attributes}
    assert places == {str(place) for place in range(len(read.tokens))}


HOSTILE = "<img src=x onerror=alert(1)>{{constructor}}${alert(1)}`'\"&"


@pytest.mark.parametrize("question", ["", "653-49", "6.5+1", HOSTILE, "653+49+1"])
def test_a_wrong_question_gets_the_tasks_own_error(exhibits, question):
    text = ask(exhibits, "addition", question)
    with pytest.raises(ValueError) as refusal:
        exhibits["addition"].task.prompt(question)
    said = html.unescape(re.sub("<[^>]*>", "", text))
    assert 'role="alert"' in text and said.lower().startswith(str(refusal.value).lower()) and said.endswith(".")


def test_a_question_for_another_model_is_told_where_to_go(exhibits):
    assert "copy can be asked that" in ask(exhibits, "addition", "1809")
    assert "can be asked" not in ask(exhibits, "addition", "1*2")


def test_nothing_reaches_the_page_unescaped(adder, monkeypatch):
    for text in (escape(HOSTILE), draw_error(ValueError(HOSTILE), HOSTILE)):
        assert not re.search(r"<img|\{\{|\$\{|`", text)
    assert html.unescape(escape(HOSTILE)) == HOSTILE
    # As if the model, or its tokenizer, wrote code.
    monkeypatch.setattr(type(adder.task.family), "respond", lambda *_: HOSTILE)
    monkeypatch.setattr(type(adder.task), "show_answer", lambda self, question, answer: HOSTILE)
    assert {tag for tag, _ in Tags(ask({"addition": adder}, "addition", "653+49")).seen} == {"div", "p", "span", "output"}
    stated = adder.certificate | {"statement": HOSTILE, "proof": [HOSTILE], "weights": HOSTILE}
    failure = dict.fromkeys(("problem", "prefix", "right", "instead"), HOSTILE) | {"margin": None}
    for certified in (True, False):
        text = draw_certificate(stated | {"certified": certified, "failures": [failure]}, adder.task)
        assert not {tag for tag, _ in Tags(text).seen} & {"img", "script"} and "{{" not in text


def test_what_is_too_long_is_refused_or_not_drawn(exhibits):
    many = "9" * 1000
    text = ask(exhibits, "addition", f"{many}+1")
    assert (
        f"1{'0' * 1000}</output>" in text and not buttons(text) and "500 tokens at most, this one would have 3,005" in text
    )
    refused = ask(exhibits, "addition", f"{'9' * 12_000}+1")
    assert "takes 30,000 at most" in refused and "eval.py" in refused
    assert "30,000 at most" in ask(exhibits, "addition", "1" * 50_000)


def test_an_untrained_model_is_shown_as_not_certified(tmp_path, adder):
    folder = shutil.copytree(zoo("addition"), tmp_path / "untrained")
    torch.manual_seed(0)
    type(adder.model)(adder.model.config).save_pretrained(folder)
    exhibit = Exhibit(str(folder))
    assert exhibit.certificate is None and "not of" in exhibit.fault
    text = ask({"x": exhibit}, "x", "653+49")
    Tags(text)
    assert "not certified: this may be wrong" in text
    checked = check(exhibit)
    assert "Not certified." in checked and "It gets wrong" in checked


def test_the_check_is_made_now_and_compared_with_the_certificate(adder):
    text = check(adder)
    assert "Checked here and now" in text and "The certificate says the same" in text and "Certified: right for" in text
    assert "The certificate differs: field x." in draw_checked("", 1.0, adder, "field x")


def test_both_steps_of_a_check_show_their_progress(exhibits, monkeypatch):
    bars = []

    class Bar(check_module.tqdm):
        def __init__(self, *arguments, **options):
            bars.append([options["desc"], options["disable"], 0])
            super().__init__(*arguments, **{**options, "disable": True})

        def update(self, steps=1):
            bars[-1][2] += steps

    monkeypatch.setattr(check_module, "tqdm", Bar)
    exhibit = exhibits["copy"]
    found = check_neighbourhoods(exhibit.model, exhibit.task, thorough=True, progress=True)
    counted = found.problems or found.neighbourhoods
    assert [bar[1:] for bar in bars] == [[None, counted], [None, found.neighbourhoods]]
    assert bars[0][0].startswith("checking") and bars[1][0] == "bounding"
    check_neighbourhoods(exhibit.model, exhibit.task, thorough=True)
    assert [disabled for _, disabled, _ in bars[2:]] == [True, True]


def test_an_encoder_answers_without_a_drawing(small_encoder):
    exhibit = Exhibit(str(small_encoder))
    text = ask({"reader": exhibit}, "reader", "1+2")
    assert "<output>" in text and "labels all tokens at once" in text and not buttons(text)
    assert 'role="alert"' in check(exhibit) and 'role="alert"' in measure(exhibit, exhibit.task.name, 5, [])[0]


def test_the_passes_of_an_encoder_that_settles_are_drawn():
    exhibit = Exhibit(str(zoo("encoder-addition-settling")))
    reading = exhibit.read("164+235")
    rows = ["".join(label or " " for label in labels) for labels in reading.passes]
    assert reading.answer == "399" and rows == ["   _??9", "   _?99", "   _399"]
    text = draw_reading(exhibit, reading)
    assert text.count('scope="row"') == 3 and "pass 3" in text
    assert "120 tokens at most" in draw_reading(exhibit, exhibit.read(f"{10**70}+1"))


def test_times_are_of_right_answers_and_the_newest_comes_first(adder):
    text, timings = measure(adder, "addition", 50, [])
    assert timings[0].digits == 50 and timings[0].is_right and timings[0].tokens == 52 and timings[0].seconds > 0
    text, timings = measure(adder, "addition", 60, timings)
    assert [one.digits for one in timings] == [50, 60] and text.index(">60<") < text.index(">50<") and "right to" in text
    refused, same = measure(adder, "addition", 100_001, timings)
    assert "1 to 100,000" in html.unescape(refused) and same == timings
    wrong = replace(timings[0], is_right=False)
    assert "WRONG" in measure(adder, "addition", 5, [wrong])[0] or ">NO<" in measure(adder, "addition", 5, [wrong])[0]


def test_sums_are_timed_up_to_100_000_digits(adder):
    assert adder.sizes == {"addition": 100_000}


@pytest.mark.parametrize("study", PICTURES)
def test_the_comparison_shows_every_encoding_of_the_study(study):
    series, text = read_series(study), draw_comparison(study)
    Tags(text)
    assert [one.kind for one in series].count("ours") == 1 and series[0].kind == "ours"
    assert "papers" in {one.kind for one in series}
    assert all(escape(one.name) in text for one in series)
    assert len(re.findall("<path d=", text)) == len(series)
    assert all(f'{number}"><th scope="row">' in text for number in range(len(series)))
    assert PICTURES[study] in list_recipes()


def test_the_command_refuses_in_one_line(capsys, monkeypatch):
    pytest.importorskip("gradio", reason="the page needs Gradio: pip install 'longhand[space]'")
    for words in (["no-such-folder"], ["addition", "addition"]):
        with pytest.raises(SystemExit) as stop:
            command.main(words)
        assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_the_command_says_what_is_missing_without_gradio(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "longhand.hub_cards.space.app", raising=False)
    with pytest.raises(SystemExit) as stop:
        command.main(["addition"])
    assert stop.value.code == 2 and "pip install 'longhand[space]'" in capsys.readouterr().err
