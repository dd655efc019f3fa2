"""Write task files for lm-evaluation-harness (0.4 or later): a task for each of ours and each length.

The problems are those that eval.py draws with the same options. A copy of `evaluation/reading.py`, which reads the answers,
travels along. With --num_fewshot, solved problems of the same size come first.

Language models of others read numbers as a person writes them, `653+49=`. A model of this package reads and writes its own
format only, such as `653+049=` and `2070`: --model writes the tasks in the format of this model.

examples:
  python -m longhand.hub_cards.harness outputs/harness --tasks addition copy --lengths 5 10 20
  lm_eval --model hf --model_args pretrained=Qwen/Qwen3-0.6B --include_path outputs/harness --tasks longhand_addition
  lm_eval --model hf --model_args pretrained=gpt2 --include_path outputs/harness --tasks longhand_addition_5 --num_fewshot 4
  python -m longhand.hub_cards.harness outputs/harness --model outputs/addition --lengths 5 10 20
  lm_eval --model hf --model_args pretrained=outputs/addition,trust_remote_code=True --include_path outputs/harness \\
      --tasks longhand_own_addition
"""

import argparse
import json
import shlex
from pathlib import Path

import yaml

from longhand.data.batches import evaluation_draw
from longhand.data.tasks.plugins import add_plugin_option, load_plugin
from longhand.data.tasks.registry import TASKS, find_task
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.load import load_checkpoint, locate
from longhand.hub_cards.commands import (
    NumbersAction,
    OneLineParser,
    check_repo_id,
    command_of,
    interruptible,
    numbers_of,
    refusing_in_one_line,
    write_atomically,
)
from longhand.hub_cards.evaluation import reading
from longhand.hub_cards.evaluation.other_models import SPARE_TOKENS, problem_texts
from longhand.modeling.checks import check_integer

DATA_FOLDER = "data"
MOST_SHOTS = 16


def text_problems(
    task: Task, lengths: tuple[int, ...], count: int, seed: int, split: str, own: bool = False
) -> tuple[list[str], list[str]]:
    """`problem_texts` of the problems that `EvaluationBatches` draws.

    Args:
        lengths: digits of each operand.

    Raises:
        ValueError: the split holds no such problems, they do not fit into memory, or the format ends below these lengths.
    """
    generator, tiled = evaluation_draw(task, lengths, count, seed, split)
    return problem_texts(task, task.draw(generator, tiled, split), tiled, own)


def command_for(
    pretrained: str, lengths: list[int], task: str | None, revision: str | None, num_samples: int, seed: int
) -> str:
    """Return the commands that measure a model of others on the problems that eval.py draws with these options.

    Args:
        pretrained: what lm-evaluation-harness loads the model by.
        task: name of a task; None for addition.
    """
    task, folder = task or "addition", "outputs/harness"
    written = ["python", "-m", "longhand.hub_cards.harness", folder, "--tasks", task, "--lengths", *map(str, lengths)]
    written += ["--num_samples", str(num_samples), "--seed", str(seed)]
    arguments = f"pretrained={pretrained}" + (f",revision={revision}" if revision else "")
    measured = ["lm_eval", "--model", "hf", "--model_args", arguments, "--include_path", folder]
    return f"{shlex.join(written)} && {shlex.join([*measured, '--tasks', f'longhand_{task}'])}"


