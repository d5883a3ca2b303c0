"""Padded histories with a mask, of one environment and of many."""

from __future__ import annotations

import copy
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from env_runs import IDS, MODES, AutoresetMode, assert_same, copied, drive, episode, native, new_gymnasium, sync
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from cirl_gym import TumourParameters
from cirl_gym.envs.tumour import TumourEnv
from cirl_gym.wrappers.history import HistoryObservation, HistoryVectorObservation

QUIET = TumourParameters(tumour_noise=0.0, side_noise=0.0)
OF_ANY_WRAPPER = ("ignore:.*different from the unwrapped version", "ignore:.*to get variables from other wrappers")
"""What Gymnasium's checker warns of."""


class Counter(gym.Env):
    """Shows (t + 5, -t): its first feature is never 0, its second has no limits."""

    observation_space = gym.spaces.Box(np.array([5, -np.inf]), np.array([50, np.inf]), dtype=np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([5.0, 0.0]), {}

    def step(self, action):
        self.t += 1
        return np.array([self.t + 5.0, -self.t]), 0.0, False, False, {}


def observations(env, actions, **reset):
    return episode(env, actions, **reset)[0]


class TestContent:
    def test_by_hand_in_both_forms(self):
        # Treat twice from (30, 2) without noise: (30, 0.5), then (27.5, 1.2), as in test_simulator.
        none, start, first, second = [0] * 5, [30, 2, 0, 0, 1], [30, 0.5, 0, 1, 1], [27.5, 1.2, 0, 1, 1]
        expected = np.array([[none, none, start], [none, start, first], [start, first, second]])
        env = HistoryObservation(TumourEnv(QUIET), length=3)
        seen = observations(env, [1, 1], options={"patient": (30, 2)})
        assert all(obs.shape == (15,) and obs.dtype == np.float32 for obs in seen)
        np.testing.assert_allclose(np.reshape(seen, (3, 3, 5)), expected, rtol=1e-6)
        env = HistoryObservation(TumourEnv(QUIET), length=3, form="dict")
        seen = observations(env, [1, 1], options={"patient": (30, 2)})
        assert all(set(obs) == {"history", "mask"} for obs in seen)
        assert all(part.dtype == np.float32 for obs in seen for part in obs.values())
        np.testing.assert_allclose([obs["history"] for obs in seen], expected[..., :4], rtol=1e-6)
        np.testing.assert_array_equal([obs["mask"] for obs in seen], [[0, 0, 1], [0, 1, 1], [1, 1, 1]])

    def test_a_longer_episode_loses_its_oldest_steps(self):
        env = HistoryObservation(Counter(), length=2)
        seen = np.reshape(observations(env, [0] * 3), (4, 2, 3))
        expected = [[[0, 0, 0], [5, 0, 1]], [[5, 0, 1], [6, -1, 1]], [[6, -1, 1], [7, -2, 1]], [[7, -2, 1], [8, -3, 1]]]
        np.testing.assert_array_equal(seen, expected)
        # And the next episode begins without its steps; one step is the observation itself.
        np.testing.assert_array_equal(np.reshape(observations(env, [0] * 3), (4, 2, 3)), expected)
        seen = observations(HistoryObservation(Counter(), length=1), [0])
        np.testing.assert_array_equal(seen, [[5, 0, 1], [6, -1, 1]])

    @pytest.mark.parametrize("previous_action", [True, False])
    def test_dictionaries_and_flat_observations_give_the_same_history(self, previous_action):
        flat, named = (
            HistoryObservation(gym.make("CIRLTumour-v0", observation=form, previous_action=previous_action))
            for form in ("flat", "dict")
        )
        assert flat.observation_space == named.observation_space
        actions = [1, 0] * 10
        np.testing.assert_array_equal(observations(flat, actions, seed=1), observations(named, actions, seed=1))

    def test_reward_end_and_info_are_the_environments(self):
        plain, env = gym.make("CIRLTumour-v0"), HistoryObservation(gym.make("CIRLTumour-v0"))
        assert_same(env.reset(seed=2)[1], plain.reset(seed=2)[1])
        assert_same(episode(env, [1] * 9)[1], episode(plain, [1] * 9)[1])


class TestLength:
    def test_by_default_a_whole_episode(self):
        assert HistoryObservation(gym.make("CIRLTumour-v0")).length == 21
        assert HistoryObservation(gym.make("CIRLTumour-v0", max_episode_steps=7)).observation_space.shape == (8 * 5,)
        env = HistoryObservation(gym.make("CIRLTumour-v0"), form="dict")
        seen = observations(env, [1, 0, 0, 0, 0] * 4, options={"patient": (30, 2)})
        assert len(seen) == 21
        assert [obs["mask"].sum() for obs in seen] == list(range(1, 22))

    def test_must_be_given_where_no_limit_is_stated(self):
        with pytest.raises(ValueError, match="states no max_episode_steps, so give the number of steps"):
            HistoryObservation(TumourEnv())
        with pytest.raises(ValueError, match="states no max_episode_steps"):
            HistoryObservation(gym.make("CIRLCounterfactual-v0"))
        if not gym.__version__.startswith("0."):  # which takes -1 for a number of steps
            with pytest.raises(ValueError, match="states no max_episode_steps"):
                HistoryObservation(gym.make("CIRLTumour-v0", max_episode_steps=-1))
            env = TimeLimit(gym.make("CIRLTumour-v0", max_episode_steps=-1), 6)
            assert HistoryObservation(env).length == 7, "before Gymnasium 1.0 the spec does not tell of the wrapper"
        assert HistoryObservation(gym.make("CIRLCounterfactual-v0"), 4).length == 4

    def test_faults_are_named(self):
        for length in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match="length must be a whole number of at least 1"):
                HistoryObservation(TumourEnv(), length)
        with pytest.raises(ValueError, match="form must be 'flat' or 'dict', got 'long'"):
            HistoryObservation(TumourEnv(), 3, "long")
        env = Counter()
        env.observation_space = gym.spaces.Discrete(3)
        with pytest.raises(ValueError, match=r"must be a Box or a Dict of boxes, got Discrete\(3\)"):
            HistoryObservation(env, 3)


