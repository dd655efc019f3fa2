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

# Used by: eval.py. Changed freely.

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from longhand.data.batches import evaluation_draw
from longhand.data.tasks.plugins import PLUGINS_MEANING, load_plugin
from longhand.data.tasks.registry import TASKS, find_task
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.load import load_checkpoint, locate
from longhand.hub_cards.commands import (
    check_repo_id,
    command_of,
    interruptible,
    refusing_in_one_line,
    write_atomically,
)
from longhand.hub_cards.evaluation import reading
from longhand.hub_cards.evaluation.other_models import SPARE_TOKENS, problem_texts
from longhand.hub_cards.options import option, parse, parser_of

DATA_FOLDER = "data"
MOST_SHOTS = 16


@dataclass(frozen=True)
class HarnessOptions:
    """The command line. Help says what the options mean."""

    directory: Path = option("folder to write to; tasks that are there already are replaced", positional=True)
    tasks: list[str] = option(
        "names of tasks (default: all)", [], metavar="TASK", purpose="naming tasks", excludes=("model",)
    )
    model: str | None = option("a model of this package, whose task is written in its own format", None)
    lengths: list[int] = option("digits (default: 1 2 3 5 10 20)", [1, 2, 3, 5, 10, 20], metavar="DIGITS", least=1)
    num_samples: int = option("problems of each length (default: %(default)s)", 200, least=1)
    seed: int = option("seed of the problems (default: %(default)s)", 0)
    dataset: str | None = option(
        f"read the problems from this dataset on the Hub, to which you upload the folder's {DATA_FOLDER}/",
        None,
        metavar="USER/NAME",
    )
    plugin: list[Path] = option(PLUGINS_MEANING, [], metavar="FILE")


def text_problems(
    task: Task, lengths: tuple[int, ...], count: int, seed: int, split: str, in_format: bool = False
) -> tuple[list[str], list[str]]:
    """`problem_texts` of the problems that `EvaluationBatches` draws.

    Args:
        lengths: digits of each operand.

    Raises:
        ValueError: the split holds no such problems, they do not fit into memory, or the format ends below these lengths.
    """
    generator, tiled = evaluation_draw(task, lengths, count, seed, split)
    return problem_texts(task, task.draw(generator, tiled, split), tiled, in_format)


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
    in_format: bool = False,
) -> str:
    """Write one task's YAML file, and its problems: a JSON object with `prompt` and `answer` a line.

    Args:
        dataset: repository on the Hub that the problems are read from, `data/` at its top; by default from the folder.
        in_format: see `problem_texts`. The tag of all tasks leaves these tasks out, since other models do not read them.

    Returns:
        The task's name in the harness.

    Raises:
        ValueError: a split holds no problems of this length.
    """
    group = "longhand_own" if in_format else "longhand"
    name = f"{group}_{task.name}_{length}"
    lengths = task.operand_lengths(length)
    files = {}
    for split, count in (("test", num_samples), ("train", MOST_SHOTS)):
        prompts, answers = text_problems(task, lengths, count, seed, split, in_format)
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


def write_tasks(options: HarnessOptions) -> None:
    """Write all task files; sizes of which a split holds no problem are named and left out.

    Raises:
        ValueError: an option is not legal, or nothing is left to write.
    """
    for file in options.plugin:
        load_plugin(file)
    named = [find_task(name)() for name in options.tasks or TASKS] if options.model is None else [task_of(options.model)]
    tasks = dict.fromkeys(part.for_evaluation for task in named for part in task.parts)
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
    parser = parser_of(HarnessOptions, prog="python -m longhand.hub_cards.harness", description=__doc__)
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        write_tasks(parse(parser, HarnessOptions, arguments))


if __name__ == "__main__":
    main()
