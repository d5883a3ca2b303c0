"""``CIRLCounterfactual-v0``: histories of a batch that go on as a model says."""

from __future__ import annotations

import shutil
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from env_runs import assert_refused, assert_same, episode
from gymnasium.utils.env_checker import check_env
from scripted import Scripted
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from cirl_gym import FeatureMap, TumourParameters, TumourWorld, rollout
from cirl_gym.envs.counterfactual import PACKAGED, CounterfactualEnv
from cirl_gym.envs.tumour import TumourEnv
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import FEATURES

QUIET = TumourParameters(tumour_noise=0.0, side_noise=0.0)
PHI = TumourParameters().feature_map
W = (-0.3, -0.7)


@pytest.fixture(scope="module")
def batch():
    return rollout(TumourWorld(), Scripted(0.5), 40, np.random.default_rng(0))


@pytest.fixture(scope="module")
def quiet_batch():
    return rollout(TumourWorld(QUIET), Scripted(0.4), 40, np.random.default_rng(0))


class Counting:
    """Increments of known size: the outcome of action a is the observation plus a, plus one more for each step."""

    features = FEATURES
    n_actions = 2
    noise_scale = np.zeros(2)

    def __init__(self, high=1000.0, end=0.0):
        self.bounds, self.end = (np.zeros(2), np.full(2, high)), np.float32(end)

    def noise(self, normals):
        return normals * self.noise_scale

    def encode(self, batch):
        return np.concatenate(
            [batch.obs, np.broadcast_to(np.arange(batch.horizon + 1), batch.obs.shape[:2])[..., None]], 2
        )

    def start(self, obs):
        return np.concatenate([obs, np.zeros((len(obs), 1), dtype=np.float32)], axis=1)

    def predict(self, states):
        return states[..., None, :2] + states[..., None, 2:] + np.array([[0], [1]], dtype=np.float32)

    def end_probability(self, states):
        return np.broadcast_to(self.end, (*states.shape[:-1], 2))

    def advance(self, states, actions, obs):
        return np.concatenate([obs, states[..., 2:] + 1], axis=-1)


@pytest.mark.parametrize(
    "arguments", [{}, {"outcome": "sampled", "weights": W}, {"end": "never"}, {"end": lambda obs: obs[:, 0] >= 50}]
)
def test_both_checkers_are_silent(batch, arguments):
    env = gym.make("CIRLCounterfactual-v0", model=OracleModel(), batch=batch, **arguments)
    check_env(env.unwrapped)
    sb3_check_env(env.unwrapped)


def test_hand_computed_increments(batch):
    ranges = FeatureMap(FEATURES, np.zeros(2), np.array([100.0, 10.0]))
    env = CounterfactualEnv(Counting(), batch, feature_map=ranges, weights=(-0.5, 0.5), end="never")
    obs, info = env.reset(options={"episode": 3})
    x, z = batch.obs[3, 0]
    assert_same(info, {"weights": np.array([-0.5, 0.5]), "episode": "3", "step": 0, "outside_support": False})
    np.testing.assert_array_equal(obs, np.array([x, z, 0, 0], dtype=np.float32))
    # Step 0, action 1: + 1 + 0.  Step 1, action 0: + 0 + 1.  Step 2, action 1: + 1 + 2.
    for action, total in ((1, 1), (0, 2), (1, 5)):
        obs, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_allclose(obs, [x + total, z + total, 1 - action, action], rtol=1e-6)
        np.testing.assert_allclose(info["phi"], [(x + total) / 100, (z + total) / 10], rtol=1e-6)
        assert reward == pytest.approx(-0.5 * (x + total) / 100 + 0.5 * (z + total) / 10, rel=1e-6)
        assert (terminated, truncated) == (False, False)


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_with_the_oracle_it_is_the_noise_free_simulator_step_for_step(quiet_batch, chance):
    rng = np.random.default_rng(0)
    imagined = CounterfactualEnv(OracleModel(QUIET), quiet_batch, feature_map=PHI, weights=W, horizon=20)
    simulator = TumourEnv(QUIET, weights=W)
    for k in range(15):
        actions = [int(number < chance) for number in rng.random(20)]
        a, mine = episode(imagined, actions, seed=k, options={"episode": k})
        b, theirs = episode(simulator, actions, options={"patient": quiet_batch.obs[k, 0]})
        np.testing.assert_allclose(a[0], b[0], rtol=1e-6)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        for one, two in zip(mine, theirs, strict=True):
            assert one[0] == pytest.approx(two[0], abs=1e-5)
            assert one[1:3] == two[1:3]
            np.testing.assert_allclose(one[3]["phi"], two[3]["phi"], atol=1e-5)


