"""Rules, tasks, collators and models go to processes that have imported nothing, as data loaders start them."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import drawn
from kinds import recipes_of_kinds
from test_given_rows import model_of, rows_of
from torch.utils.data import DataLoader

import longhand
from longhand.data import TASKS, build_task
from longhand.data.families import DECODER
from longhand.data.learning.learn import learn_task
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.plugins import load_plugin
from longhand.data.tasks.registry import register_task, task_named
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import training_batches
from longhand.modeling.coupling import COUPLING_RULES, given_rule

PLUGINS = Path(__file__).parents[1] / "plugins"
SMALL = ["--num_hidden_layers", "1", "--use_cpu", "True"]

UNPICKLE = """
import pickle, sys
objects = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps([*map(describe, objects)]))
"""

DESCRIBE = """
def describe(held):
    if hasattr(held, "capacity"):
        return held.name, held.levels, held.capacity(40), held.relations
    if hasattr(held, "answers_questions"):
        return held.describe(), [kind.__name__ for kind in type(held).__mro__], [part.name for part in held.parts]
    if hasattr(held, "config"):
        held.config.definitions()
        return type(held).__name__, held.config.unknown_names(), [weights.shape for weights in held.parameters()]
    return repr(held)
"""


def there(objects):
    """What a process that has imported nothing says of objects that it unpickles."""
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE + UNPICKLE], input=pickle.dumps(objects), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-1000:]
    return pickle.loads(done.stdout)


def here(objects):
    space = {}
    exec(DESCRIBE, space)
    return [*map(space["describe"], objects)]


@pytest.mark.slow
def test_rules_tasks_and_models_are_the_same_in_a_process_that_has_imported_nothing():
    for file in PLUGINS.glob("*.py"):
        load_plugin(file)
    learned = learn_task(lambda a, b: max(a, b), name="larger_of_two", source="a test").task
    register_task(type(learned))
    columns = [name for name, kind in TASKS.items() if issubclass(kind, ColumnTask)]
    derived = [kind for name in columns for prefix in ("settling_", "states_of_") if (kind := task_named(prefix + name))]
    tasks = [kind() for kind in [*TASKS.values(), *derived]] + [build_task("addition", zero_padding=False)]
    assert {"hex_addition", "copy_or_subtract", "larger_of_two"} <= {task.name for task in tasks}
    rules = [*COUPLING_RULES.values(), given_rule(2), model_of(learned).config.rule]
    assert "distance_to_equals" in [rule.name for rule in rules]
    models = [
        model_of(build_task("addition"), position_encoding="recency"),
        model_of(build_task("addition"), "distance_to_equals"),
        model_of(build_task("encoder_addition"), "partner"),
        model_of(learned),
        model_of(build_task("calculator")),
    ]
    objects = [*rules, *tasks, *models]
    assert there(objects) == here(objects)


@pytest.mark.parametrize("recipe", drawn(recipes_of_kinds(), 8))
def test_what_a_run_is_made_of_is_pickled(recipe):
    run = parse_run([recipe, *SMALL, "--bf16", "False", "--torch_compile", "False"])
    model = run.task.family.model_class(run.config)
    for held in (run.task, run.training_collator, run.config, model, longhand.CouplingCollator.for_model(model)):
        pickle.loads(pickle.dumps(held))


# A process that loads data imports the package first.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "plugin"), [pytest.param("spawn", "hex_addition.py", marks=pytest.mark.release), ("forkserver", "joined.py")]
)
def test_a_data_loader_draws_the_same_batches_in_a_process_of_any_start(start, plugin):
    recipe = ["columns"] if plugin == "hex_addition.py" else ["subtraction", "--task", "copy_or_subtract"]
    options = ["--plugin", str(PLUGINS / plugin), "--until_certified", "False", "--max_length", "4", "--batch_size", "4"]
    batches = training_batches(parse_run([*recipe, *options, *SMALL, "--max_steps", "2", "--eval_steps", "1"]))
    loader = DataLoader(batches, batch_size=None, num_workers=1, multiprocessing_context=start)
    for index, batch in enumerate(loader):
        for name, value in batches[index].items():
            assert torch.equal(torch.as_tensor(batch[name]), torch.as_tensor(value)), name


# Boards that are not square, without separators, have no derived ids to compare with.
DERIVING = [name for name in list_recipes() if name != "paper-minesweeper"]


@pytest.mark.parametrize("recipe", drawn(DERIVING, 12))
def test_the_collator_of_a_model_takes_what_its_configuration_says(recipe):
    torch.manual_seed(0)
    run = parse_run([recipe, *SMALL, "--bf16", "False", "--torch_compile", "False"])
    model = run.task.family.model_class(run.config).eval()
    described = run.task.describe()
    rows = rows_of(described.pop("task"), 3, max_length=3, **described)
    batch = longhand.CouplingCollator.for_model(model)(rows)
    derived = {name: value for name, value in batch.items() if not name.endswith("position_ids")}
    shown = batch["attention_mask"] > 0
    with torch.inference_mode():
        torch.testing.assert_close(model(**batch).logits[shown], model(**derived).logits[shown])
        assert model.train()(**batch).loss.isfinite()
    drawn_ids, ids = batch.get("drawn_position_ids"), batch.get("position_ids")
    assert (ids is None) == (run.task.family is not DECODER)
    encoding = getattr(model.config, "position_encoding", None)
    varies = encoding in ("learned", "sinusoidal", "rotary", "abacus") or getattr(run.config, "randomized_positions", False)
    assert ids is None or torch.equal(drawn_ids, ids) != varies
