"""What a run of ``cirl demo`` or ``cirl explain`` found, finding by finding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from irl.max_margin.loop import REASONS, Stop
from irl.report import drawing
from irl.report.exchange import exchange_section
from irl.report.section import (
    Details,
    Line,
    Part,
    Picture,
    Reasons,
    Report,
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
from irl.report.simulated_habits import simulated_habits_section
from irl.result.result import AllowedActions, Quality, Result
from irl.result.sentences import SAME_PATIENTS, TRADE_OFF, steps_of
from irl.stages import duration

READINGS = {
    "posterior": "posterior mean: fits every single decision best",
    "w_K": "w_K: its policy's outcomes come nearest to the experts' (the paper's choice)",
    "last_direction": "last direction: where the loop still saw a difference",
    "least_regret": "least regret: the experts look closest to optimal",
}
POLICIES = {
    "expert": "experts",
    "cirl": "learnt weights (CIRL)",
    "cloning": "behaviour cloning",
    "random": "random action",
    "never": "never treat",
    "always": "always treat",
}
FORESEEN_BY = {
    "cirl": "preferences and habit (CIRL)",
    "habit": "habit alone",
    "last_action": "last-action table",
    "boosting": "gradient boosting",
    "cloning": "behaviour cloning",
    "frequencies": "frequency of each action",
    "chance": "pure chance",
    "expert": "the experts' own chances",
}


def report_of(result: Result, what_if: drawing.WhatIf | None = None, folder: Path | None = None) -> Report:
    """All sections, in the order in which they are shown.

    ``what_if`` is one history with its predicted futures, ``folder`` where the run's files are; None leaves them out.
    """
    of_result = (
        _weights,
        exchange_section,
        simulated_habits_section,
        _windows,
        _gammas,
        _accuracy,
        _agreement,
        _likelihood,
        _returns,
        _loop,
        _mixture,
    )
    found = [section(result) for section in of_result]
    found += [None if what_if is None else _what_if(what_if), _run(result, folder)]
    sections = tuple(section for section in found if section is not None)
    return Report("What the experts were trading off", result.headline, sections)


def _weights(result: Result) -> Section:
    weights = Table.of(
        "Weights",
        {
            "feature": result.features,
            "weight": map(signed, result.weights),
            "90 % interval": (span(result.intervals[name]) for name in result.features),
            "explains equally well": (span(result.identified_set.ranges[name]) for name in result.features),
            "truth": map(signed, result.true_weights) if result.true_weights else None,
        },
    )
    shows = (
        "One weight per feature: what a rise of the predicted outcome over its whole range was worth to the experts, "
        "judged by their decisions. The sizes of all weights add up to 1."
    )
    read = (
        "Left of zero, the experts acted to keep the feature low; right of zero, to keep it high. The dot is the "
        "estimate, the line its 90\N{NO-BREAK SPACE}% interval. The band covers all weights that explain the decisions "
        "about equally well; where it crosses zero, the data do not tell the direction. Each band holds for its "
        "feature alone: not every combination from several bands explains the decisions."
    )
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
    page: list[Part] = [Picture(partial(drawing.weights_svg, result)), explained(shows, read, cannot), weights]
    unknown = tuple(result.identified_set.not_identifiable.items())
    if unknown:
        page += ["Not identifiable from these data:", Reasons(unknown)]
    if result.identified_set.profile:
        says = (
            "By how much the experts fall short of the best policy found, for every pair of weights: where the line is "
            "lowest, they look closest to optimal. All weights under the dashed line explain their average outcomes "
            "about equally well."
        )
        about = "Which weights explain the average outcomes"
        page.append(Details(about, (Picture(partial(drawing.regret_svg, result)), says)))
    says = "Where these disagree, the decisions leave the weights open; the band above shows how far."
    if result.kappa is not None:
        low, high = result.kappa.interval
        says += (
            f" Kappa, how strictly the experts took the better action (0: at random), is {result.kappa.mean:.4g} "
            f"(90\N{NO-BREAK SPACE}% interval {low:.4g} to {high:.4g})."
        )
    readings = {READINGS.get(name, name): map(signed, weights) for name, weights in result.estimates.items()}
    others = Table.of("Weights by other readings", {"feature": result.features, **readings})
    page.append(Details("Other readings of the same run", (says, others)))
    said = (f"Not identifiable: {name} ({reason})" for name, reason in unknown)
    shown: tuple[Shown, ...] = (weights.titled("Weights (sizes add up to 1)"), *said)
    return Section("weights", "Weights", tuple(page), shown)


def _windows(result: Result) -> Section | None:
    """The weights of each window of time, and how much was judged in it."""
    if not result.windows:
        return None
    weights: Rows = []
    judged: Rows = []
    for i, name in enumerate(result.features):
        for window in result.windows:
            if window.found is not None:
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
    page = (explained(shows, SAME_PATIENTS, cannot), *tables)
    return Section("windows", "Weights per window of time", page, (*tables, SAME_PATIENTS))


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
    page = (explained(shows, read, TRADE_OFF), likely, under)
    shown = likely.titled(f"Discount factors: per decision, of {about}"), under.titled("Weights under each"), TRADE_OFF
    return Section("gammas", "The discount factor", page, shown)


def _accuracy(result: Result) -> Section:
    accuracy = result.accuracy
    met = Table(
        "Held-out decisions met",
        ["policy", "accuracy"],
        [
            ["learnt weights (CIRL)", percent(accuracy.cirl)],
            ["behaviour cloning", percent(accuracy.cloning)],
            ["most frequent action", percent(accuracy.majority)],
            ["repeat the last action", percent(accuracy.repeat_last_action)],
            ["ceiling", "not known" if accuracy.ceiling is None else percent(accuracy.ceiling)],
        ],
    )
    read = (
        "The two lowest bars need no learning: always the most frequent action, or the last action again. What does "
        "not beat them predicts nothing new. "
    ) + (
        "How far the experts act at random is not known here, and so neither is the ceiling; it lies below "
        "100\N{NO-BREAK SPACE}%."
        if accuracy.ceiling is None
        else "The dashed line is the ceiling: the experts act at random to some degree, and nobody can meet more."
    )
    terms = explained(
        f"The share of decisions of {result.episodes.test} held-out episodes that each policy's most likely action "
        "meets.",
        read,
        "Agreement does not prove the weights: different weights can lead to the same decisions.",
    )
    page = (Picture(partial(drawing.accuracy_svg, result)), terms, met)
    return Section("accuracy", "Agreement with held-out decisions", page, (met,))


def _agreement(result: Result) -> Section | None:
    """At every step, the episodes still going on and how many of their decisions each policy meets."""
    over_time = result.agreement
    if over_time is None:
        return None
    every = Table.of(
        "Held-out decisions met at each step",
        {
            "step": map(str, range(len(over_time.episodes))),
            "episodes": map(str, over_time.episodes),
            "learnt weights (CIRL)": map(percent, over_time.cirl),
            "behaviour cloning": map(percent, over_time.cloning),
        },
    )
    says = (
        "The share of held-out decisions met at each time step, among the episodes that are still going on; where few "
        "are left, a share says little."
    )
    page = (Picture(partial(drawing.agreement_svg, over_time)), says, Details("Every step", (every,)))
    return Section("agreement", "Agreement over time", page)


def _likelihood(result: Result) -> Section | None:
    """What foresees the decisions; the experts' own chances where they are known."""
    found = result.likelihood
    if found is None:
        return None
    said = {words: getattr(found, name) for name, words in FORESEEN_BY.items()}
    rows = [
        [words, signed(one.mean, 3), f"{one.standard_error:.3f}", percent(one.accuracy)]
        for words, one in said.items()
        if one is not None
    ]
    table = Table("Log-likelihood", ["account", "mean", "standard error", "decisions met"], rows)
    says = (
        f"The mean log-probability of {found.decisions} held-out decisions of {found.patients} patients; nearer to "
        "zero is better. Unlike the share of decisions met it also asks how sure each description was. What does not "
        "beat the frequency of each action foresees nothing. Standard errors are of each number alone, with patients "
        "as the unit: all are about the same decisions, so that differences are surer."
    )
    about = f"Log-likelihood per held-out decision (of {found.decisions})"
    return Section("likelihood", "How likely held-out decisions are", (says, table), (table.titled(about),))


