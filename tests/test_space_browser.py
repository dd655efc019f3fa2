"""The page in a real browser, Chromium driven by playwright: questions, an error, the check, a phone, the keyboard."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from longhand.data.tasks.registry import TASKS
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.checkpoints.zoo import list_zoo, zoo
from longhand.hub_cards.publishing.card_updates import PushedResults
from longhand.hub_cards.publishing.space import space_publication
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("gradio", reason="the page needs Gradio: pip install 'longhand[space]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: apt-get install chromium"),
]

UNTRAINED = "multiplication-untrained"
"""A model of products with scratchpad that has learned nothing: the page draws what it writes all the same."""

SECONDS = 120_000
"""Most milliseconds to wait for an answer, on a machine with much else to do."""


def make_untrained(folder: Path) -> None:
    task = TASKS["multiplication_scratchpad"]()
    options = {"hidden_size": 16, "num_attention_heads": 13, "head_dim": 4, "intermediate_size": 16, "num_hidden_layers": 1}
    torch.manual_seed(0)
    config = CoupledGPTConfig(position_encoding="pairwise", **options, **task.family.config_options(task))
    CoupledGPTForCausalLM(config).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page as it is pushed as a Space, in a process of its own: all of the zoo, and a model that has learned nothing."""
    untrained, place = (tmp_path_factory.mktemp("space") / name for name in (UNTRAINED, "pushed"))
    make_untrained(untrained)
    files = space_publication("user/page", [*list_zoo(), str(untrained)]).make_files(untrained.parent, PushedResults())
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    environment = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SERVER_PORT": str(port)}
    words, log = [sys.executable, "app.py"], place / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(words, cwd=place, stdout=output, stderr=output, env=environment) as server,
    ):
        try:
            deadline = time.monotonic() + 300
            while f":{port}" not in log.read_text():
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(address, browser):
    """Open the page; nothing may be written to the console as an error until the test ends."""
    contexts, faults = [], []

    def open_page(**options):
        contexts.append(context := browser.new_context(**options))
        page = context.new_page()
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.goto(address)
        page.wait_for_selector(".lh-grid")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def choose(page, name):
    page.get_by_label("Model").click()
    page.get_by_role("option", name=name, exact=True).click()


def ask(page, question):
    page.get_by_label("Question").fill(question)
    page.get_by_label("Question").press("Enter")


def ask_until_answered(page, question, answer):
    """Ask as a person does, again if nothing comes: a model that was just chosen sets the question and answers it too."""
    shown = "text => document.querySelector('.lh-answer output')?.textContent === text"
    for _ in range(12):
        ask(page, question)
        try:
            return page.wait_for_function(shown, arg=answer, timeout=SECONDS / 6)
        except playwright.TimeoutError:
            continue
    raise AssertionError(f"{question} is not answered by {answer}, but: {page.locator('body').inner_text()[:500]}")


def light(page, place, heads):
    """Pass over a token of the response until it is lit: one token sees, others are seen, and each head has a row.

    Another drawing of the same answer may come in between.
    """
    shown = """heads => {
        const count = one => document.querySelectorAll(one).length
        return count(".lh-lit .lh-written") && count(".lh-query") === 1 && count(".lh-seen")
            && count(".lh-panel tbody tr") === heads
    }"""
    for _ in range(20):
        page.mouse.move(0, 0)
        page.locator("button.lh-token").nth(place).hover()
        try:
            return page.wait_for_function(shown, arg=heads, timeout=5000)
        except playwright.TimeoutError:
            continue
    raise AssertionError(f"token {place} does not light up with what {heads} heads see")


@pytest.mark.parametrize("name", list_zoo())
def test_every_model_of_the_zoo_answers_its_questions(open_page, name):
    checkpoint = load_checkpoint(zoo(name))
    page = open_page()
    if name != list_zoo()[0]:
        choose(page, name)
    for part in checkpoint.task.parts:
        question = part.example_question
        ask_until_answered(page, question, part.show_answer(question, checkpoint.answer(question)))
        assert page.locator(".lh-badge").inner_text().startswith("certified")
        if not checkpoint.model.can_generate():
            page.locator(".lh-reading .lh-table").get_by_text("pass 1", exact=True).wait_for()
            continue
        count = page.locator("button.lh-token").count()
        for place in (0, count - 1):
            light(page, place, checkpoint.model.config.num_attention_heads * checkpoint.model.config.num_hidden_layers)


def test_a_scratchpad_stands_in_columns_whatever_the_model_writes(open_page):
    page = open_page()
    choose(page, UNTRAINED)
    page.wait_for_function("document.querySelector('.lh-badge')?.textContent.includes('not certified')")
    places = page.locator(".lh-token").evaluate_all("all => all.map(one => one.style.gridArea)")
    assert places and len(set(places)) == len(places)


def test_the_keyboard_reaches_every_token_and_its_attention(open_page):
    page = open_page()
    choose(page, "addition")
    ask(page, "653+49")
    page.wait_for_function("document.querySelector('.lh-answer output')?.textContent === '702'")
    first = page.locator("button.lh-token").first
    page.get_by_label("Question").focus()
    for _ in range(10):
        page.keyboard.press("Tab")
        if first.evaluate("one => one === document.activeElement"):
            break
    else:
        pytest.fail("Tab does not reach the first token of the response")
    said = [page.locator(".lh-said").inner_text()]
    for key in ("ArrowRight", "End", "Home"):
        page.keyboard.press(key)
        said.append(page.locator(".lh-said").inner_text())
    assert [text[0] for text in said] == ["2", "0", "$", "2"] and said[0] == said[3] and "which sees" in said[1]
    # One stop for Tab, wherever the arrows have led.
    assert page.locator('button.lh-token[tabindex="0"]').count() == 1


def test_a_wrong_question_is_explained_and_runs_nothing(open_page):
    page = open_page()
    question = '<img src=x onerror="document.title=1">{{1+1}}${document.title=1}`'
    ask(page, question)
    page.wait_for_selector('[role="alert"]')
    assert question in page.locator('[role="alert"]').inner_text()
    assert page.title() != "1" and page.locator(".lh-error img").count() == 0


def test_the_certificate_is_checked_while_one_watches(open_page):
    page = open_page()
    choose(page, "copy")
    page.get_by_role("tab", name="Certificate").click()
    page.wait_for_selector(".lh-headline.lh-good")
    page.get_by_role("button", name="Check it now").click()
    page.wait_for_selector("text=The certificate says the same")
    assert page.locator(".lh-headline.lh-good").count() == 2


def test_long_sums_are_answered_and_timed(open_page):
    page = open_page()
    choose(page, "addition")
    page.get_by_role("tab", name="Speed").click()
    page.get_by_role("button", name="Answer and take the time").click()
    page.wait_for_selector("text=right to the last token")
    assert re.search(r"size 1,000.* 1,002 tokens", page.locator(".lh-big").inner_text())


def test_rows_of_the_comparison_light_up_their_lines(open_page):
    page = open_page()
    page.get_by_role("tab", name="Encodings").click()
    row = page.locator("tr[data-series]").nth(1)
    row.focus()
    assert page.locator("g.lh-on").get_attribute("data-series") == row.get_attribute("data-series")
    page.get_by_label("1 to 4 digits").click()
    page.wait_for_selector("text=trained on 1 to 4 (shaded)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(open_page, scheme):
    page = open_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, color_scheme=scheme)
    page.locator("button.lh-token").nth(1).tap()
    page.wait_for_selector(".lh-panel table")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    lightness = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
    assert (sum(page.evaluate(lightness)) < 200) == (scheme == "dark")
