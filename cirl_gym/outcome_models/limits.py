"""What is known of outcomes whatever model predicts them: hard limits, bounds, and how they scatter.

In the simulator x and z cannot fall below 0, so that a third of all z are 0 although the linear law says -1 or -2. A
plain regression bends towards those rows and is wrong everywhere. Seen through a floor or a ceiling (a Tobit
regression), such a row only says "at or beyond the limit".

Outcomes scatter around expected ones by each feature's own law of residuals, joined in a Gaussian copula: standard
normal numbers are mixed so that they correlate as the residuals' normal scores do, and each is then read off the
quantiles of its own feature's residuals, so that skewed and heavy-tailed noise stays so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import rankdata

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import set_arrays
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

FEWEST_AT_LIMIT = 10
"""So many outcomes must share the very same extreme value before it counts as a limit."""
FEWEST_ALIKE = 4
"""So many are enough where every other value occurs less often."""
FEWEST_FREE = 20
"""So many outcomes must lie inside the limits before a law can be read off them."""
_FAR = 6.0
"""So many deviations from a limit it no longer matters."""
GRID: FloatArray = np.linspace(-2.5, 2.5, 41)
"""Normal scores at which quantiles are known; beyond them the outermost slope goes on."""
FEWEST = 200
"""So many residuals must be known before their own quantiles are better than a normal law's."""


WIDENING = 1.5
"""How many observed ranges the bounds go beyond them on either side.

Wide enough for courses that no expert lets happen: in the simulator, treating at every step doubles the side effects
that experts were seen to accept. Narrow enough to keep what a planner can imagine within sight of the data.
"""


def clipped_mean(expected: FloatArray, noise: FloatArray, floor: FloatArray, ceiling: FloatArray) -> FloatArray:
    """E[clip(expected + noise eps, floor, ceiling)] ``[.., d]`` with eps standard normal.

    An outcome that cannot fall below its floor is on average above what the law expects near it. Limits ``[d]`` that
    are infinite do not act, and without noise ``[d]`` (standard deviations) this is the clipped expectation.
    """
    limited = np.flatnonzero(np.isfinite(floor) | np.isfinite(ceiling))
    if not len(limited):
        return expected
    mean = expected.copy(order="K")
    for j in limited:
        # clip(x) = x + max(floor - x, 0) - max(x - ceiling, 0)
        if np.isfinite(floor[j]):
            mean[..., j] += _mean_excess(floor[j] - expected[..., j], noise[j])
        if np.isfinite(ceiling[j]):
            mean[..., j] -= _mean_excess(expected[..., j] - ceiling[j], noise[j])
    return np.minimum(np.maximum(mean, floor), ceiling)


def _mean_excess(beyond: FloatArray, noise: float) -> FloatArray:
    """E[max(beyond + noise eps, 0)] ``[..]``."""
    excess = np.maximum(beyond, 0.0)
    # Only near the limit is there anything to integrate.
    near = np.nonzero(np.abs(beyond) < _FAR * noise)
    if len(near[0]):
        z = beyond[near] / noise
        excess[near] = noise * (np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) + z * ndtr(z))
    return excess


@dataclass(frozen=True)
class HardLimits:
    """Limits of one feature; infinite where there is none."""

    low: float
    """Floor, raw units, or -inf."""
    high: float
    """Ceiling, raw units, or inf."""

    @property
    def any(self) -> bool:
        """Whether there is a floor or a ceiling."""
        return bool(np.isfinite(self.low) or np.isfinite(self.high))

    def side(self, outcomes: FloatArray) -> IntArray:
        """``[n]`` -1 at the floor, 1 at the ceiling, 0 between, for outcomes ``[n]``."""
        return (outcomes >= self.high).astype(np.int64) - (outcomes <= self.low).astype(np.int64)


UNLIMITED = HardLimits(-np.inf, np.inf)


def hard_limits(outcomes: FloatArray) -> HardLimits:
    """The limits at which outcomes ``[n]`` pile up, if they do and enough lie between."""
    values, counts = np.unique(outcomes, return_counts=True)
    # Where no other value occurs as often a few at the very end are no rounding.
    enough = [
        count >= FEWEST_AT_LIMIT or (count >= FEWEST_ALIKE and count > np.delete(counts, end).max(initial=0))
        for end, count in ((0, counts[0]), (-1, counts[-1]))
    ]
    limits = HardLimits(float(values[0]) if enough[0] else -np.inf, float(values[-1]) if enough[1] else np.inf)
    free = (limits.side(outcomes) == 0).sum()
    return limits if free >= max(FEWEST_FREE, 0.05 * len(outcomes)) else UNLIMITED


def censored_regression(
    design: FloatArray, targets: FloatArray, side: IntArray, penalty: FloatArray, start: FloatArray
) -> FloatArray:
    """Most likely coefficients ``[F]`` of a normal linear law whose targets are only bounds where ``side`` is not 0.

    Newton's method on the coefficients (the likelihood is log-concave in them), the noise solved for in between. Where
    the steps do not stay finite the answer is the start itself.

    Args:
        design: ``[n, F]`` inputs, a column of ones among them.
        targets: ``[n]`` outcome, or the row's limit where it was reached.
        side: ``[n]`` -1: the outcome is at or below the target; 1: at or above; 0: it is the target.
        penalty: ``[F]`` ridge per mean row; 0 for the column of ones.
        start: ``[F]`` where to begin.
    """
    free = side == 0
    weights, n = start.copy(), len(targets)
    noise = max(float(np.sqrt(np.mean((targets - design @ weights)[free] ** 2))), 1e-9)
    for _ in range(30):
        pull, stiffness, spared = censored_pull(targets - design @ weights, side, noise)
        curvature = (design * stiffness[:, None]).T @ design / n + np.diag(penalty)
        slope = design.T @ pull / n - penalty * weights
        step = np.linalg.lstsq(curvature, slope, rcond=1e-12)[0]
        weights = weights + step
        inside = (targets - design @ weights)[free]
        known = max(free.sum() + float(spared[~free].sum()), 0.5 * free.sum())
        noise = max(float(np.sqrt((inside**2).sum() / known)), 1e-9)
        if not np.isfinite(weights).all():
            return start
        if np.abs(step).max() < 1e-9:
            break
    return weights


