"""Model and dataset cards: metadata and text of which every number is read from the files beside them.

python -m longhand.hub_cards.cards outputs/addition
python -m longhand.hub_cards.cards outputs/addition --repo_id user/name
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import (
    DatasetCard,
    DatasetCardData,
    EvalResult,
    EvalResultEntry,
    HfApi,
    ModelCard,
    ModelCardData,
    eval_result_entries_to_yaml,
)
from transformers.utils import logging

from longhand.data import Task
from longhand.data.builder import build_task
from longhand.data.encoder_task import EncoderTask
from longhand.hub_cards.checkpoints import BEST_FOLDER, PLOT_FILE, CheckpointFolder, read_checkpoint
from longhand.hub_cards.commits import TAG, Push, check_push, check_repo_id, commit_files, repeat
from longhand.hub_cards.examples import draw_ids, draw_labels, write_snippet
from longhand.hub_cards.plots import plot_accuracy, plot_grid
from longhand.hub_cards.recipes import RECIPE_FILE, replace_file
from longhand.hub_cards.results import (
    RESULTS_FILE,
    Row,
    describe_length,
    read_results,
    wilson_interval,
    write_results,
)
from longhand.modeling.constructions import CONSTRUCTIONS
from longhand.modeling.coupling import COUPLING_RULES

CARD_FILE = "README.md"
TEMPLATES = Path(__file__).parent / "templates"
CITATION_FILE = Path(__file__).parent.parent / "CITATION.cff"
LICENSE = "apache-2.0"
EVALUATION_FOLDER = ".eval_results"

RESULTS_BLOCK = re.compile(r"<!-- results -->\n.*?<!-- end -->", re.DOTALL)

TRAINED_ON = (
    ("task", "task"),
    ("min_length", "shortest trained operand, digits"),
    ("max_length", "longest trained operand, digits"),
    ("num_train_samples", "training examples"),
    ("position_sampling", "position ids in training"),
    ("max_steps", "optimizer steps, at most"),
    ("batch_size", "examples of a step"),
    ("learning_rate", "largest learning rate"),
    ("lr_scheduler_type", "schedule"),
    ("seed", "seed of the weights"),
    ("data_seed", "seed of the data"),
)
"""What a card says of the training outside of the recipe itself."""


def write_card(folder: Path, repo_id: str | None = None, dataset: str | None = None) -> Path:
    """Renders the card of a checkpoint's folder into it; see `render_model_card`."""
    text = render_model_card(folder, repo_id, dataset)
    replace_file(folder / CARD_FILE, text)
    return folder / CARD_FILE


