"""The two pictures of docs/timing.md: one patient's glucose and insulin, with rows at measurements and in bins.

    python examples/draw_timing.py docs

writes timing_measurements.svg and timing_bins.svg into the folder. The patient is made up.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

READINGS = {-1.0: 130, 2.0: 150, 4.2: 215, 7.4: 175, 9.6: 150, 11.4: 185}
"""Glucose by hour."""
INSULIN = 4.6
INK, ROW, ACT, NEXT = "#333333", "#1f5fa8", "#c0392b", "#2e7d32"


def patient(title):
    """The readings and the dose along time, with room above for what a table makes of them."""
    figure, axes = plt.subplots(figsize=(8.2, 3.5), layout="constrained")
    axes.plot(list(READINGS), list(READINGS.values()), "o-", color="#888888", markersize=6, linewidth=1, zorder=2)
    axes.annotate(
        "insulin", (INSULIN, 211), (INSULIN, 247), color=ACT, ha="center", arrowprops={"arrowstyle": "->", "color": ACT}
    )
    axes.set(xlim=(-1.6, 13.4), ylim=(95, 305), xlabel="hours", ylabel="glucose", xticks=range(0, 13, 2))
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def mark(axes, hour, color):
    """A reading that a row holds."""
    axes.plot([hour], [READINGS[hour]], "o", color=color, markersize=10, zorder=3)


def tell(axes, hour, height, text, color, side="center"):
    """A word of the table."""
    box = {"facecolor": axes.patches[0].get_facecolor() if side == "center" else "white", "edgecolor": "none", "pad": 1}
    axes.text(hour, height, text, color=color, ha=side, va="center", fontsize=9.5, bbox=box)


def at_measurements():
    """A row at each reading: the row that insulin answers says 215, the next one 175."""
    figure, axes = patient("A row at each reading")
    for hour in READINGS:
        axes.axvline(hour, color="#bbbbbb", linewidth=1, zorder=1)
    axes.axvspan(4.2, 7.4, color="#f3f3f3", zorder=0)
    mark(axes, 4.2, ROW)
    mark(axes, 7.4, NEXT)
    tell(axes, 4.0, 285, "row: 215 is known", ROW, "right")
    tell(axes, 5.8, 285, "action: 1", ACT)
    tell(axes, 7.6, 285, "next row: 175", NEXT, "left")
    tell(axes, 7.6, 118, "the table says: 215, insulin, 175", INK, "left")
    return figure


def in_bins():
    """A row at each edge: the row that insulin is in says 130, the next one 215."""
    figure, axes = patient("A row at each edge of 6 hours")
    for edge in (0, 6, 12):
        axes.axvline(edge, color="#666666", linewidth=1, linestyle="--", zorder=1)
    axes.axvspan(0, 6, color="#f3f3f3", zorder=0)
    mark(axes, -1.0, ROW)
    mark(axes, 4.2, NEXT)
    tell(axes, -0.15, 285, "row: 130", ROW, "right")
    tell(axes, 3.0, 285, "action: 1", ACT)
    tell(axes, 6.2, 285, "next row: 215", NEXT, "left")
    tell(axes, 6.4, 118, "the table says: 130, insulin, 215", INK, "left")
    axes.annotate(
        "what insulin answers\nis in no row yet",
        (4.05, 214),
        (1.75, 222),
        color=INK,
        ha="center",
        va="center",
        fontsize=9.5,
        arrowprops={"arrowstyle": "->", "color": INK},
    )
    return figure


def main(folder):
    """Write both pictures, the same bytes each time."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "timing", "font.family": "sans-serif", "font.size": 10}
    with plt.rc_context(settings):
        for name, draw in (("timing_measurements", at_measurements), ("timing_bins", in_bins)):
            figure = draw()
            figure.savefig(Path(folder) / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1])
