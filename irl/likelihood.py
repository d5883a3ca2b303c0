"""Likelihood of the expert's actions under softmax(kappa w . psi(h, .; w)), by episode and by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.types import FloatArray


def action_log_likelihood(q: npt.NDArray[np.floating], batch: Batch, kappas: npt.ArrayLike) -> FloatArray:
    """Log-likelihood ``[K, N]`` of each episode's actions under softmax(kappa q).

    Args:
        q: ``[N, T, A]`` values of all actions along the batch; those of actions that were not allowed, and rows on
            padding, are not looked at.
        batch: the actions taken.
        kappas: ``[K]`` inverse temperatures, not negative.

    Raises:
        ValueError: shapes do not match, a value is not finite, or a kappa is negative or not finite.
    """
    levels = np.asarray(kappas, dtype=np.float64)
    if levels.ndim != 1 or not (np.isfinite(levels) & (levels >= 0)).all():
        raise ValueError(f"kappas must be a vector of finite numbers, none negative, got {kappas!r}")
    if q.shape != (*batch.actions.shape, batch.n_actions):
        raise ValueError(f"q must be {(*batch.actions.shape, batch.n_actions)}, got {q.shape}")
    live = q[batch.mask].astype(np.float64)
    forbidden = None if batch.allowed is None else ~batch.allowed[batch.mask]
    if not (np.isfinite(live) if forbidden is None else np.isfinite(live) | forbidden).all():
        raise ValueError("q is not finite in a step where an action was taken")
    if forbidden is not None:
        live[forbidden] = -np.inf
    steps = np.arange(len(live))
    # -log p(taken) = kappa (best - taken) + log(1 + sum over the others of exp(kappa (q_a - best))).
    best = live.argmax(axis=1)
    short = live[steps, best] - live[steps, batch.actions[batch.mask]]
    others = np.arange(batch.n_actions) != best[:, None]
    below = np.ascontiguousarray((live - live[steps, best][:, None])[others].reshape(len(live), -1).T)
    never = None if forbidden is None else np.isneginf(below)
    result = np.empty((len(levels), len(batch)))
    scratch = np.empty_like(below)  # many kappas, many steps: what is written again is not asked for again
    for i, kappa in enumerate(levels):
        with np.errstate(invalid="ignore"):  # 0 times infinity, set right below
            np.exp(np.multiply(below, kappa, out=scratch), out=scratch)
        if never is not None:
            scratch[never] = 0.0
        lost = np.log(1.0 + scratch.sum(axis=0))
        lost += kappa * short
        result[i] = -by_episode(lost, batch)
    return result


def taken_log_probabilities(log_probabilities: npt.NDArray[np.floating], batch: Batch) -> FloatArray:
    """``[N]`` sums over each episode of the log-probabilities of the actions taken.

    Args:
        log_probabilities: ``[N, T, A]``, or ``[A]`` for a policy that looks at nothing; rows on padding are not looked
            at.
        batch: the actions taken.

    Raises:
        ValueError: another shape, or a log-probability of an action taken is not a number, or above 0.
    """
    shape = (*batch.actions.shape, batch.n_actions)
    if log_probabilities.shape not in (shape, (batch.n_actions,)):
        raise ValueError(f"log-probabilities must be {shape} or {shape[2:]}, got {log_probabilities.shape}")
    each = np.broadcast_to(log_probabilities, shape)[batch.mask]
    taken = each[np.arange(len(each)), batch.actions[batch.mask]].astype(np.float64)
    if not (taken <= 1e-9).all():
        raise ValueError("log-probabilities must be numbers and not above 0")
    return by_episode(np.minimum(taken, 0.0), batch)


def per_decision(log_likelihood: FloatArray, batch: Batch) -> tuple[float, float]:
    """Mean log-likelihood of a decision and its standard error, from the episodes' ``[N]``.

    Groups (patients) are the unit, and they have different numbers of decisions: the mean is a ratio of sums, and its
    error that of the sums of what is left over the ratio. With a single group nothing can be said of it: 0.
    """
    sums = by_group(np.stack([log_likelihood, batch.lengths.astype(np.float64)]), batch.groups)
    total, decisions = sums
    mean = total.sum() / decisions.sum()
    rest, groups = total - mean * decisions, len(decisions)
    error = np.sqrt(groups / max(groups - 1, 1) * (rest**2).sum()) / decisions.sum()
    return float(mean), float(error)


def by_episode(decisions: FloatArray, batch: Batch) -> FloatArray:
    """``[N]`` sums over each episode of numbers ``[R]``, one per action taken in the order of ``batch.mask``."""
    first = np.concatenate([[0], np.cumsum(batch.lengths)[:-1]])
    sums: FloatArray = np.add.reduceat(decisions, first)
    return sums


def by_group(log_likelihood: FloatArray, groups: Sequence[str]) -> FloatArray:
    """``[.., G]`` sums of episodes' log-likelihoods ``[.., N]`` over each group (patient), in the groups' sorted order.

    Raises:
        ValueError: there is not one group name per episode.
    """
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    if log_likelihood.shape[-1] != len(member):
        raise ValueError(f"{log_likelihood.shape[-1]} episodes and {len(member)} group names do not match")
    total = np.zeros((len(names), *log_likelihood.shape[:-1]))
    np.add.at(total, member, np.moveaxis(log_likelihood, -1, 0))
    return np.moveaxis(total, 0, -1)


def bootstrap_weights(groups: int, draws: int, rng: np.random.Generator) -> FloatArray:
    """Bayesian bootstrap: ``[draws, groups]`` weights, uniform on the simplex, scaled to mean 1.

    The spread of an estimate over such weights is its uncertainty with groups as the unit, however much the rows
    within a group depend on each other.
    """
    weights = rng.standard_exponential((draws, groups))
    scaled: FloatArray = weights / weights.mean(axis=1, keepdims=True)
    return scaled