def test_it_goes_on_from_any_history(quiet_batch):
    """Replaying a noise-free episode's own actions from the middle gives the rest of the episode."""
    env = CounterfactualEnv(OracleModel(QUIET), quiet_batch, end="never")
    for k, (course, actions) in enumerate(list(quiet_batch.episodes())[:10]):
        step = min(6, len(actions) - 1)
        obs, info = env.reset(options={"episode": str(k), "step": step})
        assert (info["episode"], info["step"]) == (str(k), step)
        np.testing.assert_array_equal(obs[:2], course[step])
        assert obs[2:].argmax() == actions[step - 1]
        after = [env.step(int(action))[0][:2] for action in actions[step:]]
        np.testing.assert_allclose(after, course[step + 1 :], rtol=1e-4, atol=1e-4)


def test_a_given_history_goes_on_like_the_batchs_own(quiet_batch):
    env = CounterfactualEnv(OracleModel(QUIET), quiet_batch, end="never")
    for k in range(5):
        step = min(6, int(quiet_batch.lengths[k]) - 1)
        history = quiet_batch.obs[k, : step + 1], quiet_batch.actions[k, :step]
        assert env.reset(options={"history": history})[1]["step"] == step
        given, own = (episode(env, [1] * 3, options=o) for o in ({"history": history}, {"episode": k, "step": step}))
        np.testing.assert_array_equal(given[0], own[0])
    whole, _ = env.reset(options={"patient": quiet_batch.obs[0, 0]})
    np.testing.assert_array_equal(whole, env.reset(options={"episode": 0})[0])
    # So does a batch of one episode.
    env = CounterfactualEnv(OracleModel(QUIET), quiet_batch, end="never", horizon=25)
    obs, info = env.reset(options={"history": quiet_batch.take(np.array([2]))})
    assert info["step"] == quiet_batch.lengths[2]
    np.testing.assert_array_equal(obs[:2], quiet_batch.obs[2, quiet_batch.lengths[2]])


def test_no_argument_is_needed_and_it_foresees_what_the_simulator_does():
    env, simulator = gym.make("CIRLCounterfactual-v0"), TumourEnv(QUIET)
    assert env.reset(seed=0)[1]["episode"] in env.unwrapped.batch.ids
    assert env.unwrapped.features == FEATURES
    assert env.unwrapped.feature_map.high.tolist() == [50, 15]
    np.testing.assert_allclose(env.unwrapped.weights, W, atol=0.02)
    for seed in range(5):
        seen, steps = episode(env, [1, 0, 1, 1, 0, 0], seed=seed)
        assert seen[0] in env.observation_space
        assert steps[0][3]["phi"].shape == (2,)
        real, _ = episode(simulator, [1, 0, 1, 1, 0, 0], options={"patient": seen[0][:2]})
        np.testing.assert_allclose(np.array(seen)[:, :2], np.array(real)[:, :2], atol=0.3)


def test_the_packaged_model_foresees_side_effects_that_no_expert_of_its_batch_had():
    env, simulator = gym.make("CIRLCounterfactual-v0"), TumourEnv(QUIET)
    assert env.unwrapped.batch.obs[env.unwrapped.batch.seen][:, 1].max() < 8
    highest = []
    for seed in range(40):
        foreseen, _ = episode(env, [1] * 20, seed=seed)
        real, _ = episode(simulator, [1] * 20, options={"patient": foreseen[0][:2]})
        both = [np.array(seen)[: min(len(foreseen), len(real)), 1] for seen in (foreseen, real)]
        np.testing.assert_allclose(*both, atol=0.1)
        highest.append(both[0].max())
    assert max(highest) > 12


