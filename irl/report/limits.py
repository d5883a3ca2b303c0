"""The section of a limit that was found from the decisions (:mod:`irl.studies.limits`)."""

from __future__ import annotations

from functools import partial

from matplotlib.axes import Axes

from irl.report.drawing import BAND, BLUE, ORANGE, svg
from irl.report.section import Details, Part, Picture, Section, Table, explained, signed
from irl.result.limits import FoundLimit
from irl.result.result import Result


def limit_svg(found: FoundLimit) -> str:
    """The log-likelihood at every limit that was tried, and without the outcome; the interval as a band."""

    def draw(axes: Axes) -> None:
        axes.plot(found.tried, found.log_likelihood, "o-", color=BLUE, lw=1.6, ms=5, label="with the outcome")
        axes.axhline(found.without, color=ORANGE, ls="--", lw=1.4, label="without it")
        if found.interval is not None:
            axes.axvspan(*found.interval, color=BAND, lw=0, zorder=0, label="90 % interval")
        axes.set_xlabel(f"limit of {found.asked}")
        axes.set_ylabel("log-likelihood")

    said = "open" if found.limit is None else f"highest at {found.written(found.limit)}"
    return svg("limit", f"Log-likelihood of the decisions by limit, {said}", 2.8, draw)


def limit_section(result: Result) -> Section | None:
    """How likely the decisions are at every limit that was tried; None where none was sought."""
    found = result.limit
    if found is None:
        return None
    best, likelihoods = max(found.log_likelihood), found.log_likelihood
    inside = [found.interval is not None and found.interval[0] <= one <= found.interval[1] for one in found.tried]
    rows = [
        [
            found.written(limit),
            signed(value, 1),
            signed(value - best, 1),
            "likeliest" if value == best else "in it" * within,
        ]
        for limit, value, within in zip(found.tried, likelihoods, inside, strict=True)
    ]
    rows.append(["without this outcome", signed(found.without, 1), signed(found.without - best, 1), ""])
    table = Table("Limits", [f"limit of {found.asked}", "log-likelihood", "minus the best", "90 % interval"], rows)
    shows = (
        f"How likely the {found.decisions:,} decisions of {found.patients:,} patients are at every limit, with the "
        "weights, kappa and habits that suit it best; where worlds are cross-fitted, the mean over their repetitions."
    )
    read = (
        "The nearer to zero, the likelier. The interval holds the limits that are likeliest when patients, and the "
        "worlds fitted to them, are drawn anew. Decisions of one patient depend on each other: all differences count "
        f"{found.power:.2f} times. So counted, the likeliest limit is {signed(found.gain, 1)} better than none; from "
        f"{signed(found.needed, 1)} on that is more than chance."
    )
    cannot = (
        "A limit is of what is expected to come, not of the last reading. It is where the experts' concern begins by "
        "this account, whatever their protocol says, and says nothing of whether it should."
    )
    picture = Picture(partial(limit_svg, found))
    page: tuple[Part, ...] = (explained(shows, read, cannot), picture, Details("The numbers", (table,)))
    return Section("limit", "The limit at which they act", page)
