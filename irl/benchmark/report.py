"""Tables and a picture of a benchmark, remade from its stored outcomes alone: Markdown, CSV, SVG, a terminal's text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from cirl_gym.files import read_json, write_text
from irl.benchmark import paper
from irl.benchmark.figures import (
    Cell,
    Values,
    against_expert,
    cells,
    held_truths,
    mean_and_interval,
    summaries,
    values_of,
)
from irl.benchmark.jobs import METHODS, Outcome
from irl.benchmark.parts import SETTINGS
from irl.report.drawing import BLUE, ORANGE, svg
from irl.report.section import MINUS, Picture, Report, Section, Table, percent
from irl.result.codec import Interval
from irl.stages import duration

MEASURES: dict[str, tuple[str, Callable[[Outcome], float | None]]] = {
    "return": ("Return, undiscounted (the paper's table 2)", lambda one: one.row.return_),
    "discounted": ("Return, discounted", lambda one: one.discounted),
    "accuracy": ("Accuracy on held-out decisions (the paper's table 3)", lambda one: one.row.accuracy),
}
"""Tables with a column for each setting; of every number the larger is the better."""
HOW_TO_READ = (
    "Mean over seeds, ± standard error of the mean, [95 % interval by Student's t]. All policies, whatever their "
    "setting and seed, treat the same patients under the same noise. First in a setting: *; behind it, but not "
    "significantly (the 95 % interval of the paired difference over seeds holds 0): †. The expert is no method of the "
    "comparison."
)


def read_outcomes(folder: Path) -> list[Outcome]:
    """All outcomes in the folder of a benchmark, in the order of their files' names.

    Raises:
        ValueError: there are none, or a file is not a whole one; the message names it.
    """
    found = [Outcome.read(path) for path in sorted((folder / "jobs").glob("*/*.json"))]
    if not found:
        raise ValueError(f"{folder} holds no outcome of a benchmark")
    return found


def write_report(folder: Path) -> Report:
    """Make tables and figure of the outcomes in a folder, and write them to ``report`` within it.

    Raises:
        ValueError: it is not the folder of a benchmark, or a file is not a whole one.
        OSError: the folder cannot be written to.
    """
    outcomes = read_outcomes(folder)
    report = report_of(outcomes, read_json(folder / "benchmark.json"))
    out = folder / "report"
    write_text(out / "outcomes.csv", csv_text(outcome_rows(outcomes)))
    write_text(out / "cells.csv", csv_text(cell_rows(outcomes)))
    write_text(out / "figure3.svg", weights_picture(outcomes))
    write_text(out / "report.md", markdown(report))
    return report


def report_of(outcomes: Sequence[Outcome], asked: dict[str, Any]) -> Report:
    """What all outcomes say, with what ``benchmark.json`` states of how they came about.

    The page has 95 % intervals beside every mean, for which a terminal is too narrow.
    """
    every = {title: values_of(outcomes, measure) for title, measure in MEASURES.values()}
    whole, short = ([_by_setting(*each, interval) for each in every.items()] for interval in (True, False))
    together, weights, elsewhere = _together(outcomes), _weights(outcomes), _elsewhere(outcomes)
    printed = _beside_paper(outcomes)
    sections = [
        Section("settings", "By setting", (HOW_TO_READ, *whole), (HOW_TO_READ, *short)),
        Section("limits", "What nobody can exceed", _limits(outcomes), _limits(outcomes)),
        Section("together", "All settings together", together, together),
        Section("paper", "Beside the paper's own figures", printed, printed),
        Section("weights", "Weights", (*weights, Picture(lambda: weights_picture(outcomes))), weights),
        Section("elsewhere", "Carried over to other simulators", elsewhere, elsewhere),
        Section("seconds", "Seconds", _seconds(outcomes)),
        Section("made", "How it was made", _made(outcomes, asked)),
    ]
    return Report("Benchmark", (), tuple(section for section in sections if section.page))


def _by_setting(title: str, values: Values, intervals: bool) -> Table:
    columns = {setting: cells(methods) for setting, methods in values.items()}
    names = [name for name in METHODS if any(name in column for column in columns.values())]
    rows = [[METHODS[name], *(cell_text(column.get(name), intervals) for column in columns.values())] for name in names]
    return Table(title, ["method", *columns], rows)


def cell_text(cell: Cell | None, intervals: bool) -> str:
    """Mean, standard error and, if asked for, interval of a cell, with the mark of the first and of those near it."""
    if cell is None:
        return ""
    told = f"{number(cell.mean, 3)}{'*' if cell.first else '†' if cell.not_behind else ''}"
    if cell.standard_error is not None:
        told += f"\n± {cell.standard_error:.3f}"
    if intervals and cell.interval is not None:
        told += f"\n[{interval_text(cell.interval, 3)}]"
    return told


def _limits(outcomes: Sequence[Outcome]) -> tuple[Table | str, ...]:
    """The ceiling of accuracy, and how far the exact optimum is."""
    ceilings, short = values_of(outcomes, lambda one: one.ceiling), values_of(outcomes, lambda one: one.short)
    told = (
        "The ceiling is the mean chance of the expert's likeliest action. Short of the optimum: by how much the "
        "discounted return of a policy is below the best of all plans, without noise, mean over further patients and "
        "over seeds."
    )
    rows = []
    for method in METHODS:
        means = [np.mean(list(runs[method].values())) if method in runs else None for runs in short.values()]
        rows.append([METHODS[method], *(number(None if mean is None else float(mean), 4) for mean in means)])
    known = [row for row in rows if any(row[1:])]
    tables: list[Table | str] = [Table("Short of the exact optimum", ["method", *short], known)]
    if ceilings:
        tables.insert(0, _by_setting("Ceiling of accuracy", ceilings, False))
    return *tables, told


def _together(outcomes: Sequence[Outcome]) -> tuple[Table | str, ...]:
    measures = {
        "Discounted return minus the expert's": against_expert(values_of(outcomes, MEASURES["discounted"][1])),
        "Accuracy as a share of its ceiling": _shares_of_ceiling(outcomes),
    }
    tables = []
    for title, values in measures.items():
        rows = [
            [
                METHODS[method],
                str(one.runs),
                number(one.middle, 4),
                interval_text(one.middle_interval, 4),
                number(one.rank),
                interval_text(one.rank_interval),
            ]
            for method, one in summaries(values).items()
        ]
        if rows:
            tables.append(Table(title, ["method", "runs", "middle", "95 % interval", "rank", "95 % interval"], rows))
    told = (
        "The expert's is that of its own greedy policy. Middle: interquartile mean over all runs; rank: mean rank "
        "among the methods, in the runs that all have. Intervals by a bootstrap stratified by setting, as rliable's "
        "(Agarwal et al., NeurIPS 2021)."
    )
    return (*tables, told) if tables else ()


def _shares_of_ceiling(outcomes: Sequence[Outcome]) -> Any:
    ceilings = {(one.setting, one.seed): one.ceiling for one in outcomes if one.ceiling is not None}
    known = [one for one in outcomes if one.method != "expert" and (one.setting, one.seed) in ceilings]
    return values_of(known, lambda one: (one.row.accuracy or 0.0) / (ceilings[one.setting, one.seed] or 1.0))


def _beside_paper(outcomes: Sequence[Outcome]) -> tuple[Table | str, ...]:
    """The paper's tables 2 and 3, and how far its methods are behind its experts, with ours below each row."""
    returns = values_of(outcomes, MEASURES["return"][1])
    behind = against_expert(returns)
    accuracies = values_of(outcomes, MEASURES["accuracy"][1])
    tables = {
        "Return, undiscounted (table 2)": (paper.means(paper.RETURNS), _mean_by_method(returns), (2, 3)),
        "Return behind the experts'": (paper.behind_expert(paper.RETURNS), _mean_by_method(behind, -1.0), (2, 4)),
        "Accuracy (table 3)": (paper.means(paper.ACCURACIES), _mean_by_method(accuracies), (3, 3)),
    }
    found = []
    for title, (theirs, ours, digits) in tables.items():
        rows = []
        for method in (name for name in METHODS if name in theirs):
            name = "experts" if method == "expert" else METHODS[method]
            for whose, row, many in zip(("paper", "here"), (theirs[method], ours.get(method)), digits, strict=True):
                if row:
                    rows.append([f"{name}, {whose}", *(number(row.get(setting), many) for setting in SETTINGS)])
        found.append(Table(title, ["method", *SETTINGS], rows))
    return *found, paper.DIFFERENCES