def test_the_packaged_run_is_small_can_be_copied_and_needs_all_its_files(tmp_path):
    assert sum(path.stat().st_size for path in PACKAGED.iterdir()) < 400_000
    assert sorted(path.name for path in PACKAGED.iterdir()) == ["batch.npz", "outcome_model.npz", "result.json"]
    shutil.copytree(PACKAGED, tmp_path / "run")
    a, b = gym.make("CIRLCounterfactual-v0"), gym.make("CIRLCounterfactual-v0", run=str(tmp_path / "run"))
    assert_same(a.reset(seed=1), b.reset(seed=1))
    assert_same(a.step(1), b.step(1))
    for path in PACKAGED.iterdir():
        (tmp_path / "run" / path.name).unlink()
        with pytest.raises((FileNotFoundError, ValueError), match=path.name):
            gym.make("CIRLCounterfactual-v0", run=tmp_path / "run")
        shutil.copy(path, tmp_path / "run")


class TestEnds:
    def run(self, env, action=0, **reset):
        _, steps = episode(env, [action] * 100, **reset)
        return len(steps), *steps[-1][1:3]

    def test_horizon(self, batch):
        assert batch.horizon == 20
        assert self.run(CounterfactualEnv(Counting(), batch, end="never"), seed=0) == (20, False, True)
        assert self.run(CounterfactualEnv(Counting(), batch, end="never", horizon=33), seed=0) == (33, False, True)
        env = gym.make("CIRLCounterfactual-v0", model=Counting(), batch=batch, end="never", horizon=33)
        assert self.run(env, seed=0) == (33, False, True)
        # A history counts.
        k = int(np.flatnonzero(batch.lengths > 5)[0])
        env = CounterfactualEnv(Counting(), batch, end="never")
        assert self.run(env, options={"episode": k, "step": 5}) == (15, False, True)

    def test_a_rule_sees_raw_observations_and_wins_over_the_horizon(self, batch):
        x = float(batch.obs[0, 0, 0])
        # With action 0 the increments are 0, 1, 2, 3: the sum reaches 6 in the fourth step.
        for horizon in (20, 4):
            env = CounterfactualEnv(Counting(), batch, end=lambda obs: obs[:, 0] >= x + 6 - 1e-3, horizon=horizon)
            assert self.run(env, options={"episode": 0}) == (4, True, False)

    def test_the_learned_end_is_drawn_with_the_models_probability(self, batch):
        quarter = Counting(end=0.25)
        env = CounterfactualEnv(quarter, batch, horizon=1000)
        env.reset(seed=0)
        lengths = [self.run(env)[0] for _ in range(400)]
        # Geometric: mean 4, standard deviation sqrt(.75) / .25 = 3.46, standard error .173.
        assert np.mean(lengths) == pytest.approx(4, abs=0.7)
        assert self.run(CounterfactualEnv(quarter, batch, end="never"), seed=0) == (20, False, True)


def test_outside_support_is_told_feature_by_feature(batch):
    live = np.concatenate([obs for obs, _ in batch.episodes()])
    env = CounterfactualEnv(Counting(), batch, end="never")
    env.reset(options={"episode": 0})
    told = []
    for _ in range(20):
        obs, *_, info = env.step(1)
        assert info["outside_support"] is bool(((obs[:2] > live.max(axis=0)) | (obs[:2] < live.min(axis=0))).any())
        told.append(info["outside_support"])
    assert {True, False} == set(told)


def test_the_space_holds_starts_beyond_the_models_bounds(batch):
    env = CounterfactualEnv(Counting(high=10.0), batch)
    for k in range(len(batch)):
        assert env.reset(options={"episode": k})[0] in env.observation_space


def test_a_model_that_breaks_its_promise_is_named(batch):
    model = Counting()
    env = CounterfactualEnv(model, batch)
    env.reset(seed=0)
    predict = model.predict
    model.predict = lambda states: predict(states) * np.array([1, np.nan], dtype=np.float32)
    with pytest.raises(ValueError, match="'side_effects'"):
        env.step(0)


