"""Agents that ask which actions are allowed, in environments that refuse the others."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from drqn_envs import small_drqn
from env_runs import IDS, new_gymnasium
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from agents.drqn.drqn import MaskedPolicy
from agents.drqn.policy import has_action_masks
from cirl_gym.wrappers.history import HistoryObservation

FORBID = ["1 when Above(side_effects, 3)"]


class Chart(gym.Wrapper):
    """Keeps every action with the side effects that it was chosen at."""

    def __init__(self, env):
        super().__init__(env)
        self.last, self.chosen = 0.0, []

    def reset(self, **arguments):
        obs, info = self.env.reset(**arguments)
        self.last = obs[1]
        return obs, info

    def step(self, action):
        self.chosen.append((self.last, int(action)))
        obs, *rest = self.env.step(action)
        self.last = obs[1]
        return obs, *rest

    def check(self, steps):
        """The rule came to hold in some steps and was kept in all; where it did not hold, both actions were taken."""
        level, action = np.array(self.chosen).T
        assert len(level) >= steps
        assert (level > 3).sum() > 20
        assert not action[level > 3].any()
        assert set(action[level <= 3]) == {0, 1}


def ppo(kind, env):
    return kind("MlpPolicy", env, n_steps=64, n_epochs=1, seed=0, device="cpu")


@pytest.mark.parametrize("env_id", IDS)
def test_maskable_ppo_takes_no_forbidden_action(env_id):
    chart = Chart(gym.make(env_id, weights=(-1, 0), forbid=FORBID))
    model = ppo(MaskablePPO, HistoryObservation(chart, 21)).learn(320)
    chart.check(320)
    assert model.predict(model.get_env().reset(), action_masks=[[False, True]])[0].tolist() == [1]


def test_an_agent_that_does_not_ask_is_told():
    model = ppo(PPO, HistoryObservation(gym.make("CIRLTumour-v0", forbid=FORBID), 21))
    with pytest.raises(ValueError, match=r"action '1' is forbidden now .* action_masks\(\) tells"):
        model.learn(320)


@pytest.mark.parametrize("env_id", IDS)
def test_drqn_takes_no_forbidden_action(env_id):
    chart = Chart(gym.make(env_id, weights=(-1, 0), forbid=FORBID, max_episode_steps=6))
    model = small_drqn(chart).learn(320)
    chart.check(320)
    # What a time limit cut off was allowed next is in the infos, so that nothing is left out of the loss.
    assert model.logger.name_to_value["train/unknown_masks"] == 0
    evaluate_policy(MaskedPolicy(model, model.get_env()), model.get_env(), 3, warn=False)


@new_gymnasium
@pytest.mark.parametrize("env_id", IDS)
def test_many_at_once_teach_drqn_what_as_many_single_ones_do(env_id):
    from agents.sb3_vec_env import make_native_vec_env

    arguments = {"weights": (-1, 0), "forbid": FORBID}
    many = small_drqn(make_native_vec_env(env_id, 4, seed=3, **arguments)).learn(320)
    single = small_drqn(make_vec_env(env_id, 4, seed=3, env_kwargs=arguments)).learn(320)
    assert many.replay_buffer_kwargs["masks"]
    for a, b in zip(many.policy.parameters(), single.policy.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("env_id", IDS)
def test_without_rules_agents_ask_for_nothing(env_id):
    assert not has_action_masks(gym.make(env_id))
    assert not small_drqn(gym.make(env_id)).replay_buffer_kwargs["masks"]
