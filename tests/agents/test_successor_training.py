"""How the successor-feature agent is trained: histories, preferences, and that training learns."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import NormalizeObservation
from known_model import PHI, KnownModel, best_plans, plain_state, states
from scripted import Scripted
from small_agents import TINY, known_agent, known_problem, tumour_agent, tumour_batch
from small_batches import batch_of

from agents.expert import noise_free_values
from agents.successor.agent import SuccessorAgent, SuccessorConfig
from agents.successor.training import (
    Problem,
    RandomRates,
    _fit_last_layer,
    fit_agent,
    fit_successor,
    fixed_weights,
    uniform_weights,
)
from cirl_gym import CounterfactualWorld, FeatureMap, TumourParameters, TumourWorld, rollout
from cirl_gym.data.outcome_model import fold
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import draw_start
from irl.max_margin.loop import phi_along


class Still(KnownModel):
    """Nothing ever changes, but for noise, or ends."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__(ends=False)
        self.spread = noise

    @property
    def noise_scale(self):
        return np.full(2, self.spread)

    def predict(self, states):
        return np.repeat(states[..., None, :2], 3, axis=-2)


class TestProblem:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"gamma": -0.1}, "gamma must lie between 0 and 1"),
            ({"gamma": 1.01}, "gamma must lie between 0 and 1"),
            ({"gamma": np.nan}, "gamma must lie between 0 and 1"),
            ({"horizon": 0}, "horizon must be at least 1"),
            ({"ahead": 0}, "ahead must be at least 1"),
            ({"feature_map": FeatureMap(("y", "x"), np.zeros(2), np.ones(2))}, "feature map is of"),
            ({"histories": batch_of([0] * 5, n_actions=3)}, "up to 5 steps, the horizon is 4"),
            ({"histories": batch_of([0], n_actions=3, d=3)}, "histories are of"),
            ({"starts": np.zeros((5, 3), dtype=np.float32)}, "starts must be"),
            ({"starts": np.zeros((0, 2), dtype=np.float32)}, "starts must be"),
        ],
    )
    def test_what_cannot_be(self, changes, message):
        with pytest.raises(ValueError, match=message):
            known_agent(**changes)

    def test_settings_that_cannot_be(self):
        for name in ("episodes", "weights_per_history", "gradient_steps", "batch_size", "width"):
            with pytest.raises(ValueError, match=f"{name} must be at least 1"):
                SuccessorConfig(**{name: 0})
        for value in (0.0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="learning_rate must be positive"):
                SuccessorConfig(learning_rate=value)
        with pytest.raises(ValueError, match="hidden must be at least 1"):
            SuccessorConfig(hidden=(16, 0))
        SuccessorConfig(hidden=())


class TestRandomRates:
    def actions(self, n=2000, horizon=20, n_actions=3):
        policy = RandomRates(horizon, n_actions, np.random.default_rng(0))
        memory, taken = None, []
        for _ in range(horizon):
            actions, memory = policy.predict(np.zeros((n, 5), dtype=np.float32), memory)
            taken.append(actions)
        return np.stack(taken, axis=1)

    def test_every_action_equally_often_and_no_other(self):
        actions = self.actions()
        assert actions.dtype == np.int64
        assert len(np.unique(actions[:100], axis=0)) > 95
        shares = np.bincount(actions.ravel()) / actions.size
        # An episode's share of an action has a standard deviation of about .2: .005 for 2,000 episodes.
        np.testing.assert_allclose(shares, [1 / 3, 1 / 3, 1 / 3], atol=0.02)

    def test_long_stretches_of_the_same_action(self):
        actions = self.actions(n_actions=2)
        longest, current = np.ones(2000), np.ones(2000)
        for t in range(1, 20):
            current = np.where(actions[:, t] == actions[:, t - 1], current + 1, 1)
            longest = np.maximum(longest, current)
        # Of coins with a fixed chance of one half, one episode in eighty has a run of ten or more.
        assert (longest >= 10).mean() > 0.25

    def test_rates_change_within_an_episode(self):
        actions = self.actions(n_actions=2)
        first, second = actions[:, :10].mean(axis=1), actions[:, 10:].mean(axis=1)
        # At constant rates the two halves would differ by more than a half in 2 % of the episodes.
        assert (np.abs(first - second) > 0.45).mean() > 0.1


