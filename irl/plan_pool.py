"""Successor features of many plans along the expert's histories, so that any weights can be judged at once.

The psi of a plan does not depend on weights; weights only decide which plan is best. For a pool of plans the best
value Q(h, a; w) = max over the pool of w . psi(h, a) is therefore at hand for every w, without solving anything again.
It is never above the true optimum of the world model, and the more plans, the nearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cirl_gym.action_rules import among_allowed
from cirl_gym.batch import Batch
from cirl_gym.types import Float32Array, FloatArray
from irl.likelihood import action_log_likelihood, by_group


@dataclass(frozen=True)
class PlanPool:
    """psi of J plans for every history and action of a batch.

    Raises:
        ValueError: shapes do not match, or a number where an action was taken is not finite.
    """

    batch: Batch
    """The histories and the actions that experts took."""
    psi: FloatArray
    """``[J, N, T, A, d]`` successor features; what stands on padding is not looked at."""

    def __post_init__(self) -> None:
        expected = (*self.batch.actions.shape, self.batch.n_actions)
        if self.psi.ndim != 5 or len(self.psi) == 0 or self.psi.shape[1:4] != expected:
            raise ValueError(f"PlanPool.psi must be [J, {', '.join(map(str, expected))}, d], got {self.psi.shape}")
        if not np.isfinite(self.psi[:, self.batch.mask]).all():
            raise ValueError("PlanPool.psi is not finite where an action was taken")

    def extended(self, psi: FloatArray) -> PlanPool:
        """The same pool with more plans ``[J', N, T, A, d]``."""
        return PlanPool(self.batch, np.concatenate([self.psi, psi]))

    def q(self, w: FloatArray) -> FloatArray:
        """Best values ``[N, T, A]`` for weights ``[d]``; minus infinity where an action was not allowed."""
        # One long product: numpy takes many short ones (psi @ w) one by one, 70 times as slow for two features.
        values = self.psi.reshape(-1, len(w)) @ w
        return np.asarray(among_allowed(values.reshape(self.psi.shape[:-1]).max(axis=0), self.batch.allowed))

    def group_log_likelihood(self, w: FloatArray, kappas: FloatArray) -> FloatArray:
        """Log-likelihood ``[K, G]`` of each group's actions under softmax(kappa Q), for weights ``[d]``."""
        return by_group(action_log_likelihood(self.q(w), self.batch, kappas), self.batch.groups)

    def log_likelihoods(self, w: FloatArray, kappas: FloatArray) -> FloatArray:
        """Log-likelihoods ``[M]`` of all actions for weights ``[M, d]``, each with its own kappa ``[M]``."""
        live = self._live
        plans, decisions, n_actions, d = live.shape
        values = (live.reshape(-1, d) @ w.T.astype(np.float32)).reshape(plans, decisions, n_actions, len(w)).max(axis=0)
        scaled = values.astype(np.float64) * kappas
        if self.batch.allowed is not None:
            scaled[~self.batch.allowed[self.batch.mask]] = -np.inf
        scaled -= scaled.max(axis=1, keepdims=True)
        taken = self.batch.actions[self.batch.mask]
        log_chance = scaled[np.arange(decisions), taken] - np.log(np.exp(scaled).sum(axis=1))
        total: FloatArray = log_chance.sum(axis=0)
        return total

    @cached_property
    def _live(self) -> Float32Array:
        """``[J, R, A, d]`` only the rows where an action was taken: a sampler asks for them thousands of times."""
        live: Float32Array = self.psi[:, self.batch.mask].astype(np.float32)
        return live
