"""What has to be said of outcomes: what a weight is per, what was only seen, and what an expectation leaves out."""

from __future__ import annotations

import math

from cirl_gym.features import FeatureMap
from cirl_gym.outcome_features import Above, Below, OutcomeFeature, Outside
from cirl_gym.types import FloatArray


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
