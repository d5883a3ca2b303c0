"""Recurrent Q-learning on histories of a batch: it finds the optimum of a small case, and its policy acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from five_state_model import every_course, exact, histories_of, numbers, problem_of

from agents.as_printed.histories import Histories
from agents.as_printed.policy import LearntPolicy, QLearner, learn_policy
from agents.as_printed.training import HistoryNetwork, HistoryTrainingConfig, Rows, _targets
from cirl_gym.data.rollout import act_along, discounted, observation, rollout
from cirl_gym.worlds.world import CounterfactualWorld

SMALL = HistoryTrainingConfig(hidden=32, batch_size=16, learning_rate=2e-2, target_every=20, iterations=300)
TINY = replace(SMALL, hidden=4, batch_size=3, target_every=2, iterations=4)
W = np.array([-0.4, -0.6])


@pytest.fixture(scope="module")
def tiny() -> LearntPolicy:
    return learn_policy(histories_of(every_course(3), 0.9), W, TINY, np.random.default_rng(0))


class TestOptimum:
    @pytest.mark.parametrize(("gamma", "w"), [(0.5, (-0.8, -0.2)), (0.99, (-0.4, -0.6))])
    def test_the_greedy_policy_is_the_exact_optimum(self, gamma, w):
        batch, weights = every_course(3), np.array(w)
        problem = problem_of(batch, gamma)
        policy = learn_policy(Histories.of(problem), weights, SMALL, np.random.default_rng(0))
        psi = exact(gamma, 3, lambda psi: (psi @ weights).argmax(axis=1))
        q = psi[np.arange(3), numbers(batch.obs[:, :-1])] @ weights
        np.testing.assert_allclose(policy.q(batch), q, atol=3e-2)
        clear = np.abs(q[..., 0] - q[..., 1]) > 0.02
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(act_along(policy, batch)[clear], q.argmax(axis=2)[clear])
        # Acting in the world model it earns what is best there.
        world = CounterfactualWorld(problem.model, np.tile(batch.start, (200, 1)), 3)
        played = rollout(world, policy, len(world.starts), np.random.default_rng(1))
        earned = discounted(played, problem.feature_map(played.next_obs) @ weights, gamma)
        assert earned.mean() == pytest.approx(q[:, 0].max(axis=1).mean(), abs=2e-2)

    def test_as_printed_but_smaller(self):
        batch = every_course(3)
        printed = replace(
            HistoryTrainingConfig.paper(), hidden=32, batch_size=48, learning_rate=2e-2, last_rate=0.03, target_every=20
        )
        policy = learn_policy(
            histories_of(batch, 0.99, "data"), W, replace(printed, iterations=300), np.random.default_rng(0)
        )
        psi = exact(0.99, 3, lambda psi: (psi @ W).argmax(axis=1), p_end=np.zeros(2))
        q = psi[np.arange(3), numbers(batch.obs[:, :-1])] @ W
        np.testing.assert_allclose(policy.q(batch), q, atol=4e-2)

    def test_the_target_by_hand(self):
        # Q of every history is 1 for waiting and 3 for treating, gamma is .5, and the second step is the last.
        histories = histories_of(every_course(2), 0.5, "data")
        network = HistoryNetwork(4, 2, 1, hidden=3)
        with torch.no_grad():
            network.head.weight.zero_()
            network.head.bias.copy_(torch.tensor([1.0, 3.0]))
        learner = QLearner((histories.phi @ torch.tensor([-1.0, 0.0]))[..., None])
        rows = Rows(torch.tensor([0, 0]), torch.tensor([0, 1]))
        got = _targets(histories, learner, network, rows, torch.tensor([[0, 1]] * 2))[..., 0]
        # Mild, then severe: diseases of (1, .2) and (1, .4) follow.
        np.testing.assert_allclose(got, [[-1 + 1.5, -0.2 + 1.5], [-1, -0.4]], atol=1e-6)

    def test_the_loss_is_squared(self):
        assert QLearner(torch.zeros(1)).loss(torch.tensor([[[3.0]], [[1.0]]])).item() == 5.0


class TestPolicy:
    def test_step_by_step_as_along_the_batch(self, tiny):
        batch, memory = every_course(3), None
        previous = np.full(16, -1)
        for t in range(3):
            seen = observation(batch.obs[:, t], previous, 2)
            q, memory = tiny.act(seen, memory, np.full(16, t == 0))
            np.testing.assert_allclose(q, tiny.q(batch)[:, t], atol=1e-6)
            previous = batch.actions[:, t]
        np.testing.assert_array_equal(act_along(tiny, batch), tiny.q(batch).argmax(axis=2))

    def test_a_row_that_restarts_is_as_fresh(self, tiny):
        seen = observation(every_course(3).obs[[0, 15], 0], np.array([-1, -1]), 2)
        fresh, memory = tiny.act(seen, None, None)
        again, _ = tiny.act(seen, memory, np.array([True, False]))
        np.testing.assert_array_equal(again[0], fresh[0])
        assert (again[1] != fresh[1]).any()

    def test_a_batch_with_padding(self, tiny):
        batch = replace(every_course(3), lengths=np.arange(16) % 3 + 1)
        np.testing.assert_allclose(tiny.q(batch), tiny.q(batch.padded(7))[:, :3], atol=1e-6)
        assert (tiny.q(batch)[~batch.mask] == 0).all()

    def test_same_seed_same_bytes(self, tiny):
        again = learn_policy(histories_of(every_course(3), 0.9), W, TINY, np.random.default_rng(0))
        assert again.q(every_course(3)).tobytes() == tiny.q(every_course(3)).tobytes()

    def test_bad_arguments(self, tiny):
        histories = tiny.histories
        for w in ([1.0], [np.nan, 1.0], [[1.0, 1.0]]):
            with pytest.raises(ValueError, match="w must be 2 finite numbers"):
                learn_policy(histories, w, TINY, np.random.default_rng(0))
        with pytest.raises(ValueError, match=r"must be \[n, 4\]"):
            tiny.predict(np.zeros((1, 3), dtype=np.float32))
        with pytest.raises(ValueError, match="learnt was on"):
            tiny.q(replace(every_course(2), action_names=("a", "b", "c")))
        with pytest.warns(UserWarning, match="the history is lost"):
            tiny.predict(np.ones((1, 4), dtype=np.float32))
