"""Evaluates checkpoints: accuracy by length as a table, a results file and a plot; one question; or a proof.

python eval.py outputs/addition --lengths 10:200:10
python eval.py user/name --ask "653+49"
python eval.py outputs/addition --certify
python eval.py user/name --lengths 300,400 --update_card
"""

import argparse
import json
import platform
import sys
import textwrap
import time
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    StrictDataclassError,
)
from safetensors import SafetensorError, safe_open
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from longhand.data import TASKS, EvaluationBatches, Task
from longhand.data.certificates import CannotCertify, Certificate, certify, covering, hash_weights
from longhand.data.collator import IGNORED
from longhand.data.metrics import generated_matches, place_accuracy
from longhand.hub_cards.metrics.exact_match_by_length.counting import summarize
from longhand.hub_cards.publishing.card_updates import check_card, update_card
from longhand.hub_cards.publishing.commits import check_repo_id, is_passing
from longhand.hub_cards.reports.plots import plot_accuracy, plot_attention, plot_grid, plot_position_maps
from longhand.hub_cards.reports.results import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    format_medians,
    format_places,
    format_position_maps,
    format_table,
    read_results,
    write_results,
)
from longhand.hub_cards.runs.checkpoints import CERTIFICATE_FILE, PLOT_FILE, is_best
from longhand.hub_cards.runs.console import refusing_in_one_line
from longhand.hub_cards.runs.recipes import RECIPE_FILE, read_recipe, replace_file
from longhand.modeling.modeling_pairwise_bert import RelationVectors

PLACES_FILE = "places.jsonl"
POSITION_MAPS_FILE = "positions.jsonl"

RESPONSE_TOKENS_PER_BATCH = 4096
"""Size of one batch of an evaluation; what is computed of so many tokens still fits into a processor's caches."""


@dataclass(frozen=True)
class Checkpoint:
    """A model with what is needed to evaluate it.

    Attributes:
        name: how results refer to it.
        trained_lengths: shortest and longest trained operand in digits, if known.
        run_seconds: what its training and first evaluation took, if its folder says so.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    trained_lengths: tuple[int, int] | None
    run_seconds: float | None

    def answer(self, question: str) -> str:
        """The model's answer to a question, see `Family.answer`."""
        return self.task.family.answer(self.task, self.model, self.tokenizer, question)


