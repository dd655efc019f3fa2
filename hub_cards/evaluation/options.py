"""The options of eval.py, and what they must be before anything is loaded."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longhand.data.checks import check_integer
from longhand.hub_cards.checkpoints.files import checkpoint_name, file_name, is_best
from longhand.hub_cards.checkpoints.zoo import describe_zoo, is_in_zoo
from longhand.hub_cards.console import OneLineParser
from longhand.hub_cards.evaluation.language_models import DEFAULT_SHOTS, MOST_SHOTS, PROMPTS
from longhand.hub_cards.evaluation.results import LARGEST
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.plugins import add_plugin_option
from longhand.hub_cards.recipes import RECIPE_FILE

MOST_LENGTHS = 10_000

MEASURING = (
    *("lengths", "lengths_b", "num_samples", "seed", "sampling", "decode", "output_places", "attentions", "position_maps"),
    *("update_card", "prompt", "shots", "bf16", "batch_size"),
)
"""Options that only an evaluation takes, not a question or a certificate."""

DESCRIPTION = "Evaluate checkpoints: accuracy by length as a table, a results file and a plot; or one question; or a proof."
EXAMPLES = """examples
  python eval.py addition --ask "653+49"
  python eval.py outputs/addition --lengths 10:200:10
  python eval.py user/name --ask "653+49"
  python eval.py outputs/addition --certify
  python eval.py user/name --lengths 300,400 --update_card
  python eval.py outputs/seed-0 outputs/seed-1 outputs/seed-2 --lengths 30,100
  python eval.py outputs/maximum --plugin my_task.py --ask "35>17"
  python eval.py outputs/addition Qwen/Qwen3-0.6B --lengths 1:20 --prompt few_shot
