"""The page in Chromium: answers, logits and neighbourhoods held to Python, and what a person sees at two widths."""

import json
import os
import random
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import drawn
from made_once import make_once

from longhand.data import ColumnTask
from longhand.data.families import Questions
from longhand.data.tasks.column_task import ColumnPass
from longhand.data.tasks.plugins import load_plugin
from longhand.data.tasks.registry import find_task
from longhand.hub_cards.checkpoints.checkpoint import bare
from longhand.hub_cards.checkpoints.load import load_checkpoint, zoo
from longhand.hub_cards.page import __main__ as command
from longhand.hub_cards.page.build import (
    FOLDER,
    FORMAT,
    LESSON,
    LESSONS_FOLDER,
    MOST_BYTES,
    RUNS,
    WORDS,
    build_page,
    caption,
    shown_by_default,
    unfit,
)
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import ENCODER_TOKENS, STATES, TOKENS

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested in a browser: pip install playwright")
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="the page is tested in Chromium, which is not installed")

MOST_JAVASCRIPT, WIDEST, FEW, QUICK = 1875, 125, 3000, 7000
UNFIT = {"encoder-multiplication-grid": "grid"}
SHOWN = shown_by_default()


@pytest.fixture(scope="session")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of the whole zoo, written by the command."""

    def write(folder: Path) -> None:
        folder.mkdir()
        command.main(["--output", str(folder / "longhand.html")])

    place = make_once(tmp_path_factory, "page", write) / "longhand.html"
    assert place.stat().st_size <= MOST_BYTES
    return place


@pytest.fixture
def open_page(browser):
    """Open a file with the network off; nothing may be written to the console as an error until the test ends."""
    contexts, faults = [], []

    def open_page(file, **options):
        contexts.append(context := browser.new_context(offline=True, **options))
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
        page.goto(file.as_uri())
        page.wait_for_selector("#verdict .badge")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def choose(page, name):
    page.evaluate("name => longhand.choose(name)", name)
    assert page.locator("#error").inner_text() == ""


def show(page, view):
    page.locator(".tabs").get_by_text(view, exact=True).click()


LOGITS = """
const listening = self.onmessage;
self.onmessage = (message) => {
  const { id, action, name, question } = message.data;
  if (action !== "logits") return listening(message);
  const { tasks, network } = models.get(name), { task, words } = readQuestion(tasks, question), paper = task.sheet(words);
  const tokens = fillIn(task, words, paper), finder = new Finder(paper, task), ahead = task.encoder ? 0 : 1, cases = [];
  if (network instanceof Dense) {
    const cache = network.start(), ids = network.ids(paper), rows = [];
    for (let place = 0; place < tokens.length - 1; place++) {
      rows.push([...network.push(cache, tokens[place], ids.map((level) => level[place])).logits]);
    }
    return self.postMessage({ id, result: rows.slice(paper.query - 1) });
  }
  const labelOf = (key) => (task.encoder && key >= paper.query ? tokens[key] : -1);
  const symbol = (key) => network.symbol(task.encoder ? paper.text[key] : tokens[key], labelOf(key));
  for (let place = paper.query - ahead; place < tokens.length - ahead; place++) {
    cases.push({ own: symbol(place), keys: symbolsOf(network, finder.keys(place, !task.encoder), symbol) });
  }
  self.postMessage({ id, result: network.logits(cases).map((row) => [...row]) });
};"""


def telling_logits(html, place):
    """A file of the page whose worker also tells the logits of each token of the right response."""
    place.write_text(html.replace("listen(self);", f"listen(self);{LOGITS}"), encoding="utf-8")
    return place


def logits(page, question):
    return np.array(page.evaluate("question => longhand.request('logits', {question})", question))


def number(generator, length):
    """A number of this many digits: random, or one in which carries run far."""
    kind = generator.random()
    if kind < 0.7:
        return str(generator.randrange(10 ** (length - 1) if length > 1 else 0, 10**length))
    return generator.choice(["9" * length, "1" + "0" * (length - 1), "4" + "5" * (length - 1), "9" + "0" * (length - 1)])


def padded(operation):
    """An operation on two numbers in base 2 that keeps their width."""
    return lambda first, second: f"{operation(int(first, 2), int(second, 2)):0{max(len(first), len(second))}b}"


COLUMN_TASKS = {
    "binary-addition": ("01", "+", lambda first, second: f"{int(first, 2) + int(second, 2):b}"),
    "hex-addition": ("0123456789abcdef", "+", lambda first, second: f"{int(first, 16) + int(second, 16):x}"),
    "bitwise-and": ("01", "&", padded(lambda first, second: first & second)),
    "bitwise-or": ("01", "|", padded(lambda first, second: first | second)),
    "bitwise-xor": ("01", "^", padded(lambda first, second: first ^ second)),
    "comparison": ("0123456789", "?", lambda one, two: "0+-"[(int(one) > int(two)) - (int(one) < int(two))]),
    "cycle-navigation": ("012", "", lambda word: str((word.count("1") - word.count("2")) % 5)),
    "digit-sum": ("0123456789", "", lambda word: str(sum(map(int, word)) % 9)),
    "duplicate-string": ("01", "", lambda word: 2 * word),
    "even-pairs": ("01", "", lambda word: str((word.count("01") + word.count("10")) % 2)),
    "gray-code": ("01", "", lambda word: f"{int(word, 2) ^ int(word, 2) >> 1:0{len(word)}b}"),
    "modular-arithmetic": ("01234", "expression", lambda word: str(eval(word) % 5)),
    "missing-duplicate": ("01", "hidden", lambda word: word),
    "odds-first": ("01", "", lambda word: word[::2] + word[1::2]),
    "plus-one": ("0123456789", "", lambda word: str(int(word) + 1)),
    "remainder": ("0123456789", "", lambda word: str(int(word) % 7)),
    "times-seven": ("0123456789", "", lambda word: str(7 * int(word))),
}
"""Of column tasks: symbols, sign between two operands, and the answer by Python."""


def draw_columns(generator, symbols, sign, answer, length):
    """A question for a model of a column task, and its answer."""

    def word(length):
        return "".join(generator.choice(symbols) for _ in range(length))

    if sign == "expression":
        text = word(1) + "".join(generator.choice("+-*") + word(1) for _ in range(length - 1))
        return text, answer(text)
    if sign == "hidden":
        whole, place = word(length), generator.randrange(length)
        halves = [whole, f"{whole[:place]}2{whole[place + 1 :]}"]
        generator.shuffle(halves)
        return ",".join(halves), answer(whole[place])
    words = [word(length) for _ in range(2 if sign else 1)]
    return sign.join(words), answer(*words)


def draw(generator, name, longest=24):
    """A question for a model of the zoo, and its answer by Python's integers."""
    length = generator.choice([1, 2, 3, generator.randint(1, longest)])
    if name == "minesweeper":
        return draw_board(generator)
    if name in COLUMN_TASKS:
        return draw_columns(generator, *COLUMN_TASKS[name], length * (1 + (name == "odds-first")))
    if name in ("copy", "reverse", "parity"):
        text = "".join(generator.choice("01" if name == "parity" else "0123456789") for _ in range(length))
        return text, {"copy": text, "reverse": text[::-1], "parity": str(text.count("1") % 2)}[name]
    sign = {"calculator": generator.choice("+-*"), "division": "/", "subtraction": "-"}.get(
        name, "*" if "multi" in name else "+"
    )
    count = {"addition-scratchpad": generator.randint(2, 7), "calculator": 2, "three-summands": 3}.get(name, 2)
    longest = 6 if name == "calculator" and sign == "*" else longest
    values = [number(generator, generator.randint(1, min(length, longest))) for _ in range(count)]
    if name == "division":
        values[1] = generator.choice("123456789")
    if name == "binary-multiplication":
        values = [f"{generator.randrange(2 ** generator.randint(1, 8)):b}" for _ in range(2)]
        return "*".join(values), f"{int(values[0], 2) * int(values[1], 2):b}"
    if "multiplication-1" in name:
        values["encoder" not in name] = generator.choice("0123456789")
    if name == "subtraction":
        values.sort(key=int, reverse=True)
    integers = [int(value) for value in values]
    if sign == "/":
        return "/".join(values), "{} remainder {}".format(*divmod(*integers))
    answer = sum(integers) if sign == "+" else integers[0] - integers[1] if sign == "-" else integers[0] * integers[1]
    return sign.join(values), str(answer)


