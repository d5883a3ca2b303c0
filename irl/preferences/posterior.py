"""Posterior of the weights and kappa, given a likelihood of the expert's actions (:mod:`irl.preferences.likelihood`).

The prior is uniform over the allowed part of the L1 sphere, times uniform in log kappa over a range. The caller owns
whatever gives Q; here only likelihoods are seen. Two features are done on a grid over the sphere and log kappa, made
finer where the probability is; more by an ensemble of walkers, with a report of how far the sample can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import evenly_spaced_rows
from cirl_gym.data.features import allowed_faces, arc_weights, checked_signs, draw_weights
from cirl_gym.types import BoolArray, FloatArray, IntArray

GroupLogLikelihood: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""(w ``[2]``, kappas ``[K]``) -> log-likelihoods ``[K, G]``, one column per group (patient)."""
ManyLogLikelihood: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""(ws ``[M, d]``, kappas ``[M]``) -> log-likelihoods ``[M]`` of all the data."""

TAILS = np.array([0.05, 0.5, 0.95])
KAPPAS = (0.01, 1000.0)
"""What kappa can be. With a larger lower end, experts who toss coins could only be explained by weights under which all
actions are as good, and the posterior would be sure of those."""
LEFT_OUT = 1e-4
"""Probability that a finer grid may leave out, along each of its two directions."""
DRAWS = 4000
"""Draws from a grid."""
IMPOSSIBLE = "log_likelihood calls the data impossible under every weight that was tried"


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
    steps: int
    """Steps per walker, after the first half was thrown away."""

    @property
    def long_enough(self) -> bool:
        """Whether the chain is 50 autocorrelation times long; below that even these times are not known well."""
        return bool(self.steps >= 50 * self.autocorrelation.max())


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

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """``[d]`` 90 % interval of each weight."""
        return tuple(zip(self.low.tolist(), self.high.tolist(), strict=True))

    def thinned(self, most: int) -> tuple[FloatArray, FloatArray]:
        """At most so many draws, evenly spread over all: weights ``[m, d]`` and their kappas ``[m]``."""
        rows = evenly_spaced_rows(len(self.draws), most)
        return self.draws[rows], self.kappa_draws[rows]


def grid_posterior(
    log_likelihood: GroupLogLikelihood,
    signs: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    kappa_range: tuple[float, float] = KAPPAS,
    points: int = 100,
    kappa_points: int = 40,
    refinements: int = 2,
    group_weights: FloatArray | None = None,
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
        group_weights: ``[B, G]`` from :func:`irl.preferences.likelihood.bootstrap_weights`, to widen the intervals.

    Raises:
        ValueError: an argument is out of range, or the likelihood's answer has a wrong shape or is not a number.
    """
    allowed = checked_signs(signs)
    _check_range(kappa_range)
    if len(allowed) != 2 or points < 2 or kappa_points < 2:
        raise ValueError(f"two features and 2 points at least, got {len(allowed)}, {points}, {kappa_points}")
    grid = WeightGrid.over(allowed, kappa_range, points, kappa_points)
    highest, best, best_kappa = -np.inf, grid.w[0], 1.0
    while True:
        total, reweighted = _evaluate(log_likelihood, grid, group_weights)
        cell, level = np.unravel_index(total.argmax(), total.shape)
        if not np.isfinite(total[cell, level]):
            raise ValueError(IMPOSSIBLE)
        if total[cell, level] > highest:
            highest, best, best_kappa = float(total[cell, level]), grid.w[cell], float(grid.kappas[level])
        mass = _shares(total)
        masses = None if reweighted is None else _shares(reweighted)
        # A cell that matters under some drawn group weights only must stay as well.
        everywhere = mass if masses is None else (mass + masses.mean(axis=0)) / 2
        finer = grid.refined(everywhere, points) if refinements > 0 else None
        if finer is None:
            break
        grid, refinements = finer, refinements - 1
    mean = grid.mean(mass)
    low, middle, high = grid.quantiles(mass)
    bootstrap = None
    if masses is not None:
        bootstrap = np.stack([_scaled_back(each, best) for each in grid.mean(masses)])
        ends = np.quantile(bootstrap, TAILS[[0, 2]], axis=0)
        low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
    kappa_mean, kappa_low, kappa_high = grid.kappa_summary(mass)
    draws, kappa_draws = grid.draw(mass, DRAWS, rng)
    return PosteriorResult(
        mean=_scaled_back(mean, best),
        median=_scaled_back(middle, best),
        low=low,
        high=high,
        concentration=float(np.abs(mean).sum()),
        kappa_mean=kappa_mean,
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        draws=draws,
        kappa_draws=kappa_draws,
        best=best,
        best_kappa=best_kappa,
        best_log_likelihood=highest,
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
) -> PosteriorResult:
    """Posterior of any number of weights by an ensemble of walkers (emcee, differential-evolution moves).

    The walkers start at the most likely of a tenth of the budget, drawn from the prior, and the first half of their
    steps is thrown away.

    Args:
        log_likelihood: see :data:`ManyLogLikelihood`; asked for at most ``walkers`` weights at once.
        signs: ``[d]`` of -1, 0 (free) and 1.
        rng: seeds everything; no global random state is touched.
        kappa_range: limits of kappa.
        budget: largest number of likelihoods to compute.
        walkers: default: 4 per dimension, at least 32.

    Raises:
        ValueError: an argument is out of range, or the likelihood's answer has a wrong shape or is not a number.
    """
    allowed = checked_signs(signs)
    _check_range(kappa_range)
    d = len(allowed)
    count = walkers or max(32, 4 * (d + 1))
    if count < 2 * (d + 1) or budget < 20 * count:
        raise ValueError(f"{2 * (d + 1)} walkers and {20 * count} likelihoods at least, got {count} and {budget}")
    target = _Target(log_likelihood, allowed, kappa_range)
    chain, acceptance = _walked(target, count, budget, rng)
    chain = chain[len(chain) // 2 :]
    w, log_kappa = chain[..., :d].reshape(-1, d), chain[..., d].ravel()
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
        sampler=chain_report(chain, acceptance, target.evaluations),
    )


