"""Agreement with held-out decisions over time, as inline SVG."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from irl.held_out_record import AgreementOverTime
from irl.report.drawing import BLUE, GREY, ORANGE, legend, svg, tidy
from irl.report.rows import percent


def agreement_svg(over_time: AgreementOverTime) -> str:
    """Share of decisions met at every step, above how many episodes are still going on."""

    def draw(figure: Figure) -> None:
        axes, left = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        axes.plot(over_time.cirl, "-o", color=BLUE, ms=4, label="learnt weights (CIRL)")
        axes.plot(over_time.cloning, "--s", color=ORANGE, ms=4, label="behaviour cloning")
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_ylabel("met")
        tidy(axes, "y")
        left.bar(range(len(over_time.episodes)), over_time.episodes, color=GREY)
        left.set_ylabel("episodes")
        left.set_xlabel("step")
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
        tidy(left, "y")
        legend(figure, axes)

    ends = f"{percent(over_time.cirl[0])} at step 0, {percent(over_time.cirl[-1])} at step {len(over_time.cirl) - 1}"
    return svg("agreement", f"Decisions met over time by the learnt weights: {ends}", 3.4, draw)
