"""Tables that set methods, or two runs, side by side."""

from __future__ import annotations

from pathlib import Path

from irl.report.section import MINUS, Line, Report, Section, Shown, Table, percent, signed, span
from irl.result.baselines import Baselines, Row
from irl.result.chances import ChanceScores
from irl.result.sentences import first_of
from irl.stages import duration
from irl.studies.comparison import Comparison

MOST = 6
"""Features whose weights are shown, at most: the largest. All are in the file."""


def report_of_baselines(found: Baselines, folder: Path | None = None) -> Report:
    """Every method's weights, what its policy is worth, and what limits both.

    ``folder`` is where ``baselines.json`` was written; None says nothing about files.
    """
    truth = found.true_weights is not None
    notes = [
        f"{_title(row)}: {row.note if row.error is None else f'failed: {row.error}'}."
        for row in found.rows
        if row.error is not None or row.note
    ]
    alike: dict[float, list[str]] = {}
    for row in found.rows:
        if row.mu_gap is not None and row.method != "expert":
            alike.setdefault(round(row.mu_gap, 12), []).append(_title(row))
    notes += [
        f"The mu gap does not tell {', '.join(names[:-1])} and {names[-1]} apart: in {found.gap_in} their policies do "
        "the same."
        for names in alike.values()
        if len(names) > 1
    ]
    known = "" if found.ceiling is None else f"; nobody can exceed {percent(found.ceiling)}"
    legend = [
        f"mu gap: distance of the policy's feature expectation from the experts', both in {found.gap_in}. "
        f"met: share of {found.episodes['test']} held-out episodes' decisions{known}."
    ]
    foreseen = _decisions(found)
    if foreseen:
        legend.insert(0, _DECISIONS)
    if truth:
        legend.append(
            f"return: undiscounted, in the simulator, true weights, the same {found.episodes.get('patients', 0)} "
            "patients and noise for all; behind: what the experts earn more without mistakes. ±: standard errors."
        )
    head = ["method", "knows", "mu gap", "met", *(["return", "behind"] if truth else []), "time"]
    acting = [row for row in found.rows if row.error or row.mu_gap is not None]
    policies = [_policy(row, len(head), truth) for row in acting]
    weights = [_weights(found)] if any(row.weights for row in found.rows) else []
    written = [] if folder is None else [Line(f"Written to {folder}: baselines.json")]
    shown: tuple[Shown, ...] = (
        *weights,
        *foreseen,
        Table("Policies", head, policies),
        *legend,
        *notes,
        *found.notes,
        *written,
    )
    return Report("Methods compared", (), (Section("methods", "Methods compared", terminal=shown),))


_DECISIONS = (
    "Foreseen: log-likelihood per decision and accuracy of the likeliest action; how well chances rank decisions (of "
    "two actions the rarer, of more the mean); how far they are from what was done (Brier score, halved) and from "
    "frequencies (calibration error). ±: standard errors, by patient. A method without figures gives no chances: its "
    "accuracy is what its policy meets."
)


_ACCOUNTS = {
    "cirl": "CIRL",
    "habit": "habit alone",
    "last_action": "last-action table",
    "boosting": "gradient boosting",
    "cloning": "behaviour cloning",
    "frequencies": "most frequent action",
}


def _decisions(found: Baselines) -> list[Table]:
    """How well every method foresees decisions, the best first, and last those that give no chances.

    The accounts of a run that was judged by all patients, each foreseen from others, have a table of their own.
    """
    crossed = found.cross_validated
    own = {_ACCOUNTS[name]: scores for name, scores in crossed.items() if name in _ACCOUNTS}
    rows = [row for row in found.rows if row.accuracy is not None and not (crossed and row.method == "cirl")]
    held_out = {_title(row): row.scores for row in rows}
    without = {_title(row): f"{row.accuracy:.3f}" for row in rows if row.scores is None}
    tables = []
    for title, of, none in (("every patient's from others", own, {}), ("held out", held_out, without)):
        known = [(name, one) for name, one in of.items() if one is not None]
        if known:
            known.sort(key=lambda each: -each[1].log_likelihood.value)
            first = known[0][1]
            told = f"Decisions foreseen, {title} ({first.decisions} of {first.patients} patients)"
            content = [[name, *_figures(one)] for name, one in known]
            content += [[name, "", met, *[""] * 4] for name, met in none.items()]
            tables.append(
                Table(told, ["method", "log-lik.", "accuracy", "AUROC", "AUPRC", "Brier", "calibr."], content)
            )
    return tables


def _figures(one: ChanceScores) -> list[str]:
    shown = (one.log_likelihood, one.accuracy, one.auroc, one.auprc, one.brier, one.calibration_error)
    return ["" if of is None else f"{of.value:.3f}\n± {of.standard_error:.3f}".replace("-", MINUS) for of in shown]


