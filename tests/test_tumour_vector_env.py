"""The native vector form of ``CIRLTumour-v0`` against single environments."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

from cirl_gym import TumourParameters
from cirl_gym.tumour_env import TumourEnv

AutoresetMode = getattr(gym.vector, "AutoresetMode", None)
if AutoresetMode is None:
    pytest.skip("the native vector environment needs gymnasium >= 1.1", allow_module_level=True)

from cirl_gym.tumour_vector_env import TumourVectorEnv  # noqa: E402

MODES = list(AutoresetMode)
# Three patients with episodes of different lengths: cured, failing, and kept for the whole horizon.
CHANCES = np.array([1.0, 0.0, 0.2])


def native(mode, n=3, **arguments):
    return gym.make_vec("CIRLTumour-v0", num_envs=n, autoreset_mode=mode, **arguments)


def sync(mode, n=3, **arguments):
    vector_kwargs = {"autoreset_mode": mode}
    return gym.make_vec("CIRLTumour-v0", n, "sync", vector_kwargs=vector_kwargs, **arguments)


def drive(env, steps, seed=7):
    """Everything that a vector environment returns over several episodes, with resets where the mode needs them."""
    rng = np.random.default_rng(0)
    returned = [env.reset(seed=seed)]
    for _ in range(steps):
        actions = (rng.random(env.num_envs) < CHANCES).astype(np.int64)
        result = env.step(actions)
        returned.append(result)
        ended = result[2] | result[3]
        if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            returned.append(env.reset(options={"reset_mask": ended}))
    return returned


def assert_same(a, b):
    """Equal to the last bit, through dictionaries and object arrays."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            assert_same(a[name], b[name])
    elif isinstance(a, tuple) or (isinstance(a, np.ndarray) and a.dtype == object):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif a is None:
        assert b is None
    else:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "arguments", [{}, {"observation": "dict"}, {"previous_action": False, "max_episode_steps": 45}]
)
def test_returns_what_gymnasiums_own_vectorisation_returns(mode, arguments):
    ours, theirs = drive(native(mode, **arguments), 120), drive(sync(mode, **arguments), 120)
    lengths = set()
    for a, b in zip(ours, theirs, strict=True):
        if len(b) == 5:
            # Gymnasium's TimeLimit reports an end at the last step as both; here the process's own end wins.
            b = (*b[:3], b[3] & ~b[2], b[4])
            lengths.add((bool(a[2].any()), bool(a[3].any())))
        assert_same(a, b)
    # Ends of both kinds happened.
    assert {(True, False), (False, True)} <= lengths


@pytest.mark.parametrize("mode", MODES)
def test_cut_into_episodes_it_is_the_single_environments(mode):
    steps, rng, env = 60, np.random.default_rng(1), native(mode)
    actions = (rng.random((steps, 3)) < CHANCES).astype(np.int64)
    episodes = [[] for _ in range(3)]
    obs, _ = env.reset(seed=7)
    current = [[o] for o in obs]
    dead = np.zeros(3, dtype=bool)
    used = [[] for _ in range(3)]
    for t in range(steps):
        obs, rewards, terminated, truncated, info = env.step(actions[t])
        ended = terminated | truncated
        for i in range(3):
            if dead[i]:  # next-step mode: this action was not used
                current[i] = [obs[i]]
                assert rewards[i] == 0
                continue
            used[i].append(int(actions[t, i]))
            last = info["final_obs"][i] if mode is AutoresetMode.SAME_STEP and ended[i] else obs[i]
            current[i].append(last)
            if ended[i]:
                episodes[i].append(np.array(current[i]))
                current[i] = [obs[i]]
        dead = ended if mode is AutoresetMode.NEXT_STEP else np.zeros(3, dtype=bool)
        if mode is AutoresetMode.DISABLED and ended.any():
            fresh, _ = env.reset(options={"reset_mask": ended})
            for i in np.flatnonzero(ended):
                current[i] = [fresh[i]]
    assert all(len(found) >= 2 for found in episodes)
    for i in range(3):
        single = TumourEnv()
        obs, _ = single.reset(seed=7 + i)
        remaining = iter(used[i])
        for found in episodes[i]:
            expected = [obs]
            while True:
                obs, _, terminated, truncated, _ = single.step(next(remaining))
                expected.append(obs)
                if terminated or truncated:
                    break
            assert found.tobytes() == np.array(expected).tobytes()
            obs, _ = single.reset()


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


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_thousand_episodes_stay_inside_the_space(chance):
    env = TumourVectorEnv(100, autoreset_mode=AutoresetMode.SAME_STEP)
    rng = np.random.default_rng(0)
    # x_0 near the limit in half of the rows.
    patients = np.where(np.arange(100)[:, None] % 2, [30.0, 2.0], [49.9, 14.9])
    obs, _ = env.reset(seed=0, options={"patient": patients})
    ended = 0
    while ended < 1000:
        assert obs in env.observation_space
        obs, rewards, _, _, info = env.step((rng.random(100) < chance).astype(np.int64))
        assert np.isfinite(rewards).all()
        finals = [o for o in info.get("final_obs", []) if o is not None]
        assert all(o in env.single_observation_space for o in finals)
        ended += len(finals)


def test_nothing_returned_is_shared_with_the_environment():
    env, reference = TumourVectorEnv(3), TumourVectorEnv(3)
    returned = [env.reset(seed=1)[0]]
    reference.reset(seed=1)
    for _ in range(12):
        for array in returned:
            array[:] = 0
        obs, rewards, terminated, truncated, info = env.step(np.array([1, 0, 1]))
        assert_same((obs, rewards, terminated, truncated, info), reference.step(np.array([1, 0, 1])))
        returned = [obs, rewards, terminated, truncated, *info.values()]


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
            ({"options": {"patient": np.full((2, 2), 3.0)}}, "pair"),
            ({"options": {"patient": [[30, 2], [30, 2], [51, 2]]}}, "x0"),
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


@pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_like_the_original(again):
    env = native(AutoresetMode.SAME_STEP, max_episode_steps=50)
    env.reset(seed=0)
    twin = again(env)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(2, size=3)
        assert_same(env.step(actions), twin.step(actions))


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


def test_worker_processes_find_the_environment():
    env = gym.make_vec("cirl_gym:CIRLTumour-v0", 2, "async", vector_kwargs={"context": "spawn"})
    try:
        obs, _ = env.reset(seed=7)
        after = env.step(np.array([1, 0]))[0]
    finally:
        env.close()
    here = TumourVectorEnv(2)
    np.testing.assert_array_equal(obs, here.reset(seed=7)[0])
    np.testing.assert_array_equal(after, here.step(np.array([1, 0]))[0])
