"""The padded history of every row of a vector environment (see :mod:`cirl_gym.history_observation`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from cirl_gym.history_observation import Form, flat_bounds, flat_numbers, grown, history_space, length_of, shown
from cirl_gym.types import BoolArray, Float32Array

try:
    from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
except ImportError as error:
    raise ImportError(
        f"HistoryVectorObservation needs gymnasium >= 1.1, this is {gym.__version__}; wrap each single environment in "
        "HistoryObservation instead"
    ) from error
from gymnasium.vector.utils import batch_space

from cirl_gym.vector_rows import autoreset_mode, reset_rows


class HistoryVectorObservation(VectorWrapper):
    """:class:`~cirl_gym.history_observation.HistoryObservation` for a vector environment, in any autoreset mode.

    Row i is what the wrapper of a single environment shows: its history begins anew where the row is reset. In
    ``SAME_STEP``, ``info["final_obs"]`` of a row that has ended carries the whole history of the ended episode.

    Args:
        env: whose single observation space is a ``Box`` or ``Dict`` of boxes; its metadata states the autoreset mode.
        length: see :class:`~cirl_gym.history_observation.HistoryObservation`.
        form: see :class:`~cirl_gym.history_observation.HistoryObservation`.

    Raises:
        ValueError: an argument is not possible, or the environment does not state its autoreset mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], length: int | None = None, form: Form = "flat") -> None:
        super().__init__(env)
        self.length = length_of(length, _time_limit(env))
        self.form: Form = form
        self._mode = autoreset_mode(env)
        self.single_observation_space = history_space(flat_bounds(env.single_observation_space), self.length, form)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._inner = env.single_observation_space
        width = len(flat_bounds(self._inner)[0]) + 1
        self._rows: Float32Array = np.zeros((env.num_envs, self.length, width), dtype=np.float32)
        self._ended: BoolArray = np.zeros(env.num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row, or in those of ``options["reset_mask"]``: histories of one step."""
        begun = reset_rows(options, self.num_envs)
        # The seed of a vector environment may be a sequence, which Gymnasium's annotation leaves out.
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        fresh = grown(np.zeros_like(self._rows), flat_numbers(self._inner, obs, (self.num_envs,)))
        self._rows = np.where(begun[:, None, None], fresh, self._rows)
        self._ended = self._ended & ~begun
        return shown(self._rows, self.form), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One action per row; every history grows by one step or begins anew."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        ended: BoolArray = np.logical_or(terminated, truncated)
        begun = np.zeros_like(ended)
        if self._mode is AutoresetMode.NEXT_STEP:
            begun = self._ended
        elif self._mode is AutoresetMode.SAME_STEP and ended.any():
            begun = ended
            infos = infos | {"final_obs": self._final(infos["final_obs"], ended)}
        before = np.where(begun[:, None, None], np.float32(0), self._rows) if begun.any() else self._rows
        self._rows = grown(before, flat_numbers(self._inner, obs, (self.num_envs,)))
        self._ended = ended
        return shown(self._rows, self.form), rewards, terminated, truncated, infos

    def _final(self, last: Any, ended: BoolArray) -> Any:
        """Object array ``[n]``: the histories of the episodes that have ended, the last observation included."""
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            final[i] = shown(grown(self._rows[i], flat_numbers(self._inner, last[i])), self.form)
        return final


def _time_limit(env: VectorEnv[Any, Any, Any]) -> int | None:
    """The limit that ``gymnasium.make_vec`` was asked for, which stays among the arguments, or the registered one."""
    if env.spec is None:
        return None
    limit: int | None = env.spec.kwargs.get("max_episode_steps", env.spec.max_episode_steps)
    return limit
