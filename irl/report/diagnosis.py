"""A diagnosis as a report: plain sentences that say no more than its numbers bear, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from cirl_gym.diagnostics.calibration import Coverage
from irl.report.drawing import BLUE, GREY, ORANGE, legend, svg, tidy
from irl.report.section import (
    Details,
    Line,
    Paragraph,
    Part,
    Picture,
    Report,
    Section,
    Table,
    explained,
    percent,
    short,
)
from irl.studies.diagnosis import Counterfactual, Diagnosis, ErrorsAhead

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


def report_of_diagnosis(found: Diagnosis, folder: Path | None = None) -> Report:
    """The sentences and the numbers behind them.

    Args:
        found: what was found.
        folder: where its files were written; None says nothing about files.
    """
    sections = [_errors_section(found), _treatment_section(found), _calibration_section(found), _support_section(found)]
    if folder is not None:
        written = Line(f"Written to {folder}: diagnostics.html, diagnostics.json")
        sections.append(Section("files", "Files", terminal=(written,)))
    return Report("How far the outcome model can be believed", verdicts(found), tuple(sections))


def _errors_section(found: Diagnosis) -> Section:
    both = found.counterfactual
    factual = _error_table("Errors for the actions that were taken", found.factual)
    scaled = Table(
        "Ranges by which outcomes are scaled",
        ["outcome", "becomes 0", "becomes 1", "range"],
        [[name, short(low), short(high), short(high - low)] for name, (low, high) in found.normaliser.items()],
    )
    terms = explained(
        f"From every history of {found.episodes['test']} held-out episodes, the model is rolled ahead on its own "
        "predictions and compared with what followed. An error is the root of the mean square over all predictions, "
        "summed over outcomes that are scaled by the ranges below.",
        "“Nothing changes” predicts the last observation. What is not below it has learnt nothing."
        if both is None
        else "“Noise alone” is the error of the simulator's own expectation on the very same rows: nobody can do "
        "better on average, but for chance. For the other actions, the simulator was run again from every history with "
        "the same patient and the same noise, and the other action at every step.",
        (
            "Nobody saw what would have followed other actions. A small error for the actions taken does not prove "
            "that those predictions are right."
            if both is None
            else "Real patients are not this simulator."
        )
        + " Far ahead only long episodes count.",
    )
    page: list[Part] = [Picture(partial(errors_svg, found)), terms, factual]
    shown = [_for_terminal(factual, "Errors for the actions taken"), scaled.titled("Scaled by")]
    by_feature: tuple[Part, ...] = _feature_tables("Actions taken", found, found.factual)
    if both is not None:
        flipped, paths = _error_table("Errors for the other actions", both.flipped), _mean_paths(found, both)
        true = (
            "Against the true expectation, which has no noise in it, predictions one step ahead for the actions not "
            f"taken are off by {both.expected.pooled:.4g}."
        )
        page += [flipped, Paragraph(true), paths]
        shown.insert(1, _for_terminal(flipped, "Errors for the other actions, same patients and noise"))
        shown.append(paths.titled("Mean courses against the simulator, in ranges"))
        by_feature += _feature_tables("Other actions", found, both.flipped)
    page += [scaled, Details("Feature by feature", by_feature)]
    return Section("errors", "Errors of predicted outcomes", tuple(page), tuple(shown))


def _error_table(title: str, errors: ErrorsAhead) -> Table:
    """Steps ahead, pooled errors on the scale of phi, number of predictions."""
    head = ["steps ahead", "model"]
    if errors.oracle is not None:
        head += ["noise alone", "ratio"]
    if errors.unchanged is not None:
        head.append("nothing changes")
    rows = []
    for k, error in enumerate(errors.model):
        row = [str(k + 1), f"{error.pooled:.4f}"]
        if errors.oracle is not None and errors.ratio is not None:
            ratio = errors.ratio[k]
            row += [f"{errors.oracle[k].pooled:.4f}", "" if ratio is None else f"{ratio:.3f}"]
        if errors.unchanged is not None:
            row.append(f"{errors.unchanged[k].pooled:.4f}")
        rows.append([*row, f"{error.n:,}"])
    return Table(title, [*head, "predictions"], rows)


def _for_terminal(errors: Table, title: str) -> Table:
    """Some of the rows, enough for a terminal: steps 1, 2, 3, 5, 10, 20, .. and the last."""
    steps = {1, 2, 3, 5, *range(10, len(errors.rows), 10), len(errors.rows)}
    rows = [row for row in errors.rows if int(row[0]) in steps]
    return Table(f"{title} (roots of mean squares, outcomes scaled)", errors.head, rows)


def _feature_tables(title: str, found: Diagnosis, errors: ErrorsAhead) -> tuple[Table, Table]:
    """Steps ahead, error of every feature: scaled by phi's ranges, and in raw units."""

    def table(kind: str, features: Sequence[str], values: Sequence[Sequence[float]]) -> Table:
        rows = [[str(k), *map(short, of_step)] for k, of_step in enumerate(values, start=1)]
        return Table(f"{title}, {kind}", ["steps ahead", *features], rows)

    return (
        table("scaled", found.outcomes, [error.scaled for error in errors.model]),
        table("raw units", found.features, [error.raw for error in errors.model]),
    )


