"""What a policy earns in the simulator under stated weights, with the same patients and noise for every policy."""

from __future__ import annotations

import numpy as np

from cirl_gym.features import FeatureMap
from cirl_gym.parameters import TumourParameters
from cirl_gym.rollout import returns, rollout
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds import TumourWorld

RETURN_EPISODES = 500
"""Patients of a return."""


def simulated_returns(
    policy: Policy,
    parameters: TumourParameters,
    feature_map: FeatureMap,
    w: FloatArray,
    seed: int,
    episodes: int = RETURN_EPISODES,
) -> FloatArray:
    """``[episodes]`` undiscounted returns, one per patient; patients and noise are the seed's."""
    played = rollout(TumourWorld(parameters), policy, episodes, np.random.default_rng([seed, 1]))
    return returns(played, feature_map, w)


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
