"""Evaluating an agent where some actions are forbidden, with tools that do not know of masks."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from stable_baselines3.common.type_aliases import GymEnv

from agents.action_masks import action_masks_of
from agents.drqn import DRQN
from agents.drqn_policy import ArrayMemory
from agents.episode_replay import ArrayObservation


class MaskedPolicy:
    """An agent that asks its environment which actions are allowed before it acts.

    ``evaluate_policy(MaskedPolicy(model, env), env)`` of Stable-Baselines3 then works as without masks. (sb3-contrib's
    own ``evaluate_policy`` for masks does not hand the memory on, version 2.9.2.)

    Args:
        model: the agent.
        env: the environment that will be stepped with the actions, with a method ``action_masks()``.
    """

    def __init__(self, model: DRQN, env: GymEnv) -> None:
        self.model, self.env = model, env

    def predict(
        self,
        observation: ArrayObservation,
        state: ArrayMemory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], ArrayMemory]:
        """Actions and memory, see :meth:`agents.drqn.DRQN.predict`."""
        return self.model.predict(observation, state, episode_start, deterministic, action_masks_of(self.env))
