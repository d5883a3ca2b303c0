"""The numbers of a diagnosis as rows of text, for the console and the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console
from rich.text import Text

from cirl_gym.diagnostics.calibration import Coverage
from cirl_gym.outcome_models.errors import PredictionError
from irl.report import diagnosis as rows
from irl.report.console import text_table
from irl.report.drawing import BLUE, GREY, ORANGE, legend, svg, tidy
from irl.report.page import render_page
from irl.report.rows import Rows, percent, short
from irl.studies.diagnosis import Diagnosis, ErrorsAhead


def error_head(errors: ErrorsAhead) -> list[str]:
    """Names of the columns of :func:`error_rows`."""
    head = ["steps ahead", "model"]
    if errors.oracle is not None:
        head += ["noise alone", "ratio"]
    if errors.unchanged is not None:
        head.append("nothing changes")
    return [*head, "predictions"]


def error_rows(errors: ErrorsAhead) -> Rows:
    """Steps ahead, pooled errors on the scale of phi, number of predictions."""
    rows = []
    for k, error in enumerate(errors.model):
        row = [str(k + 1), f"{error.pooled:.4f}"]
        if errors.oracle is not None and errors.ratio is not None:
            ratio = errors.ratio[k]
            row += [f"{errors.oracle[k].pooled:.4f}", "" if ratio is None else f"{ratio:.3f}"]
        if errors.unchanged is not None:
            row.append(f"{errors.unchanged[k].pooled:.4f}")
        rows.append([*row, f"{error.n:,}"])
    return rows


def selected(rows: Rows) -> Rows:
    """Some of the rows of :func:`error_rows`, enough for a console: steps 1, 2, 3, 5, 10, 20, .. and the last."""
    shown = {1, 2, 3, 5, *range(10, len(rows), 10), len(rows)}
    return [row for row in rows if int(row[0]) in shown]


def feature_head(features: Sequence[str]) -> list[str]:
    """Names of the columns of :func:`feature_rows`."""
    return ["steps ahead", *features]


def feature_rows(errors: Sequence[PredictionError], *, raw: bool) -> Rows:
    """Steps ahead, error of every feature: raw units, or scaled by phi's ranges."""
    return [[str(k), *map(short, error.raw if raw else error.scaled)] for k, error in enumerate(errors, start=1)]


def normaliser_rows(found: Diagnosis) -> Rows:
    """Outcome, the raw value that becomes 0, the one that becomes 1, and the range that errors are in units of."""
    return [[name, short(low), short(high), short(high - low)] for name, (low, high) in found.normaliser.items()]


def probe_rows(found: Diagnosis) -> Rows:
    """What is seen, accuracy, majority, gain with its standard error, log-loss, that of the frequencies."""
    probes = {**found.probes, "history": found.propensity.quality}
    return [
        [
            name,
            percent(probe.accuracy),
            percent(probe.majority),
            f"{100 * (probe.accuracy - probe.majority):.1f} ± {100 * probe.standard_error:.1f}",
            f"{probe.log_loss:.3f}",
            f"{probe.base_log_loss:.3f}",
        ]
        for name, probe in probes.items()
    ]


PROBE_HEAD = ["seen", "accuracy", "most frequent", "gain, points", "log-loss", "of frequencies"]


def overlap_rows(found: Diagnosis) -> Rows:
    """Which action, share of steps at which it was rare: as estimated, and in truth where that is known."""
    both = [found.propensity.estimated, *([] if found.propensity.true is None else [found.propensity.true])]
    rows = [["the action taken", *(percent(one.taken) for one in both)]]
    rows.append(["any action", *(percent(one.any) for one in both)])
    for a, name in enumerate(found.actions):
        rows.append([f"action {name}", *(percent(one.by_action[a]) for one in both)])
    return rows


def overlap_head(found: Diagnosis) -> list[str]:
    """Names of the columns of :func:`overlap_rows`."""
    head = ["propensity below " + f"{found.propensity.estimated.threshold:g}", "estimated"]
    return head if found.propensity.true is None else [*head, "true"]


def coverage_head(found: Diagnosis) -> list[str]:
    """Names of the columns of :func:`coverage_rows`."""
    return ["interval", "outcomes inside", "away from limits", *found.features]


def coverage_rows(found: Diagnosis) -> Rows:
    """Nominal level, share inside, share inside where no limit is near, share of every feature."""
    return [
        [
            f"{100 * entry.level:g} %",
            percent(entry.pooled),
            "" if entry.free is None else percent(entry.free),
            *map(percent, entry.features),
        ]
        for entry in found.intervals
    ]


def end_rows(found: Diagnosis) -> Rows:
    """Bin, steps in it, mean predicted probability, share that ended."""
    return [
        [f"{b.low:g} to {b.high:g}", f"{b.n:,}", f"{b.predicted:.4f}", f"{b.observed:.4f}"] for b in found.ends.bins
    ]


END_HEAD = ["predicted probability", "steps", "mean predicted", "ended"]


