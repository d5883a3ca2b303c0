"""From a solved world model to preferences: the likelihood of the expert's actions, and weights with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.types import FloatArray
from cirl_gym.weight_sphere import arc_weights, draw_weights, normalised
from irl.likelihood import bootstrap_weights
from irl.plan_pool import PlanPool
from irl.posterior import PosteriorResult, grid_posterior, sample_posterior

Psi = Callable[[FloatArray], FloatArray]
"""w ``[d]`` -> psi ``[N, T, A, d]`` along the histories that are judged."""


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
    near_plans: int = 8
    """Weights near the first posterior's mean whose plans are added before the second one."""
    bootstraps: int = 200
    """Sets of patients' weights (Bayesian bootstrap), to widen intervals where rows depend on each other."""
    budget: int = 20_000
    """Likelihoods that the sampler may compute, for more than two features."""

    def __post_init__(self) -> None:
        if min(self.decisions, self.plans, self.near_plans, self.bootstraps) < 1:
            raise ValueError(f"PosteriorConfig: every number must be at least 1, got {self}")


def judged_episodes(batch: Batch, decisions: int, rng: np.random.Generator) -> Batch:
    """Whole episodes in a random order, until they hold at least so many decisions (or all)."""
    order = rng.permutation(len(batch))
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
    """Posterior of the weights from the expert's actions, with plans near its mean added once.

    Args:
        psi: solves for one w and gives psi along ``batch``.
        batch: the expert's episodes that are judged.
        signs: ``[d]`` of -1, 0 (free) and 1.
        config: how much work.
        rng: plans, bootstrap and draws.
        progress: called with (plans done, plans planned).

    Returns:
        The posterior, and the pool of plans that it was computed with.
    """
    spread = _spread_weights(signs, config.plans, rng)
    total = len(spread) + config.near_plans
    found = []
    for w in spread:
        found.append(psi(w))
        if progress is not None:
            progress(len(found), total)
    pool = PlanPool(batch, np.stack(found))
    centre = _posterior(pool, signs, config, np.random.default_rng(rng.integers(2**63 - 1))).mean
    near = []
    for w in _near_weights(centre, signs, config.near_plans, rng):
        near.append(psi(w))
        if progress is not None:
            progress(len(found) + len(near), total)
    pool = pool.extended(np.stack(near))
    return _posterior(pool, signs, config, rng), pool


def _posterior(pool: PlanPool, signs: FloatArray, config: PosteriorConfig, rng: np.random.Generator) -> PosteriorResult:
    if len(signs) == 2:
        groups = len(set(pool.batch.groups))
        weights = bootstrap_weights(groups, config.bootstraps, rng)
        return grid_posterior(pool.group_log_likelihood, signs, rng, group_weights=weights)
    return sample_posterior(pool.log_likelihoods, signs, rng, budget=config.budget)


def _spread_weights(signs: FloatArray, plans: int, rng: np.random.Generator) -> FloatArray:
    """Evenly along the allowed part of the sphere for two features, else drawn uniformly."""
    d = len(signs)
    if d == 2:
        every = arc_weights((np.arange(4 * plans) + 0.5) / plans)
        fits = ((every * signs >= 0) | (signs == 0)).all(axis=1)
        allowed: FloatArray = every[fits]
        return allowed
    return draw_weights(signs, rng, plans + plans * (d - 2) // 4)


def _near_weights(centre: FloatArray, signs: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Weights ``[n, d]`` from almost the centre outwards: the centre blended with uniform ones."""
    share = np.geomspace(0.01, 0.3, n)[:, None]
    blended = (1 - share) * centre + share * draw_weights(signs, rng, n)
    return np.stack([normalised(w) for w in blended])
