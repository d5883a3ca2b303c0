"""How observed outcomes scatter around expected ones: each feature's own law of residuals, and how they go together.

A Gaussian copula: standard normal numbers are mixed so that they correlate as the residuals' normal scores do, and each
is then read off the quantiles of its own feature's residuals, so that skewed and heavy-tailed noise stays so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from cirl_gym.types import BoolArray, FloatArray

GRID: FloatArray = np.linspace(-2.5, 2.5, 41)
"""Normal scores at which quantiles are kept; beyond them the outermost slope goes on."""
FEWEST = 200
"""So many residuals must be known before their own quantiles are better than a normal law's."""


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
        for name in ("quantiles", "mixing"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        d = self.mixing.shape[-1]
        if self.mixing.shape != (d, d) or self.quantiles.shape != (len(GRID), d):
            raise ValueError(f"ResidualNoise: {self.quantiles.shape} and {self.mixing.shape} do not go together")
        if not np.isfinite(self.quantiles).all() or (np.diff(self.quantiles, axis=0) < 0).any():
            raise ValueError("ResidualNoise.quantiles must be finite and must not fall")
        if not np.allclose((self.mixing**2).sum(axis=1), 1.0):
            raise ValueError("ResidualNoise.mixing must have rows of norm 1")

    @classmethod
    def normal(cls, scale: FloatArray) -> ResidualNoise:
        """Independent normal noise with standard deviations ``[d]``."""
        return cls(GRID[:, None] * scale, np.eye(len(scale)))

    @classmethod
    def from_residuals(cls, residuals: FloatArray, free: BoolArray, scale: FloatArray) -> ResidualNoise:
        """Of residuals ``[R, d]``.

        Args:
            residuals: outcome minus expected outcome, raw units, of rows that were not fitted on.
            free: ``[R, d]`` False where the outcome stopped at a limit, where the residual says nothing of the noise.
            scale: ``[d]`` standard deviations for features with too few residuals.
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
        return cls(quantiles, _root(correlation))

    def __call__(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for standard normal numbers ``[.., d]``."""
        mixed = np.asarray(normals, dtype=np.float64) @ self.mixing.T
        columns = [_extended(mixed[..., j], self.quantiles[:, j]) for j in range(mixed.shape[-1])]
        return np.stack(columns, axis=-1)


def _extended(scores: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Quantiles at any normal scores: linear between those of the grid, and with the outermost slope beyond."""
    step = GRID[1] - GRID[0]
    inside = np.interp(scores, GRID, quantiles)
    below = np.minimum(scores - GRID[0], 0.0) * (quantiles[1] - quantiles[0]) / step
    above = np.maximum(scores - GRID[-1], 0.0) * (quantiles[-1] - quantiles[-2]) / step
    extended: FloatArray = inside + below + above
    return extended


def _root(correlation: FloatArray) -> FloatArray:
    """Cholesky root of the nearest-by correlation matrix that has one (pairs with gaps may contradict each other)."""
    values, vectors = np.linalg.eigh(correlation)
    whole = (vectors * np.maximum(values, 1e-6)) @ vectors.T
    spread = np.sqrt(np.diag(whole))
    root = np.linalg.cholesky(whole / np.outer(spread, spread))
    exact: FloatArray = root / np.sqrt((root**2).sum(axis=1, keepdims=True))
    return exact
