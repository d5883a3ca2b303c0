"""Replay of whole episodes: a recurrent network learns on what it would have remembered when it acted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from cirl_gym.types import BoolArray, Float32Array, IntArray

Unit = Literal["steps", "episodes"]
"""What a capacity counts."""
Array = npt.NDArray[Any]


class Episode(NamedTuple):
    """An episode of k actions, k at least 1."""

    obs: Array
    """``[k + 1, ..]`` in raw units; the last one was seen after the last action."""
    actions: IntArray
    """``[k]`` from 0."""
    rewards: Float32Array
    """``[k]``."""
    terminated: bool
    """Nothing follows the last action."""
    allowed: BoolArray | None = None
    """``[k + 1, A]`` which actions could be taken; None: all, always. No True at all: it is not known."""


@dataclass(frozen=True)
class EpisodeBatch:
    """n whole episodes, padded to the longest (L actions). What stands in padding means nothing."""

    obs: Tensor
    """``[n, L + 1, ..]``; an episode of k actions has k + 1."""
    actions: Tensor
    """``[n, L]`` int64, from 0."""
    rewards: Tensor
    """``[n, L]`` float32."""
    terminated: Tensor
    """``[n, L]`` True where nothing follows the action."""
    allowed: Tensor | None
    """``[n, L + 1, A]``, see :attr:`Episode.allowed`."""
    mask: Tensor
    """``[n, L]`` True where there is an action."""

    @property
    def seen(self) -> Tensor:
        """``[n, L + 1]`` True where there is an observation."""
        # An episode has one observation more than actions; a row without any action is padding altogether.
        return torch.cat([self.mask[:, :1], self.mask], dim=1)


class EpisodeReplayBuffer(ReplayBuffer):
    """Whole episodes of n environments whose episodes end at different times.

    An episode can be sampled once it has ended; before that it is being recorded. The oldest episodes leave, whole,
    where a new one would not fit.

    Args:
        buffer_size: capacity, in ``unit``.
        observation_space: Box, Discrete or MultiBinary.
        action_space: Discrete.
        optimize_memory_usage: must be False; observations are stored once anyway.
        handle_timeout_termination: an end with ``info["TimeLimit.truncated"]`` is no end of the process. False: every
            end counts as one (finite horizon).
        unit: ``"steps"`` (actions) or ``"episodes"``.
        masks: store which actions were allowed, see :meth:`add`.

    The others are those of every replay of Stable-Baselines3.

    Raises:
        ValueError: an argument is not possible.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        unit: Unit = "steps",
        masks: bool = False,
    ) -> None:
        if optimize_memory_usage:
            raise ValueError("EpisodeReplayBuffer stores every observation once: optimize_memory_usage must be False")
        if not isinstance(action_space, spaces.Discrete):
            raise ValueError(f"EpisodeReplayBuffer needs a Discrete action space, got {action_space}")
        if isinstance(observation_space, spaces.Dict):
            raise ValueError(f"EpisodeReplayBuffer needs observations that are one array, got {observation_space}")
        if unit not in ("steps", "episodes"):
            raise ValueError(f"unit must be 'steps' or 'episodes', got {unit!r}")
        if buffer_size < 1:
            raise ValueError(f"the capacity must be at least 1, got {buffer_size}")
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.handle_timeout_termination = handle_timeout_termination
        self.optimize_memory_usage = False
        self.unit, self.masks = unit, masks
        self.rng = np.random.default_rng()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.episodes: deque[Episode] = deque()
        self._steps = 0
        self.forget_open()

    def forget_open(self, n_envs: int | None = None) -> None:
        """Drop the episodes that have not ended: their environments were reset (or are others, ``n_envs`` of them)."""
        self.n_envs = n_envs or self.n_envs
        self._open: list[list[tuple[Array, Array, Array]]] = [[] for _ in range(self.n_envs)]

    @property
    def starts(self) -> BoolArray:
        """``[n]`` True where the next step begins an episode."""
        return np.array([not steps for steps in self._open], dtype=np.bool_)

    def size(self) -> int:
        """Number of steps of whole episodes."""
        return self._steps

    def add(
        self, obs: Array, next_obs: Array, action: Array, reward: Array, done: Array, infos: list[dict[str, Any]]
    ) -> None:
        """Record one step of each of n environments.

        Args:
            obs: ``[n, ..]``.
            next_obs: ``[n, ..]`` after it; the last one of an episode, not the first one of the next.
            action: ``[n]`` from 0; with masks ``[n, 1 + A]``: the action, then which were allowed.
            reward: ``[n]``, as ``done``.
            done: which episodes ended.
            infos: ``TimeLimit.truncated`` says why an episode ended. With masks, ``action_mask [A]`` of an ended
                episode says which actions would have been allowed after it.

        Raises:
            ValueError: an episode alone exceeds the capacity.
        """
        dtype = self.observation_space.dtype or np.float32
        # Copies: environments may use their arrays again.
        obs, next_obs = (np.array(seen, dtype=dtype).reshape(self.n_envs, *self.obs_shape) for seen in (obs, next_obs))
        action = np.array(action, dtype=np.int64).reshape(self.n_envs, -1)
        reward = np.array(reward, dtype=np.float32)
        for i, steps in enumerate(self._open):
            steps.append((obs[i], action[i], reward[i]))
            if done[i]:
                self._open[i] = []
                seen, taken, rewards = (np.stack(part) for part in zip(*steps, strict=True))
                cut = self.handle_timeout_termination and bool(infos[i].get("TimeLimit.truncated", False))
                allowed: BoolArray | None = None
                if self.masks:
                    # Asking the environment would be too late: it has begun its next episode.
                    after = infos[i].get("action_mask", np.zeros(taken.shape[1] - 1))
                    allowed = np.concatenate([taken[:, 1:], [after]]).astype(np.bool_)
                seen = np.concatenate([seen, next_obs[i : i + 1]])
                self.append(Episode(seen, taken[:, 0], rewards, not cut, allowed))

    def append(self, episode: Episode) -> None:
        """Store an episode.

        Raises:
            ValueError: it alone exceeds the capacity.
        """
        steps, in_steps = len(episode.actions), self.unit == "steps"
        if in_steps and steps > self.buffer_size:
            raise ValueError(f"an episode of {steps} steps does not fit into a capacity of {self.buffer_size} steps")
        while (self._steps + steps if in_steps else len(self.episodes) + 1) > self.buffer_size:
            self._steps -= len(self.episodes.popleft().actions)
        self.episodes.append(episode)
        self._steps += steps

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> EpisodeBatch:  # type: ignore[override]
        """Draw ``batch_size`` episodes, with replacement; ``env`` normalises what is stored as it was.

        Raises:
            ValueError: no episode has ended yet.
        """
        if not self.episodes:
            raise ValueError("EpisodeReplayBuffer: no whole episode has been stored yet")
        return self.batch(self.rng.integers(len(self.episodes), size=batch_size), env)

    def batch(self, episodes: IntArray, env: VecNormalize | None = None) -> EpisodeBatch:
        """The episodes ``[n]`` (0: the oldest)."""
        obs, actions, rewards, ended, allowed = zip(*(self.episodes[i] for i in episodes), strict=True)
        lengths = np.array([len(taken) for taken in actions])[:, None]
        step = np.arange(lengths.max())
        padded_obs: Any = self._normalize_obs(_padded(obs), env)
        return EpisodeBatch(
            obs=self.to_torch(padded_obs, copy=False),
            actions=self.to_torch(_padded(actions), copy=False),
            rewards=self.to_torch(self._normalize_reward(_padded(rewards), env).astype(np.float32), copy=False),
            terminated=self.to_torch((step == lengths - 1) & np.array(ended)[:, None]),
            allowed=self.to_torch(_padded(allowed), copy=False) if self.masks else None,
            mask=self.to_torch(step < lengths),
        )


def _padded(parts: Sequence[Array]) -> Array:
    """Arrays ``[k, ..]`` of different k as one ``[n, longest, ..]``, zero behind their ends."""
    padded = np.zeros((len(parts), max(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded
