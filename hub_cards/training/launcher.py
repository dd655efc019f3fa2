"""Settings that a launcher gives a run by its environment, such as `accelerate launch --mixed_precision bf16`.

Trainer would take it without a word. Here it becomes arguments of the run, which recipe.yaml records, or is refused.
"""

# Used by: arguments.py, fields.py, train.py. Changed freely.

from collections.abc import Collection, Mapping
from pathlib import Path

from longhand.hub_cards.commands import launched_train

CPUS_FILE, GPUS_FILE = "cpus.yaml", "gpus.yaml"
CONFIGURATIONS = Path(__file__).parents[1] / "launch"
"""Configurations for `accelerate launch --config_file`: several GPUs, several nodes, CPUs."""

LARGEST_MODEL = 64 * 10**6
"""Parameters that no recipe's model exceeds."""

DIVIDING = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism_config",
}
"""Ways to divide a model, or its state, among processes, by the variable that a launcher sets for each."""

DIVIDING_ARGUMENTS = {"fsdp": "FSDP", "fsdp_config": "FSDP", "deepspeed": "DeepSpeed"}
"""The same by arguments of `TrainingArguments`."""

PRECISIONS: dict[str, dict[str, object]] = {
    "no": {},
    "bf16": {"bf16": True, "fp16": False},
    "fp16": {"bf16": False, "fp16": True},
}
COMPILING = ("MODE", "USE_FULLGRAPH", "USE_DYNAMIC", "USE_REGIONAL_COMPILATION")
"""Settings of a launcher for torch.compile, behind `ACCELERATE_DYNAMO_`, which no argument of a run records."""


def refuse_dividing(name: str) -> None:
    """Raise ValueError that says what a run does instead of dividing its model."""
    raise ValueError(
        f"{name} is not supported: it divides a model among processes, and every recipe's fits into each of them (the "
        f"largest has {LARGEST_MODEL // 10**6} million parameters, 1 GB with its optimizer); a run divides batches: "
        f"leave it out, or take accelerate launch --config_file {launched_train(GPUS_FILE)} ..."
    )


def launched_arguments(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments that a launcher sets, by name.

    Raises:
        ValueError: it sets what a run cannot do or cannot record.
    """
    for variable, name in DIVIDING.items():
        if _is_true(environment.get(variable)):
            refuse_dividing(name)
    precision = environment.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if precision not in PRECISIONS:
        raise ValueError(f"the launcher sets mixed_precision {precision}: choose one of {', '.join(PRECISIONS)}")
    arguments = dict(PRECISIONS[precision])
    if _is_true(environment.get("ACCELERATE_USE_CPU")):
        arguments["use_cpu"] = True
    if steps := environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"):
        arguments["gradient_accumulation_steps"] = int(steps)
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    if backend != "no":
        arguments["torch_compile"] = True
        usual = {f"ACCELERATE_DYNAMO_{name}": environment.get(f"ACCELERATE_DYNAMO_{name}") for name in COMPILING}
        changed = [name for name, value in usual.items() if value and value.lower() not in ("default", "false")]
        if changed or backend != "inductor":
            shown = " and ".join(f"{name} {environment[name]}" for name in ["ACCELERATE_DYNAMO_BACKEND", *changed])
            raise ValueError(f"the launcher sets {shown}, which no recipe records: take dynamo_backend inductor alone")
    return arguments


def join_launched(
    values: Mapping[str, object], launched: Mapping[str, object], recipe: Mapping[str, object], words: Collection[str]
) -> dict[str, object]:
    """Return the values of a run's arguments with those that a launcher sets.

    Args:
        launched: see `launched_arguments`.
        recipe: what the recipe gives.
        words: the command line.

    Raises:
        ValueError: the recipe or the command line gives such an argument another value.
    """
    named = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    for name, value in launched.items():
        if values[name] != value and (name in named or name in recipe):
            given = "the command line" if name in named else "the recipe"
            raise ValueError(f"the launcher sets {name} {value}, but {given} says {values[name]}: leave out one of them")
    return {**values, **launched}


def lacking_processes(environment: Mapping[str, str]) -> str | None:
    """Return one line to say if a launcher was asked for several processes and started one; None otherwise."""
    # For several processes, accelerate sets an address where they meet, and starts one all the same if it sees no GPUs.
    asked = "ACCELERATE_MIXED_PRECISION" in environment and "MASTER_ADDR" in environment
    if not asked or "WORLD_SIZE" in environment:
        return None
    return (
        "note: accelerate launch was asked for several processes and started one, since it does not see several GPUs; "
        f"two on CPUs are: accelerate launch --config_file {launched_train(CPUS_FILE)} ... --use_cpu True"
    )


def idle_gpus(environment: Mapping[str, str], gpus: int) -> str | None:
    """Return one line to say if a run trains on one of several GPUs; None otherwise."""
    if gpus < 2 or "WORLD_SIZE" in environment:
        return None
    return (
        f"note: trains on one of {gpus} GPUs; a process for each: accelerate launch --config_file "
        f"{launched_train(GPUS_FILE, f'--num_processes {gpus} ')} ..."
    )


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in ("true", "1", "yes")
