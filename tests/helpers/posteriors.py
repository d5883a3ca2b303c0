"""Posteriors whose every number is known, and decisions drawn from a choice model whose parameters are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from small_batches import batch_of

from cirl_gym.data.habits import PREVIOUS, Contexts
from cirl_gym.types import FloatArray
from irl.preferences.likelihood import NO_CONTEXTS, PlanPool
from irl.preferences.posterior import PosteriorResult, SamplerReport


def posterior_like(mean: npt.ArrayLike, spread: float = 0.0, kappa: float = 1.0, seed: int = 0) -> PosteriorResult:
    """Draws of two weights with a normal spread in the first, in pairs on both sides of the mean; kappa is known."""
    first, second = (float(value) for value in np.asarray(mean))
    away = spread * np.random.default_rng(seed).standard_normal(2000)
    away = np.concatenate([away, -away])
    return known_posterior(np.stack([first + away, second - away], axis=1), np.full(4000, kappa))


def known_posterior(
    draws: npt.ArrayLike,
    kappas: npt.ArrayLike,
    logits: FloatArray | None = None,
    contexts: Contexts = NO_CONTEXTS,
    power: float = 1.0,
    signs: npt.ArrayLike | None = None,
) -> PosteriorResult:
    """The posterior that has these draws of weights ``[M, d]``, kappa ``[M]`` and logits ``[M, C, A]``, signs free."""
    w, kappa = np.array(draws, dtype=np.float64), np.array(kappas, dtype=np.float64)
    theta = kappa[:, None] * w / np.abs(w).sum(axis=1, keepdims=True)
    ones = np.ones(w.shape[1] + 1)
    habits = np.zeros((len(w), contexts.size, 2)) if logits is None else logits
    allowed = np.zeros(w.shape[1]) if signs is None else np.asarray(signs, dtype=np.float64)
    return PosteriorResult(theta, habits, contexts, SamplerReport(ones, 1000 * ones, power), allowed)


def drawn_pool(
    theta: npt.ArrayLike,
    *,
    habit: npt.ArrayLike | None = None,
    patients: int = 40,
    steps: int = 8,
    n_actions: int = 2,
    plans: int = 1,
    scale: float = 0.03,
    seed: int = 0,
) -> PlanPool:
    """Decisions drawn with P(a) proportional to exp(b[action before, a] + theta . psi), psi normal and as if known.

    ``habit`` are logits ``[A + 1, A]``, the first row of decisions before which there was none; None: no habits.
    """
    rng, weights = np.random.default_rng(seed), np.asarray(theta, dtype=np.float64)
    logits = np.zeros((n_actions + 1, n_actions)) if habit is None else np.asarray(habit, dtype=np.float64)
    psi = scale * rng.standard_normal((plans, patients, steps, n_actions, len(weights)))
    values = (psi @ weights).max(axis=0)
    taken, before = np.zeros((patients, steps), dtype=np.int64), np.zeros(patients, dtype=np.int64)
    for t in range(steps):
        scores = values[:, t] + logits[before]
        taken[:, t] = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        before = taken[:, t] + 1
    batch = batch_of(*taken.tolist(), n_actions=n_actions, d=len(weights))
    return PlanPool(batch, psi, NO_CONTEXTS if habit is None else Contexts.of(batch, (PREVIOUS,)))
