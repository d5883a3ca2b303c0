"""What a run of ``cirl demo`` or ``cirl explain`` found, finding by finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from irl.preferences.samplers import EFFECTIVE, R_HAT
from irl.report import drawing
from irl.report.decisions import decisions_sections
from irl.report.effects import effects_section
from irl.report.habits import habits_section
from irl.report.limits import limit_section
from irl.report.overview import facts_of
from irl.report.section import (
    Details,
    Heading,
    Line,
    Part,
    Picture,
    Report,
    Rows,
    Section,
    Sentences,
    Shown,
    Table,
    explained,
    percent,
    short,
    signed,
)
from irl.report.settings import settings_rows
from irl.report.simulated_habits import simulated_habits_section
from irl.report.weights import weights_sections
from irl.report.why import why_section
from irl.result.result import AllowedActions, Quality, Result, Sampler
from irl.stages import duration
from irl.studies.why import Why

TITLE = "What the decisions tell"
POLICIES = {
    "expert": "experts",
    "cirl": "preferences alone (CIRL)",
    "cloning": "behaviour cloning",
    "random": "random action",
    "never": "never treat",
    "always": "always treat",
}


def report_of(
    result: Result,
    what_if: drawing.WhatIf | None = None,
    folder: Path | None = None,
    whys: Sequence[Why] = (),
    held_out: int = 0,
    date: str = "",
) -> Report:
    """All sections, in the order in which they are shown.

    ``what_if`` is one history with its predicted futures, ``folder`` where the run's files are; None leaves them out.
    ``whys`` are some of the ``held_out`` decisions, explained; ``date`` is the day of the run.
    """
    first, last = weights_sections(result)
    decisions = decisions_sections(result)
    known = [habits_section(result), simulated_habits_section(result)]
    what_if_too = [] if what_if is None else [_what_if(what_if)]
    sections = [
        limit_section(result),
        effects_section(result),
        *first,
        *known,
        *decisions,
        why_section(result, whys, held_out),
        _returns(result),
        *last,
        *what_if_too,
        _run(result, folder),
    ]
    verdict, *headline = result.headline
    return Report(
        TITLE, tuple(headline), tuple(one for one in sections if one is not None), verdict, facts_of(result, date)
    )


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
    page: list[Part] = []
    if told := _told(result.table):
        page += [Heading("Every repair of the table"), *told]
    page += [
        Heading("Settings, errors, time"),
        Table("What was asked", ["setting", "value"], settings_rows(result)),
        Table("Data, errors, time, versions", ["item", "value"], known),
        "Errors are roots of summed squares of outcomes scaled to 0 to 1.",
        Details("How far the sample behind weights and intervals can be trusted", _sampler(result.sampler)),
    ]
    every = {"config": result.config, "table": {k: v for k, v in (result.table or {}).items() if k != "account"}}
    page.append(Details("Every setting, for the machine", (Table("Every setting", ["name", "value"], _flat(every)),)))
    return Section("run", "This run", tuple(page), tuple(lines))


def _told(table: Mapping[str, Any] | None) -> list[Part]:
    """What was read and repaired, in the sentences of a terminal, warnings first."""
    if table is None or "account" not in table:
        return []
    warnings = [f"Warning: {text}" for text in table["warnings"]]
    return [Sentences((*warnings, *table["account"]))]


def _sampler(sampler: Sampler) -> tuple[Part, ...]:
    """Convergence of every number, and what decisions of one patient count."""
    numbers = Table.of(
        "The sampler",
        {
            "number": sampler.r_hat,
            "R-hat": (f"{value:.3f}" for value in sampler.r_hat.values()),
            "effective draws": (f"{sampler.effective[name]:.0f}" for name in sampler.r_hat),
        },
    )
    reached = "It did" if sampler.converged else "It did not"
    says = (
        f"A sample has converged where every R-hat is at most {R_HAT} and every effective number of draws at least "
        f"{EFFECTIVE:.0f}. {reached}. The likelihood has the power {sampler.power:.2f}: below 1 where the decisions of "
        "a patient depend on each other and count for fewer."
    )
    return (says, numbers)


def forbidden(allowed: AllowedActions) -> str:
    """The rules, and how many decisions they leave to choose."""
    counts = f"some action in {allowed.limited:,} of {allowed.decisions:,} decisions, all but one in {allowed.forced:,}"
    return f"{'; '.join(allowed.rules)} ({counts})"


def promised(quality: Quality) -> str:
    """How far what plans promise is from what policies reach in the same world model."""
    tied = f"{percent(quality.sampled)} in one outcome, where policies can tie"
    return f"at most {percent(quality.value)} of the full range apart in value, {tied} ({quality.weights} weights)"


def _flat(content: Any, name: str = "") -> Rows:
    """Nested settings as rows of dotted name and value."""
    if isinstance(content, Mapping) and content:
        return [row for key, value in content.items() for row in _flat(value, f"{name}.{key}" if name else f"{key}")]
    if isinstance(content, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in content):
        return [row for i, value in enumerate(content) for row in _flat(value, f"{name}.{i}")]
    return [[name, _plainly(content)]]


def _plainly(value: Any) -> str:
    """A setting in words: no notation of a programming language."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plainly, value)) or "none"
    return "not given" if value is None else "none" if value in ({}, "") else str(value)
