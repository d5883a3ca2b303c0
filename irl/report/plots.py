"""What is drawn on a notebook's own axes. The verdict stands above; weights that are no finding are grey."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from irl.report.drawing import (
    BAND,
    BLUE,
    CORNERS,
    WhatIf,
    course_on,
    fold_name,
    printable,
    radar_on,
    weights_on,
)
from irl.result.result import Result
from irl.result.sentences import weights_mean_something

NO_FINDING = "#A6A6A6"
"""Of weights that are no finding: they look like none."""


def unread(result: Result) -> dict[str, str]:
    """By outcome, why its weight is no finding: what the verdict says, or what is said of this outcome alone."""
    if weights_mean_something(result.verdict):
        return dict(result.uninterpreted)
    return dict.fromkeys(result.features, result.headline[0])


def plot_weights(result: Result, axes: Axes) -> Axes:
    """Weights, 90 % intervals and what explains equally well; all in grey where the verdict lets none be read."""
    names, finding = _drawn(result)
    weights_on(axes, result, names, BLUE if finding else NO_FINDING, BAND if finding else "#EDEDED")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    _say(axes, result, finding)
    _legend(axes, 0.5)
    return axes


def plot_radar(result: Result, axes: Axes) -> Axes:
    """Sizes of weights on spokes (:func:`irl.report.drawing.radar_on`), under the verdict.

    Raises:
        ValueError: the axes are not polar, or fewer than three weights can be drawn.
    """
    if not isinstance(axes, PolarAxes):
        raise ValueError("ax: a radar needs polar axes, as of plt.subplots(subplot_kw={'projection': 'polar'})")
    names, finding = _drawn(result)
    if len(names) < CORNERS:
        raise ValueError(f"a radar needs {CORNERS} weights that may be read, got {len(names)}; plot_weights shows them")
    radar_on(axes, result, names, BLUE if finding else NO_FINDING)
    axes.tick_params(labelsize="small")
    _say(axes, result, finding)
    _legend(axes, 0.6)
    return axes


def plot_course(what_if: WhatIf, axes: Axes) -> Axes:
    """The observed course of the first feature of a history, and what is expected under each action from then on."""
    course_on(axes, what_if, 0)
    axes.set_title(f"{printable(what_if.title)}: expected, not advice", loc="left")
    axes.set_ylabel(fold_name(what_if.labels[0], 30))
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return axes


def _drawn(result: Result) -> tuple[Sequence[str], bool]:
    """The outcomes whose weights are drawn, and whether these are a finding."""
    finding = weights_mean_something(result.verdict)
    names = [name for name in result.features if not (finding and name in result.uninterpreted)]
    if not names:
        raise ValueError(f"no weight may be read: {'; '.join(sorted(set(result.uninterpreted.values())))}")
    return names, finding


def _say(axes: Axes, result: Result, finding: bool) -> None:
    """The verdict above, and below it what is missing or no finding."""
    said = [result.headline[0]]
    if not finding:
        said.append("These weights are no finding.")
    elif result.uninterpreted:
        said.append(f"Not interpreted: {', '.join(result.uninterpreted)}.")
    axes.set_title("\n".join(textwrap.fill(printable(one), 62) for one in said), loc="left", fontsize="medium")


def _legend(axes: Axes, below: float) -> None:
    """Each label once, so many inches under the axes."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    lower = axes.transAxes + ScaledTranslation(0, -below, axes.figure.dpi_scale_trans)
    axes.legend(
        list(once.values()),
        list(once),
        loc="upper right",
        bbox_to_anchor=(1, 0),
        bbox_transform=lower,
        ncols=4,
        columnspacing=1.2,
        handlelength=1.4,
        frameon=False,
        fontsize="small",
    )