def _mean_paths(found: Diagnosis, both: Counterfactual) -> Table:
    """Policy, largest gap of every outcome between mean paths, and when."""
    rows = [
        [
            f"always {name}",
            *(f"{percent(gap)} at {step}" for gap, step in zip(one.largest, one.step, strict=True)),
            str(one.steps),
        ]
        for name, one in both.courses.items()
    ]
    head = ["policy", *(f"{name}, largest gap" for name in found.outcomes), "steps compared"]
    return Table("Mean courses in the model against the simulator, in ranges", head, rows)


def _treatment_section(found: Diagnosis) -> Section:
    probes = {**found.probes, "history": found.propensity.quality}
    told = [
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
    head = ["seen", "accuracy", "most frequent", "gain, points", "log-loss", "of frequencies"]
    classifier = Table("A fresh classifier of the action", head, told)
    estimated, true = found.propensity.estimated, found.propensity.true
    known = [estimated, *([] if true is None else [true])]
    rare = [["the action taken", *(percent(one.taken) for one in known)]]
    rare.append(["any action", *(percent(one.any) for one in known)])
    rare += [[f"action {name}", *(percent(one.by_action[a]) for one in known)] for a, name in enumerate(found.actions)]
    head = [f"propensity below {estimated.threshold:g}", "estimated", *([] if true is None else ["true"])]
    overlap = Table("Overlap: share of steps", head, rare)
    terms = explained(
        "How well a fresh classifier, trained on the training episodes, names the actions of held-out patients from "
        "what it sees: the state that the model keeps of a history, or the parts of it: the window of last "
        "observations and actions, the memory of its network, and the representation that the predictions are made "
        "from.",
        "A balanced representation tells no more than the most frequent action does. The last row sees the history "
        "itself and the time: its probabilities are the propensities of the next table.",
        "Another classifier might find more.",
    )
    between = Paragraph("Where an action had next to no chance, the data hold next to nothing about it.")
    shown = (classifier.titled("Which action was taken"), overlap.titled("Overlap, share of steps"))
    return Section("treatment", "Which action was taken", (terms, classifier, between, overlap), shown)


def _calibration_section(found: Diagnosis) -> Section:
    inside = [
        [
            f"{100 * entry.level:g} %",
            percent(entry.pooled),
            "" if entry.free is None else percent(entry.free),
            *map(percent, entry.features),
        ]
        for entry in found.intervals
    ]
    head = ["interval", "outcomes inside", "away from limits", *found.features]
    intervals = Table("Outcomes inside intervals", head, inside)
    ends = Table(
        "Ends of episodes",
        ["predicted probability", "steps", "mean predicted", "ended"],
        [[f"{b.low:g} to {b.high:g}", f"{b.n:,}", f"{b.predicted:.4f}", f"{b.observed:.4f}"] for b in found.ends.bins],
    )
    source = (
        f"Intervals come from what {found.members} models disagree about and from the noise around them."
        if found.members > 1
        else "Intervals come from the noise around one model's prediction; what the model does not know is not in them."
    )
    limits = (
        "An outcome that stops at a limit has no noise there and lies inside any interval: the third column leaves "
        "such predictions out."
    )
    counted = (
        f"{found.ends.expected:.1f} ends were expected, {found.ends.observed} observed (standard deviation "
        f"{found.ends.deviation:.1f} if the probabilities are right)."
    )
    page = (
        Picture(partial(calibration_svg, found)),
        Paragraph(f"{source} {limits}"),
        intervals,
        Paragraph(counted),
        ends,
    )
    # Every feature's share is on the page.
    shown = (Table("Intervals", head[:3], [row[:3] for row in inside]), ends)
    return Section("calibration", "Calibration", page, shown)


def _support_section(found: Diagnosis) -> Section:
    rows = [[name, percent(one.outside), percent(one.rare), f"{one.steps:.1f}"] for name, one in found.support.items()]
    table = Table("Roll-outs in the model", ["policy", "outside the data's range", "rare actions", "mean length"], rows)
    says = (
        "Policies acting in the model from the first observations of the held-out episodes: at how many of their steps "
        "an outcome leaves the range of the training data, and at how many the experts would hardly ever have done the "
        f"same (estimated propensity below {found.propensity.estimated.threshold}). Predictions there are extrapolated."
    )
    return Section("support", "Where roll-outs go", (Paragraph(says), table), (table,))


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
