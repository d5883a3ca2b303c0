"""What a policy is worth in the simulator, on starts whose exact optimum can be known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cirl_gym import dynamics
from cirl_gym.features import FeatureMap
from cirl_gym.parameters import TumourParameters
from cirl_gym.rollout import returns, rollout
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds import TumourWorld


def noise_free_values(
    policy: Policy, parameters: TumourParameters, starts: FloatArray, w: npt.ArrayLike, gamma: float
) -> FloatArray:
    """``[n]`` discounted returns of the deterministic policy from first observations ``[n, 2]``, without noise.

    They can be compared patient by patient with :func:`cirl_gym.exhaustive.optimum`, which nobody exceeds.
    """
    world = TumourWorld(parameters, noise=False)
    batch = rollout(world, policy, len(starts), np.random.default_rng(0), start=world.start(starts))
    feature_map = FeatureMap.from_parameters(parameters, dynamics.FEATURES)
    return returns(batch, feature_map, np.asarray(w, dtype=np.float64), gamma)
