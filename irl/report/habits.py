"""The section of the habits that were found beside preferences (:mod:`irl.result.habits`)."""

from __future__ import annotations

from collections.abc import Sequence

from cirl_gym.data.habits import ACTIONS_BEFORE, NONE_YET, PREVIOUS2
from irl.report.section import Details, Rows, Section, Table, explained, percent, signed, span
from irl.result.effects import action_labels
from irl.result.habits import HabitContext, HabitLevel
from irl.result.result import Result

_LISTED = 3
"""Actions that are named for each level, at most: the likeliest."""
_SHOWN = 12
"""Rows on a terminal, at most; all are on the page."""


def habits_section(result: Result) -> Section | None:
    """What would be chosen in every context by habit alone; None where no habits were looked for."""
    found = result.habits
    if found is None:
        return None
    names = action_labels(result.table, found.actions)
    rows: Rows = []
    logits: Rows = []
    for context in found.contexts:
        for level in context.levels:
            about = _situation(context, level, dict(zip(found.actions, names, strict=True)))
            by_habit, in_fact = _chosen(level, names) if level.decisions else ("never seen", "")
            rows.append([about, f"{level.decisions:,}", by_habit, in_fact])
            each = zip(names, level.logits, level.intervals, level.chances, level.between, strict=True)
            logits += [
                [about, name, signed(logit), span(ends), percent(chance), f"{percent(low)} to {percent(high)}"]
                for name, logit, ends, chance, (low, high) in each
            ]
    table = Table("Habits", ["situation", "decisions", "chosen by habit alone (90 % interval)", "in fact"], rows)
    head = ["situation", "action", "logit", "90 % interval", "chance", "90 % interval"]
    others = (
        " Where habits depend on several things, the others are taken at the mean of their levels."
        if len(found.contexts) > 1
        else ""
    )
    terms = explained(
        "What the experts would choose, and how often, if no outcome mattered: the chances that the logits of habit "
        f"make.{others}",
        "The nearer a chance is to 100\N{NO-BREAK SPACE}%, the more is done by habit in that situation. The last "
        "column is how often these actions were taken in fact: the difference is what preferences make, from patient "
        "to patient.",
        "Whether a habit is a reflex or a reason: repeating a treatment can be a course that is meant to be finished, "
        "a cost of changing, or something that the experts see and the table does not hold. What "
        "outcomes speak for at every decision alike can hardly be told from habit: only both together are known well.",
    )
    page = (terms, table, Details("Logits of the habits", (Table("Logits of the habits", head, logits),)))
    short = Table(table.title, ["situation", "decisions", "chosen by habit alone", "in fact"], rows[:_SHOWN])
    more = [] if len(rows) <= _SHOWN else [f"And {len(rows) - _SHOWN} more situations on the page."]
    return Section("habits", "Habits beside preferences", page, (short, *more))


def _situation(context: HabitContext, level: HabitLevel, names: dict[str, str]) -> str:
    if context.name not in ACTIONS_BEFORE:
        return f"{context.name} {level.level}"
    if context.name == PREVIOUS2:
        early = level.level == NONE_YET
        return "first two decisions" if early else f"{names.get(level.level, level.level)} two steps before"
    return "first decision" if level.level == NONE_YET else f"after {names.get(level.level, level.level)}"


def _chosen(level: HabitLevel, names: Sequence[str]) -> tuple[str, str]:
    """The likeliest actions with their chances, of two the likelier alone; and the share of decisions for each."""
    order = sorted(range(len(names)), key=lambda i: -level.chances[i])[: 1 if len(names) == 2 else _LISTED]
    said = []
    for i in order:
        low, high = (100 * end for end in level.between[i])
        said.append(f"{names[i]} in {100 * level.chances[i]:.0f} % ({low:.0f} to {high:.0f} %)")
    return ", ".join(said), ", ".join(f"{100 * level.taken[i] / level.decisions:.0f} %" for i in order)
