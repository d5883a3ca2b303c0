"""How well chosen actions match the expert's, and recovered weights the true ones (paper, appendix H).

Chosen actions are ``[N, T]`` arrays along the batch's own histories (see :func:`cirl_gym.rollout.act_along`); what
stands on padding is never looked at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.types import BoolArray, FloatArray, IntArray
from cirl_gym.weight_sphere import normalised


def agreement(chosen: IntArray, batch: Batch) -> BoolArray:
    """``[N, T]`` True where the chosen action is the one taken; False on padding.

    Raises:
        ValueError: ``chosen`` is not ``[N, T]`` whole numbers.
    """
    chosen = np.asarray(chosen)
    if chosen.shape != batch.actions.shape or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(
            f"chosen actions must be whole numbers {batch.actions.shape}, got {chosen.dtype} {chosen.shape}"
        )
    same: BoolArray = (chosen == batch.actions) & batch.mask
    return same


def accuracy(chosen: IntArray, batch: Batch) -> float:
    """Mean over episodes of the mean over their steps of [a_t = chosen_t] (paper, appendix H).

    The paper numbers the actions 1..T here and 0..T-1 elsewhere; either way every action taken counts once.
    """
    return _episode_mean(agreement(chosen, batch), batch)


def step_accuracy(chosen: IntArray, batch: Batch) -> float:
    """Share of all steps in which the chosen action is the one taken: long episodes count more than in appendix H."""
    return float(agreement(chosen, batch).sum() / batch.n_steps)


def accuracy_by_step(chosen: IntArray, batch: Batch) -> FloatArray:
    """``[longest length]`` accuracy at t = 0, 1, ... among the episodes that are still going on."""
    alive = batch.mask[:, : int(batch.lengths.max())]
    right: FloatArray = agreement(chosen, batch)[:, : alive.shape[1]].sum(axis=0) / alive.sum(axis=0)
    return right


def majority(training: Batch, batch: Batch) -> IntArray:
    """``[N, T]`` always the action that is most frequent in ``training`` (of equals the first)."""
    counts = np.bincount(training.actions[training.mask], minlength=training.n_actions)
    return np.full(batch.actions.shape, int(counts.argmax()), dtype=np.int64)


def repeat_last_action(training: Batch, batch: Batch) -> IntArray:
    """``[N, T]`` the action before; at t = 0 the most frequent first action in ``training`` (of equals the first)."""
    first = int(np.bincount(training.actions[:, 0], minlength=training.n_actions).argmax())
    chosen = np.full(batch.actions.shape, first, dtype=np.int64)
    chosen[:, 1:] = batch.actions[:, :-1]
    return chosen


def ceiling(probabilities: FloatArray | None, batch: Batch) -> float | None:
    """Accuracy that a policy reaches at best against an expert who draws actions: E[max over a of p(a | h)].

    Args:
        probabilities: ``[N, T, A]`` the expert's action probabilities along the batch; None where they are unknown.
        batch: the episodes.

    Returns:
        The mean, weighted as in :func:`accuracy`, or None where the probabilities are unknown.

    Raises:
        ValueError: another shape, or live rows that are not probabilities.
    """
    if probabilities is None:
        return None
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.shape != (*batch.actions.shape, batch.n_actions):
        raise ValueError(f"probabilities must be {(*batch.actions.shape, batch.n_actions)}, got {probabilities.shape}")
    live = probabilities[batch.mask]
    if not (live >= 0).all() or not (np.abs(live.sum(axis=1) - 1) < 1e-4).all():
        raise ValueError("probabilities must not be negative and must sum to 1 in every step")
    return _episode_mean(probabilities.max(axis=2), batch)


def weight_error(w: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
    """``[d]`` absolute differences of the two weights after both are scaled to L1 norm 1: only directions compare.

    Raises:
        ValueError: lengths differ, or one of them is zero or not finite.
    """
    found, true = normalised(w), normalised(truth)
    if found.shape != true.shape:
        raise ValueError(f"weights {found} and truth {true} differ in length")
    error: FloatArray = np.abs(found - true)
    return error


def same_order(w: npt.ArrayLike, truth: npt.ArrayLike) -> bool:
    """Whether the weights rank the features as the truth does; features that are equal in truth may come in any order.

    Raises:
        ValueError: lengths differ, or one of them is zero or not finite.
    """
    found, true = normalised(w), normalised(truth)
    if found.shape != true.shape:
        raise ValueError(f"weights {found} and truth {true} differ in length")
    below = true[:, None] < true
    return bool((found[:, None] < found)[below].all())


def _episode_mean(values: npt.NDArray[np.generic], batch: Batch) -> float:
    live = np.where(batch.mask, values, 0.0)
    return float((live.sum(axis=1) / batch.lengths).mean())