def with_model_spread(posterior: PosteriorResult, members: Sequence[PosteriorResult]) -> PosteriorResult:
    """The posterior whose intervals and draws are those of all members of an ensemble together; mean and median stay.

    Args:
        posterior: under the ensemble's mean prediction.
        members: under the prediction of each outcome model; none: nothing changes.
    """
    if not members:
        return posterior
    every = [posterior, *members]
    # As many draws of each: a mixture with equal shares.
    n = min(len(one.draws) for one in every)
    draws, kappas = (np.concatenate(drawn) for drawn in zip(*(one.thinned(n) for one in every), strict=True))
    low, high = np.quantile(draws, TAILS[[0, 2]], axis=0)
    kappa_low, kappa_high = np.quantile(kappas, TAILS[[0, 2]])
    return replace(
        posterior,
        # Each member's own interval may be wider than its draws say (a bootstrap over patients).
        low=np.minimum(low, posterior.low),
        high=np.maximum(high, posterior.high),
        kappa_low=min(float(kappa_low), posterior.kappa_low),
        kappa_high=max(float(kappa_high), posterior.kappa_high),
        draws=draws,
        kappa_draws=kappas,
    )


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


def _scaled_back(w: FloatArray, fallback: FloatArray) -> FloatArray:
    """``[d]`` w with L1 norm 1; ``fallback`` where w has no direction."""
    norm = float(np.abs(w).sum())
    return w / norm if norm > 1e-12 else fallback


def _check_range(kappa_range: tuple[float, float]) -> None:
    if not 0 < kappa_range[0] < kappa_range[1] < np.inf:
        raise ValueError(f"kappa_range must be two positive numbers, the smaller first, got {kappa_range}")


