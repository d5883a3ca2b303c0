"""The section of what actions change (:mod:`irl.result.effects`): what every weight rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from irl.report import drawing
from irl.report.section import MINUS, NO_BREAK, Details, Part, Picture, Section, Shown, Table, explained, percent, short
from irl.result.codec import Interval
from irl.result.effects import Effect
from irl.result.result import Result

_SHOWN = 12
"""Effects on a terminal, at most; all are on the page."""
_OUTSIDE = 1e-3
"""A share of steps that nobody saw above which sums are called extrapolated."""
_NOTHING = 1e-3
"""An effect is shown as 0 where it is a smaller share of the largest at any level."""


def effects_section(result: Result) -> Section | None:
    """Every effect beside the plain difference in the data; None where a run has none."""
    if not result.effects:
        return None
    known = [one for one in result.effects if not one.unknown]
    order = [*known, *(one for one in result.effects if one.unknown)]
    several = sorted({one.reference for one in result.effects})
    shows = (
        f"What taking an action changes, against {several[0]} in the same history, by the outcome model: in the next "
        "value, and in the discounted sum to the end if it is taken once. Units are those of the outcome. The plain "
        "difference compares what followed in the data, whoever was treated."
    )
    read = (
        "Where the estimate differs much from the plain difference, those who were treated were different before. An "
        "interval that holds 0 leaves the direction open: such an effect is called unknown, and a weight that rests "
        "on unknown effects alone is not interpreted."
    )
    cannot = (
        "The 90\N{NO-BREAK SPACE}% intervals hold the chance of which patients were seen, and no error of the model's "
        "form; what the table does not hold can have moved both, the action and the outcome. How strong that would "
        "have to be stands below."
    )
    page: list[Part] = [explained(shows, read, cannot), *map(_table, _by_action(order))]
    rests = [one.sentence for one in sorted(result.overlap, key=lambda one: one.worth or 0.0)]
    page += _first(rests, "Of all actions")
    curves = [one for one in result.effects if one.by_level]
    if curves:
        says = "The effect on the next value, by the current level of what the outcome is read from."
        pictures = (Picture(partial(drawing.effect_svg, one, i)) for i, one in enumerate(curves[:_SHOWN]))
        page.append(Details("Where the effect differs by level", (says, *pictures, _by_level(curves))))
    hidden = _sensitivities(order)
    page += _first(hidden, "Of all effects")
    shown: list[Shown] = [*map(_short_table, _by_action(order[:_SHOWN]))]
    if order[_SHOWN:]:
        shown.append(f"And {len(order) - _SHOWN} more effects on the page.")
    shown += [*rests[:3], *_sensitivities(known)[:3]]
    if (outside := max(one.outside for one in result.effects)) > _OUTSIDE:
        page.append(
            f"Of the steps behind the effects on sums, {percent(outside)} lie outside what was observed of a feature: "
            "their intervals cannot hold what nobody saw."
        )
    if result.table is not None:
        from cirl_gym.tables import NOT_CHECKED  # brings pandas

        page.append(NOT_CHECKED)
        shown.append(NOT_CHECKED)
    return Section("effects", "What actions change", tuple(page), tuple(shown))


def _first(said: Sequence[str], summary: str) -> list[Part]:
    """The first sentences, and all further ones in a fold."""
    more = tuple(said[_SHOWN:])
    return [*said[:_SHOWN], *([Details(summary, more)] if more else [])]


def _by_action(effects: Sequence[Effect]) -> list[list[Effect]]:
    """One list for every action, in the order in which they come first."""
    actions = dict.fromkeys(one.action for one in effects)
    return [[one for one in effects if one.action == action] for action in actions]


def _table(effects: Sequence[Effect]) -> Table:
    """All that is known of the effects of one action."""
    first, rows = effects[0], []
    for one in effects:
        remark = "contradicted" if one.contradicted else "unknown" if one.unknown else ""
        estimates = (_estimated(one.next, one.next_interval), _estimated(one.total, one.total_interval))
        rows.append([one.outcome, *estimates, _plain(one), remark])
    head = ["outcome", "effect on the next value", "on the sum", "plain difference", "remark"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    counts = f"{first.decisions:,} against {first.reference_decisions:,} decisions, 90\N{NO-BREAK SPACE}% intervals"
    return Table(f"Effects of {first.action} against {first.reference} ({counts})", head, rows)


def _short_table(effects: Sequence[Effect]) -> Table:
    """The same for a terminal."""
    title = f"Effects of {effects[0].action} against {effects[0].reference}"
    return Table(
        title,
        ["outcome", "on the next value (90 %)", "plain"],
        [[one.outcome, _next(one), _plain(one)] for one in effects],
    )


def _plain(effect: Effect) -> str:
    return "" if effect.plain is None else _number(effect.plain)


def _sensitivities(effects: Sequence[Effect]) -> list[str]:
    """Each sentence once: outcomes that are read from one feature share it."""
    return [said for said in dict.fromkeys(one.sensitivity_sentence for one in effects) if said]


def _named(effect: Effect) -> str:
    return f"{effect.action} on {effect.outcome}"


def _next(effect: Effect) -> str:
    """The effect on the next value, without a number in the middle where not even the direction is known."""
    if effect.unknown and effect.next_interval is not None:
        return f"unknown ({_between(effect.next_interval)})"
    return _estimated(effect.next, effect.next_interval)


def _by_level(effects: Sequence[Effect]) -> Table:
    rows = []
    for one in effects:
        # Where an outcome cannot change, what rounding leaves of it is no number to be read.
        least = _NOTHING * max(abs(part.effect) for part in one.by_level)
        for part in one.by_level:
            level = NO_BREAK.join((short(part.level[0]), "to", short(part.level[1])))
            rows.append([_named(one), level, _estimated(part.effect, part.interval, least)])
    return Table("Effects by level", ["effect of", "current level", "on the next value"], rows)


def _estimated(value: float, interval: Interval | None, least: float = 0.0) -> str:
    return _number(value, least) if interval is None else f"{_number(value, least)} ({_between(interval, least)})"


def _between(interval: Interval, least: float = 0.0) -> str:
    """``low to high``, never broken across lines."""
    return NO_BREAK.join((_number(interval[0], least), "to", _number(interval[1], least)))


def _number(value: float, least: float = 0.0) -> str:
    """Three significant digits with a sign, as typeset; what is smaller than ``least`` is 0."""
    text = f"{value:+,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:+.3g}"
    return short(0.0) if value == 0 or abs(value) < least else text.replace("-", MINUS)