def draw_board(generator):
    height, width = generator.randint(1, 6), generator.randint(1, 6)
    rows = ["".join(generator.choice("M___") for _ in range(width)) for _ in range(height)]
    mines = np.pad([[cell == "M" for cell in row] for row in rows], 1)
    around = sum(mines[y : y + height, x : x + width].astype(int) for y in range(3) for x in range(3))
    answer = ["".join("M" if row[x] == "M" else str(around[y, x]) for x in range(width)) for y, row in enumerate(rows)]
    return ">".join(rows), "\n".join(answer)


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.release)])
def test_every_model_answers_as_python_does(open_page, file, count):
    page = open_page(file)
    for name in SHOWN:
        generator = random.Random(name)
        questions = [draw(generator, name) for _ in range(count)]
        choose(page, name)
        ask = "all => Promise.all(all.map(question => longhand.request('ask', {question, drawn: false})))"
        found = page.evaluate(ask, [question for question, _ in questions])
        wrong = [
            (question, one["answer"], right)
            for one, (question, right) in zip(found, questions, strict=True)
            if one["answer"] != right
        ]
        assert wrong == [] and not any(one["wrong"] for one in found), name


SYMBOLS = "0123456789+-*/=>,?&|^M_2 ab\u00a0\t\u0663"


ODD = ["", "=", "1+2=", "007+5", "1+12", "-3+4", "0,121", "101,121", "0M_", "M_>M", "M_ __"]


def texts_near(generator, name, count):
    """Texts over all symbols, questions, and questions with a symbol more, less or another."""
    for place in range(count):
        text = draw(generator, "addition" if name in LESSON else name, 6)[0]
        at, symbol = generator.randrange(len(text)), generator.choice(SYMBOLS)
        changed = {0: text[:at] + symbol + text[at:], 1: text[:at] + text[at + 1 :], 2: text[:at] + symbol + text[at + 1 :]}
        drawn = "".join(generator.choice(SYMBOLS) for _ in range(generator.randint(0, 5)))
        yield {**changed, 3: text, 4: drawn, 5: f" {text} ="}[place % 6]


def is_taken(checkpoint, text):
    """Whether Python takes a text as a question."""
    try:
        part = checkpoint.task.part_of(text)
        part.check_question(bare(text))
        checkpoint.task.family.read(part, checkpoint.model, text)
    except ValueError:
        return False
    return True


