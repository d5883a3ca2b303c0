"""Weights that are read off a method's own reward, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_batches import batch_of

from cirl_gym.data.features import FeatureMap
from irl.baselines.implied import implied_weights

PHI = FeatureMap(("x", "y"), np.zeros(2), np.array([10.0, 10.0]))


def random_batch():
    batch = batch_of([0, 1, 1, 0], [1, 0])
    return replace(batch, obs=np.random.default_rng(0).uniform(0, 10, size=batch.obs.shape))


def test_a_linear_reward_is_read_whole():
    batch = random_batch()
    rewards = np.where(batch.mask, 7 - 3 * PHI(batch.next_obs)[..., 0] + PHI(batch.next_obs)[..., 1], 1e9)
    found = implied_weights(rewards, batch, PHI)
    np.testing.assert_allclose(found.weights, [-0.75, 0.25])
    assert found.explained == pytest.approx(1)


def test_what_is_explained_by_hand():
    """Phi of x is 0, 0, .1, .1 and the reward 0, 2, 4, 6: means of 1 and 5 explain 16 of 20."""
    batch = batch_of([0, 0, 0, 0])
    obs = np.zeros((1, 5, 2))
    obs[0, 3:, 0] = 1
    found = implied_weights(np.array([[0.0, 2, 4, 6]]), replace(batch, obs=obs), PHI)
    assert found.explained == pytest.approx(0.8)
    np.testing.assert_allclose(found.weights, [1, 0], atol=1e-12)


@pytest.mark.parametrize("constant", ["reward", "phi"])
def test_where_nothing_changes_there_are_no_weights(constant):
    batch = random_batch()
    if constant == "phi":
        batch = replace(batch, obs=np.full_like(batch.obs, 5))
    rewards = np.random.default_rng(1).normal(size=batch.mask.shape) if constant == "phi" else np.ones(batch.mask.shape)
    assert implied_weights(rewards, batch, PHI) == (None, 0.0)