def load_checkpoint(source: str, revision: str | None = None, task: str | None = None) -> Checkpoint:
    """Loads a folder or a Hub repository, onto the accelerator if there is one.

    Args:
        source: folder or `user/name`.
        revision: branch, tag or commit on the Hub.
        task: name of the task, for a checkpoint without a recipe; its format is then the default.

    Raises:
        ValueError: `source` is neither, is damaged, or its task is unknown.
    """
    folder = Path(source)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"{source} is not a checkpoint: it holds no config.json")
        check_weights(folder)
        recipe_file = folder / RECIPE_FILE
    else:
        check_repository(source, revision)
        try:
            recipe_file = Path(hf_hub_download(source, RECIPE_FILE, revision=revision))
        except RemoteEntryNotFoundError:
            recipe_file = None
        except OSError as error:
            raise ValueError(f"MODEL {source!r} cannot be read from the Hub: {' '.join(str(error).split())}") from error
    recipe = read_recipe(recipe_file) if recipe_file and recipe_file.is_file() else {}
    chosen = task or recipe.get("task")
    if chosen not in TASKS:
        raise ValueError(f"task of {source}: got {chosen!r}, choose one of {', '.join(TASKS)} with --task")
    format_fields = {field.name for field in fields(TASKS[chosen])}
    task = TASKS[chosen](**{name: value for name, value in recipe.items() if name in format_fields})
    try:
        config = AutoConfig.from_pretrained(source, revision=revision)
        if not isinstance(config, task.family.model_class.config_class):
            own = task.family.model_class.config_class.model_type
            raise ValueError(f"it is a {config.model_type!r} model, but the task {task.name!r} is for {own!r} ones")
        task.family.check_config(task, config)
        model, loading = task.family.auto_class.from_pretrained(
            source, revision=revision, use_safetensors=True, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
    except (OSError, ValueError, RuntimeError, StrictDataclassError) as error:
        raise ValueError(f"{source} cannot be loaded: {' '.join(str(error).split())}") from error
    if loading["missing_keys"] or loading["mismatched_keys"]:
        raise ValueError(f"{source} is damaged: it lacks weights ({', '.join(map(str, sorted(loading['missing_keys'])))})")
    known = {"min_length", "max_length"} <= set(recipe)
    return Checkpoint(
        name=_name(source),
        model=model.eval().to("cuda" if torch.cuda.is_available() else "cpu"),
        tokenizer=tokenizer,
        task=task.for_evaluation,
        trained_lengths=(recipe["min_length"], recipe["max_length"]) if known else None,
        run_seconds=_run_seconds(folder),
    )


def check_repository(source: str, revision: str | None) -> None:
    """Raises ValueError where what is not a folder is no repository either; asks the Hub once, as downloads do not."""
    try:
        check_repo_id(source)
    except ValueError as error:
        what = "it is a file" if Path(source).exists() else "there is no such folder"
        raise ValueError(f"MODEL {source!r} is neither a folder nor a repository: {what}, and the {error}") from error
    api = HfApi()
    try:
        api.model_info(source, revision=revision)
    except RevisionNotFoundError as error:
        raise ValueError(f"--revision {revision} is no branch, tag or commit of {source}") from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"MODEL {source!r} is neither a folder nor a repository: {api.endpoint} has no such model, or does not show it "
            "to this token"
        ) from error
    except (HTTPError, OfflineModeIsEnabled) as error:
        if isinstance(error, HfHubHTTPError) and is_passing(error.response.status_code):
            return
        if isinstance(try_to_load_from_cache(source, "config.json", revision=revision), str):
            return
        raise ValueError(
            f"MODEL {source!r} is neither a folder nor a repository in the cache, and {api.endpoint} cannot be asked: "
            f"{' '.join(str(error).split())}"
        ) from error


def _run_seconds(folder: Path) -> float | None:
    """As noted by train.py, for a run's folder or the `best` folder in it."""
    file = (folder.parent if is_best(folder) else folder) / RESULTS_FILE
    rows = read_results(file) if file.is_file() else []
    return rows[0].get("run_seconds") if rows else None


def _name(source: str) -> str:
    """A Hub id as it is; a folder by its name, `best` by its run's too."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    return "/".join(folder.resolve().parts[-2:]) if is_best(folder) else folder.resolve().name


def check_weights(folder: Path) -> None:
    """Raises ValueError where the folder's weights are missing, truncated or not in safetensors format."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} is not a checkpoint: it holds no .safetensors file")
    for file in files:
        try:
            with safe_open(file, framework="pt") as weights:
                weights.keys()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is truncated or damaged ({error}): download or save it again") from error


def check_lengths(model: PreTrainedModel, task: Task, lengths: list[tuple[int, ...]]) -> None:
    """Raises ValueError for operands that the model cannot take, before any time is spent."""
    collator = task.family.collator(model.config)
    for operands in lengths:
        task.family.check_inputs(task, model, EvaluationBatches(task, operands, 1, 0, "test", 1, collator=collator)[0])


