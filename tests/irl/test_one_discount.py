"""One discount factor everywhere: data, successor features, roll-outs and every plan agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import PHI, KnownModel, every_plan, plain_state
from small_agents import TINY, known_agent, known_problem
from small_batches import batch_of

from agents.solvers import Setting
from cirl_gym import rollout
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import discounted, returns
from irl.max_margin.loop import expert_mu, phi_along
from irl.settings import FitConfig


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99, 1.0])
def test_data_successor_features_rollouts_and_every_plan_agree(gamma):
    w = np.array([0.6, -0.4])
    certain = KnownModel(ends=False)
    agent = known_agent(config=replace(TINY, width=27), model=certain, gamma=gamma)
    starts = known_problem().starts
    played = rollout(CounterfactualWorld(certain, starts, 4), agent.policy(w), len(starts), np.random.default_rng(0))
    plans = [
        np.concatenate([every_plan(plain_state(row), 4, gamma, first, ends=False) for first in range(3)])
        for row in certain.start(starts)
    ]
    exact = np.array([psi[(psi @ w).argmax()] for psi in plans]).mean(axis=0)
    data = expert_mu(phi_along(certain, PHI, played), played, gamma).mean
    earned = discounted(played, PHI(played.next_obs), gamma).mean(axis=0)
    for found in (data, earned, agent.mu(w, starts)):
        # The weighted sum is unique, a plan of the same value may be another.
        assert found @ w == pytest.approx(exact @ w, abs=1e-5)
    np.testing.assert_allclose(data, earned, atol=1e-5)
    np.testing.assert_allclose(agent.mu(w, starts), earned, atol=1e-5)
    # Q of that policy is w . psi, and its value what it earns.
    q = agent.q(played, w)
    np.testing.assert_allclose(q, agent.psi(played, w) @ (w / np.abs(w).sum()), atol=1e-12)
    assert q[:, 0].max(axis=1).mean() == pytest.approx(returns(played, PHI, w, gamma).mean(), abs=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_they_agree_where_episodes_end_by_chance(gamma):
    agent = known_agent(config=replace(TINY, width=27), gamma=gamma)
    starts = known_problem().starts
    starts = starts[starts[:, 0] > 0]
    world = CounterfactualWorld(agent.model, np.tile(starts, (200, 1)), 4)
    played = rollout(world, agent.policy([0.2, 0.8]), 200 * len(starts), np.random.default_rng(0))
    data = expert_mu(phi_along(agent.model, PHI, played), played, gamma)
    np.testing.assert_allclose(data.mean, agent.mu([0.2, 0.8], starts), atol=1e-2)


def test_the_sum_has_as_many_terms_as_actions():
    batch = batch_of([0] * 20, [0] * 3)
    ones = np.ones((2, 20, 1))
    assert expert_mu(ones, batch, 1.0).mean[0] == pytest.approx((20 + 3) / 2)
    assert expert_mu(ones, batch, 0.0).mean[0] == pytest.approx(1)
    assert expert_mu(ones[:1], batch.take(np.array([0])), 0.99).mean[0] == pytest.approx((1 - 0.99**20) / 0.01)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, np.nan])
def test_another_discount_is_refused_everywhere(gamma):
    batch = batch_of([0, 1])
    for use in (
        lambda: expert_mu(np.ones((1, 2, 2)), batch, gamma),
        lambda: discounted(batch, np.ones((1, 2)), gamma),
        lambda: known_problem(gamma=gamma),
        lambda: FitConfig(gamma=gamma),
        lambda: Setting(gamma=gamma),
    ):
        with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
            use()
