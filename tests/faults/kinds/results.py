"""Rows of results, in tables and pictures."""

import shutil

import numpy as np
from faults.attempts import Finding, Outcome, attempt, check_named
from faults.documents import choose_change, damage_file
from faults.inputs import Input, Kind
from faults.subjects import Subjects

from longhand.hub_cards.evaluation.plots import plot_accuracy, plot_comparison
from longhand.hub_cards.evaluation.results import (
    format_medians,
    format_table,
    generalizable_length,
    group_variants,
    read_results,
    write_results,
)


def make_results(generator: np.random.Generator) -> Input:
    return {**choose_change(generator), "plot": bool(generator.random() < 0.1)}


def run_results(subjects: Subjects, given: Input) -> Outcome:
    """A file of results is refused by its name, or shown in every table and picture."""
    file = subjects.scratch / "results.jsonl"
    shutil.copyfile(subjects.certified / "results.jsonl", file)
    field = damage_file(file, given)
    read = attempt(lambda: read_results(file))
    check_named(read, file.name)

    def report():
        for show in (format_table, format_medians, generalizable_length):
            show(read.value)
        write_results(read.value, file)
        if given["plot"]:
            plot_accuracy(read.value, file.with_suffix(".png"), (1, 30), ("digits", "digits"))
            plot_comparison(group_variants(read.value), file.with_suffix(".png"), (1, 30), "digits")

    if read.value and attempt(report).refusal is not None:
        raise Finding(f"a row that was read cannot be shown ({field})")
    return read


KINDS = {"results": Kind(make_results, run_results, 3)}
