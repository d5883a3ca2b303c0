"""The table of baselines as readable text on the console."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from irl.report import rows
from irl.report.console import text_table
from irl.result.baselines import Baselines, Row
from irl.stages import duration

MOST = 6
"""Features whose weights are shown, at most: the largest. All are in the file."""


def print_baselines(found: Baselines, folder: Path | None = None, console: Console | None = None) -> None:
    """Print every method's weights, what its policy is worth, and what limits both.

    Args:
        found: what was found.
        folder: where ``baselines.json`` was written; None says nothing about files.
        console: where to print; default: standard output.
    """
    shown = console or Console(highlight=False)
    shown.print()
    said = weight_rows(found)
    if said:
        shown.print(text_table("Weights (sizes add up to 1)", weight_head(found), said))
    shown.print(text_table("Policies", policy_head(found), policy_rows(found)))
    for sentence in _legend(found):
        shown.print(Text(sentence))
    for row in found.rows:
        if row.error is not None or row.note:
            shown.print(Text(f"{_title(row)}: {row.note if row.error is None else f'failed: {row.error}'}."))
    for note in found.notes:
        shown.print(Text(note))
    if folder is not None:
        shown.print(Text(f"Written to {folder}: baselines.json"), soft_wrap=True)


def weight_head(found: Baselines) -> list[str]:
    """Names of the columns of :func:`weight_rows`."""
    return ["method, feature", "weight", "90 % interval", *(["largest error", "order"] if found.true_weights else [])]


def weight_rows(found: Baselines) -> rows.Rows:
    """A line for every method that has weights, and one below for each of them."""
    content: rows.Rows = []
    if found.true_weights is not None:
        content += [["truth", "", "", "", ""], *_lines(found, found.true_weights, None)]
    for row in found.rows:
        if row.weights is None:
            continue
        met = [] if row.right_order is None else [f"{row.weight_error:.3f}", "right" if row.right_order else "wrong"]
        content += [[_title(row), "", "", *met], *_lines(found, row.weights, row.intervals)]
    return content if any(row.weights for row in found.rows) else []


def _lines(found: Baselines, weights: tuple[float, ...], intervals: dict[str, tuple[float, float]] | None) -> rows.Rows:
    largest = sorted(sorted(range(len(weights)), key=lambda i: -abs(weights[i]))[:MOST])
    blank = [""] * (2 if found.true_weights else 0)
    lines = []
    for i in largest:
        name = found.features[i]
        span = "" if intervals is None else rows.span(intervals[name])
        lines.append([f"  {name}", rows.signed(weights[i]), span, *blank])
    if len(weights) > MOST:
        lines.append([f"  and {len(weights) - MOST} smaller", "", "", *blank])
    return lines


def policy_head(found: Baselines) -> list[str]:
    """Names of the columns of :func:`policy_rows`."""
    returns = ["return", "behind"] if found.true_weights else []
    return ["method", "knows", "mu gap", "met", *returns, "time"]


def policy_rows(found: Baselines) -> rows.Rows:
    """What each method's policy knows and what it is worth."""
    content = []
    for row in found.rows:
        if row.error is not None:
            content.append([_title(row), "failed", *[""] * (len(policy_head(found)) - 2)])
            continue
        cells = [f"{row.mu_gap:.3f}", rows.percent(row.accuracy or 0.0)]
        if found.true_weights:
            cells += [_estimate(row.return_, row.return_error), _estimate(row.behind, row.behind_error)]
        content.append([_title(row), _knows(row), *cells, "" if row.seconds is None else duration(row.seconds)])
    return content


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
    return "" if mean is None or error is None else f"{rows.signed(mean)}\n± {error:.3f}"


def _legend(found: Baselines) -> list[str]:
    known = "" if found.ceiling is None else f"; nobody can exceed {rows.percent(found.ceiling)}"
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
