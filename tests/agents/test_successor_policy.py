"""Acting with the successor-feature agent: what it remembers, what it refuses, and how it draws."""

from __future__ import annotations

import numpy as np
import pytest
from small_agents import exact_agent, tumour_agent, tumour_batch

from agents.successor.agent import SuccessorAgent
from cirl_gym import Batch, TumourParameters
from cirl_gym.data.rollout import act_along, observation

W = np.array([-0.3, -0.7])


@pytest.fixture(scope="module")
def agent() -> SuccessorAgent:
    """On the simulator, 20 steps."""
    return tumour_agent(TumourParameters())


@pytest.fixture(scope="module")
def batch() -> Batch:
    """24 episodes of 9 to 20 steps."""
    return tumour_batch(TumourParameters(), 0.0, 0.5, 1.0)


@pytest.fixture(scope="module")
def known() -> SuccessorAgent:
    """Three actions, four steps, every plan searched."""
    return exact_agent()


def shown(batch, t):
    """What a policy sees of each episode at t."""
    previous = batch.actions[:, t - 1] if t else np.full(len(batch), -1)
    return observation(batch.obs[:, t], previous, batch.n_actions)


def acted_q(policy, batch):
    """Q along a batch as the policy has it, step by step with carried memory."""
    memory, q = None, []
    for t in range(batch.horizon):
        step, memory = policy.act(shown(batch, t), memory, np.full(len(batch), t == 0))
        q.append(step)
    return np.where(batch.mask[..., None], np.stack(q, axis=1), 0.0)


class TestMemory:
    def test_step_by_step_as_on_the_stored_batch(self, agent, batch):
        q = agent.q(batch, W)
        np.testing.assert_allclose(acted_q(agent.policy(W), batch), q, atol=1e-5)
        np.testing.assert_array_equal(act_along(agent.policy(W), batch), np.where(batch.mask, q.argmax(axis=2), 0))

    def test_it_remembers_more_than_it_sees(self, agent):
        # Five treatments and none, then the same observation and the same last action.
        obs = np.tile(np.array([30.0, 5.0], dtype=np.float32), (2, 1))
        memory, policy = None, agent.policy(W)
        for t, previous in enumerate([[-1, -1], [1, 0], [1, 0], [1, 0], [0, 0]]):
            seen = observation(obs, np.array(previous), 2)
            q, memory = policy.act(seen, memory, np.full(2, t == 0))
        assert np.abs(q[0] - q[1]).max() > 0.1

    def test_a_row_that_restarts_is_as_fresh(self, agent, batch):
        # The first row's episode is over after three steps; then it shows another patient's first observation.
        policy, pair, long = agent.policy(W), batch.take(np.array([16, 0])), batch.take(np.array([0]))
        memory = None
        for t in range(3):
            _, memory = policy.act(shown(pair, t), memory, np.full(2, t == 0))
        new = observation(batch.obs[5:6, 0], np.array([-1]), 2)
        q, memory = policy.act(np.concatenate([new, shown(long, 3)]), memory, np.array([True, False]))
        np.testing.assert_allclose(q[:1], policy.act(new, None, None)[0], atol=1e-5)
        np.testing.assert_allclose(q[1], agent.q(long, W)[0, 3], atol=1e-5)
        np.testing.assert_array_equal(memory[1], [0, 3])

    def test_what_an_earlier_episode_was_leaves_no_trace(self, agent, batch):
        policy, new = agent.policy(W), observation(batch.obs[5:6, 0], np.array([-1]), 2)
        seen = []
        for earlier in (0, 16):
            memory = policy.act(shown(batch.take(np.array([earlier])), 0), None, None)[1]
            seen.append(policy.act(new, memory, np.array([True])))
        np.testing.assert_array_equal(seen[0][0], seen[1][0])
        np.testing.assert_array_equal(seen[0][1][0], seen[1][1][0])

    def test_memory_that_is_handed_in_is_used_without_further_word(self, agent, batch):
        policy = agent.policy(W)
        _, memory = policy.predict(shown(batch, 0))
        told, _ = policy.act(shown(batch, 1), memory, np.zeros(len(batch), dtype=np.bool_))
        untold, _ = policy.act(shown(batch, 1), memory, None)
        np.testing.assert_array_equal(untold, told)

    def test_missing_memory_is_an_error(self, agent, batch):
        with pytest.raises(ValueError, match="state is None"):
            agent.policy(W).predict(shown(batch, 1), None, np.zeros(len(batch), dtype=np.bool_))
        mixed = np.arange(len(batch)) > 0
        with pytest.raises(ValueError, match="state is None"):
            agent.policy(W).predict(shown(batch, 1), None, mixed)

    def test_missing_previous_action_is_an_error(self, agent, batch):
        policy = agent.policy(W)
        _, memory = policy.predict(shown(batch, 0))
        with pytest.raises(ValueError, match="no previous action"):
            policy.predict(shown(batch, 0), memory, np.zeros(len(batch), dtype=np.bool_))

    @pytest.mark.parametrize("shape", [(4,), (1, 2), (1, 5)])
    def test_observations_of_another_shape_are_an_error(self, agent, shape):
        with pytest.raises(ValueError, match=r"must be \[n, 4\]"):
            agent.policy(W).predict(np.zeros(shape, dtype=np.float32))

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

    def test_frequencies_are_the_softmax_of_kappa_q(self, known):
        w, kappa = [0.6, -0.4], 1.5
        z = np.exp(kappa * known.policy(w).act(self.obs, None, None)[0][0])
        expected = z / z.sum()
        assert ((expected > 0.05) & (expected < 0.8)).all()
        # Standard error at most .0056.
        np.testing.assert_allclose(self.frequencies(known.policy(w, kappa)), expected, atol=0.025)

    def test_kappa_0_knows_no_preference(self, known):
        np.testing.assert_allclose(self.frequencies(known.policy([0.6, -0.4], 0.0)), np.full(3, 1 / 3), atol=0.025)

    def test_the_most_likely_action_on_request(self, known):
        many = np.repeat(self.obs, 20, axis=0)
        best = known.policy([0.6, -0.4]).predict(many)[0]
        np.testing.assert_array_equal(known.policy([0.6, -0.4], 1.0).predict(many, deterministic=True)[0], best)
        assert len(set(best.tolist())) == 1

    def test_the_seed_decides(self, known):
        many = np.repeat(self.obs, 200, axis=0)
        draws = [known.policy([0.6, -0.4], 1.0, seed).predict(many)[0] for seed in (3, 3, 4)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert (draws[0] != draws[2]).any()

    @pytest.mark.parametrize("kappa", [-1.0, np.nan, np.inf])
    def test_bad_kappa(self, known, kappa):
        with pytest.raises(ValueError, match="kappa must be"):
            known.policy([1.0, 0.0], kappa)
