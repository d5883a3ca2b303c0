"""Observations of every step so far, padded, with a mask: for algorithms without memory."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from cirl_gym.types import BoolArray, Float32Array
from cirl_gym.vector_api import AutoresetMode, RowsWrapper, VectorEnv, batch_space

Form: TypeAlias = Literal["flat", "dict"]


def _flat_bounds(space: spaces.Space[Any]) -> tuple[Float32Array, Float32Array]:
    """Lower and upper limits ``[k]`` of an observation written as one row of numbers."""
    if isinstance(space, spaces.Box):
        return space.low.reshape(-1).astype(np.float32), space.high.reshape(-1).astype(np.float32)
    if isinstance(space, spaces.Dict) and len(space.spaces):
        parts = [_flat_bounds(part) for part in space.spaces.values()]
        return np.concatenate([low for low, _ in parts]), np.concatenate([high for _, high in parts])
    raise ValueError(f"HistoryObservation: the observation space must be a Box or a Dict of boxes, got {space}")


def _flat_numbers(space: spaces.Space[Any], observations: Any, lead: tuple[int, ...] = ()) -> Float32Array:
    """``[*lead, k]`` float32 from observations of the space ``[*lead, ..]``, parts in the order of the space's keys."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([_flat_numbers(part, observations[key], lead) for key, part in space.spaces.items()], -1)
    return np.asarray(observations, dtype=np.float32).reshape(*lead, -1)


def _history_space(bounds: tuple[Float32Array, Float32Array], length: int, form: Form) -> spaces.Space[Any]:
    """The space of a history of ``length`` steps; where there can be padding, its zeros are inside."""
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
        raise ValueError(f"HistoryObservation: length must be a whole number of at least 1, got {length!r}")
    if form not in ("flat", "dict"):
        raise ValueError(f"HistoryObservation: form must be 'flat' or 'dict', got {form!r}")
    low, high = (np.tile(bound, (length, 1)) for bound in bounds)
    # The newest step is never padding.
    low[:-1], high[:-1] = np.minimum(low[:-1], 0), np.maximum(high[:-1], 0)
    none, one = np.zeros((length, 1), dtype=np.float32), np.ones((length, 1), dtype=np.float32)
    if form == "dict":
        mask = spaces.Box(none[:, 0], one[:, 0], dtype=np.float32)
        return spaces.Dict({"history": spaces.Box(low, high, dtype=np.float32), "mask": mask})
    low, high = np.concatenate([low, none], axis=1), np.concatenate([high, one], axis=1)
    return spaces.Box(low.reshape(-1), high.reshape(-1), dtype=np.float32)


def grown(rows: Float32Array, newest: Float32Array) -> Float32Array:
    """Histories ``[.., K, k+1]`` after one more step ``[.., k]``; the oldest goes. A history of zeros is an empty one.

    The last column tells what is a step (1) and what padding (0).
    """
    longer = np.empty_like(rows)
    longer[..., :-1, :] = rows[..., 1:, :]
    longer[..., -1, :-1] = newest
    longer[..., -1, -1] = 1
    return longer


def _shown(rows: Float32Array, form: Form) -> Any:
    """Histories ``[.., K, k+1]`` as observations ``[..]`` of a :func:`_history_space`; fresh arrays."""
    if form == "dict":
        return {"history": rows[..., :-1].copy(), "mask": rows[..., -1].copy()}
    return rows.reshape(*rows.shape[:-2], -1).copy()


def _length_of(length: int | None, time_limit: int | None) -> int:
    """The number of steps to keep: as given, or the first observation and one for each action of a whole episode."""
    if length is not None:
        return length
    if time_limit is None or time_limit < 1:
        raise ValueError(
            "HistoryObservation: env.spec states no max_episode_steps, so give the number of steps to keep, "
            "e.g. HistoryObservation(env, length=21)"
        )
    return time_limit + 1


