"""Windows of time and discount factors as rows of text, for the console and the page alike."""

from __future__ import annotations

from irl.report.rows import Rows, short, signed, span
from irl.result import Result
from irl.time_sentences import steps_of
from irl.windows_record import TimeWindow

WINDOW_TITLE = "Weights per window of time (* a change beyond chance)"
WINDOW_HEAD = ["feature", "steps", "weight", "90 % interval", "change", "its interval"]
WINDOW_KAPPA_HEAD = ["steps", "decisions", "patients", "kappa", "90 % interval"]
GAMMA_HEAD = ["gamma", "log-likelihood", "minus the best", "standard error", "choice"]
GAMMA_WEIGHT_HEAD = ["feature", "gamma", "weight", "90 % interval"]


def window_rows(result: Result) -> Rows:
    """Feature, window, weight, interval, change since the window before (marked if beyond chance), its interval."""
    rows: Rows = []
    for i, name in enumerate(result.features):
        for window in result.windows:
            if window.found is None:
                continue
            row = [name, _steps(window), signed(window.found.weights[i]), span(window.found.intervals[i])]
            if window.changes is None:
                rows.append([*row, "", ""])
            else:
                change = window.changes[i]
                mark = " *" if change.clear else ""
                rows.append([*row, signed(change.difference) + mark, span(change.interval)])
    return rows


def window_kappa_rows(result: Result) -> Rows:
    """Window, how much was judged, kappa and its interval; those that were not fitted too."""
    rows: Rows = []
    for window in result.windows:
        row = [_steps(window), str(window.decisions), str(window.patients)]
        if window.found is None:
            rows.append([*row, "too few", ""])
        else:
            low, high = window.found.kappa_interval
            rows.append([*row, short(window.found.kappa), f"{short(low)} to {short(high)}"])
    return rows


def gamma_rows(result: Result) -> Rows:
    """Discount factor, how likely it makes held-out decisions, how much less than the best, and which was taken."""
    if result.gammas is None:
        return []
    rows: Rows = []
    for one in result.gammas.tried:
        tied = "tie" if one.tied and len(result.gammas.tied) > 1 else ""
        taken = f"{tied}, taken".removeprefix(", ") if one.gamma == result.gammas.chosen else tied
        numbers = [signed(one.log_likelihood, 4), signed(one.difference, 4), f"{one.standard_error:.4f}"]
        rows.append([f"{one.gamma:g}", *numbers, taken])
    return rows


def gamma_weight_rows(result: Result) -> Rows:
    """Feature, discount factor, and what it would have said of the weight."""
    if result.gammas is None:
        return []
    return [
        [name, f"{one.gamma:g}", signed(one.weights[i]), span(one.intervals[i])]
        for i, name in enumerate(result.features)
        for one in result.gammas.tried
    ]


def _steps(window: TimeWindow) -> str:
    return steps_of(window).removeprefix("steps ")
