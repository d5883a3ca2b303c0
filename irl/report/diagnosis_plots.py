"""Pictures of a diagnosis."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from irl.diagnosis import Diagnosis, ErrorsAhead
from irl.report.drawing import BLUE, GREY, ORANGE, legend, svg, tidy
from irl.report.rows import percent


def errors_svg(found: Diagnosis) -> str:
    """Pooled errors by steps ahead: of the model, and of noise alone or (for a table) of "nothing changes"."""
    panels = {"actions that were taken": found.factual}
    if found.counterfactual is not None:
        panels["other actions"] = found.counterfactual.flipped

    def panel(axes: Axes, title: str, errors: ErrorsAhead) -> None:
        # Where noise alone is known, it is the measure; the other would only flatten the picture.
        beside = errors.unchanged if errors.oracle is None else None
        for part, label, style in (
            (beside, "nothing changes", {"color": GREY, "ls": ":", "lw": 1.6}),
            (errors.oracle, "noise alone", {"color": ORANGE, "ls": "--", "lw": 1.8}),
            (errors.model, "model", {"color": BLUE, "marker": "o", "ms": 4.0}),
        ):
            if part is not None:
                values = [error.pooled for error in part]
                axes.plot(range(1, len(values) + 1), values, label=label, **style)  # type: ignore[arg-type]
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("error")
        tidy(axes, "y")

    def draw(figure: Figure) -> None:
        every = figure.subplots(len(panels), 1, squeeze=False, sharex=True).ravel()
        for axes, (title, errors) in zip(every, panels.items(), strict=True):
            panel(axes, title, errors)
        every[-1].set_xlabel("steps ahead")
        legend(figure, every[0])

    said = "; ".join(
        f"{title}, {errors.model[0].pooled:.3g} one step ahead, {errors.model[-1].pooled:.3g} after {len(errors.model)}"
        for title, errors in panels.items()
    )
    return svg("errors", f"Errors of the model: {said}", 0.6 + 2.0 * len(panels), draw)


def calibration_svg(found: Diagnosis) -> str:
    """Nominal against observed share of outcomes inside intervals."""
    levels = [entry.level for entry in found.intervals]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1.2, label="as promised")
        axes.plot(levels, [entry.pooled for entry in found.intervals], "-o", color=BLUE, ms=5, label="all outcomes")
        if all(entry.free is not None for entry in found.intervals):
            free = [entry.free or 0.0 for entry in found.intervals]
            axes.plot(levels, free, "--D", color=ORANGE, ms=5, label="away from limits")
        axes.set_xlim(0.4, 1)
        axes.set_ylim(min([0.4, *(entry.pooled for entry in found.intervals)]), 1)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_xlabel("promised share inside")
        axes.set_ylabel("observed share inside")
        tidy(axes, "y")
        legend(figure, axes)

    said = "; ".join(f"{percent(entry.level)} promised, {percent(entry.pooled)} inside" for entry in found.intervals)
    return svg("intervals", f"Intervals: {said}", 2.8, draw)
