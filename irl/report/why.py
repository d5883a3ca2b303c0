"""Why single decisions were made (:mod:`irl.studies.why`): one on a terminal, many to choose from on a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray, IntArray
from irl.report.courses import Courses, Panel
from irl.report.section import (
    MINUS,
    NO_BREAK,
    Chooser,
    Details,
    Part,
    Report,
    Section,
    Shown,
    Table,
    explained,
    percent,
    short,
    signed,
)
from irl.result.effects import action_labels
from irl.result.result import Result
from irl.result.sentences import NO_FINDING, NOT_READ, weights_mean_something
from irl.studies.why import AHEAD, Why

_ACTIONS = 4
"""Actions of which details are shown: what was done, the reference, and the likeliest others."""
_BESIDE = 2
"""Columns of a table on a terminal."""
_FEATURES = 6
"""Features whose courses are shown on a terminal."""
_TERMS = 4
"""Terms that are named in a sentence."""
_CHARACTERS = 2_500_000
"""What all decisions together may take of a page, about."""
FOLLOWED = "followed"


def report_of_why(result: Result, why: Why) -> Report:
    """One decision, for a terminal."""
    labels = action_labels(result.table, why.actions)
    shown: list[Shown] = [*_sentences(result, why, labels), _chances(why, labels)]
    columns, others = _shown(why), _compared(why)
    meant = weights_mean_something(result.verdict)
    shown += [_contributions(result, why, labels, part, meant) for part in _parts(others)]
    courses = range(min(len(why.features), _FEATURES))
    shown += [_course_table(why, labels, part, f) for f in courses for part in _parts(columns)]
    if left := len(why.features) - len(courses):
        shown.append(f"The predicted courses of {left} more features are on the page, and in Python (irl.Run.why).")
    section = Section("why", "Why this decision", terminal=tuple(shown))
    title = f"Why this decision: {why.episode}, step {why.step}"
    return Report(title, (), (section,), f"{title}.{'' if meant else f' {NO_FINDING}'}")


def most_shown(result: Result, batch: Batch) -> int:
    """How many decisions a page has room for."""
    actions = min(batch.n_actions, _ACTIONS)
    each = 300 + 20 * batch.n_actions + len(result.features) * actions * (40 + 46 * AHEAD)
    return _CHARACTERS // each


def why_section(result: Result, whys: Sequence[Why], held_out: int) -> Section | None:
    """Decisions to choose from; None where there are none.

    Args:
        result: of the run.
        whys: episode after episode.
        held_out: decisions of all held-out episodes, shown or not.
    """
    if not whys:
        return None
    labels = action_labels(result.table, whys[0].actions)
    episodes = list(dict.fromkeys(one.episode for one in whys))
    meant = weights_mean_something(result.verdict)
    chooser = Chooser(
        name="why",
        labels=("Patient" if all(one.patient == one.episode for one in whys) else "Episode", "Step"),
        groups=tuple(episodes),
        members=tuple(tuple(str(one.step) for one in whys if one.episode == name) for name in episodes),
        shown=tuple(_page(result, one, labels) for one in whys),
        without="Another decision is chosen with the help of a script, which does not run here.",
    )
    shows = (
        "One decision of a held-out patient: how likely each action is by preferences and habit together, what each "
        "outcome adds to that, what is predicted, what was done and what followed."
    )
    read = (
        "Contributions are in log-odds, against the likeliest action that was not taken: 0.7 doubles the odds, and all "
        "of them add up. That of an outcome is kappa times its weight times the difference of its discounted sum along "
        "the courses predicted. A course begins with its action and goes on with the plan that serves the weights "
        "best. Intervals (90\N{NO-BREAK SPACE}%) of contributions are those of weights and habit; those of courses are "
        "the scatter of what is observed around what is predicted."
    )
    cannot = (
        "What an expert thought, and whether the decision was right. What the outcome model gets wrong is in the "
        "contributions too."
    )
    counted = f"All {held_out:,} held-out decisions are here."
    if len(whys) < held_out:
        counted = f"{len(whys):,} of {held_out:,} held-out decisions are here; cirl why explains every one."
    page: tuple[Part, ...] = (*(() if meant else (NO_FINDING,)), chooser, counted, explained(shows, read, cannot))
    return Section("why", "Why this decision", page)


def _page(result: Result, why: Why, labels: Sequence[str]) -> tuple[Part, ...]:
    """One decision, for a page: its parts are those of every other."""
    columns, others = _shown(why), _compared(why)
    meant = weights_mean_something(result.verdict)
    outcomes = _contributions(result, why, labels, others, meant)
    parts: list[Part] = [*_sentences(result, why, labels), _chances(why, labels), outcomes]
    if not meant:
        each = _contributions(result, why, labels, others, True)
        parts.append(Details("What each outcome contributes, which is no finding", (each,)))
    parts += [_courses(why, labels, columns), _next_table(why, labels, columns)]
    return tuple(parts)


def _shown(why: Why) -> list[int]:
    """Actions of which details are shown."""
    likeliest = np.argsort(-why.log_chances, kind="stable").tolist()
    return sorted(list(dict.fromkeys([why.taken, why.reference, *likeliest]))[:_ACTIONS])


def _compared(why: Why) -> list[int]:
    """Those of them that are compared with the reference, what was done first."""
    return sorted((a for a in _shown(why) if a != why.reference), key=lambda a: a != why.taken)


def _parts(columns: Sequence[int]) -> list[Sequence[int]]:
    return [columns[first : first + _BESIDE] for first in range(0, len(columns), _BESIDE)]


def _sentences(result: Result, why: Why, labels: Sequence[str]) -> tuple[str, str]:
    """What was done, and what tips the decision."""
    taken, likeliest = why.taken, why.likeliest
    chances = [percent(chance).replace(" ", NO_BREAK) for chance in why.chances]
    done = f"Done: {labels[taken]}, which the model foresees with {chances[taken]}"
    if taken == likeliest:
        done += ", more than any other action."
    else:
        done += f"; it foresees {labels[likeliest]} with {chances[likeliest]}."
    if why.allowed.sum() == 1:
        return done, "Rules left no other action."
    by_outcome = why.contributions[taken]
    terms = {} if result.habits is None else {"habit": float(why.habit[taken])}
    if weights_mean_something(result.verdict):
        read = [j for j, name in enumerate(why.outcomes) if name not in result.uninterpreted]
        first = sorted(read, key=lambda j: -abs(by_outcome[j]))
        terms |= {why.outcomes[j]: float(by_outcome[j]) for j in first[:_TERMS]}
        named = sum(float(by_outcome[j]) for j in first[:_TERMS])
        if len(first) < len(why.outcomes):
            terms[f"what is {NOT_READ}"] = float(by_outcome.sum()) - sum(float(by_outcome[j]) for j in first)
        if first[_TERMS:]:
            terms["other outcomes"] = sum(float(by_outcome[j]) for j in read) - named
    else:
        terms["outcomes, which are no finding,"] = float(by_outcome.sum())
    said = ", ".join(f"{name} {signed(value, 2)}" for name, value in terms.items())
    total = signed(float(why.log_odds[taken]), 2)
    return done, f"What tips it, {labels[taken]} against {labels[why.reference]}: {said}; log-odds {total}."


def _chances(why: Why, labels: Sequence[str]) -> Table:
    """All actions."""

    def odds(a: int) -> str:
        if not why.allowed[a]:
            return "forbidden"
        return "reference" if a == why.reference else signed(float(why.log_odds[a]), 2)

    rows = [
        [label, percent(why.chances[a]), odds(a), "yes" if a == why.taken else ""] for a, label in enumerate(labels)
    ]
    return Table("How likely each action is", ["action", "chance", "log-odds", "done"], rows)


def _contributions(result: Result, why: Why, labels: Sequence[str], actions: Sequence[int], outcomes: bool) -> Table:
    """What adds up to the log-odds of some actions; the outcomes one by one or together."""
    head = [f"{labels[a]} against {labels[why.reference]}" for a in actions]

    def row(name: str, values: FloatArray, ends: FloatArray | None = None) -> list[str]:
        return [name, *(_with_ends(values[a], None if ends is None else ends[:, a], 2) for a in actions)]

    rows = [] if result.habits is None else [row("habit", why.habit, why.habit_ends)]
    if outcomes:
        for j, name in enumerate(why.outcomes):
            if name in result.uninterpreted:
                rows.append([name, *(NOT_READ for _ in actions)])
            else:
                rows.append(row(name, why.contributions[:, j], why.contribution_ends[:, :, j]))
    else:
        rows.append(row("outcomes, no finding", why.by_outcomes))
    rows.append(row("together: log-odds", why.log_odds))
    return Table("What each adds to the log-odds", ["of", *head], rows)


def _with_ends(value: float, ends: FloatArray | None, digits: int) -> str:
    said = signed(float(value), digits)
    return said if ends is None else f"{said} ({signed(float(ends[0]), digits)} to {signed(float(ends[1]), digits)})"


def _predicted(why: Why, a: int, k: int, f: int) -> str:
    """What is predicted of a feature, k steps ahead from 0 on; ``ended`` where that is likelier."""
    if k >= why.lasting[a]:
        return "ended"
    low, high = why.course_ends[:, a, k, f]
    # Two digits of the interval's width, and no more of the number.
    digits = int(np.clip(1 - np.floor(np.log10(max(high - low, 1e-9))), 0, 6)) if high > low else None
    value, *ends = (
        short(each) if digits is None else f"{each:.{digits}f}".replace("-", MINUS)
        for each in (why.courses[a, k, f], low, high)
    )
    return f"{value} ({ends[0]} to {ends[1]})"


def _next_table(why: Why, labels: Sequence[str], actions: Sequence[int]) -> Table:
    """The next observation of every feature."""
    rows = [
        [name, short(why.now[f]), *(_predicted(why, a, 0, f) for a in actions), short(why.followed[0, f])]
        for f, name in enumerate(why.features)
    ]
    return Table("The next observation", ["feature", "before", *(f"if {labels[a]}" for a in actions), FOLLOWED], rows)


def _course_table(why: Why, labels: Sequence[str], actions: Sequence[int], f: int) -> Table:
    """A feature at every step ahead."""
    rows = []
    for k in range(why.courses.shape[1]):
        followed = short(why.followed[k, f]) if k < len(why.done) else "ended"
        rows.append([f"+{k + 1}", *(_predicted(why, a, k, f) for a in actions), followed])
    return Table(why.features[f], ["step", *(f"if {labels[a]}" for a in actions), FOLLOWED], rows)


def _courses(why: Why, labels: Sequence[str], actions: Sequence[int]) -> Courses:
    """The same as a picture."""
    names = [f"if {labels[a]}" for a in actions]
    panels = []
    for f, name in enumerate(why.features):
        lines = [np.append(why.now[f], why.courses[a, : why.lasting[a], f]) for a in actions]
        bands = [_from_now(why.now[f], why.course_ends[:, a, :, f], why.lasting, a) for a in actions]
        seen = np.append(why.now[f], why.followed[:, f])
        named = zip([*names, "what followed"], [*lines, seen], strict=True)
        said = f"{name} now {short(why.now[f])}; " + "; ".join(
            f"{each} {', '.join(map(short, course[1:]))}" for each, course in named
        )
        panels.append(Panel.of(name, said, lines, bands, seen, AHEAD, short))
    return Courses(tuple(names), tuple(panels), AHEAD)


def _from_now(now: float, ends: FloatArray, lasting: IntArray, a: int) -> FloatArray:
    """``[2, k + 1]`` ends of intervals that begin at the last observation."""
    return np.concatenate([np.full((2, 1), now), ends[:, : lasting[a]]], axis=1)
