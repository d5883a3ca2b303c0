"""The report's pictures as inline SVG: same input, same bytes; text stays text; no global state of matplotlib."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from irl.report.drawing import (
    BAND,
    BLUE,
    COLOURS,
    DASHES,
    GREY,
    MARKERS,
    ORANGE,
    fold_name,
    legend,
    printable,
    svg,
    tidy,
)
from irl.report.rows import percent
from irl.report.what_if import WhatIf
from irl.result import Result


def weights_svg(result: Result) -> str:
    """Weights with their 90 % intervals and the identified set, the truth beside them where it is known."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        rows = np.arange(len(result.features))
        for row, name in enumerate(result.features):
            low, high = result.identified_set.ranges[name]
            axes.barh(row, high - low, left=low, height=0.56, color=BAND, label="explains equally well")
            axes.plot(result.intervals[name], [row, row], color=BLUE, lw=2.5, label="90 % interval")
        axes.plot(result.weights, rows, "o", color=BLUE, ms=7, label="weight")
        if result.true_weights is not None:
            axes.plot(result.true_weights, rows, "D", ms=9, mec=ORANGE, mfc="none", mew=1.8, label="truth")
        axes.axvline(0, color="black", lw=0.8)
        axes.set_yticks(rows, [fold_name(name, 24) for name in result.features])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        spans = [*result.intervals.values(), *result.identified_set.ranges.values()]
        ends = [0.0, *result.weights, *(result.true_weights or ()), *(end for span in spans for end in span)]
        pad = 0.05 * (max(ends) - min(ends))
        axes.set_xlim(min(ends) - pad, max(ends) + pad)
        axes.set_xlabel("weight")
        tidy(axes, "x")
        legend(figure, axes)

    label = "Weights: " + "; ".join(
        f"{name} {weight:.2f} ({result.intervals[name][0]:.2f} to {result.intervals[name][1]:.2f})"
        for name, weight in zip(result.features, result.weights, strict=True)
    )
    return svg("weights", label, 1.0 + 0.42 * len(result.features), draw)


def margins_svg(result: Result) -> str:
    """The margin after every round of the loop."""
    margins = [entry.margin for entry in result.rounds]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([entry.k for entry in result.rounds], margins, "-o", color=BLUE, ms=4)
        axes.set_ylim(0, 1.08 * max(margins, default=1.0) or 1.0)
        axes.set_xlabel("round")
        axes.set_ylabel("margin")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes, "y")

    course = f"from {margins[0]:.3g} to {margins[-1]:.3g} in {len(margins)} rounds" if margins else "no rounds"
    return svg("margins", f"Margin of the loop: {course}", 2.6, draw)


def accuracy_svg(result: Result) -> str:
    """Accuracy beside the baselines and below its ceiling."""
    accuracy = result.accuracy
    bars = {
        "learnt weights (CIRL)": accuracy.cirl,
        "behaviour cloning": accuracy.cloning,
        "most frequent action": accuracy.majority,
        "repeat the last action": accuracy.repeat_last_action,
    }

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.barh(list(bars), list(bars.values()), height=0.6, color=["#7FB2D6", *["#D3DCE3"] * 3])
        for row, value in enumerate(bars.values()):
            axes.text(0.015, row, percent(value), va="center")
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_xlabel("held-out decisions met")
        tidy(axes, "x")
        if accuracy.ceiling is not None:
            axes.axvline(accuracy.ceiling, color=ORANGE, ls="--", lw=1.6, label=f"ceiling {percent(accuracy.ceiling)}")
            legend(figure, axes)

    ceiling = "" if accuracy.ceiling is None else f"; ceiling {percent(accuracy.ceiling)}"
    label = "Accuracy: " + "; ".join(f"{name} {percent(value)}" for name, value in bars.items()) + ceiling
    return svg("accuracy", label, 2.5, draw)


def what_if_svg(what_if: WhatIf) -> str:
    """One panel per feature: the observed course, then the predicted course under each action."""
    d, now = len(what_if.features), len(what_if.observed) - 1
    columns = 1 if d <= 2 else 2
    lines = -(-d // columns)
    names = list(dict.fromkeys([*what_if.futures, *what_if.actions]))
    styles = {name: (COLOURS[i % 6], MARKERS[i % 7], DASHES[i % 4]) for i, name in enumerate(names)}

    def panel(axes: Axes, feature: int) -> None:
        course = what_if.observed[:, feature]
        axes.plot(course, color="black", lw=1.2, label="observed")
        for step, action in enumerate(what_if.actions):
            axes.plot(step, course[step], styles[action][1], color=styles[action][0], ms=5)
        for action, future in what_if.futures.items():
            color, marker, dash = styles[action]
            path = [course[now], *future[:, feature]]
            steps = np.arange(now, now + len(path))
            axes.plot(steps, path, dash, color=color, lw=1.8)
            axes.plot(steps[-1], path[-1], marker, color=color, ms=8, clip_on=False)
            axes.plot([], [], dash, marker=marker, color=color, lw=1.8, ms=6, label=f"if {printable(action)}")
        axes.axvline(now, color=GREY, ls=":", lw=1)
        axes.plot(now, course[now], "o", mfc="white", mec="black", ms=6)
        axes.margins(y=0.1)
        axes.set_title(fold_name(what_if.labels[feature], 60 // columns), loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8 // columns + 2, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        tidy(axes, "y")

    def draw(figure: Figure) -> None:
        panels = figure.subplots(lines, columns, squeeze=False, sharex=True).ravel()
        for feature in range(d):
            panel(panels[feature], feature)
        for empty in panels[d:]:
            empty.set_axis_off()
        for last in panels[max(d - columns, 0) : d]:
            last.set_xlabel("step")
            last.tick_params(labelbottom=True)
        legend(figure, panels[0])

    under = ", ".join(what_if.futures)
    label = f"Observed course up to step {now} and predicted courses under {under}, for {', '.join(what_if.labels)}"
    return svg("what-if", label, 0.6 + (2.0 if columns == 1 else 1.6) * lines, draw)
