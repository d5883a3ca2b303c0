"""Settings of RecurrentPPO in the world-model environment, apart from what needs Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple, get_args

import numpy as np

from agents.as_printed.mu import learn_mu
from agents.as_printed.policy import learn_policy, stored_policies
from agents.as_printed.rounds import Answer, StoredPolicies, StoredRounds
from agents.as_printed.training import Histories, HistoryTrainingConfig, StoredTraining
from agents.rolled_out_mu import Outcome, RollOutConfig, rolled_out_mu
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem
from cirl_gym.files import StoredParts
from cirl_gym.types import FloatArray, Policy

KNOWS_NO_RULES = (
    "--solver recurrent_ppo cannot be combined with --forbid: RecurrentPPO knows no action masks and would take "
    "forbidden actions; --solver successor and --solver drqn keep to the rules"
)
"""Why :class:`agents.ppo.WorldPPO` refuses a world with rules."""


@dataclass(frozen=True)
class WorldPPOConfig:
    """How :class:`agents.ppo.WorldPPO` trains; the rest is :class:`agents.ppo.RecurrentPPOConfig`'s.

    Raises:
        ValueError: a number is out of its range, or the outcome is unknown.
    """

    steps: int = 40_000
    """Imagined steps of one training."""
    rows: int = 64
    """Histories that go on at once."""
    epochs: int = 5
    """Passes over each of their rollouts."""
    outcome: Outcome = "expected"
    """What is observed in training."""
    warm_start: bool = False
    """Begin with the network that the training before ended with. Off: near weights whose policy is good it helps, but
    where weights switch the optimal policy the old network hardly explores any more and stays where it is."""
    looks: int = 10
    """How often the policy is rolled out while it is trained; the best one seen is kept."""
    look_starts: int = 100
    """First observations that it is then rolled out from."""

    def __post_init__(self) -> None:
        for name in ("steps", "rows", "epochs", "looks", "look_starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"WorldPPOConfig.{name} must be at least 1, got {getattr(self, name)}")
        if self.outcome not in get_args(Outcome):
            raise ValueError(f"WorldPPOConfig.outcome must be 'expected' or 'sampled', got {self.outcome!r}")


# MERGED: Candidate policies of the max-margin loop and their mu: from the successor-feature agent, or found anew each
# time.

Solver = Literal["successor", "drqn", "recurrent_ppo"]
"""Who finds a policy for given weights: the successor-feature agent, recurrent Q-learning (appendix D), or RecurrentPPO
in the world-model environment."""
MuSource = Literal["successor", "mu_learning", "rollouts"]
"""Where the mu of a policy comes from: read off the successor-feature agent, mu-learning (appendix C), or roll-outs in
the world model."""


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
        from agents.ppo import WorldPPO

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
