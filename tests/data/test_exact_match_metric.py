import os
import subprocess
import sys
from pathlib import Path

import evaluate
import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import HfApi
from loopback_hub import LoopbackHub
from transformers import pipeline

import longhand
from longhand.data import load_task_dataset
from longhand.data.metrics import count_matches, right_tokens
from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval
from longhand.hub_cards.publishing.publications import metric_publication, publish

FOLDER = Path(__file__).parents[2] / "hub_cards" / "metrics" / "exact_match_by_length"


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Loading must not ask any server, and must not find what another test has left."""
    monkeypatch.setattr("socket.socket.connect", None)
    monkeypatch.setattr("evaluate.config.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", str(tmp_path / "metrics"))


def load(**options):
    return evaluate.load(str(FOLDER), **options)


def drawn_batches(batches=3, count=40, tokens=12):
    """Logits, labels and lengths such that some responses are wholly right and some are not."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(batches):
        labels = torch.randint(0, 10, (count, tokens), generator=generator)
        labels[:, :4] = -100
        labels[torch.rand(labels.shape, generator=generator) < 0.2] = -100
        labels[:, -1] = 7
        logits = torch.nn.functional.one_hot(labels.clamp(min=0).roll(-1, 1), 10).float()
        logits += 1.4 * torch.rand(logits.shape, generator=generator)
        yield logits, labels, torch.randint(1, 5, (count,), generator=generator)


def shifted(logits, labels, lengths):
    return {"predictions": logits[:, :-1].argmax(-1), "references": labels[:, 1:], "lengths": lengths}


def test_equals_the_metrics_of_the_package():
    metric = load()
    matches, lengths = [], []
    for logits, labels, length in drawn_batches():
        metric.add_batch(**shifted(logits, labels, length))
        matches.append(count_matches(*right_tokens(logits, labels, 1)))
        lengths.append(length)
    matches, lengths = torch.cat(matches).numpy(), torch.cat(lengths).numpy()
    results = metric.compute()
    assert 0.1 < results["exact_match"] < 0.9
    exact, right, supervised = matches.sum(0)
    assert results["count"] == len(matches) and results["exact_match"] == pytest.approx(exact / len(matches))
    assert results["token_accuracy"] == pytest.approx(right / supervised)
    assert [row["length"] for row in results["by_length"]] == [1, 2, 3, 4]
    for row in results["by_length"]:
        exact, right, supervised = matches[lengths == row["length"]].sum(0)
        assert row["count"] == (lengths == row["length"]).sum()
        assert row["exact_match"] == pytest.approx(exact / row["count"])
        assert row["token_accuracy"] == pytest.approx(right / supervised)
        assert (row["low"], row["high"]) == pytest.approx(wilson_interval(exact, row["count"]))


def test_batches_and_their_order_do_not_matter():
    batches = [shifted(*batch) for batch in drawn_batches()]
    at_once = {name: torch.cat([batch[name] for batch in reversed(batches)]) for name in batches[0]}
    metric = load()
    for batch in batches:
        metric.add_batch(**batch)
    assert metric.compute() == load().compute(**at_once)


def test_the_length_of_a_problem_is_its_tokens_that_count_if_none_is_given():
    inputs = {"predictions": [[1, 2], [3, 4, 5]], "references": [[1, 2], [-100, 4, 6]]}
    expected = load().compute(**inputs, lengths=[2, 2])
    batches, examples = load(), load()
    batches.add_batch(**inputs)
    for prediction, reference in zip(*inputs.values(), strict=True):
        examples.add(prediction=prediction, reference=reference)
    assert load().compute(**inputs) == batches.compute() == examples.compute() == expected


TEXTS = {"predictions": ["2070", "31", "4", ""], "references": ["2070", "13", "41", "7"]}


def test_texts_count_as_their_characters():
    ids = {name: [list(map(ord, text)) for text in texts[:2]] for name, texts in TEXTS.items()}
    same = {name: texts[:2] for name, texts in TEXTS.items()}
    assert load().compute(**same) == load().compute(**ids)
    results = load().compute(**TEXTS)
    assert results["exact_match"] == 0.25 and results["token_accuracy"] == pytest.approx(5 / 9)
    assert [row["length"] for row in results["by_length"]] == [1, 2, 4]
    # One text that goes on beyond its reference is wrong.
    assert load().compute(predictions=["20701"], references=["2070"], lengths=[3])["exact_match"] == 0
    batches, examples = load(), load()
    batches.add_batch(**TEXTS)
    for prediction, reference in zip(*TEXTS.values(), strict=True):
        examples.add(prediction=prediction, reference=reference)
    assert batches.compute() == examples.compute() == results


def test_the_metric_takes_what_a_pipeline_writes_and_what_a_dataset_holds():
    folder = longhand.zoo("addition-tiny")
    rows = load_task_dataset("addition", split="test", max_length=4, num_samples=12, seed=2, streaming=True)
    prompts, completions = zip(*((row["prompt"], row["completion"]) for row in rows), strict=True)
    adder = pipeline("text-generation", folder)
    written = [output[0]["generated_text"] for output in adder(list(prompts), return_full_text=False)]
    assert load().compute(predictions=written, references=list(completions))["exact_match"] == 1.0
    assert longhand.exact_match_reward(written, list(completions)) == [1.0] * 12