def render_model_card(folder: Path, repo_id: str | None = None, dataset: str | None = None) -> str:
    """The card of a checkpoint's folder.

    Args:
        repo_id: where it will be published, for the code that loads it; default: the folder.
        dataset: Hub id of a dataset of its task, for the metadata.

    Raises:
        ValueError: the folder is no checkpoint, or holds what belongs to another one (see `read_checkpoint`).
    """
    for name in (repo_id, dataset):
        if name is not None:
            check_repo_id(name)
    checkpoint = read_checkpoint(folder)
    config, task = checkpoint.config, checkpoint.task
    source = repo_id or folder.as_posix()
    title = repo_id.partition("/")[2] if repo_id else checkpoint.name
    card = ModelCard.from_template(
        _metadata(checkpoint, title, dataset),
        template_path=str(TEMPLATES / "model_card.md"),
        title=title,
        source=source,
        description=_sentence(checkpoint.recipe.get("description") or f"A model of the task {task.name}"),
        parameters=checkpoint.parameters,
        layers=_count(config.num_hidden_layers, "layer"),
        heads=_count(config.num_attention_heads, "head"),
        hidden_size=config.hidden_size,
        task=task.name,
        **_describe_positions(checkpoint),
        snippet=write_snippet(task, source) if task.answers_questions else None,
        results=results_block(checkpoint),
        certificate=checkpoint.certificate,
        training=_describe_training(checkpoint),
        recipe=(folder / RECIPE_FILE).read_text(encoding="utf-8").strip(),
        limits=_limits(checkpoint),
        reproduce=_reproduce(checkpoint),
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _describe_positions(checkpoint: CheckpointFolder) -> dict[str, Any]:
    """What a card says of the model's family: how positions reach it, on an example."""
    task, config = checkpoint.task, checkpoint.config
    if isinstance(task, EncoderTask):
        maps = ", ".join(f"`{name}`" for name in dict.fromkeys(config.head_maps))
        return {"is_encoder": True, "pair_maps": maps, "drawing": draw_labels(task)}
    return {
        "is_encoder": False,
        "position_encoding": config.position_encoding,
        "coupling": config.coupling,
        "levels": COUPLING_RULES[config.coupling].levels,
        "drawing": draw_ids(task, config.coupling),
    }


def _pipeline(task: Task) -> str:
    return "token-classification" if isinstance(task, EncoderTask) else "text-generation"


def _idea(task: Task) -> str:
    """Tag of the paper's idea that the task's family of models is about."""
    return "structural-symmetry" if isinstance(task, EncoderTask) else "position-coupling"


def _metadata(checkpoint: CheckpointFolder, title: str, dataset: str | None) -> ModelCardData:
    results, task = eval_results(checkpoint, dataset), checkpoint.task
    return ModelCardData(
        license=LICENSE,
        library_name="transformers",
        pipeline_tag=_pipeline(task),
        tags=[TAG, checkpoint.config.model_type, "arithmetic", "length-generalization", _idea(task), "custom_code"],
        base_model=checkpoint.recipe.get("base_model"),
        datasets=[dataset] if dataset else None,
        metrics=["exact_match"],
        model_name=title if results else None,
        eval_results=results or None,
    )


def eval_results(checkpoint: CheckpointFolder, dataset: str | None) -> list[EvalResult]:
    """The last checkpoint's results for the metadata's `model-index`: two metrics for each size."""
    task = checkpoint.task
    results = []
    for row in checkpoint.rows:
        size = describe_length(row).replace(", ", "x")
        common = {
            "task_type": _pipeline(task),
            "task_name": task.name,
            "dataset_type": dataset or f"longhand-{task.name}".replace("_", "-"),
            "dataset_name": f"{task.name}, length {describe_length(row)}",
            "dataset_config": f"length_{size}",
            "dataset_split": "test",
            "dataset_args": {name: row[name] for name in ("num_samples", "seed", "decode")},
        }
        for metric, name in (("exact_match", "exact match"), ("token_accuracy", "accuracy per token")):
            results.append(EvalResult(metric_type=metric, metric_name=name, metric_value=row[metric], **common))
    return results


def results_block(checkpoint: CheckpointFolder) -> str:
    """The tables of accuracy by length with the plot, between the marks by which `update_card` finds them."""
    parts = []
    if not checkpoint.rows and not checkpoint.best_rows:
        parts.append("Not evaluated.")
    if checkpoint.rows:
        parts.append(accuracy_table(checkpoint.rows, _size_name(checkpoint)))
        parts.append(f"{_describe_samples(checkpoint.rows, checkpoint.task)} {_describe_sizes(checkpoint)}")
    if checkpoint.best_rows:
        parts.append(f"The weights with the lowest validation loss, in `{BEST_FOLDER}/`:")
        parts.append(accuracy_table(checkpoint.best_rows, _size_name(checkpoint)))
        parts.append(_describe_samples(checkpoint.best_rows, checkpoint.task))
    if parts and (checkpoint.folder / PLOT_FILE).is_file():
        parts.append(f"![exact match by length]({PLOT_FILE})")
    body = "\n\n".join(parts)
    return f"<!-- results -->\n{body}\n<!-- end -->"


def accuracy_table(rows: list[Row], size_name: str) -> str:
    """A line for each size: exact match with its interval, the answer's alone where there is a scratchpad, and per token."""
    with_answer = any("answer_match" in row for row in rows)
    header = [size_name, "exact match", "95% interval", *(["answer alone"] if with_answer else []), "per token", "problems"]
    lines = [header, ["---:"] * len(header)]
    for row in sorted(rows, key=lambda row: (row["length"], row["length_b"])):
        low, high = wilson_interval(row["exact_match"] * row["num_samples"], row["num_samples"])
        answer = [f"{row['answer_match']:.4f}" if "answer_match" in row else ""] if with_answer else []
        values = [f"{row['exact_match']:.4f}", f"{low:.4f} to {high:.4f}", *answer, f"{row['token_accuracy']:.6f}"]
        lines.append([describe_length(row), *values, f"{row['num_samples']:,}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _describe_samples(rows: list[Row], task: Task) -> str:
    def listed(name: str) -> str:
        return ", ".join(str(value) for value in dict.fromkeys(row[name] for row in rows))

    if isinstance(task, EncoderTask):
        return (
            "Exact match: every label of the answer and of the padding before it is right. Problems of the test split, "
            f"seed {listed('seed')}; {listed('hardware')}."
        )
    return (
        "Exact match: every token of the response and its end are right. Problems of the test split, seed "
        f"{listed('seed')}; decoding {listed('decode').replace('_', ' ')}; {listed('hardware')}."
    )


def _describe_sizes(checkpoint: CheckpointFolder) -> str:
    sizes = [row["length"] for row in checkpoint.rows]
    tested = f"The model was tested at {len(sizes)} {'size' if len(sizes) == 1 else 'sizes'}"
    tested += f" from {min(sizes):,} to {max(sizes):,}" if len(set(sizes)) > 1 else f", {sizes[0]:,}"
    certified = checkpoint.certificate is not None and checkpoint.certificate["certified"]
    return f"{tested}; for others {'only the certificate speaks' if certified else 'nothing was measured'}."


def _size_name(checkpoint: CheckpointFolder) -> str:
    """What the sizes of the results are: one name where all have one size."""
    names = checkpoint.task.size_names
    if any(row["length"] != row["length_b"] for row in (*checkpoint.rows, *checkpoint.best_rows)):
        return ", ".join(names)
    if isinstance(checkpoint.task, EncoderTask):
        # Its second size is a class of equally hard problems, where there is one.
        return names[0]
    return " = ".join(dict.fromkeys(names))


def _describe_training(checkpoint: CheckpointFolder) -> str:
    recipe = checkpoint.recipe
    if checkpoint.trained_lengths is None:
        return "None: the weights were built, not trained, as the recipe's description says."
    lines = ["| | |", "| --- | --- |"]
    for name, meaning in TRAINED_ON:
        if recipe.get(name) is not None:
            lines.append(f"| {meaning} | `{recipe[name]}` |")
    if (base := recipe.get("base_model")) is not None:
        source = f"Fine-tuned from `{base}` on problems drawn"
    elif recipe.get("num_train_samples") is None:
        source = "Every batch is drawn anew"
    else:
        source = "A fixed set of problems is drawn once"
    return f"{source} from the training split of the generated task; no text was collected.\n\n" + "\n".join(lines)


def _limits(checkpoint: CheckpointFolder) -> list[str]:
    """What the model cannot do or was not shown to do, from its configuration, results and certificate."""
    task = checkpoint.task
    form = ", ".join(f"{name} {value}" for name, value in task.describe().items() if name != "task")
    limits = [
        f"It reads and writes one format of one task (`{task.name}`: {form}) and knows no language: other text is "
        "refused or answered wrongly."
    ]
    if checkpoint.trained_lengths is not None:
        shortest, longest = checkpoint.trained_lengths
        limits.append(f"It was trained on operands of {shortest} to {longest} digits only.")
    certified = checkpoint.certificate is not None and checkpoint.certificate["certified"]
    if certified:
        limits.append(
            "The certificate speaks of this format, of these weights and of rounding as far as it was measured, not of "
            "faulty hardware, lower precision or other software."
        )
    else:
        limits.append("It has no certificate: that it is right at a size where it was not tested is not proved.")
        if checkpoint.recipe.get("until_certified"):
            limits.append("Its training was to end with a certificate and did not.")
    return [*limits, *_limits_of_family(checkpoint)]


def _limits_of_family(checkpoint: CheckpointFolder) -> list[str]:
    config, limits = checkpoint.config, []
    if isinstance(checkpoint.task, EncoderTask):
        if config.absolute_positions != "none":
            limits.append(f"Its table of positions ends at inputs of {config.max_position_embeddings:,} tokens.")
        if not config.windowed:
            limits.append("It has no window: time and memory grow with the square of the input's length.")
        return limits
    if config.position_encoding == "learned":
        longest = COUPLING_RULES[config.coupling].capacity(config.max_position_ids)
        table = f"Its learned table has {config.max_position_ids:,} position ids"
        limits.append(f"{table}: the longest that fits is {longest}; more is refused.")
    if not (config.position_encoding == "pairwise" and config.windowed):
        limits.append("It has no window: time and memory grow with the product of response and sequence length.")
    return limits


def _reproduce(checkpoint: CheckpointFolder) -> str | None:
    """The command that makes the model again; None where it was fine-tuned by code that is not known here."""
    if "base_model" in checkpoint.recipe:
        return None
    description = checkpoint.recipe.get("description", "")
    if checkpoint.trained_lengths is not None:
        return f"python -m longhand.train {RECIPE_FILE} --output_dir outputs/{checkpoint.name}"
    # The recipe of a construction names its theorem and capacity in words.
    names = [name for name, construction in CONSTRUCTIONS.items() if description.startswith(construction.statement)]
    capacity = re.search(r"up to (\d+) digits", description)
    if not names or not capacity:
        return "python -m longhand.hub_cards.construct --help"
    operands = f" --operands {checkpoint.task.operands}" if names[0] == "multi-operand-addition" else ""
    return f"python -m longhand.hub_cards.construct {names[0]} --max_length {capacity[1]}{operands}"


def citations() -> str:
    """BibTeX of this package and of the papers that it implements, from CITATION.cff."""
    own = yaml.safe_load(CITATION_FILE.read_text(encoding="utf-8"))
    entries = []
    for work in (*own["references"], own):
        people = [
            f"{person['family-names']}, {person['given-names']}" if "given-names" in person else f"{{{person['name']}}}"
            for person in work["authors"]
        ]
        key = people[0].partition(",")[0].lower() if "year" in work else "longhand"
        kind = {"conference-paper": "inproceedings", "article": "article"}.get(work["type"], "software")
        container = {"booktitle": work.get("collection-title"), "journal": work.get("journal")}
        values = {"title": f"{{{work['title']}}}", "author": " and ".join(people), **container}
        values |= {"year": work.get("year"), "version": work.get("version")}
        listed = ",\n".join(f"  {name} = {{{value}}}" for name, value in values.items() if value is not None)
        entries.append(f"@{kind}{{{key}{work.get('year', '')},\n{listed}\n}}")
    return "\n\n".join(entries)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def render_dataset_card(
    task: str,
    repo_id: str,
    configurations: dict[str, dict[str, Any]],
    num_samples: dict[str, int],
    columns: dict[str, Any],
    seed: int,
) -> str:
    """The card of a generated dataset.

    Args:
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split.
        columns: type of every column.
    """
    listed = []
    for name, arguments in configurations.items():
        described = _task_of(task, arguments).describe()
        form = ", ".join(f"{key} {value}" for key, value in described.items() if key != "task")
        lengths = f"{arguments.get('min_length', 1)} to {arguments['max_length']}"
        listed.append({"name": name, "format": form, "lengths": lengths})
    (default, arguments), *_ = configurations.items()
    first = _task_of(task, arguments)
    data = DatasetCardData(
        license=LICENSE,
        task_categories=[_pipeline(first)],
        tags=[TAG, "arithmetic", "length-generalization", _idea(first), "synthetic"],
        size_categories=[_size_category(sum(num_samples.values()) * len(configurations))],
        configs=[
            {
                "config_name": name,
                "data_files": [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in num_samples],
                **({"default": True} if name == default else {}),
            }
            for name in configurations
        ],
    )
    given = "".join(f", {name}={value!r}" for name, value in {**arguments, "seed": seed}.items())
    card = DatasetCard.from_template(
        data,
        template_path=str(TEMPLATES / "dataset_card.md"),
        title=repo_id.partition("/")[2],
        repo_id=repo_id,
        task=task,
        seed=seed,
        num_samples=num_samples,
        configurations=listed,
        columns=columns,
        partitioned_digits=first.partitioned_digits,
        coupling=None if isinstance(first, EncoderTask) else first.coupling,
        drawing=draw_labels(first) if isinstance(first, EncoderTask) else draw_ids(first, first.coupling),
        call=f'load_task_dataset("{task}", split="train", num_samples={num_samples.get("train", 1)}{given})',
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _task_of(name: str, arguments: dict[str, Any]) -> Task:
    """The task with those of a configuration's arguments that are its format."""
    lengths = ("min_length", "max_length")
    return build_task(name, **{field: value for field, value in arguments.items() if field not in lengths})


def _size_category(count: int) -> str:
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B")
    exponent = len(str(count)) - 1
    if exponent < 3:
        return "n<1K"
    index = min(exponent - 3, len(bounds) - 2)
    return f"{bounds[index]}<n<{bounds[index + 1]}"


def merge_rows(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Rows by checkpoint and size, shortest first; a new one takes the place of an old one."""
    merged = {(row["model"], row["length"], row["length_b"]): row for row in (*old, *new)}
    models = list(dict.fromkeys(row["model"] for row in merged.values()))
    return sorted(merged.values(), key=lambda row: (models.index(row["model"]), row["length"], row["length_b"]))


def check_card(target: str | Path, revision: str | None = None, api: HfApi | None = None) -> None:
    """Looks, before there are results, whether `update_card` would find a card that it may change.

    Raises:
        ValueError, CannotPush: see `update_card`.
    """
    if Path(target).is_dir():
        _read_card(Path(target), str(target))
        return
    repo_id, api = str(target), api or HfApi()
    check_push(repo_id, "model", api)
    with tempfile.TemporaryDirectory() as place:
        patterns = [CARD_FILE]
        repeat(lambda: api.snapshot_download(repo_id, revision=revision, local_dir=place, allow_patterns=patterns), repo_id)
        _read_card(Path(place), repo_id)


def update_card(
    target: str | Path,
    rows: list[Row],
    *,
    dataset: str | None = None,
    revision: str | None = None,
    commit_message: str = "New results",
    api: HfApi | None = None,
) -> Path | Push:
    """Merges new results into a checkpoint's results file, plot, card's table and metadata; all else of the card stays.

    Args:
        target: a checkpoint's folder, or a repository `user/name` on the Hub, where all is one commit.
        rows: of one checkpoint, as `evaluate_lengths` gives them.
        dataset: Hub id of the dataset that was evaluated on, by default the one that the card names; with it,
            `.eval_results` gets the results too.
        revision: branch on the Hub.

    Returns:
        The card's file, or how the push ended.

    Raises:
        ValueError: there are no rows, they are of another task or several checkpoints, or the card has no results block.
        CannotPush: the Hub does not take it; nothing was changed there.
    """
    if not rows or len({row["model"] for row in rows}) > 1:
        raise ValueError(f"rows must be of one checkpoint, got {sorted({row['model'] for row in rows}) or 'none'}")
    if dataset is not None:
        check_repo_id(dataset)
    if Path(target).is_dir():
        folder = Path(target)
        for path, content in _updated_files(folder, rows, folder.resolve().name, dataset).items():
            partial = folder / f".{Path(path).name}.partial"
            partial.write_bytes(content)
            (folder / path).parent.mkdir(exist_ok=True)
            partial.replace(folder / path)
        return folder / CARD_FILE
    repo_id = str(target)
    check_repo_id(repo_id)
    api = api or HfApi()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        repeat(lambda: api.snapshot_download(repo_id, revision=revision, local_dir=folder), repo_id)
        files = _updated_files(folder, rows, repo_id, dataset)
        return commit_files(
            dict(files),
            repo_id,
            "model",
            is_ours=lambda path: False,
            commit_message=commit_message,
            revision=revision,
            create=False,
            api=api,
        )


def _updated_files(folder: Path, rows: list[Row], called: str, dataset: str | None) -> dict[str, bytes]:
    """The files that new rows change, by their names; the folder stays as it is.

    Args:
        called: how the new rows may refer to the checkpoint, apart from the name that its results have already.
    """
    before = read_results(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else []
    own = next((row["model"] for row in before), called).removesuffix(f"/{BEST_FOLDER}")
    suffix = f"/{BEST_FOLDER}" if rows[0]["model"].endswith(f"/{BEST_FOLDER}") else ""
    if (given := rows[0]["model"].removesuffix(suffix)) not in (own, called):
        raise ValueError(f"rows are of the checkpoint {given!r}, {folder if given == own else called} is {own!r}")
    checkpoint = read_checkpoint(folder, own)
    if (task := rows[0]["task"]) != checkpoint.task.name:
        raise ValueError(f"rows are of the task {task!r}, the checkpoint's is {checkpoint.task.name!r}")
    card = _read_card(folder, called)
    dataset = dataset or (card.data.datasets or [None])[0]
    merged = merge_rows(before, [{**row, "model": f"{own}{suffix}"} for row in rows])
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        write_results(merged, scratch / RESULTS_FILE)
        checkpoint = replace(
            checkpoint,
            folder=scratch,
            rows=[row for row in merged if row["model"] == own],
            best_rows=[row for row in merged if row["model"] != own],
        )
        _plot(checkpoint, scratch / PLOT_FILE)
        files = {name: (scratch / name).read_bytes() for name in (RESULTS_FILE, PLOT_FILE)}
        files[CARD_FILE] = _updated_card(card, checkpoint, dataset).encode()
    if dataset is not None:
        entries = eval_result_entries_to_yaml(_entries(checkpoint, dataset))
        name = f"{EVALUATION_FOLDER}/{checkpoint.task.name}.yaml"
        files[name] = yaml.safe_dump(entries, sort_keys=False).encode()
    return files


def _updated_card(card: ModelCard, checkpoint: CheckpointFolder, dataset: str | None) -> str:
    card.data.eval_results = eval_results(checkpoint, dataset)
    card.data.model_name = card.data.model_name or checkpoint.name
    card.text = RESULTS_BLOCK.sub(lambda _: results_block(checkpoint), card.text)
    return str(card).rstrip() + "\n"


def _read_card(folder: Path, called: str) -> ModelCard:
    file = folder / CARD_FILE
    card = ModelCard(file.read_text(encoding="utf-8")) if file.is_file() else None
    if card is None or not RESULTS_BLOCK.search(card.text):
        raise ValueError(
            f"{called} has no card with a results block: write one by `python -m longhand.hub_cards.cards` into the "
            "checkpoint's folder and push that"
        )
    return card


def _plot(checkpoint: CheckpointFolder, file: Path) -> None:
    rows = [*checkpoint.rows, *checkpoint.best_rows]
    pairs = {(row["length"], row["length_b"]) for row in rows}
    names = checkpoint.task.size_names
    if len(pairs) == len({length for length, _ in pairs}):
        plot_accuracy(rows, file, checkpoint.trained_lengths, names)
    else:
        plot_grid(checkpoint.rows or rows, file, checkpoint.trained_lengths, names)


def _entries(checkpoint: CheckpointFolder, dataset: str) -> list[EvalResultEntry]:
    """Exact match by size, as the Hub collects it for a dataset's leaderboard."""
    return [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=f"length_{describe_length(row).replace(', ', 'x')}",
            value=row["exact_match"],
            notes=f"exact match, {row['num_samples']} problems, seed {row['seed']}, {row['decode']}",
        )
        for row in checkpoint.rows
    ]


def main(arguments: list[str] | None = None) -> None:
    """Console entry: bad input ends with one line and exit status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m longhand.hub_cards.cards", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a checkpoint's folder; its README.md is written")
    parser.add_argument("--repo_id", metavar="USER/NAME", help="where it will be published")
    parser.add_argument("--dataset", metavar="USER/NAME", help="dataset of its task on the Hub, for the metadata")
    options = parser.parse_args(arguments)
    logging.disable_progress_bar()
    try:
        print(f"wrote {write_card(options.folder, options.repo_id, options.dataset)}")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
