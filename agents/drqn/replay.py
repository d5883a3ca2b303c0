"""Whole episodes of different lengths, one after the other in arrays that are used in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from cirl_gym.types import BoolArray, IntArray

Unit = Literal["steps", "episodes"]
"""What a capacity counts."""
Fields = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]
"""Shape and dtype of one row of every field."""

_FIRST_ROWS = 1024


class EpisodeRing:
    """The last episodes that fit; the oldest leave, always whole.

    An episode of k actions takes k + 1 rows: the last one holds what was seen after the last action. The arrays grow
    with what is stored until the capacity is reached, so that a large capacity costs nothing before it is used.

    Args:
        fields: what a row holds.
        capacity: how many steps (actions) or episodes are kept.
        unit: which of the two.

    Raises:
        ValueError: the capacity is below 1 or the unit is unknown.
    """

    def __init__(self, fields: Fields, capacity: int, unit: Unit = "steps") -> None:
        if unit not in ("steps", "episodes"):
            raise ValueError(f"unit must be 'steps' or 'episodes', got {unit!r}")
        if capacity < 1:
            raise ValueError(f"the capacity must be at least 1, got {capacity}")
        self.capacity, self.unit = capacity, unit
        self.arrays = {name: np.zeros((_FIRST_ROWS, *shape), dtype) for name, (shape, dtype) in fields.items()}
        self.clear()

    def clear(self) -> None:
        """Forget all episodes."""
        self._starts: deque[int] = deque()
        self._lengths: deque[int] = deque()
        self._index: tuple[IntArray, IntArray] | None = None
        self._next = 0
        self.n_steps = 0

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._starts)

    @property
    def lengths(self) -> IntArray:
        """``[E]`` number of actions of every episode, the oldest first."""
        return self._table()[1]

    def append(self, episode: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store an episode of k actions: ``[k + 1, ..]`` for every field.

        Raises:
            ValueError: it has no action, or alone exceeds the capacity.
        """
        rows = len(next(iter(episode.values())))
        steps = rows - 1
        if steps < 1:
            raise ValueError("an episode must have at least one action")
        if self.unit == "steps" and steps > self.capacity:
            raise ValueError(f"an episode of {steps} steps does not fit into a capacity of {self.capacity} steps")
        added = steps if self.unit == "steps" else 1
        while (self.n_steps if self.unit == "steps" else len(self)) + added > self.capacity:
            self._drop_oldest()
        self._make_room(rows)
        where = (self._next + np.arange(rows)) % self._size
        for name, array in self.arrays.items():
            array[where] = episode[name]
        self._starts.append(self._next)
        self._lengths.append(steps)
        self._next = (self._next + rows) % self._size
        self.n_steps += steps
        self._index = None

    def rows(self, episodes: IntArray, width: int) -> IntArray:
        """``[n, width]`` where the rows of episodes (0: the oldest) are in :attr:`arrays`.

        Beyond an episode's own rows its last one is repeated.
        """
        starts, lengths = self._table()
        offset = np.minimum(np.arange(width), lengths[episodes, None])
        rows: IntArray = (starts[episodes, None] + offset) % self._size
        return rows

    @property
    def _size(self) -> int:
        return len(next(iter(self.arrays.values())))

    def _used(self) -> int:
        return self.n_steps + len(self)

    def _table(self) -> tuple[IntArray, IntArray]:
        if self._index is None:
            self._index = np.array(self._starts, dtype=np.int64), np.array(self._lengths, dtype=np.int64)
        return self._index

    def _drop_oldest(self) -> None:
        self._starts.popleft()
        self.n_steps -= self._lengths.popleft()

    def _make_room(self, rows: int) -> None:
        """Move everything into arrays twice as large, in order, if the rows do not fit."""
        used = self._used()
        if used + rows <= self._size:
            return
        self._index = None
        kept = (np.arange(used) + (self._starts[0] if self._starts else 0)) % self._size
        size = max(2 * self._size, used + rows)
        for name, array in self.arrays.items():
            larger = np.zeros((size, *array.shape[1:]), array.dtype)
            larger[:used] = array[kept]
            self.arrays[name] = larger
        ends = np.cumsum(np.array(self._lengths, dtype=np.int64) + 1)
        self._starts = deque([0, *ends[:-1].tolist()] if len(ends) else [])
        self._next = used


