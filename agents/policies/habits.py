"""Policies that look at no patient: always the same, the last action again, or an even draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agents.policies.policy import Memory, ScoringPolicy
from cirl_gym.data.rules import ActionRules, among_allowed
from cirl_gym.types import FloatArray, IntArray, Policy


class ConstantPolicy(ScoringPolicy):
    """Always the same action, or one drawn evenly: the baselines that look at nothing.

    Args:
        action: the action; None: any.
        n_actions: A.
        rng: draws, also where the action is fixed: policies that share a generator stay in step.
    """

    def __init__(self, action: int | None, n_actions: int, rng: np.random.Generator) -> None:
        self.action, self.n_actions, self.rng = action, n_actions, rng

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, None]:
        """1 for what is done, 0 for everything else, ``[n, A]``; no memory."""
        drawn = self.rng.integers(self.n_actions, size=len(observation))
        return np.eye(self.n_actions)[drawn if self.action is None else np.full_like(drawn, self.action)], None


class Habit(ScoringPolicy):
    """Always the same action, or the last one again.

    Args:
        first: the action; with ``repeat`` only where there is no last one.
        n_actions: A.
        repeat: take the last action again.
    """

    def __init__(self, first: int, n_actions: int, repeat: bool) -> None:
        self.first, self.n_actions, self.repeat = first, n_actions, repeat

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, None]:
        """1 for what is done, 0 for everything else, ``[n, A]``; no memory."""
        scores: FloatArray = np.tile(np.eye(self.n_actions)[self.first], (len(observation), 1))
        if self.repeat:
            last = np.asarray(observation)[:, -self.n_actions :]
            scores = np.where(last.any(axis=1, keepdims=True), last, scores)
        return scores, None


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
        state: Memory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[IntArray, Memory | None]:
        """Actions ``[n]`` and the policy's memory; see :class:`cirl_gym.types.Policy`."""
        chosen, memory = self.policy.predict(observation, state, episode_start, deterministic)
        allowed = self.rules.allowed_next(observation)
        possible = np.take_along_axis(allowed, chosen[:, None], axis=1)[:, 0]
        return np.where(possible, chosen, among_allowed(self.chances, allowed).argmax(axis=1)), memory
