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
    """Plans end after step ``horizon - 1``: with the episode, or as far ahead as is looked."""
    gamma: float
    """Discount factor."""
    width: int
    """Plans that go on after each step, of each search; the estimate's greedy policy is always among them."""
    seldom: tuple[int, ...] = ()
    """Actions that plans do not go on with, unless no other is allowed: too little was seen of what they do."""


def open_actions(model: OutcomeModel, seldom: tuple[int, ...], states: Float32Array) -> BoolArray | None:
    """``[.., A]`` with which actions plans go on from states ``[.., S]``, at least one; None: with all."""
    allowed = allowed_actions(model, states)
    if not seldom:
        return allowed
    every = np.ones((*states.shape[:-1], model.n_actions), dtype=np.bool_)
    return among_common(every if allowed is None else allowed, seldom)


def among_common(allowed: BoolArray, seldom: tuple[int, ...]) -> BoolArray:
    """``[.., A]`` those of the allowed actions that were not seldom seen, or all of them where there is no such one."""
    common = allowed & ~np.isin(np.arange(allowed.shape[-1]), seldom)
    return np.where(common.any(axis=-1, keepdims=True), common, allowed)


class _Step(NamedTuple):
    """One step of all plans of all searches, ``n`` histories with ``M`` searches of ``K`` plans each."""

    parents: IntArray | None
    """``[n', M, K]`` which of the step before each plan goes on from, of the histories that began before; None at the
    first step."""
    actions: IntArray
    """``[n, M, K]`` what is done."""
    gained: FloatArray
    """``[d, n, M, K]`` what the step adds to psi."""


class _Beam(NamedTuple):
    """Unfinished plans of ``n`` histories with ``M`` searches of ``K`` plans each, before their next action."""

    flat: Float32Array
    """``[n M K, S]`` states."""
    actions: IntArray
    """``[n, M, K]`` the next action."""
    score: FloatArray
    """``[n, M, K]`` value of what came so far; minus infinity of a plan that is not allowed and only fills up."""
    reach: FloatArray
    """``[n, M, K]`` discounted chance of getting there."""

    @classmethod
    def begun(cls, states: Float32Array, actions: IntArray, allowed: BoolArray | None = None) -> _Beam:
        """Nothing done yet from states ``[n, S]``; ``allowed`` ``[n, M, K]`` says which actions are; None: all."""
        score = np.zeros(actions.shape) if allowed is None else np.where(allowed, 0.0, -np.inf)
        return cls(np.repeat(states, actions[0].size, axis=0), actions, score, np.ones(actions.shape))

    def joined(self, states: Float32Array, first: IntArray) -> _Beam:
        """With further histories ``[n', S]`` that begin now by one action of each search, ``first`` ``[n', M]``."""
        plans = self.actions.shape[2]
        allowed = np.broadcast_to(np.arange(plans) == 0, (*first.shape, plans))
        new = _Beam.begun(states, np.repeat(first[..., None], plans, axis=2), allowed)
        return _Beam(
            np.concatenate([self.flat, new.flat]),
            np.concatenate([self.actions, new.actions]),
            np.concatenate([self.score, new.score]),
            np.concatenate([self.reach, new.reach]),
        )


class Plans(NamedTuple):
    """The best plan found from each of n histories for each first action."""

    psi: FloatArray
    """``[n, A, d]`` its psi."""
    actions: IntArray
    """``[n, A, T - t]`` its actions, t the time of the first history; -1 before the time of a later one."""


def plan(search: Search, t: int | IntArray, states: Float32Array, w: FloatArray) -> Plans:
    """The best plan found that begins with a, for every action a: psi(h_t, a; w).

    Where the model's world forbids actions, plans go on by allowed ones only, and by none that was seldom seen; the
    first action is whatever is asked for, forbidden or not. Histories of several times are searched together, those of
    later times joining in.

    Args:
        search: how; its width is that of each row and first action.
        t: time of the histories, one for all or ``[n]`` in ascending order.
        states: ``[n, S]`` histories in the model's form.
        w: ``[n, d]`` preferences, one per row.
    """
    n, n_actions = len(states), search.model.n_actions
    begin: IntArray = np.broadcast_to(t, n)
    first = int(np.searchsorted(begin, begin[0], side="right"))
    actions: IntArray = np.tile(np.arange(n_actions), (n, 1))
    return _best(search, begin, states, _Beam.begun(states[:first], actions[:first, :, None]), actions, w)