def _returns(result: Result) -> Section | None:
    if result.returns is None:
        return None
    rows = [[POLICIES[name], signed(e.mean), f"{e.standard_error:.3f}"] for name, e in result.returns.items()]
    table = Table("Returns", ["policy", "mean", "standard error"], rows)
    says = (
        "The mean return of each policy under the true weights; higher is better. The experts' row is what their "
        "preferences alone would earn, without mistakes and habits. A policy that was learnt from the table alone is "
        "good if it comes close to the experts and far from the three fixed rules."
    )
    shown = table.titled("Returns in the simulator, true weights")
    return Section("returns", "Returns in the simulator", (says, table), (shown,))


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


def _what_if(what_if: drawing.WhatIf) -> Section:
    """Step, what was or would be done, value of every feature."""
    situations = [*(f"observed, then {action}" for action in what_if.actions), "observed last"]
    courses = [(str(step), *pair) for step, pair in enumerate(zip(situations, what_if.observed, strict=True))]
    for action, future in what_if.futures.items():
        courses += [(str(step), f"if {action}", values) for step, values in enumerate(future, len(what_if.observed))]
    rows = [[step, situation, *map(short, values)] for step, situation, values in courses]
    numbers = Table("Observed and predicted courses", ["step", "situation", *what_if.labels], rows)
    terms = explained(
        "The observed course of one history up to the dotted line, and what the outcome model expects if one action is "
        "taken at every step from there on.",
        "Black is what was observed; the mark on each point stands for the action that was taken there. Each coloured "
        "line is one action, and its large mark is where the line ends: the last step looked at, or, where it ends "
        "earlier than others, the step at which the model expects the episode to be over.",
        "These are expected courses: real ones scatter around them, more so further ahead. They hold only as far as "
        "similar histories with that action are in the data. They are not advice for a patient.",
    )
    page = (Picture(partial(drawing.what_if_svg, what_if)), terms, Details("The numbers", (numbers,)))
    return Section("what-if", f"What if: {what_if.title}", page)


