"""What a run has learned, as a reward: ``result.json`` as a function of outcomes, and as an environment's reward.

And the returns of a policy in any environment that tells its outcomes, under any weights that are stated.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import RecordConstructorArgs

from cirl_gym.data.features import FeatureMap, check_weights, reward
from cirl_gym.data.outcomes import read_outcome
from cirl_gym.files import loading, read_json
from cirl_gym.types import BoolArray, FloatArray, Policy
from cirl_gym.vector_api import AutoresetMode, RowsWrapper, VectorEnv, autoreset_mode

SCHEMA = 1
"""Of the ``result.json`` that is understood."""


@dataclass(frozen=True)
class LinearReward:
    """R(outcome) = w . phi(outcome), with phi the scaling that w was learned with (paper, equations 1 and 23).

    Raises:
        ValueError: not one finite weight per outcome, or their absolute values add up to more than 1.
    """

    feature_map: FeatureMap
    """Names of the d outcomes and the ranges that scale them, and where they stand among D observed features."""
    weights: FloatArray
    """``[d]`` reward weights."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", check_weights(self.weights, self.features))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d outcomes, in the order of the weights."""
        return self.feature_map.features

    def __call__(self, outcomes: npt.ArrayLike) -> FloatArray:
        """Rewards ``[..]`` float64 of outcomes ``[.., D]`` in raw units: what the actions led to.

        A reward that :func:`load_reward` has read takes the d outcomes that it weighs, in the order of ``features``:
        where these are computed (:mod:`cirl_gym.data.outcomes`) their values, until :meth:`among` says of what.

        Raises:
            ValueError: the last axis does not hold one number per feature.
        """
        return np.asarray(reward(self.feature_map(outcomes), self.weights))

    def among(self, features: Sequence[str]) -> LinearReward:
        """The same reward, read from more features or from features in another order.

        Raises:
            ValueError: an outcome is not among them, nor computed of them; those that differ are listed.
        """
        names = tuple(features)
        needs = {name: read_outcome(name, names).needs for name in self.features}
        missing = [name for name, needed in needs.items() if not set(needed) <= set(names)]
        more = [name for name in names if name not in set().union(*needs.values())]
        if missing or len(set(names)) < len(names):
            raise ValueError(
                f"the reward is of other features than {', '.join(names)}: only the reward has {missing}, which lacks "
                f"{more}"
            )
        return LinearReward(self.feature_map.among(names), self.weights)


RunOrReward: TypeAlias = str | os.PathLike[str] | LinearReward
"""Folder of a run, or a reward that was loaded or made."""


def load_reward(run: str | os.PathLike[str]) -> LinearReward:
    """The reward that a run of ``cirl demo`` or ``cirl explain`` has found, from the ``result.json`` in its folder.

    Its weights are those that the run's policies act on (``estimates.posterior``, L1 norm 1), and not the medians that
    are reported of each weight, whose sizes need not add up to 1.

    Raises:
        FileNotFoundError: the folder has no ``result.json``: it is no run's, or the run was stopped before its end.
        ValueError: the file is not a result of the schema that is understood here; the message names it.
    """
    path = Path(run) / "result.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: a run writes it last of all, so either this is not a run's folder or the run was "
            "stopped before its end"
        )
    content = read_json(path)
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, Mapping) else None
        raise ValueError(f"{path} is not a result of schema {SCHEMA}, its schema is {found!r}")
    with loading(path, "a result that a reward can be made of"):
        names = tuple(str(name) for name in content["features"])
        low, high = (np.array([content["config"]["ranges"][name][end] for name in names]) for end in (0, 1))
        # A result that was written by hand, or by others, may hold one set of weights alone.
        estimates = content.get("estimates")
        acted_on = estimates.get("posterior") if isinstance(estimates, Mapping) else None
        return LinearReward(FeatureMap(names, low, high), content["weights"] if acted_on is None else acted_on)


ENDLESS = 100_000
"""Steps after which :func:`env_returns` cuts an episode where neither its caller nor the environment says when."""


class LearnedReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Pay the reward that a run has found, instead of the environment's own.

    It weighs the outcome that the environment's own reward weighs, ``info["phi"]`` (in ``CIRLCounterfactual-v0`` with
    sampled observations the expected one), or some features of it, brought to raw units by the environment's ranges and
    scaled again by the run's. ``info["original_reward"]`` holds the environment's own.

    Args:
        env: one of this package's, or another with ``unwrapped.feature_map`` and ``info["phi"]``.
        reward: the folder of a run, or what :func:`load_reward` made of it. A folder can be written into the spec as
            JSON.
        feature_map: of an environment that tells no ``info["phi"]``: its ``of`` names the numbers of an observation,
            from which the reward is read (``FeatureMap.from_batch`` of the run's episodes); ``info["phi"]`` is then
            this map's.

    Raises:
        ValueError: the reward is of other features, or the environment has none; see :func:`load_reward`.
        FileNotFoundError: see :func:`load_reward`.
    """

    def __init__(self, env: gym.Env[Any, Any], reward: RunOrReward, feature_map: FeatureMap | None = None) -> None:
        reward = reward if isinstance(reward, LinearReward) else os.fspath(reward)
        RecordConstructorArgs.__init__(self, reward=reward, feature_map=feature_map)
        gym.Wrapper.__init__(self, env)
        self._outcomes = Outcomes.of(env.unwrapped, env.observation_space, feature_map)
        self.learned = _learned(reward, self._outcomes)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act; the reward is the learned one.

        Raises:
            ValueError: the environment does not tell the outcome.
        """
        obs, own, terminated, truncated, info = self.env.step(action)
        phi = self._outcomes.phi(obs, info)
        paid = float(self.learned(obs if self._outcomes.observed else self._outcomes.scale.unscaled(phi)))
        return obs, paid, terminated, truncated, info | {"phi": phi, "original_reward": float(own)}


@dataclass(frozen=True)
class Outcomes:
    """Where the outcomes of an environment are read: as it tells them, or from what is observed."""

    scale: FeatureMap
    """How they are scaled to phi."""
    observed: bool
    """They are computed of the observation, whose numbers ``scale.of`` names; else ``info["phi"]`` tells them."""

    @classmethod
    def of(cls, env: Any, space: gym.Space[Any], feature_map: FeatureMap | None) -> Outcomes:
        """Those of an unwrapped environment, or of a map that is given for its observations.

        Raises:
            ValueError: it has none, or its observations are not what the map is of.
        """
        if feature_map is None:
            return cls(scale_of(env), False)
        names = feature_map.of
        if space.shape != (len(names),):
            raise ValueError(
                f"feature_map is of {len(names)} numbers ({', '.join(names)}), and observations are {space}: "
                "gymnasium.wrappers.TransformObservation can make those of these"
            )
        return cls(feature_map, True)

    def phi(self, obs: Any, info: Mapping[str, Any]) -> FloatArray:
        """``[d]`` the scaled outcomes after a step of one environment.

        Raises:
            ValueError: it does not tell them.
        """
        if self.observed:
            return self.scale(obs)
        if "phi" not in info:
            raise ValueError(
                "the environment gives no info['phi'], so there is no outcome to weigh; feature_map=... reads outcomes "
                "from observations"
            )
        told: FloatArray = info["phi"]
        return told


def _learned(given: RunOrReward, outcomes: Outcomes) -> LinearReward:
    """The reward of a run or as given, read from observations or from the outcomes that an environment weighs."""
    learned = given if isinstance(given, LinearReward) else load_reward(given)
    return learned.among(outcomes.scale.of if outcomes.observed else outcomes.scale.features)


def scale_of(env: Any) -> FeatureMap:
    """The feature map with which an unwrapped environment scales ``info["phi"]``.

    Raises:
        ValueError: it has none.
    """
    scale = getattr(env, "feature_map", None)
    if not isinstance(scale, FeatureMap):
        raise ValueError(
            f"{type(env).__name__} has no feature_map, so its outcomes have neither names nor units; "
            "CIRLTumour-v0 and CIRLCounterfactual-v0 have one, and for others feature_map=FeatureMap.from_batch(batch) "
            "says what their observations are"
        )
    return scale


class LearnedVectorReward(RowsWrapper):
    """:class:`LearnedReward` for a vector environment, in any autoreset mode.

    Row i is paid what the wrapper of a single environment pays; the step that only resets a row (``NEXT_STEP``) pays it
    0. ``info["original_reward"]`` ``[n]`` holds the environment's own rewards, with the mask ``_original_reward``; in
    ``SAME_STEP`` those of rows that have ended lie in ``info["final_info"]``, as all that belongs to the ended episode.

    The environment is a native form of this package, a vector environment of single ones, or with ``feature_map`` any
    whose observations are the numbers that ``feature_map.of`` names; all its rows' own rewards then lie in
    ``info["original_reward"]``.

    Raises:
        ValueError: the reward is of other features; the environment has none, does not state its autoreset mode, or
            scales outcomes differently in different rows; the file is not a result.
        FileNotFoundError: the folder has no ``result.json``.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], reward: RunOrReward, feature_map: FeatureMap | None = None
    ) -> None:
        super().__init__(env)
        if feature_map is None:
            self._outcomes = Outcomes(_common_scale(env.unwrapped), False)
        else:
            self._outcomes = Outcomes.of(env.unwrapped, env.single_observation_space, feature_map)
        self.learned = _learned(reward, self._outcomes)

    def step(self, actions: Any) -> tuple[Any, FloatArray, Any, Any, dict[str, Any]]:
        """One action per row; the rewards are the learned ones.

        Raises:
            ValueError: the environment does not tell the outcome of a row that acted.
        """
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        own = np.asarray(rewards, dtype=np.float64)
        acted = ~self._ended if self._mode is AutoresetMode.NEXT_STEP else np.ones_like(self._ended)
        self._ended = np.logical_or(terminated, truncated)
        if self._outcomes.observed:
            paid = np.where(acted, self.learned(self._reached(obs, infos)), 0.0)
            own_rewards = {"original_reward": np.where(acted, own, 0.0), "_original_reward": acted}
            return obs, paid, terminated, truncated, infos | own_rewards
        paid, infos, told = self._paid(np.zeros(self.num_envs), infos, own)
        if self._mode is AutoresetMode.SAME_STEP and "final_info" in infos:
            paid, final, told_last = self._paid(paid, infos["final_info"], own)
            infos, told = infos | {"final_info": final}, told | told_last
        missing = np.flatnonzero(acted & ~told)
        if len(missing):
            raise ValueError(
                f"LearnedVectorReward: the environment gives no info['phi'] of row {missing[0]}, so there is no "
                "outcome to weigh"
            )
        return obs, paid, terminated, truncated, infos

    def _reached(self, obs: Any, infos: Mapping[str, Any]) -> FloatArray:
        """``[n, D]`` what was observed after each action, also where a row has begun anew since."""
        reached: FloatArray = np.array(obs, dtype=np.float64)
        if self._mode is AutoresetMode.SAME_STEP and "final_obs" in infos:
            for row in np.flatnonzero(infos["_final_obs"]):
                reached[row] = infos["final_obs"][row]
        return reached

    def _paid(
        self, paid: FloatArray, infos: dict[str, Any], own: FloatArray
    ) -> tuple[FloatArray, dict[str, Any], BoolArray]:
        """Rewards and infos with those of the rows whose phi the infos tell, and ``[n]`` bool which rows these are."""
        if "phi" not in infos:
            return paid, infos, np.zeros(self.num_envs, dtype=np.bool_)
        told = np.array(infos["_phi"], dtype=np.bool_)
        learned = self.learned(self._outcomes.scale.unscaled(infos["phi"]))
        own_rewards = {"original_reward": np.where(told, own, 0.0), "_original_reward": told}
        return np.where(told, learned, paid), infos | own_rewards, told


