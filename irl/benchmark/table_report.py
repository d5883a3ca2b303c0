"""The report of a table's benchmark, remade from its stored outcomes alone: Markdown, CSV, a terminal's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cirl_gym.files import read_json, write_text
from irl.benchmark.figures import Cell, cells
from irl.benchmark.report import cell_numbers, cell_text, csv_text, interval_text, made_with, markdown, number
from irl.benchmark.table import METHODS, TableOutcome
from irl.report.section import Report, Section, Table
from irl.result.sentences import weights_mean_something
from irl.stages import duration


def score(name: str, one: TableOutcome) -> float | None:
    """A figure of :class:`irl.result.chances.ChanceScores`; None where there are no chances, or none to tell apart."""
    found = None if one.row.scores is None else getattr(one.row.scores, name)
    return None if found is None else float(found.value)


MEASURES: dict[str, tuple[str, Callable[[TableOutcome], float | None]]] = {
    "accuracy": ("accuracy of the policy", lambda one: one.row.accuracy),
    "foreseen": ("accuracy of what is foreseen", partial(score, "accuracy")),
    "log_likelihood": ("log-likelihood", partial(score, "log_likelihood")),
    "auroc": ("AUROC", partial(score, "auroc")),
}
"""Columns of the table; of every number the larger is the better."""
HOW_TO_READ = (
    "Mean over splits by patient, ± its standard error, [95 % interval by Student's t]. Splits share patients: the "
    "standard error is that of Nadeau and Bengio (2003), larger than if every split were of other patients. All "
    "methods of a split learn from the same patients and are judged by the same decisions of others. First: *; behind "
    "it, but not significantly (the 95 % interval of the paired difference over splits holds 0): †.",
    "The policy is what a method would do (the paper's accuracy, appendix H: mean over episodes); of CIRL, MB(h) and "
    "MB(x) what preferences alone ask for, without habits. What is foreseen is the likeliest action by the method's "
    "chances of the experts' next one, habits included; DSFN gives none. Log-likelihood and AUROC are of these chances "
    "too.",
)


def read_outcomes(folder: Path) -> list[TableOutcome]:
    """All outcomes in the folder of a table's benchmark, by seed, in the order of methods.

    Raises:
        ValueError: there are none, a file is not a whole one, or methods of a seed were judged by other decisions; the
            message names it.
    """
    found = [TableOutcome.read(path) for path in sorted((folder / "jobs").glob("*.json"))]
    if not found:
        raise ValueError(f"{folder} holds no outcome of a benchmark")
    for seed in {one.seed for one in found}:
        if len({one.judged for one in found if one.seed == seed}) > 1:
            raise ValueError(f"{folder}: methods of seed {seed} were judged by different decisions")
    return sorted(found, key=lambda one: (one.seed, list(METHODS).index(one.method)))


def write_report(folder: Path) -> Report:
    """Make tables of the outcomes in a folder, and write them to ``report`` within it.

    Raises:
        ValueError: as :func:`read_outcomes`.
        OSError: the folder cannot be written to.
    """
    outcomes, out = read_outcomes(folder), folder / "report"
    report = report_of(outcomes, read_json(folder / "benchmark.json"))
    write_text(out / "outcomes.csv", csv_text(outcome_rows(outcomes)))
    rows = [
        {"measure": measure, "method": method, **cell_numbers(one)}
        for measure, column in columns_of(outcomes).items()
        for method, one in column.items()
    ]
    write_text(out / "cells.csv", csv_text(rows))
    write_text(out / "report.md", markdown(report))
    return report


def report_of(outcomes: Sequence[TableOutcome], asked: dict[str, Any]) -> Report:
    """What all outcomes say, with what ``benchmark.json`` states of how they came about."""
    whole, short = (_by_method(outcomes, intervals) for intervals in (True, False))
    repeats = _repeats(outcomes)
    sections = [
        Section("methods", "Decisions of patients not seen", (*HOW_TO_READ, whole), (*HOW_TO_READ, short)),
        Section("repeats", "What CIRL says of every split", repeats, repeats),
        Section("seconds", "Seconds", (_seconds(outcomes),)),
        Section("made", "How it was made", _made(outcomes, asked)),
    ]
    return Report("Benchmark of a table", (), tuple(section for section in sections if section.page))


def columns_of(outcomes: Sequence[TableOutcome]) -> dict[str, dict[str, Cell]]:
    """By measure and method what is reached over splits."""
    held_out = [one.patients["test"] / (one.patients["train"] + one.patients["validation"]) for one in outcomes]
    found = {}
    for name, (_, measure) in MEASURES.items():
        values: dict[str, dict[int, float]] = {}
        for method in METHODS:
            known = {one.seed: measure(one) for one in outcomes if one.method == method}
            runs = {seed: value for seed, value in known.items() if value is not None}
            if runs:
                values[method] = runs
        found[name] = cells(values, shared=float(np.mean(held_out)))
    return found


def _by_method(outcomes: Sequence[TableOutcome], intervals: bool) -> Table:
    columns = columns_of(outcomes)
    rows = [
        [title, *(cell_text(column.get(name), intervals) for column in columns.values())]
        for name, title in METHODS.items()
        if any(name in column for column in columns.values())
    ]
    return Table("By method", ["method", *(MEASURES[name][0] for name in columns)], rows)


def _repeats(outcomes: Sequence[TableOutcome]) -> tuple[Table | str, ...]:
    """Verdict and weights of every split."""
    own = [one for one in outcomes if one.method == "cirl"]
    if not own:
        return ()
    rows = []
    for one in own:
        ends = one.row.intervals or {}
        weights = dict(zip(one.features, one.row.weights or (), strict=True))
        cells_of = [f"{number(w)}\n({interval_text(ends.get(name))})" for name, w in weights.items()]
        rows.append([str(one.seed), one.verdict or "", *cells_of])
    meant = sum(weights_mean_something(one.verdict or "") for one in own)
    told = (
        f"The verdict is that of the patients learnt from, by cross-fitting over them, as in cirl explain: beyond "
        f"habit in {meant} of {len(own)}. Weights of any other verdict are no finding. In brackets their 90 % interval."
    )
    return Table("Verdict and weights by split", ["seed", "verdict", *own[0].features], rows), told


def _seconds(outcomes: Sequence[TableOutcome]) -> Table:
    rows = []
    for name, title in METHODS.items():
        jobs = [one for one in outcomes if one.method == name]
        if jobs:
            spent = np.mean([(sum(one.seconds.values()), one.cpu) for one in jobs], axis=0)
            rows.append([title, *map(duration, spent.tolist())])
    return Table("Mean over jobs", ["method", "its stages", "whole job, processor"], rows)


def _made(outcomes: Sequence[TableOutcome], asked: Mapping[str, Any]) -> tuple[str, ...]:
    first, table = outcomes[0].patients, asked["settings"]["table"]
    scores = [one.row.scores for one in outcomes if one.row.scores is not None]
    decisions = sorted({one.decisions for one in scores})
    judged = f"{decisions[0]:,} to {decisions[-1]:,}" if decisions else "no"
    told = (
        f"{len(outcomes)} outcomes of {len({one.seed for one in outcomes})} splits of {table['file']}: "
        f"{first['train']} patients to learn from, {first['validation']} to choose by, {first['test']} held out, of "
        f"whom {judged} decisions are judged."
    )
    return told, *made_with(dict(asked), {one.code for one in outcomes})


def outcome_rows(outcomes: Sequence[TableOutcome]) -> list[dict[str, Any]]:
    """One row for each outcome: all of its single numbers."""
    rows = []
    for one in outcomes:
        weights = dict(zip(one.features, one.row.weights or (), strict=False))
        rows.append(
            {
                "method": one.method,
                "seed": one.seed,
                **{name: measure(one) for name, (_, measure) in MEASURES.items()},
                "decisions": None if one.row.scores is None else one.row.scores.decisions,
                "judged": one.judged,
                "verdict": one.verdict,
                **{f"weight: {name}": weights.get(name) for name in one.features},
                "seconds": one.row.seconds,
                "cpu_seconds": one.cpu,
                "note": one.row.note,
            }
        )
    return rows