class TestHistories:
    def test_the_batchs_own_are_learnt_on(self):
        # 40 imagined episodes that stay at x = 0 and 20 observed ones at x = 300: the mean is 100.
        far = replace(batch_of(*[[0, 1, 2, 0]] * 30, n_actions=3), obs=np.full((30, 5, 2), 300, dtype=np.float32))
        problem = known_problem(model=Still(), starts=np.zeros((1, 2), dtype=np.float32))
        config = replace(TINY, episodes=40)
        alone = fit_successor(problem, config, np.random.default_rng(0))
        both = fit_successor(replace(problem, histories=far), config, np.random.default_rng(0))
        assert alone.state_mean[0] == 0
        assert both.state_mean[0] == pytest.approx(100)

    def test_their_padding_is_not(self):
        # One action each: of 40 * 4 + 20 * 1 states alive, 20 are at x = 300.
        far = replace(batch_of(*[[0]] * 30, n_actions=3), obs=np.full((30, 2, 2), 300, dtype=np.float32))
        problem = known_problem(model=Still(), starts=np.zeros((1, 2), dtype=np.float32), histories=far)
        agent = fit_successor(problem, replace(TINY, episodes=40), np.random.default_rng(0))
        assert agent.state_mean[0] == pytest.approx(300 / 9)

    def test_outcomes_are_sampled_in_imagination(self):
        # Steps of noise .2 add up: variances 0, .04, .08 and .12 at t = 0..3, .06 on average.
        problem = known_problem(model=Still(noise=0.2), starts=np.zeros((1, 2), dtype=np.float32))
        agent = fit_successor(problem, replace(TINY, episodes=2000), np.random.default_rng(0))
        np.testing.assert_allclose(agent.state_scale[:2], np.sqrt(0.06), atol=0.01)

    def test_one_episode_is_enough(self):
        agent = known_agent(config=replace(TINY, episodes=1), histories=batch_of([0, 1, 2], n_actions=3))
        assert np.isfinite(agent.mu([1.0, 0.0], known_problem().starts)).all()

    def test_they_begin_at_the_given_starts(self):
        # Still histories show where they began: 30 or 50, about as often.
        starts = np.array([[30, 0], [50, 0]], dtype=np.float32)
        agent = fit_successor(known_problem(model=Still(), starts=starts), TINY, np.random.default_rng(0))
        assert agent.state_mean[0] == pytest.approx(40, abs=3)
        assert agent.state_scale[0] == pytest.approx(10, abs=0.5)
        # What never changes is not divided by.
        assert agent.state_scale[1] == 1


