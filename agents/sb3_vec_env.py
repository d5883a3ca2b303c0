"""A native vector environment as a ``VecEnv`` of Stable-Baselines3, stepped without a Python loop over environments.

``gymnasium.make_vec`` and Stable-Baselines3 speak of many environments in different ways: one dictionary of arrays
against one dictionary per environment, episodes that end against episodes that end and are begun again at once.
:class:`NativeVecEnv` translates, and only what has ended costs a turn of a loop, so that the speed of the native form
reaches the algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import compress
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from cirl_gym.types import BoolArray, IntArray

try:
    from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
except ImportError as error:
    raise ImportError(
        f"agents.sb3_vec_env needs gymnasium >= 1.1, this is {gym.__version__}; use "
        "stable_baselines3.common.env_util.make_vec_env instead"
    ) from error

_ONE_PER_ROW = ("np_random", "np_random_seed")
"""Attributes of a vector environment that hold one value for each of its rows."""
_OF_ONE = {"observation_space": "single_observation_space", "action_space": "single_action_space"}
"""What the vector environment calls an attribute of a single one, where its own one of that name is another thing."""


def rows_of(values: Any, rows: IntArray) -> list[Any]:
    """Rows ``[k]`` of something batched, one by one: of an array, a list, a dictionary of them, or Gymnasium's infos.

    In a dictionary the entry ``_name`` says which rows have a ``name`` (all, if it is missing); the others do not get
    one. Arrays are copied and numbers become Python's; what is not batched is every row's.
    """
    if isinstance(values, dict):
        found: list[dict[str, Any]] = [{} for _ in rows]
        for name, value in values.items():
            if name.startswith("_"):
                continue
            mask = values.get(f"_{name}")
            having = np.ones(len(rows), dtype=np.bool_) if mask is None else np.asarray(mask)[rows]
            for row, part in zip(compress(found, having), rows_of(value, rows[having]), strict=True):
                row[name] = part
        return found
    if isinstance(values, np.ndarray):
        # One copy for all; its rows are views that nobody else holds.
        chosen = values[rows]
        return list(chosen) if chosen.ndim > 1 else chosen.tolist()
    return [values[i] for i in rows] if isinstance(values, list | tuple) else [values] * len(rows)


def options_of_rows(options: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """One dictionary for a vector environment from Stable-Baselines3's n: an option that differs becomes ``[n, ..]``.

    Raises:
        ValueError: the environments do not all have the same options, or their values cannot be put into one array.
    """
    names = options[0].keys()
    for i, given in enumerate(options):
        if given.keys() != names:
            raise ValueError(f"set_options: environment {i} has options {list(given)}, environment 0 {list(names)}")
    merged = {}
    for name in names:
        values = [given[name] for given in options]
        if all(value is values[0] or np.array_equal(value, values[0]) for value in values):
            merged[name] = values[0]
            continue
        try:
            merged[name] = np.array(values)
        except ValueError as error:
            raise ValueError(f"set_options: the values of {name!r} do not fit into one array: {error}") from error
    return merged or None


class NativeVecEnv(VecEnv):
    """A Gymnasium ``VectorEnv`` behind the interface of Stable-Baselines3.

    Observations, rewards, dones, and the ``terminal_observation`` and infos of every ended episode are those of a
    ``DummyVecEnv`` of n single environments with the same seeds and actions, to the last bit.

    **Left out for speed:** the info of a row whose episode goes on is an empty dictionary. A ``DummyVecEnv`` has
    ``TimeLimit.truncated = False`` and the environment's own entries (``phi``) there; no algorithm of
    Stable-Baselines3 reads them. ``step_infos=True`` brings them back, at the price of a loop over all rows. Infos of
    rows that have ended hold ``terminal_observation``, ``TimeLimit.truncated`` (watching ended, the process did not)
    and the environment's own entries of the last step; ``reset_infos`` holds those of the new episode.

    Args:
        env: n environments whose ``metadata["autoreset_mode"]`` is ``SAME_STEP`` (fastest) or ``DISABLED`` (this class
            then resets the ended rows itself), which take one seed per row in ``reset`` and return fresh arrays.
        step_infos: fill the infos of the rows whose episodes go on, too.

    Raises:
        ValueError: the autoreset mode is ``NEXT_STEP`` or not stated.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, step_infos: bool = False) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            # With NEXT_STEP a step after every end has no action and no reward: a transition that never happened.
            raise ValueError(
                f"Stable-Baselines3 begins the next episode in the step that ended one, but the autoreset mode is "
                f"{getattr(mode, 'name', mode)}: make the environment with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self.env = env
        self.spec = env.spec
        self._resets_itself = mode is AutoresetMode.SAME_STEP
        self._step_infos = step_infos
        self._actions: np.ndarray[Any, Any] | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> VecEnvObs:
        """Begin an episode in every row, with the seeds and options set since the last reset.

        Raises:
            ValueError: the options cannot be handed on together (:func:`options_of_rows`), or the environment refuses
                one. Seeds and options are then kept.
        """
        if len(self._options) != self.num_envs:
            raise ValueError(f"set_options: {len(self._options)} sets of options for {self.num_envs} environments")
        seeds = None if self._seeds[0] is None else self._seeds
        obs, infos = self.env.reset(seed=seeds, options=options_of_rows(self._options))  # type: ignore[arg-type]
        self.reset_infos = rows_of(infos, np.arange(self.num_envs))
        self._reset_seeds()
        self._reset_options()
        self._actions = None
        return obs  # type: ignore[no-any-return]

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Options of the next :meth:`reset` alone: the same for all rows, or a list of n."""
        if isinstance(options, list):
            super().set_options(options)
        else:
            # One copy where Stable-Baselines3 makes n: an option may be as large as a batch of episodes.
            self._options = [deepcopy(options or {})] * self.num_envs

    def step_async(self, actions: np.ndarray[Any, Any]) -> None:
        """Keep the actions ``[n]`` for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Observations ``[n, ..]`` (the new episode's where one has ended), rewards float32, dones, n new infos.

        Raises:
            ValueError: an action is not possible.
            gymnasium.error.ResetNeeded: :meth:`reset` was never called.
        """
        obs, rewards, terminated, truncated, infos = self.env.step(self._actions)
        dones: BoolArray = terminated | truncated
        told: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if self._step_infos:
            going = np.flatnonzero(~dones)
            for i, info in zip(going.tolist(), rows_of(infos, going), strict=True):
                told[i] = info | {"TimeLimit.truncated": False}
        if dones.any():
            if self._resets_itself:
                # What the step saw before it began the next episode.
                last_obs, last_infos = infos["final_obs"], infos.get("final_info", {})
                infos = {
                    name: value for name, value in infos.items() if name.lstrip("_") not in ("final_obs", "final_info")
                }
            else:
                last_obs, last_infos = obs, infos
                obs, infos = self.env.reset(options={"reset_mask": dones})
            ended, timeouts = np.flatnonzero(dones), truncated & ~terminated
            parts = (rows_of(part, ended) for part in (last_infos, timeouts, last_obs, infos))
            for i, info, timeout, last, begun in zip(ended.tolist(), *parts, strict=True):
                info["TimeLimit.truncated"], info["terminal_observation"] = timeout, last
                told[i], self.reset_infos[i] = info, begun
        return obs, rewards.astype(np.float32), dones, told

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray[Any, Any] | None]:
        """A picture per row, if the environment was made with ``render_mode="rgb_array"``; else None for each."""
        frames: Any = self.env.render() if self.render_mode == "rgb_array" else None
        return [None] * self.num_envs if frames is None else list(frames)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute, one value per row: the row's own for ``np_random`` and ``np_random_seed``, else one for all.

        ``observation_space`` and ``action_space`` mean those of a single environment.
        """
        value = getattr(self._owner(attr_name), _OF_ONE.get(attr_name, attr_name))
        return [value[i] if attr_name in _ONE_PER_ROW else value for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the vector environment, for all rows at once.

        Raises:
            AttributeError: there is no such attribute.
            ValueError: ``indices`` leaves rows out.
        """
        self._refuse_some("set_attr", indices)
        setattr(self._owner(attr_name), attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the vector environment, once for all rows.

        There is one result per row if the method returns a list, tuple or array of n, else n times what it returns.

        Raises:
            AttributeError: there is no such method.
            ValueError: ``indices`` leaves rows out, or the method is ``reset`` or ``step``, behind whose back the
                episodes would end.
        """
        self._refuse_some("env_method", indices)
        if method_name in ("reset", "step"):
            raise ValueError(f"env_method: call {method_name} of the NativeVecEnv itself")
        result = getattr(self._owner(method_name), method_name)(*method_args, **method_kwargs)
        per_row = isinstance(result, list | tuple | np.ndarray) and len(result) == self.num_envs
        return list(result) if per_row else [result] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Whether the vector environment is wrapped in this class; a wrapper of single environments never is there."""
        wrapped = any(isinstance(layer, wrapper_class) for layer in self._layers()[:-1])
        return [wrapped for _ in self._get_indices(indices)]

    def _layers(self) -> list[VectorEnv[Any, Any, Any]]:
        """The vector environment's wrappers from the outermost on, and itself last."""
        layers = [self.env]
        while isinstance(layers[-1], VectorWrapper):
            layers.append(layers[-1].env)
        return layers

    def _owner(self, name: str) -> VectorEnv[Any, Any, Any]:
        """The outermost layer that has an attribute: Gymnasium's vector wrappers forward none."""
        for layer in self._layers():
            if hasattr(layer, name):
                return layer
        raise AttributeError(f"{type(self.env.unwrapped).__name__} has no attribute {name!r}")

    def _refuse_some(self, call: str, indices: VecEnvIndices) -> None:
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise ValueError(f"{call}: the rows are one environment, so indices must be None or all, got {indices!r}")


def make_native_vec_env(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    monitor: bool = True,
    *,
    step_infos: bool = False,
    **env_kwargs: Any,
) -> VecEnv:
    """The native form of an environment for Stable-Baselines3, as its ``make_vec_env`` makes the other form.

    Args:
        env_id: ``"CIRLTumour-v0"`` or ``"CIRLCounterfactual-v0"``.
        n_envs: n.
        seed: row i is seeded with ``seed + i`` at the first reset, and the action space with ``seed``.
        monitor: wrap in ``VecMonitor``, which logs returns and lengths of episodes and which ``evaluate_policy`` wants.
        step_infos: infos also for rows whose episodes go on, see :class:`NativeVecEnv`.
        env_kwargs: of ``gymnasium.make_vec``.

    Raises:
        ValueError: an argument is not possible.
        TypeError: the environment has no such argument.
    """
    env_kwargs["autoreset_mode"] = AutoresetMode.SAME_STEP
    env: VecEnv = NativeVecEnv(gym.make_vec(env_id, n_envs, "vector_entry_point", **env_kwargs), step_infos=step_infos)
    if seed is not None:
        env.action_space.seed(seed)
        env.seed(seed)
    return VecMonitor(env) if monitor else env