# MERGED: Episodes that are still going on, recorded side by side until each one ends.

_FIRST_STEPS = 32


class OpenEpisodes:
    """One episode per row, of whatever length so far.

    Args:
        fields: what a step holds.
        n: rows.
    """

    def __init__(self, fields: Fields, n: int) -> None:
        self.steps = np.zeros(n, dtype=np.int64)
        self._rows = np.arange(n)
        self._arrays = {name: np.zeros((n, _FIRST_STEPS, *shape), dtype) for name, (shape, dtype) in fields.items()}

    def forget(self) -> None:
        """Begin a new episode in every row."""
        self.steps[:] = 0

    def write(self, step: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append one step ``[n, ..]`` to every row."""
        capacity = next(iter(self._arrays.values())).shape[1]
        # The last place is for what is seen after the last action.
        if self.steps.max() + 2 > capacity:
            self._arrays = {name: np.concatenate([a, np.zeros_like(a)], axis=1) for name, a in self._arrays.items()}
        for name, array in self._arrays.items():
            array[self._rows, self.steps] = step[name]
        self.steps += 1

    def close(self, row: int, end: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """The whole episode ``[k + 1, ..]`` of a row, which then begins a new one.

        Args:
            row: which.
            end: what is seen after the last action; fields that it leaves out are zero there.
        """
        k = int(self.steps[row])
        for name, array in self._arrays.items():
            array[row, k] = end.get(name, 0)
        self.steps[row] = 0
        return {name: array[row, : k + 1] for name, array in self._arrays.items()}


# MERGED: Replay of whole episodes: a recurrent network learns on what it would have remembered when it acted.

Observation = Tensor | dict[str, Tensor]
"""One array, or one for every part of a Dict space."""
ArrayObservation = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]
"""The same in NumPy."""

_OBS = "obs"


@dataclass(frozen=True)
class EpisodeBatch:
    """n whole episodes, padded to the longest (L actions). What stands in padding means nothing."""

    obs: Observation
    """``[n, L + 1, ..]``; an episode of k actions has k + 1."""
    actions: Tensor
    """``[n, L]`` int64, from 0."""
    rewards: Tensor
    """``[n, L]`` float32."""
    terminated: Tensor
    """``[n, L]`` True where nothing follows the action."""
    allowed: Tensor | None
    """``[n, L + 1, A]`` which actions could be taken; None: all, always. No True at all: it is not known."""
    mask: Tensor
    """``[n, L]`` True where there is an action."""

    @property
    def seen(self) -> Tensor:
        """``[n, L + 1]`` True where there is an observation."""
        first = torch.ones_like(self.mask[:, :1])
        # An episode has one observation more than actions; a row without any action is padding altogether.
        return torch.cat([first & self.mask[:, :1], self.mask], dim=1)


class EpisodeReplayBuffer(ReplayBuffer):
    """Whole episodes of n environments whose episodes end at different times.

    An episode can be sampled once it has ended; before that it is being recorded, row by row.

    Args:
        buffer_size: capacity, in ``unit``.
        observation_space: Box, Dict (of Boxes), Discrete or MultiBinary.
        action_space: Discrete.
        device: where batches are put.
        n_envs: environments that are recorded at a time.
        optimize_memory_usage: must be False; observations are stored once anyway.
        handle_timeout_termination: an end with ``info["TimeLimit.truncated"]`` is no end of the process. False: every
            end counts as one (finite horizon).
        unit: ``"steps"`` or ``"episodes"``.
        masks: store which actions were allowed, see :meth:`add`.

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
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        self.handle_timeout_termination = handle_timeout_termination
        self.optimize_memory_usage = False
        self.rng = np.random.default_rng()
        fields: dict[str, tuple[tuple[int, ...], npt.DTypeLike]] = {
            "action": ((), np.int64),
            "reward": ((), np.float32),
            "terminated": ((), np.bool_),
        }
        shapes: Any = self.obs_shape
        if isinstance(observation_space, spaces.Dict):
            for name, space in observation_space.spaces.items():
                fields[f"{_OBS}.{name}"] = (shapes[name], space.dtype or np.float32)
        else:
            fields[_OBS] = (shapes, observation_space.dtype or np.float32)
        if masks:
            fields["allowed"] = ((int(action_space.n),), np.bool_)
        self.fields = fields
        self.episodes = EpisodeRing(fields, buffer_size, unit)
        self.recording = OpenEpisodes(fields, n_envs)

    def size(self) -> int:
        """Number of steps of whole episodes."""
        return self.episodes.n_steps

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.episodes.clear()
        self.recording.forget()

    def add(
        self,
        obs: ArrayObservation,
        next_obs: ArrayObservation,
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        done: npt.NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Record one step of every environment.

        Args:
            obs: ``[n, ..]``.
            next_obs: ``[n, ..]`` after it; the last one of an episode, not the first one of the next.
            action: ``[n]`` from 0; with masks ``[n, 1 + A]``: the action, then which were allowed.
            reward: ``[n]``.
            done: ``[n]``.
            infos: ``TimeLimit.truncated`` says why an episode ended. With masks, ``action_mask [A]`` of an ended
                episode says which actions would have been allowed after it.
        """
        done = np.asarray(done, dtype=np.bool_)
        action = np.asarray(action, dtype=np.int64).reshape(self.n_envs, -1)
        timeouts = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        row = self._named(obs)
        row["action"], row["reward"] = action[:, 0], np.asarray(reward)
        row["terminated"] = done & ~(timeouts & self.handle_timeout_termination)
        if "allowed" in self.fields:
            row["allowed"] = action[:, 1:].astype(np.bool_)
        self.recording.write(row)
        last = self._named(next_obs)
        for i in np.flatnonzero(done):
            end = {name: value[i] for name, value in last.items()}
            if "allowed" in self.fields:
                # Asking the environment would be too late: it has begun its next episode.
                end["allowed"] = infos[i].get("action_mask", False)
            self.episodes.append(self.recording.close(int(i), end))

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> EpisodeBatch:  # type: ignore[override]
        """Draw ``batch_size`` episodes, with replacement.

        Args:
            batch_size: n.
            env: normalises observations and rewards, which are stored as they were.

        Raises:
            ValueError: no episode has ended yet.
        """
        if len(self.episodes) == 0:
            raise ValueError("EpisodeReplayBuffer: no whole episode has been stored yet")
        return self.batch(self.rng.integers(len(self.episodes), size=batch_size), env)

    def batch(self, episodes: IntArray, env: VecNormalize | None = None) -> EpisodeBatch:
        """The episodes ``[n]`` (0: the oldest)."""
        lengths = self.episodes.lengths[episodes]
        width = int(lengths.max())
        rows = self.episodes.rows(episodes, width + 1)
        mask: BoolArray = np.arange(width) < lengths[:, None]
        taken = {name: array[rows] for name, array in self.episodes.arrays.items()}
        obs = self._normalize_obs(self._unnamed(taken), env)
        rewards = self._normalize_reward(taken["reward"][:, :-1], env)
        tensors = {name: self._tensor(part) for name, part in obs.items()} if isinstance(obs, dict) else None
        return EpisodeBatch(
            obs=self._tensor(obs) if tensors is None else tensors,  # type: ignore[arg-type]
            actions=self._tensor(taken["action"][:, :-1]),
            rewards=self._tensor(rewards.astype(np.float32, copy=False)),
            terminated=self._tensor(taken["terminated"][:, :-1] & mask),
            allowed=self._tensor(taken["allowed"]) if "allowed" in taken else None,
            mask=self._tensor(mask),
        )

    def forget_open(self, n_envs: int | None = None) -> None:
        """Drop the episodes that have not ended: their environments were reset (or are others, ``n_envs`` of them)."""
        if n_envs is not None and n_envs != self.n_envs:
            self.n_envs = n_envs
            self.recording = OpenEpisodes(self.fields, n_envs)
        self.recording.forget()

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return self.to_torch(np.ascontiguousarray(array), copy=False)

    def _named(self, obs: ArrayObservation) -> dict[str, npt.NDArray[Any]]:
        if isinstance(obs, dict):
            shapes: Any = self.obs_shape
            return {f"{_OBS}.{name}": part.reshape(self.n_envs, *shapes[name]) for name, part in obs.items()}
        return {_OBS: obs.reshape(self.n_envs, *self.obs_shape)}

    @staticmethod
    def _unnamed(fields: dict[str, npt.NDArray[Any]]) -> ArrayObservation:
        if _OBS in fields:
            return fields[_OBS]
        return {name[len(_OBS) + 1 :]: part for name, part in fields.items() if name.startswith(f"{_OBS}.")}
