"""From a solved world model to preferences: the likelihood of the expert's actions, and weights with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import allowed_faces, arc_weights, draw_weights, normalised
from cirl_gym.types import FloatArray
from irl.preferences.likelihood import PlanPool, bootstrap_weights
from irl.preferences.posterior import PosteriorResult, grid_posterior, sample_posterior

Psi = Callable[[FloatArray, int | None], FloatArray]
"""(w ``[d]``, width of the search or None) -> psi ``[N, T, A, d]`` along the histories that are judged."""

_NEAR_ROUNDS = 2


@dataclass(frozen=True)
class PosteriorConfig:
    """How much work the posterior may do.

    Raises:
        ValueError: a number is out of its range.
    """

    decisions: int = 3000
    """Whole episodes are judged, in a random order, until they hold this many decisions."""
    plans: int = 16
    """Weights, spread evenly, whose optimal plans form the first pool; per feature beyond two as many again / 4."""
    near_plans: int = 4
    """Weights near the posterior's mean whose plans are added, in each of two rounds."""
    near_width: int = 32
    """Width of the search near the posterior's mean, where it decides how exact Q is."""
    bootstraps: int = 200
    """Sets of patients' weights (Bayesian bootstrap), to widen intervals where rows depend on each other."""
    budget: int = 20_000
    """Likelihoods that the sampler may compute, for more than two features."""

    def __post_init__(self) -> None:
        if min(self.decisions, self.plans, self.near_plans, self.near_width, self.bootstraps) < 1:
            raise ValueError(f"PosteriorConfig: every number must be at least 1, got {self}")

    def rough(self, d: int) -> PosteriorConfig:
        """A quarter of the sampler's work: enough to find the centre for d features."""
        return replace(self, budget=max(self.budget // 4, 20 * max(32, 4 * (d + 1))))


def judged_episodes(batch: Batch, decisions: int, rng: np.random.Generator | None = None) -> Batch:
    """Whole episodes, in a random order where there is a generator, until they hold so many decisions (or all)."""
    order = np.arange(len(batch)) if rng is None else rng.permutation(len(batch))
    needed = int(np.searchsorted(np.cumsum(batch.lengths[order]), decisions)) + 1
    return batch.take(order[:needed])


def infer_preferences(
    psi: Psi,
    batch: Batch,
    signs: FloatArray,
    config: PosteriorConfig,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[PosteriorResult, PlanPool]:
    """Posterior of the weights from the expert's actions, and the pool of plans, those near its mean added twice.

    Args:
        psi: solves for one w and gives psi along ``batch``.
        batch: the expert's episodes that are judged.
        signs: ``[d]`` of -1, 0 (free) and 1.
        config: how much work.
        rng: plans, bootstrap and draws.
        progress: called with (plans done, plans planned).
    """
    spread = spread_weights(signs, config.plans, rng)
    done = itertools.count(1)

    def searched(weights: FloatArray, width: int | None) -> FloatArray:
        found = []
        for w in weights:
            found.append(psi(w, width))
            if progress is not None:
                progress(next(done), len(spread) + _NEAR_ROUNDS * config.near_plans)
        return np.stack(found)

    pool = PlanPool(batch, searched(spread, None))
    rough = config.rough(len(signs))
    for _ in range(_NEAR_ROUNDS):
        centre = posterior_of(pool, signs, rough, np.random.default_rng(rng.integers(2**63 - 1))).mean
        near = near_weights(centre, signs, config.near_plans, rng)
        pool = pool.extended(searched(near, config.near_width))
    return posterior_of(pool, signs, config, rng), pool


def judged_preferences(
    psi: Callable[[Batch, FloatArray, int | None], FloatArray],
    train: Batch,
    signs: FloatArray,
    config: PosteriorConfig,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[PosteriorResult, PlanPool]:
    """:func:`infer_preferences` from some of the training episodes, which ``rng`` draws (:func:`judged_episodes`).

    ``psi`` gets histories, w ``[d]`` and the width of the search or None, and gives ``[N, T, A, d]`` along them.
    """
    judged = judged_episodes(train, config.decisions, rng)
    return infer_preferences(lambda w, width: psi(judged, w, width), judged, signs, config, rng, progress)


def posterior_of(
    pool: PlanPool, signs: FloatArray, config: PosteriorConfig, rng: np.random.Generator
) -> PosteriorResult:
    """Posterior of the weights with the plans at hand: on a grid for two features, by sampling for more."""
    if len(signs) == 2:
        groups = len(set(pool.batch.groups))
        weights = bootstrap_weights(groups, config.bootstraps, rng)
        return grid_posterior(pool.group_log_likelihood, signs, rng, group_weights=weights)
    return sample_posterior(pool.log_likelihoods, signs, rng, budget=config.budget)


def spread_weights(signs: FloatArray, plans: int, rng: np.random.Generator) -> FloatArray:
    """Evenly along the allowed part of the sphere for two features, else drawn uniformly."""
    d = len(signs)
    if d == 2:
        within = (np.arange(plans) + 0.5) / plans
        return arc_weights(np.concatenate([face + within for face in allowed_faces(signs)]))
    return draw_weights(signs, rng, plans + plans * (d - 2) // 4)


def near_weights(centre: FloatArray, signs: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Weights ``[n, d]`` from almost the centre outwards: the centre blended with uniform ones."""
    share = np.geomspace(0.01, 0.3, n)[:, None]
    blended = (1 - share) * centre + share * draw_weights(signs, rng, n)
    return np.stack([normalised(w) for w in blended])
