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
from cirl_gym.data.rules import among_allowed
from cirl_gym.outcome_models.masked import allowed_actions
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

ActionValues = Callable[[int, Float32Array, FloatArray], Float32Array]
"""Estimate of Q(h_t, a; w) ``[n, P, A]`` from t, n times P states ``[n, P, S]`` and weights ``[n, d]``."""


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
    """Plans that go on after each step, of each search; the estimate's greedy policy is always among them."""


class _Step(NamedTuple):
    """One step of all plans of all searches, ``n`` histories with ``M`` searches of ``K`` plans each."""

    parents: IntArray | None
    """``[n, M, K]`` which of the step before each plan goes on from; None at the first step."""
    actions: IntArray
    """``[n, M, K]`` what is done."""
    gained: FloatArray
    """``[n, M, K, d]`` what the step adds to psi."""


class Plans(NamedTuple):
    """The best plan found from each of n histories for each first action."""

    psi: FloatArray
    """``[n, A, d]`` its psi."""
    actions: IntArray
    """``[n, A, T - t]`` its actions."""


def plan(search: Search, t: int, states: Float32Array, w: FloatArray) -> Plans:
    """The best plan found that begins with a, for every action a: psi(h_t, a; w).

    Where the model's world forbids actions, plans go on by allowed ones only; the first action is whatever is asked
    for, forbidden or not.

    Args:
        search: how; its width is that of each row and first action.
        t: time of the histories.
        states: ``[n, S]`` histories in the model's form.
        w: ``[n, d]`` preferences, one per row.
    """
    first: IntArray = np.tile(np.arange(search.model.n_actions), (len(states), 1))[..., None]
    return _best(search, t, states, first, None, w)


def best_plan(search: Search, t: int, states: Float32Array, w: FloatArray) -> FloatArray:
    """psi(h_t, a; w) ``[n, d]`` of the best plan found, whatever allowed action it begins with; arguments as in
    :func:`plan`.

    All first actions share one search, so that it costs 1 / A of :func:`plan` and fewer plans of each go on.
    """
    allowed = allowed_actions(search.model, states)
    values = among_allowed(search.estimate(t, states[:, None], w)[:, 0], allowed)
    # What the estimate takes for best comes first, and so is followed by its greedy policy.
    first: IntArray = np.argsort(-values, axis=1, kind="stable")
    possible = None if allowed is None else np.take_along_axis(allowed, first, axis=1)
    return _best(search, t, states, first[:, None], possible, w).psi[:, 0]


def _best(
    search: Search, t: int, states: Float32Array, actions: IntArray, possible: BoolArray | None, w: FloatArray
) -> Plans:
    """The best ways to go on, M of each history, from histories ``[n, S]`` by one of the first actions ``[n, M, K]``.

    There are M searches from each history. Where ``possible`` ``[n, K]`` is False a plan is not allowed and only fills
    up the width; None: all are allowed.
    """
    n, searches, plans = actions.shape
    flat = np.repeat(states, searches * plans, axis=0)
    lost = None if possible is None else np.where(possible, 0.0, -np.inf)[:, None]
    score, reach = np.zeros(actions.shape), np.ones(actions.shape)
    steps: list[_Step] = []
    parents: IntArray | None = None
    row = np.arange(n * searches)[:, None]
    for step in range(t, search.horizon):
        taken = actions.reshape(-1)
        outcome, end = foresee(search.model, flat, taken)
        gained = reach[..., None] * search.feature_map(outcome).reshape(*reach.shape, -1)
        score += (gained.reshape(n, -1, w.shape[1]) @ w[:, :, None]).reshape(score.shape)
        steps.append(_Step(parents, actions, gained))
        if step == search.horizon - 1:
            break
        reach = reach * (search.gamma * (1.0 - end.reshape(reach.shape)))
        flat = search.model.advance(flat, taken, outcome)
        values = search.estimate(step + 1, flat.reshape(n, -1, flat.shape[1]), w)
        n_actions = values.shape[-1]
        promise = reach[..., None] * values.reshape(*reach.shape, n_actions)
        promise += score[..., None]
        allowed = allowed_actions(search.model, flat)
        if allowed is not None:
            promise = np.where(allowed.reshape(promise.shape), promise, -np.inf)
            promise = promise if lost is None else promise + lost[..., None]
        promise = promise.reshape(n * searches, -1)
        chosen = _kept(promise, n_actions, search.width)
        shape = (n, searches, chosen.shape[1])
        within, follow = np.divmod(chosen, n_actions)
        if allowed is not None:
            lost = np.where(np.isneginf(promise[row, chosen]), -np.inf, 0.0).reshape(shape)
        place = (within + row * (promise.shape[1] // n_actions)).reshape(shape)
        flat, score, reach = flat[place.reshape(-1)], score.reshape(-1)[place], reach.reshape(-1)[place]
        parents, actions = within.reshape(shape), follow.reshape(shape)
    return _along(steps, (score if lost is None else score + lost).argmax(axis=2))


def _along(steps: list[_Step], best: IntArray) -> Plans:
    """The plans that end at ``best`` ``[n, M]`` of the last step, walked back to the first."""
    place, path, done = best[..., None], [], []
    for step in reversed(steps):
        path.append(np.take_along_axis(step.gained, place[..., None], axis=2)[:, :, 0])
        done.append(np.take_along_axis(step.actions, place, axis=2))
        if step.parents is not None:
            place = np.take_along_axis(step.parents, place, axis=2)
    psi: FloatArray = path.pop()
    while path:
        psi += path.pop()
    return Plans(psi, np.concatenate(done[::-1], axis=2))


def _kept(promise: FloatArray, n_actions: int, width: int) -> IntArray:
    """``[rows, width]`` columns of the plans that go on, of K plans' A ways to go on ``[rows, K A]``.

    First comes the best way to go on from the first plan, which so follows the estimate's greedy policy to the end:
    of many promises the largest are those that promise too much, and a search that kept only them could end below the
    policy that it starts from. Then come the largest of the others.
    """
    greedy: IntArray = promise[:, :n_actions].argmax(axis=1)[:, None]
    others: IntArray
    if width == 1:
        return greedy
    if promise.shape[1] <= width:
        others = np.tile(np.arange(promise.shape[1] - 1), (len(promise), 1))
        others += others >= greedy
    else:
        own = np.take_along_axis(promise, greedy, axis=1)
        np.put_along_axis(promise, greedy, -np.inf, axis=1)
        others = np.argpartition(promise, 1 - width, axis=1)[:, 1 - width :]
        np.put_along_axis(promise, greedy, own, axis=1)
    return np.concatenate([greedy, others], axis=1)
