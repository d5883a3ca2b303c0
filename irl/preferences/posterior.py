"""Posterior of the weights, kappa and habits as draws, with what says whether they have converged.

The density is that of :mod:`irl.preferences.choice`; :mod:`irl.preferences.samplers` draws from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from scipy.stats import t as student_t

from cirl_gym.data.batch import evenly_spaced_rows
from cirl_gym.data.features import checked_signs, normalised
from cirl_gym.data.habits import Contexts, Habit
from cirl_gym.types import FloatArray
from irl.preferences.choice import Decisions, Density, patients_power
from irl.preferences.likelihood import PlanPool, finite_logs
from irl.preferences.marginal import Marginal
from irl.preferences.samplers import (
    DRAWS,
    FEW,
    FEW_WEIGHTS,
    converged,
    convergence,
    ensemble_chains,
    independent_chains,
)

TAILS = np.array([0.05, 0.5, 0.95])
MOST = 4000
"""Draws of a posterior at most, evenly spread over all that were made."""


@dataclass(frozen=True)
class SamplerReport:
    """How far a sampled posterior can be trusted."""

    r_hat: FloatArray
    """``[d + 1]`` R-hat of every weight and of kappa."""
    effective: FloatArray
    """``[d + 1]`` bulk effective number of independent draws."""
    power: float
    """Of the likelihood (:func:`irl.preferences.choice.patients_power`)."""

    @property
    def converged(self) -> bool:
        """Whether every R-hat is at most 1.01 and every effective size at least 400."""
        return converged(self.r_hat, self.effective)


@dataclass(frozen=True)
class PosteriorResult:
    """What the likelihood says of theta = kappa w and of habits, as draws; everything else follows from them.

    Where they are of several worlds, what is foreseen follows from them as they are; what is said of weights, kappa and
    habits from draws that are put as far apart as worlds err (``draws``, ``kappa_draws``, ``habit_draws``).

    Raises:
        ValueError: shapes do not match, a number is not finite, or a draw of theta is zero and has no direction.
    """

    theta: FloatArray
    """``[M, d]`` draws of kappa w."""
    logits: FloatArray
    """``[M, C, A]`` draws of the habits' logits that go with them."""
    contexts: Contexts
    """What habits depend on."""
    sampler: SamplerReport
    signs: FloatArray
    """``[d]`` of -1, 0 (free) and 1."""
    worlds: int = 1
    """How many the draws are of: as many of each, one world after the other."""

    def __post_init__(self) -> None:
        shape = (len(self.theta), self.contexts.size)
        if self.theta.ndim != 2 or not len(self.theta) or self.logits.ndim != 3 or self.logits.shape[:2] != shape:
            raise ValueError(f"PosteriorResult: theta must be [M, d], logits [M, {self.contexts.size}, A]")
        if self.signs.shape != self.theta.shape[1:] or self.worlds < 1 or len(self.theta) % self.worlds:
            raise ValueError("PosteriorResult: signs must be [d], and the draws as many of each world")
        if not np.isfinite(self.theta).all() or not np.isfinite(self.logits).all():
            raise ValueError("PosteriorResult: a draw is not finite")
        if not (np.abs(self.theta).sum(axis=1) > 0).all():
            raise ValueError("PosteriorResult: a draw of theta is zero")

    def _shifts(self, draws: FloatArray) -> FloatArray:
        """By how much each of draws ``[M, ..]`` is put further from the middle of all, with its world's centre.

        One world errs by sigma, and others, of patients drawn anew, err by as much around it. So R of them together are
        expected to spread by (R - 1) / R of sigma; their middle is (R - 1) / R^2 of its square away from the first; and
        of a few the spread itself is known roughly, which is what Student's t has wide tails for: with R - 1 degrees of
        freedom, as intervals over imputations have it (Rubin, Multiple Imputation for Nonresponse in Surveys, 1987).
        """
        n = self.worlds
        if n == 1:
            return np.zeros_like(draws)
        each = draws.reshape(n, len(draws) // n, *draws.shape[1:])
        centres = each.mean(axis=1, keepdims=True)
        tails = student_t.ppf(TAILS[2], n - 1) / norm.ppf(TAILS[2])
        by = tails * math.sqrt(1 + (n - 1) / n**2) * n / (n - 1)
        shifts = (by - 1) * (centres - centres.mean(axis=0))
        return np.broadcast_to(shifts, each.shape).reshape(draws.shape)

    @cached_property
    def kappa_draws(self) -> FloatArray:
        """``[M]`` draws of kappa, put apart by their logarithms."""
        sizes: FloatArray = np.abs(self.theta).sum(axis=1)
        return sizes * np.exp(self._shifts(np.log(sizes)))

    @cached_property
    def draws(self) -> FloatArray:
        """``[M, d]`` draws of the weights, each of L1 norm 1; put apart, those of known sign by their logarithms."""
        w = self.theta / np.abs(self.theta).sum(axis=1, keepdims=True)
        larger = np.exp(self._shifts(finite_logs(np.abs(w))))
        moved = np.where(self.signs != 0, w * larger, w + self._shifts(w))
        scaled: FloatArray = moved / np.abs(moved).sum(axis=1, keepdims=True)
        return scaled

    @cached_property
    def habit_draws(self) -> FloatArray:
        """``[M, C, A]`` draws of the habits' logits, put apart."""
        return self.logits + self._shifts(self.logits)

    @cached_property
    def median(self) -> FloatArray:
        """``[d]`` median of each weight: what is reported. Their sizes need not add up to 1, as those of a draw do."""
        middle: FloatArray = np.median(self.draws, axis=0)
        return middle

    @cached_property
    def low(self) -> FloatArray:
        """``[d]`` lower end of each weight's 90 % interval."""
        return np.asarray(np.quantile(self.draws, TAILS[0], axis=0))

    @cached_property
    def high(self) -> FloatArray:
        """``[d]`` upper end."""
        return np.asarray(np.quantile(self.draws, TAILS[2], axis=0))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """``[d]`` 90 % interval of each weight."""
        return tuple(zip(self.low.tolist(), self.high.tolist(), strict=True))

    @cached_property
    def theta_mean(self) -> FloatArray:
        """``[d]`` mean of theta: near 0 where the decisions say nothing of outcomes."""
        mean: FloatArray = self.theta.mean(axis=0)
        return mean

    @property
    def mean(self) -> FloatArray:
        """``[d]`` direction of the mean of theta, L1 norm 1: the one set of weights that policies act on."""
        return normalised(self.theta_mean)

    @property
    def kappa_interval(self) -> tuple[float, float]:
        """90 % interval of kappa."""
        low, high = np.quantile(self.kappa_draws, TAILS[[0, 2]])
        return float(low), float(high)

    @property
    def kappa_mean(self) -> float:
        """Posterior mean of kappa."""
        return float(np.abs(self.theta).sum(axis=1).mean())

    @property
    def habit(self) -> Habit | None:
        """Mean logits of the habits; None where none were looked for."""
        return Habit(self.contexts, self.logits.mean(axis=0)) if self.contexts.names else None

    def thinned(self, most: int) -> tuple[FloatArray, FloatArray]:
        """At most so many draws, evenly spread over all: theta ``[m, d]`` and logits ``[m, C, A]``."""
        rows = evenly_spaced_rows(len(self.theta), most)
        return self.theta[rows], self.logits[rows]

    def of_each(self, most: int) -> list[tuple[FloatArray, FloatArray]]:
        """The same of every world."""
        size = len(self.theta) // self.worlds
        rows = evenly_spaced_rows(size, most)
        return [(self.theta[i + rows], self.logits[i + rows]) for i in range(0, len(self.theta), size)]


def sample_posterior(
    pool: PlanPool, signs: npt.ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> PosteriorResult:
    """Sample the posterior of theta and of the habits that the pool's contexts allow.

    Args:
        pool: plans along the experts' histories.
        signs: ``[d]`` of -1, 0 (free) and 1.
        rng: everything that is drawn.
        draws: of each chain at most, whether they have converged or not.

    Raises:
        ValueError: the signs are not d of -1, 0 and 1.
    """
    whole, peak, covariance = prepared(pool, signs)
    density = whole.pruned(peak, covariance, rng)
    if isinstance(density, Marginal):
        chains = independent_chains(density, peak, covariance, rng, draws)
    else:
        chains = ensemble_chains(density, peak, covariance, rng, draws)
    every = chains.reshape(-1, density.n)
    drawn = density.drawn(every[evenly_spaced_rows(len(every), MOST)], rng)
    report = SamplerReport(*convergence(density.theta(chains)), density.power)
    return PosteriorResult(*drawn, pool.contexts, report, checked_signs(signs))


def further_posterior(
    pool: PlanPool, signs: npt.ArrayLike, rng: np.random.Generator, draws: int = DRAWS
) -> PosteriorResult:
    """One of many posteriors of the same kind: sampled, or :func:`normal_posterior` where logits of habits are many.

    In many coordinates, most of which are logits of habits, the density is close to normal, and a sample takes long.
    """
    if _coordinates(pool) <= max(FEW, 2 * pool.psi.shape[-1]):
        return sample_posterior(pool, signs, rng, draws)
    return normal_posterior(pool, signs, MOST, rng)


def normal_posterior(pool: PlanPool, signs: npt.ArrayLike, draws: int, rng: np.random.Generator) -> PosteriorResult:
    """The same, as the normal density that fits its peak: at once, and good enough to choose plans or to foresee.

    Raises:
        ValueError: the signs are not d of -1, 0 and 1.
    """
    density, peak, covariance = prepared(pool, signs)
    drawn = density.drawn(rng.multivariate_normal(peak, covariance, size=draws, method="cholesky"), rng)
    report = np.ones(pool.psi.shape[-1] + 1)
    sampler = SamplerReport(report, draws * report, density.power)
    return PosteriorResult(*drawn, pool.contexts, sampler, checked_signs(signs))


def prepared(pool: PlanPool, signs: npt.ArrayLike) -> tuple[Density | Marginal, FloatArray, FloatArray]:
    """The density with the power that patients ask for, its peak ``[n]`` and the covariance ``[n, n]`` around it.

    Beyond :data:`irl.preferences.samplers.FEW` coordinates, or ``FEW_WEIGHTS`` weights, it is that of theta alone.
    """
    allowed = checked_signs(signs)
    if len(allowed) != pool.psi.shape[-1]:
        raise ValueError(f"signs must be {pool.psi.shape[-1]} numbers, got {len(allowed)}")
    few = _coordinates(pool) <= FEW and len(allowed) <= FEW_WEIGHTS
    density = (Density if few else Marginal)(Decisions.of(pool), allowed)
    peak, _ = density.peak()
    density.power = patients_power(density, peak)
    return density, *density.peak()


def _coordinates(pool: PlanPool) -> int:
    """Of theta, and of the logits of habits."""
    return int(pool.psi.shape[-1] + pool.contexts.size * (pool.batch.n_actions - 1))


def with_model_spread(posterior: PosteriorResult, members: Sequence[PosteriorResult]) -> PosteriorResult:
    """The posterior with the draws of all members of an ensemble together, a mixture with equal shares.

    Args:
        posterior: under the ensemble's mean prediction, or in the world of the patients as they are.
        members: under the prediction of each outcome model, or in worlds of patients drawn anew; none: nothing changes.
    """
    if not members:
        return posterior
    every = [posterior, *members]
    worlds = sum(one.worlds for one in every)
    n = min(len(one.theta) // one.worlds for one in every)
    theta, logits = zip(*(drawn for one in every for drawn in one.of_each(n)), strict=True)
    worst = SamplerReport(
        np.max([one.sampler.r_hat for one in every], axis=0),
        np.min([one.sampler.effective for one in every], axis=0),
        posterior.sampler.power,
    )
    return replace(posterior, theta=np.concatenate(theta), logits=np.concatenate(logits), sampler=worst, worlds=worlds)
