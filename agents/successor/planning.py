"""Beam search over action sequences in a world model: exact returns of the best plans found.

The world model's expected course is deterministic, so the return of a plan is known exactly once it is written out.
What is not known is which plan is best; a value estimate decides which unfinished plans go on. An error of the
estimate can therefore hide a better plan, but never changes the value of one that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.outcome_models.masked import allowed_actions
from cirl_gym.types import Float32Array, FloatArray, IntArray

ActionValues = Callable[[int, Float32Array, FloatArray], FloatArray]
"""Estimate of Q(h_t, a; w) ``[n, A]`` from t, states ``[n, S]`` and weights ``[n, d]``."""


class Search(NamedTuple):
    """What a search needs to know of the world, whatever histories it starts from."""

    model: OutcomeModel
    """World model; its expected outcomes are followed, and what comes later counts with the probability of getting
    there (1 - p_end)."""
    feature_map: FeatureMap
    """Picks the d outcomes and scales them to phi."""
    estimate: ActionValues
    """Values by which unfinished plans are compared."""
    horizon: int
    """Number of actions of a whole episode: plans end after step ``horizon - 1``."""
    gamma: float
    """Discount factor."""
    width: int
    """Plans that go on after each step; 1 follows the estimate's greedy policy."""


def plan(search: Search, t: int, states: Float32Array, w: FloatArray) -> FloatArray:
    """psi(h_t, a; w) ``[n, A, d]`` of the best plan found that begins with a.

    Where the model's world forbids actions, plans go on by allowed ones only; the first action is whatever is asked
    for, forbidden or not.

    Args:
        search: how; its width is that of each row and first action.
        t: time of the histories.
        states: ``[n, S]`` histories in the model's form.
        w: ``[n, d]`` preferences, one per row.
    """
    n, n_actions = len(states), search.model.n_actions
    beam = np.repeat(states, n_actions, axis=0)[:, None]
    first: IntArray = np.tile(np.arange(n_actions), n)[:, None]
    return _best(search, t, beam, first, None, np.repeat(w, n_actions, axis=0)).reshape(n, n_actions, -1)


def best_plan(search: Search, t: int, states: Float32Array, w: FloatArray) -> FloatArray:
    """psi(h_t, a; w) ``[n, d]`` of the best plan found, whatever allowed action it begins with; arguments as in
    :func:`plan`.

    All first actions share one search, so that it costs 1 / A of :func:`plan` and fewer plans of each go on.
    """
    n_actions = search.model.n_actions
    beam = np.repeat(states[:, None], n_actions, axis=1)
    first: IntArray = np.tile(np.arange(n_actions), (len(states), 1))
    allowed = allowed_actions(search.model, states)
    lost = None if allowed is None else np.where(allowed, 0.0, -np.inf)
    return _best(search, t, beam, first, lost, w)


def _best(
    search: Search, t: int, beam: Float32Array, actions: IntArray, lost: FloatArray | None, w: FloatArray
) -> FloatArray:
    """``[rows, d]`` of the best way to go on from plans ``[rows, K, S]`` by actions ``[rows, K]``.

    ``lost`` ``[rows, K]`` is minus infinity for plans that are not allowed and only fill up the width, 0 for others;
    None: all are allowed.
    """
    rows, d = w.shape
    total, reach = np.zeros((*actions.shape, d)), np.ones(actions.shape)
    row = np.arange(rows)[:, None]
    for step in range(t, search.horizon):
        plans = beam.shape[1]
        flat, taken = beam.reshape(rows * plans, -1), actions.reshape(-1)
        outcome, end = foresee(search.model, flat, taken)
        total = total + reach[..., None] * search.feature_map(outcome).reshape(rows, plans, d)
        if step == search.horizon - 1:
            break
        reach = reach * search.gamma * (1.0 - end.reshape(rows, plans))
        flat = search.model.advance(flat, taken, outcome)
        values = search.estimate(step + 1, flat, np.repeat(w, plans, axis=0)).reshape(rows, plans, -1)
        promise = np.einsum("rkd,rd->rk", total, w)[..., None] + reach[..., None] * values
        allowed = allowed_actions(search.model, flat)
        if allowed is not None:
            promise = np.where(allowed.reshape(promise.shape), promise, -np.inf)
            promise = promise if lost is None else promise + lost[..., None]
        chosen = _largest(promise.reshape(rows, -1), search.width)
        parents, actions = chosen // values.shape[2], chosen % values.shape[2]
        beam = flat.reshape(rows, plans, -1)[row, parents]
        total, reach = total[row, parents], reach[row, parents]
        if allowed is not None:
            lost = np.where(np.isneginf(promise.reshape(rows, -1)[row, chosen]), -np.inf, 0.0)
    values = np.einsum("rkd,rd->rk", total, w)
    best = (values if lost is None else values + lost).argmax(axis=1)
    psi: FloatArray = total[np.arange(rows), best]
    return psi


def _largest(values: FloatArray, width: int) -> IntArray:
    """Columns of the ``width`` largest values of each row."""
    if values.shape[1] <= width:
        return np.tile(np.arange(values.shape[1]), (len(values), 1))
    return np.argpartition(-values, width - 1, axis=1)[:, :width].astype(np.int64)
