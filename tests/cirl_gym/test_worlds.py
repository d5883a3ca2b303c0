"""The two batched worlds, the oracle model between them, and the rollout loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripted import Scripted, plain_returns
from small_batches import batch_of

from cirl_gym import CounterfactualWorld, TumourParameters, TumourWorld, rollout
from cirl_gym.data.rollout import act_along, discounted, observation, returns
from cirl_gym.outcome_models.oracle import OracleModel

W = np.array([-0.3, -0.7])
PHI = TumourParameters().feature_map


class Recorder:
    """Alternates, each second patient the other way, and keeps what it was shown; its memory is the number of calls."""

    def __init__(self):
        self.shown = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        calls = np.zeros(len(observation), dtype=np.int64) if state is None else state[0]
        self.shown.append((observation.copy(), state, episode_start.copy(), deterministic))
        return (calls + np.arange(len(observation))) % 2, (calls + 1,)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_returns_match_a_monte_carlo_of_the_equations(chance):
    batch = rollout(TumourWorld(), Scripted(chance), 4000, np.random.default_rng(0))
    earned = returns(batch, PHI, W)
    plain = plain_returns(chance, 2000, seed=1)
    error = np.hypot(earned.std() / np.sqrt(4000), plain.std() / np.sqrt(2000))
    assert abs(earned.mean() - plain.mean()) < 4 * error
    assert error < 0.05


def test_always_treating_cures_in_9_to_12_steps_with_the_known_mu():
    batch = rollout(TumourWorld(), Scripted(1.0), 2000, np.random.default_rng(0))
    assert batch.terminated.all()
    # Four in five; starts far from the mean take less or longer.
    assert ((batch.lengths >= 9) & (batch.lengths <= 12)).mean() == pytest.approx(0.82, abs=0.05)
    mu = discounted(batch, PHI(batch.next_obs), 0.99).mean(axis=0)
    np.testing.assert_allclose(mu, [3.08, 3.20], atol=0.1)


class TestRollout:
    def test_episodes_end_where_they_should(self):
        batch = rollout(TumourWorld(), Scripted(0.4), 300, np.random.default_rng(0))
        p = TumourParameters()
        for k, (obs, actions) in enumerate(batch.episodes()):
            assert len(obs) == len(actions) + 1
            x, z = obs[:, 0], obs[:, 1]
            over = (x <= 0) | (x >= p.tumour_max) | (z >= p.side_max)
            assert not over[:-1].any()
            assert over[-1] == batch.terminated[k]
            if batch.truncated[k]:
                assert len(actions) == p.horizon
        assert 0 < batch.truncated.sum() < 300

    def test_what_the_policy_is_shown(self):
        policy = Recorder()
        batch = rollout(TumourWorld(), policy, 4, np.random.default_rng(0))
        shown, memory, begin, _ = policy.shown[0]
        np.testing.assert_array_equal(shown[:, 2:], np.zeros((4, 2)))
        assert memory is None
        assert begin.all()
        for t, (shown, memory, begin, _) in enumerate(policy.shown[1:], start=1):
            assert memory[0][0] == t
            assert not begin.any()
            going = batch.lengths > t
            # The action shown at t is a_{t-1}, never a_t.
            np.testing.assert_array_equal(shown[going, 2:].argmax(axis=1), batch.actions[going, t - 1])
            np.testing.assert_array_equal(shown[going, :2], batch.obs[going, t])

    def test_act_along_shows_the_real_history_and_keeps_the_memory(self):
        policy, batch = Recorder(), batch_of([1, 0, 1], [1])
        chosen = act_along(policy, batch.padded(6))
        np.testing.assert_array_equal(chosen, [[0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
        assert len(policy.shown) == 3, "padding is not walked"
        seen, _, starts, flags = zip(*policy.shown, strict=True)
        # Raw features, then the one-hot action that was really taken before (none at t = 0).
        np.testing.assert_array_equal(np.stack(seen)[:, 0], [[0, 100, 0, 0], [1, 101, 0, 1], [2, 102, 1, 0]])
        np.testing.assert_array_equal(seen[0], observation(batch.start, np.full(2, -1), 2))
        np.testing.assert_array_equal(np.stack(starts), [[True, True], [False, False], [False, False]])
        assert all(flags)
        act_along(policy, batch, deterministic=False)
        assert not policy.shown[-1][-1]

    def test_it_says_how_far_it_is_and_the_same_seed_gives_the_same_bytes(self):
        said, world = [], TumourWorld()

        def progress(*done):
            said.append(done)

        one, two = (rollout(world, Scripted(0.5, 3), 20, np.random.default_rng(4), progress=progress) for _ in range(2))
        half = len(said) // 2
        assert said == [(step + 1, 20) for step in range(half)] * 2
        assert 1 < half <= 20
        assert one == two
        assert one != rollout(TumourWorld(), Scripted(0.5, 3), 20, np.random.default_rng(5))

    def test_given_starts(self):
        world = TumourWorld(noise=False)
        start = world.start(np.array([[30.0, 2], [40, 3]]))
        batch = rollout(world, Scripted(0.0), 2, np.random.default_rng(0), start=start)
        # (30, 2) without treatment: 32.5, then 33.0 (test_simulator).
        np.testing.assert_allclose(batch.obs[0, :3, 0], [30, 32.5, 33.0])
        with pytest.raises(ValueError, match="3 episodes"):
            rollout(world, Scripted(0.0), 3, np.random.default_rng(0), start=start)

    def test_discounted_by_hand(self):
        batch = rollout(TumourWorld(), Scripted(0.0), 1, np.random.default_rng(0))
        k = int(batch.lengths[0])
        ones = np.ones((1, batch.horizon))
        # A geometric series of k terms.
        assert discounted(batch, ones, 0.5)[0] == pytest.approx(2 * (1 - 0.5**k))
        assert discounted(batch, ones, 0.0)[0] == 1
        assert discounted(batch, ones, 1.0)[0] == k
        with pytest.raises(ValueError, match="gamma"):
            discounted(batch, ones, 1.5)

    def test_observation_puts_features_before_the_one_hot_action(self):
        shown = observation(np.array([[1.5, 2.5]] * 3, dtype=np.float32), np.array([-1, 0, 2]), 3)
        np.testing.assert_array_equal(shown, [[1.5, 2.5, 0, 0, 0], [1.5, 2.5, 1, 0, 0], [1.5, 2.5, 0, 0, 1]])
        assert shown.dtype == np.float32


class TestOracle:
    @pytest.mark.parametrize("lags", ["repeat", "available"])
    def test_its_world_is_the_simulator_step_for_step(self, lags):
        parameters = TumourParameters(tumour_noise=0.0, side_noise=0.0, lags=lags)
        rng = np.random.default_rng(0)
        simulator = TumourWorld(parameters, noise=False)
        starts = simulator.reset(50, rng)[1]
        world = CounterfactualWorld(OracleModel(parameters), starts, parameters.horizon)
        imagined = rollout(world, Scripted(0.5, 1), 50, np.random.default_rng(1))
        start = simulator.start(starts.astype(np.float64))
        real = rollout(simulator, Scripted(0.5, 1), 50, np.random.default_rng(2), start=start)
        np.testing.assert_array_equal(imagined.lengths, real.lengths)
        np.testing.assert_array_equal(imagined.terminated, real.terminated)
        np.testing.assert_allclose(imagined.obs, real.obs, rtol=1e-4, atol=1e-4)

    def test_predict_by_hand_and_encode_is_start_and_advance_and_padding_changes_nothing(self):
        # From (30, 2): (32.5, 0 after clipping) without and (30, 0.5) with treatment.
        model = OracleModel()
        predicted = model.predict(model.start(np.array([[30, 2]], dtype=np.float32)))
        np.testing.assert_allclose(predicted, [[[32.5, 0.0], [30.0, 0.5]]], atol=1e-6)
        batch = rollout(TumourWorld(), Scripted(0.5), 30, np.random.default_rng(0))
        states = model.encode(batch)
        assert states.shape[:2] == (30, batch.horizon + 1)
        np.testing.assert_array_equal(model.encode(batch.padded(40))[:, : batch.horizon + 1], states)
        np.testing.assert_array_equal(model.encode(batch.take(np.array([7])))[0], states[7])
        k = int(batch.lengths[7])
        assert (states[7, k + 1 :] == 0).all()
        state = model.start(batch.obs[7:8, 0])
        for t in range(k):
            state = model.advance(state, batch.actions[7:8, t], batch.obs[7:8, t + 1])
        np.testing.assert_array_equal(state[0], states[7, k])

    def test_predictions_do_not_see_what_comes_later(self):
        model = OracleModel()
        batch = rollout(TumourWorld(), Scripted(0.5), 10, np.random.default_rng(0))
        obs, actions = batch.obs.copy(), batch.actions.copy()
        obs[:, 4:] += 100
        actions[:, 3:] = 1 - actions[:, 3:]
        changed = replace(batch, obs=obs, actions=actions)
        before, after = (model.predict(model.encode(one)) for one in (batch, changed))
        np.testing.assert_array_equal(before[:, :4], after[:, :4])
        assert (before[:, 4:] != after[:, 4:]).any()

    def test_its_end_probability_is_the_frequency_of_ends(self):
        model, world = OracleModel(), TumourWorld()
        # Without treatment the expected volume is 49.95: about .31 of the patients reach 50.
        n = 20_000
        state, obs = world.start(np.repeat([[47.45, 2.0]], n, axis=0))
        ended = world.step(state, np.zeros(n, dtype=np.int64), np.random.default_rng(0)).terminated.mean()
        assert model.end_probability(model.start(obs[:1]))[0, 0] == pytest.approx(ended, abs=0.015)


class TestCounterfactualWorld:
    starts = np.array([[30, 2], [35, 3]], dtype=np.float32)

    def test_every_start_once_then_drawn(self):
        world = CounterfactualWorld(OracleModel(), self.starts, 20)
        _, obs = world.reset(2, np.random.default_rng(0))
        np.testing.assert_array_equal(obs, self.starts)
        _, many = world.reset(200, np.random.default_rng(0))
        assert {tuple(row) for row in many.tolist()} == {(30, 2), (35, 3)}

    def test_sampled_outcomes_scatter_around_the_expected_one(self):
        n = 5000
        starts = np.repeat(self.starts[:1], n, axis=0)
        world = CounterfactualWorld(OracleModel(), starts, 20, outcome="sampled")
        state, _ = world.reset(n, np.random.default_rng(0))
        step = world.step(state, np.ones(n, dtype=np.int64), np.random.default_rng(1))
        # Expected (30, 0.5), noise 0.1 each; the standard error of the mean is .0014.
        np.testing.assert_allclose(step.obs.mean(axis=0), [30, 0.5], atol=0.006)
        np.testing.assert_allclose(step.obs.std(axis=0), [0.1, 0.1], atol=0.005)
        np.testing.assert_allclose(step.outcomes, np.repeat([[30, 0.5]], n, axis=0), atol=1e-5)

        with pytest.raises(ValueError, match="outcome must"):
            CounterfactualWorld(OracleModel(), starts, 20, outcome="drawn")
        with pytest.raises(ValueError, match="starts must"):
            CounterfactualWorld(OracleModel(), np.zeros((2, 3), dtype=np.float32), 20)
