"""A diagnosis as a report: plain sentences that say no more than its numbers bear, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from cirl_gym.diagnostics import RARE, EffectiveSize, IntervalCoverage
from cirl_gym.outcome_models.errors import PredictionError
from irl.report.drawing import BLUE, GREY, ORANGE, svg
from irl.report.section import Details, Line, Part, Picture, Report, Section, Table, explained, percent, short
from irl.studies.diagnosis import Diagnosis, ErrorsAhead

FACTUAL, FLIPPED = 1.05, 1.1
"""Up to this ratio to the error of noise alone, one step ahead, predictions count as good as the data allow."""
FEWEST = 100
"""With fewer predictions no verdict is given."""
OFF = 0.03
"""Coverage this near its nominal level counts as right."""
LEAVES = 0.05
"""A policy that leaves the data in more than this share of its steps is named."""
ONE_ACTION = "not measurable: only one action occurs"
NAMED = 3
"""At most so many comparisons are named in sentences, the worst; all are in the table."""
NOTHING = "\u201cnothing changes\u201d"
COURSE = 0.05
"""Mean courses further apart than this share of phi's range are named."""


def verdicts(found: Diagnosis) -> tuple[str, ...]:
    """One sentence or two for each part of a diagnosis."""
    return (*_of_errors(found), *_of_treatment(found), *_of_calibration(found), *_of_support(found))


def _of_errors(found: Diagnosis) -> list[str]:
    sentences = _beside_noise("for actions that were taken", found.factual, FACTUAL)
    if found.counterfactual is None:
        return [
            *sentences,
            *_beside_unchanged(found.factual),
            "Whether predictions for actions not taken are right cannot be checked on a table: nobody saw what would "
            "have followed.",
        ]
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


def _of_treatment(found: Diagnosis) -> list[str]:
    """Whether the model's state tells the action, and which actions lack overlap."""
    if found.propensity is None:
        return [
            f"Which action was taken, propensities and overlap are {ONE_ACTION}. Of other actions the data say nothing."
        ]
    sentences = []
    name = "representation" if "representation" in found.probes else next(iter(found.probes))
    probe = found.probes[name]
    if probe.n >= FEWEST:
        told = f"{percent(probe.accuracy)} of held-out actions; the most frequent one alone {percent(probe.majority)}"
        if probe.accuracy - probe.majority > 2 * probe.standard_error:
            balanced = ": it is not balanced" if name == "representation" else ""
            sentences.append(f"The action can be told from the model's {name} ({told}){balanced}.")
        else:
            sentences.append(f"A fresh classifier does not clearly tell the action from the model's {name} ({told}).")
    known = found.propensity.true or found.propensity.estimated
    kind = "a true" if found.propensity.true else "an estimated"
    rare = sorted(zip(known.by_action, found.actions, strict=True), key=lambda one: -one[0])
    which = ", ".join(f"action {action} at {percent(share)}" for share, action in rare if share > 0)
    named = f" ({which})" if which else ""
    sentences.append(
        f"At {percent(known.any)} of the steps some action had {kind} probability below {known.threshold:g}{named}: "
        "what the model says of it there rests on its form, not on data."
    )
    return [*sentences, *_of_comparisons(found.actions, known.effective), *_of_row_weights(found)]


def _of_comparisons(actions: Sequence[str], sizes: Sequence[EffectiveSize]) -> list[str]:
    """What the comparisons with the first action rest on, those that rest on least first."""
    worst = sorted(zip(actions[1:], sizes, strict=True), key=lambda one: one[1].inverse or 0.0)
    sentences = []
    for action, size in worst[:NAMED]:
        if size.inverse is None or size.overlap is None:
            sentences.append(f"Actions {action} and {actions[0]} cannot be compared: one of them never occurs.")
        else:
            sentences.append(
                f"The comparison of action {action} with action {actions[0]} rests on {size.compared:,} decisions, "
                f"{size.taken:,} of them for {action}, worth {size.inverse:,.0f} under inverse propensity weights and "
                f"{size.overlap:,.0f} where both were possible (overlap weights)."
            )
    return sentences