def test_the_reward_of_a_completion_is_whether_the_metric_counts_it():
    """As TRL calls it: by name, with all other columns."""
    predictions, references = TEXTS.values()
    rewards = longhand.exact_match_reward(
        prompts=["653+049="] * 4, completions=predictions, reference=references, completion_ids=[[1]] * 4, answer=["702"] * 4
    )
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert sum(rewards) / len(rewards) == load().compute(**TEXTS)["exact_match"]
    conversations = [[{"role": "assistant", "content": text}] for text in predictions]
    assert longhand.exact_match_reward(conversations, references) == rewards


REFUSED_IDS = {
    "a text": ["0702"],
    "texts of one sign": ["1", "2"],
    "a text among ids": [1, "2"],
    "a number in bytes": [b"1"],
    "a fraction": [1.9],
    "no number": [float("nan")],
    "no end": [float("inf")],
    "nothing": [None],
    "a truth": [True],
    "complex": [1j],
    "a float that stands for its neighbours": [2.0**53 + 2],
    "a short float that stands for its neighbours": np.array([2**24], np.float32),
    "half precision that stands for its neighbours": np.array([2**11], np.float16),
    "a tensor in half precision": torch.tensor([1.0], dtype=torch.bfloat16),
    "a tensor of short floats": torch.tensor([2.0**24]),
    "hidden numbers": np.ma.array([1, 2], mask=[False, True]),
    "more than 64 bits": [2**63],
    "far more than 64 bits": [2**70],
    "a day": np.array(["2026-01-01"], "datetime64[D]"),
    "two axes": [[1]],
    "logits": np.zeros((1, 1, 11), np.float32),
    "lists of several lengths": [[1], [1, 2]],
    "one id": 1,
    "bytes": b"12",
    "a mapping": {"ids": [1]},
    "a set": {1},
    "no sequence": None,
}
"""What is no sequence of token ids, nor a text."""

REFUSED_ROWS = {"a text": "12", "bytes": b"12", "a number": 12, "nothing": None, "a mapping": {"a": 1}, "a set": {"12"}}
"""What stands in place of a list of sequences."""


def feed(metric, way, predictions, references, **lengths):
    """The results, however the sequences are given."""
    if way == "compute":
        return metric.compute(predictions=predictions, references=references, **lengths)
    if way == "add_batch":
        metric.add_batch(predictions=predictions, references=references, **lengths)
    else:
        for place, (prediction, reference) in enumerate(zip(predictions, references, strict=True)):
            metric.add(prediction=prediction, reference=reference, **{name: own[place] for name, own in lengths.items()})
    return metric.compute()


def refuse(match, call, *args, **kwargs):
    """Assert that the call is refused in one line."""
    with pytest.raises(ValueError, match=match) as refused:
        call(*args, **kwargs)
    assert "\n" not in str(refused.value)


WAYS = ("compute", "add_batch", "add")


def test_what_is_no_sequence_is_refused_in_one_line():
    """Equal on both sides or not: none of them is compared, and what was refused is not counted later."""
    metric = load()
    for sequence in REFUSED_IDS.values():
        for pair in ((sequence, sequence), (sequence, [1]), ([1], sequence)):
            predictions, references = ([[1], own] for own in pair)
            for way in ("compute", "add_batch"):
                refuse("token ids of sequence 1 of .* must be", feed, metric, way, predictions, references)
            refuse("token ids of sequence 0 of .* must be", feed, metric, "add", predictions[1:], references[1:])
    assert metric.compute(predictions=[[1]], references=[[1]])["count"] == 1


def test_what_is_no_list_of_sequences_is_refused_in_one_line():
    metric = load()
    for rows in REFUSED_ROWS.values():
        for predictions, references in ((rows, rows), (rows, ["13"]), (["13"], rows)):
            refuse("must be a list of texts, got", longhand.exact_match_reward, predictions, references)
            refuse("must be a list of texts, or", feed, metric, "add_batch", predictions, references)
            if predictions is not None or references is not None:
                refuse("must be a list of texts, or", feed, metric, "compute", predictions, references)
    assert metric.compute(predictions=["1"], references=["1"])["count"] == 1


FORMS = {
    "lists": list,
    "tuples": tuple,
    "arrays": np.array,
    "small integers": lambda ids: np.array(ids, np.int8),
    "whole floats": lambda ids: np.array(ids, np.float64),
    "tensors": torch.tensor,
    "lists of tensors": lambda ids: [torch.tensor(own) for own in ids],
    "lists of arrays": lambda ids: [np.array(own) for own in ids],
    "a column of a table": pd.Series,
    "an iterator": iter,
}


