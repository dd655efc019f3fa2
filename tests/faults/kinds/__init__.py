"""Kinds of inputs, one subject a file."""

from faults.inputs import Kind
from faults.kinds import certificates, commands, datasets, plugins, prompts, questions, results, side_files, training

KINDS: dict[str, Kind] = {
    **questions.KINDS,
    **prompts.KINDS,
    **side_files.KINDS,
    **certificates.KINDS,
    **training.KINDS,
    **commands.KINDS,
    **datasets.KINDS,
    **plugins.KINDS,
    **results.KINDS,
}