class TestSpace:
    def test_padding_is_inside_and_the_newest_step_keeps_its_limits(self):
        env = HistoryObservation(Counter(), length=3)
        space = env.observation_space
        assert space.dtype == np.float32
        low = [[0, -np.inf, 0], [0, -np.inf, 0], [5, -np.inf, 0]]
        np.testing.assert_array_equal(space.low.reshape(3, 3), low)
        np.testing.assert_array_equal(space.high.reshape(3, 3), [[50, np.inf, 1]] * 3)
        assert all(obs in space for obs in observations(env, [0] * 5))

    @pytest.mark.parametrize("form", ["flat", "dict"])
    @pytest.mark.parametrize("env_id", IDS)
    def test_every_observation_is_inside(self, env_id, form):
        env = HistoryObservation(gym.make(env_id), 21, form)
        rng = np.random.default_rng(0)
        for seed in range(6):
            for obs in observations(env, (rng.random(20) < rng.random()).astype(int), seed=seed):
                assert obs in env.observation_space


@pytest.mark.filterwarnings(*OF_ANY_WRAPPER, "ignore:.*has an unconventional shape:UserWarning")
@pytest.mark.parametrize("form", ["flat", "dict"])
@pytest.mark.parametrize("arguments", [{}, {"observation": "dict"}, {"previous_action": False}])
def test_both_checkers_are_silent(arguments, form):
    env = HistoryObservation(TumourEnv(**arguments), 21, form)
    check_env(env, skip_render_check=True)
    sb3_check_env(env)


@pytest.mark.parametrize("form", ["flat", "dict"])
def test_nothing_returned_is_shared(form):
    env = HistoryObservation(gym.make("CIRLTumour-v0"), form=form)
    returned = observations(env, [1] * 2, seed=0)
    copies = copy.deepcopy(returned)
    returned += [env.step(1)[0] for _ in range(2)]
    assert_same(returned[:3], copies)
    twin = HistoryObservation(gym.make("CIRLTumour-v0"), form=form)
    for obs in returned:
        for part in obs.values() if form == "dict" else [obs]:
            part[:] = -1
    observations(twin, [1] * 4, seed=0)
    assert_same(env.step(1)[0], twin.step(1)[0])


@copied
def test_a_copy_goes_on_as_the_original(copied):
    env = HistoryObservation(gym.make("CIRLTumour-v0"))
    observations(env, [1, 0, 1], seed=3)
    other = copied(env)
    assert_same([env.step(action) for action in (0, 1, 1)], [other.step(action) for action in (0, 1, 1)])


@pytest.mark.parametrize("arguments", [{}, {"length": 5}, {"form": "dict"}])
def test_it_can_be_made_again_from_its_spec(arguments):
    env = HistoryObservation(gym.make("CIRLTumour-v0", max_episode_steps=9), **arguments)
    again = gym.make(env.spec)
    assert isinstance(again, HistoryObservation)
    assert (again.length, again.form) == (env.length, env.form)
    assert again.observation_space == env.observation_space
    assert_same(again.reset(seed=1)[0], env.reset(seed=1)[0])
    if not gym.__version__.startswith("0."):
        text = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
        assert gym.make(text).length == env.length


