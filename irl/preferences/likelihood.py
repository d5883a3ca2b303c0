"""Likelihood of the experts' actions under softmax(b[c(h), .] + kappa w . psi(h, .; w)), by episode and by group.

The psi of a plan does not depend on weights; weights only decide which plan is best. For a pool of plans the best value
Q(h, a; w) = max over the pool of w . psi(h, a) is therefore at hand for every w, without solving anything again. It is
never above the true optimum of the world model, and the more plans, the nearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Contexts
from cirl_gym.data.rules import among_allowed
from cirl_gym.types import BoolArray, FloatArray, IntArray

NO_CONTEXTS = Contexts((), ())
"""Of experts without habits, as in the paper."""

_ROUNDS, _CLOSE = 500, 1e-12
"""Of the fixed point that constant chances are: passes at most, and what is small enough a change."""


def taken_log_probabilities(log_probabilities: npt.NDArray[np.floating], batch: Batch) -> FloatArray:
    """``[N]`` sums over each episode of the log-probabilities of the actions taken, of ``[N, T, A]``.

    They are ``[A]`` for a policy that looks at nothing; rows on padding are not looked at.

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


def constant_chances(batch: Batch, more: float = 0.0) -> FloatArray:
    """``[A]`` the chances that make a batch's decisions likeliest, if they are the same at every step.

    Those are the actions' frequencies. Where not every action was always allowed they are those of Luce's choice rule,
    p(a) over the sum of the allowed ones', found by the fixed point of its likelihood equations (Hunter 2004, "MM
    algorithms for generalized Bradley-Terry models"): p(a) is how often a was taken over the sum of
    1 / (chance of all allowed actions) over the steps at which it was allowed. Each action is counted as taken ``more``
    times more.
    """
    counts = np.bincount(batch.actions[batch.mask], minlength=batch.n_actions) + more
    chances: FloatArray = counts / counts.sum()
    if batch.allowed is None:
        return chances
    masks, times = np.unique(batch.allowed[batch.mask], axis=0, return_counts=True)
    for _ in range(_ROUNDS):
        # What was counted in addition was chosen from everything.
        offered = (times / (masks @ chances)) @ masks + more * batch.n_actions
        following = np.divide(counts, offered, out=np.zeros_like(chances), where=offered > 0)
        following /= following.sum()
        done = bool(np.abs(following - chances).max() < _CLOSE)
        chances = following
        if done:
            break
    return chances


def log_chances(chances: FloatArray, batch: Batch) -> FloatArray:
    """Log-probabilities ``[N, T, A]`` of constant chances ``[A]`` among those allowed; ``[A]`` if all are."""
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.log(chances)
        if batch.allowed is None:
            return logs
        within = np.where(batch.allowed, chances, 0.0)
        return np.where(batch.allowed, logs - np.log(within.sum(axis=2, keepdims=True)), -np.inf)


def even_log_chances(batch: Batch) -> FloatArray:
    """The same where every allowed action is as likely as any other."""
    if batch.allowed is None:
        return np.full(batch.n_actions, -np.log(batch.n_actions))
    return np.where(batch.allowed, -np.log(batch.allowed.sum(axis=2, keepdims=True)), -np.inf)


def finite_logs(values: npt.NDArray[np.floating]) -> FloatArray:
    """Logarithms of chances or other sizes ``[..]``; of 0 that of the smallest float there nearly is."""
    return np.asarray(np.log(np.maximum(values, 1e-300)))


@dataclass(frozen=True)
class PlanPool:
    """psi of J plans for every history and action of a batch, so that any weights can be judged at once.

    Raises:
        ValueError: shapes do not match, or a number where an action was taken is not finite.
    """

    batch: Batch
    """The histories and the actions that experts took."""
    psi: npt.NDArray[np.floating]
    """``[J, N, T, A, d]`` successor features; what stands on padding is not looked at."""
    contexts: Contexts = NO_CONTEXTS
    """What habits depend on."""
    levels: IntArray | None = None
    """``[N, T, H]`` numbers of the levels of the contexts; default: those of the batch."""

    def __post_init__(self) -> None:
        expected = (*self.batch.actions.shape, self.batch.n_actions)
        if self.psi.ndim != 5 or len(self.psi) == 0 or self.psi.shape[1:4] != expected:
            raise ValueError(f"PlanPool.psi must be [J, {', '.join(map(str, expected))}, d], got {self.psi.shape}")
        if not np.isfinite(self.psi[:, self.batch.mask]).all():
            raise ValueError("PlanPool.psi is not finite where an action was taken")
        if self.levels is None:
            object.__setattr__(self, "levels", self.contexts.along(self.batch))
        elif self.levels.shape != (*expected[:2], len(self.contexts.names)):
            raise ValueError(f"PlanPool.levels must be [N, T, {len(self.contexts.names)}], got {self.levels.shape}")

    def extended(self, psi: npt.NDArray[np.floating]) -> PlanPool:
        """The same pool with more plans ``[J', N, T, A, d]``."""
        return replace(self, psi=np.concatenate([self.psi, psi]))

    def take(self, rows: IntArray | BoolArray) -> PlanPool:
        """The pool of some of its episodes."""
        assert self.levels is not None
        return PlanPool(self.batch.take(rows), self.psi[:, rows], self.contexts, self.levels[rows])

    def q(self, w: FloatArray) -> FloatArray:
        """Best values ``[N, T, A]`` for weights ``[d]`` of any norm; minus infinity where an action was not allowed."""
        # One long product: numpy takes many short ones (psi @ w) one by one, 70 times as slow for two features.
        values = self.psi.reshape(-1, len(w)) @ w.astype(self.psi.dtype)
        best = values.reshape(self.psi.shape[:-1]).max(axis=0).astype(np.float64)
        return np.asarray(among_allowed(best, self.batch.allowed))

    def log_chances(self, theta: FloatArray, logits: FloatArray) -> FloatArray:
        """Log-probabilities ``[N, T, A]`` of every action for theta ``[d]`` and habits' logits ``[C, A]``."""
        assert self.levels is not None
        scores = self.q(theta) + logits[self.levels].sum(axis=2)
        logs: FloatArray = log_softmax(scores, axis=-1)
        return logs
