"""Acting with the same chances whatever is observed: what any explanation of decisions must beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import ActionRules, among_allowed
from cirl_gym.types import FloatArray, IntArray, Policy

_ROUNDS = 500
_CLOSE = 1e-12


def constant_chances(batch: Batch, more: float = 0.0) -> FloatArray:
    """``[A]`` the chances that make a batch's decisions likeliest, if they are the same at every step.

    Those are the actions' frequencies. Where not every action was always allowed they are those of Luce's choice rule,
    p(a) over the sum of the allowed ones', found by the fixed point of its likelihood equations (Hunter 2004, "MM
    algorithms for generalized Bradley-Terry models"): p(a) is how often a was taken over the sum of
    1 / (chance of all allowed actions) over the steps at which it was allowed.

    Args:
        batch: decisions.
        more: counted as taken so many times more, each action.
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


class WithinRules:
    """A policy that knows no rules; where it would break them, the likeliest of the allowed actions.

    Args:
        policy: what is done where it is allowed.
        rules: what is forbidden.
        chances: ``[A]`` of the actions.
    """

    def __init__(self, policy: Policy, rules: ActionRules, chances: FloatArray) -> None:
        self.policy, self.rules, self.chances = policy, rules, chances

    def predict(
        self,
        observation: Any,
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[IntArray, tuple[npt.NDArray[Any], ...] | None]:
        """Actions ``[n]``; see :class:`cirl_gym.types.Policy`."""
        chosen, memory = self.policy.predict(observation, state, episode_start, deterministic)
        allowed = self.rules.allowed_next(observation)
        possible = np.take_along_axis(allowed, chosen[:, None], axis=1)[:, 0]
        return np.where(possible, chosen, among_allowed(self.chances, allowed).argmax(axis=1)), memory
