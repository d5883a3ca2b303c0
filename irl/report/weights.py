"""The sections of a run that say what weights were found, and the fold that keeps them where they mean nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from cirl_gym.data.outcomes import Column, read_outcome
from irl.max_margin.loop import REASONS, Stop
from irl.report import drawing
from irl.report.consequences import endings_section, other_weights_section
from irl.report.exchange import exchange_section
from irl.report.section import (
    NO_BREAK,
    Details,
    Heading,
    Part,
    Picture,
    Reasons,
    Rows,
    Section,
    Shown,
    Table,
    explained,
    percent,
    short,
    signed,
    span,
)
from irl.result.result import Result
from irl.result.sentences import NOT_READ, SAME_PATIENTS, TRADE_OFF, steps_of, weights_mean_something

READINGS = {
    "posterior": "direction of the posterior mean: what policies act on",
    "w_K": "w_K: its policy's outcomes come nearest to the experts' (the paper's choice)",
    "last_direction": "last direction: where the loop still saw a difference",
    "least_regret": "least regret: the experts look closest to optimal",
}
FOLD = "Weights, which mean nothing here"
AVERAGES = "average outcomes allow"


def weights_sections(result: Result) -> tuple[list[Section], list[Section]]:
    """What stands first on a page, and what stands after the decisions; where weights mean nothing, one fold there."""
    first = [_weights(result), exchange_section(result), _windows(result), _gammas(result)]
    last = [endings_section(result), other_weights_section(result), _loop(result), _mixture(result)]
    if weights_mean_something(result.verdict):
        return _known(first), _known(last)
    return [], [_folded(_known([*first, *last]))]


def _known(sections: list[Section | None]) -> list[Section]:
    return [section for section in sections if section is not None]


def _folded(sections: list[Section]) -> Section:
    """All that rests on the weights, folded away: kept, and no finding."""
    inside: list[Part] = []
    for section in sections:
        inside += [Heading(section.title), *section.page]
    says = (
        "By the verdict above, these decisions do not tell what the outcomes weighed. The weights that the search came "
        "to, and all that follows from them, are kept for those who look into the method. They are no finding."
    )
    line = f"{FOLD}, are in result.json and folded away on the page; they are no finding."
    return Section("weights", "Weights", (says, Details(FOLD, tuple(inside))), (line,))


def _counts(result: Result) -> list[list[dict[str, Any]]]:
    """Of every outcome, what became of the readings of the columns that it is read from, where a table was read."""
    told = {counts["name"]: counts for counts in (result.table or {}).get("features", ()) if "filled_share" in counts}
    columns = (read_outcome(name, tuple(told)).columns for name in result.features)
    return [[told[column] for column in of if column in told] for of in columns]


def _filled(result: Result) -> list[str] | None:
    """Of every outcome, how much of what it is read from nobody measured; None where it is not much of any."""
    of = _counts(result)
    if not any(counts["much_filled"] for columns in of for counts in columns):
        return None
    return [percent(max((counts["filled_share"] for counts in columns), default=0.0)) for columns in of]


def _imputed(result: Result) -> list[str] | None:
    """Of every outcome, how much of what it is read from is no reading of its own row, and of that the median."""
    of = _counts(result)
    if not any(of):
        return None
    said = []
    for columns in of:
        shares = [(one["carried"] / max(one["observed"] + one["carried"] + one["filled"], 1), one) for one in columns]
        carried, most = max(shares, key=lambda each: each[0] + each[1]["filled_share"], default=(0.0, None))
        filled = 0.0 if most is None else most["filled_share"]
        median = f" ({percent(filled)} by the median)" if filled else ""
        said.append(percent(carried + filled) + median)
    return said


def _ranges(result: Result) -> list[str] | None:
    """Of every outcome, the range that its weight is for, with what is counted where the outcome says it."""
    known = result.config.get("ranges")
    if not isinstance(known, Mapping) or set(known) != set(result.features):
        return None
    observed = tuple((result.config.get("columns") or {}).get("features", result.features))
    said = []
    for name in result.features:
        outcome = read_outcome(name, observed)
        unit = "" if isinstance(outcome, Column) else f" {outcome.unit}"
        said.append(f"{NO_BREAK.join((short(known[name][0]), 'to', short(known[name][1])))}{unit}")
    return said


def _weights_tables(result: Result) -> tuple[Table, Table]:
    """Every weight with what has to be known to read it, and the narrower table of a terminal."""
    unread, allowed = result.uninterpreted, drawing.left_open(result)
    known: dict[str, Iterable[str] | None] = {
        "feature": result.features,
        "weight": [
            NOT_READ if name in unread else signed(weight)
            for name, weight in zip(result.features, result.weights, strict=True)
        ],
        "90 % interval": ["" if name in unread else span(result.intervals[name]) for name in result.features],
    }
    averages = [
        "" if name in unread else "anything" if name in allowed else span(result.identified_set.ranges[name])
        for name in result.features
    ]
    ends: dict[str, Iterable[str] | None] = {
        AVERAGES: None if allowed >= set(result.features) - set(unread) else averages,
        "truth": [signed(truth) for truth in result.true_weights] if result.true_weights else None,
    }
    page = {**known, "range": _ranges(result), **ends, "imputed": _imputed(result)}
    return Table.of("Weights", page), Table.of("Weights", {**known, **ends, "filled by the median": _filled(result)})


def _weights(result: Result) -> Section:
    weights, narrow = _weights_tables(result)
    shows = (
        "One weight per feature: what a rise of the predicted outcome over its whole range was worth to the experts, "
        "judged by their decisions. The sizes of a single draw of all weights add up to 1; those of the medians, which "
        "are shown, need not."
    )
    read = (
        "Left of zero, the experts acted to keep the feature low; right of zero, to keep it high. The dot is the "
        "median, the line its 90\N{NO-BREAK SPACE}% interval; where the line crosses zero, the data do not tell the "
        "direction. A weight is for the whole range of its feature, which one outlier widens."
    )
    allowed = drawing.left_open(result)
    if not allowed >= set(result.features) - set(result.uninterpreted):
        read += (
            " The band is what the experts' average outcomes allow: all weights by which their average comes as near "
            "to the best policy found as by any others, whatever single decisions say. Each band holds for its feature "
            "alone: not every combination from several bands does. A band is left out where average outcomes allow "
            "anything."
        )
    elif len(allowed) > 0:
        read += " The experts' average outcomes alone would allow any of these weights: single decisions tell them."
    if result.true_weights is not None:
        read += " The diamond is the truth, known here because the experts were simulated."
    cover = (
        f"and what {len(result.members)} outcome models, each searched anew for policies, differ in"
        if result.members
        else "not errors of the outcome model or of the search for policies"
    )
    cannot = (
        "Only ratios between weights mean something. They describe what the decisions reveal, given the features in "
        "the table and the outcomes that the model predicts. They do not say whether a decision was right, nor what "
        "moved the experts outside the table. The intervals cover the chance of which patients and decisions were "
        f"seen, {cover}."
    )
    page: list[Part] = [explained(shows, read, cannot), weights]
    if (interpretable := len(result.features) - len(result.uninterpreted)) > 0:
        page.insert(0, Picture(partial(drawing.weights_svg, result)))
    if interpretable >= drawing.CORNERS:
        says = (
            "The same as a radar, as in the paper's figure 4: how far from the middle is the size of the weight, the "
            "bar on its spoke its 90\N{NO-BREAK SPACE}% interval; the weight itself stands under the name."
        )
        page += [says, Picture(partial(drawing.radar_svg, result))]
    unknown = tuple(result.identified_set.not_identifiable.items())
    if unknown:
        page += ["Not identifiable from these data:", Reasons(unknown)]
    if result.uninterpreted:
        page += ["Not interpreted:", Reasons(tuple(result.uninterpreted.items()))]
    if result.identified_set.profile and not result.uninterpreted:
        says = (
            "By how much the experts fall short of the best policy found, for every pair of weights: where the line is "
            "lowest, they look closest to optimal. All weights under the dashed line explain their average outcomes "
            "about equally well."
        )
        about = "Which weights explain the average outcomes"
        page.append(Details(about, (Picture(partial(drawing.regret_svg, result)), says)))
    says = "Where these disagree, the decisions leave the weights open."
    if result.kappa is not None:
        low, high = result.kappa.interval
        says += (
            f" Kappa, how strictly the experts took the better action (0: at random), is {result.kappa.mean:.4g} "
            f"(90\N{NO-BREAK SPACE}% interval {low:.4g} to {high:.4g})."
        )
        if result.likelihood is not None and result.likelihood.folds:
            says += " It may well be larger: what few patients leave open of the world makes experts look less strict."
    interpreted = {name: i for i, name in enumerate(result.features) if name not in result.uninterpreted}
    readings = {
        READINGS.get(name, name): [signed(weights[i]) for i in interpreted.values()]
        for name, weights in result.estimates.items()
    }
    others = Table.of("Weights by other readings", {"feature": interpreted, **readings})
    page.append(Details("Other readings of the same run", (says, *([others] if interpreted else []))))
    said = (f"Not identifiable: {name} ({reason})" for name, reason in unknown)
    shown: tuple[Shown, ...] = (narrow, *said)
    return Section("weights", "Weights", tuple(page), shown)


def _windows(result: Result) -> Section | None:
    """The weights of each window of time, and how much was judged in it."""
    if not result.windows:
        return None
    weights: Rows = []
    judged: Rows = []
    for i, name in enumerate(result.features):
        for window in result.windows:
            if window.found is not None and name not in result.uninterpreted:
                row = [name, steps_of(window).removeprefix("steps ")]
                row += [signed(window.found.weights[i]), span(window.found.intervals[i]), "", ""]
                if window.changes is not None:
                    change = window.changes[i]
                    row[-2:] = [signed(change.difference) + (" *" if change.clear else ""), span(change.interval)]
                weights.append(row)
    for window in result.windows:
        kappa, between = "too few", ""
        if window.found is not None:
            kappa, between = short(window.found.kappa), " to ".join(map(short, window.found.kappa_interval))
        steps = steps_of(window).removeprefix("steps ")
        judged.append([steps, str(window.decisions), str(window.patients), kappa, between])
    tables = (
        Table(
            "Weights per window of time (* a change beyond chance)",
            ["feature", "steps", "weight", "90 % interval", "change", "its interval"],
            weights,
        ),
        Table("Decisions per window", ["steps", "decisions", "patients", "kappa", "90 % interval"], judged),
    )
    shows = (
        "The weights that the decisions of some steps alone reveal: those which, held from there to the end of the "
        "episode, make these decisions most likely."
    )
    cannot = (
        "Why weights change. Patients who are still there at late steps are not those of the first steps: a change can "
        "be one of patients as well as one of mind."
    )
    known = [table for table in tables if table.rows]
    page: tuple[Part, ...] = (explained(shows, SAME_PATIENTS, cannot), *known)
    return Section("windows", "Weights per window of time", page, (*known, SAME_PATIENTS))


def _gammas(result: Result) -> Section | None:
    """Which discount factor was taken, how likely each makes held-out decisions, and its weights."""
    choice = result.gammas
    if choice is None:
        return None
    tried: Rows = []
    for one in choice.tried:
        words = ["tie"] if one.tied and len(choice.tied) > 1 else []
        words += ["taken"] if one.gamma == choice.chosen else []
        numbers = [signed(one.log_likelihood, 4), signed(one.difference, 4), f"{one.standard_error:.4f}"]
        tried.append([f"{one.gamma:g}", *numbers, ", ".join(words)])
    weights = [
        [name, f"{one.gamma:g}", signed(one.weights[i]), span(one.intervals[i])]
        for i, name in enumerate(result.features)
        if name not in result.uninterpreted
        for one in choice.tried
    ]
    about = f"{choice.decisions} held-out decisions of {choice.patients} patients"
    likely = Table("Discount factors", ["gamma", "log-likelihood", "minus the best", "standard error", "choice"], tried)
    under = Table("Weights under each discount factor", ["feature", "gamma", "weight", "90 % interval"], weights)
    shows = (
        f"The mean log-likelihood, per decision, that each discount factor gives to {about}, the chance of each "
        "averaged over what it finds of weights and kappa."
    )
    read = (
        "The nearer to zero, the likelier. The standard error is that of the difference to the best, patient by "
        "patient. The largest discount factor within one standard error of the best is taken: a smaller one claims "
        "that the experts give up on what comes later, and that is claimed only where decisions support it."
    )
    of_each = [under] if weights else []
    page: tuple[Part, ...] = (explained(shows, read, TRADE_OFF), likely, *of_each)
    titled = likely.titled(f"Discount factors: per decision, of {about}")
    shown: tuple[Shown, ...] = (titled, *of_each, TRADE_OFF)
    return Section("gammas", "The discount factor", page, shown)


def _loop(result: Result) -> Section:
    """The margin of every round, and why the loop ended."""
    reason = REASONS.get(cast(Stop, result.stop))
    stopped = result.stop if reason is None else f"{result.stop} ({reason})"
    rounds = Table.of(
        "Rounds",
        {
            "round": (str(one.k) for one in result.rounds),
            "margin": (f"{one.margin:.4f}" for one in result.rounds),
            "lambda": ("" if one.lambda_ is None else f"{one.lambda_:.3f}" for one in result.rounds),
            "decisions met": (f"{one.agreement:.3f}" for one in result.rounds),
            "decisions changed": ("" if one.changed is None else f"{one.changed:.3f}" for one in result.rounds),
            "seconds": (f"{one.seconds:.2f}" for one in result.rounds),
        },
    )
    met = (
        "Decisions met: on the first held-out episodes, by the policy of the round; changed: where it differs from the "
        "round before's."
    )
    lines = [f"Loop: {len(result.rounds)} rounds, margin {short(result.margin)}; {stopped}."]
    recovered: tuple[tuple[str, str], ...] = ()
    if result.mu_gap is not None:
        says = (
            f"The policy that is optimal for the weights above is {result.mu_gap:.4g} from the experts' discounted "
            "outcomes in the outcome model: a single policy that never errs, where the margin is that of a mixture."
        )
        recovered = (("The recovered policy", says),)
        gap = f"the recovered policy's are {short(result.mu_gap)} from the experts'"
        lines.append(f"Discounted outcomes, in ranges: {gap}, in its world model.")
    terms = explained(
        "After every round, the distance between the discounted outcomes that the experts reach and those of the "
        "nearest mixture of the policies found so far.",
        f"It should fall and level off. The search ended after {len(result.rounds)} rounds with a margin of "
        f"{result.margin:.4g}: {stopped}.",
        "A small margin says that the experts' average outcomes can be reached, in the outcome model. It does not "
        "measure how well the weights are known.",
        recovered,
    )
    page = (Picture(partial(drawing.margins_svg, result)), terms, Details("Every round", (met, rounds)))
    return Section("margins", "The search for the weights", page, tuple(lines))


def _mixture(result: Result) -> Section | None:
    """The policies of the mixture, and how near it comes to the experts."""
    mixture = result.mixture
    if mixture is None:
        return None
    title = "Mixture of policies"
    rounds = {f"round {one.round}": one for one in mixture.policies}
    shares = Table.of(
        title, {"optimal for the weights of": rounds, "share": (percent(one.share) for one in mixture.policies)}
    )
    outcomes = Table.of(
        "Discounted outcomes, and the weights of each round",
        {
            "feature": result.features,
            "mixture": map(short, mixture.mu),
            "experts": map(short, result.mu_expert),
            **{name: map(signed, one.w) for name, one in rounds.items()},
        },
    )
    terms = explained(
        "The mixture of the policies found whose discounted outcomes are nearest to the experts': in every episode one "
        "of them is drawn by its share and followed to the end. It is the answer of the paper's section 4.3.",
        f"Its outcomes are {short(mixture.distance)} from the experts' in the outcome model. Together its policies do "
        "what the experts do on average, though each is optimal for other weights.",
        "What the experts weigh: they need not have the weights of any of these policies.",
    )
    near = f"Mixture: its discounted outcomes are {short(mixture.distance)} from the experts', in its world model."
    return Section("mixture", title, (terms, shares, outcomes), (shares, near))