def best_plan(search: Search, t: int, states: Float32Array, w: FloatArray) -> FloatArray:
    """psi(h_t, a; w) ``[n, d]`` of the best plan found, whatever allowed action it begins with; arguments as in
    :func:`plan`, for histories of one time.

    All first actions share one search, so that it costs 1 / A of :func:`plan` and fewer plans of each go on.
    """
    allowed = open_actions(search.model, search.seldom, states)
    values = among_allowed(search.estimate(t, states[:, None], w)[:, 0], allowed)
    # What the estimate takes for best comes first, and so is followed by its greedy policy.
    first: IntArray = np.argsort(-values, axis=1, kind="stable")
    possible = None if allowed is None else np.take_along_axis(allowed, first, axis=1)[:, None]
    beam = _Beam.begun(states, first[:, None], possible)
    return _best(search, np.full(len(states), t), states, beam, first[:, :1], w).psi[:, 0]


def _best(search: Search, begin: IntArray, states: Float32Array, beam: _Beam, first: IntArray, w: FloatArray) -> Plans:
    """The best ways to go on, M of each history, from histories ``[n, S]`` in ascending order of their times ``[n]``.

    The beam is of those that begin first; the others join it by their first actions ``[n, M]``, one a search.
    """
    steps: list[_Step] = []
    parents: IntArray | None = None
    for step in range(int(begin[0]), search.horizon):
        known, n = len(beam.actions), int(np.searchsorted(begin, step, side="right"))
        if n > known:
            beam = beam.joined(states[known:n], first[known:n])
        outcome, end = foresee(search.model, beam.flat, beam.actions.reshape(-1))
        gained = beam.reach * search.feature_map(outcome).T.reshape(-1, *beam.reach.shape)
        score = beam.score + np.einsum("nd,dnmk->nmk", w[:n], gained)
        steps.append(_Step(parents, beam.actions, gained))
        if step < search.horizon - 1:
            reach = beam.reach * (search.gamma * (1.0 - end.reshape(beam.reach.shape)))
            flat = search.model.advance(beam.flat, beam.actions.reshape(-1), outcome)
            beam, parents = _further(search, step + 1, _Beam(flat, beam.actions, score, reach), w[:n])
    return _along(steps, score.argmax(axis=2))


def _further(search: Search, t: int, beam: _Beam, w: FloatArray) -> tuple[_Beam, IntArray]:
    """The plans that go on by their next actions, and which ``[n, M, K]`` each goes on from.

    In the beam that is handed in stands the action before.
    """
    n, searches, plans = beam.score.shape
    values = search.estimate(t, beam.flat.reshape(n, -1, beam.flat.shape[1]), w)
    # Plans stand next to each other, their ways to go on apart: NumPy is fast along axes that are long.
    values = values.transpose(0, 2, 1).reshape(n, -1, searches, plans).transpose(0, 2, 1, 3)
    promise = np.multiply(beam.reach[:, :, None], values, out=np.empty(values.shape))
    promise += beam.score[:, :, None]
    allowed = open_actions(search.model, search.seldom, beam.flat)
    if allowed is not None:
        possible = allowed.reshape(*beam.score.shape, -1).transpose(0, 1, 3, 2)
        promise = np.where(possible, promise, -np.inf)
    promise = promise.reshape(n * searches, -1)
    row: IntArray = np.arange(n * searches)[:, None]
    chosen = _kept(promise, plans, search.width)
    follow, within = np.divmod(chosen, plans)
    shape = (n, searches, chosen.shape[1])
    place = (within + row * plans).reshape(shape)
    score = beam.score.take(place)
    if allowed is not None:
        score = np.where(np.isneginf(promise[row, chosen]).reshape(shape), -np.inf, score)
    flat = beam.flat.take(place.reshape(-1), axis=0)
    return _Beam(flat, follow.reshape(shape), score, beam.reach.take(place)), within.reshape(shape)


def _along(steps: list[_Step], best: IntArray) -> Plans:
    """The plans that end at ``best`` ``[n, M]`` of the last step, walked back to the first."""
    place = best[..., None]
    psi: FloatArray = np.zeros((len(steps[-1].gained), *best.shape))
    actions: IntArray = np.full((*best.shape, len(steps)), -1)
    for number, step in reversed(list(enumerate(steps))):
        psi[:, : len(place)] += np.take_along_axis(step.gained, place[None], axis=3)[..., 0]
        actions[: len(place), :, number] = np.take_along_axis(step.actions, place, axis=2)[..., 0]
        if step.parents is not None:
            place = np.take_along_axis(step.parents, place[: len(step.parents)], axis=2)
    return Plans(np.ascontiguousarray(psi.transpose(1, 2, 0)), actions)


def _kept(promise: FloatArray, plans: int, width: int) -> IntArray:
    """``[rows, width]`` columns of the plans that go on, of K plans' A ways to go on ``[rows, A K]``.

    First comes the best way to go on from the first plan, which so follows the estimate's greedy policy to the end:
    of many promises the largest are those that promise too much, and a search that kept only them could end below the
    policy that it starts from. Then come the largest of the others.
    """
    greedy: IntArray = promise[:, ::plans].argmax(axis=1)[:, None] * plans
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
