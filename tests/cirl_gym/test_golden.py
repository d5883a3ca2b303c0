"""One frozen trajectory per environment: a change here is a change of the environment and needs a new id."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from env_runs import IDS

ACTIONS = [1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
GOLDEN = {
    "CIRLTumour-v0": (
        """
        35.143711 3.6530645 35.258385 2.0557463 35.027367 1.8403205 32.729511 2.5219707 29.841566
        3.3199177 26.164085 4.1050715 26.693411 3.4170458 22.596081 4.6220174 19.967289 5.0535674
        17.423378 5.5259562 15.159155 5.8966737 10.314453 7.4194307 7.0252237 8.1782999 3.9557135
        8.9565992 0.73245907 9.7226181 0.0 10.577182
        """,
        """
        -0.30748514 -0.29604582 -0.31406904 -0.33397889 -0.34855452 -0.3196226 -0.35127063 -0.35563688
        -0.36241822 -0.36613303 -0.40812682 -0.42380534 -0.44170891 -0.45811693 -0.49360182
        """,
    ),
    "CIRLCounterfactual-v0": (
        """
        31.903875 2.6642292 31.912073 1.1743273 31.908092 0.86508554 29.404045 1.509366 26.411846
        2.2762878 22.810781 3.1967344 23.494705 2.3052287 19.30949 3.5289536 16.79052 4.0647802
        14.268538 4.5685959 11.839692 5.0331383 7.1469092 6.3984776 3.8768587 7.2180715 0.79183686
        7.956943 0.0 8.7375593
        """,
        """
        -0.24989058 -0.23556804 -0.25000937 -0.26712919 -0.28761558 -0.25058768 -0.28151613 -0.29085151
        -0.29868836 -0.30528022 -0.3396454 -0.35749758 -0.37275155 -0.40399093
        """,
    ),
}
"""Observed features of every step, row by row; rewards."""


@pytest.mark.parametrize("env_id", IDS)
def test_golden_trajectory(env_id):
    env = gym.make(env_id)
    obs, _ = env.reset(seed=2024)
    seen, rewards, ends = [obs], [], []
    for action in ACTIONS:
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(obs)
        rewards.append(reward)
        ends.append((terminated, truncated))
        if terminated or truncated:
            break
    numbers, earned = ([float(number) for number in text.split()] for text in GOLDEN[env_id])
    np.testing.assert_allclose(np.array(seen)[:, :2].ravel(), numbers, rtol=2e-6)
    np.testing.assert_allclose(rewards, earned, rtol=2e-6)
    assert ends == [(False, False)] * (len(ends) - 1) + [(True, False)]