def _weights(found: Baselines) -> Table:
    """A line for every method that has weights, and one below for each of the largest of them."""
    head = ["method, feature", "weight", "90 % interval"]
    content: list[list[str]] = []

    def add(title: str, weights: tuple[float, ...], intervals: dict[str, tuple[float, float]], *met: str) -> None:
        content.append([title, "", "", *met])
        for i in sorted(sorted(range(len(weights)), key=lambda i: -abs(weights[i]))[:MOST]):
            name = found.features[i]
            between = span(intervals[name]) if name in intervals else ""
            content.append([f"  {name}", signed(weights[i]), between])
        if len(weights) > MOST:
            content.append([f"  and {len(weights) - MOST} smaller"])

    if found.true_weights is not None:
        head += ["largest error", "order"]
        add("truth", found.true_weights, {})
    for row in found.rows:
        if row.weights is not None:
            met = (
                [] if row.right_order is None else [f"{row.weight_error:.3f}", "right" if row.right_order else "wrong"]
            )
            add(_title(row), row.weights, row.intervals or {}, *met)
    filled = [[*row, *[""] * (len(head) - len(row))] for row in content]
    return Table("Weights (the sizes of a draw add up to 1)", head, filled)


def _policy(row: Row, width: int, truth: bool) -> list[str]:
    """What a method's policy knows and what it is worth."""
    if row.error is not None:
        return [_title(row), "failed", *[""] * (width - 2)]
    # The outcome model, and how far back it looks.
    knows = {"majority": "nothing", "repeat": "last action"}.get(
        row.method, f"{row.model or 'no model'}\n{'history' if row.memory else 'x alone'}"
    )
    worth = [
        "" if mean is None or error is None else f"{signed(mean)}\n± {error:.3f}"
        for mean, error in (((row.return_, row.return_error), (row.behind, row.behind_error)) if truth else ())
    ]
    time = "" if row.seconds is None else duration(row.seconds)
    return [_title(row), knows, f"{row.mu_gap:.3f}", percent(row.accuracy or 0.0), *worth, time]


def _title(row: Row) -> str:
    """With the outcome model where the name does not tell it: CIRL's, or the linear law where networks were dropped."""
    hidden = row.method == "cirl" or (row.method != "ar" and row.model == "ar")
    return f"{row.title} ({row.model})" if hidden and row.model else row.title


def report_of_comparison(found: Comparison, folder: Path | None = None) -> Report:
    """What both runs say of their weights, and by how much these differ where they mean something.

    ``folder``: where ``comparison.json`` was written, if anywhere.
    """
    head = ["feature", "A", "B", "A - B", "90 % interval", "above 0"]
    content = [
        [name, *map(signed, (one.a, one.b, one.difference)), span(one.interval), f"{one.above_zero:.3f}"]
        for name, one in found.differences.items()
        if name not in found.uninterpreted
    ]
    unread = [
        f"{name} is not compared, since its weight is not interpreted ({why})."
        for name, why in found.uninterpreted.items()
    ]
    table = Table("Weights, and A's minus B's", head, content)
    written = [] if folder is None else [Line(f"Written to {folder}: comparison.json")]
    tables = [] if found.meaningless or not content else [table]
    shown: tuple[Shown, ...] = (*tables, *unread, *found.notes, *written)
    verdicts = tuple(
        f"{run} ({folder_of}): {verdict}."
        for run, folder_of, verdict in (("A", found.a, found.verdict_a), ("B", found.b, found.verdict_b))
    )
    section = Section("differences", "Weights of two runs", terminal=shown)
    return Report("Two runs compared", (*verdicts, comparison_sentence(found)), (section,))


def comparison_sentence(found: Comparison) -> str:
    """The finding in one sentence; the largest differences first."""
    if found.meaningless:
        says = "both runs say" if len(found.meaningless) == 2 else f"{found.meaningless[0]} says"
        return f"No difference is announced, since {says} that weights mean nothing; comparison.json keeps the numbers."
    if set(found.uninterpreted) == set(found.differences):
        return "No difference is announced, since no weight is interpreted; comparison.json keeps the numbers."
    if not found.clear:
        return "By the 90 % intervals, no weight differs between the two runs."
    # Of two weights of the same sign, the differences are equal but for rounding.
    order = sorted(found.clear, key=lambda name: -round(abs(found.differences[name].difference), 6))
    listed = first_of([f"{name} ({found.differences[name].difference:+.2f})" for name in order])
    return f"By the 90 % intervals, these weights differ, A's minus B's: {listed}."