def _of_row_weights(found: Diagnosis) -> list[str]:
    if not found.row_weights:
        return []
    clipped, rows = (sum(getattr(one, name) for one in found.row_weights) for name in ("clipped", "rows"))
    least = min(one.effective_share for one in found.row_weights)
    largest = max(one.largest for one in found.row_weights)
    return [
        f"RMSN clipped the weights of {clipped:,} of {rows:,} training rows; weighed, they are worth {percent(least)} "
        f"of their number, and the largest weight is {largest:.1f}."
    ]


def _of_calibration(found: Diagnosis) -> list[str]:
    """Whether intervals hold what they promise, at every level, and ends come as often as predicted."""
    sentences = _of_intervals(found.intervals)
    ends = found.ends
    counted = f"{ends.expected:.1f} ends expected, {ends.observed} observed in {ends.n:,} steps"
    # Below one the normal approximation means nothing; an end more or less never speaks against a model.
    off = abs(ends.expected - ends.observed) > max(2 * ends.deviation, 1.0)
    return [*sentences, f"Ends of episodes {'do not come' if off else 'come'} as often as predicted: {counted}."]


def _of_intervals(intervals: Sequence[IntervalCoverage]) -> list[str]:
    """One sentence on all levels: what is promised of each and what is held, and where the two differ."""
    held: list[str] = []
    off: dict[str, list[str]] = {"narrow": [], "wide": []}
    for entry in intervals:
        share, n = (entry.pooled, entry.n) if entry.free is None else (entry.free, entry.n_free)
        if n < FEWEST:
            return []
        level = f"{100 * entry.level:g}"
        held.append(f"{percent(share)} inside {level} %")
        if abs(share - entry.level) > max(OFF, 2 * entry.standard_error):
            off["narrow" if share < entry.level else "wide"].append(level)
    if not intervals:
        return []
    of = "of the outcomes" + ("" if intervals[0].free is None else " that no limit is near")
    told = [f"too {how} at {' and '.join(levels)} %" for how, levels in off.items() if levels]
    verdict = f"Intervals are {', '.join(told)}" if told else "Intervals hold what they promise"
    return [f"{verdict}: {of}, {', '.join(held)}."]


def _of_support(found: Diagnosis) -> list[str]:
    leaving = [f"{name} ({percent(one.outside)})" for name, one in found.support.items() if one.outside > LEAVES]
    rare = [f"{name} ({percent(one.rare)})" for name, one in found.support.items() if one.rare > LEAVES]
    sentences = [
        f"Predicted outcomes leave the data's range under these policies: {', '.join(leaving)}."
        if leaving
        else f"No policy tried takes predicted outcomes out of the data's range in over {percent(LEAVES)} of steps."
    ]
    if rare:
        sentences.append(f"Shares of steps with an action that the experts would hardly ever take: {', '.join(rare)}.")
    return sentences


def report_of_diagnosis(found: Diagnosis, folder: Path | None = None) -> Report:
    """The sentences and the numbers behind them; ``folder``: where its files were written, if that is to be said."""
    support = Table.of(
        "Roll-outs in the model",
        {
            "policy": found.support,
            "outside the data's range": (percent(one.outside) for one in found.support.values()),
            "rare actions": (percent(one.rare) for one in found.support.values()),
            "mean length": (f"{one.steps:.1f}" for one in found.support.values()),
        },
    )
    says = (
        "Policies acting in the model from the first observations of the held-out episodes: at how many of their steps "
        "an outcome leaves the range of the training data, and at how many the experts would hardly ever have done the "
        f"same (estimated propensity below {RARE:g}). Predictions there are extrapolated."
    )
    sections = [
        _errors_section(found),
        _treatment_section(found),
        _calibration_section(found),
        Section("support", "Where roll-outs go", (says, support), (support,)),
    ]
    if folder is not None:
        written = Line(f"Written to {folder}: diagnostics.html, diagnostics.json")
        sections.append(Section("files", "Files", terminal=(written,)))
    return Report("How far the outcome model can be believed", verdicts(found), tuple(sections))


