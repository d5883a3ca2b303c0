"""Learned and vector rewards in environments of others, read from what is observed."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from env_runs import MODES, AutoresetMode, new_gymnasium
from gymnasium.utils.env_checker import check_env
from two_states import TwoStates

from cirl_gym import FeatureMap, LearnedReward, LearnedVectorReward, VectorReward, env_returns
from cirl_gym.wrappers.learned_reward import LinearReward

SEEN = FeatureMap(("on", "off"), np.array([0.0, 0.0]), np.array([1.0, 4.0]))
LEARNED = LinearReward(FeatureMap(("off",), np.array([0.0]), np.array([2.0])), np.array([-1.0]))
"""Half a point less in state 0, where "off" is 1 of 2."""


pytestmark = pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")


def states(env, seed=0):
    """What is on at each of the three steps, whatever the first state is, where the other one is always gone to."""
    first = int(env.reset(seed=seed)[0][0])
    return [1 - first, first, 1 - first]


def test_a_learned_reward_by_hand():
    env = LearnedReward(TwoStates(), LEARNED, feature_map=SEEN)
    check_env(LearnedReward(TwoStates(), LEARNED, feature_map=SEEN), skip_render_check=True)
    for on in states(env):
        _, paid, _, _, info = env.step(1)
        assert paid == -0.5 * (1 - on)
        assert info["original_reward"] == on
        np.testing.assert_array_equal(info["phi"], [on, (1 - on) / 4])


class Switches:
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.ones(len(observation), dtype=int), None


def test_returns_of_any_weights_are_read_too():
    env = LearnedReward(TwoStates(), LEARNED, feature_map=SEEN)
    total = env_returns(env, Switches(), [0.5, -0.5], 1, gamma=0.5, seed=4)
    on = np.array(states(TwoStates(), 4))
    assert total[0] == pytest.approx(np.array([1, 0.5, 0.25]) @ (0.5 * on - 0.5 * (1 - on) / 4))


def test_what_it_needs_is_said():
    for wrapper in (lambda env: LearnedReward(env, LEARNED), VectorReward):
        with pytest.raises(ValueError, match=r"TwoStates has no feature_map.*feature_map=FeatureMap.from_batch"):
            wrapper(TwoStates())
    one = FeatureMap(("off",), np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match=r"feature_map is of 1 numbers \(off\), and observations are Box"):
        VectorReward(TwoStates(), feature_map=one)
    with pytest.raises(ValueError, match=r"only the reward has \['off'\]"):
        LearnedReward(TwoStates(), LEARNED, FeatureMap(("on", "out"), np.zeros(2), np.ones(2)))


@new_gymnasium
@pytest.mark.parametrize("mode", MODES)
def test_rows_are_paid_what_single_environments_pay(mode):
    from gymnasium.vector import SyncVectorEnv

    rows = SyncVectorEnv([lambda: TwoStates(last=2), TwoStates], autoreset_mode=AutoresetMode(mode))
    env = LearnedVectorReward(rows, LEARNED, feature_map=SEEN)
    env.reset(seed=3)
    first = [states(TwoStates(), seed) for seed in (3, 4)]
    for step in range(2):
        _, paid, _, _, infos = env.step(np.array([1, 1]))
        np.testing.assert_array_equal(paid, [-0.5 * (1 - on[step]) for on in first])
        np.testing.assert_array_equal(infos["original_reward"], [on[step] for on in first])
    if mode is AutoresetMode.NEXT_STEP:  # the first row is only reset
        _, paid, _, _, infos = env.step(np.array([1, 1]))
        assert paid[0] == 0
        assert infos["_original_reward"].tolist() == [False, True]
    env.close()


def test_a_vector_reward_by_hand():
    env = VectorReward(TwoStates(), feature_map=SEEN)
    assert env.reward_space == env.unwrapped.reward_space == gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.unwrapped.reward_dim == 2
    for on in states(env):
        _, paid, _, _, info = env.step(1)
        assert env.reward_space.contains(paid)
        np.testing.assert_array_equal(paid, [on, (1 - on) / 4])
        assert info["original_reward"] == on


def test_own_environments_pay_what_their_reward_weighs():
    weights = np.array([-0.3, -0.7])
    env = VectorReward(gym.make("cirl_gym:CIRLTumour-v0", weights=tuple(weights)), signs=(-1, -1))
    env.reset(seed=0)
    _, paid, _, _, info = env.step(1)
    np.testing.assert_array_equal(paid, -info["phi"].astype(np.float32))
    assert paid @ -weights == pytest.approx(info["original_reward"], abs=1e-6)
    for signs in ((1,), (0, 1)):
        with pytest.raises(ValueError, match="signs must be -1 or 1 for each of tumour, side_effects"):
            VectorReward(gym.make("cirl_gym:CIRLTumour-v0"), signs=signs)