@pytest.mark.release
@pytest.mark.parametrize("count", [300])
def test_every_model_takes_the_texts_that_python_takes_and_answers_the_same(open_page, file, count):
    """Those that fail too: all that they write is their answer."""
    page = open_page(file)
    ask = "all => Promise.all(all.map(question => longhand.request('ask', {question, drawn: false}).catch(() => null)))"
    for name in dict.fromkeys([*SHOWN, *LESSON]):
        generator = random.Random(name)
        texts = [*texts_near(generator, name, count), *ODD]
        checkpoint = load_checkpoint(zoo(name) if name in SHOWN else str(LESSONS_FOLDER / name))
        taken = [text for text in texts if is_taken(checkpoint, text)]
        answers = dict(zip(taken, checkpoint.answers(taken), strict=True))
        choose(page, name)
        for text, found in zip(texts, page.evaluate(ask, texts), strict=True):
            said = None if found is None else found["answer"].replace("\n", "")
            assert said == answers.get(text), (name, text)


NOISY = """
const listening = self.onmessage;
self.onmessage = (message) => {
  const { id, action, name, amount, questions } = message.data;
  if (action !== "noisy") return listening(message);
  const model = models.get(name), network = model.network.noisy(amount), memory = new Memory(network);
  const answers = questions.map((question) => answer(model, question, { memory, drawn: false }));
  const tensors = Object.entries(network.tensors).map(([key, { values }]) => [key, [...values]]);
  self.postMessage({ id, result: { answers, tensors } });
};"""


NOISED = (
    "addition-tiny",
    "addition",
    "binary-multiplication",
    "copy",
    "division",
    "encoder-addition-settling",
    "hex-addition",
)
NOISED += ("minesweeper", "missing-duplicate", "odds-first", "parity")


def python_says(checkpoint, question):
    """What a model answers, and whether it ends; None for labels that do not settle."""
    task = checkpoint.task.part_of(question)
    if not checkpoint.model.can_generate():
        # In the narrowest fields, as the page writes them.
        tokens = torch.tensor([checkpoint.tokenizer.convert_tokens_to_ids(list(task.prompt(question)))])
        asked = Questions(tokens, tokens.shape[1])
        with suppress(ValueError):
            return task.family.answers(task, checkpoint.model, checkpoint.tokenizer, asked)[0], True
        return None
    prompt = checkpoint.tokenizer(task.prompt(question), return_tensors="pt")["input_ids"]
    written = checkpoint.model.generate(prompt, do_sample=False)[0, prompt.shape[1] :]
    return checkpoint.answer(question), task.end_token in written.tolist()


@pytest.mark.release
def test_a_model_with_noise_is_quoted_as_python_answers_with_its_weights(open_page, file, tmp_path):
    html = file.read_text(encoding="utf-8").replace("listen(self);", f"listen(self);{NOISY}")
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page, endless = open_page(tmp_path / "page.html"), 0
    for name in NOISED:
        generator, checkpoint = random.Random(name), load_checkpoint(zoo(name))
        checkpoint.model.double()
        questions = [draw(generator, name, 5)[0] for _ in range(6)]
        choose(page, name)
        for amount in (0.2, 0.5):
            asked = {"amount": amount, "questions": questions}
            found = page.evaluate("asked => longhand.request('noisy', asked)", asked)
            weights = checkpoint.model.state_dict()
            for key, values in found["tensors"]:
                weights[key].copy_(torch.tensor(values, dtype=torch.float64).view_as(weights[key]))
            for question, shown in zip(questions, found["answers"], strict=True):
                said = (shown["answer"].replace("\n", ""), shown["ends"])
                is_label = not checkpoint.model.can_generate() and not shown["ends"]
                assert (None if is_label else said) == python_says(checkpoint, question), (name, amount, question)
                assert shown["ends"] or shown["wrong"]
                endless += not shown["ends"]
    assert endless


def user_model(task, folder):
    """The folder of a model of a column task, which has learned nothing."""
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "head_dim": 4, "intermediate_size": 16, "num_hidden_layers": 1}
    torch.manual_seed(0)
    config = CoupledGPTConfig(position_encoding="pairwise", **sizes, **task.family.config_options(task))
    CoupledGPTForCausalLM(config).save_pretrained(folder)
    return str(folder)


def test_a_task_of_a_users_own_runs_from_its_table(open_page, tmp_path):
    load_plugin(Path(__file__).parents[1] / "plugins" / "hex_addition.py")
    task = find_task("hex_addition")()
    folder = user_model(task, tmp_path / "model")
    page = open_page(telling_logits(build_page([folder]), tmp_path / "page.html"))
    found = page.evaluate("longhand.request('ask', {question: '3f+a1'})")
    assert found["wrong"] and found["right"] == "e0"
    count = page.evaluate("longhand.request('check', {stop: 0})")["parts"][0]["count"]
    assert count == task.covering(task.rule.relations, 1).count
    tokens = torch.tensor([[17, 3, task.tokens.index("f"), 10, task.tokens.index("a"), 1, 13, 0, task.tokens.index("e"), 0]])
    model = CoupledGPTForCausalLM.from_pretrained(folder).double()
    assert np.abs(logits(page, "3f+a1") - model(tokens).logits[0, 6:].detach().numpy()).max() < 1e-7


class Clock(ColumnTask):
    """How many symbols were read, modulo 17: a state that only long words reach."""

    name = "clock"
    alphabet = "ab"
    writes = "abcdefghijklmnopq"

    def step(self, state, symbols):
        return (state + 1) % 17, (state + 1) % 17


def test_the_search_goes_on_until_longer_problems_bring_nothing_new(open_page, tmp_path):
    file, task = tmp_path / "page.html", Clock()
    file.write_text(build_page([user_model(task, tmp_path / "model")]), encoding="utf-8")
    page = open_page(file)
    with pytest.raises(playwright.Error):
        page.evaluate("longhand.request('check', {mostSeconds: 0})")
    count = page.evaluate("longhand.request('check', {stop: 0})")["parts"][0]["count"]
    assert count == task.covering(task.rule.relations, 1).count


