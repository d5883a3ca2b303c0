"""The native vector form of ``CIRLTumour-v0`` against single environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from env_runs import assert_same

from cirl_gym import TumourParameters
from cirl_gym.envs.tumour import TumourEnv

AutoresetMode = getattr(gym.vector, "AutoresetMode", None)
if AutoresetMode is None:
    pytest.skip("the native vector environment needs gymnasium >= 1.1", allow_module_level=True)

from cirl_gym.envs.tumour import TumourVectorEnv  # noqa: E402

MODES = list(AutoresetMode)


def native(mode, n=3, **arguments):
    return gym.make_vec("CIRLTumour-v0", num_envs=n, autoreset_mode=mode, **arguments)


def test_every_row_has_its_own_seed():
    obs, _ = native(AutoresetMode.NEXT_STEP).reset(seed=7)
    for i in range(3):
        np.testing.assert_array_equal(obs[i], TumourEnv().reset(seed=7 + i)[0])
    env = TumourVectorEnv(3)
    assert_same(env.reset(seed=[9, 7, 8])[0][1:], obs[:2])
    assert env.np_random_seed == (9, 7, 8)


def test_a_partial_reset_with_seeds_leaves_the_other_rows_alone():
    env, reference = TumourVectorEnv(3), TumourVectorEnv(3)
    for e in (env, reference):
        e.reset(seed=0)
        e.step(np.array([1, 0, 1]))
    obs, _ = env.reset(seed=[None, 42, None], options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(obs[1], TumourEnv().reset(seed=42)[0])
    after, untouched = env.step(np.array([1, 1, 1]))[0], reference.step(np.array([1, 1, 1]))[0]
    np.testing.assert_array_equal(after[[0, 2]], untouched[[0, 2]])
    assert env.np_random_seed == (0, 42, 2)


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_is_declared_on_the_object_alone(mode):
    env = native(mode)
    assert env.metadata["autoreset_mode"] is env.autoreset_mode is mode
    assert TumourVectorEnv(1).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "autoreset_mode" not in TumourVectorEnv.metadata
    assert native(mode.value).autoreset_mode is mode


class TestTimeLimit:
    actions = np.array([[1], [0], [0], [0], [0]] * 20)

    def length(self, env):
        env.reset(seed=0, options={"patient": (30, 2)})
        for t, action in enumerate(self.actions, start=1):
            _, _, terminated, truncated, _ = env.step(action)
            assert not terminated[0]
            if truncated[0]:
                return t
        return None

    @pytest.mark.parametrize(("asked", "steps"), [({}, 20), (50, 50), (5, 5), (-1, None)])
    def test_max_episode_steps_is_obeyed(self, asked, steps):
        arguments = {} if asked == {} else {"max_episode_steps": asked}
        assert self.length(gym.make_vec("CIRLTumour-v0", num_envs=1, **arguments)) == steps

    def test_the_horizon_counts_where_nothing_else_is_said(self):
        assert self.length(TumourVectorEnv(1, parameters=TumourParameters(horizon=33))) == 33

    def test_two_limits_that_differ_are_refused(self):
        parameters = TumourParameters(horizon=33)
        with pytest.raises(ValueError, match="max_episode_steps=33"):
            gym.make_vec("CIRLTumour-v0", num_envs=1, parameters=parameters)
        assert self.length(gym.make_vec("CIRLTumour-v0", 1, parameters=parameters, max_episode_steps=33)) == 33


class TestBadInput:
    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            ([0, 1], "3 whole numbers"),
            ([0, 1, 2], "row 2 is 2"),
            ([-1, 1, 0], "row 0 is -1"),
            ([0.0, 1.0, 0.0], "float64"),
            ([[0], [1], [0]], "shape"),
        ],
    )
    def test_bad_actions_leave_the_state_alone(self, actions, message):
        env, reference = TumourVectorEnv(3), TumourVectorEnv(3)
        env.reset(seed=1)
        reference.reset(seed=1)
        with pytest.raises(ValueError, match=message):
            env.step(np.array(actions))
        assert_same(env.step(np.array([1, 0, 1])), reference.step(np.array([1, 0, 1])))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"options": {"mask": 1}}, "unknown option 'mask'"),
            ({"options": {"reset_mask": np.zeros(3, dtype=bool)}}, "reset_mask"),
            ({"options": {"reset_mask": np.array([1, 0, 0])}}, "reset_mask"),
            ({"options": {"patient": np.full((2, 2), 3.0)}}, "first observation"),
            ({"options": {"patient": [[30, 2], [30, 2], [51, 2]]}}, "x must lie"),
            ({"options": {"weights": [[0, -1], [0, -1], [1, 1]]}}, "weights must"),
            ({"options": {"horizon": 21}}, "can only shorten"),
            ({"seed": [1, 2]}, "one seed per row"),
        ],
    )
    def test_bad_resets_leave_the_state_alone(self, arguments, message):
        env, reference = TumourVectorEnv(3), TumourVectorEnv(3)
        env.reset(seed=1)
        reference.reset(seed=1)
        with pytest.raises(ValueError, match=message):
            env.reset(**{"seed": 5, **arguments})
        assert_same(env.step(np.array([1, 0, 1])), reference.step(np.array([1, 0, 1])))
        assert_same(env.reset(), reference.reset())

    def test_a_bad_seed_in_the_middle_changes_no_row(self):
        env, reference = TumourVectorEnv(3), TumourVectorEnv(3)
        env.reset(seed=1)
        reference.reset(seed=1)
        with pytest.raises(gym.error.Error):
            env.reset(seed=[5, -1, 6])
        assert_same(env.reset(), reference.reset())

    def test_reset_comes_first(self):
        env = TumourVectorEnv(2, autoreset_mode=AutoresetMode.DISABLED)
        with pytest.raises(gym.error.ResetNeeded):
            env.step(np.array([0, 0]))
        with pytest.raises(ValueError, match="first reset"):
            env.reset(options={"reset_mask": np.array([True, False])})
        env.reset(seed=0, options={"patient": [[48.9, 2], [30, 2]]})
        env.step(np.array([0, 0]))
        with pytest.raises(gym.error.ResetNeeded, match=r"rows \[0\]"):
            env.step(np.array([0, 0]))

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="num_envs"):
            TumourVectorEnv(0)
        with pytest.raises(ValueError, match="max_episode_steps"):
            TumourVectorEnv(1, 0)
        with pytest.raises(ValueError, match="weights must"):
            TumourVectorEnv(1, weights=(1, 1))


def test_reset_leaves_the_callers_options_alone():
    options = {"reset_mask": np.array([True, True, True])}
    TumourVectorEnv(3).reset(options=options)
    assert set(options) == {"reset_mask"}


def test_gymnasiums_vector_wrappers_work():
    env = gym.wrappers.vector.RecordEpisodeStatistics(native(AutoresetMode.NEXT_STEP))
    env.reset(seed=0)
    lengths = []
    for _ in range(45):
        info = env.step(np.array([0, 0, 0]))[4]
        if "episode" in info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
    assert len(lengths) >= 6
    assert all(4 <= length <= 20 for length in lengths)
