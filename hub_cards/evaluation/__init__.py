"""Evaluation: what is measured of a checkpoint, results files, tables and plots."""
