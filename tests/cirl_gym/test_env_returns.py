"""Returns in an environment by stated weights: those of the one rollout loop, in every form of an environment."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Scripted

from cirl_gym.data.rollout import returns, rollout
from cirl_gym.envs.counterfactual import CounterfactualEnv, CounterfactualVectorEnv
from cirl_gym.envs.tumour import TumourEnv, TumourVectorEnv
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld, draw_start
from cirl_gym.wrappers.learned_reward import env_returns

PARAMETERS = TumourParameters()
PATIENTS = draw_start(PARAMETERS, 6, np.random.default_rng(0))
W = np.array([0.2, -0.5])
"""Not the environment's own."""


class Alternating:
    """Treats at every step but each third; warns nobody, and refuses a memory that does not fit the flags."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        first = ~observation[:, 2:].any(axis=1)
        np.testing.assert_array_equal(first, episode_start)
        time = np.zeros(len(observation), dtype=np.int64) if state is None else np.where(first, 0, state[0])
        return (time % 3 > 0).astype(np.int64), (time + 1,)


Always = partial(Scripted, 1.0)


def by_rollout(policy, gamma: float, patients=PATIENTS) -> np.ndarray:
    world = TumourWorld(PARAMETERS, noise=False)
    batch = rollout(world, policy, len(patients), np.random.default_rng(0), start=world.start(patients))
    return returns(batch, PARAMETERS.feature_map, W, gamma)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("policy", [Alternating, Always])
def test_the_native_form_as_the_rollout_loop(policy, mode, gamma):
    # Always treating cures, so that rows end at different steps; alternating cures none.
    env = TumourVectorEnv(6, PARAMETERS.horizon, patient=PATIENTS, noise=False, autoreset_mode=mode)
    found = env_returns(env, policy(), W, 6, gamma=gamma)
    np.testing.assert_allclose(found, by_rollout(policy(), gamma), rtol=1e-6)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_single_environments_in_a_vector(mode):
    rows = [partial(gym.make, "CIRLTumour-v0", patient=patient, noise=False) for patient in PATIENTS]
    env = SyncVectorEnv(rows, autoreset_mode=mode)
    np.testing.assert_allclose(env_returns(env, Always(), W, 6), by_rollout(Always(), 1.0), rtol=1e-6)


def test_a_single_environment_patient_by_patient():
    for patient, expected in zip(PATIENTS, by_rollout(Alternating(), 0.9), strict=True):
        env = TumourEnv(PARAMETERS, patient=patient, noise=False)
        np.testing.assert_allclose(env_returns(env, Alternating(), W, 2, gamma=0.9), [expected] * 2, rtol=1e-6)


def test_with_the_environments_own_weights_it_is_the_reward():
    own = (-0.3, -0.7)
    env = TumourEnv(PARAMETERS, weights=own)
    found = env_returns(env, Scripted(0.4), own, 3, seed=5)
    policy, totals = Scripted(0.4), []
    for seed in (5, None, None):
        obs, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            action, _ = policy.predict(obs[None])
            obs, reward, terminated, truncated, _ = env.step(action[0])
            total, ended = total + reward, terminated or truncated
        totals.append(total)
    np.testing.assert_allclose(found, totals, rtol=1e-12)
    assert len(set(totals)) == 3, "other patients and noise in every episode"


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_more_episodes_than_rows_and_the_same_seed_twice(mode):
    env = TumourVectorEnv(4, PARAMETERS.horizon, autoreset_mode=mode)
    found = env_returns(env, Always(), W, 10, seed=3)
    assert found.shape == (10,)
    assert len(set(found.tolist())) == 10
    assert env_returns(env, Always(), W, 10, seed=3).tobytes() == found.tobytes()
    # The first four are those of single environments with the seeds 3 to 6.
    singles = [env_returns(TumourEnv(PARAMETERS), Always(), W, 1, seed=3 + row)[0] for row in range(4)]
    np.testing.assert_allclose(found[:4], singles, rtol=1e-12)


def test_the_world_model_environment_and_observations_by_name():
    class Large:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            obs = observation["obs"] if isinstance(observation, dict) else observation
            return (obs[:, 0] > 20).astype(np.int64), state

    forms = [
        form(observation=observation)
        for form in (CounterfactualEnv, partial(CounterfactualVectorEnv, 1))
        for observation in ("flat", "dict")
    ]
    found = [env_returns(env, Large(), W, 2, seed=0) for env in forms]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-9)


def test_what_cannot_be():
    env = TumourEnv(PARAMETERS)
    for changes, message in (
        ({"w": [1.0, np.nan]}, "finite numbers"),
        ({"w": [[1.0, 1.0]]}, "finite numbers"),
        ({"w": [1.0, 1.0, 1.0]}, "w has 3 weights, info\\['phi'\\] 2"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"gamma": 1.5}, "gamma in \\[0, 1\\]"),
    ):
        with pytest.raises(ValueError, match=message):
            env_returns(env, Always(), **{"w": W, "episodes": 1} | changes)
    for env in (gym.make("CartPole-v1"), gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")):
        with pytest.raises(ValueError, match="gives no info\\['phi'\\]"):
            env_returns(env, Always(), W, 1)


class Endless(gym.Env):
    """Pays 1 for ever; Ctrl-C comes at a step of its own."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, ends_at: int | None = None, interrupted_at: int | None = None) -> None:
        self.step_number, self.ends_at, self.interrupted_at, self.steps = 0, ends_at, interrupted_at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(3, dtype=np.float32), {}

    def step(self, action):
        self.step_number += 1
        self.steps += 1
        if self.steps == self.interrupted_at:
            raise KeyboardInterrupt
        return np.zeros(3, dtype=np.float32), 0.0, self.step_number == self.ends_at, False, {"phi": np.ones(2)}