class TestLearning:
    def test_the_network_comes_close_to_the_exact_values(self):
        config = SuccessorConfig(episodes=1000, gradient_steps=250, hidden=(64, 64), batch_size=256)
        agent = known_agent(config=config)
        w = uniform_weights([0, 0])(60, np.random.default_rng(4))
        for t, steps in ((0, 4), (2, 2)):
            rows = states(60, seed=3, begun=t > 0)
            best = [best_plans(plain_state(row), steps, 0.5, weight) for row, weight in zip(rows, w, strict=True)]
            exact = np.einsum("nad,nd->na", best, w)
            values = agent.estimate()(t, rows[:, None], w)[:, 0]
            assert exact.std() > 0.3
            assert np.sqrt(np.mean((values - exact) ** 2)) < 0.07
            chosen = exact[np.arange(60), values.argmax(axis=1)]
            assert (exact.max(axis=1) - chosen).mean() < 0.01

    def test_the_last_stage_learns_the_next_outcome(self):
        # At the start the next outcome is linear in the state, so that a network without hidden layers can be exact.
        config = SuccessorConfig(episodes=500, gradient_steps=200, hidden=(), batch_size=128, learning_rate=0.05)
        agent = known_agent(config=config, horizon=1)
        rows = states(60, seed=3, begun=False)
        psi = agent.network_psi(0, rows, np.tile([0.5, -0.5], (60, 1)))
        np.testing.assert_allclose(psi, PHI(KnownModel().predict(rows)), atol=1e-3)

    def test_every_stage_changes(self):
        stages = known_agent(config=replace(TINY, gradient_steps=1)).network.stages
        for one, two in zip(stages, list(stages)[1:], strict=False):
            # The layers before the last, which is solved for, begin as their neighbour's.
            pairs = list(zip(one.parameters(), two.parameters(), strict=True))
            assert all((a != b).any() for a, b in pairs)
            assert all(torch.allclose(a, b, atol=0.05) for a, b in pairs[:-2])

    def test_the_last_layer_is_where_the_error_is_least(self):
        rng = np.random.default_rng(0)
        stage = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
        for parameter in stage.parameters():
            parameter.data = torch.from_numpy(rng.normal(size=parameter.shape).astype(np.float32))
        read, noise = (torch.from_numpy(rng.normal(size=(60, n)).astype(np.float32)) for n in (3, 2))
        target = stage(read).detach() + noise
        _fit_last_layer(stage, read, target)
        design = np.column_stack([stage[:2](read).detach(), np.ones(60)]).astype(np.float64)
        exact = design @ np.linalg.lstsq(design, target.double().numpy(), rcond=None)[0]
        np.testing.assert_allclose(stage(read).detach(), exact, atol=0.01)
        least = np.square(exact - target.double().numpy()).mean()
        assert np.square(stage(read).detach().double().numpy() - target.double().numpy()).mean() < least * 1.0001

    def test_gamma_0_and_1(self):
        for gamma, bound in ((0.0, 1), (1.0, 4)):
            agent = known_agent(gamma=gamma)
            assert agent.network.steps_left[0] == bound
            assert np.isfinite(agent.mu([0.5, 0.5], known_problem().starts)).all()

    def test_progress_counts_the_stages(self):
        told = []
        fit_successor(known_problem(), TINY, np.random.default_rng(0), lambda done, total: told.append((done, total)))
        assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]

    def test_a_loss_that_is_not_finite_is_an_error(self):
        with pytest.raises(ValueError, match="training stopped at stage t = 3: the loss is"):
            known_agent(config=replace(TINY, learning_rate=1e30))


class TestWeights:
    @pytest.mark.parametrize("signs", [[-1, -1], [1, -1, 0], [0, 0, 0, 0]])
    def test_l1_norm_1_and_the_given_signs(self, signs):
        w = uniform_weights(signs)(1000, np.random.default_rng(0))
        assert w.shape == (1000, len(signs))
        np.testing.assert_allclose(np.abs(w).sum(axis=1), 1.0)
        for column, sign in zip(w.T, signs, strict=True):
            if sign:
                assert (np.sign(column) == sign).all()
            else:
                assert 0.4 < (column > 0).mean() < 0.6

    def test_two_weights_are_uniform_on_a_segment(self):
        # On the segment from (-1, 0) to (0, -1) the first weight is uniform: quantiles are -1 + share.
        w = uniform_weights([-1, -1])(40_000, np.random.default_rng(0))
        shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
        # Standard error at most .0025.
        np.testing.assert_allclose(np.quantile(w[:, 0], shares), -1 + shares, atol=0.01)

    def test_three_weights_are_uniform_on_a_triangle(self):
        # The share of the triangle beyond a third is its scaled copy: (2/3)^2.
        w = uniform_weights([1, 1, 1])(40_000, np.random.default_rng(0))
        np.testing.assert_allclose((w > 1 / 3).mean(axis=0), 4 / 9, atol=0.01)

    def test_fixed_weights_are_scaled_and_bad_signs_refused(self):
        for signs in ([2, -1], [0.5, 0], [np.nan, 1], 1, [[1, -1]]):
            with pytest.raises(ValueError, match="signs must be a vector of -1, 0"):
                uniform_weights(signs)
        w = fixed_weights([-3, 7])(4, np.random.default_rng(0))
        np.testing.assert_allclose(w, [[-0.3, 0.7]] * 4)
        np.testing.assert_array_equal(fixed_weights([0, 0])(2, np.random.default_rng(0)), np.zeros((2, 2)))


