"""No policy drives a world model out of its bounds, and every step off the data is flagged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from env_runs import native
from outcome_batches import MODELS, random_model
from recurrent_networks import episodes
from small_agents import TINY

from agents.policies.policy import ConstantPolicy
from agents.successor.training import fit_agent
from cirl_gym import rollout
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.envs.counterfactual import CounterfactualEnv


@pytest.fixture(scope="module")
def packaged():
    """The environment that ships with the package, and an agent trained in it for all signs of w."""
    env = CounterfactualEnv()
    return env, fit_agent(env, config=replace(TINY, width=1), seed=0)


@pytest.mark.parametrize("outcome", ["expected", "sampled"])
@pytest.mark.parametrize("name", ["always", "never", "random", "greedy", "greedy against it"])
def test_no_policy_drives_the_world_model_out_of_its_bounds(packaged, name, outcome):
    """A tenth of the 10,000 roll-outs each."""
    sign = -1.0 if name == "greedy against it" else 1.0
    w = sign * np.array([-0.3, -0.7])
    n, (single, agent) = 1000, packaged
    envs = native("CIRLCounterfactual-v0", "NextStep", n, weights=w, outcome=outcome)
    action, phi = {"always": 1, "never": 0}.get(name), single.feature_map
    policy = agent.policy(w) if "greedy" in name else ConstantPolicy(action, 2, np.random.default_rng(3))
    low, high = (np.asarray(end, dtype=np.float32) for end in single.model.bounds)
    seen = single.batch.obs[single.batch.seen]
    steepest = np.maximum(np.abs(phi(low)), np.abs(phi(high)))
    obs, _ = envs.reset(seed=0)
    going, over, memory, left = np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_), None, False
    begin = np.ones(n, dtype=np.bool_)
    for t in range(single.batch.horizon):
        actions, memory = policy.predict(obs, memory, begin, True)
        obs, rewards, terminated, truncated, info = envs.step(np.asarray(actions))
        outcomes = obs[going, :2]
        assert np.isfinite(outcomes).all()
        assert ((outcomes >= low) & (outcomes <= high)).all()
        assert (np.abs(rewards[going]) <= np.abs(w) @ steepest + 1e-6).all()
        off = ((outcomes < seen.min(axis=0)) | (outcomes > seen.max(axis=0))).any(axis=1)
        np.testing.assert_array_equal(info["outside_support"][going], off)
        left |= bool(off.any())
        assert not truncated[going].any() or t == single.batch.horizon - 1, "watched to the horizon, not longer"
        # The row after an end is the next patient's first: it is not looked at.
        begin = over
        over = terminated | truncated
        going &= ~over
    assert not going.any()
    if name == "always":
        assert left, "no expert treats at every step: the flag must be seen"


@pytest.mark.parametrize("kind", MODELS)
def test_even_absurd_networks_stay_within_bounds(kind):
    """Random coefficients, some of them explosive."""
    model = random_model(kind)
    starts = episodes(*[1] * 50, seed=2).start
    low, high = model.bounds
    for outcome in ("expected", "sampled"):
        for action in (0, 1, 2, None):
            policy = ConstantPolicy(action, 3, np.random.default_rng(0))
            world = CounterfactualWorld(model, starts, 20, outcome=outcome)
            played = rollout(world, policy, 200, np.random.default_rng(0))
            outcomes = played.next_obs[played.mask]
            assert np.isfinite(outcomes).all()
            assert ((outcomes >= low) & (outcomes <= high)).all()
