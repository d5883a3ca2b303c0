"""The rollout loop in Gymnasium environments of others: a chain of two states whose returns are known by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from two_states import TwoStates

from cirl_gym import FeatureMap, rollout
from cirl_gym.data.rollout import returns


class Remembers:
    """A policy of this project's kind: goes on at every second step, which its memory counts."""

    def __init__(self):
        self.seen = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        step = 0 if episode_start[0] else state[0] + 1
        self.seen.append((observation.tolist(), bool(episode_start[0]), deterministic))
        return np.array([step % 2]), (step,)


def play(env, policy, episodes=4, seed=0, max_steps=9, **others):
    return rollout(env, policy, episodes, np.random.default_rng(seed), max_steps=max_steps, **others)


def test_episodes_and_returns_by_hand():
    check_env(TwoStates(), skip_render_check=True)
    TwoStates._copied = False
    try:
        batch = play(TwoStates(), lambda obs: 1)
    finally:
        TwoStates._copied = True
    assert batch.features == ("obs_0", "obs_1")
    assert batch.action_names == ("0", "1")
    assert batch.lengths.tolist() == [3] * 4
    assert batch.terminated.all()
    first = batch.obs[:, 0, 0]
    np.testing.assert_array_equal(batch.obs[:, :, 0], np.stack([first, 1 - first, first, 1 - first], axis=1))
    # From state 0 on 1, 0, 1 is reached: 1 + gamma^2; from state 1 on gamma.
    whole = FeatureMap(batch.features, np.zeros(2), np.ones(2))
    np.testing.assert_allclose(returns(batch, whole, [1.0, 0.0], 0.5), np.where(first == 0, 1.25, 0.5))


def test_every_episode_has_a_seed_of_its_own():
    rng = np.random.default_rng(3)
    starts = [TwoStates().reset(seed=int(seed))[0] for seed in rng.integers(2**31, size=20)]
    np.testing.assert_array_equal(play(TwoStates(), lambda obs: 0, 20, seed=3).start, starts)


def test_a_time_limit_truncates_and_actions_are_numbered_from_zero():
    env = gym.wrappers.TimeLimit(TwoStates(first=5), 2)
    asked = []
    batch = play(env, lambda obs: asked.append(obs) or 6, progress=lambda done, of: asked.append((done, of)))
    assert asked[2] == (1, 4)
    assert batch.actions.tolist() == [[1, 1]] * 4
    assert batch.action_names == ("5", "6")
    assert not batch.terminated.any()
    assert play(TwoStates(), lambda obs: 0, max_steps=1).horizon == 1


def test_a_policy_of_this_project_sees_features_and_the_action_before():
    policy = Remembers()
    batch = play(TwoStates(first=5), policy, 2, deterministic=False)
    assert batch.actions.tolist() == [[0, 1, 0]] * 2
    for start, (first, second, third) in zip(batch.start.tolist(), (policy.seen[:3], policy.seen[3:]), strict=True):
        assert first == ([[*start, 0, 0]], True, False)
        assert second == ([[*start, 1, 0]], False, False)
        assert third == ([[*start[::-1], 0, 1]], False, False)


def test_features_that_are_made_of_an_observation():
    """The policy sees the environment's own; of it the batch holds what is asked for."""

    class Numbered(gym.ObservationWrapper):
        observation_space = spaces.Discrete(2)

        def observation(self, obs):
            return int(obs[0])

    batch = play(Numbered(TwoStates()), lambda state: 1 - state, features=["level"], observe=lambda state: [10 * state])
    assert batch.features == ("level",)
    assert (batch.obs[:, 1:] == 10).all()


def test_models_of_stable_baselines3():
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import DQN

    env = gym.make("CartPole-v1")
    names = ["position", "speed", "angle", "turning"]
    for model in (
        DQN("MlpPolicy", env, device="cpu", seed=0),
        RecurrentPPO("MlpLstmPolicy", env, n_steps=8, device="cpu", seed=0),
    ):
        batch = rollout(env, model, 2, np.random.default_rng(0), features=names)
        assert batch.features == tuple(names)
        assert batch.horizon <= 500
        assert batch == rollout(env, model, 2, np.random.default_rng(0), features=names)
    with pytest.raises(ValueError, match="the policy was trained on observations Box"):
        play(TwoStates(), model)


def test_the_own_environments_are_the_world():
    """Names of features are known there, and the previous action that is shown behind them is no feature."""
    for shown in (True, False):
        env = gym.make("cirl_gym:CIRLTumour-v0", previous_action=shown)
        batch = rollout(env, lambda obs: 1, 3, np.random.default_rng(0))
        assert batch.features == ("tumour", "side_effects")
        assert batch.obs.shape[2] == 2
        assert (batch.actions[batch.mask] == 1).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action_space": spaces.Box(-1, 1, (1,))}, "at least two discrete actions are needed"),
        ({"action_space": spaces.MultiDiscrete([5, 5])}, "TransformAction"),
        ({"observation_space": spaces.Discrete(2)}, r"observations must be a Box of one axis.*observe="),
        ({"observation_space": spaces.Box(0, 1, (2, 2))}, "FlattenObservation"),
        ({"policy": lambda obs: 7}, r"the policy chose 7, and the environment's actions are 0\.\.1"),
        ({"policy": lambda obs: 0.5}, "the policy chose 0.5"),
        ({"policy": 3}, "a policy is a callable or has predict, and int is neither"),
        ({"max_steps": None}, "time limit is not stated, so that max_steps"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"start": (None, np.zeros((4, 2)))}, "start is of a world"),
        ({"observe": lambda obs: 3.0}, "observe must make one row"),
        ({"features": ["one"]}, "features must be 2 different names"),
    ],
)
def test_faults(change, message):
    env, given = TwoStates(), {"policy": lambda obs: 0}
    for name, value in change.items():
        if name.endswith("space"):
            setattr(env, name, value)
        else:
            given[name] = value
    with pytest.raises(ValueError, match=message):
        play(env, **given)


def test_vector_environments_are_refused_by_name():
    with pytest.raises(ValueError, match="give a single one"):
        play(gym.make_vec("CartPole-v1", num_envs=2), lambda obs: 0)