# --- one call from what a user has to an agent for every preference --------------------------------------------------

PARAMETERS = TumourParameters(horizon=8)
SMALL = SuccessorConfig(episodes=256, gradient_steps=40, batch_size=256, hidden=(32,))


@pytest.fixture(scope="module")
def batch():
    return rollout(TumourWorld(PARAMETERS), Scripted(0.5), 300, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["batch", "world", "environment", "counterfactual", "imagined"])
def test_every_source_gives_the_optimal_policies(batch, name):
    from cirl_gym.envs.counterfactual import CounterfactualEnv
    from cirl_gym.envs.tumour import TumourEnv

    sources = {
        "batch": lambda: (batch, {}),
        "world": lambda: (TumourWorld(PARAMETERS), {}),
        "environment": lambda: (TumourEnv(PARAMETERS), {}),
        "counterfactual": lambda: (
            CounterfactualEnv(OracleModel(PARAMETERS), batch, feature_map=PARAMETERS.feature_map),
            {},
        ),
        "imagined": lambda: (
            CounterfactualWorld(OracleModel(PARAMETERS), batch.start, 8),
            {"feature_map": PARAMETERS.feature_map},
        ),
    }
    source, options = sources[name]()
    agent = SuccessorAgent.fit(source, 0.9, config=SMALL, signs=(-1, -1), **options)
    # A batch scales by its own ranges, so weights there mean something else: x_max and z_max are put back.
    ranges = agent.feature_map.high - agent.feature_map.low
    for w in ((-0.3, -0.7), (-0.7, -0.3)):
        scaled = np.array(w) * ranges / PARAMETERS.feature_map.high
        starts = draw_start(PARAMETERS, 10, np.random.default_rng(3))
        best = optimum(PARAMETERS, starts, [(w, 0.9)]).values[:, 0]
        assert (best - noise_free_values(agent.policy(scaled), PARAMETERS, starts, w, 0.9)).mean() < 0.02


def test_the_registered_environments_are_sources():
    agent = fit_agent(gym.make("CIRLCounterfactual-v0"), 0.5, config=SuccessorConfig(episodes=16, gradient_steps=1))
    assert agent.horizon == 20
    assert agent.feature_map.high.tolist() == [50, 15]


def test_the_same_seed_gives_the_same_agent(batch):
    a, b, c = (fit_agent(TumourWorld(PARAMETERS), 0.9, config=SMALL, seed=seed) for seed in (1, 1, 2))
    w = (-0.5, -0.5)
    assert a.q(batch, w).tobytes() == b.q(batch, w).tobytes()
    # With another seed another network, whose search may find the very same plans.
    one, other = (next(agent.network.parameters()) for agent in (a, c))
    assert not torch.equal(one, other)


def test_bad_sources_are_refused(batch):
    with pytest.raises(TypeError, match="trained from"):
        fit_agent(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="give feature_map"):
        fit_agent(CounterfactualWorld(OracleModel(PARAMETERS), batch.start, 8))


def test_a_wrapper_that_normalises_changes_nothing_of_what_is_learnt():
    short = TumourParameters(horizon=6)
    env = gym.make("cirl_gym:CIRLTumour-v0", parameters=short, max_episode_steps=6)
    wrapped = NormalizeObservation(env)
    for seed in range(5):
        wrapped.reset(seed=seed)  # moves what it normalises by
    one, other = (fit_agent(source, config=TINY, seed=0) for source in (env, wrapped))
    assert one.state_mean[0] > 10, "tumour volumes are raw"
    for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
    played = rollout(TumourWorld(short), other.policy([-0.3, -0.7]), 50, np.random.default_rng(0))
    assert 10 < played.start[:, 0].mean() < 50
    # The reward is the environment's own, of raw outcomes.
    obs, _ = env.reset(seed=0)
    following, reward, *_ = env.step(1)
    expected = env.unwrapped.weights @ short.feature_map(following[:2])
    assert reward == pytest.approx(expected, abs=1e-6)
    assert obs[0] > 10


