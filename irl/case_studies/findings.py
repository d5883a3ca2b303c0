"""What a finished run says of a case study, beside what medicine knows."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from cirl_gym.data.outcomes import read_outcome
from irl.case_studies.study import OPEN, Claim, StudyDesign
from irl.report.decisions import ACCOUNTS
from irl.result.case_study import CaseStudy, Counts, EffectFinding, Rate, Says, VariantFinding, WeightFinding
from irl.result.codec import Interval
from irl.result.effects import Effect, LevelEffect
from irl.result.result import Result
from irl.result.sentences import per
from irl.run import Run
from irl.studies.comparison import Preferences

_TAILS = (0.05, 0.5, 0.95)
_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"


def counts_of(frame: pd.DataFrame, action: str, stays: int, cohort: int) -> Counts:
    """Numbers of stays, patients and decisions of a table; ``stays`` of the data set, and of its ``cohort``."""
    taken = frame[action].astype("Int64")  # what is missing differs from nothing
    before = taken.groupby(frame["stay"]).shift(1)
    return Counts(
        stays=stays,
        cohort=cohort,
        used=int(frame["stay"].nunique()),
        patients=int(frame["subject"].nunique()),
        decisions=int(taken.notna().sum()),
        taken=int(taken.fillna(0).sum()),
        changes=int((taken != before).fillna(False).sum()),
        rows=len(frame),
    )


def findings(study: StudyDesign, name: str, frame: pd.DataFrame, counts: Counts, run: Run, quick: bool) -> CaseStudy:
    """What a run on a study's table found.

    Args:
        study: as it was asked, or a variant of it.
        name: of the study.
        frame: its table, as :class:`irl.case_studies.table.StudyTable` has it.
        counts: of the table.
        run: on the table.
        quick: whether it was a first look.

    Raises:
        ValueError: the run was not judged by decisions that nothing was learnt from.
    """
    result = run.result
    found = result.likelihood
    if found is None:
        raise ValueError(f"{run.folder}: a case study needs a run whose decisions were judged (likelihood)")
    methods = {one: getattr(found, one) for one in ACCOUNTS}
    return CaseStudy(
        study=name,
        title=study.title,
        question=study.question,
        action=study.action.meaning,
        seed=result.seed,
        quick=quick,
        counts=counts,
        verdict=result.verdict,
        beyond_habit=found.beyond_habit,
        limit=result.limit,
        effects=tuple(effect_finding(one, study, frame) for one in result.effects),
        weights=_weights(result, run.preferences, study),
        rates=rates(run.preferences),
        methods={one: each for one, each in methods.items() if each is not None},
        folds=found.folds,
        seconds=sum(result.seconds.values()),
    )


def varied(study: StudyDesign, name: str, found: CaseStudy) -> VariantFinding:
    """The findings of a variant, in short."""
    why = next(one.why for one in study.variant if one.name == name)
    return VariantFinding(
        name=name,
        why=why,
        decisions=found.counts.decisions,
        taken=found.counts.taken,
        verdict=found.verdict,
        beyond_habit=found.beyond_habit,
        effects=found.effects,
        weights=found.weights,
        limit=found.limit,
    )


def says(interval: Interval | None, sign: int | None) -> Says:
    """Whether an interval lies whole on the known side of 0, on the other one, or on both."""
    if sign is None:
        return "nothing known"
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "open"
    return "agrees" if interval[0] * sign > 0 else "contradicts"


def effect_finding(one: Effect, study: StudyDesign, frame: pd.DataFrame) -> EffectFinding:
    """An effect beside what is known of it, where the action is usually taken."""
    claim = _claimed(study, one)
    sign = None if claim is None else 1 if " raises " in claim.says else -1 if " lowers " in claim.says else None
    usual = _usual_level(one, study, frame)
    effect, interval = (one.next, one.next_interval) if usual is None else (usual.effect, usual.interval)
    told = says(interval, sign)
    if claim is not None and sign is None:  # it is known that there is none, or how large it is
        told = "contradicts" if one.contradicted else "agrees"
    return EffectFinding(
        action=one.action,
        outcome=one.outcome,
        effect=effect,
        interval=interval,
        level=None if usual is None else usual.level,
        known=None if claim is None else claim.says,
        source=None if claim is None else claim.source,
        says=told,
    )


def _usual_level(one: Effect, study: StudyDesign, frame: pd.DataFrame) -> LevelEffect | None:
    """The effect at the level at which the action is usually taken, the median; None where it does not depend on it."""
    (column, *_) = read_outcome(one.outcome, [each.name for each in study.covariate]).columns or ("",)
    if not one.by_level or column not in frame:
        return None
    usual = frame.loc[frame[study.action.name] == 1, column].median()
    return next((part for part in one.by_level if part.level[0] <= usual <= part.level[1]), None)


def _claimed(study: StudyDesign, one: Effect) -> Claim | None:
    """What was known of the effect: the run says it in its own words, of the same outcome."""
    if one.stated is None:
        return None
    return next((claim for claim in study.known.effects if claim.says == one.stated), None)


def _weights(result: Result, preferences: Preferences, study: StudyDesign) -> tuple[WeightFinding, ...]:
    unread = {**result.uninterpreted, **result.identified_set.not_identifiable}
    found = []
    for i, outcome in enumerate(result.features):
        claim = next((one for one in study.known.weights if is_named(outcome, one.says.rpartition("=")[0])), None)
        sign = None if claim is None else int(claim.says.rpartition("=")[2])
        found.append(
            WeightFinding(
                outcome=outcome,
                weight=result.weights[i],
                interval=result.intervals[outcome],
                per=per(preferences.feature_map, i),
                unread=unread.get(outcome),
                known=None if claim is None else claim.says,
                source=None if claim is None else claim.source,
                says=says(result.intervals[outcome], sign),
            )
        )
    return tuple(found)


def is_named(outcome: str, asked: str) -> bool:
    """Whether an outcome is the one asked for, whose open limit has been found meanwhile."""
    pattern = re.escape(asked).replace(re.escape(OPEN), _NUMBER)
    return re.fullmatch(pattern, outcome) is not None


def rates(preferences: Preferences) -> tuple[Rate, ...]:
    """How much of the outcome of the largest weight is worth one unit of each other one.

    With weights w per range r, one unit of outcome i weighs w_i / r_i; the rate is the ratio of two such, over the
    draws. None where the 90 % interval of the reference's weight holds 0.
    """
    phi, draws = preferences.feature_map, preferences.draws
    each = draws / (phi.high - phi.low)
    top = int(np.argmax(np.abs(np.median(draws, axis=0))))
    low, high = np.quantile(draws[:, top], [_TAILS[0], _TAILS[2]])
    found = []
    for i, outcome in enumerate(phi.features):
        if i == top:
            continue
        rate, interval = None, None
        if not low <= 0 <= high:
            with np.errstate(divide="ignore", invalid="ignore"):
                least, middle, most = np.quantile(each[:, i] / each[:, top], _TAILS)
            if np.isfinite([least, middle, most]).all():
                rate, interval = float(middle), (float(least), float(most))
        found.append(Rate(outcome=outcome, against=phi.features[top], rate=rate, interval=interval))
    return tuple(found)
