"""Beam search over action sequences in a world model: exact returns of the best plans found.

The world model's expected course is deterministic, so the return of a plan is known exactly once it is written out.
What is not known is which plan is best; a value estimate decides which unfinished plans are kept. An error of the
estimate can therefore hide a better plan, but never changes the value of one that was found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cirl_gym.features import FeatureMap
from cirl_gym.types import Float32Array, FloatArray, IntArray, OutcomeModel

ActionValues = Callable[[int, Float32Array, FloatArray], FloatArray]
"""Estimate of Q(h_t, a; w) ``[n, A]`` from t, states ``[n, S]`` and weights ``[n, d]``."""


def plan(
    model: OutcomeModel,
    feature_map: FeatureMap,
    estimate: ActionValues,
    *,
    t: int,
    horizon: int,
    gamma: float,
    states: Float32Array,
    w: FloatArray,
    width: int,
) -> FloatArray:
    """psi(h_t, a; w) ``[n, A, d]`` of the best plan found that begins with a; it ends after step ``horizon - 1``.

    Args:
        model: world model; its expected outcomes are followed, and what comes later counts with the probability of
            getting there (1 - p_end).
        feature_map: picks the d outcomes and scales them to phi.
        estimate: values by which unfinished plans are compared.
        t: time of the histories.
        horizon: number of actions of a whole episode.
        gamma: discount factor.
        states: ``[n, S]`` histories in the model's form.
        w: ``[n, d]`` preferences, one per row.
        width: plans kept per row and first action; 1 follows the estimate's greedy policy.
    """
    n, n_actions, d = len(states), model.n_actions, w.shape[1]
    rows = n * n_actions
    beam = np.repeat(states, n_actions, axis=0)[:, None]
    w = np.repeat(w, n_actions, axis=0)
    actions: IntArray = np.tile(np.arange(n_actions), n)[:, None]
    total, reach = np.zeros((rows, 1, d)), np.ones((rows, 1))
    for step in range(t, horizon):
        kept = beam.shape[1]
        flat, taken = beam.reshape(rows * kept, -1), actions.reshape(-1)
        each = np.arange(len(taken))
        outcome = model.predict(flat)[each, taken]
        total = total + reach[..., None] * feature_map(outcome).reshape(rows, kept, d)
        if step == horizon - 1:
            break
        reach = reach * gamma * (1.0 - model.end_probability(flat)[each, taken].reshape(rows, kept))
        flat = model.advance(flat, taken, outcome)
        values = estimate(step + 1, flat, np.repeat(w, kept, axis=0)).reshape(rows, kept, n_actions)
        promise = np.einsum("rkd,rd->rk", total, w)[..., None] + reach[..., None] * values
        chosen = _largest(promise.reshape(rows, -1), width)
        parents, actions = chosen // n_actions, chosen % n_actions
        row = np.arange(rows)[:, None]
        beam = flat.reshape(rows, kept, -1)[row, parents]
        total, reach = total[row, parents], reach[row, parents]
    best = np.einsum("rkd,rd->rk", total, w).argmax(axis=1)
    psi: FloatArray = total[np.arange(rows), best].reshape(n, n_actions, d)
    return psi


def _largest(values: FloatArray, width: int) -> IntArray:
    """Columns of the ``width`` largest values of each row."""
    if values.shape[1] <= width:
        return np.tile(np.arange(values.shape[1]), (len(values), 1))
    return np.argpartition(-values, width - 1, axis=1)[:, :width].astype(np.int64)