def censored_pull(residual: FloatArray, side: IntArray, noise: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Slope, curvature and share of the noise of each row's log-likelihood, for :func:`censored_regression`.

    Args:
        residual: ``[n]`` target minus what the law expects.
        side: ``[n]`` -1: the outcome is at or below the target; 1: at or above; 0: it is the target.
        noise: standard deviation of outcomes.

    Returns:
        ``[n]`` each: noise^2 times the derivative in the expectation, minus noise^2 times the second, and by how much a
        row at its limit counts less than a whole one for the noise.
    """
    free = side == 0
    # Distance to the limit in noise units, positive where the law lies beyond it; ratio = pdf / cdf there.
    distance = np.where(free, 0.0, -side * residual / noise)
    ratio = np.exp(-0.5 * distance**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(distance))
    pull = np.where(free, residual, side * noise * ratio)
    stiffness = np.where(free, 1.0, np.clip(ratio * (ratio + distance), 0.0, 1.0))
    return pull, stiffness, distance * ratio


@dataclass(frozen=True)
class ResidualNoise:
    """From standard normal numbers to residuals.

    Raises:
        ValueError: shapes do not agree, quantiles fall, or the mixing does not leave standard normal numbers.
    """

    quantiles: FloatArray
    """``[41, d]`` residuals at the normal scores of :data:`GRID`, raw units."""
    mixing: FloatArray
    """``[d, d]`` lower triangle of a correlation matrix's Cholesky root."""

    def __post_init__(self) -> None:
        set_arrays(self, "quantiles", "mixing")
        d = self.mixing.shape[-1]
        if self.mixing.shape != (d, d) or self.quantiles.shape != (len(GRID), d):
            raise ValueError(f"ResidualNoise: {self.quantiles.shape} and {self.mixing.shape} do not go together")
        if not np.isfinite(self.quantiles).all() or (np.diff(self.quantiles, axis=0) < 0).any():
            raise ValueError("ResidualNoise.quantiles must be finite and must not fall")
        if not np.allclose((self.mixing**2).sum(axis=1), 1.0):
            raise ValueError("ResidualNoise.mixing must have rows of norm 1")

    @classmethod
    def from_residuals(cls, residuals: FloatArray, free: BoolArray, scale: FloatArray) -> ResidualNoise:
        """Of residuals ``[R, d]`` (outcome minus expected outcome, raw units) of rows that were not fitted on.

        Where an outcome stopped at a limit (not ``free [R, d]``) they say nothing of the noise. Features with few of
        them have normal laws of standard deviations ``scale [d]``.
        """
        d = residuals.shape[1]
        quantiles, scores = GRID[:, None] * scale, np.zeros(residuals.shape)
        known = [j for j in range(d) if free[:, j].sum() >= FEWEST and scale[j] > 0]
        for j in known:
            own = residuals[free[:, j], j]
            levels = (np.arange(len(own)) + 0.5) / len(own)
            # Centred: what is expected is said by the model alone.
            quantiles[:, j] = np.interp(GRID, ndtri(levels), np.sort(own - own.mean()))
            scores[free[:, j], j] = ndtri((rankdata(own) - 0.5) / len(own))
        correlation = np.eye(d)
        for i, first in enumerate(known):
            for second in known[:i]:
                both = free[:, first] & free[:, second]
                if both.sum() >= FEWEST:
                    value = float(np.corrcoef(scores[both, first], scores[both, second])[0, 1])
                    correlation[first, second] = correlation[second, first] = value
        # The root of the nearest-by correlation matrix that has one: pairs with gaps may contradict each other.
        values, vectors = np.linalg.eigh(correlation)
        whole = (vectors * np.maximum(values, 1e-6)) @ vectors.T
        spread = np.sqrt(np.diag(whole))
        root = np.linalg.cholesky(whole / np.outer(spread, spread))
        return cls(quantiles, root / np.sqrt((root**2).sum(axis=1, keepdims=True)))

    def __call__(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for standard normal numbers ``[.., d]``."""
        mixed, step = np.asarray(normals, dtype=np.float64) @ self.mixing.T, GRID[1] - GRID[0]
        residuals = np.empty(mixed.shape)
        for j, own in enumerate(self.quantiles.T):
            scores = mixed[..., j]
            # Linear between the scores of the grid, and with the outermost slope beyond.
            below = np.minimum(scores - GRID[0], 0.0) * (own[1] - own[0]) / step
            above = np.maximum(scores - GRID[-1], 0.0) * (own[-1] - own[-2]) / step
            residuals[..., j] = np.interp(scores, GRID, own) + below + above
        return residuals


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
        finite, limits = ("low", "high", "noise_scale"), ("floor", "ceiling")
        set_arrays(self, *finite, *limits)
        for name in (*finite, *limits):
            array, which = getattr(self, name), "finite numbers" if name in finite else "numbers"
            wrong = np.isnan(array) if name in limits else ~np.isfinite(array)
            if array.shape != (len(self.features),) or wrong.any():
                raise ValueError(f"OutcomeSpec.{name} must be {len(self.features)} {which}, got {array}")
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