def test_every_form_of_the_same_ids_has_the_same_results():
    predictions, references, lengths = [[4, 1, 1], [0, 7, 0]], [[-100, 1, 1], [0, 7, 1]], [2, 3]
    metric = load()
    expected = metric.compute(predictions=predictions, references=references, lengths=lengths)
    for make in FORMS.values():
        assert metric.compute(predictions=make(predictions), references=make(references), lengths=lengths) == expected
    for own in (np.array(lengths), torch.tensor(lengths), pd.Series(lengths), np.array(lengths, np.float32)):
        assert metric.compute(predictions=predictions, references=references, lengths=own) == expected


def test_large_ids_differ_from_their_neighbours():
    metric = load()
    for id_ in (2**53, 2**62):
        assert metric.compute(predictions=[[id_]], references=[[id_]])["exact_match"] == 1
        assert metric.compute(predictions=[[id_ + 1]], references=[[id_]])["exact_match"] == 0


def test_texts_are_equal_only_character_for_character():
    metric = load()
    for prediction, reference in (("0702", "702"), ("1.0", "1"), ("1e2", "100"), (" 7", "7"), ("-100", "-10")):
        for way in WAYS:
            assert feed(metric, way, [prediction], [reference])["exact_match"] == 0
            assert feed(metric, way, [prediction], [prediction])["exact_match"] == 1
        assert longhand.exact_match_reward([prediction], [reference]) == [0.0]


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (
            {"predictions": [[1, 2], [3]], "references": [[1, 2], [3, 4]], "lengths": [1, 1]},
            "sequence 1",
        ),
        ({"predictions": [[1], [3]], "references": [[1], [-100]], "lengths": [1, 1]}, "sequence 1"),
        ({"predictions": [[1], []], "references": [[1], []], "lengths": [1, 1]}, "sequence 1"),
        ({"predictions": [[1]], "references": [[1]], "lengths": []}, "equally many, got 1 and 0"),
        ({"predictions": [[1]], "references": [[1], [2]]}, "equally many, got 1 and 2"),
        ({"predictions": ["1", "2"], "references": ["1"]}, "equally many, got 2 and 1"),
        ({"predictions": [[1]], "references": [[1]], "lengths": [-2]}, "at least 0"),
        ({"predictions": [[1]], "references": [[1]], "lengths": [1.5]}, "lengths must be"),
        ({"predictions": [[1]], "references": [[1]], "lengths": ["1"]}, "lengths must be"),
        ({"predictions": [[1]], "references": [[1]], "lengths": 1}, "lengths must be"),
        ({"predictions": [[1]], "references": [[1]], "lengths": [[1, 2]]}, "lengths must be"),
        ({"predictions": [[1]]}, "references must be a list"),
        ({"references": [[1]]}, "predictions must be a list"),
        ({"predictions": ["1"], "references": [[1]]}, "both be texts"),
        ({"predictions": ["1", ""], "references": ["1", ""]}, "sequence 1"),
    ],
)
def test_bad_inputs_are_named(inputs, named):
    metric = load()
    refuse(named, metric.compute, **inputs)
    refuse(named, metric.add_batch, **inputs)
    # Nothing of it stays.
    assert metric.compute(predictions=[[1]], references=[[1]])["count"] == 1


@pytest.mark.parametrize(
    ("completions", "reference"),
    [
        (["1", "2"], ["1"]),
        (["1"], [1]),
        ([[1, 2]], ["12"]),
        ([None], ["1"]),
        ([b"1"], ["1"]),
        ([[]], ["1"]),
        ([[{"role": "assistant"}]], ["1"]),
        ([[{"role": "assistant", "content": [{"type": "text", "text": "1"}]}]], ["1"]),
        ([{"content": "1"}], ["1"]),
    ],
)
def test_the_reward_refuses_what_is_no_text_in_one_line(completions, reference):
    refuse("must be", longhand.exact_match_reward, completions, reference)


def test_the_snippet_of_the_card_prints_what_it_says(monkeypatch, capsys):
    snippet = (FOLDER / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(FOLDER.parent.parent.parent)
    exec(snippet, {})
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == snippet.split("  # ")[2].splitlines()[0]
    assert [row.split()[:2] for row in rows] == [["2", "1.0"], ["3", "0.0"]]


FROM_THE_HUB = """
import sys
sys.modules["longhand"] = None
import evaluate
metric = evaluate.load(sys.argv[1])
print(metric.compute(predictions=[[4, 1]], references=[[-100, 1]], lengths=[2])["by_length"][0]["exact_match"])
"""


@pytest.mark.thorough
def test_what_was_pushed_is_loaded_from_its_space(tmp_path, monkeypatch):
    monkeypatch.undo()
    with LoopbackHub() as hub:
        publish(
            metric_publication("user/by-length"), api=HfApi(endpoint=hub.endpoint, token=hub.add_token("secret", "user"))
        )
        files = hub.repositories["space", "user/by-length"].head.files
        own = {"README.md", "requirements.txt", "counting.py", "reading.py", "index.html", "by-length.py"}
        assert set(files) == own | {".gitattributes"} and b'evaluate.load("user/by-length")' in files["README.md"]
        environment = os.environ | hub.environment(tmp_path / "home")
        command = [sys.executable, "-c", FROM_THE_HUB, "user/by-length"]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == "1.0\n", done.stderr
