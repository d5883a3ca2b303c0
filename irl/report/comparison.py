"""Tables that set methods, or two runs, side by side."""

from __future__ import annotations

from pathlib import Path

from irl.report.section import Line, Report, Rows, Section, Shown, Table, percent, signed, span
from irl.result.baselines import Baselines, Row
from irl.stages import duration
from irl.studies.comparison import Comparison

MOST = 6
"""Features whose weights are shown, at most: the largest. All are in the file."""


def report_of_baselines(found: Baselines, folder: Path | None = None) -> Report:
    """Every method's weights, what its policy is worth, and what limits both.

    Args:
        found: what was found.
        folder: where ``baselines.json`` was written; None says nothing about files.
    """
    notes = [
        f"{_title(row)}: {row.note if row.error is None else f'failed: {row.error}'}."
        for row in found.rows
        if row.error is not None or row.note
    ]
    written = [] if folder is None else [Line(f"Written to {folder}: baselines.json")]
    weights = [_weights(found)] if any(row.weights for row in found.rows) else []
    shown: tuple[Shown, ...] = (*weights, _policies(found), *_legend(found), *notes, *found.notes, *written)
    return Report("Methods compared", (), (Section("methods", "Methods compared", terminal=shown),))


def _weights(found: Baselines) -> Table:
    """A line for every method that has weights, and one below for each of them."""
    content: Rows = []
    if found.true_weights is not None:
        content += [["truth", "", "", "", ""], *_lines(found, found.true_weights, None)]
    for row in found.rows:
        if row.weights is None:
            continue
        met = [] if row.right_order is None else [f"{row.weight_error:.3f}", "right" if row.right_order else "wrong"]
        content += [[_title(row), "", "", *met], *_lines(found, row.weights, row.intervals)]
    head = ["method, feature", "weight", "90 % interval", *(["largest error", "order"] if found.true_weights else [])]
    return Table("Weights (sizes add up to 1)", head, content)


def _lines(found: Baselines, weights: tuple[float, ...], intervals: dict[str, tuple[float, float]] | None) -> Rows:
    largest = sorted(sorted(range(len(weights)), key=lambda i: -abs(weights[i]))[:MOST])
    blank = [""] * (2 if found.true_weights else 0)
    lines = []
    for i in largest:
        name = found.features[i]
        between = "" if intervals is None else span(intervals[name])
        lines.append([f"  {name}", signed(weights[i]), between, *blank])
    if len(weights) > MOST:
        lines.append([f"  and {len(weights) - MOST} smaller", "", "", *blank])
    return lines


def _policies(found: Baselines) -> Table:
    """What each method's policy knows and what it is worth."""
    head = ["method", "knows", "mu gap", "met", *(["return", "behind"] if found.true_weights else []), "time"]
    content = []
    for row in found.rows:
        if row.error is not None:
            content.append([_title(row), "failed", *[""] * (len(head) - 2)])
            continue
        cells = [f"{row.mu_gap:.3f}", percent(row.accuracy or 0.0)]
        if found.true_weights:
            cells += [_estimate(row.return_, row.return_error), _estimate(row.behind, row.behind_error)]
        content.append([_title(row), _knows(row), *cells, "" if row.seconds is None else duration(row.seconds)])
    return Table("Policies", head, content)


def _title(row: Row) -> str:
    return f"{row.title} ({row.model})" if row.method == "cirl" and row.model else row.title


def _knows(row: Row) -> str:
    """The outcome model, and how far back it looks."""
    if row.method == "majority":
        return "nothing"
    if row.method == "repeat":
        return "last action"
    return f"{row.model or 'no model'}\n{'history' if row.memory else 'x alone'}"


def _estimate(mean: float | None, error: float | None) -> str:
    return "" if mean is None or error is None else f"{signed(mean)}\n± {error:.3f}"


def _legend(found: Baselines) -> list[str]:
    known = "" if found.ceiling is None else f"; nobody can exceed {percent(found.ceiling)}"
    sentences = [
        f"mu gap: distance of the policy's feature expectation from the experts', both in {found.gap_in}. "
        f"met: share of {found.episodes['test']} held-out episodes' decisions{known}."
    ]
    if found.true_weights:
        sentences.append(
            f"return: undiscounted, in the simulator, true weights, the same {found.episodes.get('patients', 0)} "
            "patients and noise for all; behind: what the experts earn more without mistakes. ±: standard errors."
        )
    return sentences


def report_of_comparison(found: Comparison, folder: Path | None = None) -> Report:
    """By how much the weights of two runs differ.

    Args:
        found: what was found.
        folder: where ``comparison.json`` was written; None says nothing about it.
    """
    content = [
        [name, *map(signed, (one.a, one.b, one.difference)), span(one.interval), f"{one.above_zero:.3f}"]
        for name, one in found.differences.items()
    ]
    head = ["feature", "A", "B", "A - B", "90 % interval", "above 0"]
    table = Table("Weights (sizes add up to 1), and A's minus B's", head, content)
    runs = (Line(f"A: {found.a}"), Line(f"B: {found.b}"))
    written = [] if folder is None else [Line(f"Written to {folder}: comparison.json")]
    shown: tuple[Shown, ...] = (*runs, table, *found.notes, *written)
    section = Section("differences", "Weights of two runs", terminal=shown)
    return Report("Two runs compared", (comparison_sentence(found),), (section,))


def comparison_sentence(found: Comparison) -> str:
    """The finding in one sentence; the largest differences first."""
    if not found.clear:
        return "By the 90 % intervals, no weight differs between the two runs."
    # Of two weights of the same sign, the differences are equal but for rounding.
    order = sorted(found.clear, key=lambda name: -round(abs(found.differences[name].difference), 6))
    listed = ", ".join(f"{name} ({found.differences[name].difference:+.2f})" for name in order[:4])
    more = f" and {len(order) - 4} more" if len(order) > 4 else ""
    return f"By the 90 % intervals, these weights differ, A's minus B's: {listed}{more}."