def _mean_by_method(values: Values, sign: float = 1.0) -> dict[str, dict[str, float]]:
    """By method and setting the mean over seeds."""
    found: dict[str, dict[str, float]] = {}
    for setting, methods in values.items():
        for method, runs in methods.items():
            if runs:
                found.setdefault(method, {})[setting] = sign * float(np.mean(list(runs.values())))
    return found


def _weights(outcomes: Sequence[Outcome]) -> tuple[Table | str, ...]:
    rows, truths, orders = [], {name: setting.weights[0] for name, setting in SETTINGS.items()}, _orders(outcomes)
    for setting, methods in values_of(outcomes, lambda one: one.weights[0] if one.weights else None).items():
        for method, runs in methods.items():
            found = np.array(list(runs.values()))
            known = mean_and_interval(found)
            figures = [
                number(float(found.mean()), 3),
                "" if known is None else f"{known[0].standard_error:.3f}",
                interval_text((float(found.min()), float(found.max())), 3),
                number(float(np.abs(found - truths[setting]).max()), 3),
            ]
            rows.append([f"{setting}, {METHODS[method]}", *figures, orders.get((setting, method), "")])
    if not rows:
        return ()
    head = ["setting, method", "mean", "std. error", "lowest to highest", "largest error", "order right"]
    told = (
        "Where both are negative, that of side effects is the rest to -1. Both of every run are in outcomes.csv. Order "
        "right: in how many runs the larger weight is the truly larger one."
    )
    return Table("Weight of tumour over seeds (the paper's figure 3)", head, rows), told, *_held(outcomes)


