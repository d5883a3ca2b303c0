"""Scaled features, the ready settings of the recurrent Q-learner, and how near they come to the exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from env_runs import new_gymnasium
from gymnasium import spaces

from agents.drqn import DRQN, ScaledExtractor, paper_settings, tumour_settings
from agents.expert import noise_free_values
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import TumourParameters


def test_bounds_scale_observations():
    space = spaces.Box(np.array([0, -np.inf, 5]), np.array([10, np.inf, 5]), dtype=np.float64)
    extractor = ScaledExtractor(space)
    # From its bounds to [-1, 1]; without bounds, and where there is nothing to scale, as it is.
    assert extractor(torch.tensor([[0.0, 7.0, 5.0], [10.0, -7.0, 5.0]])).tolist() == [[-1, 7, 5], [1, -7, 5]]
    for other in (spaces.Discrete(3), spaces.Box(0, 255, (3, 36, 36), np.uint8)):
        with pytest.raises(ValueError, match="needs a Box that is no image"):
            ScaledExtractor(other)


def test_a_scaler_scales_the_features_and_leaves_what_follows():
    scaler = Scaler(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    extractor = ScaledExtractor(spaces.Box(-9, 9, (3,)), scaler)
    assert extractor(torch.tensor([[3.0, -2.0, 5.0]])).tolist() == [[1, -1, 5]]
    with pytest.raises(ValueError, match="Box of 2 features and what follows"):
        ScaledExtractor(spaces.Box(-9, 9, (1,)), scaler)
    with pytest.raises(ValueError, match="no logarithms"):
        ScaledExtractor(spaces.Box(-9, 9, (3,)), Scaler(scaler.mean, scaler.scale, np.array([0.0, 1.0])))


def test_the_papers_settings():
    settings = paper_settings()
    given = settings.arguments
    model = DRQN("MlpLstmPolicy", "CIRLTumour-v0", seed=0, device="cpu", **given)
    assert model.q_net.memory.hidden_size == 128
    assert len(model.q_net.head) == 1
    assert (model.batch_size, model.buffer_size, model.target_update_interval) == (256, 10_000, 200)
    assert model.replay_buffer.unit == "episodes"
    # .9, .00005 less per step: 0 after 18,000 of 41,000.
    left = lambda step: 1 - step / settings.total_timesteps  # noqa: E731
    assert model.exploration_schedule(left(0)) == 0.9
    assert model.exploration_schedule(left(1000)) == pytest.approx(0.85)
    assert model.exploration_schedule(left(18_000)) == pytest.approx(0, abs=1e-9)
    other = paper_settings("D")
    assert (other.arguments["exploration_final_eps"], other.arguments["target_update_interval"]) == (0.7, 100)
    with pytest.raises(ValueError, match="appendix"):
        paper_settings("F")


@new_gymnasium
def test_settings_for_the_tumour():
    from agents.sb3_vec_env import make_native_vec_env

    settings = tumour_settings()
    envs = make_native_vec_env("CIRLTumour-v0", settings.n_envs, seed=0)
    model = DRQN("MlpLstmPolicy", envs, seed=0, device="cpu", **settings.arguments)
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(model.learning_starts + 2 * settings.n_envs)
    assert model._n_updates == 2 * model.gradient_steps
    assert any((p != q).any() for p, q in zip(before, model.policy.parameters(), strict=True))
    assert [settings.arguments["learning_rate"](left) for left in (1, 0, -0.1)] == pytest.approx([2e-3, 1e-4, 1e-4])


@new_gymnasium
@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "gamma", "within"), [((-0.3, -0.7), 0.99, 0.1), ((-0.7, -0.3), 0.99, 0.1), ((-0.3, -0.7), 0.5, 0.02)]
)
def test_the_optimum_is_near(weights, gamma, within):
    from agents.sb3_vec_env import make_native_vec_env

    settings, given = tumour_settings(), TumourParameters()
    envs = make_native_vec_env("CIRLTumour-v0", settings.n_envs, seed=0, weights=weights)
    model = DRQN("MlpLstmPolicy", envs, gamma=gamma, seed=0, device="cpu", **settings.arguments)
    model.learn(settings.total_timesteps)
    starts = tumour.draw_start(given, 24, np.random.default_rng(5)).astype(np.float32).astype(np.float64)
    best = optimum(given, starts, [(weights, gamma)]).values[:, 0]
    short = best - noise_free_values(model, given, starts, weights, gamma)
    # The simulator's rewards are of float32 observations.
    assert short.min() > -1e-4
    assert short.mean() < within
