"""What is found does not depend on which number an action has, or on how large weights are written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_run import AGENT, POSTERIOR, fitted, tiny_demo, tiny_fit

from cirl_gym import Batch
from irl.pipeline import Fit, simulate
from irl.stages import stages

# Every plan of six steps is searched, from every start, so that nothing rests on what the network has learnt.
EXACT = tiny_fit(agent=replace(AGENT, width=64), posterior=replace(POSTERIOR, decisions=300, near_width=64), starts=999)


def relabelled(batch: Batch) -> Batch:
    """Action 0 is called 1, and 1 is called 0."""
    return replace(batch, actions=np.where(batch.mask, 1 - batch.actions, 0), action_names=batch.action_names[::-1])


@pytest.fixture(scope="module")
def found() -> tuple[Fit, Fit]:
    seen = simulate(tiny_demo(episodes=200), stages(20, quiet=True))
    splits = (seen.train, seen.validation)
    return fitted(*splits, EXACT), fitted(*map(relabelled, splits), EXACT)


def test_neither_names_of_actions_nor_the_size_of_weights_matter(found):
    one, other = found
    np.testing.assert_allclose(other.weights, one.weights, atol=1e-3)
    np.testing.assert_allclose(other.posterior.low, one.posterior.low, atol=2e-3)
    np.testing.assert_allclose(other.mu_expert.mean, one.mu_expert.mean, atol=1e-4)
    # Later rounds can ask for weights under which policies tie.
    np.testing.assert_allclose(other.loop.rounds[0].mu, one.loop.rounds[0].mu, atol=1e-4)
    agent, starts = found[0].agent, found[0].pool.batch.start
    w = np.array([-0.2, -0.1])
    np.testing.assert_array_equal(agent.mu(3 * w, starts), agent.mu(w, starts))
    batch = found[0].pool.batch
    np.testing.assert_array_equal(agent.psi(batch, 3 * w), agent.psi(batch, w))
