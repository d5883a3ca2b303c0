"""The reward of every environment, R = w . phi: the weights w, and phi, the outcomes scaled to [0, 1] (equation 23).

Weights are checked once, and scaled, drawn and walked along on the L1 sphere with the signs that are known.
:class:`FeatureMap` is the one place where an outcome (:mod:`cirl_gym.data.outcomes`) becomes what a weight weighs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import Column, OutcomeFeature, check_outcomes, outcome_values, read_outcome
from cirl_gym.types import FloatArray, IntArray

_CORNERS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 0.0]])


def check_weights(weights: npt.ArrayLike, features: Sequence[str]) -> FloatArray:
    """The weights ``[d]`` as a read-only array, one per feature.

    Raises:
        ValueError: not one finite number per feature, or their absolute values add up to more than 1 (with phi in
            [0, 1] the norm bounds the reward of a step).
    """
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"weights must be {len(features)} numbers, got {weights!r}") from error
    if array.shape != (len(features),):
        raise ValueError(
            f"weights must be {len(features)} numbers, one for each of {', '.join(features)}; got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"weights must be finite, got {array.tolist()}")
    norm = float(np.abs(array).sum())
    if norm > 1 + 1e-9:
        raise ValueError(f"weights must have an L1 norm of at most 1, got {array.tolist()} with norm {norm:g}")
    array.setflags(write=False)
    return array


def reward(phi: FloatArray, weights: FloatArray) -> FloatArray:
    """``[..]`` w . phi for ``phi [.., d]`` and weights ``[d]`` or ``[.., d]``, added feature by feature.

    Written out instead of a matrix product, so that a row's reward is the same to the last bit alone and among others.
    """
    total: FloatArray = phi[..., 0] * weights[..., 0]
    for k in range(1, phi.shape[-1]):
        total = total + phi[..., k] * weights[..., k]
    return total


def normalised(w: npt.ArrayLike) -> FloatArray:
    """``[d]`` w scaled to L1 norm 1; a policy does not depend on the scale of w, a network's input does.

    Raises:
        ValueError: w is not a vector, not finite, or zero.
    """
    vector = np.asarray(w, dtype=np.float64)
    if vector.ndim != 1 or len(vector) == 0 or not np.isfinite(vector).all():
        raise ValueError(f"weights must be a vector of finite numbers, got {vector}")
    largest = np.abs(vector).max()
    if largest == 0:
        raise ValueError("weights must not all be zero: they have no direction")
    vector = vector / largest  # first, so that neither very large nor very small weights leave the range of floats
    scaled: FloatArray = vector / np.abs(vector).sum()
    return scaled


def checked_signs(signs: npt.ArrayLike) -> FloatArray:
    """``[d]`` signs as -1.0, 0.0 (free) or 1.0.

    Raises:
        ValueError: not a vector of these three numbers.
    """
    vector = np.asarray(signs, dtype=np.float64)
    if vector.ndim != 1 or len(vector) == 0 or not np.isin(vector, (-1.0, 0.0, 1.0)).all():
        raise ValueError(f"signs must be a vector of -1, 0 (free) and 1, got {signs!r}")
    return vector


def keep_signs(w: FloatArray, signs: FloatArray) -> FloatArray:
    """``[.., d]`` w with every component of the wrong sign set to zero: the nearest weights that obey ``signs [d]``."""
    return np.where(w * signs < 0, 0.0, w)


def draw_weights(signs: npt.ArrayLike, rng: np.random.Generator, n: int | None = None) -> FloatArray:
    """``[d]`` (or ``[n, d]``) weights drawn uniformly from the part of the L1 sphere that ``signs [d]`` allow."""
    allowed = checked_signs(signs)
    size = (1 if n is None else n, len(allowed))
    v = rng.standard_exponential(size)
    flipped = np.where(rng.random(size) < 0.5, -1.0, 1.0)
    v *= np.where(allowed == 0, flipped, allowed)
    w: FloatArray = v / np.abs(v).sum(axis=1, keepdims=True)
    return w[0] if n is None else w


def arc_weights(t: FloatArray) -> FloatArray:
    """``[M, 2]`` the L1 sphere of two features, walked along: t in [0, 4], one unit per face, from (1, 0) over (0, 1).

    Within a face both components change linearly, so that t uniform is w_1 uniform.
    """
    face = np.clip(np.floor(t).astype(np.int64), 0, 3)
    share = (t - face)[:, None]
    w: FloatArray = (1 - share) * _CORNERS[face] + share * _CORNERS[face + 1]
    return w


def allowed_faces(signs: FloatArray) -> list[int]:
    """Faces 0..3 of :func:`arc_weights` on which no component has a sign that ``signs [2]`` forbid."""
    inside = (_CORNERS[:-1] + _CORNERS[1:]) * signs
    return [face for face in range(4) if (inside[face] >= 0).all()]


@dataclass(frozen=True)
class FeatureMap:
    """phi(outcome) = (outcome - low) / (high - low), feature by feature (paper, equations 1 and 23).

    It is linear: an outcome outside the range lies outside [0, 1] and is not clipped, so that no part of a trade-off
    is hidden. The outcomes can be some of the D features that are observed, or computed of them (their names are texts
    such as ``Outside(temperature, 36, 38)``, in one spelling): the others are seen and predicted, but no weight
    weighs them.

    What is computed is computed of the row that is given. Of a prediction that is the expected row, and where a
    function has a kink the expectation of its values is larger: see :mod:`cirl_gym.data.outcomes`.

    Raises:
        ValueError: lengths differ, a name is there twice, an outcome is not observed nor computed of what is, a bound
            is not finite, or a range is empty.
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
        object.__setattr__(self, "of", tuple(self.of) or tuple(self.features))
        object.__setattr__(self, "features", tuple(read_outcome(name, self.of).name for name in self.features))
        for names in (self.features, self.of):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"FeatureMap: the names must be different, and one at least, got {names}")
        check_outcomes(self.outcomes, self.of)
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
    def from_batch(cls, batch: Batch, outcomes: Sequence[str | OutcomeFeature] | None = None) -> FeatureMap:
        """Ranges from the smallest to the largest value of each outcome; a constant one gets a range of 1.

        What is a distance (``Outside``, ``Above``, ``Below``) has a range from 0 on, whatever its smallest value is.
        The outcomes are names of features, texts or objects; None: all features.

        Raises:
            ValueError: an outcome is none of the batch's features, nor computed of them.
        """
        given = batch.features if outcomes is None else outcomes
        names = tuple(outcome if isinstance(outcome, str) else outcome.name for outcome in given)
        read = [read_outcome(name, batch.features) for name in names]
        check_outcomes(read, batch.features)
        rows = outcome_values(batch.obs[batch.seen], read, batch.features)
        ends = zip(read, rows.min(axis=0), strict=True)
        low = np.array([least if outcome.least is None else outcome.least for outcome, least in ends])
        high = rows.max(axis=0)
        return cls(names, low, np.where(high > low, high, low + 1.0), batch.features)

    def among(self, observed: Sequence[str]) -> FeatureMap:
        """The same phi, read from other features that are observed: more of them, or in another order.

        A map of computed outcomes alone (:func:`cirl_gym.wrappers.learned_reward.load_reward` reads one) takes their
        values; read from the features that they are computed of, it computes them.

        Raises:
            ValueError: an outcome is not among them, nor computed of them.
        """
        return FeatureMap(self.features, self.low, self.high, tuple(observed))

    @cached_property
    def outcomes(self) -> tuple[OutcomeFeature, ...]:
        """The d outcomes as functions of the observed features."""
        return tuple(read_outcome(name, self.of) for name in self.features)

    @cached_property
    def read(self) -> tuple[str, ...]:
        """Names of the observed features that the outcomes are about, each once, in the order of the outcomes."""
        return tuple(dict.fromkeys(name for outcome in self.outcomes for name in outcome.columns))

    @cached_property
    def columns(self) -> IntArray:
        """``[d]`` where the outcomes stand among the observed features.

        Raises:
            ValueError: one is computed, and stands nowhere.
        """
        computed = [outcome.name for outcome in self.outcomes if not isinstance(outcome, Column)]
        if computed:
            raise ValueError(f"{', '.join(computed)}: computed, and no column of what is observed")
        columns = np.array([self.of.index(name) for name in self.features], dtype=np.int64)
        columns.setflags(write=False)
        return columns

    @cached_property
    def _picked(self) -> bool:
        """Every outcome is an observed feature: nothing is to be computed."""
        return all(isinstance(outcome, Column) for outcome in self.outcomes)

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
        if self.features == self.of:
            values = raw
        else:
            values = raw[..., self.columns] if self._picked else outcome_values(raw, self.outcomes, self.of)
        scaled: FloatArray = (values - self.low) / self._range
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
        return self.unscaled(phi)[..., [self.features.index(name) for name in self.of]]
