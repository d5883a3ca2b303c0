"""The section of what actions change (:mod:`irl.result.effects`): what every weight rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from irl.report import drawing
from irl.report.section import Details, Part, Picture, Reasons, Section, Shown, Table, explained, short
from irl.result.codec import Interval
from irl.result.effects import Effect
from irl.result.result import Result

_SHOWN = 12
"""Effects on a terminal, at most; all are on the page."""


def effects_section(result: Result) -> Section | None:
    """Every effect beside the plain difference in the data; None where a run has none."""
    if not result.effects:
        return None
    known = [one for one in result.effects if not one.unknown]
    order = [*known, *(one for one in result.effects if one.unknown)]
    table = _table(order)
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
    page: list[Part] = [explained(shows, read, cannot), table]
    rests = [one.sentence for one in sorted(result.overlap, key=lambda one: one.worth or 0.0)]
    page += [*rests[:_SHOWN], *([Details("Of all actions", tuple(rests[_SHOWN:]))] if rests[_SHOWN:] else [])]
    curves = [one for one in result.effects if one.by_level]
    if curves:
        says = "The effect on the next value, by the current level of what the outcome is read from."
        pictures = (Picture(partial(drawing.effect_svg, one, i)) for i, one in enumerate(curves[:_SHOWN]))
        page.append(Details("Where the effect differs by level", (says, *pictures, _by_level(curves))))
    hidden = _sensitivities(order)
    page += [*hidden[:_SHOWN], *([Details("Of all effects", tuple(hidden[_SHOWN:]))] if hidden[_SHOWN:] else [])]
    if result.uninterpreted:
        page += ["Weights that are not interpreted:", Reasons(tuple(result.uninterpreted.items()))]
    short_rows = [[_named(one), _next(one), "" if one.plain is None else _number(one.plain)] for one in order[:_SHOWN]]
    shown: list[Shown] = [Table(table.title, ["effect of", "on the next value (90 %)", "plain"], short_rows)]
    if order[_SHOWN:]:
        shown.append(f"And {len(order) - _SHOWN} more effects on the page.")
    shown += [*rests[:3], *_sensitivities(known)[:3]]
    if result.table is not None:
        from cirl_gym.tables import NOT_CHECKED  # brings pandas

        page.append(NOT_CHECKED)
        shown.append(NOT_CHECKED)
    return Section("effects", "What actions change", tuple(page), tuple(shown))


def _table(effects: Sequence[Effect]) -> Table:
    rows = []
    for one in effects:
        said = f"contradicts: {one.stated}" if one.contradicted else "unknown" if one.unknown else ""
        plain = "" if one.plain is None else _number(one.plain)
        counts = f"{one.decisions:,} / {one.reference_decisions:,}"
        row = [_named(one), _estimated(one.next, one.next_interval)]
        rows.append([*row, _estimated(one.total, one.total_interval), plain, counts, said])
    head = ["effect of", "on the next value (90 %)", "on the sum (90 %)", "plain difference", "decisions", ""]
    return Table("Effects of actions", head, rows)


def _sensitivities(effects: Sequence[Effect]) -> list[str]:
    """Each sentence once: outcomes that are read from one feature share it."""
    return [said for said in dict.fromkeys(one.sensitivity_sentence for one in effects) if said]


def _named(effect: Effect) -> str:
    return f"{effect.action} on {effect.outcome}"


def _next(effect: Effect) -> str:
    """The effect on the next value, without a number in the middle where not even the direction is known."""
    if effect.unknown and effect.next_interval is not None:
        return f"unknown ({' to '.join(map(_number, effect.next_interval))})"
    return _estimated(effect.next, effect.next_interval)


def _by_level(effects: Sequence[Effect]) -> Table:
    rows = [
        [_named(one), " to ".join(map(short, part.level)), _estimated(part.effect, part.interval)]
        for one in effects
        for part in one.by_level
    ]
    return Table("Effects by level", ["effect of", "current level", "on the next value (90 %)"], rows)


def _estimated(value: float, interval: Interval | None) -> str:
    return _number(value) if interval is None else f"{_number(value)} ({' to '.join(map(_number, interval))})"


def _number(value: float) -> str:
    """Three significant digits with a sign, as typeset."""
    text = f"{value:+.3g}"
    return short(0.0) if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")
