"""The native vector form of both environments against single ones: the same to the last bit in every mode."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
from env_runs import (
    CHANCES,
    IDS,
    MODES,
    AutoresetMode,
    assert_refused,
    assert_same,
    assert_single_courses,
    copied,
    cut,
    drive,
    native,
    sync,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from outcome_batches import linear_system, random_model

from cirl_gym import FeatureMap, TumourParameters
from cirl_gym.envs.process import RowStreams
from cirl_gym.envs.tumour import TumourEnv, TumourVectorEnv

if AutoresetMode is None:
    pytest.skip("the native vector environments need gymnasium >= 1.1", allow_module_level=True)

SEEN = ("tumour", "side_effects", "Given(1)", "Switched()")
KNOWN = FeatureMap(("Given(1)", "tumour", "Switched()"), np.zeros(3), np.array([1.0, 50.0, 1.0]), SEEN)
WEIGHTS = (0.2, -0.5, -0.3)
ARGUMENTS = {
    "CIRLTumour-v0": [
        {},
        {"observation": "dict"},
        {"previous_action": False, "max_episode_steps": 45},
        {"patient": (30, 2), "weights": (0, -1), "noise": 0.05},
        {"history": ([(30, 2), (31, 1)], [1])},
        {"forbid": ["1 when Above(side_effects, 2)"], "max_episode_steps": 6},
        {"feature_map": KNOWN, "weights": WEIGHTS, "history": ([(30, 2), (31, 1)], [1])},
    ],
    "CIRLCounterfactual-v0": [
        {},
        {"observation": "dict", "outcome": "sampled"},
        {"previous_action": False, "max_episode_steps": 45, "weights": (-0.5, 0.5)},
        {"episode": 3, "step": 2, "outcome": "sampled"},
        {"patient": (30, 2), "horizon": 12},
        {"forbid": ["1 when Above(side_effects, 2)"], "max_episode_steps": 6},
        {"feature_map": KNOWN, "weights": WEIGHTS, "outcome": "sampled"},
    ],
}
CASES = [(env_id, arguments) for env_id in IDS for arguments in ARGUMENTS[env_id]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_returns_what_gymnasiums_own_vectorisation_returns(env_id, arguments, mode):
    native_env, sync_env = (make(env_id, mode, **arguments) for make in (native, sync))
    ruled = "forbid" in arguments
    ours = drive(native_env, 90, masks=native_env.action_masks if ruled else None)
    theirs = drive(sync_env, 90, masks=(lambda: np.stack(sync_env.call("action_masks"))) if ruled else None)
    terminated = truncated = False
    for a, b in zip(ours, theirs, strict=True):
        if len(b) == 5:
            # Gymnasium's TimeLimit reports an end at the last step as both; here the process's own end wins.
            b = (*b[:3], b[3] & ~b[2], b[4])
            terminated, truncated = terminated or a[2].any(), truncated or a[3].any()
        assert_same(a, b)
    assert truncated
    assert terminated or arguments


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_options_of_reset_hold_until_the_next_reset(env_id, mode):
    options = {"patient": (30, 2), "weights": (0, -1), "horizon": 7}
    ours, theirs = (drive(make(env_id, mode), 40, options=options) for make in (native, sync))
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a[:2], b[:2])


@pytest.mark.parametrize("env_id", IDS)
def test_rows_can_be_given_options_of_their_own(env_id):
    patients, weights = np.array([[30.0, 2.0], [20.0, 1.0], [25.0, 4.0]]), np.array([[0, -1.0], [-1, 0], [-0.5, 0.5]])
    env = native(env_id, AutoresetMode.DISABLED)
    obs, info = env.reset(seed=5, options={"patient": patients, "weights": weights})
    assert_same(info["patient"], patients)
    rewards = env.step(np.array([1, 0, 1]))[1]
    for i in range(3):
        single = gym.make(env_id)
        seen, _ = single.reset(seed=5 + i, options={"patient": patients[i], "weights": weights[i]})
        np.testing.assert_array_equal(seen, obs[i])
        assert single.step([1, 0, 1][i])[1] == rewards[i]
    # Only the row of the mask begins, and it alone goes back to the constructor's weights.
    env.reset(options={"reset_mask": np.array([False, True, False])})
    _, rewards, _, _, info = env.step(np.array([1, 1, 1]))
    default = np.array(env.weights)
    expected = [info["phi"][0] @ weights[0], info["phi"][1] @ default, info["phi"][2] @ weights[2]]
    np.testing.assert_allclose(rewards, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_weights_of_the_rows_hold_for_every_episode(env_id, mode):
    weights = np.array([[-1.0, 0.0], [0.0, -1.0], [-0.5, 0.5]])
    env = native(env_id, mode, weights=weights, max_episode_steps=3)
    for result in drive(env, 9):
        if len(result) == 5 and "phi" in result[4]:
            told = result[4]["_phi"]
            np.testing.assert_allclose(result[1][told], (result[4]["phi"] * weights).sum(axis=1)[told], rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "form"), [*((i, "native") for i in IDS), (IDS[0], "sync"), (IDS[0], "async")])
def test_cut_into_episodes_it_is_the_single_environment(env_id, form, mode):
    chosen = {"autoreset_mode": mode} | ({"context": "spawn"} if form == "async" else {})
    if form == "native":
        env = native(env_id, mode)
    else:
        env = gym.make_vec(f"cirl_gym:{env_id}", 3, form, vector_kwargs=chosen)
    try:
        found, used = cut(env, (np.random.default_rng(1).random((60, 3)) < CHANCES).astype(np.int64), mode)
    finally:
        env.close()
    assert all(len(episodes) >= 2 for episodes in found)
    assert env_id != IDS[0] or all(len({len(seen) for seen in episodes}) > 1 for episodes in found[:2])
    assert_single_courses(env_id, found, used)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("n", [2, 15, 16, 17, 300])
def test_a_row_does_not_depend_on_how_many_others_there_are(env_id, n):
    rng, few, many = np.random.default_rng(0), native(env_id, MODES[0], 1), native(env_id, MODES[0], n)
    assert few.reset(seed=3)[0].tobytes() == many.reset(seed=3)[0][:1].tobytes()
    for actions in rng.integers(2, size=(45, n)):
        a, b = few.step(actions[:1]), many.step(actions)
        for x, y in zip(a[:4], b[:4], strict=True):
            assert x.tobytes() == y[:1].tobytes()


@pytest.mark.parametrize("kind", ["ar", "crn", "mb_h"])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 33, 300])
def test_networks_treat_every_row_alone_too(kind, n):
    model, batch = random_model(kind), linear_system(40, seed=0)
    arguments = {"model": model, "batch": batch, "outcome": "sampled"}
    rng, whole = np.random.default_rng(0), native("CIRLCounterfactual-v0", MODES[0], 512, **arguments)
    part = native("CIRLCounterfactual-v0", MODES[0], n, **arguments)
    assert part.reset(seed=3)[0].tobytes() == whole.reset(seed=3)[0][:n].tobytes()
    for actions in rng.integers(3, size=(12, 512)):
        # Matrix products of some processors add up a few rows in another order than many.
        for a, b in zip(part.step(actions[:n])[:4], whole.step(actions)[:4], strict=True):
            np.testing.assert_allclose(a, b[:n], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", MODES)
def test_nothing_returned_is_shared_with_the_environment(env_id, mode):
    env, reference = (native(env_id, mode, max_episode_steps=4) for _ in range(2))
    assert_same(drive_and_spoil(env, True), drive_and_spoil(reference, False))


def drive_and_spoil(env, spoil):
    """Deep copies of what an environment returns; the arrays themselves are overwritten as soon as they are there."""
    returned, result = [], env.reset(seed=1)
    for _ in range(14):
        returned.append(copy.deepcopy(result))
        ended = returned[-1][2] | returned[-1][3] if len(result) == 5 else np.zeros(3, dtype=bool)
        for array in arrays(result) if spoil else ():
            array[...] = True if array.dtype == bool else None if array.dtype == object else 77
        if env.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            result = env.reset(options={"reset_mask": ended})
        else:
            result = env.step(np.array([1, 0, 1]))
    return returned


def arrays(result):
    for part in result:
        if isinstance(part, dict):
            yield from arrays(part.values())
        elif isinstance(part, np.ndarray):
            yield part


@pytest.mark.parametrize("env_id", IDS)
@copied
def test_a_copy_goes_on_like_the_original(env_id, copied):
    env = native(env_id, AutoresetMode.SAME_STEP, max_episode_steps=50)
    env.reset(seed=0)
    env.step(np.array([0, 1, 0]))
    twin, rng = copied(env), np.random.default_rng(0)
    for actions in rng.integers(2, size=(160, 3)):
        assert_same(env.step(actions), twin.step(actions))


def test_every_row_has_its_own_seed_and_a_partial_reset_leaves_the_other_rows_alone():
    env, reference = TumourVectorEnv(3), TumourVectorEnv(3)
    obs, _ = env.reset(seed=7)
    assert_same(env.reset(seed=[9, 7, 8])[0][1:], obs[:2])
    assert env.np_random_seed == (9, 7, 8)
    for e in (env, reference):
        e.reset(seed=0)
        e.step(np.array([1, 0, 1]))
    options = {"reset_mask": np.array([False, True, False])}
    obs, _ = env.reset(seed=[None, 42, None], options=options)
    assert set(options) == {"reset_mask"}, "the caller's own"
    np.testing.assert_array_equal(obs[1], TumourEnv().reset(seed=42)[0])
    after, untouched = env.step(np.array([1, 1, 1]))[0], reference.step(np.array([1, 1, 1]))[0]
    np.testing.assert_array_equal(after[[0, 2]], untouched[[0, 2]])
    assert env.np_random_seed == (0, 42, 2)


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_is_declared_on_the_object_alone(mode):
    env = native("CIRLTumour-v0", mode)
    assert env.metadata["autoreset_mode"] is env.autoreset_mode is mode
    assert TumourVectorEnv(1).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "autoreset_mode" not in TumourVectorEnv.metadata
    assert native("CIRLTumour-v0", mode.value).autoreset_mode is mode


def test_the_horizon_counts_where_nothing_else_is_said_and_no_other_limit_is_taken():
    parameters = TumourParameters(horizon=33)
    with pytest.raises(ValueError, match="max_episode_steps=33"):
        gym.make_vec("CIRLTumour-v0", num_envs=1, parameters=parameters)
    made = gym.make_vec("CIRLTumour-v0", 1, parameters=parameters, max_episode_steps=33)
    for env in (TumourVectorEnv(1, parameters=parameters), made):
        env.reset(seed=0, options={"patient": (30, 2)})
        ends = [env.step(np.array([t % 5 == 0], dtype=int))[2:4] for t in range(33)]
        assert [bool(truncated[0]) for _, truncated in ends] == [False] * 32 + [True]
        assert not any(terminated[0] for terminated, _ in ends)


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
        good = np.array([1, 0, 1])
        assert_refused(lambda: TumourVectorEnv(3), lambda env: env.step(np.array(actions)), message, good)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"options": {"mask": 1}}, "unknown option 'mask'"),
            *(({"options": {"reset_mask": mask}}, "reset_mask") for mask in (np.zeros(3, bool), np.array([1, 0, 0]))),
            ({"options": {"patient": np.full((2, 2), 3.0)}}, "first observation"),
            ({"options": {"patient": [[30, 2], [30, 2], [51, 2]]}}, "x must lie"),
            ({"options": {"weights": [[0, -1], [0, -1], [1, 1]]}}, "weights must"),
            ({"options": {"horizon": 21}}, "can only shorten"),
            ({"seed": [1, 2]}, "one seed per row"),
            ({"seed": [5, -1, 6]}, "Seed must be"),
        ],
    )
    def test_bad_resets_leave_the_state_alone(self, arguments, message):
        def bad(env):
            env.reset(**{"seed": 5, **arguments})

        good, error = np.array([1, 0, 1]), (ValueError, gym.error.Error)
        assert_refused(lambda: TumourVectorEnv(3), bad, message, good, error=error)

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
        for env_id in IDS:
            with pytest.raises(TypeError, match="'patiens'"):
                native(env_id, MODES[0], patiens=(30, 2))
        with pytest.raises(ValueError, match="num_envs"):
            TumourVectorEnv(0)
        with pytest.raises(ValueError, match="max_episode_steps"):
            TumourVectorEnv(1, 0)
        with pytest.raises(ValueError, match="weights must"):
            TumourVectorEnv(1, weights=(1, 1))


def test_gymnasiums_vector_wrappers_work():
    env = gym.wrappers.vector.RecordEpisodeStatistics(native("CIRLTumour-v0", AutoresetMode.NEXT_STEP))
    env.reset(seed=0)
    lengths = []
    for _ in range(45):
        info = env.step(np.array([0, 0, 0]))[4]
        if "episode" in info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
    assert len(lengths) >= 6
    assert all(4 <= length <= 20 for length in lengths)


@pytest.mark.parametrize("kind", ["normal", "uniform"])
@given(takes=st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=25), ahead=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_a_row_gets_its_generators_numbers_in_order(kind, takes, ahead):
    streams = RowStreams(4, 2, kind, ahead)
    streams.use(range(4), [np.random.default_rng(i) for i in range(4)])
    got = [[] for _ in range(4)]
    for k, rows in enumerate(takes):
        if k % 2:
            chosen = np.array(sorted(rows), dtype=np.int64)
            for i, numbers in zip(chosen, streams.take(chosen), strict=True):
                got[i].append(numbers)
        else:
            going = np.isin(np.arange(4), list(rows))
            numbers = streams.take_all(going)
            for i in np.flatnonzero(going):
                got[i].append(numbers[i])
    for i in range(4):
        rng = np.random.default_rng(i)
        drawn = rng.standard_normal((50, 2)) if kind == "normal" else rng.random((50, 2))
        np.testing.assert_array_equal(np.reshape(got[i], (-1, 2)), drawn[: len(got[i])])


def test_a_new_generator_begins_at_its_own_beginning_and_the_same_one_goes_on():
    streams, rng = RowStreams(1, 1, "uniform", 5), np.random.default_rng(0)
    drawn = np.random.default_rng(0).random(4)
    row = np.array([0])
    streams.use([0], [rng])
    assert streams.take(row).item() == drawn[0]
    streams.use([0], [rng])
    assert streams.take(row).item() == drawn[1]
    streams.use([0], [np.random.default_rng(0)])
    assert streams.take(row).item() == drawn[0]
    # With one ahead the generator stays where the last number was.
    streams, rng, reference = RowStreams(1, 2, "normal", 1), np.random.default_rng(0), np.random.default_rng(0)
    streams.use([0], [rng])
    streams.take(row)
    reference.standard_normal(2)
    assert rng.bit_generator.state == reference.bit_generator.state