def evaluate_lengths(
    model: PreTrainedModel,
    task: Task,
    lengths: list[tuple[int, ...]],
    *,
    name: str,
    num_samples: int = 200,
    seed: int = 0,
    split: str = "test",
    decode: str = "teacher_forced",
) -> list[Row]:
    """Exact match and per-token accuracy by operand lengths; where there is a scratchpad, the answer's alone too.

    Args:
        lengths: digits of every operand.
        name: the model's name in the results.
        decode: `"teacher_forced"` (one forward pass; the same event) or `"generate"` (greedy decoding).

    Returns:
        One row of results.jsonl for each of `lengths`.

    Raises:
        ValueError: operands that the model cannot take, or responses that it cannot generate.
    """
    check_lengths(model, task, lengths)
    if decode == "generate":
        task.family.check_generation(task)
    collator = task.family.collator(model.config)
    rows, weights = [], hash_weights(model)
    for operands in tqdm(lengths, desc=f"evaluating {name}", disable=not sys.stderr.isatty(), leave=False):
        began = time.perf_counter()
        one = EvaluationBatches(task, operands, 1, seed, split, 1, collator=collator)[0]
        batch_size = min(num_samples, max(1, RESPONSE_TOKENS_PER_BATCH // int((one["labels"] != IGNORED).sum())))
        batches = EvaluationBatches(task, operands, num_samples, seed, split, batch_size, collator=collator)
        measure = generated_matches if decode == "generate" else task.family.forward_matches
        answer_length = task.answer_length(operands)
        with torch.inference_mode():
            matches = [measure(model, batches[index], answer_length) for index in range(len(batches))]
        matches = torch.cat(matches).numpy()
        accuracy = summarize(*matches[:, :3].T, np.zeros(len(matches)))
        answer = {} if answer_length is None else {"answer_match": float(matches[:, 3].mean())}
        rows.append(
            {
                "model": name,
                "task": task.name,
                "length": task.size(operands)[0],
                "length_b": task.size(operands)[1],
                "num_samples": num_samples,
                "seed": seed,
                "decode": decode,
                "exact_match": accuracy["exact_match"],
                **answer,
                "token_accuracy": accuracy["token_accuracy"],
                "seconds": round(time.perf_counter() - began, 3),
                "hardware": hardware(model.device),
                "weights": weights,
            }
        )
    return rows


def certify_checkpoint(checkpoint: Checkpoint, folder: Path, show_proof: bool = True) -> Row:
    """Prints what a check of all neighbourhoods proves or finds, and writes certificate.json.

    Args:
        folder: where to write it.
        show_proof: whether the steps of the proof are printed too; they are always written.

    Returns:
        One row of certificates.jsonl.

    Raises:
        CannotCertify: the model has no window, or its task's neighbourhoods are unknown or too many.
    """
    began = time.perf_counter()
    certificate = certify(checkpoint.model, checkpoint.task, progress=True)
    seconds = round(time.perf_counter() - began, 1)
    replace_file(folder / CERTIFICATE_FILE, json.dumps(asdict(certificate), indent=2) + "\n")
    print(format_certificate(checkpoint.name, certificate, show_proof))
    print(f"\nwrote {folder / CERTIFICATE_FILE} after {seconds} seconds")
    row = {name: value for name, value in asdict(certificate).items() if name not in ("statement", "proof", "task")}
    row |= {"model": checkpoint.name, "seconds": seconds, "hardware": hardware(checkpoint.model.device)}
    return row if checkpoint.run_seconds is None else row | {"run_seconds": checkpoint.run_seconds}


def warn_of_certificate(folder: Path, model: PreTrainedModel) -> None:
    """Says so where a folder's certificate is of other weights or another configuration than its model's."""
    file = folder / CERTIFICATE_FILE
    if file.is_file() and json.loads(file.read_text(encoding="utf-8"))["weights"] != hash_weights(model):
        print(f"warning: {file} is not of this model: its weights or configuration have changed", file=sys.stderr)


def format_certificate(name: str, certificate: Certificate, show_proof: bool) -> str:
    """A certificate, or what stands against it, as a person reads it."""
    counted = "" if certificate.neighbourhoods is None else f" ({certificate.neighbourhoods:,} different neighbourhoods)"
    checked = f"{certificate.predictions:,} predictions"
    if certificate.problems is not None:
        checked += f" in {certificate.problems:,} short problems"
    facts = {
        "checked": f"{checked}{counted}",
        "wrong": f"{certificate.wrong:,}",
    }
    if certificate.margin is not None:
        facts["margin"] = f"{certificate.margin:.4g}, the smallest lead of a right token's logit"
    if certificate.rounding is not None:
        facts["rounding"] = f"{certificate.rounding:.2g}, the largest difference between ways to compute a logit"
    facts["weights"] = certificate.weights
    lines = [f"{name}: {'CERTIFIED' if certificate.certified else 'NOT CERTIFIED'}. {certificate.statement}"]
    lines += [f"  {label:9} {value}" for label, value in facts.items()]
    if show_proof:
        lines += [f"  {number}. {step}" for number, step in enumerate(certificate.proof, 1)]
    for failure in certificate.failures:
        after = "" if failure.prefix is None else f" after {failure.prefix!r}" if failure.prefix else " at the start"
        verdict = f"writes {failure.instead!r} instead of {failure.right!r}"
        if not failure.margin:
            verdict = f"has no lead of {failure.right!r} over {failure.instead!r}"
        lines.append(f"  wrong: {failure.problem}  {verdict}{after}")
    if certificate.wrong > len(certificate.failures):
        lines.append("  and more of the kind")
    return "\n".join(textwrap.fill(line, 118, subsequent_indent="     ") for line in lines)


def draw_attention(checkpoint: Checkpoint, lengths: tuple[int, ...], num_samples: int, seed: int, file: Path) -> None:
    """Plots the response tokens' attention, averaged over problems of one length (paper 1, Fig. 7)."""
    model, task = checkpoint.model, checkpoint.task
    collator = task.family.collator(model.config)
    batch = EvaluationBatches(task, lengths, num_samples, seed, "test", num_samples, collator=collator)[0]
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            inputs = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}
            outputs = model(**inputs, **task.family.forward_options, output_attentions=True)
    finally:
        model.set_attn_implementation(implementation)
    same = (batch["input_ids"] == batch["input_ids"][:1]).all(0)
    kinds = [task.family.tokens[int(t)] if fixed else "#" for t, fixed in zip(batch["input_ids"][0], same, strict=True)]
    first_query = len(kinds) - batch.get("logits_to_keep", len(kinds))
    # The last token of a response predicts nothing.
    queries = slice(-batch["logits_to_keep"], -1) if "logits_to_keep" in batch else slice(None)
    mean = [weights.float().mean(0)[:, queries].cpu() for weights in outputs.attentions]
    plot_attention(mean, kinds, first_query, file)


def resample(checkpoint: Checkpoint, sampling: str) -> Checkpoint:
    """The same checkpoint, to be tested on problems of another kind of sampling.

    Raises:
        ValueError: its task has no such choice.
    """
    if "sampling" not in {field.name for field in fields(checkpoint.task)}:
        raise ValueError(f"--sampling {sampling}: the task {checkpoint.task.name!r} draws problems in one way only")
    return replace(checkpoint, task=replace(checkpoint.task, sampling=sampling))


def measure_places(checkpoint: Checkpoint, lengths: list[tuple[int, ...]], num_samples: int, seed: int) -> list[Row]:
    """Accuracy of every output place (paper 2, Table 1): a row for each of `lengths` and place, 1 the last of the answer."""
    task, rows = checkpoint.task, []
    for operands in lengths:
        collator = task.family.collator(checkpoint.model.config)
        batch = EvaluationBatches(task, operands, num_samples, seed, "test", num_samples, collator=collator)[0]
        with torch.inference_mode():
            logits, labels = task.family.forward(checkpoint.model, batch)
            accuracy = place_accuracy(*(part.cpu() for part in task.family.right_tokens(logits, labels)))
        shared = {"model": checkpoint.name, "task": task.name, "length": task.size(operands)[0]}
        shared |= {"length_b": task.size(operands)[1], "num_samples": num_samples, "seed": seed}
        rows += [{**shared, "place": place, "accuracy": share} for place, share in enumerate(accuracy.tolist(), 1)]
    return rows


def check_position_maps(checkpoint: Checkpoint) -> None:
    """Raises ValueError for a model without pairwise vectors."""
    if not any(isinstance(module, RelationVectors) for module in checkpoint.model.modules()):
        raise ValueError(f"--position_maps: {checkpoint.name} has no pairwise vectors")


def position_maps(model: PreTrainedModel) -> list[dict[str, np.ndarray]]:
    """The vectors of every layer by rule, (relations, elements), those of all heads side by side."""
    return [
        {rule.name: rule.weight.detach().float().flatten(1).cpu().numpy() for rule in layer.self_attn.relations}
        for layer in model.model.layers
    ]


def measure_position_maps(checkpoint: Checkpoint) -> list[Row]:
    """How dispersed the relative vectors of every layer are over differences of ids, a row for each layer and rule.

    A vector's share is that of its squared length in those of all. They are as dispersed as `effective_relations` vectors
    of equal length: e to the entropy of the shares. Vectors of a multiplier's digits are left out, so that RPE and UPE
    compare (paper 2, App. C.3, which judges by eye).
    """
    low, high = checkpoint.model.config.relation_range
    rows = []
    for layer, tables in enumerate(position_maps(checkpoint.model), 1):
        for rule, table in tables.items():
            lengths = np.square(table[: high - low + 1]).sum(1)
            shares = lengths / lengths.sum()
            entropy = -(shares * np.log(np.maximum(shares, np.finfo(np.float32).tiny))).sum()
            strongest = int(shares.argmax())
            measured = {"strongest": strongest + low, "share": float(shares[strongest])}
            measured |= {"effective_relations": float(np.exp(entropy)), "relations": high - low + 1}
            rows.append({"model": checkpoint.name, "layer": layer, "rule": rule, **measured})
    return rows


def report(rows: list[Row], folder: Path, trained_lengths: tuple[int, int] | None, seeds: bool = False) -> None:
    """Writes results.jsonl and the plot and prints the table; with `seeds`, medians over the rows' models too."""
    folder.mkdir(parents=True, exist_ok=True)
    task = TASKS[rows[0]["task"]]
    pairs = {(row["length"], row["length_b"]) for row in rows}
    if len(pairs) == len({length for length, _ in pairs}):
        plot_accuracy(rows, folder / PLOT_FILE, trained_lengths, task.size_names, seeds)
    else:
        plot_grid(rows, folder / PLOT_FILE, trained_lengths, task.size_names)
    write_results(rows, folder / RESULTS_FILE)
    print(format_table(rows))
    if seeds:
        print(f"\n{format_medians(rows)}")
    print(f"\nwrote {folder / RESULTS_FILE} and {folder / 'accuracy.png'}")


def claim_output(folder: Path) -> None:
    """Makes the folder of an evaluation; results of an earlier one in it are replaced.

    Raises:
        ValueError: it cannot be made, or holds a checkpoint, whose own results would be lost.
    """
    if (folder / "config.json").exists():
        raise ValueError(f"--output_dir {folder} holds a checkpoint with results of its own: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--output_dir {folder} cannot be made: {error}") from error


def hardware(device: torch.device) -> str:
    """Where a number was measured: the accelerator, or the processor's kind and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def parse_lengths(text: str, least: int = 1) -> list[int]:
    """`"10:200:10"` (both ends included) or `"30,60,100"` as a list.

    Raises:
        ValueError: the text is neither, or a length is below `least`.
    """
    try:
        if ":" in text:
            start, stop, *step = map(int, text.split(":"))
            lengths = list(range(start, stop + 1, *step))
        else:
            lengths = [int(part) for part in text.split(",")]
    except (TypeError, ValueError):
        lengths = []
    if not lengths or min(lengths) < least:
        raise ValueError(
            f"lengths {text!r}: give START:STOP:STEP such as 10:200:10, or a list such as 30,60,100, of {least} and more"
        )
    return lengths


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eval.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", metavar="MODEL", help="folder or Hub id; several are seeds of one model")
    parser.add_argument("--lengths", default="10:100:10", help="digits: START:STOP:STEP or a list (default %(default)s)")
    parser.add_argument(
        "--lengths_b", help="digits of the second operand, or class of sums: evaluates all pairs, plotted as a heatmap"
    )
    parser.add_argument("--num_samples", type=int, default=200, help="problems per length (default %(default)s)")
    parser.add_argument("--decode", choices=("teacher_forced", "generate"), default="teacher_forced")
    parser.add_argument("--seed", type=int, default=0, help="seed of the test problems (default %(default)s)")
    parser.add_argument("--output_dir", type=Path, help="default: outputs/evaluation/NAME")
    parser.add_argument(
        "--update_card", action="store_true", help="add the results to the checkpoint's card, in its folder or on the Hub"
    )
    parser.add_argument(
        "--dataset", metavar="USER/NAME", help="with --update_card: dataset that the results are filed under on the Hub"
    )
    parser.add_argument("--ask", metavar="QUESTION", help='print the answer to one question, such as "653+49"')
    parser.add_argument(
        "--certify",
        action="store_true",
        help="check all neighbourhoods instead: exit status 0 only where the model is proved exact for every length",
    )
    parser.add_argument("--attentions", action="store_true", help="also plot attention maps at the first length")
    parser.add_argument("--output_places", action="store_true", help="also accuracy of every digit of the answer")
    parser.add_argument(
        "--position_maps", action="store_true", help="also plot an encoder's pairwise vectors, and how dispersed they are"
    )
    parser.add_argument("--sampling", help="draw other test problems, where a task has the choice, such as cascades")
    parser.add_argument("--task", help="task of a checkpoint that has no recipe.yaml")
    parser.add_argument("--revision", help="branch, tag or commit on the Hub")
    return parser.parse_args(arguments)


def check_update(options: argparse.Namespace) -> None:
    """Raises ValueError where --update_card cannot end well, before any time is spent."""
    given = {"--ask": options.ask is not None, "--certify": options.certify, "--sampling": options.sampling is not None}
    if conflicts := [option for option, is_given in given.items() if is_given]:
        raise ValueError(f"--update_card adds accuracy on the task's own problems to a card: leave out {conflicts[0]}")
    if options.dataset is not None:
        check_repo_id(options.dataset)
    for source in options.checkpoints:
        check_card(_card_place(source), options.revision)


def _card_place(source: str) -> str:
    """Where a checkpoint's card is: `best` is described by that of its run."""
    folder = Path(source)
    return str(folder.parent) if is_best(folder) else source


def run(options: argparse.Namespace) -> None:
    lengths = parse_lengths(options.lengths)
    # A class of sums may be 0; `operand_lengths` of other tasks refuses it.
    others = None if options.lengths_b is None else parse_lengths(options.lengths_b, least=0)
    if options.dataset is not None and not options.update_card:
        raise ValueError(f"--dataset {options.dataset} is for --update_card, which is not set")
    if options.num_samples < 1:
        raise ValueError(f"--num_samples must be at least 1, got {options.num_samples}")
    if others is not None and len(options.checkpoints) > 1:
        raise ValueError(f"--lengths_b draws one heatmap: give one checkpoint, got {len(options.checkpoints)}")
    checkpoints = [load_checkpoint(source, options.revision, options.task) for source in options.checkpoints]
    if options.sampling is not None:
        checkpoints = [resample(checkpoint, options.sampling) for checkpoint in checkpoints]
    if options.position_maps:
        for checkpoint in checkpoints:
            check_position_maps(checkpoint)
    if options.certify and options.ask is not None:
        raise ValueError("--certify and --ask are two questions: ask one at a time")
    for source, checkpoint in zip(options.checkpoints, checkpoints, strict=True):
        warn_of_certificate(Path(source), checkpoint.model)
    if options.update_card:
        check_update(options)
    if options.ask is not None:
        for checkpoint in checkpoints:
            print(checkpoint.answer(options.ask))
        return
    names = [checkpoint.name for checkpoint in checkpoints]
    if len(set(names)) < len(names):
        raise ValueError(f"several checkpoints have one name, so results could not be told apart: {', '.join(names)}")
    folder = options.output_dir or Path("outputs", "evaluation", names[0].replace("/", "--"))
    if options.certify:
        for checkpoint in checkpoints:
            try:
                covering(checkpoint.model, checkpoint.task)
            except CannotCertify as error:
                raise ValueError(f"{checkpoint.name}: {error}") from error
        claim_output(folder)
        rows = []
        for source, checkpoint in zip(options.checkpoints, checkpoints, strict=True):
            beside = Path(source) if Path(source).is_dir() else folder
            rows.append(certify_checkpoint(checkpoint, beside, show_proof=len(checkpoints) == 1))
        write_results(rows, folder / CERTIFICATES_FILE)
        if not all(row["certified"] for row in rows):
            raise SystemExit(1)
        return
    task = checkpoints[0].task
    if different := [checkpoint.name for checkpoint in checkpoints if checkpoint.task.name != task.name]:
        raise ValueError(f"one table holds one task: {names[0]} was made for {task.name!r}, {different[0]} was not")
    sizes = [(length,) for length in lengths] if others is None else product(lengths, others)
    pairs = [task.operand_lengths(*size) for size in sizes]
    for checkpoint in checkpoints:
        check_lengths(checkpoint.model, checkpoint.task, pairs)
        if options.decode == "generate":
            checkpoint.task.family.check_generation(checkpoint.task)
    claim_output(folder)
    rows = []
    for checkpoint in checkpoints:
        measured = evaluate_lengths(
            checkpoint.model,
            checkpoint.task,
            pairs,
            name=checkpoint.name,
            num_samples=options.num_samples,
            seed=options.seed,
            decode=options.decode,
        )
        if checkpoint.run_seconds is not None:
            measured = [{**row, "run_seconds": checkpoint.run_seconds} for row in measured]
        rows += measured
    report(rows, folder, checkpoints[0].trained_lengths, seeds=len(checkpoints) > 1)
    if options.update_card:
        for source, checkpoint in zip(options.checkpoints, checkpoints, strict=True):
            own = [row for row in rows if row["model"] == checkpoint.name]
            updated = update_card(_card_place(source), own, dataset=options.dataset, revision=options.revision)
            print(f"updated {updated}")
    if options.output_places:
        places = [
            row for checkpoint in checkpoints for row in measure_places(checkpoint, pairs, options.num_samples, options.seed)
        ]
        write_results(places, folder / PLACES_FILE)
        print(f"\n{format_places(places)}\n\nwrote {folder / PLACES_FILE}")
    if options.position_maps:
        for checkpoint in checkpoints:
            file = folder / f"positions-{checkpoint.name.replace('/', '--')}.png"
            plot_position_maps(position_maps(checkpoint.model), *checkpoint.model.config.relation_range, file)
            print(f"wrote {file}")
        measured = [row for checkpoint in checkpoints for row in measure_position_maps(checkpoint)]
        write_results(measured, folder / POSITION_MAPS_FILE)
        print(f"\n{format_position_maps(measured)}\n\nwrote {folder / POSITION_MAPS_FILE}")
    if options.attentions:
        for checkpoint in checkpoints:
            file = folder / f"attention-{checkpoint.name.replace('/', '--')}.png"
            draw_attention(checkpoint, pairs[0], min(options.num_samples, 100), options.seed, file)
            print(f"wrote {file}")


def main(arguments: list[str] | None = None) -> None:
    """Console entry: bad input ends with one line and exit status 2."""
    options = parse_arguments(arguments)
    logging.disable_progress_bar()
    with refusing_in_one_line():
        run(options)


if __name__ == "__main__":
    main()
