"""What a diagnosis says in plain sentences. Nothing is said that its numbers do not bear."""

from __future__ import annotations

from cirl_gym.outcome_models.diagnostics_calibration import Coverage
from irl.diagnosis import Diagnosis, ErrorsAhead
from irl.report.rows import percent

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