"""


def parse_lengths(text: str, least: int = 1) -> list[int]:
    """Return `"10:200:10"` (both ends included) or `"30,60,100"` as a list.

    Raises:
        ValueError: the text is neither, or a length is below `least`.
    """
    lengths: Sequence[int]
    try:
        if ":" in text:
            start, stop, *step = map(int, text.split(":"))
            lengths = range(start, stop + 1, *step)
        else:
            lengths = [int(part) for part in text.split(",")]
    except (TypeError, ValueError):
        lengths = []
    if not 0 < len(lengths) <= MOST_LENGTHS or min(lengths) < least:
        raise ValueError(
            f"lengths {text!r}: give START:STOP:STEP such as 10:200:10, or a list such as 30,60,100, of {least} and more, "
            f"{MOST_LENGTHS:,} lengths at most"
        )
    return list(lengths)


class ListZoo(argparse.Action):
    """List the zoo and end, whatever else is given."""

    def __call__(self, parser, *_):
        print(describe_zoo())
        parser.exit()


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog="python eval.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python eval.py MODEL [MODEL ...] [OPTIONS]",
    )
    described = (
        "folder or Hub id of a run or adapter, or of any causal language model, or a name of --list; several of our own are "
        "seeds of one model"
    )
    parser.add_argument("checkpoints", nargs="+", metavar="MODEL", help=described)
    flag: dict[str, Any] = {"action": "store_true"}
    parser.add_argument("--list", action=ListZoo, nargs=0, help="list the certified checkpoints that come with the package")
    add = parser.add_argument_group("what to do, if not to measure accuracy").add_argument
    add("--ask", metavar="QUESTION", help='print the answer to a question such as "653+49"; - reads it from standard input')
    add("--show_work", **flag, help="with --ask: also print the scratchpad, as on paper")
    add(
        "--certify",
        **flag,
        help="check all neighbourhoods: exit status 0 only if the model is proved exact for every length",
    )
    add = parser.add_argument_group("what to evaluate on").add_argument
    add("--lengths", default="10:100:10", help="digits, as START:STOP:STEP or a list (default: %(default)s)")
    add("--lengths_b", help="digits of the second operand, or class of sums: evaluate all pairs and plot a heatmap")
    add("--num_samples", type=int, default=200, help="problems of each length (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the test problems (default: %(default)s)")
    add("--sampling", help="how test problems are drawn, for a task that has the choice, such as cascades")
    add = parser.add_argument_group("what to measure").add_argument
    described = "one forward pass, token by token, or in a few passes; all count the same event (default: teacher_forced)"
    add("--decode", choices=("teacher_forced", "generate", "parallel"), help=described)
    add("--output_places", **flag, help="also measure the accuracy of every digit of the answer")
    add("--attentions", **flag, help="also plot attention maps at the first length, and say which ids each head looks at")
    add("--position_maps", **flag, help="also plot an encoder's pairwise vectors, and how dispersed they are")
    add = parser.add_argument_group("language models of others, see hub_cards/LANGUAGE_MODELS.md").add_argument
    described = "the problem alone, after solved ones, or in the tokenizer's chat template (default: plain)"
    add("--prompt", choices=PROMPTS, help=described)
    described = f"solved problems for --prompt few_shot, 1 to {MOST_SHOTS} (default: {DEFAULT_SHOTS})"
    add("--shots", type=int, choices=range(1, MOST_SHOTS + 1), metavar="NUMBER", help=described)
    add("--bf16", **flag, help="load weights in bfloat16 (default: the type they were saved in)")
    add("--batch_size", type=int, help="prompts at once (default: as many as make some 8,000 tokens with their answers)")
    add = parser.add_argument_group("output").add_argument
    add("--output_dir", type=Path, help="folder to write to (default: outputs/evaluation/NAME)")
    add("--update_card", **flag, help="add the results to the checkpoint's card, in its folder or on the Hub")
    add("--dataset", metavar="USER/NAME", help="with --update_card: dataset that the results are filed under on the Hub")
    group = parser.add_argument_group("checkpoints")
    group.add_argument("--revision", help="branch, tag or commit on the Hub (default: main)")
    group.add_argument("--task", help="task of a checkpoint without recipe.yaml or of language models, or one of several")
    add_plugin_option(group)
    group.add_argument("--trust_remote_code", **flag, help="run the code beside the checkpoints; read it first")
    words = list(sys.argv[1:] if arguments is None else arguments)
    for place in [place for place, word in enumerate(words[:-1]) if word == "--ask"]:
        # A question may start with a minus sign, which argparse takes for an option.
        if words[place + 1].startswith("-") and not words[place + 1].startswith("--"):
            words[place : place + 2] = [f"--ask={words[place + 1]}"]
            break
    return parser.parse_args(words)


def check_options(options: argparse.Namespace) -> None:
    """Raise ValueError for options that are not legal or do not go together, before anything is loaded."""
    lengths = parse_lengths(options.lengths)
    if options.lengths_b is not None:
        if (pairs := len(lengths) * len(parse_lengths(options.lengths_b, least=0))) > MOST_LENGTHS:
            raise ValueError(f"--lengths x --lengths_b must be {MOST_LENGTHS:,} pairs at most, got {pairs:,}")
        if len(options.checkpoints) > 1:
            raise ValueError(f"--lengths_b draws one heatmap: give one checkpoint, got {len(options.checkpoints)}")
    check_integer("--num_samples", options.num_samples, 1)
    check_integer("--seed", options.seed, 0, LARGEST)
    if options.batch_size is not None:
        check_integer("--batch_size", options.batch_size, 1)
    check_question(options)
    if options.dataset is not None:
        if not options.update_card:
            raise ValueError(f"--dataset {options.dataset} is for --update_card, which is not set")
        check_repo_id(options.dataset)
    if options.shots is not None and options.prompt != "few_shot":
        raise ValueError(f"--shots {options.shots} is for --prompt few_shot, got --prompt {options.prompt or 'plain'}")
    if options.update_card:
        check_updated_cards(options)
    check_output(options)


def check_question(options: argparse.Namespace) -> None:
    """Raise ValueError for options that do not go with a question or a certificate."""
    if options.certify and options.ask is not None:
        raise ValueError("--certify and --ask are two questions: ask one at a time")
    if options.show_work and options.ask is None:
        raise ValueError("--show_work is for --ask, which is not set")
    if options.certify or options.ask is not None:
        asked, usual = "--certify" if options.certify else "--ask", parse_arguments([*options.checkpoints])
        if ignored := [name for name in MEASURING if getattr(options, name) != getattr(usual, name)]:
            raise ValueError(f"--{ignored[0]} is for measuring accuracy: leave it out with {asked}")


def check_updated_cards(options: argparse.Namespace) -> None:
    """Raise ValueError if results of these options cannot be added to a card."""
    if options.sampling is not None:
        raise ValueError("--update_card adds accuracy on the task's own problems to a card: leave out --sampling")
    if shipped := [checkpoint_name(source) for source in options.checkpoints if is_in_zoo(source)]:
        raise ValueError(f"--update_card changes a card: {shipped[0]} comes with the package and stays as it is")


def check_output(options: argparse.Namespace) -> None:
    """Raise ValueError if results could not be told apart, or would replace the results of a checkpoint."""
    names = [checkpoint_name(source) for source in options.checkpoints]
    if options.ask is None and len(set(names)) < len(names):
        raise ValueError(f"several checkpoints have one name, so results could not be told apart: {', '.join(names)}")
    folder = output_folder(options)
    if options.ask is None and any((folder / name).exists() for name in ("config.json", RECIPE_FILE)):
        raise ValueError(f"--output_dir {folder} holds a checkpoint with results of its own: choose another folder")


def check_language_options(options: argparse.Namespace, others: list[str]) -> None:
    """Raise ValueError for options that the language models of others, or the checkpoints of this package, cannot take."""
    if not others:
        theirs = {name: getattr(options, name) for name in ("prompt", "bf16", "batch_size")}
        if given := [name for name, value in theirs.items() if value not in (None, False)]:
            raise ValueError(f"--{given[0]} is for language models of others, which none of the checkpoints is")
        return
    names = ("ask", "certify", "output_places", "attentions", "position_maps", "update_card")
    given = [f"--{name}" for name in names if getattr(options, name) not in (None, False)]
    if options.decode not in (None, "generate"):
        given.append(f"--decode {options.decode}")
    if given:
        raise ValueError(f"{given[0]} is for checkpoints of this package: {others[0]} is a language model of others")


def output_folder(options: argparse.Namespace) -> Path:
    """Return the folder of an evaluation. Results of an earlier one in it are replaced."""
    return options.output_dir or Path("outputs", "evaluation", file_name(checkpoint_name(options.checkpoints[0])))


def changed_folders(options: argparse.Namespace) -> set[Path]:
    """Return the checkpoints' folders that get a certificate or a new card."""
    sources = options.checkpoints if options.certify else map(card_place, options.checkpoints) if options.update_card else ()
    return {Path(source).resolve() for source in sources if Path(source).is_dir() and not is_in_zoo(source)}


def card_place(source: str) -> str:
    """Return where a checkpoint's card is: the card of a run describes its `best` too."""
    folder = Path(source)
    return str(folder.parent) if is_best(folder) else source
