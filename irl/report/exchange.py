"""The section of exchange rates (:mod:`irl.result.exchange`)."""

from __future__ import annotations

from irl.report.section import Part, Section, Table, explained, short
from irl.result.result import Result


def exchange_section(result: Result) -> Section | None:
    """What makes up for one more step with an action; None where none is weighed."""
    if not result.exchange_rates:
        return None
    rows = []
    for rate in result.exchange_rates:
        bounds = ("not bounded", "")
        if rate.change is not None and rate.interval is not None:
            bounds = (short(rate.change), " to ".join(map(short, rate.interval)))
        rows.append([rate.one_more, rate.outcome, *bounds])
    table = Table("Exchange rates", ["one more", "is made up for by", "change of", "90 % interval"], rows)
    shows = (
        "By how much an outcome would have to change, in its own units, for the experts to be indifferent to one more "
        "step with the action, or to one more switch, all else being equal."
    )
    read = (
        "A change in the direction that the experts like makes up for what they avoid: if they avoid the action, that "
        "is what the action has to bring about to be worth it. Where the interval holds both signs, the data do not "
        "tell whether they avoid the action."
    )
    cannot = (
        "A rate is not bounded where the 90\N{NO-BREAK SPACE}% interval of the outcome's weight holds 0: then no "
        "change of it may be worth anything. A change larger than any that was "
        "seen says no more than that nothing seen makes up for it."
    )
    page: tuple[Part, ...] = (explained(shows, read, cannot), *(rate.sentence for rate in result.exchange_rates), table)
    return Section("exchange", "Exchange rates", page, (table.titled("Exchange rates (raw units)"),))
