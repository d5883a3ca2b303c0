"""The numbers of a result as rows of text, for the console and the page alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from irl.episodes_record import AllowedActions
from irl.max_margin import REASONS, Stop
from irl.progress import duration
from irl.quality_record import Quality
from irl.report.what_if import WhatIf
from irl.result import Interval, Result

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
