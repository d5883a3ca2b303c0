"""``CIRLTumour-v0`` for one patient."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
from env_runs import assert_refused, assert_same, episode
from gymnasium.utils.env_checker import check_env
from scripted import Scripted, plain_course, plain_returns
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.envs.tumour import TumourEnv

QUIET = TumourParameters(tumour_noise=0.0, side_noise=0.0)
LAYOUTS = [{}, {"previous_action": False}, {"observation": "dict"}, {"observation": "dict", "previous_action": False}]


@pytest.mark.parametrize("arguments", LAYOUTS)
def test_both_checkers_are_silent(arguments):
    env = gym.make("CIRLTumour-v0", **arguments)
    check_env(env.unwrapped)
    sb3_check_env(env.unwrapped)


def test_hand_computed_episode():
    # Treat twice from (30, 2) without noise: (30, 0.5), then (27.5, 1.2), as in test_simulator.
    env = TumourEnv(QUIET, weights=(-0.3, -0.7))
    seen, steps = episode(env, [1, 1], options={"patient": (30, 2)})
    np.testing.assert_allclose(seen, [[30, 2, 0, 0], [30, 0.5, 0, 1], [27.5, 1.2, 0, 1]], rtol=1e-6)
    # -.3 * 30 / 50 - .7 * .5 / 15 = -.18 - .0233333;  -.3 * 27.5 / 50 - .7 * 1.2 / 15 = -.165 - .056
    assert [step[0] for step in steps] == pytest.approx([-0.2033333, -0.221], abs=1e-6)
    np.testing.assert_allclose([step[3]["phi"] for step in steps], [[0.6, 1 / 30], [0.55, 0.08]], rtol=1e-6)


def test_layouts_show_the_same_numbers():
    flat, plain, named, bare = (TumourEnv(QUIET, **arguments) for arguments in LAYOUTS)
    for env in (flat, plain, named, bare):
        env.reset(options={"patient": (30, 2)})
    full = flat.step(0)[0]
    np.testing.assert_array_equal(full[2:], [1, 0])
    np.testing.assert_array_equal(plain.step(0)[0], full[:2])
    shown = named.step(0)[0]
    np.testing.assert_array_equal(shown["obs"], full[:2])
    np.testing.assert_array_equal(shown["previous_action"], full[2:])
    assert set(bare.step(0)[0]) == {"obs"}


@pytest.mark.parametrize(
    ("patient", "action", "last"),
    # Cured: 2 + 2.5 - 2.5 stays 2 at first, then falls by the doses; above: 48 + 2.5; toxic: 14 and more by each dose.
    [((2.0, 1.0), 1, "x == 0"), ((48.0, 2.0), 0, "x >= 50"), ((40.0, 14.0), 1, "z >= 15")],
)
def test_the_observation_that_ended_the_episode_is_shown(patient, action, last):
    seen, steps = episode(TumourEnv(QUIET), [action] * 20, options={"patient": patient})
    _, terminated, truncated, info = steps[-1]
    x, z = (float(value) for value in seen[-1][:2])
    assert (terminated, truncated) == (True, False)
    assert {"x == 0": x == 0, "x >= 50": x >= 50, "z >= 15": z >= 15}[last]
    np.testing.assert_allclose(info["phi"], [x / 50, z / 15], rtol=1e-6)
    plain = plain_course(patient, [action] * 20)
    np.testing.assert_allclose([obs[:2] for obs in seen], plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_returns_match_a_monte_carlo_of_the_equations(chance):
    env, rng = TumourEnv(), random.Random(1)
    env.reset(seed=3)
    earned = []
    for _ in range(250):
        _, steps = episode(env, (int(rng.random() < chance) for _ in range(20)))
        earned.append(sum(step[0] for step in steps))
    plain = plain_returns(chance, 1000, seed=2)
    error = np.hypot(np.std(earned) / np.sqrt(len(earned)), plain.std() / np.sqrt(len(plain)))
    assert abs(np.mean(earned) - plain.mean()) < 4 * error
    # The error is small enough to notice a wrong constant.
    assert error < 0.1


class TestTimeLimit:
    """Who stops an episode, and when: the balanced patient is never cured and never fails."""

    balanced = ({"patient": (30.0, 2.0)}, [1, 0, 0, 0, 0] * 20)

    def lengths(self, env):
        options, actions = self.balanced
        _, steps = episode(env, actions, seed=0, options=options)
        assert not any(step[1] for step in steps)
        return len(steps), steps[-1][2]

    def test_step_20_and_not_before_or_the_horizon_of_a_directly_built_environment(self):
        assert self.lengths(gym.make("CIRLTumour-v0")) == (20, True)
        assert self.lengths(TumourEnv()) == (20, True)
        assert gym.spec("CIRLTumour-v0").max_episode_steps == 20
        assert self.lengths(TumourEnv(TumourParameters(horizon=33))) == (33, True)
        with pytest.raises(ValueError, match="max_episode_steps=33"):
            gym.make("CIRLTumour-v0", parameters=TumourParameters(horizon=33))
        assert self.lengths(TumourEnv(max_episode_steps=-1)) == (100, False)

    def test_another_limit_leaves_the_course_alone(self):
        actions = [1, 0] * 10
        short, _ = episode(gym.make("CIRLTumour-v0", max_episode_steps=5), actions, seed=4)
        long, _ = episode(gym.make("CIRLTumour-v0", max_episode_steps=50), actions, seed=4)
        np.testing.assert_array_equal(short, long[: len(short)])

    def test_termination_at_the_last_step_wins(self):
        # Without treatment 48 grows beyond 50 in the first step, which is here also the last.
        env = TumourEnv(TumourParameters(horizon=1))
        env.reset(seed=0, options={"patient": (48.9, 2.0)})
        assert env.step(0)[2:4] == (True, False)


def test_the_noise_of_a_seed_is_the_same_with_any_patient():
    a, _ = episode(TumourEnv(), [0, 1, 0], seed=1, options={"patient": (30, 5)})
    b, _ = episode(TumourEnv(), [0, 1, 0], seed=1, options={"patient": (31, 6)})
    # Both coordinates are averages plus the same noise, so a difference of 1 stays 1.
    np.testing.assert_allclose(np.array(b)[:, :2] - np.array(a)[:, :2], 1.0, atol=1e-5)


class TestOptions:
    def test_the_constructors_hold_for_every_episode_and_resets_for_one(self):
        env = gym.make("CIRLTumour-v0", patient=(30, 2), noise=False, weights=(-1, 0))
        for _ in range(2):
            obs, info = env.reset(seed=0)
            assert obs[:2].tolist() == [30, 2]
            told = {"patient": np.array([30.0, 2.0]), "noise": np.zeros(2), "weights": np.array([-1.0, 0.0])}
            assert_same(info, told)
            assert env.step(0)[1] == pytest.approx(-32.5 / 50)
        _, info = env.reset(options={"patient": (20, 3), "weights": (0, -1)})
        assert info["weights"].tolist() == [0, -1]
        assert env.step(1)[1] == pytest.approx(-1.5 / 15)
        assert env.reset()[0][:2].tolist() == [30, 2]
        assert env.step(0)[1] == pytest.approx(-32.5 / 50)

    def test_noise_is_that_of_the_option(self):
        plain = plain_course((30, 2), [1, 0, 0, 1])
        for noise in (False, 0, (0.0, 0.0), np.zeros(2)):
            seen, _ = episode(TumourEnv(), [1, 0, 0, 1], options={"patient": (30, 2), "noise": noise})
            np.testing.assert_allclose([obs[:2] for obs in seen], plain, rtol=1e-5)
        first, _ = episode(TumourEnv(), [1], seed=3, options={"patient": (30, 5)})
        half = TumourEnv()
        _, info = half.reset(seed=3, options={"patient": (30, 5), "noise": 0.05})
        assert info["noise"].tolist() == [0.05, 0.05]
        # One step from (30, 5): (30, 3.5) plus noise.
        expected = (30, 3.5) + (np.array(first[1][:2], dtype=np.float64) - (30, 3.5)) / 2
        np.testing.assert_allclose(half.step(1)[0][:2], expected, atol=1e-5)
        assert TumourEnv().reset(options={"noise": True})[1]["noise"].tolist() == [0.1, 0.1]

    def test_a_history_goes_on_as_it_would_have(self):
        actions = [1, 0, 1, 1, 0, 0, 1, 0]
        whole, _ = episode(TumourEnv(), actions, seed=1, options={"noise": False})
        batch = rollout(TumourWorld(QUIET), Scripted(0.4), 3, np.random.default_rng(0))
        for k in (0, 1, 4, 7):
            env = TumourEnv(noise=False)
            options = {"history": ([o[:2] for o in whole[: k + 1]], actions[:k])}
            assert env.reset(options=options)[1]["step"] == k
            rest, _ = episode(env, actions[k:], options=options)
            np.testing.assert_array_equal(rest[0], whole[k])
            np.testing.assert_allclose(rest, whole[k:], rtol=1e-5, atol=1e-5)
        obs, info = TumourEnv(max_episode_steps=25).reset(options={"history": batch.take(np.array([1]))})
        length = batch.lengths[1]
        assert info["step"] == length
        np.testing.assert_array_equal(obs[:2], batch.obs[1, length])

    def test_a_history_counts_towards_the_time_limit_and_a_shorter_horizon_holds_for_one_episode(self):
        history, made = {"history": ([(30, 2), (30, 0.5), (32, 0)], [1, 0])}, gym.make("CIRLTumour-v0")
        shorter, plain = {"horizon": 3, "patient": (30, 2)}, {"patient": (30, 2)}
        for env, options, steps in (
            (TumourEnv(), history, 18),
            (made, history, 18),
            (made, shorter, 3),
            (made, plain, 20),
        ):
            _, taken = episode(env, [1, 0, 0, 0, 0] * 5, seed=0, options=options)
            assert (len(taken), *taken[-1][1:3]) == (steps, False, True)

    def test_parameters_of_one_episode(self):
        env = TumourEnv()
        other = TumourParameters(tumour_effect=-1.0, tumour_noise=0.0, side_noise=0.0)
        _, info = env.reset(options={"patient": (30, 5), "parameters": other})
        assert info["parameters"] == other
        # 30 - 1 + 2.5 and 5 + 1 - 2.5.
        np.testing.assert_allclose(env.step(1)[0][:2], [31.5, 3.5], rtol=1e-6)
        env.reset(options={"patient": (30, 5), "noise": False})
        np.testing.assert_allclose(env.step(1)[0][:2], [30, 3.5], rtol=1e-6)

    def test_an_option_changes_nothing_but_what_it_names(self):
        a, _ = episode(TumourEnv(), [1, 0, 1], seed=5)
        b, _ = episode(TumourEnv(), [1, 0, 1], seed=5, options={"weights": (0, -1), "horizon": 19, "noise": True})
        np.testing.assert_array_equal(a, b)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"patients": (30, 2)}, "unknown option 'patients'"),
            *(({"patient": given}, "first observation") for given in ((30,), (float("nan"), 2))),
            ({"patient": "30, 2"}, "must be numbers"),
            *(({"patient": (x, 2)}, "x must lie") for x in (50, 0)),
            *(({"patient": (30, z)}, "z must lie") for z in (15, -1)),
            ({"patient": (30, 2), "history": ([(30, 2)], [])}, "'patient' and 'history'"),
            ({"history": ([(30, 2), (31, 2)], [0, 1])}, "shapes"),
            ({"history": ([(30, 2), (31, 2)], [2])}, "from 0 to 1"),
            ({"history": ([(30, 2), (31, 2)], [0.5])}, "whole numbers"),
            ({"history": ([(30, 2), (0, 2)], [1])}, "x must lie"),
            ({"history": ([(30, 2, 1)], [])}, "2 finite numbers"),
            ({"history": 3}, "pair"),
            ({"history": ([(30, 2)] * 21, [0] * 20)}, "leaves nothing"),
            *(({"noise": noise}, "noise") for noise in (-1, "loud")),
            ({"noise": (0.1, 0.2)}, "observation space"),
            ({"weights": (1, 1)}, "weights must"),
            *(({"horizon": horizon}, "horizon") for horizon in (0, True)),
            ({"horizon": 21}, "can only shorten the time limit of 20.*max_episode_steps=21"),
            ({"parameters": {"order": 5}}, "TumourParameters"),
            ({"parameters": TumourParameters(order=4)}, "order"),
            ({"parameters": TumourParameters(tumour_max=60)}, "tumour_max"),
            ({"parameters": TumourParameters(tumour_drift=9)}, "observation space"),
        ],
    )
    def test_a_bad_option_leaves_the_state_alone(self, options, message):
        assert_refused(TumourEnv, lambda env: env.reset(seed=99, options=options), message)

    @pytest.mark.parametrize("weights", [(-0.3, -0.7), (-0.7, -0.3), (-1, 0), (0, -1), (0.5, -0.5), (0, 0)])
    def test_good_weights_bound_the_reward(self, weights):
        _, steps = episode(TumourEnv(weights=weights), [1] * 20, seed=0)
        assert all(abs(step[0]) <= sum(map(abs, weights)) + 1e-9 for step in steps)

    def test_bad_arguments(self):
        for w in ((-0.5, -0.6), (-1,), (-0.3, -0.3, -0.4), (float("nan"), 0), ("a", "b"), (float("inf"), 0)):
            with pytest.raises(ValueError, match="weights must"):
                TumourEnv(weights=w)
        with pytest.raises(ValueError, match="observation must"):
            TumourEnv(observation="image")
        with pytest.raises(ValueError, match="render_mode must"):
            TumourEnv(render_mode="film")
        with pytest.raises(TypeError, match="'weight'; options are patient"):
            gym.make("CIRLTumour-v0", weight=(0, 0))
        with pytest.raises(ValueError, match="x must lie"):
            gym.make("CIRLTumour-v0", patient=(60, 2))
