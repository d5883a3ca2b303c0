"""Posterior of the weights, given a likelihood of the expert's actions (see :mod:`irl.likelihood`).

The prior is uniform over the allowed part of the L1 sphere, times uniform in log kappa over a range. The caller owns
whatever gives Q; here only likelihoods are seen. Two features are done on a grid, more by sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray
from cirl_gym.weight_sphere import checked_signs
from irl.ensemble import Best, ManyLogLikelihood, SamplerReport, Target, report, walk
from irl.weight_grid import WeightGrid

GroupLogLikelihood: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""(w ``[2]``, kappas ``[K]``) -> log-likelihoods ``[K, G]``, one column per group (patient)."""
TAILS = np.array([0.05, 0.5, 0.95])
KAPPAS = (0.01, 1000.0)
"""What kappa can be. With a larger lower end, experts who toss coins could only be explained by weights under which all
actions are as good, and the posterior would be sure of those."""


@dataclass(frozen=True)
class PosteriorResult:
    """What the likelihood says about the weights (L1 norm 1) and the expert's inverse temperature."""

    mean: FloatArray
    """``[d]`` posterior mean, scaled back to L1 norm 1."""
    median: FloatArray
    """``[d]`` median of each weight, scaled back to L1 norm 1."""
    low: FloatArray
    """``[d]`` lower end of each weight's 90 % interval."""
    high: FloatArray
    """``[d]`` upper end."""
    concentration: float
    """L1 norm of the mean before it was scaled: 1 if no weight changes its sign, near 0 if there is no direction."""
    kappa_mean: float
    """Posterior mean of kappa."""
    kappa_low: float
    """Lower end of kappa's 90 % interval."""
    kappa_high: float
    """Upper end."""
    draws: FloatArray
    """``[M, d]`` draws of the weights."""
    kappa_draws: FloatArray
    """``[M]`` the kappas that go with them."""
    best: FloatArray
    """``[d]`` weights of the highest likelihood seen."""
    best_kappa: float
    """Its kappa."""
    best_log_likelihood: float
    """Its log-likelihood, neither tempered nor reweighted."""
    bootstrap: FloatArray | None = None
    """``[B, d]`` posterior mean under each set of group weights; low and high enclose their 90 % interval too."""
    sampler: SamplerReport | None = None
    """None where the posterior was computed on a grid."""


def grid_posterior(
    log_likelihood: GroupLogLikelihood,
    signs: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    kappa_range: tuple[float, float] = KAPPAS,
    points: int = 100,
    kappa_points: int = 40,
    refinements: int = 2,
    power: float = 1.0,
    group_weights: FloatArray | None = None,
    draws: int = 4000,
) -> PosteriorResult:
    """Posterior of two weights on a grid; about ``points`` likelihoods per allowed face, and per useful refinement.

    Args:
        log_likelihood: see :data:`GroupLogLikelihood`.
        signs: ``[2]`` of -1, 0 (free) and 1.
        rng: the draws.
        kappa_range: limits of kappa.
        points: cells per face.
        kappa_points: cells of log kappa.
        refinements: largest number of refinements.
        power: the likelihood is raised to it; below 1 where rows say less than independent rows would.
        group_weights: ``[B, G]`` from :func:`irl.likelihood.bootstrap_weights`, to widen the intervals.
        draws: number of draws.

    Raises:
        ValueError: an argument is out of range, or the likelihood's answer has a wrong shape or is not a number.
    """
    allowed = checked_signs(signs)
    _check_range(kappa_range, power)
    if len(allowed) != 2 or points < 2 or kappa_points < 2:
        raise ValueError(f"two features and 2 points at least, got {len(allowed)}, {points}, {kappa_points}")
    grid = WeightGrid.over(allowed, kappa_range, points, kappa_points)
    grid, mass, masses, best = _settle(log_likelihood, grid, points, refinements, power, group_weights)
    mean = grid.mean(mass)
    low, middle, high = grid.quantiles(mass, TAILS)
    bootstrap = None if masses is None else np.stack([_scaled_back(each, best[1]) for each in grid.mean(masses)])
    if bootstrap is not None:
        low, high = _widened(low, high, bootstrap)
    kappa_low, kappa_high = (float(end) for end in grid.kappa_quantiles(mass, TAILS[[0, 2]]))
    w_draws, kappa_draws = grid.draw(mass, draws, rng)
    return PosteriorResult(
        mean=_scaled_back(mean, best[1]),
        median=_scaled_back(middle, best[1]),
        low=low,
        high=high,
        concentration=float(np.abs(mean).sum()),
        kappa_mean=grid.kappa_mean(mass),
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        draws=w_draws,
        kappa_draws=kappa_draws,
        best=best[1],
        best_kappa=best[2],
        best_log_likelihood=best[0],
        bootstrap=bootstrap,
    )


