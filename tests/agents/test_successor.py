"""The successor-feature agent: psi, Q and mu hang together, its files are whole, and its policy acts.

What any policy with memory must remember and forget: test_recurrent_networks.py.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from known_model import PHI, KnownModel, best_plans, every_plan, plain_state, states, weights
from recurrent_networks import shown
from small_agents import TINY, exact_agent, known_agent, known_problem, tumour_agent, tumour_batch

import agents.successor.agent
from agents.as_printed.learning import rolled_out_mu
from agents.successor.agent import SuccessorAgent, plans_each
from agents.successor.planning import Search, best_plan, plan
from agents.successor.training import RandomRates, fit_successor
from cirl_gym import Batch, CounterfactualWorld, TumourParameters, rollout
from cirl_gym.data.outcome_model import ForesightModel, foresee
from cirl_gym.data.rollout import discounted, observation
from cirl_gym.data.rules import read_rules
from cirl_gym.files import read_arrays, write_arrays
from cirl_gym.outcome_models.masked import MaskedModel, allowed_actions, rules_of, with_rules, without_rules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import save_model
from cirl_gym.worlds.tumour import draw_start

W = np.array([-0.3, -0.7])
PARAMETERS = TumourParameters()


@pytest.fixture(scope="module")
def agent() -> SuccessorAgent:
    """On the simulator, 20 steps."""
    return tumour_agent(PARAMETERS)


@pytest.fixture(scope="module")
def batch() -> Batch:
    """24 episodes of 9 to 20 steps."""
    made = tumour_batch(PARAMETERS, 0.0, 0.5, 1.0)
    assert made.lengths.min() < 12
    assert made.lengths.max() == 20
    return made


@pytest.fixture(scope="module")
def known() -> SuccessorAgent:
    """Three actions, four steps, every plan searched."""
    return exact_agent()


class TestValues:
    def test_q_is_w_psi_and_zero_on_padding(self, agent, batch):
        psi, q = agent.psi(batch, W), agent.q(batch, W)
        assert psi.shape == (24, 20, 2, 2)
        np.testing.assert_allclose(q, psi @ W, atol=1e-12)
        assert (psi[~batch.mask] == 0).all()
        assert (psi[batch.mask] > 0).any(axis=(1, 2)).all()

    def test_psi_is_that_of_the_best_plan(self, known):
        w = np.array([0.6, -0.4])
        rows = states(20, seed=0, begun=False)
        psi = known.planned_psi(0, rows, np.tile(w, (20, 1)))
        best = [best_plans(plain_state(row), 4, 0.5, w) @ w for row in rows]
        np.testing.assert_allclose(psi @ w, best, atol=1e-6)

    def test_a_narrow_search_finds_true_plans_no_better_than_the_best(self, known):
        rows, w = states(20, seed=1, begun=False), np.tile([-0.5, 0.5], (20, 1))
        for row, found in zip(rows, known.planned_psi(0, rows, w, width=1), strict=True):
            for first in range(3):
                plans = every_plan(plain_state(row), 4, 0.5, first)
                assert np.abs(plans - found[first]).max(axis=1).min() < 1e-6

    def test_what_is_searched_at_once_changes_nothing(self, known, monkeypatch):
        rows, w = states(50, seed=2, begun=False), np.random.default_rng(0).normal(size=(50, 2))
        whole = known.planned_psi(0, rows, w, width=2)
        for plans_at_once in (1, 6, 7 * 6):
            monkeypatch.setattr(agents.successor.agent, "_PLANS_AT_ONCE", plans_at_once)
            np.testing.assert_allclose(known.planned_psi(0, rows, w, width=2), whole, atol=1e-6)
        assert known.planned_psi(0, states(0, seed=0), np.zeros((0, 2))).shape == (0, 3, 2)

    def test_every_row_can_have_preferences_of_its_own(self, known):
        rows, w = states(2, seed=3, begun=False)[[0, 0]], np.array([[1.0, 0.0], [-1.0, 0.0]])
        psi = known.planned_psi(0, rows, w)
        for i in range(2):
            np.testing.assert_allclose(psi[i], known.planned_psi(0, rows[:1], w[i : i + 1])[0], atol=1e-6)
        assert np.abs(psi[0] - psi[1]).max() > 0.1

    @pytest.mark.parametrize("width", [1, 3, None])
    def test_psi_of_several_weights_is_that_of_each(self, agent, batch, width):
        several, few = np.array([[-0.3, -0.7], [-2.0, 0.0], [-0.5, -0.5]]), batch.take(np.arange(6))
        psi = agent.psi(few, several, width)
        assert psi.dtype == np.float32
        # Other rows beside a row move the network's values by their last bits; another plan is then as good.
        for w, found in zip(several, psi, strict=True):
            np.testing.assert_allclose(found @ w, agent.psi(few, w, width) @ w, atol=1e-5)

    def test_values_are_w_psi_of_the_network_for_any_number_of_plans(self, known):
        rng = np.random.default_rng(6)
        plans, w = rng.normal(size=(5, 7, 3)).astype(np.float32), rng.normal(size=(5, 2))
        values = known.estimate()(1, plans, w)
        psi = known.network_psi(1, plans.reshape(35, 3), np.repeat(w, 7, axis=0)).reshape(5, 7, 3, 2)
        np.testing.assert_allclose(values, np.einsum("npad,nd->npa", psi, w), atol=1e-5)

    @pytest.mark.parametrize(
        ("width", "n_actions", "each"), [(32, 2, 32), (32, 3, 21), (32, 25, 2), (8, 4, 4), (1, 25, 1), (4, 1, 4)]
    )
    def test_plans_are_shared_among_first_actions_but_two_go_on_for_each(self, width, n_actions, each):
        assert plans_each(width, n_actions) == each

    def test_the_width_of_the_search_can_be_chosen(self, agent, batch):
        few = batch.take(np.arange(4))
        wide, narrow = agent.psi(few, W), agent.psi(few, W, width=1)
        rows = agent.model.start(few.start)
        planned = agent.planned_psi(0, rows, np.tile(W, (4, 1)), width=1)
        np.testing.assert_array_equal(narrow[:, 0], planned.astype(np.float32))
        assert (wide @ W).mean() > (narrow @ W).mean()

    def test_the_scale_of_the_weights_does_not_matter_but_for_0(self, agent, batch):
        for scale in (3.0, 1e-9, 1e9):
            np.testing.assert_allclose(agent.q(batch, scale * W), agent.q(batch, W), atol=1e-9)
        psi = agent.psi(batch, np.zeros(2))
        assert np.isfinite(psi).all()
        assert (agent.q(batch, np.zeros(2)) == 0).all()
        assert np.isfinite(agent.mu(np.zeros(2), batch.start)).all()

    @pytest.mark.parametrize("w", [[-0.3], [-0.3, np.nan], [-0.3, -np.inf], [[-0.3]], [[[-0.3, -0.7]]]])
    def test_bad_weights(self, agent, batch, w):
        for use in (agent.policy, lambda w: agent.q(batch, w), lambda w: agent.mu(w, batch.start)):
            with pytest.raises(ValueError, match="2 finite numbers"):
                use(w)


class TestBatches:
    def test_padding_changes_nothing(self, agent, batch):
        short = batch.take(np.flatnonzero(batch.lengths < 12))
        cut = replace(short, obs=short.obs[:, :13], actions=short.actions[:, :12])
        np.testing.assert_allclose(agent.q(short, W)[:, :12], agent.q(cut, W), atol=1e-12)
        assert (agent.q(short, W)[:, 12:] == 0).all()

    def test_longer_than_trained_for_or_of_other_features_or_actions_is_an_error(self, agent, batch):
        with pytest.raises(ValueError, match="episodes of 20 steps, not of 40"):
            agent.psi(batch.padded(40), W)
        with pytest.raises(ValueError, match=r"'side_effects', 'tumour'.*'tumour', 'side_effects'"):
            agent.q(replace(batch, features=("side_effects", "tumour")), W)
        with pytest.raises(ValueError, match="3 actions"):
            agent.q(replace(batch, action_names=("0", "1", "2")), W)

    def test_alone_as_among_others(self, agent, batch):
        q = agent.q(batch, W)
        for i in (0, 9, 20):
            np.testing.assert_allclose(agent.q(batch.take(np.array([i])), W)[0], q[i], atol=1e-5)

    def test_what_comes_later_changes_nothing(self, agent, batch):
        obs, actions = batch.obs.copy(), batch.actions.copy()
        obs[:, 6:] += 100
        actions[:, 5:] = 1 - actions[:, 5:]
        before, after = agent.q(batch, W), agent.q(replace(batch, obs=obs, actions=actions), W)
        np.testing.assert_array_equal(after[:, :6], before[:, :6])
        assert (after[:, 6] != before[:, 6]).any()


class TestMu:
    def test_it_is_the_mean_of_psi_at_the_start(self, known):
        starts, w = known_problem().starts, np.array([0.6, -0.4])
        psi = known.planned_psi(0, known.model.start(starts), np.tile(w, (len(starts), 1)))
        greedy = psi[np.arange(len(starts)), (psi @ w).argmax(axis=1)]
        np.testing.assert_allclose(known.mu(w, starts), greedy.mean(axis=0), atol=1e-6)

    def test_a_search_that_is_cut_short_promises_no_more_than_there_is(self, agent, batch):
        psi = agent.planned_psi(0, agent.model.start(batch.start), np.tile(W, (len(batch), 1)), 128)
        assert agent.mu(W, batch.start) @ W <= (psi @ W).max(axis=1).mean() + 1e-9

    def test_it_is_what_the_policy_earns_where_nothing_is_left_to_chance(self, known):
        # Every plan is searched at every step, so that the policy goes on as planned.
        model, starts = KnownModel(ends=False), known_problem().starts
        certain = SuccessorAgent(model, PHI, known.network, 0.5, known.state_mean, known.state_scale, width=81)
        for w in ([0.6, -0.4], [-0.2, 0.8]):
            played = rollout(CounterfactualWorld(model, starts, 4), certain.policy(w), 50, np.random.default_rng(0))
            mu = discounted(played, PHI(played.next_obs), 0.5).mean(axis=0)
            np.testing.assert_allclose(certain.mu(w, starts), mu, atol=1e-6)

    def test_it_is_what_the_policy_earns_on_average_where_episodes_end_by_chance(self, known):
        starts = known_problem().starts
        starts = starts[starts[:, 0] > 0]
        world = CounterfactualWorld(known.model, np.tile(starts, (100, 1)), 4)
        played = rollout(world, known.policy([0.2, 0.8]), 100 * len(starts), np.random.default_rng(0))
        assert 0.2 < played.terminated.mean() < 0.9
        # The same starts 100 times each: all that differs is when they end.
        earned = discounted(played, PHI(played.next_obs), 0.5).reshape(100, len(starts), 2).mean(axis=1)
        error = earned.std(axis=0) / np.sqrt(100)
        assert (error < 0.01).all()
        assert (np.abs(known.mu([0.2, 0.8], starts) - earned.mean(axis=0)) < 4 * error).all()

    @pytest.mark.parametrize("w", [(-0.3, -0.7), (-0.7, -0.3)])
    def test_it_is_what_the_policy_earns_in_the_simulator_without_noise(self, w):
        # There are 256 plans of eight steps: all are searched. Volumes from 8 to 49 end in every way.
        parameters = TumourParameters(tumour_noise=0.0, side_noise=0.0, horizon=8)
        agent = tumour_agent(parameters, config=replace(TINY, width=256))
        starts = np.stack([np.linspace(8, 49, 12), np.linspace(6, 1, 12)], axis=1).astype(np.float32)
        played = rollout(CounterfactualWorld(agent.model, starts, 8), agent.policy(w), 12, np.random.default_rng(0))
        assert 0 < played.terminated.sum() < 12
        mu = discounted(played, agent.feature_map(played.next_obs), 0.99).mean(axis=0)
        assert agent.mu(w, starts) @ w == pytest.approx(mu @ w, abs=1e-5)


class TestFiles:
    def test_round_trip(self, agent, batch, tmp_path):
        one, two = tmp_path / "one.npz", tmp_path / "two.npz"
        agent.save(one)
        loaded = SuccessorAgent.load(one, OracleModel(PARAMETERS))
        loaded.save(two)
        assert one.read_bytes() == two.read_bytes()
        np.testing.assert_array_equal(loaded.psi(batch, W), agent.psi(batch, W))
        assert (loaded.gamma, loaded.horizon, loaded.width) == (0.99, 20, 4)
        for model in (KnownModel(), OracleModel(TumourParameters(order=3))):
            with pytest.raises(ValueError, match=r"one\.npz was trained in another world model"):
                SuccessorAgent.load(one, model)

    def test_a_part_of_a_file_and_another_kind_are_an_error(self, known, tmp_path):
        path = tmp_path / "agent.npz"
        known.save(path)
        whole = path.read_bytes()
        for share in (0.0, 0.5, 0.99):
            path.write_bytes(whole[: int(share * len(whole))])
            with pytest.raises(ValueError, match=r"agent\.npz"):
                SuccessorAgent.load(path, KnownModel())
        path.write_bytes(whole)
        arrays = read_arrays(path)
        for missing in ("low", "state_mean", "stages.0.0.weight", "config"):
            write_arrays(path, {name: array for name, array in arrays.items() if name != missing})
            with pytest.raises(ValueError, match=r"agent\.npz"):
                SuccessorAgent.load(path, KnownModel())
        save_model(OracleModel(PARAMETERS), path)
        with pytest.raises(ValueError, match=r"not a whole successor-feature agent: .*'oracle'"):
            SuccessorAgent.load(path, OracleModel(PARAMETERS))


def test_same_seed_same_bytes_and_the_process_wide_generators_are_left_alone(tmp_path):
    before = np.random.get_state()[1].copy(), torch.get_rng_state(), random.getstate()  # noqa: NPY002
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        fit_successor(known_problem(), TINY, np.random.default_rng(seed)).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "three").read_bytes()
    acting = SuccessorAgent.load(tmp_path / "one", KnownModel()).policy([1.0, 0.0], 2.0)
    acting.predict(np.zeros((1, 5), dtype=np.float32))
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]


def test_mu_of_a_part_is_corrected_by_what_the_network_says_of_all():
    agent, starts, w = known_agent(), known_problem().starts, np.array([0.3, -0.7])
    states, every = agent.model.start(starts), np.tile(w, (len(starts), 1))
    np.testing.assert_array_equal(agent.mu(w, starts, searched=len(starts)), agent.mu(w, starts))
    rows = np.linspace(0, len(starts) - 1, 7).astype(int)
    psi = agent.network_psi(0, states, every)
    guessed = psi[np.arange(len(starts)), (psi @ w).argmax(axis=1)]
    found = best_plan(Search(agent.model, PHI, agent.estimate(), 4, 0.5, 4), 0, states[rows], every[rows])
    line = [np.polyfit(guessed[rows, k], found[:, k], 1) for k in range(2)]
    expected = [np.polyval(line[k], guessed[:, k].mean()) for k in range(2)]
    np.testing.assert_allclose(agent.mu(w, starts, searched=7), expected, atol=1e-5)


@pytest.mark.parametrize("w", [(-0.5, -0.5), (-0.3, -0.7)])
def test_a_part_of_the_starts_says_nearly_what_all_say(w):
    """Patients differ more than network and search do; where they do not (side effects here), nothing is lost."""
    parameters = TumourParameters(horizon=6)
    agent = tumour_agent(parameters, config=replace(TINY, gradient_steps=100, width=32))
    starts = draw_start(parameters, 1000, np.random.default_rng(3)).astype(np.float32)
    whole = agent.mu(w, starts)
    errors = np.array(
        [
            (agent.mu(w, starts[order], searched=40) - whole, agent.mu(w, starts[order[::25]]) - whole)
            for order in (np.random.default_rng(seed).permutation(1000) for seed in range(30))
        ]
    )
    corrected, plain = np.sqrt((errors**2).mean(axis=0))
    assert corrected[0] < 0.7 * plain[0]
    assert corrected[1] < 1.3 * plain[1]


# --- acting -----------------------------------------------------------------------------------------------------------


class TestActing:
    def test_memory_is_used_without_further_word_and_neither_it_nor_the_action_before_may_be_missing(
        self, agent, batch
    ):
        policy = agent.policy(W)
        _, memory = policy.predict(shown(batch, 0))
        told, _ = policy.act(shown(batch, 1), memory, np.zeros(len(batch), dtype=np.bool_))
        untold, _ = policy.act(shown(batch, 1), memory, None)
        np.testing.assert_array_equal(untold, told)
        mixed = np.arange(len(batch)) > 0
        with pytest.raises(ValueError, match="state is None"):
            policy.predict(shown(batch, 1), None, mixed)
        with pytest.raises(ValueError, match="no previous action"):
            policy.predict(shown(batch, 0), memory, np.zeros(len(batch), dtype=np.bool_))
        for shape in ((4,), (1, 2), (1, 5)):
            with pytest.raises(ValueError, match=r"must be \[n, 4\]"):
                policy.predict(np.zeros(shape, dtype=np.float32))

    def test_acting_past_the_horizon_is_an_error(self, known):
        policy, memory = known.policy([1.0, 0.0]), None
        for t in range(4):
            previous = np.array([0 if t else -1])
            _, memory = policy.predict(observation(np.zeros((1, 2), dtype=np.float32), previous, 3), memory)
        with pytest.raises(ValueError, match="episodes of 4 steps, not of 5"):
            policy.predict(observation(np.zeros((1, 2), dtype=np.float32), np.array([0]), 3), memory)


class TestChance:
    obs = observation(np.array([[1.0, 0.5]], dtype=np.float32), np.array([-1]), 3)

    def frequencies(self, policy, n=8000):
        actions, _ = policy.predict(np.repeat(self.obs, n, axis=0))
        return np.bincount(actions, minlength=3) / n

    def test_frequencies_are_the_softmax_of_kappa_q_and_the_best_comes_on_request(self, known):
        w, kappa = [0.6, -0.4], 1.5
        z = np.exp(kappa * known.policy(w).act(self.obs, None, None)[0][0])
        expected = z / z.sum()
        assert ((expected > 0.05) & (expected < 0.8)).all()
        # Standard error at most .0056.
        np.testing.assert_allclose(self.frequencies(known.policy(w, kappa)), expected, atol=0.025)
        np.testing.assert_allclose(self.frequencies(known.policy([0.6, -0.4], 0.0)), np.full(3, 1 / 3), atol=0.025)
        many = np.repeat(self.obs, 20, axis=0)
        best = known.policy([0.6, -0.4]).predict(many)[0]
        np.testing.assert_array_equal(known.policy([0.6, -0.4], 1.0).predict(many, deterministic=True)[0], best)
        assert len(set(best.tolist())) == 1

    def test_the_seed_decides_and_kappa_is_checked(self, known):
        many = np.repeat(self.obs, 200, axis=0)
        draws = [known.policy([0.6, -0.4], 1.0, seed).predict(many)[0] for seed in (3, 3, 4)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert (draws[0] != draws[2]).any()
        for kappa in (-1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="kappa must be"):
                known.policy([1.0, 0.0], kappa)


HORIZON, GAMMA = 4, 0.5
TEXTS = ("1 when Above(x, 0.5)", "0 when After(0)", "2 unless Below(y, 1)")
RULES = read_rules(TEXTS, ("x", "y"), ("0", "1", "2"))
assert RULES is not None
MODEL = MaskedModel(KnownModel(), RULES)


def left(x, y, previous):
    """The rules above, once more, in plain Python: in their order, the last that is left stays."""
    actions = {0, 1, 2}
    for action, forbidden in ((1, x > 0.5), (0, previous == 0), (2, not y < 1)):
        if forbidden and actions != {action}:
            actions -= {action}
    return actions


def exact(rows, w):
    """``[n, 3]`` value of the best allowed plan that begins with each action, allowed or not."""
    return np.array(
        [
            best_plans((*row, None), HORIZON, GAMMA, weight, left=left) @ weight
            for row, weight in zip(rows.tolist(), w, strict=True)
        ]
    )


def best(rows, w):
    """``[n]`` value of the best allowed plan of all."""
    return np.where(MODEL.allowed(MODEL.start(rows)), exact(rows, w), -np.inf).max(axis=1)


def starts(n=20):
    return (np.random.default_rng(3).integers(-8, 9, size=(n, 2)) / 4).astype(np.float32)


def obedient_agent():
    return fit_successor(known_problem(model=MODEL), replace(TINY, width=81), np.random.default_rng(0))


def test_the_rules_as_written_twice():
    for obs in starts(40):
        for previous in (-1, 0, 1, 2):
            mask = MODEL.rules.allowed(obs, np.array(previous))
            assert set(np.flatnonzero(mask)) == left(*obs.tolist(), previous)


def test_a_state_says_what_is_allowed_along_any_history():
    states, obs = MODEL.start(starts()), starts()
    np.testing.assert_array_equal(MODEL.allowed(states), MODEL.rules.allowed(obs, np.full(20, -1)))
    rng = np.random.default_rng(0)
    for _ in range(3):
        actions = rng.integers(3, size=20)
        obs = MODEL.predict(states)[np.arange(20), actions]
        states = MODEL.advance(states, actions, obs)
        np.testing.assert_array_equal(MODEL.allowed(states), MODEL.rules.allowed(obs, actions))


def test_predictions_are_the_models_own():
    model = KnownModel()
    inner, outer = model.start(starts()), MODEL.start(starts())
    actions = np.arange(20) % 3
    obs = model.predict(inner)[np.arange(20), actions]
    inner, outer = model.advance(inner, actions, obs), MODEL.advance(outer, actions, obs)
    np.testing.assert_array_equal(MODEL.predict(outer), model.predict(inner))
    np.testing.assert_array_equal(MODEL.end_probability(outer), model.end_probability(inner))
    for a, b in zip(foresee(MODEL, outer, actions), foresee(model, inner, actions), strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(MODEL, ForesightModel)
    assert (MODEL.features, MODEL.n_actions, MODEL.bounds[1].tolist()) == (model.features, 3, model.bounds[1].tolist())
    np.testing.assert_array_equal(MODEL.noise(np.ones(2)), model.noise(np.ones(2)))
    np.testing.assert_array_equal(MODEL.noise_scale, model.noise_scale)


def test_encoded_histories_are_those_that_are_walked():
    agent = obedient_agent()
    world = CounterfactualWorld(MODEL, starts(), HORIZON)
    batch = rollout(world, agent.policy([0.5, 0.5]), 20, np.random.default_rng(0))
    states = MODEL.encode(batch)
    walked = MODEL.start(batch.start)
    for t in range(batch.horizon):
        live = batch.mask[:, t]
        np.testing.assert_array_equal(states[live, t], walked[live])
        walked = MODEL.advance(walked, batch.actions[:, t], batch.obs[:, t + 1])
    assert not states[~batch.seen].any()


def test_with_and_without():
    model = KnownModel()
    assert with_rules(model, None) is model
    assert (rules_of(model), allowed_actions(model, model.start(starts()))) == (None, None)
    assert without_rules(model) is model
    assert without_rules(with_rules(model, RULES)) is model
    assert rules_of(MODEL) is RULES
    more = read_rules(["1 when After(2)"], ("x", "y"), ("0", "1", "2"))
    both = rules_of(with_rules(MODEL, more))
    assert both is not None
    assert [rule.name for rule in both.rules] == [*TEXTS, "1 when After(2)"]
    assert without_rules(with_rules(MODEL, more)) is MODEL.model
    other = read_rules(["0 when After(1)"], ("x", "y"), ("0", "1"))
    assert other is not None
    with pytest.raises(ValueError, match="the rules are for features"):
        MaskedModel(model, other)


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [27, 81])
def test_with_room_for_every_plan_the_best_allowed_one_is_found(width):
    rows, w = starts(), weights(20)
    search = Search(MODEL, PHI, lambda t, s, _: np.zeros((*s.shape[:2], 3)), HORIZON, GAMMA, width)
    psi = plan(search, 0, MODEL.start(rows), w).psi
    np.testing.assert_allclose(np.einsum("nad,nd->na", psi, w), exact(rows, w), atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 81])
def test_the_best_plan_of_all_begins_with_an_allowed_action(width):
    rows, w = starts(), weights(20, 1)
    # The estimate promises most for what is forbidden.
    search = Search(MODEL, PHI, lambda t, s, _: np.where(MODEL.allowed(s), 0.0, 1e3), HORIZON, GAMMA, width)
    psi = best_plan(search, 0, MODEL.start(rows), w)
    exhaustive = best(rows, w)
    value = np.einsum("nd,nd->n", psi, w)
    assert (value <= exhaustive + 1e-6).all()
    if width == 81:
        np.testing.assert_allclose(value, exhaustive, atol=1e-6)


# --- agents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [None, 0.0, 3.0])
def test_a_policy_never_does_what_is_forbidden(kappa):
    agent = fit_successor(known_problem(model=MODEL), TINY, np.random.default_rng(0))
    world = CounterfactualWorld(MODEL, starts(50), HORIZON, outcome="sampled")
    policy = agent.policy([0.6, -0.4], kappa, 1)
    batch = rollout(world, policy, 300, np.random.default_rng(0), deterministic=kappa is None)
    checked = MODEL.rules.masked(batch)  # raises where one was
    assert checked.allowed is not None
    forced = checked.allowed[batch.mask].sum(axis=1) == 1
    assert 0.05 < forced.mean() < 0.95


def test_q_is_minus_infinity_where_forbidden_and_psi_is_not():
    agent = obedient_agent()
    world = CounterfactualWorld(MODEL, starts(), HORIZON)
    batch = rollout(world, agent.policy([0.5, 0.5]), 20, np.random.default_rng(0))
    q, psi = agent.q(batch, [0.5, 0.5]), agent.psi(batch, [0.5, 0.5])
    mask = MODEL.rules.masked(batch).allowed
    assert np.isneginf(q[batch.mask][~mask[batch.mask]]).all()
    np.testing.assert_array_equal(q[batch.mask][mask[batch.mask]], (psi @ [0.5, 0.5])[batch.mask][mask[batch.mask]])
    # The first values are exact.
    values = exact(batch.start, np.full((20, 2), 0.5))
    np.testing.assert_allclose(q[:, 0][mask[:, 0]], values[mask[:, 0]], atol=1e-6)


@pytest.mark.parametrize("w", [(0.5, 0.5), (-0.9, 0.1), (0.2, -0.8)])
def test_mu_is_that_of_the_policy_in_the_masked_world(w):
    agent, problem = obedient_agent(), known_problem(model=MODEL)
    read_off = agent.mu(w, problem.starts)
    np.testing.assert_allclose(read_off, rolled_out_mu(agent.policy(w), problem), atol=1e-6)
    value = best(problem.starts, np.tile(w, (len(problem.starts), 1))).mean()
    assert read_off @ w == pytest.approx(value, abs=1e-6)
    assert value < known_agent(config=replace(TINY, width=81)).mu(w, problem.starts) @ w - 0.01
    # Searching from a part is masked too.
    np.testing.assert_allclose(agent.mu(w, problem.starts, 25), read_off, atol=0.15)


def test_an_agent_is_read_with_its_rules_and_the_same_seed_gives_the_same_one(tmp_path):
    agent = obedient_agent()
    agent.save(tmp_path / "agent.npz")
    again = SuccessorAgent.load(tmp_path / "agent.npz", MODEL)
    np.testing.assert_array_equal(again.mu([0.5, 0.5], starts()), agent.mu([0.5, 0.5], starts()))
    with pytest.raises(ValueError, match="another world model"):
        SuccessorAgent.load(tmp_path / "agent.npz", KnownModel())
    one, two = (fit_successor(known_problem(model=MODEL), TINY, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one.mu([0.5, 0.5], starts()), two.mu([0.5, 0.5], starts()))


def test_what_is_imagined_for_training_obeys():
    explorer = RandomRates(HORIZON, 3, np.random.default_rng(0), MODEL.rules)
    world = CounterfactualWorld(MODEL, starts(), HORIZON, outcome="sampled")
    batch: Batch = rollout(world, explorer, 500, np.random.default_rng(1), deterministic=False)
    MODEL.rules.masked(batch)
    assert set(batch.actions[batch.mask]) == {0, 1, 2}
