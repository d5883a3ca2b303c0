"""What a case study found (:mod:`irl.result.case_study`), for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from irl.report.decisions import ACCOUNTS
from irl.report.section import Line, Report, Section, Shown, Table, percent, short, signed
from irl.result.case_study import CaseStudy, EffectFinding, VariantFinding, WeightFinding
from irl.result.codec import Interval
from irl.result.limits import FoundLimit
from irl.result.sentences import Verdict, limit_sentences, weights_mean_something

WORDS = {
    "agrees": "agrees with what is known",
    "contradicts": "contradicts what is known",
    "open": "open: the interval holds 0",
    "nothing known": "",
}
"""A finding beside what is known, in words."""
NOT_READ = "not interpreted"


def report_of_study(found: CaseStudy, folder: Path) -> Report:
    """The findings in the order in which they are to be believed: effect, verdict, weights, what they rest on."""
    sections = [
        _effects(found),
        _weights(found),
        _rates(found),
        _methods(found),
        _variants(found),
        _check(found),
        Section("files", "Files", (), (Line(f"The run, its table.csv, study.json and report.html: {folder}"),)),
    ]
    return Report(found.title, headline(found), tuple(one for one in sections if one is not None), found.question)


def headline(found: CaseStudy) -> tuple[str, ...]:
    """What was looked at, the verdict, and at which level they act."""
    counts, added = found.counts, found.beyond_habit
    looked = (
        f"{counts.decisions:,} decisions of {counts.patients:,} patients ({counts.used:,} stays); the action, "
        f"{found.action}, in {percent(counts.taken / counts.decisions)} of them; {counts.changes:,} differ from the "
        "decision before."
    )
    verdict = (
        f"{found.verdict.capitalize()}: with outcomes, the log-likelihood of a decision is higher by "
        f"{signed(added.mean, 3)} (standard error {added.standard_error:.3f})."
    )
    limit = limit_sentences(found.limit, cast(Verdict, found.verdict), found.folds > 0)
    return (looked, verdict, *limit)


def _span(interval: Interval | None) -> str:
    return "" if interval is None else f"{short(interval[0])} to {short(interval[1])}"


def _effect_rows(effects: Sequence[EffectFinding]) -> list[list[str]]:
    rows = []
    for one in effects:
        where = "" if one.level is None else f" at {short(one.level[0])} to {short(one.level[1])}"
        rows.append([f"{one.action} on {one.outcome}{where}", short(one.effect), _span(one.interval), WORDS[one.says]])
    return rows


def _weight_rows(weights: Sequence[WeightFinding], verdict: str) -> list[list[str]]:
    rows = []
    for one in weights:
        read = one.unread is None and weights_mean_something(verdict)
        rows.append([one.outcome, signed(one.weight), _span(one.interval), WORDS[one.says] if read else NOT_READ])
    return rows


def _effects(found: CaseStudy) -> Section:
    table = Table(
        "What the action changes in the next value",
        ["effect", "estimate", "90 % interval", "beside what is known"],
        _effect_rows(found.effects),
    )
    known = [f"Known: {one.known}. {one.source}" for one in found.effects if one.known is not None]
    differs = "Where an effect differs by level, it is that of the level at which the action is usually taken."
    note = [differs] if any(one.level is not None for one in found.effects) else []
    return Section("study-effects", table.title, (), (table, *note, *known))


def _weights(found: CaseStudy) -> Section:
    table = Table(
        "What the decisions traded off (weights)",
        ["outcome", "weight", "90 % interval", "beside what is known"],
        _weight_rows(found.weights, found.verdict),
    )
    known: list[Shown] = [f"Known: {one.known}. {one.source}" for one in found.weights if one.known is not None]
    unread = [f"{one.outcome} is not interpreted: {one.unread}." for one in found.weights if one.unread is not None]
    if not weights_mean_something(found.verdict):
        unread.append("By the verdict, no weight is a finding.")
    return Section("study-weights", table.title, (), (table, *known, *unread))


def _rates(found: CaseStudy) -> Section | None:
    """Nothing where weights mean nothing."""
    if not found.rates or not weights_mean_something(found.verdict):
        return None
    rows = [
        [f"1 unit of {one.outcome}", "not bounded" if one.rate is None else short(one.rate), _span(one.interval)]
        for one in found.rates
    ]
    against = found.rates[0].against
    table = Table("Exchange rates", ["of", f"weighs as much as units of {against}", "90 % interval"], rows)
    return Section("study-rates", table.title, (), (table,))


def _methods(found: CaseStudy) -> Section:
    rows = [
        [ACCOUNTS[name], signed(one.mean, 3), f"{one.standard_error:.3f}", percent(one.accuracy) * (name != "chance")]
        for name, one in found.methods.items()
    ]
    table = Table("How well decisions are foreseen", ["account", "log-likelihood", "standard error", "accuracy"], rows)
    parts = f"in {found.folds} parts" if found.folds else "by held-out patients"
    return Section("study-methods", table.title, (), (table, f"Cross-validation over patients, {parts}."))


def _variants(found: CaseStudy) -> Section | None:
    """The same study with other choices, and itself."""
    if not found.variants:
        return None
    own = (found.variant or "as it is", found)
    every: list[tuple[str, CaseStudy | VariantFinding]] = [own, *((one.name, one) for one in found.variants)]
    rows = []
    for name, one in every:
        told = [*_limit_rows(one.limit), *_known(_effect_rows(one.effects), one.effects)]
        rows += [[name, one.verdict, *row[:3]] for row in (*told, *_weight_rows(one.weights, one.verdict))]
    head = ["study", "verdict", "finding", "estimate", "90 % interval"]
    table = Table("With other choices", head, rows)
    return Section("study-variants", table.title, (), (table, *(f"{one.name}: {one.why}." for one in found.variants)))


def _limit_rows(found: FoundLimit | None) -> list[list[str]]:
    if found is None:
        return []
    return [[f"limit of {found.asked}", "open" if found.limit is None else short(found.limit), _span(found.interval)]]


def _check(found: CaseStudy) -> Section | None:
    """How often experts who are known were recovered."""
    if not found.simulated:
        return None
    runs = len(found.simulated)
    held, read = ([hit for one in found.simulated for hit in getattr(one, name)] for name in ("held", "held_if_read"))
    says = (
        f"Experts who are known, in a world fitted to the table ({runs} runs): {sum(held)} of {len(held)} weights lie "
        f"in their 90 % intervals, {sum(read)} of {len(read)} of those that may be read, and "
        f"{sum(one.right for one in found.simulated)} of {runs} verdicts are right."
    )
    return Section("study-check", "Experts who are known", (), (says,))


def _known(rows: list[list[str]], effects: Sequence[EffectFinding]) -> list[list[str]]:
    """Rows of effects of which something is known; where nothing is, all."""
    kept = [row for row, one in zip(rows, effects, strict=True) if one.known is not None]
    return kept or rows
