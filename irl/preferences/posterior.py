"""Posterior of the weights, kappa and habits, sampled by Hamiltonian Monte Carlo, with what says whether it converged.

The density (:mod:`irl.preferences.choice`) is nearly normal where the data say much and nearly its prior where they say
little. It is sampled in coordinates in which its surroundings are a unit normal, by the no-U-turn sampler of mici
(Hoffman and Gelman 2014, in the multinomial form of Betancourt 2017): several chains from overdispersed beginnings,
until R-hat and bulk effective sizes (Vehtari et al. 2021) are good enough, or until they are long and it is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import evenly_spaced_rows
from cirl_gym.data.features import checked_signs, normalised
from cirl_gym.data.habits import Contexts, Habit
from cirl_gym.types import FloatArray
from irl.preferences.choice import Decisions, Density, patients_power
from irl.preferences.likelihood import PlanPool

TAILS = np.array([0.05, 0.5, 0.95])
R_HAT, EFFECTIVE = 1.01, 400.0
"""A posterior has converged where no R-hat is above and no bulk effective size below."""
DRAWS = 1600
"""Of each chain, at most; they come in blocks until there are enough."""
_CHAINS, _WARM_UP, _BLOCK = 4, 100, 200
_OVERDISPERSED = 1.5
_DEEPEST = 8


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
        return bool(self.r_hat.max() <= R_HAT and self.effective.min() >= EFFECTIVE)


@dataclass(frozen=True)
class PosteriorResult:
    """What the likelihood says of theta = kappa w and of habits, as draws; everything else follows from them.

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

    def __post_init__(self) -> None:
        shape = (len(self.theta), self.contexts.size)
        if self.theta.ndim != 2 or not len(self.theta) or self.logits.ndim != 3 or self.logits.shape[:2] != shape:
            raise ValueError(f"PosteriorResult: theta must be [M, d], logits [M, {self.contexts.size}, A]")
        if not np.isfinite(self.theta).all() or not np.isfinite(self.logits).all():
            raise ValueError("PosteriorResult: a draw is not finite")
        if not (self.kappa_draws > 0).all():
            raise ValueError("PosteriorResult: a draw of theta is zero")

    @cached_property
    def kappa_draws(self) -> FloatArray:
        """``[M]`` draws of kappa."""
        sizes: FloatArray = np.abs(self.theta).sum(axis=1)
        return sizes

    @cached_property
    def draws(self) -> FloatArray:
        """``[M, d]`` draws of the weights, each of L1 norm 1."""
        scaled: FloatArray = self.theta / self.kappa_draws[:, None]
        return scaled

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
        return float(self.kappa_draws.mean())

    @property
    def habit(self) -> Habit | None:
        """Mean logits of the habits; None where none were looked for."""
        return Habit(self.contexts, self.logits.mean(axis=0)) if self.contexts.names else None

    def thinned(self, most: int) -> tuple[FloatArray, FloatArray]:
        """At most so many draws, evenly spread over all: theta ``[m, d]`` and logits ``[m, C, A]``."""
        rows = evenly_spaced_rows(len(self.theta), most)
        return self.theta[rows], self.logits[rows]


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
    density, peak, covariance = prepared(pool, signs)
    density = density.pruned(peak, covariance, rng)
    root = np.asarray(np.linalg.cholesky(covariance))
    chains = _sampled(density, peak, root, rng, draws)
    theta = density.theta(chains)
    return PosteriorResult(
        theta=np.concatenate(theta),
        logits=np.concatenate(density.logits(chains)),
        contexts=pool.contexts,
        sampler=SamplerReport(*convergence(theta), density.power),
    )


def normal_posterior(pool: PlanPool, signs: npt.ArrayLike, draws: int, rng: np.random.Generator) -> PosteriorResult:
    """The same, as the normal density that fits its peak: at once, and good enough to choose plans or to foresee.

    Raises:
        ValueError: the signs are not d of -1, 0 and 1.
    """
    density, peak, covariance = prepared(pool, signs)
    drawn = rng.multivariate_normal(peak, covariance, size=draws, method="cholesky")
    theta, report = density.theta(drawn), np.ones(density.d + 1)
    logits = density.logits(drawn)
    return PosteriorResult(theta, logits, pool.contexts, SamplerReport(report, draws * report, density.power))


