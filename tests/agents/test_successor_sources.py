"""One call from what a user has to an agent for every preference."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from scripted import Scripted

from agents.expert import noise_free_values
from agents.successor.agent import SuccessorAgent, SuccessorConfig
from agents.successor.training import fit_agent
from cirl_gym import CounterfactualWorld, TumourParameters, TumourWorld, rollout
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import draw_start

PARAMETERS = TumourParameters(horizon=8)
PHI = PARAMETERS.feature_map
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
        "counterfactual": lambda: (CounterfactualEnv(OracleModel(PARAMETERS), batch, feature_map=PHI), {}),
        "imagined": lambda: (
            CounterfactualWorld(OracleModel(PARAMETERS), batch.start, 8),
            {"feature_map": PHI},
        ),
    }
    source, options = sources[name]()
    agent = SuccessorAgent.fit(source, 0.9, config=SMALL, signs=(-1, -1), **options)
    # A batch scales by its own ranges, so weights there mean something else: x_max and z_max are put back.
    ranges = agent.feature_map.high - agent.feature_map.low
    for w in ((-0.3, -0.7), (-0.7, -0.3)):
        scaled = np.array(w) * ranges / PHI.high
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
    assert a.q(batch, w).tobytes() != c.q(batch, w).tobytes()


def test_bad_sources_are_refused(batch):
    with pytest.raises(TypeError, match="trained from"):
        fit_agent(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="give feature_map"):
        fit_agent(CounterfactualWorld(OracleModel(PARAMETERS), batch.start, 8))
