"""A grid over the L1 sphere of two features and log kappa, made finer where the probability is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.types import BoolArray, FloatArray, IntArray
from cirl_gym.weight_sphere import allowed_faces, arc_weights

LEFT_OUT = 1e-4
"""Probability that a finer grid may leave out, along each of its two directions."""


@dataclass(frozen=True)
class WeightGrid:
    """M cells along the L1 sphere times K cells of log kappa; within a cell the density counts as constant.

    All cells are equally large, so that each has the same share of the prior.
    """

    left: FloatArray
    """``[M]`` where each cell begins on :func:`irl.projection.arc_weights`, rising; no cell reaches over a corner."""
    right: FloatArray
    """``[M]`` where each cell ends."""
    log_kappa: FloatArray
    """``[K + 1]`` ends of the cells of log kappa, rising."""

    @classmethod
    def over(cls, signs: FloatArray, kappa_range: tuple[float, float], points: int, kappa_points: int) -> WeightGrid:
        """Cover the faces that ``signs [2]`` allow with ``points`` cells each, and the range with ``kappa_points``."""
        begin = np.concatenate([face + np.arange(points) / points for face in allowed_faces(signs)])
        low, high = np.log(kappa_range)
        return cls(begin, begin + 1 / points, np.linspace(low, high, kappa_points + 1))

    @property
    def w(self) -> FloatArray:
        """``[M, 2]`` the middle of each cell."""
        return arc_weights((self.left + self.right) / 2)

    @property
    def kappas(self) -> FloatArray:
        """``[K]`` the middle of each cell, in log kappa."""
        middle: FloatArray = np.exp((self.log_kappa[:-1] + self.log_kappa[1:]) / 2)
        return middle

    def refined(self, mass: FloatArray, points: int) -> WeightGrid | None:
        """About ``points`` cells and as many kappas as before where ``mass [M, K]`` is; None if that gains nothing."""
        cells = np.flatnonzero(_holding(mass.sum(axis=1)))
        levels = np.flatnonzero(_holding(mass.sum(axis=0)))
        k = len(self.log_kappa) - 1
        parts = max(points // len(cells), 1)
        span = levels[-1] + 1 - levels[0]
        if parts == 1 and 2 * span > k:
            return None
        share = np.arange(parts + 1) / parts
        ends = self.left[cells, None] + share * (self.right - self.left)[cells, None]
        low, high = self.log_kappa[levels[0]], self.log_kappa[levels[-1] + 1]
        return WeightGrid(ends[:, :-1].ravel(), ends[:, 1:].ravel(), np.linspace(low, high, k + 1))

    def mean(self, mass: FloatArray) -> FloatArray:
        """``[.., 2]`` mean of w under ``mass [.., M, K]``."""
        average: FloatArray = mass.sum(axis=-1) @ self.w
        return average

    def kappa_mean(self, mass: FloatArray) -> float:
        """Mean of kappa under ``mass [M, K]``."""
        within = np.diff(np.exp(self.log_kappa)) / np.diff(self.log_kappa)
        return float(mass.sum(axis=0) @ within)

    def quantiles(self, mass: FloatArray, chances: FloatArray) -> FloatArray:
        """``[len(chances), 2]`` quantiles of each weight under ``mass [M, K]``."""
        ends = np.stack([arc_weights(self.left), arc_weights(self.right)])
        low, high = ends.min(axis=0), ends.max(axis=0)
        along = mass.sum(axis=1)
        columns = []
        for i in range(2):
            knots = np.unique(ends[:, :, i])
            share = np.clip((knots[:, None] - low[:, i]) / (high - low)[:, i], 0.0, 1.0)
            columns.append(np.interp(chances, share @ along, knots))
        return np.stack(columns, axis=1)

    def kappa_quantiles(self, mass: FloatArray, chances: FloatArray) -> FloatArray:
        """``[len(chances)]`` quantiles of kappa under ``mass [M, K]``."""
        below = np.concatenate([[0.0], np.cumsum(mass.sum(axis=0))])
        return np.exp(np.interp(chances, below, self.log_kappa))

    def draw(self, mass: FloatArray, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """``[n, 2]`` weights and ``[n]`` kappas drawn from ``mass [M, K]``, uniformly within cells."""
        chosen: IntArray = rng.choice(mass.size, size=n, p=mass.ravel() / mass.sum())
        cell, level = np.divmod(chosen, mass.shape[1])
        where, depth = rng.random(n), rng.random(n)
        arc = self.left[cell] + where * (self.right - self.left)[cell]
        return arc_weights(arc), np.exp(self.log_kappa[level] + depth * np.diff(self.log_kappa)[level])


def _holding(mass: FloatArray) -> BoolArray:
    """Cells that hold all but :data:`LEFT_OUT` of the mass, and the cell on either side of each."""
    order = np.argsort(-mass, kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    inside = np.zeros(len(mass), dtype=np.bool_)
    inside[order[before < (1 - LEFT_OUT) * mass.sum()]] = True
    wider = inside.copy()
    wider[1:] |= inside[:-1]
    wider[:-1] |= inside[1:]
    # The sphere of two features closes on itself: a peak at its first cell may reach into its last.
    wider[-1] |= inside[0]
    wider[0] |= inside[-1]
    return wider
