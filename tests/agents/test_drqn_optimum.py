"""The recurrent Q-learner beside the exact optimum of the simulator."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium", minversion="1.1")

from agents.drqn.drqn import DRQN
from agents.drqn.settings import tumour_settings
from agents.expert import noise_free_values
from agents.sb3_vec_env import make_native_vec_env
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import TumourParameters

STARTS = 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "gamma", "within"), [((-0.3, -0.7), 0.99, 0.1), ((-0.7, -0.3), 0.99, 0.1), ((-0.3, -0.7), 0.5, 0.02)]
)
def test_the_optimum_is_near(weights, gamma, within):
    settings, given = tumour_settings(), TumourParameters()
    envs = make_native_vec_env("CIRLTumour-v0", settings.n_envs, seed=0, weights=weights)
    model = DRQN("MlpLstmPolicy", envs, gamma=gamma, seed=0, device="cpu", **settings.arguments)
    model.learn(settings.total_timesteps)
    starts = tumour.draw_start(given, STARTS, np.random.default_rng(5)).astype(np.float32).astype(np.float64)
    best = optimum(given, starts, [(weights, gamma)]).values[:, 0]
    short = best - noise_free_values(model, given, starts, weights, gamma)
    # The simulator's rewards are of float32 observations.
    assert short.min() > -1e-4
    assert short.mean() < within