def prepared(pool: PlanPool, signs: npt.ArrayLike) -> tuple[Density, FloatArray, FloatArray]:
    """The density with the power that patients ask for, its peak ``[n]`` and the covariance ``[n, n]`` around it."""
    allowed = checked_signs(signs)
    if len(allowed) != pool.psi.shape[-1]:
        raise ValueError(f"signs must be {pool.psi.shape[-1]} numbers, got {len(allowed)}")
    density = Density(Decisions.of(pool), allowed)
    density.power = patients_power(density, density.peak()[0])
    return density, *density.peak()


def with_model_spread(posterior: PosteriorResult, members: Sequence[PosteriorResult]) -> PosteriorResult:
    """The posterior with the draws of all members of an ensemble together, a mixture with equal shares.

    Args:
        posterior: under the ensemble's mean prediction.
        members: under the prediction of each outcome model; none: nothing changes.
    """
    if not members:
        return posterior
    every = [posterior, *members]
    n = min(len(one.theta) for one in every)
    theta, logits = (np.concatenate(drawn) for drawn in zip(*(one.thinned(n) for one in every), strict=True))
    worst = SamplerReport(
        np.max([one.sampler.r_hat for one in every], axis=0),
        np.min([one.sampler.effective for one in every], axis=0),
        posterior.sampler.power,
    )
    return PosteriorResult(theta, logits, posterior.contexts, worst)


def convergence(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """R-hat and bulk effective size ``[d + 1]`` of the weights and kappa, of chains of theta ``[chains, draws, d]``."""
    from arviz_stats import base

    stats: Any = vars(base)["array_stats"]

    kappa = np.abs(theta).sum(axis=-1, keepdims=True)
    shown = np.concatenate([theta / kappa, kappa], axis=-1)
    r_hat, effective = np.ones(shown.shape[-1]), np.full(shown.shape[-1], float(shown[..., 0].size))
    for i in range(shown.shape[-1]):
        if np.ptp(shown[..., i]) > 1e-9:  # the weight of a single outcome of known sign cannot vary
            r_hat[i] = float(stats.rhat(shown[..., i]))
            effective[i] = float(stats.ess(shown[..., i]))
    return r_hat, effective


def _sampled(density: Density, peak: FloatArray, root: FloatArray, rng: np.random.Generator, draws: int) -> FloatArray:
    """Chains ``[chains, draws, n]`` of coordinates, of so many draws at most."""
    import mici

    seen: dict[bytes, tuple[float, FloatArray]] = {}

    def both(z: FloatArray) -> tuple[float, FloatArray]:
        """Density and slope in whitened coordinates; the sampler asks for them apart, at one place after the other."""
        key = z.tobytes()
        if key not in seen:
            seen.clear()
            value, slope = density(peak + root @ z)
            seen[key] = -value, -(root.T @ slope)
        return seen[key]

    system = mici.systems.EuclideanMetricSystem(lambda z: both(z)[0], grad_neg_log_dens=lambda z: both(z)[1])
    integrator = mici.integrators.LeapfrogIntegrator(system)
    sampler = mici.samplers.DynamicMultinomialHMC(system, integrator, rng, max_tree_depth=_DEEPEST)
    block = min(_BLOCK, draws)
    how: dict[str, Any] = {"n_main_iter": block, "display_progress": False, "n_worker": 1}
    begin = [_OVERDISPERSED * rng.standard_normal(density.n) for _ in range(_CHAINS)]
    step = mici.adapters.DualAveragingStepSizeAdapter(0.8)
    done = sampler.sample_chains(_WARM_UP, init_states=begin, adapters=[step], **how)
    found = [np.stack(done.traces["pos"])]
    while len(found) * block < draws:
        drawn = peak + np.concatenate(found, axis=1) @ root.T
        report = SamplerReport(*convergence(density.theta(drawn)), density.power)
        if report.converged:
            break
        done = sampler.sample_chains(0, init_states=done.final_states, adapters=[], **how)
        found.append(np.stack(done.traces["pos"]))
    return peak + np.concatenate(found, axis=1) @ root.T
