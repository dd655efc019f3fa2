"""Pictures: what is drawn."""

import itertools

import pytest
import torch
from matplotlib import rcParams
from PIL import Image

from longhand.data import TASKS
from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.evaluation.plots import Line, merge_equal, plot_lines, plot_results


def row(model="x", length=10, exact_match=1.0, length_b=None):
    sizes = {"length": length, "length_b": length if length_b is None else length_b}
    return {"model": model, "task": "addition", "num_samples": 20, "exact_match": exact_match, **sizes}


def drawn(function, *arguments, **options):
    """The figure that a function saves."""
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save_figure", lambda figure, file: kept.append(figure))
        function(*arguments, **options)
    return kept[0]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_lines_through_the_same_points_are_one_line_with_both_labels():
    merged = merge_equal([Line("a", [1, 2], [0, 0]), Line("b", [1, 2], [0, 1]), Line("c", [1, 2], [0, 0])])
    assert [line.label for line in merged] == ["a,\nc", "b"]


def test_every_model_is_named(tmp_path):
    rows = [row(name, length, value) for name, value in (("x", 1.0), ("y", 0.4)) for length in (10, 20)]
    figure = drawn(plot_results, rows, tmp_path / "x.png", (1, 5), TASKS["encoder_multiplication"])
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["x", "y"]
    assert "trained on 1 to 5" in texts(figure) and axes.get_xlabel() == "digits of the second number"


def test_a_single_trained_size_is_named_once_and_shaded(tmp_path):
    rows = [row("x", length, 1.0) for length in (1, 5, 10)]
    figure = drawn(plot_results, rows, tmp_path / "x.png", (5, 5), TASKS["encoder_multiplication"])
    assert "trained on 5" in texts(figure)
    assert [patch.get_linewidth() > 0 for patch in figure.axes[0].patches] == [True]


def test_seeds_are_shown_by_their_median(tmp_path):
    rows = [row(f"x-seed{seed}", length, value) for seed, value in enumerate((0.2, 0.9, 1.0)) for length in (10, 20)]
    groups = {each["model"]: "x" for each in rows}
    figure = drawn(plot_results, rows, tmp_path / "x.png", None, TASKS["encoder_multiplication"], groups)
    assert figure.axes[0].lines[-1].get_ydata() == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize(
    ("lengths", "scale"), [((1, 12), "linear"), ((5, 22), "linear"), ((10, 200), "log"), ((7, 7), "linear")]
)
def test_lengths_that_spread_far_have_a_logarithmic_axis(lengths, scale, tmp_path):
    figure = drawn(plot_lines, [Line("x", lengths, [1.0, 1.0])], tmp_path / "x.png", None, "digits")
    assert figure.axes[0].get_xscale() == scale


def test_trained_cells_of_a_grid_are_outlined_and_values_written(tmp_path):
    rows = [row(length=a, length_b=b, exact_match=0.25) for a in (3, 5, 9, 14) for b in (3, 5, 9)]
    # The best checkpoint's results are not the last one's.
    best = [{**one, "model": "x/best", "exact_match": 1.0} for one in rows]
    figure = drawn(plot_results, rows + best, tmp_path / "x.png", (5, 9), TASKS["minesweeper"])
    (outline,) = figure.axes[0].lines
    assert (min(outline.get_xdata()), max(outline.get_xdata())) == (0.5, 2.5)
    assert (min(outline.get_ydata()), max(outline.get_ydata())) == (0.5, 2.5)
    assert texts(figure) == ["0.25"] * 12


def attention_rows(heads, weights=None):
    """Rows of two layers on `$##=#$`, of which `=` and the digit after it predict the response."""
    rows = []
    for layer, head in itertools.product((1, 2), range(1, heads + 1)):
        drawn = torch.eye(6)[:5] if weights is None else weights
        shown = {"tokens": list("$##=#$"), "ids": [[0], [2], [1], [3], [2], [0]], "response": [3, 4]}
        rows.append({"model": "x", "layer": layer, "head": head, **shown, "weights": drawn.tolist()})
    return rows


