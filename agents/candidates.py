"""Candidate policies of the max-margin loop and their mu: from the successor-feature agent, or found anew each time.

Rounds that found them anew are stored as they end: a loop that was killed goes on in the round that it was in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents import MuSource, Solver
from agents.as_printed.histories import Histories
from agents.as_printed.learning import RollOutConfig, learn_mu, learn_policy, rolled_out_mu, stored_policies
from agents.as_printed.training import HistoryTrainingConfig, StoredTraining, generator_state, set_generator
from agents.policies.policy import StoredPolicies
from agents.ppo_settings import WorldPPOConfig
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.network_files import part, prefixed, read_model_file, write_model_file
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
    stored: StoredParts | None = None,
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
        stored: where rounds and trainings are stored, so that a loop that was killed goes on.

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
        find, policies = (lambda w, _: agent.policy(w)), StoredPolicies(lambda _: {}, lambda w, _: agent.policy(w))
    elif solver == "drqn":
        policies = stored_policies(histories(), config)

        def find(w: FloatArray, training: StoredTraining) -> Policy:
            return learn_policy(histories(), w, config, rng, stored=training)
    else:
        # Only this solver needs a newer Gymnasium.
        from agents.ppo import WorldPPO

        trainer = WorldPPO(world, ppo or WorldPPOConfig(), rng)
        find, policies = (lambda w, _: trainer.solve(w)), trainer.stored()

    def solve(w: FloatArray, policy_training: StoredTraining, mu_training: StoredTraining) -> Candidate:
        policy = find(w, policy_training)
        if mu == "rollouts":
            return Candidate(policy, rolled_out_mu(policy, world, rollouts, residuals))
        return Candidate(policy, learn_mu(histories(), policy, config, rng, stored=mu_training).mu)

    return StoredRounds(stored or StoredParts(), policies, solve, rng).next


class StoredRounds:
    """Solves round after round, or reads what an earlier run of the same loop solved.

    With every round the state of the generator after it is stored, so that the next one draws what it would have drawn.
    ``solve`` finds the candidate for weights ``[d]``; it is given where to store the trainings of policy and mu.
    """

    def __init__(
        self,
        parts: StoredParts,
        policies: StoredPolicies,
        solve: Callable[[FloatArray, StoredTraining, StoredTraining], Candidate],
        rng: np.random.Generator,
    ) -> None:
        self.parts, self.policies, self.solve, self.rng = parts, policies, solve, rng
        self.done = 0

    def next(self, w: FloatArray) -> Candidate:
        """The candidate of the next round, whose weights are ``[d]``."""
        name = f"round{self.done:03}"
        self.done += 1
        found = self.parts.read(f"{name}.npz", lambda path: self._read(path, w))
        if found is not None:
            return found
        trainings = [StoredTraining(self.parts, f"{name}.{of}.npz") for of in ("policy", "mu")]
        made = self.solve(w, *trainings)
        settings = {"kind": "round", "generator": generator_state(self.rng)}
        learnt = prefixed("policy.", self.policies.arrays(made.policy))
        arrays = {"w": w, "mu": made.mu.astype(np.float64), **learnt}
        if self.parts.write(f"{name}.npz", lambda path: write_model_file(path, settings, arrays)):
            for training in trainings:
                training.drop()
        return made

    def _read(self, path: Path, w: FloatArray) -> Candidate:
        settings, arrays = read_model_file(path)
        if settings.get("kind") != "round" or not {"w", "mu"} <= set(arrays):
            raise ValueError("it is not a round: its weights or its mu are missing")
        asked, mu = arrays.pop("w"), arrays.pop("mu")
        if not np.array_equal(asked, w):
            raise ValueError(f"it is of the weights {asked}, not of {w}")
        if mu.shape != w.shape or mu.dtype != np.float64 or not np.isfinite(mu).all():
            raise ValueError(f"its mu must be {len(w)} finite numbers, got {mu}")
        policy = self.policies.policy(w, part("policy.", arrays))
        # Last of all: a file that cannot be used must leave the generator as it is.
        set_generator(self.rng, settings.get("generator"))
        return Candidate(policy, mu)
