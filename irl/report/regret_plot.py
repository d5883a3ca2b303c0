"""Regret along all allowed pairs of weights, as inline SVG."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from irl.report.drawing import BAND, BLUE, ORANGE, fold_name, legend, svg, tidy
from irl.report.rows import signed
from irl.result import Result


def regret_svg(result: Result) -> str:
    """The experts' regret for every pair of weights, what still counts as equally well, and the reported pair.

    The weights lie on a line that goes round the corners at which one of them is zero.
    """
    found = result.identified_set
    points = np.array(found.profile)
    w, regret = points[:, :2], points[:, 2]
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(w, axis=0)).sum(axis=1))])
    limit = max(found.minimum, 0.0) + found.tolerance
    corners = np.flatnonzero((np.abs(w) < 1e-9).any(axis=1))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot(along, regret, color=BLUE, lw=2, label="regret")
        axes.fill_between(along, 0, 1, where=regret <= limit, color=BAND, transform=axes.get_xaxis_transform())
        axes.axhline(limit, color=ORANGE, ls="--", lw=1.4, label="counts as equally well")
        here = int(np.abs(w - np.array(result.weights)).sum(axis=1).argmin())
        axes.plot(along[here], regret[here], "o", color=BLUE, ms=7, label="reported weights")
        first, second = (fold_name(name, 24) for name in result.features)
        axes.set_xticks(along[corners], [f"{first} {signed(a, 0)}\n{second} {signed(b, 0)}" for a, b in w[corners]])
        axes.set_ylabel("regret")
        tidy(axes, "y")
        legend(figure, axes)

    best = w[int(regret.argmin())]
    return svg("regret", f"Regret of all pairs of weights, least at {signed(best[0])}, {signed(best[1])}", 3.0, draw)
