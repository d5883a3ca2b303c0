"""What has to be said of outcomes: what a weight is per, what was only seen, and what an expectation leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, OutcomeFeature, Outside
from cirl_gym.types import FloatArray
from irl.result.result import GammaChoice, TimeWindow


def per(feature_map: FeatureMap, i: int) -> str:
    """What weight i is per: ``per 5.2 units``, ``per 1.4 units outside 36..38``."""
    return f"per {feature_map.high[i] - feature_map.low[i]:.4g} {feature_map.outcomes[i].unit}"


def seen_sentences(feature_map: FeatureMap) -> list[str]:
    """What was seen and not weighed."""
    needed = {name for outcome in feature_map.outcomes for name in outcome.needs}
    seen, weighed, outcomes = len(feature_map.of), len(needed), len(feature_map.features)
    if seen == weighed:
        return []
    plain = set(feature_map.features) == needed
    used = "are weighed as outcomes" if plain else f"go into the {outcomes} outcomes that are weighed"
    return [f"Of {seen} observed features {weighed} {used}; the others are only seen and predicted."]


def expectation_sentences(feature_map: FeatureMap, noise: FloatArray) -> list[str]:
    """By how much outcomes with a kink fall short of their expectation, at most.

    Args:
        feature_map: the outcomes.
        noise: ``[D]`` standard deviation of each observed feature around its prediction, raw units.
    """
    short = []
    for outcome in feature_map.outcomes:
        most = most_understated(outcome, float(noise[feature_map.of.index(outcome.columns[0])]))
        if most > 0:
            short.append(f"{most:.2g} to {outcome.name}")
    if not short:
        return []
    return [
        "Distances from a limit are measured at the expected value, which leaves out what chance adds on average: at "
        f"most {', '.join(short)}."
    ]


def most_understated(outcome: OutcomeFeature, deviation: float) -> float:
    """How much less an outcome of the expected value can be than the outcome expected, raw units (Jensen's inequality).

    For normal residuals of one standard deviation s, at the worst place, which is a kink: E max(x - limit, 0) exceeds
    max(E x - limit, 0) by s g(z) with g(z) = density(z) - z tail(z), z >= 0 the distance from the limit in units of s.
    Of a range of width r the other end adds s g(r / s). It is 0 for an outcome without a kink.
    """
    if deviation <= 0 or not isinstance(outcome, Outside | Above | Below):
        return 0.0
    distances = [0.0]
    if isinstance(outcome, Outside):
        distances.append((outcome.high - outcome.low) / deviation)
    return deviation * sum(
        math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) - z * math.erfc(z / math.sqrt(2)) / 2 for z in distances
    )


# MERGED: What windows of time and the choice of the discount factor found, in plain sentences.

TRADE_OFF = (
    "A discount factor and weights trade off: a short-sighted expert looks like one who weighs lasting outcomes less. "
    "What each discount factor would have said of the weights is in the table."
)
SAME_PATIENTS = (
    "A change is called beyond chance if its 90 % interval does not hold 0; without any change, about one of ten would "
    "be called so. The intervals know that windows share patients, and not how errors of the outcome model or of the "
    "search for plans differ over time."
)


def gamma_sentences(choice: GammaChoice | None) -> list[str]:
    """Which discount factor was taken and why; nothing where none was chosen."""
    if choice is None:
        return []
    among = f"Of the discount factors {_listed([f'{one.gamma:g}' for one in choice.tried])}"
    tied = [f"{one.gamma:g}" for one in choice.tied]
    if len(tied) == 1:
        return [f"{among}, {tied[0]} makes held-out decisions most likely, by more than one standard error."]
    return [
        f"{among}, held-out decisions do not tell {_listed(tied)} apart (within one standard error): a tie, of which "
        f"the largest is taken, {choice.chosen:g}."
    ]


def window_sentences(features: Sequence[str], windows: Sequence[TimeWindow]) -> list[str]:
    """What changes beyond chance from each window to the next, and which windows say nothing."""
    sentences = []
    for before, after in pairwise(windows):
        if after.changes is None:
            continue
        clear = [(one.difference, name) for name, one in zip(features, after.changes, strict=True) if one.clear]
        # Of two weights of the same sign, the changes are equal but for rounding.
        clear.sort(key=lambda pair: -round(abs(pair[0]), 6))
        listed = ", ".join(f"{name} {difference:+.2f}" for difference, name in clear[:4])
        more = f" and {len(clear) - 4} more" if len(clear) > 4 else ""
        said = f"these weights change beyond chance: {listed}{more}" if clear else "no weight changes beyond chance"
        sentences.append(f"From {steps_of(before)} to {steps_of(after)}, {said}.")
    for window in windows:
        if window.found is None:
            few = f"{window.decisions} decisions of {window.patients} patients"
            sentences.append(f"{steps_of(window).capitalize()} have too few decisions to say anything: {few}.")
    return sentences


def steps_of(window: TimeWindow) -> str:
    """The window in words: ``steps 0 to 5``, ``steps 12 on``."""
    return f"steps {window.from_} on" if window.to is None else f"steps {window.from_} to {window.to}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
