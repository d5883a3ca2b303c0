"""Simulated experts of the tumour simulator, of one set of weights or of two, one after the other."""

from __future__ import annotations

import numpy as np

from agents.expert import Expert, successor_expert
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import Policy
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.settings import DemoConfig

PARAMETERS = TumourParameters()
QUICK = DemoConfig().quick()
SIGNS = np.array([-1.0, -1.0])


class Turning:
    """Follows one policy, and another from some step on; both see everything from the beginning."""

    def __init__(self, first: Policy, then: Policy, at: int) -> None:
        self.policies, self.at = (first, then), at

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        memories, t = ((None, None), 0) if state is None else state
        done = [
            policy.predict(observation, memory, episode_start, deterministic)
            for policy, memory in zip(self.policies, memories, strict=True)
        ]
        return done[t >= self.at][0], (tuple(memory for _, memory in done), t + 1)


def expert_of(w: tuple[float, float], gamma: float, kappa: float) -> Expert:
    return successor_expert(PARAMETERS, np.array(w), gamma, kappa, QUICK.expert, np.random.default_rng(1))


def played(policy: Policy, episodes: int, seed: int) -> Batch:
    return rollout(TumourWorld(PARAMETERS), policy, episodes, np.random.default_rng(seed), deterministic=False)


def solved(batch: Batch, gamma: float) -> SuccessorAgent:
    """Candidate policies in the simulator itself, for every w of two negative weights."""
    model = OracleModel(PARAMETERS)
    world = Problem(
        model, PARAMETERS.feature_map, batch.start, PARAMETERS.horizon, gamma, uniform_weights(SIGNS), histories=batch
    )
    return fit_successor(world, QUICK.fit.agent, np.random.default_rng(4))