def support_rows(found: Diagnosis) -> Rows:
    """Policy, share of steps outside the range of the data, share of rare actions, mean length."""
    return [[name, percent(one.outside), percent(one.rare), f"{one.steps:.1f}"] for name, one in found.support.items()]


SUPPORT_HEAD = ["policy", "outside the data's range", "rare actions", "mean length"]


def course_head(found: Diagnosis) -> list[str]:
    """Names of the columns of :func:`course_rows`."""
    return ["policy", *(f"{name}, largest gap" for name in found.outcomes), "steps compared"]


def course_rows(found: Diagnosis) -> Rows:
    """Policy, largest gap of every outcome between mean courses, and when; empty without a simulator."""
    if found.counterfactual is None:
        return []
    return [
        [
            f"always {name}",
            *(f"{percent(gap)} at {step}" for gap, step in zip(one.largest, one.step, strict=True)),
            str(one.steps),
        ]
        for name, one in found.counterfactual.courses.items()
    ]


# MERGED: What a diagnosis says in plain sentences. Nothing is said that its numbers do not bear.

FACTUAL, FLIPPED = 1.05, 1.1
"""Up to this ratio to the error of noise alone, one step ahead, predictions count as good as the data allow."""
FEWEST = 100
"""With fewer predictions no verdict is given."""
OFF = 0.03
"""Coverage this near its nominal level counts as right."""
LEAVES = 0.05
"""A policy that leaves the data in more than this share of its steps is named."""
NOTHING = "\u201cnothing changes\u201d"
COURSE = 0.05
"""Mean courses further apart than this share of phi's range are named."""


def verdicts(found: Diagnosis) -> tuple[str, ...]:
    """One sentence or two for each part of a diagnosis."""
    return (
        *_errors(found),
        *_probes(found),
        _overlap(found),
        *_intervals(found),
        _ends(found),
        *_support(found),
    )


def _errors(found: Diagnosis) -> list[str]:
    sentences = [*_beside_noise("for actions that were taken", found.factual, FACTUAL)]
    if found.counterfactual is None:
        sentences += _beside_unchanged(found.factual)
        sentences.append(
            "Whether predictions for actions not taken are right cannot be checked on a table: nobody saw what would "
            "have followed."
        )
        return sentences
    flipped = found.counterfactual.flipped
    sentences += _beside_noise("for actions that were not taken", flipped, FLIPPED)
    ratios = [
        (ratio, k)
        for k, (ratio, error) in enumerate(zip(flipped.ratio or (), flipped.model, strict=True), start=1)
        if ratio is not None and error.n >= FEWEST
    ]
    if len(ratios) > 1:
        worst, k = max(ratios)
        sentences.append(
            f"Further ahead under other actions, the error is at most {worst:.2f} times that of noise alone ({k} steps "
            f"ahead; {ratios[-1][1]} steps looked at)."
        )
    for action, gap in found.counterfactual.courses.items():
        for name, size, step in zip(found.outcomes, gap.largest, gap.step, strict=True):
            if size > COURSE:
                sentences.append(
                    f"Under always {action}, the predicted mean course of {name} misses the true one by "
                    f"{percent(size)} of its range after {step} steps."
                )
    return sentences


def _beside_noise(what: str, errors: ErrorsAhead, limit: float) -> list[str]:
    ratio = errors.ratio[0] if errors.ratio else None
    if ratio is None or errors.model[0].n < FEWEST:
        return []
    if ratio <= limit:
        return [
            f"Predictions {what} are as good as the data allow, one step ahead: their error is {ratio:.3f} times that "
            "of noise alone."
        ]
    return [f"Predictions {what} are off by more than noise: one step ahead {ratio:.2f} times its error."]


def _beside_unchanged(errors: ErrorsAhead) -> list[str]:
    if errors.unchanged is None or errors.model[0].n < FEWEST or errors.unchanged[0].pooled == 0:
        return []
    better = [a.pooled < b.pooled for a, b in zip(errors.model, errors.unchanged, strict=True) if a.n >= FEWEST]
    ratio = errors.model[0].pooled / errors.unchanged[0].pooled
    if not better[0]:
        return [f"One step ahead the model predicts no better than {NOTHING} ({ratio:.2f} times its error)."]
    if all(better):
        where = f"at every number of steps ahead with enough predictions to say so (1 to {len(better)})"
    else:
        where = f"up to {better.index(False)} steps ahead, and no longer at {better.index(False) + 1}"
    return [f"One step ahead the model's error is {ratio:.2f} times that of {NOTHING}; it is the smaller one {where}."]


def _probes(found: Diagnosis) -> list[str]:
    name = "representation" if "representation" in found.probes else next(iter(found.probes))
    probe = found.probes[name]
    gain = probe.accuracy - probe.majority
    told = f"{percent(probe.accuracy)} of held-out actions; the most frequent one alone {percent(probe.majority)}"
    if probe.n < FEWEST:
        return []
    if gain > 2 * probe.standard_error:
        balanced = ": it is not balanced" if name == "representation" else ""
        return [f"The action can be told from the model's {name} ({told}){balanced}."]
    return [f"A fresh classifier does not clearly tell the action from the model's {name} ({told})."]