def write_task(
    folder: Path,
    task: Task,
    length: int,
    num_samples: int = 200,
    seed: int = 0,
    dataset: str | None = None,
    own: bool = False,
) -> str:
    """Write one task's YAML file, and its problems: a JSON object with `prompt` and `answer` a line.

    Args:
        dataset: repository on the Hub that the problems are read from, `data/` at its top; by default from the folder.
        own: see `problem_texts`. The tag of all tasks leaves these tasks out, since other models do not read them.

    Returns:
        The task's name in the harness.

    Raises:
        ValueError: a split holds no problems of this length.
    """
    group = "longhand_own" if own else "longhand"
    name = f"{group}_{task.name}_{length}"
    lengths = task.operand_lengths(length)
    files = {}
    for split, count in (("test", num_samples), ("train", MOST_SHOTS)):
        prompts, answers = text_problems(task, lengths, count, seed, split, own)
        files[split] = f"{DATA_FOLDER}/{name}-{split}.jsonl"
        rows = [{"prompt": prompt, "answer": answer} for prompt, answer in zip(prompts, answers, strict=True)]
        write_atomically(folder / files[split], "".join(json.dumps(row) + "\n" for row in rows))
        if split == "test":
            limit = max(map(len, answers)) + SPARE_TOKENS
    place = "" if dataset else f"{folder.resolve()}/"
    metrics = ("exact_match", "lenient_match")
    config: dict[str, object] = {
        "task": name,
        "tag": [group, f"{group}_{task.name}"],
        "dataset_path": dataset or "json",
        "dataset_kwargs": {"data_files": {split: place + file for split, file in files.items()}},
        "test_split": "test",
        "fewshot_split": "train",
        "fewshot_config": {"sampler": "first_n"},
        "output_type": "generate_until",
        "doc_to_text": "prompt",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "fewshot_delimiter": "\n",
        # The reading looks for the end of the first line, after blank ones.
        "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": limit},
        "metric_list": [{"metric": metric, "aggregation": "mean", "higher_is_better": True} for metric in metrics],
        "metadata": {"version": 1.0, "num_samples": num_samples, "seed": seed},
    }
    text = yaml.safe_dump(config, sort_keys=False) + "process_results: !function reading.process_results\n"
    write_atomically(folder / f"{name}.yaml", text)
    return name


def task_of(source: str) -> Task:
    """Return the task of a decoder of this package, in the format that the model reads.

    Raises:
        ValueError: it is no such model.
    """
    checkpoint = load_checkpoint(locate(source))
    if not checkpoint.task.family.writes:
        raise ValueError(
            f"--model {source} writes no text: lm-evaluation-harness measures models that do, take {command_of('eval')}"
        )
    return checkpoint.task


def write_tasks(options: argparse.Namespace) -> None:
    """Write all task files; sizes of which a split holds no problem are named and left out.

    Raises:
        ValueError: an option is not legal, or nothing is left to write.
    """
    for file in options.plugin:
        load_plugin(file)
    if options.model is not None and options.tasks:
        raise ValueError("--tasks and --model both name the tasks: leave out one of them")
    named = [find_task(name)() for name in options.tasks or TASKS] if options.model is None else [task_of(options.model)]
    tasks = dict.fromkeys(part.for_evaluation for task in named for part in task.parts)
    check_integer("--lengths", min(options.lengths), 1)
    check_integer("--num_samples", options.num_samples, 1)
    if options.dataset is not None:
        check_repo_id(options.dataset)
    (options.directory / DATA_FOLDER).mkdir(parents=True, exist_ok=True)
    written = []
    for task in tasks:
        for length in options.lengths:
            try:
                how = (options.num_samples, options.seed, options.dataset, options.model is not None)
                written.append(write_task(options.directory, task, length, *how))
            except ValueError as error:
                print(f"left out: {error}")
    if not written:
        raise ValueError("nothing was written: no --lengths of these tasks has problems in both splits")
    write_atomically(options.directory / "reading.py", Path(reading.__file__).read_bytes())
    print(f"wrote {len(written)} tasks to {options.directory}, {written[0]} to {written[-1]}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Bad input ends with one line and exit status 2."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser(prog="python -m longhand.hub_cards.harness", description=__doc__, formatter_class=formatter)
    add = parser.add_argument
    add("directory", type=Path, help="folder to write to; tasks that are there already are replaced")
    add("--tasks", nargs="+", metavar="TASK", help="names of tasks (default: all)")
    add("--model", help="a model of this package, whose task is written in its own format")
    default = [1, 2, 3, 5, 10, 20]
    described = "digits (default: 1 2 3 5 10 20)"
    add("--lengths", action=NumbersAction, type=numbers_of, default=default, metavar="DIGITS", help=described)
    add("--num_samples", type=int, default=200, help="problems of each length (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of the problems (default: %(default)s)")
    described = f"read the problems from this dataset on the Hub, to which you upload the folder's {DATA_FOLDER}/"
    add("--dataset", metavar="USER/NAME", help=described)
    add_plugin_option(parser)
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        write_tasks(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