class Chain:
    """Two steps: action 0 ends the process for certain, action 1 goes on; a state is (x, y, steps so far)."""

    features = ("x", "y")
    n_actions = 2
    noise_scale = np.zeros(2)
    bounds = (np.zeros(2), np.ones(2))
    outcomes = np.array([[[0.25, 0.5], [0.5, 0.25]], [[1.0, 0.0], [0.0, 1.0]]], dtype=np.float32)
    """``[step, action, feature]``."""

    def noise(self, normals):
        return np.zeros_like(normals)

    def start(self, obs):
        return np.concatenate([obs, np.zeros((len(obs), 1))], axis=1, dtype=np.float32)

    def encode(self, batch):
        return fold(self, batch)

    def predict(self, states):
        return self.outcomes[np.minimum(states[..., 2].astype(int), 1)]

    def end_probability(self, states):
        return np.broadcast_to(np.array([1.0, 0.0], dtype=np.float32), (*states.shape[:-1], 2))

    def advance(self, states, actions, obs):
        return np.concatenate([obs, states[..., 2:] + 1], axis=-1, dtype=np.float32)


@pytest.mark.parametrize(
    ("w", "goes_on", "mu"),
    [
        ((0.6, -0.4), (1.0, 0.25), (1.0, 0.25)),  # then to (1, 0): .5 against -.05
        ((-0.4, 0.6), (0.5, 0.75), (0.5, 0.75)),  # then to (0, 1): .25 against .2
        ((0.6, 0.4), (1.0, 0.25), (1.0, 0.25)),  # always positive: it goes on, .7 against .35
        ((-0.6, -0.4), (0.5, 0.75), (0.25, 0.5)),  # always negative: it ends, -.35 against -.6
    ],
)
def test_a_chain_of_two_steps_by_hand(w, goes_on, mu):
    """To end is worth phi and nothing after it, whatever the reward's sign; to go on phi + gamma mu(h')."""
    phi = FeatureMap(("x", "y"), np.zeros(2), np.ones(2))
    starts = np.zeros((10, 2), dtype=np.float32)
    problem = Problem(Chain(), phi, starts, 2, 0.5, fixed_weights(np.array(w)))
    agent = fit_successor(problem, replace(TINY, gradient_steps=300), np.random.default_rng(0))
    first = Chain().start(starts[:1])
    expected = [(0.25, 0.5), goes_on]
    np.testing.assert_allclose(agent.planned_psi(0, first, np.array([w]))[0], expected, atol=1e-6)
    np.testing.assert_allclose(agent.network_psi(0, first, np.array([w]))[0], expected, atol=0.05)
    np.testing.assert_allclose(agent.mu(w, starts), mu, atol=1e-6)


class Late:
    """Action 1 pays 1 two steps later, action 0 1/4 at once; a state is (y, action before, the one before that)."""

    features = ("y",)
    n_actions = 2
    noise_scale = np.zeros(1)
    bounds = (np.zeros(1), np.full(1, 2.0))

    def noise(self, normals):
        return np.zeros_like(normals)

    def start(self, obs):
        return np.concatenate([obs, np.zeros((len(obs), 2))], axis=1, dtype=np.float32)

    def encode(self, batch):
        return fold(self, batch)

    def predict(self, states):
        return states[..., None, 2:] + np.array([[0.25], [0.0]], dtype=np.float32)

    def end_probability(self, states):
        return np.zeros((*states.shape[:-1], 2), dtype=np.float32)

    def advance(self, states, actions, obs):
        return np.concatenate([obs, actions[..., None], states[..., 1:2]], axis=-1, dtype=np.float32)