def test_starts_are_drawn_from_all_episodes_and_without_weights_there_is_no_reward(batch):
    env = CounterfactualEnv(OracleModel(), batch)
    env.reset(seed=0)
    assert env.step(1)[1] == 0
    names = [env.reset()[1]["episode"] for _ in range(400)]
    assert set(names) == set(batch.ids)


def test_the_simulator_is_never_reached(batch, monkeypatch):
    def forbidden(*_args, **_kwargs):
        raise AssertionError("the simulator was called")

    for owner in (TumourWorld, TumourEnv):
        monkeypatch.setattr(owner, "reset", forbidden)
        monkeypatch.setattr(owner, "step", forbidden)
    env = gym.make("CIRLCounterfactual-v0", model=Counting(), batch=batch)
    env.reset(seed=0)
    env.step(1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"patients": (30, 2)}, "unknown option 'patients'"),
            ({"patient": (30,)}, "2 finite numbers"),
            ({"patient": (500, 2)}, "'tumour' is 500 at step 0"),
            ({"patient": (30, 2), "episode": 1}, "'patient' and 'episode'"),
            ({"history": ([(30, 2), (-1, 2)], [0])}, "'tumour' is -1 at step 1"),
            ({"history": ([(30, 2), (31, 2)], [2])}, "from 0 to 1"),
            ({"outcome": "drawn"}, "outcome"),
            ({"horizon": 21}, "can only shorten"),
            ({"weights": (1, 1)}, "weights must"),
            ({"step": 2}, "needs the option 'episode'"),
            ({"episode": "nobody"}, "'nobody'"),
            *(({"episode": k}, "from 0 to 39") for k in (40, -1, 1.5)),
            *(({"episode": 0, "step": t}, "from 0 to") for t in (21, -1, 0.5)),
        ],
    )
    def test_a_bad_option_leaves_the_state_alone(self, batch, options, message):
        def make():
            return CounterfactualEnv(OracleModel(), batch, outcome="sampled")

        assert_refused(make, lambda env: env.reset(seed=99, options=options), message)

    def test_nothing_follows_an_ended_episode(self, batch):
        env = CounterfactualEnv(OracleModel(), batch)
        ended = int(np.flatnonzero(batch.terminated)[0])
        with pytest.raises(ValueError, match="nothing follows"):
            env.reset(options={"episode": ended, "step": int(batch.lengths[ended])})
        cut = int(np.flatnonzero(batch.truncated)[0])
        with pytest.raises(ValueError, match="leaves nothing of an episode with a time limit of 20"):
            env.reset(options={"episode": cut, "step": 20})
        # Where only watching ended, a longer horizon may go on.
        longer = CounterfactualEnv(OracleModel(), batch, horizon=25)
        longer.reset(options={"episode": cut, "step": 20})
        longer.step(0)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            *(({"weights": w}, "weights must") for w in ((-1, -1), (-1,))),
            ({"outcome": "drawn"}, "option 'outcome' must"),
            ({"end": "always"}, "end must"),
            ({"horizon": 0}, "horizon must"),
            ({"feature_map": FeatureMap(("a", "b"), np.zeros(2), np.ones(2))}, "features of feature_map"),
        ],
    )
    def test_bad_arguments(self, batch, arguments, message):
        with pytest.raises(ValueError, match=message):
            CounterfactualEnv(OracleModel(), batch, **arguments)

    def test_what_does_not_belong_together_is_refused(self, batch):
        for given, missing in (({"batch": batch}, "model"), ({"model": OracleModel()}, "batch")):
            with pytest.raises(ValueError, match=f"belong together, {missing} is missing"):
                gym.make("CIRLCounterfactual-v0", **given)
        with pytest.raises(ValueError, match="either run, or model and batch"):
            gym.make("CIRLCounterfactual-v0", model=OracleModel(), batch=batch, run="runs/demo")
        with pytest.raises(ValueError, match="features of model"):
            CounterfactualEnv(OracleModel(), replace(batch, features=("a", "b")))
        with pytest.raises(ValueError, match="model knows 2 actions, the batch 3"):
            CounterfactualEnv(OracleModel(), replace(batch, action_names=("0", "1", "2")))
