"""Exchange rates: what change of an outcome makes up for one more step with an action, in the outcome's own units.

Let w be weights and r the ranges by which outcomes are scaled. Experts are indifferent between one more step with an
action g and none if in the same step outcome j changes by x with w_g / r_g + x w_j / r_j = 0. So the rate is
x = -(w_g / r_g) / (w_j / r_j): it depends on no scale of w, nor on kappa.
"""

from __future__ import annotations

import numpy as np

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import KnownOutcome
from cirl_gym.types import FloatArray
from irl.result.codec import Interval, Record, require

TAILS = (0.05, 0.5, 0.95)
"""Quantiles: the ends of a 90 % interval, and the median between them."""


class ExchangeRate(Record, frozen=True):
    """What makes up for one more step of what is known of an action (:mod:`cirl_gym.data.known`)."""

    one_more: str
    """Of which outcome: a ``Given(action)`` or ``Switched()``."""
    unit: str
    """What there is one more of, in words."""
    outcome: str
    """Which outcome changes."""
    change: float | None
    """Median of the change that makes up for it, raw units; None where no number bounds it."""
    interval: Interval | None
    """90 % interval of the change; None as well."""

    def check(self) -> None:
        """Both numbers are there or none, in order."""
        if self.change is None or self.interval is None:
            require(self.change is None and self.interval is None, "exchange_rates: change and interval go together")
            return
        low, high = self.interval
        require(low <= self.change <= high, f"exchange_rates: {self.change} must lie within {low} to {high}")

    @property
    def sentence(self) -> str:
        """In words."""
        more = f"One more {self.unit} ({self.one_more})"
        if self.change is None or self.interval is None:
            return f"{more}: what change of {self.outcome} makes up for it is not bounded, its weight may be 0."
        low, high = self.interval
        if low < 0 < high:
            return f"{more} is made up for by a change of {self.outcome} between {low:+.3g} and {high:+.3g}."
        near, far = sorted((abs(low), abs(high)))
        way = "rise" if self.change > 0 else "fall"
        return (
            f"{more} is made up for by a {way} of {self.outcome} by {abs(self.change):.3g} ({near:.3g} to {far:.3g})."
        )


def exchange_rates(feature_map: FeatureMap, draws: FloatArray) -> tuple[ExchangeRate, ...]:
    """The rates of each known outcome against all others, from draws ``[M, d]`` of the weights; of two known ones once.

    None is bounded where the 90 % interval of the other outcome's weight contains 0.

    Raises:
        ValueError: the draws are of another number of weights.
    """
    if draws.ndim != 2 or draws.shape[1] != len(feature_map.features) or len(draws) == 0:
        raise ValueError(f"exchange rates need draws [M, {len(feature_map.features)}], got {draws.shape}")
    each = draws / (feature_map.high - feature_map.low)  # per raw unit
    low, _, high = np.quantile(each, TAILS, axis=0)
    known = [isinstance(outcome, KnownOutcome) for outcome in feature_map.outcomes]
    found = []
    for g, outcome in enumerate(feature_map.outcomes):
        for j, other in enumerate(feature_map.features):
            if not known[g] or j == g or (known[j] and j < g):
                continue
            change, interval = None, None
            if not low[j] <= 0 <= high[j]:
                with np.errstate(divide="ignore", invalid="ignore"):
                    least, middle, most = np.quantile(-each[:, g] / each[:, j], TAILS)
                if np.isfinite([least, middle, most]).all():
                    change, interval = float(middle) + 0.0, (float(least), float(most))
            found.append(ExchangeRate(outcome.name, outcome.unit, other, change, interval))
    return tuple(found)