def _common_scale(env: Any) -> FeatureMap:
    """The feature map of a native form, or the one that all single environments have."""
    if hasattr(env, "feature_map") or not hasattr(env, "call"):
        return scale_of(env)
    try:
        # Not get_attr, which calls what can be called, and a feature map can.
        scales: tuple[FeatureMap, ...] = env.call("get_wrapper_attr", "feature_map")
    except AttributeError:
        return scale_of(env)
    first = scales[0]
    for row, scale in enumerate(scales):
        same = first.features == scale.features
        if not (same and np.array_equal(first.low, scale.low) and np.array_equal(first.high, scale.high)):
            raise ValueError(
                f"LearnedVectorReward: the outcomes of row {row} are scaled differently from those of row 0"
            )
    return first


def env_returns(
    env: Any,
    policy: Policy,
    w: npt.ArrayLike,
    episodes: int,
    *,
    gamma: float = 1.0,
    seed: int | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> FloatArray:
    """Discounted sums of w . phi over whole episodes, with phi from ``info["phi"]`` (paper, equation 23).

    The reward of the environment is not looked at, so that one environment compares policies under any weights, and a
    foreign environment needs nothing but ``info["phi"]``. Of a vector environment's rows only the first episode after a
    reset counts, and then all are reset: an early end must not let short episodes count more often.

    Args:
        env: a ``gymnasium.Env``, or a ``gymnasium.vector.VectorEnv`` in any autoreset mode; it is reset, not closed.
        policy: who acts; ``predict`` gets observations with a first axis also where there is one environment.
        w: ``[d]`` weights of phi.
        episodes: how many.
        gamma: discount factor in [0, 1].
        seed: of the first reset; what follows goes on from it. None: the environment's own.
        deterministic: handed to the policy.
        max_steps: an episode that has not ended by then is cut; default: what the environment's spec says, else
            :data:`ENDLESS`. A warning says how many were cut.

    Returns:
        ``[episodes]``, in the order in which they were begun. After Ctrl-C those that were finished, if there are any,
        and a warning says so.

    Raises:
        ValueError: a number is out of its range, w has another length than phi, or a step does not tell phi.
    """
    weights = np.asarray(w, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all():
        raise ValueError(f"env_returns: w must be a vector of finite numbers, got {weights}")
    if episodes < 1 or not 0 <= gamma <= 1:
        raise ValueError(f"env_returns: episodes must be at least 1 and gamma in [0, 1], got {episodes}, {gamma}")
    if max_steps is None:
        max_steps = getattr(getattr(env, "spec", None), "max_episode_steps", None) or ENDLESS
    if max_steps < 1:
        raise ValueError(f"env_returns: max_steps must be at least 1, got {max_steps}")
    play = _rows_returns if hasattr(env, "num_envs") else _one_return
    found: list[float] = []
    cut = 0
    try:
        while len(found) < episodes:
            returns, own = play(env, policy, weights, gamma, seed, deterministic, max_steps)
            cut += sum(own[: episodes - len(found)])
            found += returns
            seed = None
    except KeyboardInterrupt:
        if not found:
            raise
        warnings.warn(f"env_returns: stopped after {len(found)} of {episodes} episodes", stacklevel=2)
    if cut:
        told = f"env_returns: {cut} of {min(len(found), episodes)} episodes had not ended and were cut at {max_steps}"
        warnings.warn(f"{told} steps; max_steps sets another number", stacklevel=2)
    return np.array(found[:episodes], dtype=np.float64)


def _one_return(
    env: Any, policy: Policy, w: FloatArray, gamma: float, seed: int | None, deterministic: bool, most: int
) -> tuple[list[float], list[bool]]:
    """The return of an episode, and whether it was cut, each in a list."""
    obs, _ = env.reset(seed=seed)
    total, discount, memory, going = 0.0, 1.0, None, True
    begin: BoolArray = np.ones(1, dtype=np.bool_)
    for _ in range(most):
        # A batch of one: an array, or a dictionary of them.
        named = isinstance(obs, dict)
        shown = {name: np.asarray(part)[None] for name, part in obs.items()} if named else np.asarray(obs)[None]
        actions, memory = policy.predict(shown, memory, begin, deterministic)
        obs, _, terminated, truncated, info = env.step(np.asarray(actions)[0])
        if "phi" not in info:
            raise ValueError("env_returns: the environment gives no info['phi'], so there is no outcome to weigh")
        total += discount * float(_weighed(np.asarray(info["phi"], dtype=np.float64)[None], w)[0])
        discount, going, begin = discount * gamma, not (terminated or truncated), np.zeros(1, dtype=np.bool_)
        if not going:
            break
    return [total], [going]


def _rows_returns(
    env: Any, policy: Policy, w: FloatArray, gamma: float, seed: int | None, deterministic: bool, most: int
) -> tuple[list[float], list[bool]]:
    """Return and whether it was cut, of the first episode of every row.

    Rows that have ended go on unseen, in episodes that do not count.
    """
    mode, n = autoreset_mode(env).name, env.num_envs
    obs, _ = env.reset(seed=seed)
    total, discount, memory = np.zeros(n), 1.0, None
    begin, going, waiting = np.ones(n, dtype=np.bool_), np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    for _ in range(most):
        actions, memory = policy.predict(obs, memory, begin, deterministic)
        obs, _, terminated, truncated, infos = env.step(np.asarray(actions))
        ended: BoolArray = np.logical_or(terminated, truncated)
        # In a step that also begins the next episode, what belongs to the old one lies apart.
        last = infos.get("final_info", {}) if mode == "SAME_STEP" else infos
        for told, rows in ((infos, np.flatnonzero(going & ~ended)), (last, np.flatnonzero(going & ended))):
            if len(rows):
                given = np.asarray(told.get("_phi", False), dtype=np.bool_)
                if not given.ndim or not given[rows].all():
                    raise ValueError("env_returns: the environment gives no info['phi'] of a row that acted")
                # A vector of single environments may stack what they tell as objects.
                phi = np.stack([np.asarray(told["phi"][row], dtype=np.float64) for row in rows])
                total[rows] += discount * _weighed(phi, w)
        going &= ~ended
        discount *= gamma
        if not going.any():
            break
        if mode == "DISABLED" and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
        # Where the next episode begins by itself, it does so now or in the next step.
        begin, waiting = (waiting, ended) if mode == "NEXT_STEP" else (ended, waiting)
    return total.tolist(), going.tolist()


def _weighed(phi: FloatArray, w: FloatArray) -> FloatArray:
    """``[k]`` w . phi."""
    if phi.shape[1:] != w.shape:
        raise ValueError(f"env_returns: w has {len(w)} weights, info['phi'] {' x '.join(map(str, phi.shape[1:]))}")
    weighed: FloatArray = phi @ w
    return weighed
