"""Fill the tables of RESULTS.md and its sister pages from the results files, write GALLERY.md, and draw the pictures.

python -m longhand.hub_cards.research.pages           write the pages and the pictures
python -m longhand.hub_cards.research.pages --check   write nothing; exit with 1 if a page is out of date
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas

from longhand.hub_cards.checkpoints.checkpoint import PLOT_FILE
from longhand.hub_cards.commands import write_atomically
from longhand.hub_cards.evaluation.plots import plot_attention, plot_attention_of_response, plot_position_maps
from longhand.hub_cards.research import gallery
from longhand.hub_cards.research.claims import claims_blocks
from longhand.hub_cards.research.gpu.run import parts_block
from longhand.hub_cards.research.overview import OVERVIEW, plot_addition, plot_short_sums, plot_tasks
from longhand.hub_cards.research.study import STUDY_RESULTS, Study, load_study
from longhand.hub_cards.research.study_pages import (
    PROVED_LENGTHS,
    draw_checkpoints,
    draw_study,
    is_refuted,
    proofs_block,
    read_lengths,
    read_searched,
    read_shipped_lengths,
    read_study,
    read_tests,
    shipped_proof_block,
    study_block,
    unfitted,
    verdict_block,
)
from longhand.hub_cards.research.tables import TABLES, filled_table, read_frame
from longhand.hub_cards.result_rows import (
    ATTENTION_MAPS_FILE,
    POSITION_MAPS_FILE,
    RESULTS_FILE,
    VALIDATION_FILE,
    read_results,
)

HUB_CARDS = Path(__file__).parents[1]
PAGES = [page for page in sorted(HUB_CARDS.glob("*.md")) if "<!-- results" in page.read_text(encoding="utf-8")]
"""The pages with tables of results."""

README = HUB_CARDS.parent / "README.md"
FOLDER = HUB_CARDS / "results"

OWN = FOLDER / "own"
"""What the command of COMPARISONS.md writes into `results` in its folder."""

RECIPES = ("addition", "addition-short", "certified", "multiplication-2", "addition-absolute", "baselines")
"""Studies whose variants are recipes, without changes."""


def own_study() -> Study:
    """Return the study that COMPARISONS.md shows, with the encoding that it shows."""
    shown = re.findall(
        r"<!-- (\S+) -->\n```\w+\n(.*?)```", (HUB_CARDS / "COMPARISONS.md").read_text("utf-8"), flags=re.DOTALL
    )
    with TemporaryDirectory() as folder:
        for name, text in shown:
            Path(folder, name).write_text(text, encoding="utf-8")
        study = load_study(str(Path(folder, "my-study.yaml")))
        # Parsed runs are kept, and the file of the encoding is not.
        for variant in study.variants:
            study.parse(variant)
    return study


def own_block() -> str:
    """What the study of COMPARISONS.md found: its table and its picture; nothing before the study has been run."""
    if not (OWN / RESULTS_FILE).exists():
        return ""
    picture = f"![Exact match by digits of the encodings of this section](results/{OWN.name}/{PLOT_FILE})"
    return f"What it found, on a machine that had other work:\n\n{study_block(own_study(), OWN)}\n{picture}"


def all_blocks(pages: str) -> dict[str, str]:
    """Return every table by the name of its block: what no study trains, verdicts, and what these pages show of studies.

    `studies/NAME` is the usual table of a study and
    `studies/NAME/EVALUATION` what was measured besides; after either, `/runs`, `/labels` or `/seeds` is a table of that
    kind, see `study_block`.
    """
    files = {name: HUB_CARDS / table["file"] for name, table in TABLES.items() if "file" in table}
    # A study that has not been run yet has no file.
    rows = {name: read_results(file) if file.exists() else [] for name, file in files.items()}
    blocks = {name: filled_table(name, table_rows) for name, table_rows in rows.items()} | claims_blocks()
    blocks["gpu/parts"] = parts_block(read_results(FOLDER / "gpu.jsonl"))
    blocks["verdicts"] = verdict_block()
    blocks["proofs"] = proofs_block()
    blocks["proved-table"] = shipped_proof_block()
    blocks["own"] = own_block()
    blocks["shipped"] = gallery.shipped_table(OVERVIEW["shipped"])
    named = r"<!-- results (studies/([\w-]+)(?:/(?!runs|labels|seeds)([\w-]+))?(?:/(runs|labels|seeds))?) -->"
    for block, name, evaluation, kind in re.findall(named, pages):
        blocks[block] = study_block(load_study(name), STUDY_RESULTS / name, evaluation, kind)
    return blocks


def render(text: str, blocks: dict[str, str]) -> str:
    """The text with every block between `<!-- results NAME -->` and `<!-- end -->` filled with the table NAME."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{blocks.get(match[2], 'No results yet.')}\n{match[3]}"

    return re.sub(r"(<!-- results (\S+) -->\n).*?(<!-- end -->)", fill, text, flags=re.DOTALL)


