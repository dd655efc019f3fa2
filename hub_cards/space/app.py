"""The page's widgets, and what happens when they are used."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from longhand.hub_cards.space.actions import ask, check, measure
from longhand.hub_cards.space.comparison import PICTURES, draw_comparison
from longhand.hub_cards.space.proof import draw_stated
from longhand.hub_cards.space.reading import MOST_TOKENS, Exhibit, Timing

FOLDER = Path(__file__).parent

TITLE = "longhand: transformers that do arithmetic longhand"

ABOUT = (
    "These small transformers were trained on short problems. Tokens that matter to each other share a position id, such as "
    "the digits of one column. So they stay right on long problems, and a finite check proves it."
)

MOST_WAITING = 20
"""Computations that wait; further ones are refused."""

ONE_AT_A_TIME = {"concurrency_limit": 1, "concurrency_id": "compute"}
"""Long computations wait for each other: a free Space has two cores."""


def build(sources: Sequence[str]) -> gr.Blocks:
    """The page for checkpoints, folders or Hub ids. The first one is shown at the beginning.

    Raises:
        ValueError: a checkpoint cannot be loaded, or two have one name.
    """
    exhibits: dict[str, Exhibit] = {}
    for source in sources:
        exhibit = Exhibit(source)
        if exhibit.name in exhibits:
            raise ValueError(f"two checkpoints have the name {exhibit.name}, so they could not be told apart: {source}")
        exhibits[exhibit.name] = exhibit
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(f"# Arithmetic, longhand\n{ABOUT}")
        model = gr.Dropdown(list(exhibits), value=next(iter(exhibits)), label="Model", filterable=False)
        with gr.Tab("Ask"):
            asking = _add_question(exhibits, model)
        with gr.Tab("Certificate"):
            stated, checked = _add_certificate(exhibits, model)
        with gr.Tab("Speed"):
            timing = _add_timing(exhibits, model)
        with gr.Tab("Encodings"):
            _add_comparison()

        def choose(name: str) -> tuple[Any, ...]:
            exhibit = exhibits[name]
            return _question(exhibit), draw_stated(exhibit), "", *_timing(exhibit)

        question, asked, run = asking
        model.change(choose, model, [question, stated, checked, *timing], show_progress="hidden").then(
            run, [model, question], asked, show_progress="hidden"
        )
        page.load(run, [model, question], asked, show_progress="hidden")
    return page


def _add_question(exhibits: dict[str, Exhibit], model: gr.Dropdown) -> tuple[gr.Textbox, gr.HTML, Any]:
    question = _question(next(iter(exhibits.values())))
    asked = gr.HTML(js_on_load=None, apply_default_css=False)

    def run(name: str, text: str) -> str:
        return ask(exhibits, name, text)

    # A question that is asked while another is being answered comes next; by default it would be dropped without a word.
    question.submit(run, [model, question], asked, api_name="ask", trigger_mode="always_last", **ONE_AT_A_TIME)
    return question, asked, run


def _question(exhibit: Exhibit) -> gr.Textbox:
    """The field for a question, with one that the model answers."""
    examples = [part.example_question for part in exhibit.task.parts]
    return gr.Textbox(
        examples[0],
        label="Question",
        info=f"such as {' or '.join(examples)}",
        max_lines=3,
        max_length=MOST_TOKENS + 1,
        submit_btn="Ask",
        elem_id="lh-question",
    )


def _add_certificate(exhibits: dict[str, Exhibit], model: gr.Dropdown) -> tuple[gr.HTML, gr.HTML]:
    first = next(iter(exhibits.values()))
    stated = gr.HTML(draw_stated(first), js_on_load=None, apply_default_css=False)
    button = gr.Button("Check it now", variant="primary")
    checked = gr.HTML(min_height=140, js_on_load=None, apply_default_css=False)

    def run(name: str, progress=gr.Progress(track_tqdm=True)) -> str:  # noqa: B008
        return check(exhibits[name])

    button.click(run, model, checked, api_name="check", **ONE_AT_A_TIME)
    return stated, checked


def _add_timing(exhibits: dict[str, Exhibit], model: gr.Dropdown) -> list[Any]:
    gr.Markdown(
        "A random problem is drawn and answered by parallel decoding, and the response is compared with exact arithmetic."
    )
    part, digits, *_ = _timing(next(iter(exhibits.values())))
    button = gr.Button("Answer and take the time", variant="primary")
    measured, timings = gr.HTML(min_height=140, js_on_load=None, apply_default_css=False), gr.State([])

    def run(name: str, chosen: str, size: float, before: list[Timing]) -> tuple[str, list[Timing]]:
        return measure(exhibits[name], chosen, size, before)

    def resize(name: str, chosen: str) -> tuple[Any, ...]:
        return _timing(exhibits[name], chosen)[1:]

    button.click(run, [model, part, digits, timings], [measured, timings], api_name=False, **ONE_AT_A_TIME)
    part.input(resize, [model, part], [digits, measured, timings], show_progress="hidden", api_name=False)
    return [part, digits, measured, timings]


def _timing(exhibit: Exhibit, chosen: str | None = None) -> tuple[Any, ...]:
    """The choice of a part of the task and the slider for it, and no times yet."""
    sizes = exhibit.sizes
    chosen = chosen or next(iter(sizes))
    part = gr.Radio(list(sizes), value=chosen, label="Problems", visible=len(sizes) > 1)
    names = next(one.size_names for one in exhibit.task.parts if one.name == chosen)
    label = " and ".join(dict.fromkeys(names))
    return part, gr.Slider(1, sizes[chosen], value=min(1000, sizes[chosen]), step=1, label=label), "", []


def _add_comparison() -> None:
    study = gr.Radio(
        [("1 to 30 digits", "encodings"), ("1 to 4 digits, which more encodings fit", "short-sums")],
        value=next(iter(PICTURES)),
        label="Trained on",
    )
    picture = gr.HTML(draw_comparison(next(iter(PICTURES))), js_on_load=None, apply_default_css=False)
    study.change(draw_comparison, study, picture, show_progress="hidden", api_name=False)


def launch(sources: Sequence[str], **options: Any) -> tuple[Any, str, str]:
    """Serve the page; `options` and what is returned are those of `gradio.Blocks.launch`."""
    script = f"<script>{(FOLDER / 'page.js').read_text(encoding='utf-8')}</script>"
    theme = gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    return (
        build(sources)
        .queue(max_size=MOST_WAITING)
        .launch(
            theme=theme,
            css_paths=FOLDER / "page.css",
            head=script,
            ssr_mode=False,
            footer_links=["api", "gradio"],
            **options,
        )
    )
