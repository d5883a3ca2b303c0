"""Sampling weights and kappa with an ensemble of walkers, and how far the sample can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cirl_gym.data.features import draw_weights
from cirl_gym.types import FloatArray

ManyLogLikelihood: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""(ws ``[M, d]``, kappas ``[M]``) -> log-likelihoods ``[M]`` of all the data."""
Best: TypeAlias = tuple[float, FloatArray, float]
"""The highest log-likelihood seen, its weights ``[d]`` and its kappa."""


@dataclass(frozen=True)
class SamplerReport:
    """How far a sampled posterior can be trusted."""

    acceptance: float
    """Share of proposals accepted."""
    autocorrelation: FloatArray
    """``[d + 1]`` integrated autocorrelation time in steps, of each weight and of log kappa."""
    effective: FloatArray
    """``[d + 1]`` effective number of independent draws behind the result."""
    evaluations: int
    """Likelihoods computed in all."""
    kept_steps: int
    """Steps per walker, after the first half was thrown away."""

    @property
    def long_enough(self) -> bool:
        """Whether the chain is 50 autocorrelation times long; below that even these times are not known well."""
        return bool(self.kept_steps >= 50 * self.autocorrelation.max())


class Target:
    """Log density of the walkers' positions (v, log kappa); counts likelihoods and remembers the best.

    With w = v / |v|_1 and prior exp(-|v|_1), which is constant wherever |v|_1 is, w is uniform on the L1 sphere.

    Args:
        log_likelihood: see :data:`ManyLogLikelihood`.
        signs: ``[d]`` of -1, 0 (free) and 1.
        kappa_range: limits of kappa; log kappa is uniform between them.
        power: the likelihood is raised to it.
    """

    def __init__(
        self, log_likelihood: ManyLogLikelihood, signs: FloatArray, kappa_range: tuple[float, float], power: float
    ) -> None:
        self._log_likelihood = log_likelihood
        self._power = power
        self.signs = signs
        self.low, self.high = float(np.log(kappa_range[0])), float(np.log(kappa_range[1]))
        self.evaluations = 0
        self.best: Best = (-np.inf, np.zeros(len(signs)), 1.0)

    def __call__(self, positions: FloatArray) -> FloatArray:
        """``[M]`` log density at ``positions [M, d + 1]``; outside the prior no likelihood is computed."""
        v, log_kappa = positions[:, :-1], positions[:, -1]
        inside = (v * self.signs >= 0).all(axis=1) & (log_kappa >= self.low) & (log_kappa <= self.high)
        density = np.full(len(positions), -np.inf)
        if inside.any():
            radius = np.abs(v[inside]).sum(axis=1)
            density[inside] = self._power * self.likelihood(v[inside] / radius[:, None], log_kappa[inside]) - radius
        return density

    def likelihood(self, w: FloatArray, log_kappa: FloatArray) -> FloatArray:
        """``[M]`` log-likelihoods, checked."""
        kappas = np.exp(log_kappa)
        answers = np.asarray(self._log_likelihood(w, kappas), dtype=np.float64)
        if answers.shape != (len(w),) or np.isnan(answers).any() or (answers == np.inf).any():
            raise ValueError(f"log_likelihood must give {len(w)} numbers below infinity, got {answers!r}")
        self.evaluations += len(w)
        top = int(answers.argmax())
        if answers[top] > self.best[0]:
            self.best = (float(answers[top]), w[top], float(kappas[top]))
        return answers


def walk(target: Target, walkers: int, budget: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Let the walkers walk until the budget of likelihoods is used.

    They start at the most likely of a tenth of the budget, drawn from the prior. No global random state is touched:
    emcee's own generator is seeded from ``rng``.

    Returns:
        The chain ``[steps, walkers, d + 1]`` of (w, log kappa), and the share of proposals accepted.

    Raises:
        ValueError: the likelihood is zero wherever it was tried.
    """
    import emcee

    d = len(target.signs)
    pool = max(budget // 10 // walkers, 1) * walkers
    w = draw_weights(target.signs, rng, pool)
    log_kappa = rng.uniform(target.low, target.high, size=pool)
    parts = [slice(i, i + walkers) for i in range(0, pool, walkers)]
    likely = np.concatenate([target.likelihood(w[part], log_kappa[part]) for part in parts])
    if not np.isfinite(target.best[0]):
        raise ValueError("log_likelihood calls the data impossible under every weight that was tried")
    first = np.argsort(-likely, kind="stable")[:walkers]
    start = np.column_stack([w[first] * rng.standard_gamma(d, size=(walkers, 1)), log_kappa[first]])
    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    sampler = emcee.EnsembleSampler(walkers, d + 1, target, moves=moves, vectorize=True)
    sampler.random_state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32)).get_state()
    # Proposals outside the prior cost nothing, so the budget decides when to stop; the steps only have an upper limit.
    for _ in sampler.sample(start, iterations=4 * (budget // walkers)):
        if target.evaluations + walkers > budget:
            break
    chain = sampler.get_chain()
    v = chain[..., :d]
    positions: FloatArray = np.concatenate([v / np.abs(v).sum(axis=-1, keepdims=True), chain[..., d:]], axis=-1)
    return positions, float(sampler.acceptance_fraction.mean())


def report(kept: FloatArray, acceptance: float, evaluations: int) -> SamplerReport:
    """Judge the steps ``[steps, walkers, d + 1]`` of a chain that are used."""
    times = np.array([_autocorrelation_time(kept[..., i]) for i in range(kept.shape[2])])
    effective: FloatArray = kept.shape[0] * kept.shape[1] / times
    return SamplerReport(acceptance, times, effective, evaluations, len(kept))


def _autocorrelation_time(x: FloatArray) -> float:
    """Integrated autocorrelation time of ``x [steps, walkers]``, at least 1.

    Deviations are from the mean of all walkers, so that walkers which stay in different places make it long. The sum
    ends at the first lag that is 5 times the sum so far (Sokal's window).
    """
    deviation = x - x.mean()
    if not deviation.any():
        return 1.0  # what cannot vary (the weight of a single feature) is known from one draw
    spectrum = np.fft.rfft(deviation, n=2 * len(x), axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[: len(x)].sum(axis=1)
    sums = 2 * np.cumsum(covariance / covariance[0]) - 1
    enough = np.flatnonzero(np.arange(len(sums)) >= 5 * sums)
    return max(float(sums[enough[0] if len(enough) else -1]), 1.0)
