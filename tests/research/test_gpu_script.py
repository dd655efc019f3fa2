"""The script for a GPU, on a CPU with tiny sizes: rows of every part, errors that stop nothing, and what is done once."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from longhand.hub_cards.research.gpu import arithmetic, paper_runs
from longhand.hub_cards.research.gpu.memory import LiveBytes
from longhand.hub_cards.research.gpu.record import Record, read_rows
from longhand.hub_cards.research.gpu.run import PARTS, is_failed, run, summary
from longhand.hub_cards.result_rows import read_results
from longhand.hub_cards.training.run_folder import HASHES_FILE, STATE_FILE, last_checkpoint, write_hashes


def start(output, *parts):
    command = [sys.executable, "-m", "longhand.hub_cards.research", "gpu", "--minutes", "60", "--output", output]
    command += ["--parts", *parts] if parts else []
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(folder, seconds=60.0):
    return Record("devices", folder, time.time() + seconds, small=True)


def test_an_error_is_a_row_and_the_next_measurement_goes_on(tmp_path):
    def fail():
        raise RuntimeError("no such kernel")

    row = record(tmp_path).measure("one", fail)
    assert row["error"].startswith("RuntimeError: no such kernel (test_gpu_script.py:")
    record(tmp_path).measure("two", lambda: {"lead": float("nan")})
    assert [row["name"] for row in read_rows(tmp_path)] == ["one", "two"]
    # What holds no number is read as a results file all the same.
    assert read_results(tmp_path / "gpu.jsonl")[1]["lead"] == "nan"


def test_what_failed_is_measured_again_and_what_was_measured_is_not(tmp_path):
    calls = []
    for result in (1 / 2, 1 / 3):
        for name in ("good", "bad"):

            def work(name=name, result=result):
                calls.append(name)
                if name == "bad" and result == 1 / 2:
                    raise SystemExit(2)
                return {"result": result}

            record(tmp_path).measure(name, work)
    assert calls == ["good", "bad", "bad"]


def test_nothing_begins_when_time_is_over(tmp_path):
    assert record(tmp_path, seconds=5).measure("long", lambda: pytest.fail("it began"), needs=10) is None
    assert read_rows(tmp_path) == []


def test_bytes_of_tensors_alive_are_counted_until_they_are_gone():
    with LiveBytes() as counted:
        one = torch.zeros(1000)
        two = one + 1
        view = two[:10]
        del two
        assert counted.now == 8000
        del view
        assert counted.now == 4000
        del one
    assert (counted.now, counted.peak) == (0, 8000)


def files_of(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_is_packed_in_parts_and_goes_on_from_them(tmp_path, monkeypatch):
    """Its last complete checkpoint, what it needs of the best one, and all else, in files that are small enough."""
    monkeypatch.setattr(paper_runs, "PART_BYTES", 1000)
    folder = tmp_path / "sums-seed0"
    kept = ["results.jsonl", "checkpoints/checkpoint-6/model.safetensors", "checkpoints/checkpoint-9/optimizer.pt"]
    left_out = ["checkpoints/checkpoint-3/x", "checkpoints/checkpoint-6/optimizer.pt", "checkpoints/checkpoint-12/x"]
    for name in kept + left_out:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 100)
    checkpoints = folder / "checkpoints"
    for steps in (3, 6, 9):
        place = checkpoints / f"checkpoint-{steps}"
        state = {"global_step": steps, "best_model_checkpoint": "elsewhere/checkpoint-6"}
        (place / STATE_FILE).write_text(json.dumps(state))
        write_hashes(place)
    for _ in range(2):
        paper_runs.pack(folder, tmp_path / "parts")
    parts = list((tmp_path / "parts").iterdir())
    assert len(parts) > 1 and all(file.stat().st_size <= 1000 for file in parts)
    before = files_of(folder)
    shutil.rmtree(folder)
    paper_runs.unpack(tmp_path / "parts", folder)
    found = files_of(folder)
    assert {str(name) for name in found} >= set(kept) and not {str(name) for name in found} & set(left_out)
    assert {name for name in found if found[name] != before[name]} == {Path("checkpoints/checkpoint-6", HASHES_FILE)}
    # `train.py --resume` goes on from here.
    assert last_checkpoint(checkpoints) == checkpoints / "checkpoint-9"


def test_errors_in_units_of_the_last_place():
    """A float32 number is off by one unit from its neighbour, on both sides of a power of two as its own binade counts."""
    right = torch.tensor([1.0, 1.5, 0.9999, 3e-39], dtype=torch.float64)
    above = torch.nextafter(right.float(), torch.tensor(torch.inf))
    found = arithmetic.units_off(above, right.float().double())
    assert found.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_products_of_fewer_digits_are_seen_in_the_scores():
    def attend_rounded(query, key, value, mask):
        return arithmetic.attend_eager(query.bfloat16().float(), key.bfloat16().float(), value, mask)

    exact, rounded = (
        arithmetic.measure_scores(attend, torch.device("cpu"))["roundings"]
        for attend in (arithmetic.attend_eager, attend_rounded)
    )
    assert exact <= arithmetic.WIDTH and rounded > 1000


@pytest.mark.slow
def test_a_part_writes_its_rows_once(tmp_path, monkeypatch):
    """In the process of the part, which `start` begins."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for _ in range(2):
        run(minutes=10, parts=["memory"], output=tmp_path, worker=time.time() + 600)
        (row,) = read_rows(tmp_path)
    assert not is_failed(row) and "memory: 1 of 1 measured without a fault" in summary([row])


@pytest.mark.release
def test_every_part_runs_on_a_cpu(tmp_path, main_job, monkeypatch):
    """Two parts are started as all are, in processes of their own. The main job is certified already."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(main_job, tmp_path / "addition")
    started, precision = ("devices", "paper-scale"), torch.backends.fp32_precision
    start(tmp_path, *started)
    for part in PARTS:
        if part not in started:
            run(minutes=10, parts=[part], output=tmp_path, worker=time.time() + 600)
    rows = read_results(tmp_path / "gpu.jsonl")
    assert {row["part"] for row in rows} == set(PARTS)
    assert [row for row in rows if is_failed(row)] == []
    # Settings of a part are not those of what its process does next.
    assert torch.backends.fp32_precision == precision
