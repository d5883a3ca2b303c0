"""What policies have in common: a score for every action after what was seen, rules, and the best action or a draw.

The policies at the end look at no patient.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cirl_gym.data.rules import ActionRules, among_allowed
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.network_files import Arrays
from cirl_gym.types import BoolArray, FloatArray, IntArray, Policy

Memory: TypeAlias = tuple[npt.NDArray[Any], ...]
"""What a policy hands from one call to the next: arrays whose rows belong to the episodes."""


class StoredPolicies(NamedTuple):
    """How the policies of one solver become arrays and come back."""

    arrays: Callable[[Policy], Arrays]
    """Everything that a policy has learnt."""
    policy: Callable[[FloatArray, Arrays], Policy]
    """The policy of weights ``[d]`` again; raises ValueError where the arrays are not those of such a policy."""


def checked_observation(policy: str, observation: Any, d: int, n_actions: int) -> npt.NDArray[Any]:
    """An observation as an array.

    Raises:
        ValueError: it is not ``[n, d + A]``; the message begins with the name of the policy.
    """
    rows = np.asarray(observation)
    if rows.ndim != 2 or rows.shape[1] != d + n_actions:
        raise ValueError(f"{policy}: observations must be [n, {d + n_actions}], got {rows.shape}")
    return rows


def warn_of_lost_history(policy: str, previous: npt.NDArray[Any]) -> None:
    """Warn where one of the one-hot previous actions ``[n, A]`` of rows without memory says that one was taken."""
    if previous.any():
        # The caller of the policy's predict: it calls its act, and that this.
        told = f"{policy}: no state was given although an action was already taken; the history is lost"
        warnings.warn(told, stacklevel=4)


def drawn_with(chances: FloatArray, rng: np.random.Generator) -> IntArray:
    """Actions ``[n]`` drawn with the chances ``[n, A]``: one number per row, whatever the number of actions."""
    # The first action whose cumulative chance reaches the number.
    chosen: IntArray = (np.cumsum(chances, axis=1)[:, :-1] < rng.random((len(chances), 1))).sum(axis=1)
    # A sum that rounding leaves below 1 could, once in 1e16 draws, end at an action without a chance.
    impossible = np.take_along_axis(chances, chosen[:, None], axis=1)[:, 0] == 0
    return np.where(impossible, chances.argmax(axis=1), chosen)


def drawn_from_softmax(scores: FloatArray, rng: np.random.Generator) -> IntArray:
    """Actions ``[n]`` drawn from the softmax of scores ``[n, A]``: the largest when Gumbel noise is added."""
    chosen: IntArray = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return chosen


def only_allowed(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Scores ``[.., A]`` with minus infinity where an action is not ``allowed`` ``[.., A]``; None: all are."""
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)


class ScoringPolicy(ABC):
    """A :class:`~cirl_gym.types.Policy` that scores every action, and takes the best or draws one."""

    def predict(
        self,
        observation: Any,
        state: Memory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[IntArray, Memory | None]:
        """One action per row of ``observation``, never a forbidden one, and the new memory.

        Warns where no memory is given although an action was already taken and no episode is said to begin.

        Args:
            observation: ``[n, d + A]`` raw features, one-hot previous action (zeros at t = 0).
            state: what the previous call returned; None at the first step, and always where there is no memory.
            episode_start: ``[n]`` True where the memory must be cleared.
            deterministic: the action of the highest score (the first of equals), also where actions can be drawn.

        Raises:
            ValueError: the observation has another shape.
        """
        scores, memory = self.act(observation, state, episode_start)
        chosen = scores.argmax(axis=1) if deterministic else self.draw(scores)
        return chosen.astype(np.int64), memory

    @abstractmethod
    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, Memory | None]:
        """Scores ``[n, A]``, minus infinity where forbidden, and the new memory; arguments as for :meth:`predict`."""

    def draw(self, scores: FloatArray) -> IntArray:
        """Actions ``[n]`` for scores ``[n, A]``; the highest, where a policy does not say how it draws."""
        best: IntArray = scores.argmax(axis=1)
        return best


class RecurrentPolicy(ScoringPolicy):
    """Reads [scaled x_t, one-hot a_{t-1}]; its memory is an LSTM's two states ``[n, H]`` (none where H is 0).

    Args:
        scaler: of the d features.
        n_actions: A.
        hidden: H.
        rules: what they forbid is never done; None: nothing is forbidden.
    """

    def __init__(self, scaler: Scaler, n_actions: int, hidden: int, rules: ActionRules | None = None) -> None:
        self.scaler, self.n_actions, self.hidden, self.rules = scaler, n_actions, hidden, rules

    def empty(self, n: int) -> list[npt.NDArray[Any]]:
        """The memory of n histories before their first observation."""
        return [np.zeros((n, self.hidden), dtype=np.float32)] * 2 if self.hidden else []

    @abstractmethod
    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Scores ``[n, A]`` after one more input ``[n, d + A]``, whatever rules say, and the states after it."""

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, Memory | None]:
        """Scores ``[n, A]``, minus infinity where forbidden, and the new memory; arguments as for :meth:`predict`."""
        name, d = type(self).__name__, len(self.scaler.mean)
        rows = checked_observation(name, observation, d, self.n_actions).astype(np.float32)
        begins: BoolArray = (
            np.zeros(len(rows), dtype=np.bool_) if episode_start is None else np.asarray(episode_start, dtype=np.bool_)
        )
        if state is None and self.hidden:
            warn_of_lost_history(name, rows[~begins, d:])
        memory = self.empty(len(rows))
        if state is not None and self.hidden:
            memory = [np.where(begins[:, None], np.float32(0), np.asarray(part, dtype=np.float32)) for part in state]
        with torch.inference_mode():
            inputs = torch.from_numpy(np.concatenate([self.scaler(rows[:, :d]), rows[:, d:]], axis=1))
            scores, following = self.step(inputs, tuple(torch.from_numpy(part) for part in memory))
            known: FloatArray = scores.double().numpy()
        allowed = None if self.rules is None else self.rules.allowed_next(rows)
        return np.asarray(among_allowed(known, allowed)), tuple(part.numpy() for part in following) or None


class ConstantPolicy(ScoringPolicy):
    """Always the same action, or (None) one drawn evenly: the baselines that look at nothing.

    ``rng`` draws also where the action is fixed: policies that share a generator stay in step.
    """

    def __init__(self, action: int | None, n_actions: int, rng: np.random.Generator) -> None:
        self.action, self.n_actions, self.rng = action, n_actions, rng

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, None]:
        """1 for what is done, 0 for everything else, ``[n, A]``; no memory."""
        drawn = self.rng.integers(self.n_actions, size=len(observation))
        return np.eye(self.n_actions)[drawn if self.action is None else np.full_like(drawn, self.action)], None


class Repeating(ScoringPolicy):
    """Always the action ``first``; with ``repeat`` the last one again, and ``first`` only where there is none."""

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
    """A policy that knows no rules; where it would break them, the allowed action of largest ``chances [A]``."""

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