def _errors_section(found: Diagnosis) -> Section:
    both = found.counterfactual
    factual = _error_table("Errors for the actions that were taken", found.factual)
    scaled = Table.of(
        "Ranges by which outcomes are scaled",
        {
            "outcome": found.normaliser,
            "becomes 0": (short(low) for low, _ in found.normaliser.values()),
            "becomes 1": (short(high) for _, high in found.normaliser.values()),
            "range": (short(high - low) for low, high in found.normaliser.values()),
        },
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
    by_feature = _feature_tables("Actions taken", found, found.factual)
    if both is not None:
        flipped = _error_table("Errors for the other actions", both.flipped)
        courses = Table(
            "Mean courses in the model against the simulator, in ranges",
            ["policy", *(f"{name}, largest gap" for name in found.outcomes), "steps compared"],
            [
                [f"always {name}", *map("{} at {}".format, map(percent, one.largest), one.step), str(one.steps)]
                for name, one in both.courses.items()
            ],
        )
        true = (
            "Against the true expectation, which has no noise in it, predictions one step ahead for the actions not "
            f"taken are off by {both.expected.pooled:.4g}."
        )
        page += [flipped, true, courses]
        shown.insert(1, _for_terminal(flipped, "Errors for the other actions, same patients and noise"))
        shown.append(courses.titled("Mean courses against the simulator, in ranges"))
        by_feature += _feature_tables("Other actions", found, both.flipped)
    page += [scaled, Details("Feature by feature", by_feature)]
    return Section("errors", "Errors of predicted outcomes", tuple(page), tuple(shown))


def _error_table(title: str, errors: ErrorsAhead) -> Table:
    """Steps ahead, pooled errors on the scale of phi, number of predictions."""

    def pooled(part: Sequence[PredictionError] | None) -> list[str] | None:
        return None if part is None else [f"{error.pooled:.4f}" for error in part]

    ratio = errors.ratio
    columns = {
        "steps ahead": [str(k) for k in range(1, len(errors.model) + 1)],
        "model": pooled(errors.model),
        "noise alone": pooled(errors.oracle),
        "ratio": None if ratio is None else ["" if one is None else f"{one:.3f}" for one in ratio],
        "nothing changes": pooled(errors.unchanged),
        "predictions": [f"{error.n:,}" for error in errors.model],
    }
    return Table.of(title, columns)


def _for_terminal(errors: Table, title: str) -> Table:
    """Some of the rows, enough for a terminal: steps 1, 2, 3, 5, 10, 20, .. and the last."""
    steps = {1, 2, 3, 5, *range(10, len(errors.rows), 10), len(errors.rows)}
    rows = [row for row in errors.rows if int(row[0]) in steps]
    return Table(f"{title} (roots of mean squares, outcomes scaled)", errors.head, rows)


def _feature_tables(title: str, found: Diagnosis, errors: ErrorsAhead) -> tuple[Part, ...]:
    """Steps ahead, error of every feature: scaled by phi's ranges, and in raw units."""
    scaled = [[str(k), *map(short, error.scaled)] for k, error in enumerate(errors.model, start=1)]
    raw = [[str(k), *map(short, error.raw)] for k, error in enumerate(errors.model, start=1)]
    return (
        Table(f"{title}, scaled", ["steps ahead", *found.outcomes], scaled),
        Table(f"{title}, raw units", ["steps ahead", *found.features], raw),
    )


def _treatment_section(found: Diagnosis) -> Section:
    title = "Which action was taken"
    if found.propensity is None:
        said = f"The classifier of the action, propensities and overlap are {ONE_ACTION}."
        return Section("treatment", title, (said,), (Line(said),))
    probes = {**found.probes, "history": found.propensity.quality}
    gains = (f"{100 * (one.accuracy - one.majority):.1f} ± {100 * one.standard_error:.1f}" for one in probes.values())
    classifier = Table.of(
        "A fresh classifier of the action",
        {
            "seen": probes,
            "accuracy": (percent(one.accuracy) for one in probes.values()),
            "most frequent": (percent(one.majority) for one in probes.values()),
            "gain, points": gains,
            "log-loss": (f"{one.log_loss:.3f}" for one in probes.values()),
            "of frequencies": (f"{one.base_log_loss:.3f}" for one in probes.values()),
        },
    )
    estimated, true = found.propensity.estimated, found.propensity.true
    overlap = Table.of(
        "Overlap: share of steps",
        {
            f"propensity below {estimated.threshold:g}": [
                "the action taken",
                "any action",
                *(f"action {name}" for name in found.actions),
            ],
            "estimated": map(percent, (estimated.taken, estimated.any, *estimated.by_action)),
            "true": None if true is None else map(percent, (true.taken, true.any, *true.by_action)),
        },
    )
    terms = explained(
        "How well a fresh classifier, trained on the training episodes, names the actions of held-out patients from "
        "what it sees: the state that the model keeps of a history, or the parts of it: the window of last "
        "observations and actions, the memory of its network, and the representation that the predictions are made "
        "from.",
        "A balanced representation tells no more than the most frequent action does. The last row sees the history "
        "itself and the time: its probabilities are the propensities of the next table.",
        "Another classifier might find more.",
    )
    between = "Where an action had next to no chance, the data hold next to nothing about it."
    compared = _comparisons(found.actions, (true or estimated).effective)
    worth = (
        "The effect of an action is a comparison with the first one. Its effective size is the number of decisions by "
        "the toss of a coin that would say as much: (sum of weights)² / sum of their squares, over the decisions for "
        "either, weighed by the inverse of the propensity, or most where both actions were possible (overlap weights)."
    )
    shown = (classifier.titled(title), overlap.titled("Overlap, share of steps"), compared)
    return Section("treatment", title, (terms, classifier, between, overlap, worth, compared), shown)


def _comparisons(actions: Sequence[str], sizes: Sequence[EffectiveSize]) -> Table:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.0f}"

    return Table.of(
        f"Comparisons with {actions[0]}: effective sizes",
        {
            "action": actions[1:],
            "decisions for it": (f"{one.taken:,}" for one in sizes),
            "for either": (f"{one.compared:,}" for one in sizes),
            "inverse propensity": (number(one.inverse) for one in sizes),
            "overlap": (number(one.overlap) for one in sizes),
        },
    )


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
    page = (Picture(partial(calibration_svg, found)), f"{source} {limits}", intervals, counted, ends)
    # Every feature's share is on the page.
    shown = (Table("Intervals", head[:3], [row[:3] for row in inside]), ends)
    return Section("calibration", "Calibration", page, shown)


def errors_svg(found: Diagnosis) -> str:
    """Pooled errors by steps ahead: of the model, and of noise alone or (for a table) of "nothing changes"."""
    panels = {"actions that were taken": found.factual}
    if found.counterfactual is not None:
        panels["other actions"] = found.counterfactual.flipped

    def draw(*every: Axes) -> None:
        for axes, (title, errors) in zip(every, panels.items(), strict=True):
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
        every[-1].set_xlabel("steps ahead")

    said = "; ".join(
        f"{title}, {errors.model[0].pooled:.3g} one step ahead, {errors.model[-1].pooled:.3g} after {len(errors.model)}"
        for title, errors in panels.items()
    )
    return svg(
        "errors", f"Errors of the model: {said}", 0.6 + 2.0 * len(panels), draw, shape=(len(panels), 1), sharex=True
    )


def calibration_svg(found: Diagnosis) -> str:
    """Nominal against observed share of outcomes inside intervals."""
    levels = [entry.level for entry in found.intervals]

    def draw(axes: Axes) -> None:
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

    said = "; ".join(f"{percent(entry.level)} promised, {percent(entry.pooled)} inside" for entry in found.intervals)
    return svg("intervals", f"Intervals: {said}", 2.8, draw)
