"""What foresees decisions, as a policy: it does what it holds to be likeliest."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agents.policies.policy import Memory, ScoringPolicy, checked_observation
from cirl_gym.data.batch import Batch
from cirl_gym.types import Float32Array, FloatArray
from irl.checks.predictors import Predictor


class LikeliestAction(ScoringPolicy):
    """Scores are a predictor's log-probabilities after the whole history of an episode without contexts.

    Its memory is that history: observations ``[n, t + 1, D]`` and actions ``[n, t]``. All episodes must begin together.

    Args:
        predictor: fitted to episodes of the same features and actions.
        features: D names.
        action_names: A names.
    """

    def __init__(self, predictor: Predictor, features: tuple[str, ...], action_names: tuple[str, ...]) -> None:
        self.predictor, self.features, self.action_names = predictor, features, action_names

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, Memory]:
        """Log-probabilities ``[n, A]``, and the history with this observation; arguments as for ``predict``.

        Raises:
            ValueError: an episode begins while others go on, or one goes on without its history.
        """
        d, n_actions = len(self.features), len(self.action_names)
        rows = checked_observation("LikeliestAction", observation, d, n_actions).astype(np.float32)
        begins = np.full(len(rows), state is None) if episode_start is None else np.asarray(episode_start, np.bool_)
        if begins.all():
            obs, actions = rows[:, None, :d], np.zeros((len(rows), 0), dtype=np.int64)
        elif begins.any() or state is None:
            raise ValueError("LikeliestAction: all episodes must begin together, and go on with the state given back")
        else:
            obs = np.concatenate([state[0], rows[:, None, :d]], axis=1)
            actions = np.concatenate([state[1], rows[:, d:].argmax(axis=1)[:, None]], axis=1)
        return self._after(obs, actions), (obs, actions)

    def _after(self, obs: Float32Array, actions: npt.NDArray[np.int64]) -> FloatArray:
        """Log-probabilities ``[n, A]`` after histories; what is decided now and follows is not looked at."""
        n, steps = len(obs), obs.shape[1]
        batch = Batch(
            obs=np.concatenate([obs, obs[:, -1:]], axis=1),
            actions=np.concatenate([actions, np.zeros((n, 1), dtype=np.int64)], axis=1),
            lengths=np.full(n, steps, dtype=np.int64),
            terminated=np.zeros(n, dtype=np.bool_),
            truncated=np.ones(n, dtype=np.bool_),
            features=self.features,
            action_names=self.action_names,
            ids=tuple(map(str, range(n))),
        )
        return self.predictor.log_probabilities(batch)[:, -1]
