"""phi: outcomes scaled to [0, 1] by ranges fixed once. The one place where an outcome becomes what a weight weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.parameters import TumourParameters
from cirl_gym.types import FloatArray, IntArray


@dataclass(frozen=True)
class FeatureMap:
    """phi(outcome) = (outcome - low) / (high - low), feature by feature (paper, equations 1 and 23).

    It is linear: an outcome outside the range lies outside [0, 1] and is not clipped, so that no part of a trade-off
    is hidden. The outcomes can be some of the D features that are observed: the others are seen and predicted, but no
    weight weighs them.

    Raises:
        ValueError: lengths differ, a name is there twice, an outcome is not observed, a bound is not finite, or a range
            is empty.
    """

    features: tuple[str, ...]
    """Names of the d outcomes."""
    low: FloatArray
    """``[d]`` the raw value that becomes 0."""
    high: FloatArray
    """``[d]`` the raw value that becomes 1."""
    of: tuple[str, ...] = ()
    """Names of the D observed features; default: the outcomes alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "of", tuple(self.of) or self.features)
        for names in (self.features, self.of):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"FeatureMap: the names must be different, and one at least, got {names}")
        check_outcomes(self.features, self.of)
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
    def from_batch(cls, batch: Batch, outcomes: Sequence[str] | None = None) -> FeatureMap:
        """Ranges from the smallest to the largest value of each outcome; a constant one gets a range of 1.

        Args:
            batch: what was observed.
            outcomes: names of the features that are weighed; None: all.

        Raises:
            ValueError: an outcome is none of the batch's features.
        """
        names = batch.features if outcomes is None else tuple(outcomes)
        check_outcomes(names, batch.features)
        columns = [batch.features.index(name) for name in names]
        rows = batch.obs[batch.seen][:, columns].astype(np.float64)
        low, high = rows.min(axis=0), rows.max(axis=0)
        return cls(names, low, np.where(high > low, high, low + 1.0), batch.features)

    def among(self, observed: Sequence[str]) -> FeatureMap:
        """The same phi, read from other features that are observed: more of them, or in another order.

        Raises:
            ValueError: an outcome is not among them.
        """
        return FeatureMap(self.features, self.low, self.high, tuple(observed))

    @cached_property
    def columns(self) -> IntArray:
        """``[d]`` where the outcomes stand among the observed features."""
        columns = np.array([self.of.index(name) for name in self.features], dtype=np.int64)
        columns.setflags(write=False)
        return columns

    @cached_property
    def _in_place(self) -> bool:
        """Every observed feature is an outcome, in the same order: nothing is to be picked."""
        return self.features == self.of

    @cached_property
    def _range(self) -> FloatArray:
        return self.high - self.low

    def __call__(self, observed: npt.ArrayLike) -> FloatArray:
        """Phi ``[.., d]`` of raw observations or predictions ``[.., D]``.

        Raises:
            ValueError: the last axis does not hold one number per observed feature.
        """
        raw = np.asarray(observed, dtype=np.float64)
        if raw.ndim == 0 or raw.shape[-1] != len(self.of):
            raise ValueError(
                f"phi is of [.., {len(self.of)}] numbers, one for each of {', '.join(self.of)}; got shape {raw.shape}"
            )
        scaled: FloatArray = ((raw if self._in_place else raw[..., self.columns]) - self.low) / self._range
        return scaled

    def unscaled(self, phi: npt.ArrayLike) -> FloatArray:
        """The d outcomes ``[.., d]`` in raw units, in the order of ``features``, from phi ``[.., d]``."""
        outcomes: FloatArray = self.low + np.asarray(phi, dtype=np.float64) * self._range
        return outcomes

    def raw(self, phi: npt.ArrayLike) -> FloatArray:
        """Observations ``[.., D]`` in raw units from phi ``[.., d]``: the inverse, where there is one.

        Raises:
            ValueError: some of the observed features are no outcome, and phi says nothing of them.
        """
        unknown = [name for name in self.of if name not in self.features]
        if unknown:
            raise ValueError(f"phi has no inverse: it says nothing of {', '.join(unknown)}")
        return self.unscaled(phi)[..., np.argsort(self.columns)]


def check_outcomes(outcomes: Sequence[str], observed: Sequence[str]) -> None:
    """Check that every outcome is one of the observed features.

    Raises:
        ValueError: one is not; the message names it and what there is.
    """
    unknown = [name for name in outcomes if name not in observed]
    if unknown:
        raise ValueError(
            f"outcome {', '.join(map(repr, unknown))} is not among the observed features: {', '.join(observed)}"
        )