def sample_posterior(
    log_likelihood: ManyLogLikelihood,
    signs: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    kappa_range: tuple[float, float] = KAPPAS,
    budget: int = 20_000,
    walkers: int | None = None,
    power: float = 1.0,
) -> PosteriorResult:
    """Posterior of any number of weights by an ensemble of walkers (emcee, differential-evolution moves).

    The walkers move in (v, log kappa) with w = v / |v|_1 and prior exp(-|v|_1): it is constant wherever |v|_1 is, so
    that w is uniform on the L1 sphere. They start at the most likely of a tenth of the budget, drawn from the prior,
    and the first half of their steps is thrown away.

    Args:
        log_likelihood: see :data:`ManyLogLikelihood`; asked for at most ``walkers`` weights at once.
        signs: ``[d]`` of -1, 0 (free) and 1.
        rng: seeds everything; no global random state is touched.
        kappa_range: limits of kappa.
        budget: largest number of likelihoods to compute.
        walkers: default: 4 per dimension, at least 32.
        power: the likelihood is raised to it.

    Raises:
        ValueError: an argument is out of range, or the likelihood's answer has a wrong shape or is not a number.
    """
    allowed = checked_signs(signs)
    _check_range(kappa_range, power)
    d = len(allowed)
    count = walkers or max(32, 4 * (d + 1))
    if count < 2 * (d + 1) or budget < 20 * count:
        raise ValueError(f"{2 * (d + 1)} walkers and {20 * count} likelihoods at least, got {count} and {budget}")
    target = Target(log_likelihood, allowed, kappa_range, power)
    chain, acceptance = walk(target, count, budget, rng)
    kept = chain[len(chain) // 2 :]
    w, log_kappa = kept[..., :d].reshape(-1, d), kept[..., d].ravel()
    low, middle, high = np.quantile(w, TAILS, axis=0)
    kappas = np.exp(log_kappa)
    kappa_low, kappa_high = (float(end) for end in np.quantile(kappas, TAILS[[0, 2]]))
    likelihood, best, best_kappa = target.best
    return PosteriorResult(
        mean=_scaled_back(w.mean(axis=0), best),
        median=_scaled_back(middle, best),
        low=low,
        high=high,
        concentration=float(np.abs(w.mean(axis=0)).sum()),
        kappa_mean=float(kappas.mean()),
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        draws=w,
        kappa_draws=kappas,
        best=best,
        best_kappa=best_kappa,
        best_log_likelihood=likelihood,
        sampler=report(kept, acceptance, target.evaluations),
    )


def _settle(
    log_likelihood: GroupLogLikelihood,
    grid: WeightGrid,
    points: int,
    refinements: int,
    power: float,
    group_weights: FloatArray | None,
) -> tuple[WeightGrid, FloatArray, FloatArray | None, Best]:
    """The last grid, masses ``[M, K]`` on it, masses ``[B, M, K]`` under each set of group weights, and the best."""
    best: Best = (-np.inf, grid.w[0], 1.0)
    while True:
        total, reweighted = _evaluate(log_likelihood, grid, group_weights)
        best = _better(best, total, grid)
        mass = _shares(power * total)
        masses = None if reweighted is None else _shares(power * reweighted)
        # A cell that matters under some drawn group weights only must stay as well.
        everywhere = mass if masses is None else (mass + masses.mean(axis=0)) / 2
        finer = grid.refined(everywhere, points) if refinements > 0 else None
        if finer is None:
            return grid, mass, masses, best
        grid, refinements = finer, refinements - 1


def _better(best: Best, total: FloatArray, grid: WeightGrid) -> Best:
    cell, level = np.unravel_index(total.argmax(), total.shape)
    if not np.isfinite(total[cell, level]):
        raise ValueError("log_likelihood calls the data impossible under every weight that was tried")
    if total[cell, level] <= best[0]:
        return best
    return float(total[cell, level]), grid.w[cell], float(grid.kappas[level])


def _evaluate(
    log_likelihood: GroupLogLikelihood, grid: WeightGrid, group_weights: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Log-likelihoods ``[M, K]`` of all groups together, and ``[B, M, K]`` under each set of group weights."""
    kappas = grid.kappas
    total, reweighted = [], []
    for w in grid.w:
        groups = np.asarray(log_likelihood(w, kappas), dtype=np.float64)
        if groups.ndim != 2 or len(groups) != len(kappas) or np.isnan(groups).any() or (groups == np.inf).any():
            raise ValueError(f"log_likelihood must give [{len(kappas)}, G] numbers below infinity, got {groups.shape}")
        total.append(groups.sum(axis=1))
        if group_weights is not None:
            if group_weights.shape[1:] != groups.shape[1:]:
                raise ValueError(f"group_weights must be [B, {groups.shape[1]}], got {group_weights.shape}")
            reweighted.append(group_weights @ groups.T)
    return np.stack(total), np.stack(reweighted, axis=1) if reweighted else None


def _shares(log_mass: FloatArray) -> FloatArray:
    """``[.., M, K]`` masses of sum 1."""
    mass = np.exp(log_mass - log_mass.max(axis=(-2, -1), keepdims=True))
    shares: FloatArray = mass / mass.sum(axis=(-2, -1), keepdims=True)
    return shares


def _widened(low: FloatArray, high: FloatArray, bootstrap: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The interval that encloses both the posterior's and the bootstrap's."""
    ends = np.quantile(bootstrap, TAILS[[0, 2]], axis=0)
    return np.minimum(low, ends[0]), np.maximum(high, ends[1])


def _scaled_back(w: FloatArray, fallback: FloatArray) -> FloatArray:
    """``[d]`` w with L1 norm 1; ``fallback`` where w has no direction."""
    norm = float(np.abs(w).sum())
    return w / norm if norm > 1e-12 else fallback


def _check_range(kappa_range: tuple[float, float], power: float) -> None:
    if not 0 < kappa_range[0] < kappa_range[1] < np.inf:
        raise ValueError(f"kappa_range must be two positive numbers, the smaller first, got {kappa_range}")
    if not 0 < power <= 1:
        raise ValueError(f"power must lie in (0, 1], got {power}")
