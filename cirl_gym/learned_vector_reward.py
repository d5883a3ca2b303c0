"""The learned reward for every row of a vector environment (see :mod:`cirl_gym.learned_reward`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from cirl_gym.features import FeatureMap
from cirl_gym.learned_reward import RunOrReward, reward_for, scale_of
from cirl_gym.types import BoolArray, FloatArray

try:
    from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
except ImportError as error:
    raise ImportError(
        f"LearnedVectorReward needs gymnasium >= 1.1, this is {gym.__version__}; wrap each single environment in "
        "LearnedReward instead"
    ) from error
from cirl_gym.vector_rows import autoreset_mode, reset_rows


class LearnedVectorReward(VectorWrapper):
    """:class:`~cirl_gym.learned_reward.LearnedReward` for a vector environment, in any autoreset mode.

    Row i is paid what the wrapper of a single environment pays; the step that only resets a row (``NEXT_STEP``) pays it
    0. ``info["original_reward"]`` ``[n]`` holds the environment's own rewards, with the mask ``_original_reward``; in
    ``SAME_STEP`` those of rows that have ended lie in ``info["final_info"]``, as all that belongs to the ended episode.

    Args:
        env: a native form of this package's environments, or a vector environment of single ones.
        reward: the folder of a run, or what :func:`~cirl_gym.learned_reward.load_reward` made of it.

    Raises:
        ValueError: the reward is of other features; the environment has none, does not state its autoreset mode, or
            scales outcomes differently in different rows; the file is not a result.
        FileNotFoundError: the folder has no ``result.json``.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], reward: RunOrReward) -> None:
        super().__init__(env)
        self._mode = autoreset_mode(env)
        self._scale = _common_scale(env.unwrapped)
        self.learned = reward_for(reward, self._scale)
        self._ended: BoolArray = np.zeros(env.num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row, or in those of ``options["reset_mask"]``."""
        begun = reset_rows(options, self.num_envs)
        # The seed of a vector environment may be a sequence, which Gymnasium's annotation leaves out.
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._ended = self._ended & ~begun
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, FloatArray, Any, Any, dict[str, Any]]:
        """One action per row; the rewards are the learned ones.

        Raises:
            ValueError: the environment does not tell the outcome of a row that acted.
        """
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        own = np.asarray(rewards, dtype=np.float64)
        acted = ~self._ended if self._mode is AutoresetMode.NEXT_STEP else np.ones_like(self._ended)
        self._ended = np.logical_or(terminated, truncated)
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

    def _paid(
        self, paid: FloatArray, infos: dict[str, Any], own: FloatArray
    ) -> tuple[FloatArray, dict[str, Any], BoolArray]:
        """Rewards and infos with those of the rows whose phi the infos tell, and ``[n]`` bool which rows these are."""
        if "phi" not in infos:
            return paid, infos, np.zeros(self.num_envs, dtype=np.bool_)
        told = np.array(infos["_phi"], dtype=np.bool_)
        learned = self.learned(self._scale.unscaled(infos["phi"]))
        kept = {"original_reward": np.where(told, own, 0.0), "_original_reward": told}
        return np.where(told, learned, paid), infos | kept, told


def _common_scale(env: Any) -> FeatureMap:
    """The feature map of a native form, or the one that all single environments have.

    Raises:
        ValueError: there is none, or rows differ.
    """
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
