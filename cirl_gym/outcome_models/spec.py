"""What is known of the outcomes whatever model predicts them: names, limits and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.censoring import clipped_mean
from cirl_gym.outcome_models.noise import ResidualNoise
from cirl_gym.types import Float32Array, FloatArray

WIDENING = 1.5
"""How many observed ranges the bounds go beyond them on either side.

Wide enough for courses that no expert lets happen: in the simulator, treating at every step doubles the side effects
that experts were seen to accept. Narrow enough to keep what a planner can imagine within sight of the data.
"""


@dataclass(frozen=True)
class OutcomeSpec:
    """Names, bounds and noise of d outcomes.

    Raises:
        ValueError: lengths differ, a bound is not finite, low exceeds high, or a noise is negative.
    """

    features: tuple[str, ...]
    """Names of the d features."""
    n_actions: int
    """A, the number of actions."""
    low: FloatArray
    """``[d]`` no prediction is below, raw units."""
    high: FloatArray
    """``[d]`` no prediction is above, raw units."""
    noise_scale: FloatArray
    """``[d]`` standard deviation of the outcome around its prediction, raw units."""
    floor: FloatArray
    """``[d]`` limit at which outcomes pile up from above, raw units; -inf where there is none."""
    ceiling: FloatArray
    """``[d]`` limit at which outcomes pile up from below, raw units; inf where there is none."""

    residuals: ResidualNoise | None = None
    """Law of the residuals; default: normal and independent with ``noise_scale``."""

    relative: tuple[str, ...] = ()
    """Features that a network corrects in proportion to their current value."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "relative", tuple(self.relative))
        if not set(self.relative) <= set(self.features):
            raise ValueError(f"OutcomeSpec: {self.relative} are not all features; those are {self.features}")
        for name in ("low", "high", "noise_scale"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != (len(self.features),) or not np.isfinite(array).all():
                raise ValueError(f"OutcomeSpec.{name} must be {len(self.features)} finite numbers, got {array}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in ("floor", "ceiling"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != (len(self.features),) or np.isnan(array).any():
                raise ValueError(f"OutcomeSpec.{name} must be {len(self.features)} numbers, got {array}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if (self.low > self.high).any() or (self.noise_scale < 0).any():
            raise ValueError(f"OutcomeSpec: low must not exceed high and noise not be negative, got {self}")

    def size(self, newest: npt.NDArray[np.floating]) -> FloatArray:
        """``[.., d]`` what corrections are multiplied by after observations ``[.., d]``: the value itself, or 1."""
        proportional = np.array([name in self.relative for name in self.features])
        return np.where(proportional, np.abs(newest.astype(np.float64)), 1.0)

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for independent standard normal numbers ``[.., d]``."""
        return normals * self.noise_scale if self.residuals is None else self.residuals(normals)

    def expected(self, raw: FloatArray) -> Float32Array:
        """Expected outcomes ``[.., d]``, float32, where the law says ``raw`` before any limit."""
        return self.clip(clipped_mean(raw, self.noise_scale, self.floor, self.ceiling))

    def clip(self, raw: npt.NDArray[np.floating]) -> Float32Array:
        """Outcomes ``[.., d]`` inside the bounds, float32."""
        # Clipped after rounding to float32: rounding could otherwise step over a bound.
        return np.clip(raw.astype(np.float32), self.low.astype(np.float32), self.high.astype(np.float32))


def outcome_bounds(train: Batch) -> tuple[FloatArray, FloatArray]:
    """``[d]`` lowest and highest training value, each one and a half ranges further out.

    A feature that was never negative (a volume, a count, a concentration) is not allowed below 0.
    """
    rows = train.obs[train.seen].astype(np.float64)
    lowest, highest = rows.min(axis=0), rows.max(axis=0)
    margin = WIDENING * (highest - lowest)
    low = np.where(lowest >= 0, np.maximum(lowest - margin, 0.0), lowest - margin)
    return low, highest + margin