def _orders(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], str]:
    """By setting and method, in how many runs the order of the weights is right; nothing where they are the same."""
    said: dict[tuple[str, str], list[bool]] = {}
    for one in outcomes:
        if one.row.right_order is not None and len(set(SETTINGS[one.setting].weights)) > 1:
            said.setdefault((one.setting, one.method), []).append(one.row.right_order)
    return {key: f"{sum(right)} of {len(right)}" for key, right in said.items()}


def _held(outcomes: Sequence[Outcome]) -> tuple[Table, ...]:
    """How often intervals and identified sets hold the truth."""
    accounts: dict[str, Callable[[Outcome], Interval | None]] = {
        "90 % interval": lambda one: one.interval,
        "identified set": lambda one: one.identified,
    }
    rows = [
        [
            METHODS[method],
            name,
            f"{one.hits} of {one.runs}",
            percent(one.hits / one.runs),
            interval_text(one.share_interval),
        ]
        for name, interval in accounts.items()
        for method, one in held_truths(outcomes, interval).items()
    ]
    head = ["method", "by its", "runs", "share", "95 % interval of the share"]
    return (Table("How often the truth is held", head, rows),) if rows else ()


def _elsewhere(outcomes: Sequence[Outcome]) -> tuple[Table | str, ...]:
    worlds = list(dict.fromkeys(world for one in outcomes for world in one.elsewhere))
    values = {"the same": values_of(outcomes, lambda one: one.discounted)}
    for world in worlds:
        values[world] = values_of(outcomes, partial(_there, world))
    against = [against_expert(each) for each in values.values()]
    experts = [[runs["expert"] for runs in each.values() if "expert" in runs] for each in values.values()]
    rows = [[METHODS["expert"], *(_pooled(runs) for runs in experts)]]
    rows += [
        [METHODS[name], *(_pooled([runs[name] for runs in each.values() if name in runs]) for each in against)]
        for name in METHODS
    ]
    told = (
        "Discounted return under the true weights, mean over all runs, ± standard error: the expert's, of the policy "
        "that is best for the true weights in each simulator, and what others are behind it. Weights that a method "
        "asks for are optimised anew in each simulator; of cloning, boosting and others without, the policy stays what "
        "it was. More noise: three times as much; longer: half as many steps more; weaker treatment: by a fifth."
    )
    shown = [row for row in rows if any(row[1:])]
    return (Table("Return minus the expert's", ["method", *values], shown), told) if len(shown) > 1 else ()


def _there(world: str, one: Outcome) -> float | None:
    return one.elsewhere.get(world)


def _pooled(runs: Sequence[Mapping[int, float]]) -> str:
    values = [value for each in runs for value in each.values()]
    known = mean_and_interval(values)
    error = "" if known is None else f"\n± {known[0].standard_error:.4f}"
    return f"{number(float(np.mean(values)), 4)}{error}" if values else ""


def _seconds(outcomes: Sequence[Outcome]) -> tuple[Table | str, ...]:
    rows = []
    for method in METHODS:
        jobs = [one for one in outcomes if one.method == method]
        names = list(dict.fromkeys(name for one in jobs for name in one.seconds))
        spent = {name: [one.seconds.get(name, 0.0) for one in jobs] for name in names}
        if jobs:
            spent["whole job, processor"] = [one.cpu for one in jobs]
        rows += [[METHODS[method], name, duration(float(np.mean(took)))] for name, took in spent.items()]
    return (Table("Seconds of every stage, mean over jobs", ["method", "stage", "seconds"], rows),)


def _made(outcomes: Sequence[Outcome], asked: dict[str, Any]) -> tuple[Table | str, ...]:
    settings = asked["settings"]
    demo = settings["demo"]
    told = (
        f"{len(outcomes)} outcomes; {demo['episodes']} episodes each, kappa {demo['kappa']:g}; returns of "
        f"{settings['patients']} patients, {settings['elsewhere']} in the other simulators, the optimum of "
        f"{settings['exact']} without noise."
    )
    return told, *made_with(asked, {one.code for one in outcomes})