def _walked(target: _Target, walkers: int, budget: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """The chain ``[steps, walkers, d + 1]`` of (w, log kappa) within the budget, and the share of moves accepted."""
    import emcee

    d = len(target.signs)
    pool = max(budget // 10 // walkers, 1) * walkers
    w = draw_weights(target.signs, rng, pool)
    log_kappa = rng.uniform(target.low, target.high, size=pool)
    parts = [slice(i, i + walkers) for i in range(0, pool, walkers)]
    likely = np.concatenate([target.likelihood(w[part], log_kappa[part]) for part in parts])
    if not np.isfinite(target.best[0]):
        raise ValueError(IMPOSSIBLE)
    first = np.argsort(-likely, kind="stable")[:walkers]
    start = np.column_stack([w[first] * rng.standard_gamma(d, size=(walkers, 1)), log_kappa[first]])
    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    sampler = emcee.EnsembleSampler(walkers, d + 1, target, moves=moves, vectorize=True)
    # emcee's own generator is seeded from ours: no global random state is touched.
    sampler.random_state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32)).get_state()
    # Proposals outside the prior cost nothing, so the budget decides when to stop; the steps only have an upper limit.
    for _ in sampler.sample(start, iterations=4 * (budget // walkers)):
        if target.evaluations + walkers > budget:
            break
    chain = sampler.get_chain()
    v = chain[..., :d]
    positions: FloatArray = np.concatenate([v / np.abs(v).sum(axis=-1, keepdims=True), chain[..., d:]], axis=-1)
    return positions, float(sampler.acceptance_fraction.mean())


def chain_report(chain: FloatArray, acceptance: float, evaluations: int) -> SamplerReport:
    """Judge the steps ``[steps, walkers, d + 1]`` of a chain that are used."""
    times = np.array([_autocorrelation_time(chain[..., i]) for i in range(chain.shape[2])])
    effective: FloatArray = chain.shape[0] * chain.shape[1] / times
    return SamplerReport(acceptance, times, effective, evaluations, len(chain))


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


@dataclass(frozen=True)
class WeightGrid:
    """M cells along the L1 sphere times K cells of log kappa; within a cell the density counts as constant.

    All cells are equally large, so that each has the same share of the prior.
    """

    left: FloatArray
    """``[M]`` where each cell begins (:func:`cirl_gym.data.features.arc_weights`), rising; none goes over a corner"""
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

    def kappa_summary(self, mass: FloatArray) -> tuple[float, float, float]:
        """Mean of kappa and the ends of its 90 % interval under ``mass [M, K]``."""
        along = mass.sum(axis=0)
        within = np.diff(np.exp(self.log_kappa)) / np.diff(self.log_kappa)
        below = np.concatenate([[0.0], np.cumsum(along)])
        low, high = np.exp(np.interp(TAILS[[0, 2]], below, self.log_kappa))
        return float(along @ within), float(low), float(high)

    def quantiles(self, mass: FloatArray) -> FloatArray:
        """``[3, 2]`` the quantiles :data:`TAILS` of each weight under ``mass [M, K]``."""
        ends = np.stack([arc_weights(self.left), arc_weights(self.right)])
        low, high = ends.min(axis=0), ends.max(axis=0)
        along = mass.sum(axis=1)
        columns = []
        for i in range(2):
            knots = np.unique(ends[:, :, i])
            share = np.clip((knots[:, None] - low[:, i]) / (high - low)[:, i], 0.0, 1.0)
            columns.append(np.interp(TAILS, share @ along, knots))
        return np.stack(columns, axis=1)

    def draw(self, mass: FloatArray, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """``[n, 2]`` weights and ``[n]`` kappas drawn from ``mass [M, K]``, uniformly within cells."""
        chosen: IntArray = rng.choice(mass.size, size=n, p=mass.ravel() / mass.sum())
        cell, level = np.divmod(chosen, mass.shape[1])
        where, depth = rng.random(n), rng.random(n)
        arc = self.left[cell] + where * (self.right - self.left)[cell]
        return arc_weights(arc), np.exp(self.log_kappa[level] + depth * np.diff(self.log_kappa)[level])


class _Target:
    """Log density of the walkers' positions (v, log kappa); counts likelihoods and remembers the best.

    With w = v / |v|_1 and prior exp(-|v|_1), which is constant wherever |v|_1 is, w is uniform on the L1 sphere.
    """

    def __init__(self, log_likelihood: ManyLogLikelihood, signs: FloatArray, kappa_range: tuple[float, float]) -> None:
        self._log_likelihood = log_likelihood
        self.signs = signs
        self.low, self.high = float(np.log(kappa_range[0])), float(np.log(kappa_range[1]))
        self.evaluations = 0
        self.best: tuple[float, FloatArray, float] = (-np.inf, np.zeros(len(signs)), 1.0)
        """The highest log-likelihood seen, its weights ``[d]`` and its kappa."""

    def __call__(self, positions: FloatArray) -> FloatArray:
        """``[M]`` log density at ``positions [M, d + 1]``; outside the prior no likelihood is computed."""
        v, log_kappa = positions[:, :-1], positions[:, -1]
        inside = (v * self.signs >= 0).all(axis=1) & (log_kappa >= self.low) & (log_kappa <= self.high)
        density = np.full(len(positions), -np.inf)
        if inside.any():
            radius = np.abs(v[inside]).sum(axis=1)
            density[inside] = self.likelihood(v[inside] / radius[:, None], log_kappa[inside]) - radius
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
