"""What runs of the papers' sizes cost: on one core as one such run took, and on a GPU at the speed that was measured."""

# Used by: hub_cards/research. Changed freely.

from functools import cache
from pathlib import Path

from longhand.data.splits import make_generator
from longhand.hub_cards.research.study import STUDY_RESULTS, load_study
from longhand.hub_cards.result_rows import RESULTS_FILE, read_results

PAPER_RUNS = "paper-scale"
"""The study with the papers' own settings."""

COST_RUN = "paper-attention-probe"
"""A study of one run at the papers' scale that was made on one core, which says what others cost."""

GPU_RESULTS = Path(__file__).parents[2] / "results" / "gpu.jsonl"

MEASURED_ON_GPU = {"decoder": "sums", "encoder": "encoder-sums-rpe"}
"""The run of the papers' sizes of each family whose recipe's speed on a GPU was measured."""


@cache
def core_hours(experiment: str) -> float:
    """Return roughly how long one core trains a run of the paper: as `COST_RUN` took, by parameters times tokens."""
    (seconds,) = {row["run_seconds"] for row in read_results(STUDY_RESULTS / COST_RUN / RESULTS_FILE)}
    (variant,) = load_study(COST_RUN).variants
    work, known = step_work(PAPER_RUNS, experiment), step_work(COST_RUN, variant)
    return seconds / 3600 * work * steps_of(PAPER_RUNS, experiment) / (known * steps_of(COST_RUN, variant))


@cache
def gpu_minutes(experiment: str) -> float:
    """Return roughly how long a GPU trains a run of the paper, at the speed of the measured run of its family.

    A step with less work is not faster, since the host sets the speed; one with more work is slower by as much.
    """
    known = MEASURED_ON_GPU[load_study(PAPER_RUNS).parse(experiment).task.family.name]
    slower = max(1.0, step_work(PAPER_RUNS, experiment) / step_work(PAPER_RUNS, known))
    return steps_of(PAPER_RUNS, experiment) / gpu_speed(known) * slower / 60


@cache
def gpu_speed(experiment: str) -> float:
    """Return the most steps a second that were measured on a GPU with the recipe of an experiment."""
    study = load_study(PAPER_RUNS)
    recipe = study.variants[experiment].get("recipe", study.recipe)
    rows = [row for row in read_results(GPU_RESULTS) if row["part"] == "speed" and row["model"] == "longhand"]
    return max(row["steps_per_second"] for row in rows if row["recipe"] == recipe)


def steps_of(study: str, variant: str) -> int:
    """Return the steps of a run."""
    return load_study(study).parse(variant).recipe["max_steps"]


@cache
def step_work(study: str, variant: str) -> int:
    """Return parameters times tokens of a step, every problem as long as its longest."""
    run = load_study(study).parse(variant)
    longest = run.task.parts[0].longest_lengths(run.data.max_length)
    (tokens,) = run.task.parts[0].examples(make_generator("longest"), longest, "train").tokens.shape[1:]
    return load_study(study).parameters(variant) * run.recipe["batch_size"] * tokens