def _overlap(found: Diagnosis) -> str:
    known = found.propensity.true or found.propensity.estimated
    kind = "a true" if found.propensity.true else "an estimated"
    return (
        f"At {percent(known.any)} of the steps some action had {kind} probability below {known.threshold:g}: what the "
        "model says of it there rests on its form, not on data."
    )


def _intervals(found: Diagnosis) -> list[str]:
    entry = min(found.intervals, key=lambda one: abs(one.level - 0.9), default=None)
    if entry is None:
        return []
    share, n = _judged(entry)
    if n < FEWEST:
        return []
    tolerance = max(OFF, 2 * entry.standard_error)
    held = f"the {100 * entry.level:g} % intervals hold {percent(share)} of the outcomes"
    where = "" if entry.free is None else " that no limit is near"
    if abs(share - entry.level) <= tolerance:
        return [f"Intervals hold what they promise: {held}{where}."]
    return [f"Intervals are too {'narrow' if share < entry.level else 'wide'}: {held}{where}."]


def _judged(entry: Coverage) -> tuple[float, int]:
    return (entry.pooled, entry.n) if entry.free is None else (entry.free, entry.n_free)


def _ends(found: Diagnosis) -> str:
    ends = found.ends
    counted = f"{ends.expected:.1f} ends expected, {ends.observed} observed in {ends.n:,} steps"
    # Below one the normal approximation means nothing; an end more or less never speaks against a model.
    off = abs(ends.expected - ends.observed) > max(2 * ends.deviation, 1.0)
    return f"Ends of episodes {'do not come' if off else 'come'} as often as predicted: {counted}."


def _support(found: Diagnosis) -> list[str]:
    leaving = [f"{name} ({percent(one.outside)})" for name, one in found.support.items() if one.outside > LEAVES]
    rare = [f"{name} ({percent(one.rare)})" for name, one in found.support.items() if one.rare > LEAVES]
    sentences = []
    if leaving:
        sentences.append(f"Predicted outcomes leave the data's range under these policies: {', '.join(leaving)}.")
    else:
        sentences.append(
            f"No policy tried takes predicted outcomes out of the data's range in over {percent(LEAVES)} of steps."
        )
    if rare:
        sentences.append(f"Shares of steps with an action that the experts would hardly ever take: {', '.join(rare)}.")
    return sentences


# MERGED: Pictures of a diagnosis.


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


# MERGED: A diagnosis as readable text on the console.


def print_diagnosis(found: Diagnosis, folder: Path | None = None, console: Console | None = None) -> None:
    """Print the verdicts and the numbers behind them.

    Args:
        found: what was found.
        folder: where its files were written; None says nothing about files.
        console: where to print; default: standard output.
    """
    shown = console or Console(highlight=False)
    shown.print()
    for sentence in verdicts(found):
        shown.print(Text(sentence, style="bold"))
    shown.print()
    errors = {"Errors for the actions taken": found.factual}
    if found.counterfactual is not None:
        errors["Errors for the other actions, same patients and noise"] = found.counterfactual.flipped
    for title, part in errors.items():
        content = rows.selected(rows.error_rows(part))
        shown.print(text_table(f"{title} (roots of mean squares, outcomes scaled)", rows.error_head(part), content))
    head = ["outcome", "becomes 0", "becomes 1", "range"]
    shown.print(text_table("Scaled by", head, rows.normaliser_rows(found)))
    if found.counterfactual is not None:
        title = "Mean courses against the simulator, in ranges"
        shown.print(text_table(title, rows.course_head(found), rows.course_rows(found)))
    shown.print(text_table("Which action was taken", rows.PROBE_HEAD, rows.probe_rows(found)))
    shown.print(text_table("Overlap, share of steps", rows.overlap_head(found), rows.overlap_rows(found)))
    coverage = [row[:3] for row in rows.coverage_rows(found)]  # every feature's share is in the files
    shown.print(text_table("Intervals", rows.coverage_head(found)[:3], coverage))
    shown.print(text_table("Ends of episodes", rows.END_HEAD, rows.end_rows(found)))
    shown.print(text_table("Roll-outs in the model", rows.SUPPORT_HEAD, rows.support_rows(found)))
    if folder is not None:
        shown.print(Text(f"Written to {folder}: diagnostics.html, diagnostics.json"), soft_wrap=True)


# MERGED: A diagnosis as one self-contained HTML page.


def render_diagnosis(found: Diagnosis) -> str:
    """The page as text. It loads nothing from anywhere, and every name from a table is escaped."""
    return render_page(
        "diagnostics.html",
        found=found,
        verdicts=verdicts(found),
        rows=rows,
        flipped=None if found.counterfactual is None else found.counterfactual.flipped,
        errors_picture=Markup(errors_svg(found)),
        calibration_picture=Markup(calibration_svg(found)),
    )
