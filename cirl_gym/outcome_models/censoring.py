"""Outcomes that stop at a hard limit: a linear law seen through a floor or a ceiling (a Tobit regression).

In the simulator x and z cannot fall below 0, so that a third of all z are 0 although the linear law says -1 or -2. A
plain regression bends towards those rows and is wrong everywhere. Here such a row only says "at or beyond the limit".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from cirl_gym.types import FloatArray, IntArray

FEWEST_AT_LIMIT = 10
"""So many outcomes must share the very same extreme value before it counts as a limit."""
FEWEST_FREE = 20
"""So many outcomes must lie inside the limits before a law can be read off them."""


_FAR = 6.0
"""So many deviations from a limit it no longer matters."""


def clipped_mean(expected: FloatArray, noise: FloatArray, floor: FloatArray, ceiling: FloatArray) -> FloatArray:
    """E[clip(expected + noise eps, floor, ceiling)] ``[.., d]`` with eps standard normal.

    An outcome that cannot fall below its floor is on average above what the law expects near it. Infinite limits do
    not act, and without noise this is the clipped expectation.

    Args:
        expected: ``[.., d]`` the law's outcomes.
        noise: ``[d]`` standard deviations.
        floor: ``[d]`` lower limits, -inf where there is none.
        ceiling: ``[d]`` upper limits, inf where there is none.
    """
    mean = np.clip(expected, floor, ceiling)
    # Only outcomes near a limit need the integral.
    near = (np.abs(expected - floor) < _FAR * noise) | (np.abs(expected - ceiling) < _FAR * noise)
    if near.any():
        column = np.nonzero(near)[-1]
        law, scale = expected[near], noise[column]
        low, high = ((limit[column] - law) / scale for limit in (floor, ceiling))
        inside = ndtr(high) - ndtr(low)
        # Where a limit is infinite its share is zero; zero times infinity must not be formed.
        below = np.where(np.isfinite(low), floor[column], 0.0) * ndtr(low)
        above = np.where(np.isfinite(high), ceiling[column], 0.0) * ndtr(-high)
        mean[near] = law * inside + below + above + scale * (_density(low) - _density(high))
    return mean


def _density(z: FloatArray) -> FloatArray:
    density: FloatArray = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return density


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


def hard_limits(outcomes: FloatArray) -> HardLimits:
    """The limits at which outcomes ``[n]`` pile up, if they do and enough lie between."""
    low, high = float(outcomes.min()), float(outcomes.max())
    limits = HardLimits(
        low if (outcomes == low).sum() >= FEWEST_AT_LIMIT else -np.inf,
        high if (outcomes == high).sum() >= FEWEST_AT_LIMIT else np.inf,
    )
    free = (limits.side(outcomes) == 0).sum()
    return limits if free >= max(FEWEST_FREE, 0.05 * len(outcomes)) else HardLimits(-np.inf, np.inf)


def censored_regression(
    design: FloatArray, targets: FloatArray, side: IntArray, penalty: FloatArray, start: FloatArray
) -> FloatArray:
    """Most likely coefficients ``[F]`` of a normal linear law whose targets are only bounds where ``side`` is not 0.

    Newton's method on the coefficients (the likelihood is log-concave in them), the noise solved for in between.

    Args:
        design: ``[n, F]`` inputs, a column of ones among them.
        targets: ``[n]`` outcome, or the row's limit where it was reached.
        side: ``[n]`` -1: the outcome is at or below the target; 1: at or above; 0: it is the target.
        penalty: ``[F]`` ridge per mean row; 0 for the column of ones.
        start: ``[F]`` where to begin.

    Returns:
        The coefficients; the start itself where the steps did not stay finite.
    """
    free = side == 0
    weights, n = start.copy(), len(targets)
    noise = max(float(np.sqrt(np.mean((targets - design @ weights)[free] ** 2))), 1e-9)
    for _ in range(30):
        residual = targets - design @ weights
        # Distance to the limit in noise units, positive where the law lies beyond it; ratio = pdf / cdf there.
        distance = np.where(free, 0.0, -side * residual / noise)
        ratio = np.exp(-0.5 * distance**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(distance))
        pull = np.where(free, residual, side * noise * ratio)
        stiffness = np.where(free, 1.0, np.clip(ratio * (ratio + distance), 0.0, 1.0))
        curvature = (design * stiffness[:, None]).T @ design / n + np.diag(penalty)
        slope = design.T @ pull / n - penalty * weights
        step = np.linalg.lstsq(curvature, slope, rcond=1e-12)[0]
        weights = weights + step
        inside = (targets - design @ weights)[free]
        known = max(free.sum() + float((distance * ratio)[~free].sum()), 0.5 * free.sum())
        noise = max(float(np.sqrt((inside**2).sum() / known)), 1e-9)
        if not np.isfinite(weights).all():
            return start
        if np.abs(step).max() < 1e-9:
            break
    return weights