def made_with(asked: dict[str, Any], codes: Collection[str]) -> list[str]:
    """Versions and machine, as ``benchmark.json`` states them, and the states of the code where there are several."""
    told = [
        f"Versions: {', '.join(f'{name} {version}' for name, version in asked['versions'].items())}. "
        f"Machine: {asked['machine']}.",
    ]
    if len(codes) > 1:
        told.append(f"The outcomes are of {len(codes)} states of the code: {', '.join(sorted(codes))}.")
    return told


def number(value: float | None, digits: int = 2) -> str:
    """A number as text; empty where there is none."""
    return "" if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def interval_text(ends: Interval | None, digits: int = 2) -> str:
    """``low to high``; empty where there is none."""
    return "" if ends is None else f"{number(ends[0], digits)} to {number(ends[1], digits)}"


def outcome_rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """One row for each outcome: all of its single numbers."""
    rows = []
    for one in outcomes:
        row, scores = one.row, one.row.scores
        first = one.interval or (None, None)
        rows.append(
            {
                "setting": one.setting,
                "method": one.method,
                "seed": one.seed,
                "return": row.return_,
                "discounted": one.discounted,
                "short_of_optimum": one.short,
                "accuracy": row.accuracy,
                "ceiling": one.ceiling,
                "log_likelihood": None if scores is None else scores.log_likelihood.value,
                "weight_tumour": None if row.weights is None else row.weights[0],
                "weight_side_effects": None if row.weights is None else row.weights[1],
                "low_tumour": first[0],
                "high_tumour": first[1],
                "identified_low_tumour": None if one.identified is None else one.identified[0],
                "identified_high_tumour": None if one.identified is None else one.identified[1],
                "kappa": one.kappa,
                **{f"elsewhere: {world}": value for world, value in one.elsewhere.items()},
                "seconds": row.seconds,
                "cpu_seconds": one.cpu,
                "note": row.note,
            }
        )
    return rows


def cell_rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """One row for each measure, setting and method."""
    rows = []
    for name, (_, measure) in MEASURES.items():
        for setting, methods in values_of(outcomes, measure).items():
            for method, one in cells(methods).items():
                rows.append({"measure": name, "setting": setting, "method": method, **cell_numbers(one)})
    return rows


def cell_numbers(one: Cell) -> dict[str, Any]:
    """All that is known of a cell, by column."""
    low, high = one.interval or (None, None)
    behind = one.behind or (None, None)
    return {
        "seeds": one.seeds,
        "mean": one.mean,
        "standard_error": one.standard_error,
        "low": low,
        "high": high,
        "first": one.first,
        "behind_first_low": behind[0],
        "behind_first_high": behind[1],
    }


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV, numbers in full; what a row has not is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown(report: Report) -> str:
    """The report's page as Markdown; a picture lies beside it."""
    lines = [f"# {report.title}", ""]
    for section in report.sections:
        lines += [f"## {section.title}", ""]
        for part in section.page:
            if isinstance(part, Table):
                head, *rows = [f"| {' | '.join(row)} |".replace("\n", " ") for row in (part.head, *part.rows)]
                lines += [f"**{part.title}**", "", head, "|" + " --- |" * len(part.head), *rows, ""]
            else:
                lines += [part if isinstance(part, str) else "![weights over seeds](figure3.svg)", ""]
    return "\n".join(lines)


def weights_picture(outcomes: Sequence[Outcome]) -> str:
    """The paper's figure 3 for every setting: the weights of all runs of every method that gives any, and the truth."""
    known = [one for one in outcomes if one.weights is not None]
    settings = [name for name in SETTINGS if any(one.setting == name for one in known)]
    methods = [name for name in METHODS if any(one.method == name for one in known)]
    rows = max(-(-len(settings) // 3), 1)

    def draw(*panels: Axes) -> None:
        for axes in panels[len(settings) :]:
            axes.set_visible(False)
        for axes, setting in zip(panels, settings, strict=False):
            for i, (name, colour, marker) in enumerate((("tumour", BLUE, "o"), ("side effects", ORANGE, "s"))):
                axes.axhline(SETTINGS[setting].weights[i], color=colour, lw=1, ls="--", label=f"{name}, truth")
                points = [
                    (methods.index(one.method) + 0.24 * (i - 0.5) + 0.02 * (one.seed % 10 - 4.5), one.weights[i])
                    for one in known
                    if one.setting == setting and one.weights is not None
                ]
                axes.plot(*zip(*points, strict=True), marker, color=colour, ms=3.5, alpha=0.7, label=name)
            axes.set_title(setting, fontsize="medium")
            axes.set_xticks(range(len(methods)), [METHODS[name] for name in methods], rotation=60, ha="right")
            axes.set_xlim(-0.6, max(len(methods), 1) - 0.4)

    label = "Weights of tumour and side effects that every method finds in every run, beside the truth."
    drawn = svg("figure3", label, 2.6 * rows + 0.6, draw, shape=(rows, min(max(len(settings), 1), 3)), sharey=True)
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"
