"""Put a finished run into the zoo, the folder of checkpoints that come with this package.

A run whose recipe says `until_certified` must be certified. Of another run, the verdicts of single lengths are taken over
that `eval.py RUN --certify --lengths ...` wrote into its folder.

The command certifies and describes the shipped files anew, takes over the run's results, and writes the gallery. Shipped
checkpoints contain no code, so a change of the package does not change them. If a certificate no longer fits the package, as
after a change of the certificate's words, ship the zoo's own folder again.

examples:
  python -m longhand.hub_cards.research.ship outputs/addition
  python -m longhand.hub_cards.research.ship hub_cards/zoo/addition hub_cards/zoo/copy
  python -m longhand.hub_cards.research.ship --check                 certify every checkpoint of the zoo again
  python -m longhand.hub_cards.research.ship --check addition copy
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from transformers.utils import logging

from longhand.hub_cards.checkpoints.certificate_file import VERIFIER, certify_checkpoint
from longhand.hub_cards.checkpoints.checkpoint import (
    ANSWER_FILES,
    CARD_FILE,
    CERTIFICATE_FILE,
    PLOT_FILE,
    RESTARTS_FILE,
    hash_files,
    is_certified,
)
from longhand.hub_cards.checkpoints.length_certificate import AGAIN_SECONDS, conclude, known_verdicts
from longhand.hub_cards.checkpoints.load import ZOO_FOLDER, list_zoo, load_checkpoint, read_checkpoint, zoo
from longhand.hub_cards.commands import holding, interruptible, read_object, refusing_in_one_line, write_atomically
from longhand.hub_cards.evaluation.measure import report
from longhand.hub_cards.options import OneLineParser
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.recipes import RECIPE_FILE, load_recipe, read_recipe
from longhand.hub_cards.research import gallery
from longhand.hub_cards.result_rows import RESULTS_FILE, last_rows, read_results
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.fields import PRIVATE_ARGUMENTS

_OF_ONE_RUN = {*PRIVATE_ARGUMENTS, "test_lengths", "test_samples", "seed", "data_seed", "use_cpu", "description"}
"""Arguments in which a run may differ from its recipe."""


def ship(folder: Path) -> Path:
    """Put the last checkpoint of a finished run into the zoo, in the place of an earlier one of the same recipe.

    Args:
        folder: of a run, or of the zoo itself.

    Returns:
        The folder in the zoo.

    Raises:
        ValueError: the folder is no run of an unchanged recipe of this package, or the recipe demands a certificate and the
            checkpoint gets none. The zoo is unchanged then.
    """
    name = _find_recipe(folder)
    with tempfile.TemporaryDirectory() as place:
        _write(folder, made := Path(place, name))
        (ZOO_FOLDER / name).mkdir(parents=True, exist_ok=True)
        with holding(ZOO_FOLDER / name):
            for file in made.iterdir():
                shutil.move(file, ZOO_FOLDER / name / file.name)
            return write_card(read_checkpoint(ZOO_FOLDER / name)).parent


def _find_recipe(folder: Path) -> str:
    """Return the name of the recipe of this package that a run was made by.

    Raises:
        ValueError: the run is not of an unchanged recipe of this package.
    """
    recipe = read_recipe(folder / RECIPE_FILE)
    name = str(recipe.get("recipe"))
    own = parse_run([name, "--use_cpu", "True"]).recipe
    # An argument that the package got later had its default, unless the recipe sets it today.
    compared = (load_recipe(name).keys() | recipe.keys()) & {**own, **recipe}.keys() - _OF_ONE_RUN
    if changed := sorted(key for key in compared if own.get(key) != recipe.get(key)):
        raise ValueError(f"{folder} is not as the recipe {name!r} makes it: it differs in {', '.join(changed)}")
    return name


def _write(folder: Path, made: Path) -> None:
    """Write the files of a run for the zoo into a new folder, except the card.

    Raises:
        ValueError: the recipe demands a certificate, and what was written is not certified.
    """
    made.mkdir()
    copied = (*ANSWER_FILES, RECIPE_FILE, RESTARTS_FILE)
    for file in (file for pattern in copied for file in folder.glob(pattern) if file.suffix != ".py"):
        shutil.copyfile(file, made / file.name)
    config = read_object(folder / "config.json")
    # The entry names classes of the code that is left out.
    config.pop("auto_map", None)
    write_atomically(made / "config.json", json.dumps(config, indent=2, sort_keys=True) + "\n")
    shipped = load_checkpoint(str(made))
    if _demands_certificate(made):
        if not certify_checkpoint(shipped, made / CERTIFICATE_FILE, made, show_proof=False)["certified"]:
            raise ValueError(f"{folder} is not certified, but its recipe says until_certified")
    elif verdicts := known_verdicts(folder / CERTIFICATE_FILE, shipped.weights, shipped.task.describe()):
        certificate = conclude(shipped, verdicts, hash_files(made))
        write_atomically(made / CERTIFICATE_FILE, json.dumps(asdict(certificate), indent=2) + "\n")
    # The package has it already; `unpack` puts it beside what is pushed.
    (made / VERIFIER.name).unlink(missing_ok=True)
    rows = last_rows(read_results(folder / RESULTS_FILE))
    report([row | {"model": made.name} for row in rows], made, shipped.trained_lengths)


def _demands_certificate(folder: Path) -> bool:
    """Whether the recipe of a folder trains until the model is certified."""
    return read_recipe(folder / RECIPE_FILE).get("until_certified") is True


def check(name: str) -> str:
    """Check a checkpoint of the zoo from its bytes: load it, compare every hash, and certify what has a certificate.

    Of a certificate of single lengths, the first ones are proved again, see `read_certificate`.

    Returns:
        What was done, in words.

    Raises:
        ValueError: something does not fit; the message names it.
    """
    folder = Path(zoo(name))
    read = read_checkpoint(folder)
    certified = is_certified(read.certificate)
    if certified != _demands_certificate(folder):
        raise ValueError(f"{folder} must hold a certificate just if its recipe says until_certified: ship it again")
    if not read.rows or read.name != name or not all((folder / file).is_file() for file in (PLOT_FILE, CARD_FILE)):
        raise ValueError(f"{folder} must hold a picture, {CARD_FILE} and results of {name}: ship it again")
    if certified:
        return "certified again"
    if read.certificate is None:
        return "checked, without a certificate,"
    return f"checked, as many of its lengths proved again as {AGAIN_SECONDS:.0f} seconds allow,"


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input ends with one line and exit status 2."""
    style = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser("python -m longhand.hub_cards.research.ship", description=__doc__, formatter_class=style)
    described = "folders of finished runs; with --check, names of the zoo (default: all)"
    parser.add_argument("runs", nargs="*", metavar="RUN", help=described)
    parser.add_argument("--check", action="store_true", help="certify checkpoints of the zoo again; write nothing")
    logging.disable_progress_bar()
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        options = parser.parse_args(arguments)
        if options.check:
            for name in options.runs or list_zoo():
                print(f"{name}: {check(name)} from its files")
            return
        for run in options.runs:
            print(f"\nshipped {ship(Path(run))}\n")
        write_atomically(gallery.GALLERY, gallery.render())


if __name__ == "__main__":
    main()
