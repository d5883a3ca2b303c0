"""phi: outcomes scaled to [0, 1] by ranges fixed once. The one place where an outcome becomes what a weight weighs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.parameters import TumourParameters
from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class FeatureMap:
    """phi(outcome) = (outcome - low) / (high - low), feature by feature (paper, equations 1 and 23).

    It is linear: an outcome outside the range lies outside [0, 1] and is not clipped, so that no part of a trade-off
    is hidden.

    Raises:
        ValueError: lengths differ, a bound is not finite, or a range is empty.
    """

    features: tuple[str, ...]
    """Names of the d features."""
    low: FloatArray
    """``[d]`` the raw value that becomes 0."""
    high: FloatArray
    """``[d]`` the raw value that becomes 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        for name in ("low", "high"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != (len(self.features),) or not np.isfinite(array).all():
                raise ValueError(f"FeatureMap.{name} must be {len(self.features)} finite numbers, got {array}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if (self.high <= self.low).any():
            bad = self.features[int(np.flatnonzero(self.high <= self.low)[0])]
            raise ValueError(f"FeatureMap: the range of {bad!r} is empty")

    @classmethod
    def from_parameters(cls, parameters: TumourParameters, features: tuple[str, ...]) -> FeatureMap:
        """The simulator's phi: x / x_max and z / z_max (paper, equation 23)."""
        return cls(features, np.zeros(2), parameters.limits)

    @classmethod
    def from_batch(cls, batch: Batch) -> FeatureMap:
        """Ranges from the smallest to the largest value of each feature; a constant feature gets a range of 1."""
        rows = batch.obs[batch.seen].astype(np.float64)
        low, high = rows.min(axis=0), rows.max(axis=0)
        return cls(batch.features, low, np.where(high > low, high, low + 1.0))

    @cached_property
    def _range(self) -> FloatArray:
        return self.high - self.low

    def __call__(self, outcomes: npt.ArrayLike) -> FloatArray:
        """Phi ``[.., d]`` of raw outcomes ``[.., d]``."""
        scaled: FloatArray = (np.asarray(outcomes, dtype=np.float64) - self.low) / self._range
        return scaled

    def raw(self, phi: npt.ArrayLike) -> FloatArray:
        """Outcomes ``[.., d]`` in raw units from phi ``[.., d]``: the inverse."""
        outcomes: FloatArray = self.low + np.asarray(phi, dtype=np.float64) * self._range
        return outcomes