def draw_overview() -> None:
    """Draw the pictures of the README."""
    studies = {name: load_study(name) for name in RECIPES}
    tests, checks = (pandas.concat(frames) for frames in zip(*map(read_study, studies.values()), strict=True))
    sizes = {variant: study.trained_sizes(variant) for study in studies.values() for variant in study.variants}
    of_recipe = dict(iter(tests.groupby("variant")))
    certified = set(checks.loc[checks["certified"].astype(bool), "variant"])
    long = pandas.concat([of_recipe["addition"], read_frame(FOLDER / "studies/addition/long" / RESULTS_FILE)])
    # Without changes, the study's runs to 30 digits are those of the recipe.
    verdicts = [row for row in read_lengths(load_study(PROVED_LENGTHS)) if row["model"].startswith("1-30-seed")]
    known = [*read_searched(studies["addition-absolute"]), *verdicts]
    refuted = sorted({row["length"] for row in known if is_refuted(row)})
    proved = [row["length"] for row in read_shipped_lengths() if row["verdict"] == "proved"]
    plot_addition(long, of_recipe["addition-absolute"], refuted, proved, sizes["addition"], FOLDER / "accuracy.png")
    short = load_study("short-sums")
    plot_short_sums(dict(iter(read_study(short)[0].groupby("variant"))), short.trained_sizes("window"), FOLDER / "short.png")
    study = load_study("tasks")
    poor = unfitted(study, read_tests(STUDY_RESULTS / study.name))
    tables = {
        str(name).removesuffix("--coupled"): rows
        for name, rows in read_study(study)[0].groupby("variant")
        if str(name).endswith("--coupled") and name not in poor
    }
    plot_tasks({name: of_recipe[name] for name in certified}, tables, sizes, FOLDER / "tasks.png")


def draw_pictures(pages: str) -> None:
    """Draw the pictures of the pages, except for those of studies with code of their own."""
    draw_overview()
    plot_position_maps(read_results(FOLDER / "position_maps.jsonl"), FOLDER / "position_maps.png")
    if (OWN / RESULTS_FILE).exists():
        draw_study(own_study(), read_frame(OWN / RESULTS_FILE), OWN / PLOT_FILE)
    for file in sorted(STUDY_RESULTS.glob(f"*/*/{ATTENTION_MAPS_FILE}")):
        rows = read_results(file)
        first = [row for row in rows if row["model"] == rows[0]["model"]]
        plot_attention(first, file.with_name("attention.png"))
        plot_attention_of_response(first, file.with_name("attention-response.png"))
    for file in sorted(STUDY_RESULTS.glob(f"*/*/{POSITION_MAPS_FILE}")):
        # Earlier measurements have no norms.
        if rows := [row for row in read_results(file) if "norms" in row]:
            plot_position_maps(rows, file.with_suffix(".png"))
    for file in sorted(STUDY_RESULTS.glob(f"*/{VALIDATION_FILE}")):
        study, tests = load_study(file.parent.name), read_tests(file.parent)
        draw_checkpoints(study, read_results(file), file.with_name("checkpoints.png"), tests)
    for folder in re.findall(r"\(results/(studies/[\w/-]+)/accuracy\.png\)", pages):
        name = folder.split("/")[1]
        rows, tests = read_frame(FOLDER / folder / RESULTS_FILE), read_tests(STUDY_RESULTS / name)
        draw_study(load_study(name), rows, FOLDER / folder / "accuracy.png", tests)


def main(arguments: list[str] | None = None) -> None:
    """Write the pages and their pictures, or compare the pages with the results files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args(arguments).check
    before = {file: file.read_text(encoding="utf-8") for file in (README, *PAGES)}
    pages = "\n".join(before.values())
    blocks = all_blocks(pages)
    after = {file: render(text, blocks) for file, text in before.items()} | {gallery.GALLERY: gallery.render()}
    if check:
        old = [file.name for file, text in after.items() if file.read_text(encoding="utf-8") != text]
        sys.exit(f"out of date: {', '.join(old)}; write them without --check" if old else 0)
    for file, text in after.items():
        write_atomically(file, text)
    draw_pictures(pages)


if __name__ == "__main__":
    main()