class TestCap:
    def test_an_endless_environment_is_cut_and_it_is_said(self):
        with pytest.warns(UserWarning, match="3 of 3 episodes had not ended and were cut at 7 steps"):
            assert env_returns(Endless(), Always(), [1.0, 0.5], 3, max_steps=7).tolist() == [10.5] * 3

    def test_rows_that_do_not_end_are_cut_alone(self):
        env = SyncVectorEnv([lambda: Endless(2), lambda: Endless()])
        with pytest.warns(UserWarning, match="1 of 2 episodes had not ended and were cut at 4 steps"):
            assert env_returns(env, Always(), [1.0, 0.0], 2, max_steps=4).tolist() == [2.0, 4.0]

    def test_the_cap_is_the_specs(self, monkeypatch):
        env = Endless()
        env.spec = gym.envs.registration.EnvSpec("Endless-v0", max_episode_steps=5)
        with pytest.warns(UserWarning, match="cut at 5 steps"):
            assert env_returns(env, Always(), [1.0, 0.0], 1).tolist() == [5.0]
        monkeypatch.setattr("cirl_gym.wrappers.learned_reward.ENDLESS", 6)
        with pytest.warns(UserWarning, match="cut at 6 steps"):
            assert env_returns(Endless(), Always(), [1.0, 0.0], 1).tolist() == [6.0]
        with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
            env_returns(Endless(), Always(), [1.0, 0.0], 1, max_steps=0)

    def test_ctrl_c_keeps_what_was_finished(self):
        with pytest.warns(UserWarning, match="stopped after 2 of 9 episodes"):
            assert env_returns(Endless(3, interrupted_at=8), Always(), [1.0, 0.0], 9).tolist() == [3.0, 3.0]
        with pytest.raises(KeyboardInterrupt):
            env_returns(Endless(3, interrupted_at=2), Always(), [1.0, 0.0], 9)


class TestRollout:
    @pytest.mark.parametrize("episodes", [0, -1])
    def test_no_episode_is_said(self, episodes):
        with pytest.raises(ValueError, match=f"rollout: episodes must be at least 1, got {episodes}"):
            rollout(TumourWorld(PARAMETERS), Always(), episodes, np.random.default_rng(0))

    @pytest.mark.parametrize("horizon", [0, -3, 2.5, np.inf, "5"])
    def test_a_world_without_a_horizon_needs_a_cap(self, horizon):
        class World(TumourWorld):
            pass

        World.horizon = horizon
        with pytest.raises(ValueError, match="rollout: the world's horizon must be a whole number of at least 1"):
            rollout(World(PARAMETERS), Always(), 2, np.random.default_rng(0))
        World.horizon = None
        with pytest.raises(
            ValueError, match="the world's horizon is not stated, so that max_steps must say when to stop"
        ):
            rollout(World(PARAMETERS), Always(), 2, np.random.default_rng(0))
        batch = rollout(World(PARAMETERS), Always(), 2, np.random.default_rng(0), max_steps=3)
        assert batch.lengths.tolist() == [3, 3]
        assert batch.truncated.all()
