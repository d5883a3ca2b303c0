"""Outcomes as a vector reward, by the convention of MO-Gymnasium: nothing is weighed yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from cirl_gym.data.features import FeatureMap
from cirl_gym.types import Float32Array
from cirl_gym.wrappers.learned_reward import Outcomes


class VectorReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Pay phi itself ``[d]`` float32, so that learners of many objectives find policies of every trade-off.

    ``reward_space`` and ``reward_dim`` say how many objectives there are, here and, since MO-Gymnasium's wrappers and
    the learners of morl-baselines look there, on ``unwrapped``. Those learners make every objective large, by weights
    that are not negative: outcomes that should be low need a sign of -1. ``info["original_reward"]`` holds the
    environment's own reward.

    Args:
        env: as for :class:`LearnedReward`.
        signs: ``[d]`` of -1 and 1 that phi is paid with; default: 1.
        feature_map: as for :class:`LearnedReward`.

    Raises:
        ValueError: the environment has no outcomes, or the signs are not one of each.
    """

    def __init__(
        self, env: gym.Env[Any, Any], signs: Sequence[float] | None = None, feature_map: FeatureMap | None = None
    ) -> None:
        RecordConstructorArgs.__init__(self, signs=signs, feature_map=feature_map)
        gym.Wrapper.__init__(self, env)
        self._outcomes = Outcomes.of(env.unwrapped, env.observation_space, feature_map)
        self.reward_dim = len(self._outcomes.scale.features)
        self._signs = np.ones(self.reward_dim) if signs is None else np.array(signs, dtype=np.float64)
        if self._signs.shape != (self.reward_dim,) or (np.abs(self._signs) != 1).any():
            names = ", ".join(self._outcomes.scale.features)
            raise ValueError(f"VectorReward: signs must be -1 or 1 for each of {names}, got {signs}")
        self.reward_space = spaces.Box(-np.inf, np.inf, (self.reward_dim,), np.float32)
        for name in ("reward_dim", "reward_space"):
            setattr(env.unwrapped, name, getattr(self, name))

    def step(self, action: Any) -> tuple[Any, Float32Array, bool, bool, dict[str, Any]]:
        """Act; the reward is ``[d]``, the scaled outcomes with their signs.

        Raises:
            ValueError: the environment does not tell the outcome.
        """
        obs, own, terminated, truncated, info = self.env.step(action)
        paid = (self._signs * self._outcomes.phi(obs, info)).astype(np.float32)
        return obs, paid, terminated, truncated, info | {"original_reward": float(own)}