class HistoryObservation(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Show the episode so far instead of the present alone, so that an algorithm without memory has what it needs.

    An observation holds the last K steps since ``reset``, oldest first, so that the newest is always the last row.
    Where fewer steps have passed, the rows before them are zero and so is their mask. A step's row is the environment's
    own observation: for this package's environments the features in raw units and the one-hot previous action.

    - ``form="flat"``: a float32 ``Box`` of shape ``(K * (k + 1),)``; ``obs.reshape(K, k + 1)`` has a row per step whose
      last entry is the mask.
    - ``form="dict"``: ``history`` ``[K, k]`` and ``mask`` ``[K]`` (1: a step, 0: padding), both float32.

    Args:
        env: with a ``Box`` or ``Dict`` of boxes as observation space; a ``Dict`` is written out in the order of its
            keys.
        length: K (default: all of an episode, the time limit of ``env.spec`` plus 1). Of longer episodes the newest K
            steps are shown.
        form: ``"flat"`` or ``"dict"``.

    Raises:
        ValueError: the length is not given and the spec states no time limit, or an argument is not possible.
    """

    def __init__(self, env: gym.Env[Any, Any], length: int | None = None, form: Form = "flat") -> None:
        RecordConstructorArgs.__init__(self, length=length, form=form)
        gym.Wrapper.__init__(self, env)
        self.length = _length_of(length, env.spec.max_episode_steps if env.spec is not None else None)
        self.form: Form = form
        self.observation_space = _history_space(_flat_bounds(env.observation_space), self.length, form)
        self._inner = env.observation_space
        self._rows: Float32Array = np.zeros((self.length, len(_flat_bounds(self._inner)[0]) + 1), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: a history of one step."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._rows = grown(np.zeros_like(self._rows), _flat_numbers(self._inner, obs))
        return _shown(self._rows, self.form), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act; the history grows by one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._rows = grown(self._rows, _flat_numbers(self._inner, obs))
        return _shown(self._rows, self.form), reward, terminated, truncated, info


class HistoryVectorObservation(RowsWrapper):
    """:class:`HistoryObservation` for a vector environment, in any autoreset mode.

    Row i is what the wrapper of a single environment shows: its history begins anew where the row is reset. In
    ``SAME_STEP``, ``info["final_obs"]`` of a row that has ended carries the whole history of the ended episode.

    The environment's metadata states the autoreset mode.

    Raises:
        ValueError: an argument is not possible, or the environment does not state its autoreset mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], length: int | None = None, form: Form = "flat") -> None:
        super().__init__(env)
        # What ``gymnasium.make_vec`` was asked for stays among the arguments.
        spec = env.spec
        limit = None if spec is None else spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
        self.length = _length_of(length, limit)
        self.form: Form = form
        self.single_observation_space = _history_space(_flat_bounds(env.single_observation_space), self.length, form)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._inner = env.single_observation_space
        width = len(_flat_bounds(self._inner)[0]) + 1
        self._rows: Float32Array = np.zeros((env.num_envs, self.length, width), dtype=np.float32)

    def _begun(self, obs: Any, rows: BoolArray) -> Any:
        fresh = grown(np.zeros_like(self._rows), _flat_numbers(self._inner, obs, (self.num_envs,)))
        self._rows = np.where(rows[:, None, None], fresh, self._rows)
        return _shown(self._rows, self.form)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One action per row; every history grows by one step or begins anew."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        ended: BoolArray = np.logical_or(terminated, truncated)
        begun = np.zeros_like(ended)
        if self._mode is AutoresetMode.NEXT_STEP:
            begun = self._ended
        elif self._mode is AutoresetMode.SAME_STEP and ended.any():
            # The histories of the episodes that have ended, the last observation included.
            begun, final = ended, np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                final[i] = _shown(grown(self._rows[i], _flat_numbers(self._inner, infos["final_obs"][i])), self.form)
            infos = infos | {"final_obs": final}
        before = np.where(begun[:, None, None], np.float32(0), self._rows) if begun.any() else self._rows
        self._rows = grown(before, _flat_numbers(self._inner, obs, (self.num_envs,)))
        self._ended = ended
        return _shown(self._rows, self.form), rewards, terminated, truncated, infos