def _run(result: Result, folder: Path | None) -> Section:
    """What was run, on what, with what, and how long it took."""
    error, parts, seconds = result.model_error, result.episodes, result.seconds
    counterfactual = "not known" if error.counterfactual is None else short(error.counterfactual)
    lengths = f"{parts.mean_length:.1f} of the experts, {parts.mean_length_recovered:.1f} of the recovered policy"
    total = duration(sum(seconds.values()))
    rows = {
        "episodes": f"{parts.train} to learn from, {parts.validation} to tune on, {parts.test} held out",
        "actions per episode, on average": lengths,
        "what was forbidden": None if result.allowed is None else forbidden(result.allowed),
        "error of the outcome model, actions taken": short(error.factual),
        "error of the outcome model, other actions": counterfactual,
        "plans against what is reached in the model": None if result.quality is None else promised(result.quality),
        "seed": str(result.seed),
        **{f"time: {name}": duration(spent) for name, spent in seconds.items()},
        "time: all": total,
        **{f"version of {name}": version for name, version in result.versions.items()},
    }
    lines: list[Shown] = []
    if result.quality is not None:
        lines.append(f"Plans and what is reached in the world model: {promised(result.quality)}.")
    if result.allowed is not None:
        lines.append(f"Forbidden: {forbidden(result.allowed)}.")
    lines.append(f"Actions per episode, on average: {lengths}, in its world model.")
    times = ", ".join(f"{name} {duration(spent)}" for name, spent in seconds.items())
    lines.append(f"Time: {total} ({times}).")
    if folder is not None:
        names = ", ".join(sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")))
        lines.append(Line(f"Files in {folder}: {names}"))
    known = [[item, value] for item, value in rows.items() if value is not None]
    page: list[Part] = [
        Table("Data, errors, time, versions", ["item", "value"], known),
        "Errors are roots of summed squares of outcomes scaled to 0 to 1.",
    ]
    if result.table:
        repaired = Table("Table", ["item", "value"], _flat(result.table))
        page.append(Details("What was found and repaired in the table", (repaired,)))
    page.append(Details("Settings", (Table("Settings", ["name", "value"], _flat(result.config)),)))
    return Section("run", "This run", tuple(page), tuple(lines))


def forbidden(allowed: AllowedActions) -> str:
    """The rules, and how many training decisions they leave to choose."""
    counts = f"some action in {allowed.limited:,} of {allowed.decisions:,} decisions, all but one in {allowed.forced:,}"
    return f"{'; '.join(allowed.rules)} ({counts})"


def promised(quality: Quality) -> str:
    """How far what plans promise is from what policies reach in the same world model."""
    tied = f"{percent(quality.sampled)} in one outcome, where policies can tie"
    return f"at most {percent(quality.value)} of the full range apart in value, {tied} ({quality.weights} weights)"


def _flat(content: Mapping[str, Any], prefix: str = "") -> Rows:
    """Nested settings as rows of dotted name and value."""
    rows: Rows = []
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            rows += _flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append([f"{prefix}{key}", text])
    return rows
