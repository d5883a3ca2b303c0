"""Candidate policies of the max-margin loop and their mu: from the successor-feature agent, or learnt as printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from agents.histories import Histories
from agents.history_training import HistoryTrainingConfig
from agents.mu_learning import learn_mu
from agents.recurrent_q_learning import learn_policy
from agents.successor import SuccessorAgent
from agents.successor_training import Problem
from cirl_gym.types import FloatArray, Policy

Solver = Literal["successor", "drqn"]
"""Who finds a policy for given weights: the successor-feature agent, or recurrent Q-learning (appendix D)."""
MuSource = Literal["successor", "mu_learning"]
"""Where the mu of a policy comes from: read off the successor-feature agent, or mu-learning (appendix C)."""


class Candidate(NamedTuple):
    """A policy and its feature expectation ``[d]``."""

    policy: Policy
    mu: FloatArray


def successor_candidates(agent: SuccessorAgent, world: Problem, starts: int) -> Callable[[FloatArray], Candidate]:
    """Answers weights with the agent's policy and its mu, for which plans are searched from ``starts`` episodes."""
    return lambda w: Candidate(agent.policy(w), agent.mu(w, world.starts, starts))


def learnt_candidates(
    agent: SuccessorAgent, world: Problem, solver: Solver, config: HistoryTrainingConfig, rng: np.random.Generator
) -> Callable[[FloatArray], Candidate]:
    """Answers weights with a policy of the solver and its mu by mu-learning, each learnt anew (paper, Algorithm 1).

    Args:
        agent: whose policies are taken with ``solver="successor"``.
        world: outcome model and histories.
        solver: who finds the policy.
        config: how both networks are trained.
        rng: everything that is drawn.

    Raises:
        ValueError: the world has no histories.
    """
    histories = Histories.of(world, config.ends)

    def solve(w: FloatArray) -> Candidate:
        policy = agent.policy(w) if solver == "successor" else learn_policy(histories, w, config, rng)
        return Candidate(policy, learn_mu(histories, policy, config, rng).mu)

    return solve