@pytest.mark.parametrize("heads", [1, 4, 10])
@pytest.mark.parametrize("draw", [plots.plot_attention, plots.plot_attention_of_response])
def test_attention_of_every_head_has_a_panel(heads, draw, tmp_path):
    figure = drawn(draw, attention_rows(heads), tmp_path / "x.png")
    titles = {axes.get_title(loc="left").partition(":")[0] for axes in figure.axes} - {""}
    assert titles == {f"layer {layer + 1}, head {head + 1}" for layer in range(2) for head in range(heads)}


def test_attention_is_transposed_and_clipped(tmp_path):
    weights = torch.full((5, 6), 0.009)
    weights[3, 1] = 0.9
    (image,) = drawn(plots.plot_attention, attention_rows(1, weights), tmp_path / "x.png").axes[0].images
    expected = torch.zeros(6, 5)
    expected[1, 3] = 0.9
    assert torch.allclose(torch.tensor(image.get_array()).float(), expected)


def test_what_decides_an_answer_has_a_panel_of_its_own(tmp_path):
    decides = torch.eye(5, 6).int().tolist()
    rows = [row | {"decides": decides} for row in attention_rows(2, torch.ones(5, 6) / 6)]
    figure = drawn(plots.plot_attention, rows, tmp_path / "x.png")
    titled = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.axison}
    (image,) = titled["sigma: what decides the answer"].images
    assert image.get_array().T.tolist() == decides and {"layer 1, head 1", "layer 1, head 2"} < titled.keys()


def test_the_enlarged_part_says_which_token_a_token_of_the_response_attends_to(tmp_path):
    weights = torch.zeros(5, 6)
    weights[4, 1], weights[4, 2], weights[3, 0] = 0.7, 0.25, 0.5
    figure = drawn(plots.plot_attention_of_response, attention_rows(1, weights), tmp_path / "x.png")
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "layer 1, head 1: '# 2' attends to\n# 2 (0.70), # 1 (0.25)"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["$", "# 2", "# 1"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["= 3", "# 2"]
    assert sorted(text.get_text() for text in axes.texts) == [".25", ".50", ".70"]


def test_norms_of_pairwise_vectors_are_a_map_of_layers_and_relations(tmp_path):
    rows = [
        {"model": "x", "layer": layer, "rule": rule, "first_relation": -1, "norms": [layer, 0.0, 1.0]}
        for layer in (1, 2)
        for rule in ("relative", "uniform")
    ]
    figure = drawn(plots.plot_position_maps, rows, tmp_path / "x.png")
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["x, pair map relative", "x, pair map uniform"]
    (image,) = panels[0].images
    assert image.get_array().tolist() == [[1, 0, 1], [2, 0, 1]] and image.get_extent() == [-1.5, 1.5, 2.5, 0.5]


def test_checkpoints_of_a_run_are_lines_over_lengths(tmp_path):
    rows = [row("x", length, step / 20 / length) | {"step": step} for step in range(1, 21) for length in (1, 2, 4)]
    figure = drawn(
        plots.plot_checkpoints,
        {"one": rows, "other": rows[:6]},
        tmp_path / "x.png",
        dict.fromkeys(("one", "other"), (1, 2)),
        "digits",
    )
    one, other = figure.axes
    assert [line.get_label() for line in one.lines][::7] == ["1 steps", "20 steps"] and len(
        one.lines
    ) == plots.MOST_CHECKPOINTS
    assert one.lines[-1].get_ydata() == pytest.approx([1, 1 / 2, 1 / 4])
    assert [line.get_label() for line in other.lines] == ["1 steps", "2 steps"]


def test_pictures_have_a_solid_background_and_leave_settings_alone(tmp_path):
    before = dict(rcParams)
    plot_results([row()], tmp_path / "x.png", None, TASKS["encoder_multiplication"])
    assert dict(rcParams) == before
    picture = Image.open(tmp_path / "x.png").convert("RGBA")
    assert picture.getpixel((0, 0)) == (255, 255, 255, 255) and picture.width == plots.WIDTH * 150
    assert [file.name for file in tmp_path.iterdir()] == ["x.png"]