@pytest.mark.parametrize(
    ("ahead", "psi", "acts", "mu"),
    [
        # Two steps show no late payment: it is never worth waiting.
        (2, [(0.5, 0.25), (0.5, 0.25), (0.5, 0.25), (0.25, 0.0)], (0, 0, 0, 0), 1.0),
        # Three do, and from step 1 the last step is in sight: to wait again is better than the first plan knew.
        (3, [(0.75, 1.5), (0.75, 1.5), (0.5, 0.25), (0.25, 0.0)], (1, 1, 0, 0), 2.5),
        (None, [(1.75, 2.5), (0.75, 1.5), (0.5, 0.25), (0.25, 0.0)], (1, 1, 0, 0), 2.5),
        (9, [(1.75, 2.5), (0.75, 1.5), (0.5, 0.25), (0.25, 0.0)], (1, 1, 0, 0), 2.5),
    ],
)
def test_looking_less_far_ahead_than_an_episode_lasts_by_hand(ahead, psi, acts, mu, tmp_path):
    phi, starts, w = FeatureMap(("y",), np.zeros(1), np.ones(1)), np.zeros((5, 1), dtype=np.float32), np.ones((1, 1))
    problem = Problem(Late(), phi, starts, 4, 1.0, uniform_weights([1]), ahead=ahead)
    fit_successor(problem, TINY, np.random.default_rng(0)).save(tmp_path / "agent.npz")
    agent = SuccessorAgent.load(tmp_path / "agent.npz", Late())
    assert (agent.horizon, agent.ahead) == (4, min(ahead or 4, 4))
    state = Late().start(starts[:1])
    for t, each in enumerate(psi):  # nothing was done before that is still to pay
        np.testing.assert_allclose(agent.planned_psi(t, state, w)[0, :, 0], each)
        assert agent.plans(t, state, w).actions.shape == (1, 2, min(agent.ahead, 4 - t))
    world = CounterfactualWorld(Late(), starts, 4)
    played = rollout(world, agent.policy([1.0]), 1, np.random.default_rng(0))
    np.testing.assert_array_equal(played.actions[0], acts)
    np.testing.assert_allclose(agent.mu([1.0], starts), mu)
    assert agent.q(played, [1.0]).argmax(axis=2).tolist() == [list(acts)]


def test_mu_never_exceeds_what_a_whole_episode_can_hold():
    agent = tumour_agent(TumourParameters())
    batch = tumour_batch(TumourParameters(), 0.0, 0.5, 1.0)
    phi = phi_along(agent.model, agent.feature_map, batch)
    assert np.abs(phi).max() < 1.5
    largest = np.abs(agent.feature_map(np.stack(agent.model.bounds))).max(axis=0)
    limit = largest * (1 - 0.99**20) / 0.01
    for w in ([-0.3, -0.7], [-1.0, 0.0], [0.0, -1.0]):
        assert (np.abs(agent.psi(batch, w)) <= limit + 1e-6).all()
        states = agent.model.encode(batch)[:, 0]
        network = agent.network_psi(0, states, np.tile(w, (len(states), 1)))
        assert (np.abs(network) <= 1.05 * limit).all()


@pytest.mark.parametrize("env_id", ["CIRLTumour-v0", "CIRLCounterfactual-v0"])
def test_an_agent_of_an_environment_that_weighs_the_actions(env_id):
    seen = ("tumour", "side_effects", "Given(1)", "Switched()")
    phi = FeatureMap(("Given(1)", "tumour", "Switched()"), np.zeros(3), np.array([1.0, 50, 1]), seen)
    env = gym.make(env_id, feature_map=phi)
    # Wide enough for every plan of what is left.
    agent = fit_agent(env, 0.9, config=replace(TINY, episodes=20, gradient_steps=2, width=2**12))
    assert agent.feature_map.of == env.unwrapped.features == seen

    def four_actions(*w):
        obs, _ = env.reset(seed=0)
        policy, memory, chosen = agent.policy(w), None, []
        for t in range(4):
            action, memory = policy.predict(obs[None], memory, np.array([t == 0]), deterministic=True)
            obs, *_, info = env.step(int(action[0]))
            chosen.append(int(action[0]))
            assert info["phi"][0] == action[0]
        return chosen

    assert four_actions(-1, 0, 0) == [0, 0, 0, 0]
    assert four_actions(-0.1, 0, 0.9) in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert four_actions(0.1, 0, -0.9) == [1, 1, 1, 1]
