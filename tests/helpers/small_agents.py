"""Successor-feature agents trained for seconds: what they promise holds however badly they play."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from known_model import PHI, KnownModel
from scripted import Scripted

from agents.successor.agent import SuccessorAgent, SuccessorConfig
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import draw_start

TINY = SuccessorConfig(episodes=200, gradient_steps=10, weights_per_history=1, hidden=(16,), width=4)


def known_problem(horizon: int = 4, gamma: float = 0.5, **changes) -> Problem:
    """Three actions, starts at (-2..2, -2..2)."""
    starts = np.random.default_rng(5).integers(-8, 9, size=(50, 2)).astype(np.float32) / 4
    problem = Problem(KnownModel(), PHI, starts, horizon, gamma, uniform_weights([0, 0]))
    return replace(problem, **changes)


def known_agent(seed: int = 0, config: SuccessorConfig = TINY, **changes) -> SuccessorAgent:
    return fit_successor(known_problem(**changes), config, np.random.default_rng(seed))


def exact_agent() -> SuccessorAgent:
    """With room for every plan: there are 81 of four steps, 27 of them with each of the three first actions."""
    return known_agent(config=replace(TINY, width=81))


def tumour_agent(parameters: TumourParameters, gamma: float = 0.99, config: SuccessorConfig = TINY) -> SuccessorAgent:
    """For every w of two negative weights, on the simulator itself."""
    model = OracleModel(parameters)
    problem = Problem(
        model=model,
        feature_map=parameters.feature_map,
        starts=draw_start(parameters, 200, np.random.default_rng(1)).astype(np.float32),
        horizon=parameters.horizon,
        gamma=gamma,
        weights=uniform_weights([-1, -1]),
    )
    return fit_successor(problem, config, np.random.default_rng(0))


def tumour_batch(parameters: TumourParameters, *chances: float, episodes: int = 8, seed: int = 0) -> Batch:
    """Episodes of policies that treat with constant chances, one after the other."""
    world, rng = TumourWorld(parameters), np.random.default_rng(seed)
    batches = [rollout(world, Scripted(chance, seed), episodes, rng) for chance in chances]
    padded = [batch.padded(parameters.horizon) for batch in batches]
    return Batch(
        obs=np.concatenate([batch.obs for batch in padded]),
        actions=np.concatenate([batch.actions for batch in padded]),
        lengths=np.concatenate([batch.lengths for batch in padded]),
        terminated=np.concatenate([batch.terminated for batch in padded]),
        truncated=np.concatenate([batch.truncated for batch in padded]),
        features=world.features,
        action_names=("0", "1"),
        ids=tuple(str(i) for i in range(episodes * len(chances))),
    )