@pytest.mark.parametrize("form", ["flat", "dict"])
def test_ppo_trains_on_it(form):
    policy = "MlpPolicy" if form == "flat" else "MultiInputPolicy"
    env = HistoryObservation(gym.make("CIRLTumour-v0"), form=form)
    agent = PPO(policy, env, n_steps=128, batch_size=64, n_epochs=1, seed=0, device="cpu").learn(256)
    assert agent.num_timesteps == 256
    assert env.action_space.contains(int(agent.predict(env.reset(seed=0)[0], deterministic=True)[0]))


@new_gymnasium
class TestVector:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("form", ["flat", "dict"])
    @pytest.mark.parametrize("observation", ["flat", "dict"])
    @pytest.mark.parametrize("env_id", IDS)
    def test_is_the_single_form_row_by_row(self, env_id, observation, form, mode):
        arguments = {"observation": observation, "max_episode_steps": 12}
        ours = HistoryVectorObservation(native(env_id, mode, **arguments), form=form)
        single = sync(env_id, mode, wrappers=[partial(HistoryObservation, form=form)], **arguments)
        assert ours.single_observation_space == single.single_observation_space
        assert ours.observation_space == single.observation_space
        ended = 0
        for a, b in zip(drive(ours, 30), drive(single, 30), strict=True):
            assert a[0] in ours.observation_space
            assert_same(a[0], b[0])
            assert_same(a[-1], b[-1])
            ended += int((a[2] | a[3]).sum()) if len(a) == 5 else 0
        assert ended >= 6

    @pytest.mark.parametrize("mode", MODES)
    def test_gymnasiums_own_vector_environment_can_be_wrapped(self, mode):
        ours = HistoryVectorObservation(sync("CIRLTumour-v0", mode, max_episode_steps=5), length=3)
        single = sync("CIRLTumour-v0", mode, wrappers=[partial(HistoryObservation, length=3)], max_episode_steps=5)
        for a, b in zip(drive(ours, 14), drive(single, 14), strict=True):
            assert_same(a[0], b[0])
            assert_same(a[-1], b[-1])

    def test_the_limit_asked_for_decides_the_length(self):
        for limit, length in (({}, 21), ({"max_episode_steps": 30}, 31)):
            assert HistoryVectorObservation(native("CIRLTumour-v0", AutoresetMode.DISABLED, **limit)).length == length
        with pytest.raises(ValueError, match="states no max_episode_steps"):
            HistoryVectorObservation(native("CIRLTumour-v0", AutoresetMode.DISABLED, max_episode_steps=-1))

    def test_rows_outside_the_mask_keep_their_histories(self):
        env = HistoryVectorObservation(native("CIRLTumour-v0", AutoresetMode.DISABLED, n=2), form="dict")
        env.reset(seed=0)
        before = env.step(np.array([1, 1]))[0]
        after = env.reset(options={"reset_mask": np.array([True, False])})[0]
        np.testing.assert_array_equal(after["mask"].sum(axis=1), [1, 2])
        np.testing.assert_array_equal(after["history"][1], before["history"][1])

    def test_what_the_environment_returned_is_left_as_it_was(self):
        """In same-step mode the last observation in infos is exchanged in a copy."""
        inner = native("CIRLTumour-v0", AutoresetMode.SAME_STEP, n=1, max_episode_steps=1)
        given = []
        step = inner.step
        inner.step = lambda actions: given.append(step(actions)) or given[-1]
        env = HistoryVectorObservation(inner)
        env.reset(seed=0)
        infos = env.step(np.array([1]))[-1]
        assert given[0][-1]["final_obs"][0].shape == (4,)
        assert infos["final_obs"][0].shape == (2 * 5,)

    @copied
    def test_a_copy_goes_on_as_the_original(self, copied):
        env = HistoryVectorObservation(native("CIRLTumour-v0", AutoresetMode.SAME_STEP, max_episode_steps=3))
        drive(env, 4)
        other = copied(env)
        for _ in range(4):
            assert_same(env.step(np.array([1, 0, 1]))[0], other.step(np.array([1, 0, 1]))[0])

    def test_faults_are_named(self):
        env = native("CIRLCounterfactual-v0", AutoresetMode.SAME_STEP)
        with pytest.raises(ValueError, match="states no max_episode_steps"):
            HistoryVectorObservation(env)
        env.metadata = {}
        with pytest.raises(ValueError, match="does not state its metadata"):
            HistoryVectorObservation(env, length=3)
