"""The numbers of a result as rows of text, for the console and the page alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from irl.max_margin.loop import REASONS, Stop
from irl.report.what_if import WhatIf
from irl.result.records import AllowedActions, Quality, TimeWindow
from irl.result.result import Interval, Result
from irl.result.sentences import steps_of
from irl.stages import duration

Rows: TypeAlias = list[list[str]]
MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"

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


def percent(share: float) -> str:
    """A share as text: 0.8349 is ``83.5 %``."""
    return f"{100 * share:.1f} %"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign, as typeset: ``−0.290``, ``+0.051``, and ``0.000`` without one."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def span(interval: Interval, digits: int = 3) -> str:
    """``low to high``, never broken across lines."""
    return NO_BREAK.join((signed(interval[0], digits), "to", signed(interval[1], digits)))


def short(value: float) -> str:
    """Four significant digits, as typeset."""
    return f"{value:.4g}".replace("-", MINUS)


def weight_rows(result: Result) -> Rows:
    """Feature, weight, interval, identified set, truth where it is known."""
    rows = []
    for i, name in enumerate(result.features):
        row = [name, signed(result.weights[i]), span(result.intervals[name])]
        row.append(span(result.identified_set.ranges[name]))
        if result.true_weights is not None:
            row.append(signed(result.true_weights[i]))
        rows.append(row)
    return rows


def weight_head(result: Result) -> list[str]:
    """Names of the columns of :func:`weight_rows`."""
    head = ["feature", "weight", "90 % interval", "explains equally well"]
    if result.true_weights is not None:
        head.append("truth")
    return head


def reading_head(result: Result) -> list[str]:
    """Names of the columns of :func:`reading_rows`."""
    return ["feature", *(READINGS.get(name, name) for name in result.estimates)]


def reading_rows(result: Result) -> Rows:
    """Feature, then its weight by every reading."""
    columns = result.estimates.values()
    return [[name, *(signed(weights[i]) for weights in columns)] for i, name in enumerate(result.features)]


def accuracy_rows(result: Result) -> Rows:
    """Policy and share of held-out decisions met."""
    accuracy = result.accuracy
    return [
        ["learnt weights (CIRL)", percent(accuracy.cirl)],
        ["behaviour cloning", percent(accuracy.cloning)],
        ["most frequent action", percent(accuracy.majority)],
        ["repeat the last action", percent(accuracy.repeat_last_action)],
        ["ceiling", "not known" if accuracy.ceiling is None else percent(accuracy.ceiling)],
    ]


def return_rows(result: Result) -> Rows:
    """Policy, mean return and its standard error; empty without a simulator."""
    returns = result.returns or {}
    return [[POLICIES[name], signed(e.mean), f"{e.standard_error:.3f}"] for name, e in returns.items()]


def round_rows(result: Result) -> Rows:
    """Round, margin, lambda, agreement with held-out decisions, decisions changed, seconds."""
    rows = []
    for entry in result.rounds:
        step = "" if entry.lambda_ is None else f"{entry.lambda_:.3f}"
        changed = "" if entry.changed is None else f"{entry.changed:.3f}"
        seconds = f"{entry.seconds:.2f}"
        rows.append([str(entry.k), f"{entry.margin:.4f}", step, f"{entry.agreement:.3f}", changed, seconds])
    return rows


def stopped(result: Result) -> str:
    """Why the loop ended: its word, and what it means."""
    reason = REASONS.get(cast(Stop, result.stop))
    return result.stop if reason is None else f"{result.stop} ({reason})"


def what_if_rows(what_if: WhatIf) -> Rows:
    """Step, what was or would be done, value of every feature."""
    rows: Rows = []
    actions = [*(f"observed, then {action}" for action in what_if.actions), "observed last"]
    for step, values in enumerate(what_if.observed):
        rows.append([str(step), actions[step], *map(short, values)])
    for action, future in what_if.futures.items():
        for step, values in enumerate(future, start=len(what_if.observed)):
            rows.append([str(step), f"if {action}", *map(short, values)])
    return rows


def run_rows(result: Result) -> Rows:
    """What was run, on what, with what, and how long it took."""
    error, parts = result.model_error, result.episodes
    counterfactual = "not known" if error.counterfactual is None else short(error.counterfactual)
    return [
        ["episodes", f"{parts.train} to learn from, {parts.validation} to tune on, {parts.test} held out"],
        ["actions per episode, on average", lengths(result)],
        *([] if result.allowed is None else [["what was forbidden", forbidden(result.allowed)]]),
        ["error of the outcome model, actions taken", short(error.factual)],
        ["error of the outcome model, other actions", counterfactual],
        *([] if result.quality is None else [["plans against what is reached in the model", kept(result.quality)]]),
        ["seed", str(result.seed)],
        *([f"time: {name}", duration(seconds)] for name, seconds in result.seconds.items()),
        ["time: all", duration(sum(result.seconds.values()))],
        *([f"version of {name}", version] for name, version in result.versions.items()),
    ]


def forbidden(allowed: AllowedActions) -> str:
    """The rules, and how many training decisions they leave to choose."""
    counts = f"some action in {allowed.limited:,} of {allowed.decisions:,} decisions, all but one in {allowed.forced:,}"
    return f"{'; '.join(allowed.rules)} ({counts})"


def kept(quality: Quality) -> str:
    """How far what plans promise is from what policies reach in the same world model."""
    value, outcome = percent(quality.value), percent(quality.sampled)
    tied = f"{outcome} in one outcome, where policies can tie"
    return f"at most {value} of the full range apart in value, {tied} ({quality.weights} weights)"


def lengths(result: Result) -> str:
    """Mean lengths of the experts' episodes and of the recovered policy's, side by side."""
    parts = result.episodes
    return f"{parts.mean_length:.1f} of the experts, {parts.mean_length_recovered:.1f} of the recovered policy"


def flat(content: Mapping[str, Any], prefix: str = "") -> Rows:
    """Nested settings as rows of dotted name and value."""
    rows: Rows = []
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            rows += flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            rows.append([f"{prefix}{key}", text])
    return rows


# MERGED: How well held-out decisions are foreseen as rows of text, for the console and the page alike.

LIKELIHOOD_HEAD = ["policy", "mean", "standard error"]
AGREEMENT_HEAD = ["step", "episodes", "learnt weights (CIRL)", "behaviour cloning"]
FORESEEN_BY = {
    "cirl": "learnt weights (CIRL)",
    "averaged": "averaged over the posterior",
    "cloning": "behaviour cloning",
    "frequencies": "frequency of each action",
    "chance": "pure chance",
    "expert": "the experts' own chances",
}


def likelihood_rows(result: Result) -> Rows:
    """What foresees the decisions, the mean log-probability, its standard error; the experts' own where known."""
    rows: Rows = []
    for name, words in FORESEEN_BY.items():
        said = None if result.likelihood is None else getattr(result.likelihood, name)
        if said is not None:
            rows.append([words, signed(said.mean), f"{said.standard_error:.3f}"])
    return rows