class LargerPlusOne(ColumnTask):
    """The larger one of two words, from the top; then one more than it, from the ones."""

    name = "larger_plus_one"
    operands, sign, alphabet = 2, ",", "012"
    passes = (
        ColumnPass(
            lambda state, pair: (state or (pair[0] > pair[1]) + 2 * (pair[0] < pair[1]),) * 2, "_gl", direction="top_first"
        ),
        ColumnPass(lambda one, read: divmod(read[read[2] == 2] + one, 3)[::-1], start=1, flush=1, reads=(0, 1, 2)),
    )


def test_passes_of_two_directions_are_answered_and_never_called_checked(open_page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(build_page([user_model(LargerPlusOne(), tmp_path / "model")]), encoding="utf-8")
    page = open_page(file)
    assert page.evaluate("longhand.request('ask', {question: '12,22'})")["right"] == "100"
    # Listed one after the other, the passes would bring neighbourhoods that no problem has.
    with pytest.raises(playwright.Error, match="cannot list"):
        page.evaluate("longhand.request('check')")


class Emptied(ColumnTask):
    """From the top: what the first pass writes behind the ones is read by the second one."""

    name, alphabet, direction = "emptied", "01", "top_first"
    passes = (
        ColumnPass(lambda state, symbols: (state, symbols[0]), start=1, flush=2, direction="top_first"),
        ColumnPass(lambda state, symbols: (symbols[0] ^ symbols[1], 0), flush=1, direction="top_first", reads=(0, 1)),
    )


def test_a_pass_from_the_top_reads_what_an_earlier_one_wrote_behind_the_ones(open_page, tmp_path):
    file, task = tmp_path / "page.html", Emptied()
    file.write_text(build_page([user_model(task, tmp_path / "model")]), encoding="utf-8")
    page = open_page(file)
    for question in ("1", "10", "0110", "11101"):
        ones_first = np.array([[[int(symbol) for symbol in reversed(question)]]])
        written = "".join(map(str, task.solve(ones_first)[-1][0]))
        assert page.evaluate("question => longhand.request('ask', {question})", question)["right"] == written


def test_logits_are_those_of_torch(open_page, file, tmp_path):
    page = open_page(telling_logits(file.read_text(encoding="utf-8"), tmp_path / "page.html"))
    for name in SHOWN:
        checkpoint = load_checkpoint(zoo(name))
        checkpoint.model.double()  # float32 rounds by more than 1e-5 where logits are large
        choose(page, name)
        for part in checkpoint.task.parts:
            question = part.example_question
            found = logits(page, question)
            text = part.prompt(question)
            if checkpoint.model.can_generate():
                prompt = checkpoint.tokenizer(text, return_tensors="pt")["input_ids"]
            else:
                # The page writes the narrowest fields, an encoder's tokenizer those that the model was trained on.
                prompt = torch.tensor([checkpoint.tokenizer.convert_tokens_to_ids(list(text))])
            with torch.inference_mode():
                if checkpoint.model.can_generate():
                    tokens = checkpoint.model.generate(prompt, do_sample=False)
                    expected = checkpoint.model(tokens).logits[0, prompt.shape[1] - 1 : -1]
                else:
                    settled = checkpoint.model(prompt).logits.argmax(-1)
                    places = prompt.shape[1] - len(found)
                    settled[:, :places] = -1
                    expected = checkpoint.model(prompt, states=settled).logits[0, places:]
            assert np.abs(found - expected.numpy()).max() < 1e-7, name


@pytest.mark.parametrize("most", [FEW, pytest.param(10**7, marks=pytest.mark.release)])
def test_the_pages_own_search_finds_what_the_certificates_count(open_page, file, most):
    page = open_page(file)
    for name in SHOWN:
        stated = json.loads((Path(zoo(name)) / "certificate.json").read_text())
        small = stated["neighbourhoods"] <= QUICK
        if stated["neighbourhoods"] > most:
            continue
        choose(page, name)
        found = page.evaluate("options => longhand.request('check', options)", {} if small else {"stop": 0})["parts"]
        assert sum(part["count"] for part in found) == stated["neighbourhoods"], name
        if small:
            assert abs(min(part["lead"] for part in found) - stated["margin"]) < 1e-4, name


@pytest.mark.parametrize(("picture", "width"), [("page.png", 1600), ("page-phone.png", 360)])
def test_a_person_sees_it_at_both_widths(open_page, file, picture, width, tmp_path):
    # `PAGE_PICTURES` names the folder of the results, two of whose pictures README and GUIDE show.
    pictures = Path(os.environ.get("PAGE_PICTURES", tmp_path))
    for scheme in ("dark", "light"):
        page = open_page(file, viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 500)
        token = page.locator("label.token").nth(2)
        (token.tap if width < 500 else token.hover)()
        page.wait_for_selector("#result .heat tbody tr")
        assert page.locator("#result .answer output").inner_text() == "702" and page.locator("#result .seen").count() == 6
        page.screenshot(path=pictures / picture, full_page=True, animations="disabled")
        if width > 500:
            top = {"x": 150, "y": 0, "width": 1290, "height": 990}
            page.screenshot(path=pictures / "page-top.png", clip=top, animations="disabled")
        for tab in ("Certificate", "Break it", "Task", "Ask"):
            show(page, tab)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


PLACES = """
() => [...document.querySelectorAll("#result .token")].map((element) => ({
  id: element.querySelector("small").textContent.trim(), isAnswer: element.matches("label"),
  left: element.getBoundingClientRect().left, top: element.getBoundingClientRect().top,
}))"""


def test_equal_ids_stand_in_one_column_and_no_model_scrolls_sideways(open_page, file):
    page = open_page(file)
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        for name in SHOWN:
            choose(page, name)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
            assert page.evaluate("(scrollTo(5000, 0), scrollX)") == 0, (name, width)
            tokens = page.evaluate(PLACES)
            places = [(token["left"], token["top"]) for token in tokens]
            assert len(set(places)) == len(places), name
            # A token of a board has the ids of the cell that is written after it.
            if name == "minesweeper":
                lefts = [token["left"] for token in tokens if not token["isAnswer"]]
                assert {token["left"] for token in tokens[:-1] if token["isAnswer"]} <= {*lefts}
                continue
            columns = {}
            for token in tokens:
                if token["id"] and token["left"] > min(left for left, _ in places):
                    columns.setdefault(token["id"], set()).add(token["left"])
            assert all(len(lefts) == 1 for lefts in columns.values()), (name, columns)


def test_a_refused_question_clears_the_answer_before_it(open_page, file):
    page = open_page(file)
    for question, shown in {"653-49": False, "1+2": True, "x": False}.items():
        page.locator("#question").fill(question)
        page.get_by_role("button", name="Ask", exact=True).click()
        page.wait_for_selector("#result .answer" if shown else "#error:not(:empty)")
        assert page.locator("#result .badge").count() == shown and (page.locator("#error").inner_text() == "") == shown


def test_an_address_holds_a_model_and_a_question(open_page, file):
    page = open_page(file)
    page.goto(f"{file.as_uri()}#hex-addition?3f+a1")
    playwright.expect(page.locator("#result output")).to_have_text("e0")
    page.locator("#question").fill("ff+1")
    page.get_by_role("button", name="Ask", exact=True).click()
    playwright.expect(page).to_have_url(f"{file.as_uri()}#hex-addition?ff+1")
    choose(page, "bitwise-or")
    assert page.evaluate("location.hash") == "#bitwise-or?10%7C11"
    for address, unknown in {"#nobody?1": "nobody", "#%": "%", "#addition?%": "", "#copy?12": ""}.items():
        page.goto(f"{file.as_uri()}{address}")
        page.wait_for_selector("#verdict .badge")
        said = f"This page has no model {unknown}." if unknown else ""
        playwright.expect(page.locator("#folder-error")).to_have_text(said)


def test_the_way_back_leads_through_the_models_that_were_chosen(open_page, file):
    page = open_page(file)
    choose(page, "copy")
    page.locator("#question").fill("123")
    page.get_by_role("button", name="Ask", exact=True).click()
    playwright.expect(page.locator("#result output")).to_have_text("123")
    page.goto(f"{file.as_uri()}#lesson")
    playwright.expect(page.locator("#lesson-answers output")).to_have_count(3)
    page.locator("#models").get_by_text("parity", exact=True).click()
    playwright.expect(page.locator("#name")).to_have_text("parity")
    playwright.expect(page.locator("#result output")).to_be_visible()
    page.go_back()
    playwright.expect(page.locator("#lesson-view")).to_be_visible()
    page.go_back()
    playwright.expect(page.locator("#name")).to_have_text("copy")
    playwright.expect(page.locator("#result output")).to_have_text("123")
    page.go_back()
    playwright.expect(page.locator("#name")).to_have_text(SHOWN[0])
    page.go_forward()
    playwright.expect(page.locator("#name")).to_have_text("copy")


def test_the_way_back_leads_to_a_model_that_has_not_answered(browser, file):
    page = browser.new_page()
    page.goto(file.as_uri())
    page.evaluate("longhand.choose('copy')")
    playwright.expect(page.locator("#name")).to_have_text("copy")
    page.go_back()
    playwright.expect(page.locator("#name")).to_have_text(SHOWN[0])
    page.close()


@pytest.mark.parametrize("question", [f"{'1' * 150}+{'2' * 150}", "no question"])
def test_an_address_is_of_no_question_but_the_one_that_is_answered(open_page, file, question):
    page = open_page(file)
    playwright.expect(page).to_have_url(f"{file.as_uri()}#addition?653+49")
    page.locator("#question").fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()
    playwright.expect(page).to_have_url(f"{file.as_uri()}#addition")


@pytest.mark.release
def test_few_of_the_tokens_that_a_model_without_positions_sees_are_listed(open_page, file):
    page = open_page(file)
    page.goto(f"{file.as_uri()}#lesson?73918+26485")
    page.locator("#lesson-looks label.token").nth(3).hover()
    header = page.locator("#lesson-looks .heat thead th")
    playwright.expect(header).to_have_count(6)
    named = page.locator("#lesson-looks .heat tbody th").all_inner_texts()
    assert len(set(named)) == len(named) == 12 and all(name.startswith("layer ") for name in named)


@pytest.mark.parametrize("name", SHOWN)
def test_a_caption_is_a_sentence_without_names_of_fields(name):
    task = load_checkpoint(zoo(name)).task
    said = caption(task)
    fields = {field for field in vars(task) if "_" in field} | {"operands numbers", "any base", "`", "{"}
    assert said.endswith((".", "symbol.")) and not any(field in said for field in fields)


def test_carries_have_their_name(open_page, file):
    page = open_page(file)
    for name in ("addition", "binary-addition", "plus-one", "times-seven", "encoder-addition-settling", "multiplication-1"):
        choose(page, name)
        show(page, "Task")
        assert "carry" in page.locator("#described figcaption").first.inner_text(), name


def test_the_page_links_to_the_papers_and_to_a_repository_that_is_given():
    named, unnamed = build_page([zoo("addition-tiny")], "https://example.org/a?b&c"), build_page([zoo("addition-tiny")])
    assert 'href="https://example.org/a?b&amp;c"' in named and "<!-- repository -->" not in unnamed
    assert all("https://arxiv.org/abs/" in page for page in (named, unnamed))
    with pytest.raises(ValueError, match="https"):
        build_page([zoo("addition-tiny")], "javascript:alert(1)")


def test_the_keyboard_reaches_every_token(open_page, file):
    page = open_page(file)
    page.locator("label.token input").first.focus()
    said = [page.locator("#result .said").inner_text()]
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(page.locator("#result .said").inner_text())
    assert [text[0] for text in said] == ["2", "0", "2", "$"] and "which sees" in said[1]
    page.get_by_role("radio", name="Ask", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#check").is_visible() and not page.locator("#question").is_visible()


def test_a_question_that_lacks_a_word_or_has_one_too_many_is_refused(open_page, file):
    page = open_page(file)
    ask = "all => Promise.all(all.map(question => longhand.request('ask', {question}).then(it => it.answer, () => null)))"
    for name, questions in {"addition": ["653+", "1 2+3", "1+2=3"], "copy": ["12=34"], "calculator": ["1++2"]}.items():
        choose(page, name)
        assert page.evaluate(ask, questions) == [None] * len(questions)


@pytest.mark.parametrize("question", ["", "653-49", '<img src=x onerror="document.title=1">', "1" * 400_000 + "+1"])
def test_a_wrong_question_gets_one_line_before_any_work(open_page, file, question):
    page = open_page(file)
    page.evaluate("text => document.getElementById('question').value = text", question)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#error:not(:empty)")
    said = page.locator("#error").inner_text()
    assert ("at most" if len(question) > 1000 else "such as 653+49") in said and "\n" not in said and page.title() != "1"


def test_long_sums_are_answered_whole_and_folded(open_page, file):
    page = open_page(file)
    first, second = "9" * 5000, "1"
    found = page.evaluate("question => longhand.request('ask', {question})", f"{first}+{second}")
    assert found["answer"] == f"1{'0' * 5000}" and not found["wrong"]
    page.get_by_role("button", name="1,000", exact=True).click()
    page.get_by_text("Show all").click()
    page.wait_for_selector(".whole:not(:empty)")
    assert len(page.locator(".whole").inner_text()) >= 1000 and len(page.locator("#result output").inner_text()) < 200


def test_a_damaged_checkpoint_is_never_certified(open_page, tmp_path):
    folder = shutil.copytree(zoo("addition"), tmp_path / "adder")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        build_page([str(folder)])
    wrong = content[:-20_000] + bytes(20_000)
    weights.write_bytes(wrong)
    stated = json.loads((folder / "certificate.json").read_text())
    stated["files"]["model.safetensors"] = sha256(wrong).hexdigest()
    forged = stated | {"statement": "<img src=x onerror='document.title=1'>"}
    (folder / "certificate.json").write_text(json.dumps(forged))
    file = tmp_path / "page.html"
    file.write_text(build_page([str(folder)]), encoding="utf-8")
    page = open_page(file)
    assert page.locator("#verdict").inner_text().startswith("its certificate says")
    show(page, "Certificate")
    page.get_by_role("button", name="Check it now").click()
    page.wait_for_selector("#found.bad")
    assert "wrong" in page.locator("#verdict").inner_text() and page.title() != "1"


def test_noise_breaks_a_model_and_a_problem_shows_it(open_page, file):
    page = open_page(file)
    choose(page, "addition-tiny")
    show(page, "Break it")
    page.get_by_role("button", name="Break it").click()
    page.wait_for_selector("#outcome.bad")
    question, answer = page.locator("#broken .answer").inner_text().split(" = ")
    assert str(sum(map(int, question.split("+")))) != answer


ENCODED = {
    "learned": {
        "coupling": "addition",
        "position_encoding": "learned",
        "max_position_ids": 12,
        "norm_placement": "pre_post",
    },
    "rotary": {
        "coupling": "sequential",
        "position_encoding": "rotary",
        "norm_placement": "pre",
        "tie_word_embeddings": True,
    },
    "coupled rotary": {"coupling": "addition", "position_encoding": "rotary", "norm_placement": "sandwich"},
    "none": {"coupling": "sequential", "position_encoding": "none", "norm_placement": "post"},
}
SCALES = (
    {"attention_scale": "sqrt"},
    {"attention_scale": "sqrt", "qk_norm": True},
    {"attention_scale": "none"},
    {"attention_scale": "log_length", "qk_norm": True},
)


@pytest.mark.parametrize("encoding", drawn(ENCODED, 2))
def test_models_whose_tokens_see_all_tokens_run_as_in_torch(open_page, tmp_path, encoding):
    config = json.loads((Path(zoo("addition-tiny")) / "config.json").read_text())
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "head_dim": 8, "intermediate_size": 24, "windowed": False}
    folders, models, question = [], [], "653+49"
    for place, scale in enumerate(SCALES):
        torch.manual_seed(place)
        options = config | sizes | ENCODED[encoding] | scale | {"num_hidden_layers": 1 + place % 2}
        models.append(CoupledGPTForCausalLM(CoupledGPTConfig(**options)).eval())
        folders.append(str(tmp_path / f"model-{place}"))
        models[-1].save_pretrained(folders[-1])
    page = open_page(telling_logits(build_page(folders), tmp_path / "page.html"))
    prompt = torch.tensor([[TOKENS.index(symbol) for symbol in "$653+049="]])
    for folder, model in zip(folders, models, strict=True):
        choose(page, Path(folder).name)
        answer = torch.tensor([[TOKENS.index(symbol) for symbol in "2070"]])
        ids = model.double().model.plan_position_ids(prompt, prompt.shape[1] + 5)[..., : prompt.shape[1] + 4]
        with torch.inference_mode():
            expected = model(torch.cat([prompt, answer], dim=1), position_ids=ids).logits[0, prompt.shape[1] - 1 :]
        # Torch rounds the angles of rotary ids to float32.
        assert np.abs(logits(page, question) - expected.numpy()).max() < 1e-5, (encoding, folder)
        with pytest.raises(playwright.Error, match="sees all tokens"):
            page.evaluate("longhand.request('check')")


def test_what_cannot_be_shown_is_named_or_refused_when_the_page_is_built(tmp_path, caplog):
    build_page([zoo("addition-tiny"), *map(zoo, UNFIT)])
    assert all(f"{name} is named on the page" in caplog.text for name in UNFIT)
    with pytest.raises(ValueError, match="none of these models can be shown"):
        build_page([*map(zoo, UNFIT)])


def test_the_shipped_table_runs_and_is_not_called_checked(open_page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(build_page([zoo("addition-absolute-proved"), zoo("addition-tiny")]), encoding="utf-8")
    page = open_page(file)
    assert page.evaluate("longhand.request('ask', {question: '65321+9949'})")["answer"] == "75270"
    assert "sees all tokens" in page.locator("#verdict").inner_text()
    page.locator("#question").fill(f"{'9' * 300}+1")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#error:not(:empty)")
    assert "202" in page.locator("#error").inner_text()


def test_the_lesson_asks_all_and_only_the_certified_model_is_right(open_page, file):
    page = open_page(file)
    assert page.locator("#to-lesson a").is_visible()
    page.goto(f"{file.as_uri()}#lesson")
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        playwright.expect(page.locator("#lesson-ids .tokens")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    answers = page.locator("#lesson-answers output").all_inner_texts()
    right = str(73918 + 26485)
    assert [answer == right for answer in answers] == [False, False, True]
    assert "no id" not in page.locator("#lesson-looks").inner_text(), "a model without positions has no ids to speak of"
    page.locator("#lesson-question").fill("9999+1")
    page.get_by_role("button", name="Ask all").click()
    playwright.expect(page).to_have_url(f"{file.as_uri()}#lesson?9999+1")
    page.locator("#lesson-question").fill("653-49")
    page.get_by_role("button", name="Ask all").click()
    playwright.expect(page.locator("#lesson-error")).to_contain_text("such as 653+49")
    assert page.locator("#lesson-answers output").count() == 0
    page.goto(f"{file.as_uri()}#addition?1+2")
    playwright.expect(page.locator("#result output")).to_have_text("3")
    assert not page.locator("#lesson-view").is_visible()
    # The way back from the lesson is the list, also to the model that was shown before it.
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{file.as_uri()}#lesson")
        playwright.expect(page.locator("#lesson-view")).to_be_visible()
        if width == 360:
            page.locator("#model").select_option("addition")
        else:
            page.locator("#models").get_by_text("addition", exact=True).click()
        playwright.expect(page.locator("#name")).to_have_text("addition")
        playwright.expect(page.locator("#lesson-view")).to_be_hidden()


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """A page of one model."""
    place = tmp_path_factory.mktemp("small") / "page.html"
    place.write_text(build_page([zoo("addition-tiny")]), encoding="utf-8")
    return place


def test_a_folder_of_ones_own_is_opened_asked_and_checked(open_page, small_file, tmp_path):
    """A run's folder, with the best checkpoint beside other files; then one of the name of a model that is shown."""
    folder = shutil.copytree(zoo("binary-addition"), tmp_path / "my bits")
    shutil.copytree(zoo("addition"), folder / "best")
    page = open_page(small_file)
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("#folder").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#folder").set_input_files(folder)
    playwright.expect(page.locator("#name")).to_have_text("my bits")
    page.locator("#question").fill("11+1")
    page.get_by_role("button", name="Ask", exact=True).click()
    playwright.expect(page.locator("#result output")).to_have_text("100")
    assert "its certificate says" in page.locator("#verdict").inner_text()
    stated = json.loads((folder / "certificate.json").read_text())
    found = page.evaluate("longhand.request('check')")
    assert [(part["count"], part["wrong"]) for part in found["parts"]] == [(stated["neighbourhoods"], 0)]
    page.locator("#folder").set_input_files(shutil.copytree(zoo("copy"), tmp_path / "addition-tiny"))
    playwright.expect(page.locator("#name")).to_have_text("addition-tiny (yours)")
    choose(page, "my bits")
    playwright.expect(page.locator("#result output")).to_be_visible()


def test_folders_that_cannot_be_shown_are_refused_with_the_reason(open_page, small_file, tmp_path):
    page = open_page(small_file)
    empty = tmp_path / "nothing"
    empty.mkdir()
    (empty / "notes.txt").write_text("no model")
    page.locator("#folder").set_input_files(empty)
    playwright.expect(page.locator("#folder-error")).to_contain_text("The folder nothing has no config.json")
    runs = tmp_path / "runs"
    for name in ("addition-tiny", "copy"):
        # Files of two models are none of one model.
        shutil.copytree(zoo(name), runs / name)
    page.locator("#folder").set_input_files(runs)
    playwright.expect(page.locator("#folder-error")).to_contain_text("The folder runs has no config.json")
    damaged = shutil.copytree(zoo("addition-tiny"), tmp_path / "damaged")
    (damaged / "config.json").write_text("[1")
    page.locator("#folder").set_input_files(damaged)
    playwright.expect(page.locator("#folder-error")).to_contain_text("no JSON object")
    cut = shutil.copytree(zoo("addition-tiny"), tmp_path / "cut")
    weights = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    page.locator("#folder").set_input_files(cut)
    playwright.expect(page.locator("#verdict")).to_contain_text("model.safetensors is")
    for name, reason in UNFIT.items():
        page.locator("#folder").set_input_files(zoo(name))
        playwright.expect(page.locator("#verdict")).to_contain_text(reason)
    # The models of the page work as before.
    choose(page, "addition-tiny")
    assert page.evaluate("longhand.request('ask', {question: '7+8'})")["answer"] == "15"


@pytest.mark.release
def test_the_page_and_python_agree_on_what_can_be_shown(open_page, small_file):
    """Each setting of each kind of model, changed to another value and left out."""
    page = open_page(small_file)
    names = [
        "addition",
        "calculator",
        "hex-addition",
        "encoder-multiplication-1-settling",
        "addition-absolute-proved",
        *UNFIT,
    ]
    configs = [json.loads(Path(zoo(name), "config.json").read_text()) for name in names]
    changed = [{"model_type": "bert"}, {}, {**configs[0], "task": None}]
    for config in configs:
        for field in sorted(
            {name for fields in RUNS.values() for name in fields} | {"coupling", "transducer", "model_type"}
        ):
            changed += [{**config, field: value} for value in ("none", "post", True, False, 2, None)]
        task = config["task"]
        changed += [{**config, "task": {**task, field: value}} for field in FORMAT for value in (True, 3, "plain")]
    changed.append({**configs[2], "transducer": {"alphabet": "\U0001f600"}})
    assert len({unfit(config) for config in changed}) > 20
    for config in [*configs, *changed]:
        assert page.evaluate("config => longhand.unfit(config)", config) == unfit(config), config


def test_models_that_fail_are_small_and_as_accurate_as_the_lesson_says():
    said = {"addition-no-positions": {3: 1.0, 4: 0.0, 6: 0.0}, "addition-short-table": {3: 1.0, 6: 0.02}}
    for name, shares in said.items():
        folder, generator = LESSONS_FOLDER / name, random.Random(0)
        assert (folder / "model.safetensors").stat().st_size < 150_000
        checkpoint = load_checkpoint(str(folder))
        for length, share in shares.items():
            pairs = [(int(number(generator, length)), int(number(generator, length))) for _ in range(10)]
            found = sum(checkpoint.answer(f"{one}+{two}") == str(one + two) for one, two in pairs)
            assert abs(found / 10 - share) <= 0.15, (name, length)


def test_no_entry_of_the_page_is_dead():
    assert not set(UNFIT) & set(SHOWN)
    for name in SHOWN:
        assert unfit(json.loads((Path(zoo(name)) / "config.json").read_text())) == ""


def test_every_setting_that_a_model_may_be_refused_for_has_a_name_for_persons():
    named = {"coupling", *(name for settings in RUNS.values() for name in settings), *(f"task.{name}" for name in FORMAT)}
    assert named == WORDS.keys() and not any("_" in word for word in WORDS.values())


def test_a_model_that_cannot_be_run_is_named_with_the_reason(open_page, tmp_path):
    (tmp_path / "page.html").write_text(build_page([zoo("addition-tiny"), *map(zoo, UNFIT)]), encoding="utf-8")
    page = open_page(tmp_path / "page.html")
    for name, reason in UNFIT.items():
        choose(page, name)
        assert reason in page.locator("#verdict").inner_text()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dtype": "bfloat16"}, "precision of weights"),
        ({"num_hidden_layers": 2}, "the number of layers"),
        ({"final_norm": "layer"}, "the norm after the last layer"),
        ({"task": {"task": "addition", "order": "plain"}}, "the order of digits"),
        ({"model_type": "pairwise_bert", "transducer": {"alphabet": "01"}}, "column task"),
    ],
)
def test_what_the_scripts_would_compute_wrongly_is_unfit(change, word):
    config = json.loads((Path(zoo("addition")) / "config.json").read_text())
    assert unfit(config) == "" and word in unfit(config | change)


def test_a_file_that_holds_a_mark_of_the_page_does_not_change_the_page(tmp_path):
    shutil.copytree(zoo("addition-tiny"), tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"note": "/* page */ </script>"}))
    data = build_page([str(tmp_path / "model")]).split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)[0]["config"] == config.read_text()


def test_the_scripts_ask_nothing_of_anyone_and_stay_small():
    scripts = [file for file in FOLDER.iterdir() if file.is_file() and file.suffix != ".yaml"]
    text = {script: script.read_text(encoding="utf-8").splitlines() for script in scripts}
    assert max(len(line) for lines in text.values() for line in lines) <= WIDEST
    lines = [line.strip() for script in text if script.suffix == ".js" for line in text[script]]
    assert len([line for line in lines if line and not line.startswith("//")]) <= MOST_JAVASCRIPT
    assert not any(word in line for line in lines for word in ("innerHTML", "http:", "https:", "fetch(", "eval("))


def test_the_scripts_tokens_are_the_packages():
    sheets = (FOLDER / "sheets.js").read_text()
    assert f'[..."{"".join(TOKENS[:18])}", "<eos>", "<pad>", "<unk>", "/"]' in sheets
    assert list(ENCODER_TOKENS[:21]) == list(TOKENS) and (*"0123456789", "_", "?") == STATES


@pytest.mark.parametrize("words", [["addition", "addition"], ["--output"]])
def test_the_command_refuses_in_one_line(capsys, words):
    with pytest.raises(SystemExit) as stop:
        command.main(words)
    assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1
