"""From a solved world model to preferences: a pool of plans for the experts' histories, and weights with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import allowed_faces, arc_weights, draw_weights
from cirl_gym.data.habits import Contexts
from cirl_gym.types import FloatArray
from irl.preferences.likelihood import NO_CONTEXTS, PlanPool
from irl.preferences.posterior import PosteriorResult, normal_posterior, sample_posterior
from irl.preferences.samplers import DRAWS

Psi = Callable[[FloatArray, int | None], npt.NDArray[np.floating]]
"""(w ``[d]`` or several ``[J, d]``, width of the search or None) -> psi ``[N, T, A, d]``, or of
several ``[J, N, T, A, d]``, along the histories that are judged."""

_NEAR_ROUNDS, _NEAR_DRAWS = 2, 200
_TOGETHER = 8
"""Weights whose plans are searched in one go: faster than one by one, and progress is still shown."""


@dataclass(frozen=True)
class PosteriorConfig:
    """How much work the posterior may do.

    Raises:
        ValueError: a number is out of its range.
    """

    decisions: int = 3000
    """Whole episodes are judged, in a random order, until they hold this many decisions."""
    plans: int = 16
    """Weights, spread over what signs allow, whose optimal plans form the first pool; of three outcomes one more,
    of four two, and so on."""
    spread_width: int = 4
    """Width of the search for these: for any weights the best plan of the pool counts, and what one search misses
    another finds. Measured on two tables of hospital stays: log-chances within .0001 of those with 8."""
    near_plans: int = 4
    """Weights drawn from the posterior as it looks so far, whose plans are added, in each of two rounds."""
    near_width: int = 32
    """Width of the search for these, where it decides how exact Q is."""
    draws: int = DRAWS
    """Of each chain at most, until there are enough (:func:`irl.preferences.posterior.sample_posterior`)."""

    def __post_init__(self) -> None:
        if min(vars(self).values()) < 1:
            raise ValueError(f"PosteriorConfig: every number must be at least 1, got {self}")


def judged_episodes(batch: Batch, decisions: int, rng: np.random.Generator | None = None) -> Batch:
    """Whole episodes, in a random order where there is a generator, until they hold so many decisions (or all)."""
    order = np.arange(len(batch)) if rng is None else rng.permutation(len(batch))
    needed = int(np.searchsorted(np.cumsum(batch.lengths[order]), decisions)) + 1
    return batch.take(order[:needed])


def plan_pool(
    psi: Psi,
    batch: Batch,
    signs: FloatArray,
    config: PosteriorConfig,
    rng: np.random.Generator,
    contexts: Contexts = NO_CONTEXTS,
    progress: Callable[[int, int], None] | None = None,
) -> PlanPool:
    """Plans along the experts' histories: of weights from everywhere, then of such as the decisions make likely.

    Args:
        psi: solves for weights and gives psi along ``batch``.
        batch: the expert's episodes that are judged.
        signs: ``[d]`` of -1, 0 (free) and 1.
        config: how much work.
        rng: the weights.
        contexts: what habits may depend on.
        progress: called with (searches done, searches planned).
    """
    spread = spread_weights(signs, config.plans, rng)
    # A single outcome has no weights but its signs: none are nearer.
    width, rounds = (config.near_width, 0) if len(signs) == 1 else (config.spread_width, _NEAR_ROUNDS)
    done = itertools.count(1)

    planned = -(-len(spread) // _TOGETHER) + rounds * -(-config.near_plans // _TOGETHER)

    def searched(weights: FloatArray, width: int) -> FloatArray:
        found = []
        for first in range(0, len(weights), _TOGETHER):
            found.append(psi(weights[first : first + _TOGETHER], width).astype(np.float32, copy=False))
            if progress is not None:
                progress(next(done), planned)
        return np.concatenate(found)

    pool = PlanPool(batch, searched(spread, width), contexts)
    for _ in range(rounds):
        pool = pool.extended(searched(near_weights(pool, signs, config.near_plans, rng), config.near_width))
    return pool


def judged_preferences(
    psi: Callable[[Batch, FloatArray, int | None], npt.NDArray[np.floating]],
    train: Batch,
    signs: FloatArray,
    config: PosteriorConfig,
    rng: np.random.Generator,
    contexts: Contexts = NO_CONTEXTS,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[PosteriorResult, PlanPool]:
    """Posterior from some of the training episodes, which ``rng`` draws (:func:`judged_episodes`), and its plans.

    ``psi`` gets histories and then what :data:`Psi` gets.
    """
    judged = judged_episodes(train, config.decisions, rng)
    pool = plan_pool(lambda w, width: psi(judged, w, width), judged, signs, config, rng, contexts, progress)
    return sample_posterior(pool, signs, rng, config.draws), pool


def spread_weights(signs: FloatArray, plans: int, rng: np.random.Generator) -> FloatArray:
    """Evenly along the allowed part of the sphere for two outcomes, each sign of a single one, else drawn uniformly."""
    d = len(signs)
    if d == 1:
        return np.array([[sign] for sign in (-1.0, 1.0) if sign * signs[0] >= 0])
    if d == 2:
        faces = allowed_faces(signs)
        within = (np.arange(max(plans // len(faces), 2)) + 0.5) / max(plans // len(faces), 2)
        return arc_weights(np.concatenate([face + within for face in faces]))
    return draw_weights(signs, rng, plans + d - 2)


def near_weights(pool: PlanPool, signs: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Weights ``[n, d]`` that the decisions make likely with the plans at hand: their mean's, then draws."""
    posterior = normal_posterior(pool, signs, _NEAR_DRAWS, rng)
    return np.stack([posterior.mean, *posterior.draws[: n - 1]])