def agreement_rows(result: Result) -> Rows:
    """Step, episodes that are still going on, and how many of their decisions each policy meets."""
    over_time = result.agreement
    if over_time is None:
        return []
    columns = zip(over_time.episodes, over_time.cirl, over_time.cloning, strict=True)
    return [[str(t), str(n), percent(cirl), percent(cloning)] for t, (n, cirl, cloning) in enumerate(columns)]


# MERGED: Windows of time and discount factors as rows of text, for the console and the page alike.

WINDOW_TITLE = "Weights per window of time (* a change beyond chance)"
WINDOW_HEAD = ["feature", "steps", "weight", "90 % interval", "change", "its interval"]
WINDOW_KAPPA_HEAD = ["steps", "decisions", "patients", "kappa", "90 % interval"]
GAMMA_HEAD = ["gamma", "log-likelihood", "minus the best", "standard error", "choice"]
GAMMA_WEIGHT_HEAD = ["feature", "gamma", "weight", "90 % interval"]


def window_rows(result: Result) -> Rows:
    """Feature, window, weight, interval, change since the window before (marked if beyond chance), its interval."""
    rows: Rows = []
    for i, name in enumerate(result.features):
        for window in result.windows:
            if window.found is None:
                continue
            row = [name, _steps(window), signed(window.found.weights[i]), span(window.found.intervals[i])]
            if window.changes is None:
                rows.append([*row, "", ""])
            else:
                change = window.changes[i]
                mark = " *" if change.clear else ""
                rows.append([*row, signed(change.difference) + mark, span(change.interval)])
    return rows


def window_kappa_rows(result: Result) -> Rows:
    """Window, how much was judged, kappa and its interval; those that were not fitted too."""
    rows: Rows = []
    for window in result.windows:
        row = [_steps(window), str(window.decisions), str(window.patients)]
        if window.found is None:
            rows.append([*row, "too few", ""])
        else:
            low, high = window.found.kappa_interval
            rows.append([*row, short(window.found.kappa), f"{short(low)} to {short(high)}"])
    return rows


def gamma_rows(result: Result) -> Rows:
    """Discount factor, how likely it makes held-out decisions, how much less than the best, and which was taken."""
    if result.gammas is None:
        return []
    rows: Rows = []
    for one in result.gammas.tried:
        tied = "tie" if one.tied and len(result.gammas.tied) > 1 else ""
        taken = f"{tied}, taken".removeprefix(", ") if one.gamma == result.gammas.chosen else tied
        numbers = [signed(one.log_likelihood, 4), signed(one.difference, 4), f"{one.standard_error:.4f}"]
        rows.append([f"{one.gamma:g}", *numbers, taken])
    return rows


def gamma_weight_rows(result: Result) -> Rows:
    """Feature, discount factor, and what it would have said of the weight."""
    if result.gammas is None:
        return []
    return [
        [name, f"{one.gamma:g}", signed(one.weights[i]), span(one.intervals[i])]
        for i, name in enumerate(result.features)
        for one in result.gammas.tried
    ]


def _steps(window: TimeWindow) -> str:
    return steps_of(window).removeprefix("steps ")
