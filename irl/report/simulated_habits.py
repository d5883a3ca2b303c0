"""The section of simulated experts who have habits (:mod:`irl.result.simulated_habits`)."""

from __future__ import annotations

from irl.report.section import NO_BREAK, Details, Section, Table, explained, short, signed, span
from irl.report.weights import FOLD
from irl.result.result import Result
from irl.result.sentences import weights_mean_something

_NAMES = {"repeat": "repeating the action before", "treat": "treating"}


def simulated_habits_section(result: Result) -> Section | None:
    """What was found of habits and preferences, and what a model without habits says; None where none are known."""
    found = result.simulated_habits
    if found is None or result.true_weights is None:
        return None
    habits = Table(
        "Habits",
        ["logit of", "truth", "found", "90 % interval"],
        [
            [_NAMES[name], signed(logit.true), signed(logit.found), span(logit.interval)]
            for name, logit in found.logits.items()
        ],
    )
    without = found.without
    each = zip(result.features, result.true_weights, result.weights, without.weights, without.intervals, strict=True)
    rows = [
        [name, signed(truth), _with(signed(own), span(result.intervals[name])), _with(signed(other), span(interval))]
        for name, truth, own, other, interval in each
    ]
    if result.kappa is not None:
        kappas = ((result.kappa.mean, result.kappa.interval), (without.kappa, without.kappa_interval))
        rows.append(["kappa", short(found.kappa), *(_with(short(mean), _between(ends)) for mean, ends in kappas)])
    head = ["feature", "truth", "with habits", "without"]
    weights = Table("Weights with and without habits in the model (90 % interval)", head, rows)
    shows = (
        "The simulated experts have habits beside preferences: logits of repeating the action before and of treating, "
        "which are added to kappa Q. The first table sets them beside what was found; the second sets the weights "
        "beside what the paper's model, which knows of no habits, says of the same decisions by the same plans."
    )
    read = (
        "A model without habits has to explain with outcomes that actions are repeated. Its weights are then the wrong "
        "answer to that, however narrow their intervals."
    )
    cannot = (
        "Experts outside a simulator may have other habits, of which the action before says nothing. There, a model "
        "with habits is the more cautious one: what habits can explain as well, it does not call a preference."
    )
    meant = weights_mean_something(result.verdict)
    page = (explained(shows, read, cannot), habits, weights if meant else Details(FOLD, (weights,)))
    shown = (habits.titled("Habits of the simulated experts"), *([weights] if meant else []))
    return Section("simulated-habits", "Experts with habits", page, shown)


def _between(interval: tuple[float, float]) -> str:
    return NO_BREAK.join((short(interval[0]), "to", short(interval[1])))


def _with(value: str, interval: str) -> str:
    return f"{value}{NO_BREAK}({interval})"
