"""Candidate policies of the max-margin loop and their mu: from the successor-feature agent, or found anew each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from agents import MuSource, Solver
from agents.as_printed.mu import learn_mu
from agents.as_printed.policy import learn_policy, stored_policies
from agents.as_printed.rounds import Answer, StoredPolicies, StoredRounds
from agents.as_printed.training import Histories, HistoryTrainingConfig, StoredTraining
from agents.ppo.settings import WorldPPOConfig
from agents.rolled_out_mu import RollOutConfig, rolled_out_mu
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem
from cirl_gym.files import StoredParts
from cirl_gym.types import FloatArray, Policy


class Candidate(NamedTuple):
    """A policy and its feature expectation ``[d]``."""

    policy: Policy
    mu: FloatArray


def successor_candidates(agent: SuccessorAgent, world: Problem, starts: int) -> Callable[[FloatArray], Candidate]:
    """Answers weights with the agent's policy and its mu, for which plans are searched from ``starts`` episodes."""
    return lambda w: Candidate(agent.policy(w), agent.mu(w, world.starts, starts))


def learnt_candidates(
    agent: SuccessorAgent,
    world: Problem,
    solver: Solver,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    *,
    mu: MuSource = "mu_learning",
    ppo: WorldPPOConfig | None = None,
    rollouts: RollOutConfig | None = None,
    kept: StoredParts | None = None,
) -> Callable[[FloatArray], Candidate]:
    """Answers weights with a policy of the solver and its mu, each found anew (paper, Algorithm 1).

    Args:
        agent: whose policies are taken with ``solver="successor"``.
        world: outcome model and histories.
        solver: who finds the policy.
        config: how the networks of recurrent Q-learning and of mu-learning are trained.
        rng: everything that is drawn.
        mu: ``"mu_learning"`` or ``"rollouts"``; either judges the policies of every solver.
        ppo: how RecurrentPPO is trained.
        rollouts: how policies are rolled out.
        kept: where rounds and trainings are kept, so that a loop that was killed goes on.

    Raises:
        ValueError: the world has no histories, or mu is to be the successor agent's, which is read off.
    """
    if mu == "successor":
        raise ValueError("where policies are found anew, mu must be 'mu_learning' or 'rollouts', got 'successor'")
    histories = cache(lambda: Histories.of(world, config.ends))
    # Drawn once: the policies of all rounds meet the same residuals.
    residuals = int(rng.integers(2**31)) if mu == "rollouts" else 0
    find: Callable[[FloatArray, StoredTraining], Policy]
    if solver == "successor":
        find, stored = (lambda w, _: agent.policy(w)), StoredPolicies(lambda _: {}, lambda w, _: agent.policy(w))
    elif solver == "drqn":
        find, stored = partial(_learnt_policy, histories(), config, rng), stored_policies(histories(), config)
    else:
        # Only this solver needs a newer Gymnasium.
        from agents.ppo.ppo import WorldPPO

        trainer = WorldPPO(world, ppo or WorldPPOConfig(), rng)
        find, stored = (lambda w, _: trainer.solve(w)), trainer.stored()

    def answer(w: FloatArray, policy_training: StoredTraining, mu_training: StoredTraining) -> Answer:
        policy = find(w, policy_training)
        if mu == "rollouts":
            return policy, rolled_out_mu(policy, world, rollouts, residuals)
        return policy, learn_mu(histories(), policy, config, rng, kept=mu_training).mu

    rounds = StoredRounds(kept or StoredParts(), stored, rng)
    return lambda w: Candidate(*rounds.solved(w, partial(answer, w)))


def _learnt_policy(
    histories: Histories,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    w: FloatArray,
    training: StoredTraining,
) -> Policy:
    return learn_policy(histories, w, config, rng, kept=training)
