"""Weights of some of the observed features: what is only seen is seen by models and policies, and weighed by nobody."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from known_model import PHI, KnownModel, states
from scripted import Scripted
from small_agents import TINY, known_problem
from small_batches import cut_off

from agents.successor.agent import SuccessorAgent
from agents.successor.planning import Search, plan
from agents.successor.training import fit_successor, uniform_weights
from cirl_gym import Batch, FeatureMap, TumourParameters, TumourWorld, rollout
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import returns
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.interop.episodes import step_rewards
from cirl_gym.outcome_models.network_files import read_model_file, write_model_file
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import FEATURES
from cirl_gym.wrappers.learned_reward import LearnedReward, LinearReward
from irl.max_margin.loop import expert_mu, phi_along
from irl.preferences.identified_set import not_identifiable
from irl.report.drawing import imagine

Y = FeatureMap(("y",), PHI.low[1:], PHI.high[1:], PHI.of)
TURNED = FeatureMap(("y", "x"), PHI.low[::-1], PHI.high[::-1], PHI.of)
SIDE = FeatureMap(("side_effects",), np.zeros(1), np.array([15.0]), FEATURES)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return rollout(TumourWorld(), Scripted(0.5), 12, np.random.default_rng(0))


@pytest.fixture(scope="module")
def agent() -> SuccessorAgent:
    """For the two weights of y alone, -1 and +1, with room for every plan."""
    problem = known_problem(feature_map=Y, weights=uniform_weights([0]))
    trained = fit_successor(problem, TINY, np.random.default_rng(0))
    trained.width = 27
    return trained


def search(feature_map: FeatureMap, w: np.ndarray) -> np.ndarray:
    def nothing(t, rows, _):
        return np.zeros((len(rows), 3))

    found = states(20, seed=3)
    weights = np.tile(w, (len(found), 1))
    return plan(Search(KnownModel(), feature_map, nothing, 4, 0.9, 27), 0, found, weights)


def test_plans_for_one_outcome_and_in_another_order() -> None:
    for w in (-1.0, 1.0):
        both = search(PHI, np.array([0.0, w]))
        alone = search(Y, np.array([w]))
        assert alone.shape == (20, 3, 1)
        np.testing.assert_allclose(alone[..., 0], both[..., 1], atol=1e-12)
    np.testing.assert_allclose(search(TURNED, np.array([-0.75, 0.25])), search(PHI, np.array([0.25, -0.75]))[..., ::-1])


def test_the_agent_has_one_weight_per_outcome(agent: SuccessorAgent) -> None:
    assert agent.network.n_features == 1
    starts = np.array([[1.0, -0.5], [0.25, 2.0]], dtype=np.float32)
    world = CounterfactualWorld(KnownModel(), starts, 4)
    course = rollout(world, agent.policy([-1.0]), 2, np.random.default_rng(0))
    assert course.features == ("x", "y")
    psi = agent.psi(course, [-1.0])
    assert psi.shape == (2, course.horizon, 3, 1)
    lowest = psi[:, 0, :, 0].min(axis=1)  # the weight is -1: the best action leads to the least y
    np.testing.assert_allclose(agent.mu([-1.0], starts), [lowest.mean()])
    np.testing.assert_allclose(agent.q(course, [-1.0]), -psi[..., 0])
    with pytest.raises(ValueError, match="w must be 1 finite numbers"):
        agent.policy([-0.5, -0.5])
    with pytest.raises(ValueError, match=r"observations must be \[n, 5\]"):
        agent.policy([-1.0]).predict(np.zeros((1, 4), dtype=np.float32))


def test_the_agent_is_read_as_it_was_written(agent: SuccessorAgent, tmp_path) -> None:
    agent.save(tmp_path / "agent.npz")
    again = SuccessorAgent.load(tmp_path / "agent.npz", KnownModel())
    assert (again.feature_map.features, again.feature_map.of) == (("y",), ("x", "y"))
    starts = np.array([[1.0, -0.5]], dtype=np.float32)
    np.testing.assert_array_equal(again.mu([1.0], starts), agent.mu([1.0], starts))
    whole = fit_successor(known_problem(), TINY, np.random.default_rng(0))
    whole.save(tmp_path / "agent.npz")
    config, arrays = read_model_file(tmp_path / "agent.npz")
    del config["observed"]
    write_model_file(tmp_path / "older.npz", config, arrays)
    assert SuccessorAgent.load(tmp_path / "older.npz", KnownModel()).feature_map.of == ("x", "y")


def test_the_environment_pays_for_the_outcomes_and_shows_all(batch: Batch) -> None:
    env = CounterfactualEnv(OracleModel(), batch, feature_map=SIDE, weights=(-0.5,), end="never")
    obs, _ = env.reset(seed=0)
    assert env.features == FEATURES
    assert obs.shape == (4,)
    whole = CounterfactualEnv(OracleModel(), batch, end="never")
    whole.reset(seed=0)
    for action in (1, 1, 0):
        obs, reward, _, _, info = env.step(action)
        np.testing.assert_allclose(info["phi"], [obs[1] / 15])
        assert reward == pytest.approx(-0.5 * obs[1] / 15)
        np.testing.assert_array_equal(obs, whole.step(action)[0])
    assert env.reset(options={"weights": (0.25,)})[1]["weights"].tolist() == [0.25]
    with pytest.raises(ValueError, match=r"weights must be 1 numbers, one for each of side_effects; got shape \(2,\)"):
        env.reset(options={"weights": (-0.3, -0.7)})
    whole, part = imagine(OracleModel(), batch, steps=3), imagine(OracleModel(), batch, 3, ("side_effects",))
    assert part.features == ("side_effects",)
    np.testing.assert_array_equal(part.observed, whole.observed[:, 1:])
    for name, course in part.futures.items():
        np.testing.assert_array_equal(course, whole.futures[name][:, 1:])


def test_the_vector_form_is_the_single_form(batch: Batch) -> None:
    pytest.importorskip("gymnasium", minversion="1.1")
    from cirl_gym.envs.counterfactual import CounterfactualVectorEnv

    options = {"model": OracleModel(), "batch": batch, "feature_map": SIDE, "end": "never"}
    many = CounterfactualVectorEnv(3, **options, weights=[[-0.5], [0.5], [1.0]])
    many.reset(seed=4)
    _, rewards, _, _, infos = many.step(np.ones(3, dtype=np.int64))
    assert infos["phi"].shape == (3, 1)
    np.testing.assert_allclose(rewards, infos["phi"][:, 0] * [-0.5, 0.5, 1.0])
    one = CounterfactualEnv(**options, weights=(0.5,))
    one.reset(seed=5)
    assert one.step(1)[1] == rewards[1]


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_a_picture_shows_every_feature(batch: Batch, mode: str) -> None:
    env = CounterfactualEnv(OracleModel(), batch, feature_map=SIDE, render_mode=mode)
    env.reset(seed=0)
    env.step(1)
    shown = env.render()
    if mode == "ansi":
        assert "tumour" in shown
        assert "side_effects" in shown
    else:
        assert shown.ndim == 3


def test_a_map_of_other_features_is_refused(batch: Batch) -> None:
    alone = FeatureMap(("side_effects",), np.zeros(1), np.ones(1))
    for make in (
        lambda: CounterfactualEnv(OracleModel(), batch, feature_map=alone),
        lambda: phi_along(OracleModel(), alone, batch),
        lambda: step_rewards(batch, alone, [-1.0]),
        lambda: known_problem(feature_map=FeatureMap(("y",), np.zeros(1), np.ones(1)), weights=uniform_weights([0])),
    ):
        with pytest.raises(ValueError, match="feature"):
            make()


def test_a_learned_reward_of_some_features_pays_in_an_environment_that_tells_all(batch: Batch) -> None:
    learned = LinearReward(FeatureMap(("side_effects",), np.array([1.0]), np.array([5.0])), np.array([-1.0]))
    env = LearnedReward(gym.make("CIRLCounterfactual-v0", model=OracleModel(), batch=batch), learned)
    env.reset(seed=1)
    obs, reward, *_ = env.step(1)
    assert reward == pytest.approx(-(obs[1] - 1) / 4, abs=1e-6)
    wide = LinearReward(TumourParameters().feature_map, np.array([-0.5, -0.5]))
    narrow = CounterfactualEnv(OracleModel(), batch, feature_map=SIDE)
    with pytest.raises(ValueError, match=r"only the reward has \['tumour'\]"):
        LearnedReward(narrow, wide)


def test_what_follows_from_phi_is_the_column_of_all(batch: Batch) -> None:
    whole = TumourParameters().feature_map
    phi, part = phi_along(OracleModel(), whole, batch), phi_along(OracleModel(), SIDE, batch)
    np.testing.assert_array_equal(part, phi[..., 1:])
    all_mu, mu = expert_mu(phi, batch, 0.9), expert_mu(part, batch, 0.9)
    np.testing.assert_allclose(mu.mean, all_mu.mean[1:])
    np.testing.assert_allclose(returns(batch, SIDE, np.array([-0.7])), returns(batch, whole, np.array([0.0, -0.7])))
    np.testing.assert_allclose(step_rewards(batch, SIDE, [-0.7]), step_rewards(batch, whole, [0.0, -0.7]))


def test_only_what_is_weighed_can_be_hard_to_tell() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4))
    obs = np.stack([x, 2 * x + 1, x**2, np.full_like(x, 7.0)], axis=-1)
    actions = np.random.default_rng(1).integers(2, size=(6, 3))
    batch = cut_off(obs, actions, ("x", "twice", "square", "constant"))
    assert set(not_identifiable(batch)) == {"x", "twice", "constant"}
    assert not_identifiable(batch, ("square", "x")) == {}
    assert set(not_identifiable(batch, ("twice", "square", "x"))) == {"x", "twice"}
    assert "moves exactly with 'twice'" in not_identifiable(batch, ("twice", "x"))["x"]
