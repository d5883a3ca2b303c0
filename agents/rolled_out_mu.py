"""mu of any policy by playing it out in the world model: nothing is learnt, so nothing can be learnt wrongly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from agents.successor.training import Problem
from cirl_gym.data.batch import Batch, evenly_spaced_rows
from cirl_gym.data.outcome_model import foresee
from cirl_gym.data.rollout import rollout
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Policy, Step
from cirl_gym.worlds.world import CounterfactualWorld

Outcome = Literal["expected", "sampled"]
"""What is observed in a world model: the expectation, or that and a residual."""


@dataclass(frozen=True)
class RollOutConfig:
    """How policies are rolled out.

    Raises:
        ValueError: ``episodes`` is below 1 or the outcome is unknown.
    """

    episodes: int = 2000
    """One from each of so many first observations, evenly spread over those there are (at most all of them)."""
    outcome: Outcome = "expected"
    """What is observed: the outcome model's expectation, as in the paper's h' = (h, a, E[Y(a) | h]), or that and a
    residual."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"RollOutConfig.episodes must be at least 1, got {self.episodes}")
        if self.outcome not in get_args(Outcome):
            raise ValueError(f"RollOutConfig.outcome must be 'expected' or 'sampled', got {self.outcome!r}")


@dataclass(frozen=True)
class EndlessWorld:
    """A world model in which no process ends before the horizon, so that the chance of an end can be a weight."""

    world: CounterfactualWorld
    """Whose ends are left out."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the D features."""
        return self.world.features

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return self.world.n_actions

    @property
    def horizon(self) -> int:
        """Largest number of actions of an episode."""
        return self.world.horizon

    def reset(self, n: int, rng: np.random.Generator) -> tuple[Any, Float32Array]:
        """Begin with n first observations."""
        return self.world.reset(n, rng)

    def step(self, state: Any, actions: IntArray, rng: np.random.Generator) -> Step:
        """Append the action and its outcome to every history; nothing ends."""
        nobody: BoolArray = np.zeros(len(actions), dtype=np.bool_)
        return self.world.step(state, actions, rng)._replace(terminated=nobody)


def rolled_out_mu(policy: Policy, problem: Problem, config: RollOutConfig | None = None, seed: int = 0) -> FloatArray:
    """Feature expectation ``[d]`` of a policy in the world model: discounted phi(h_t, a_t), meaned over roll-outs.

    Ends are not drawn: what comes later counts with the probability of getting there, the product of 1 - p_end(h, a).
    With expected outcomes, and a policy that draws nothing, the answer is exact for the given first observations. It is
    always phi(h, a), the expected outcome, that is added up, also where histories go on with sampled ones.

    Args:
        policy: who acts, asked for its most likely actions.
        problem: outcome model, outcomes, horizon, discount factor, first observations.
        config: how many roll-outs, and what is observed in them.
        seed: of the residuals of sampled outcomes; the same seed gives every policy the same ones.
    """
    config = config or RollOutConfig()
    first = problem.starts[evenly_spaced_rows(len(problem.starts), config.episodes)]
    world = EndlessWorld(CounterfactualWorld(problem.model, first, problem.horizon, outcome=config.outcome))
    played = rollout(world, policy, len(first), np.random.default_rng(seed))
    mu: FloatArray = mu_along(problem, played).mean(axis=0)
    return mu


def mu_along(problem: Problem, played: Batch) -> FloatArray:
    """``[N, d]`` discounted phi(h_t, a_t) of each episode, each with the probability that none has ended before."""
    states, shape = problem.model.encode(played)[:, :-1], played.actions.shape
    outcomes, ends = foresee(problem.model, states.reshape(-1, states.shape[2]), played.actions.reshape(-1))
    goes_on = problem.gamma * (1.0 - ends.reshape(shape).astype(np.float64))
    # At t = 0 everybody is there.
    reach = np.cumprod(np.concatenate([np.ones((len(played), 1)), goes_on[:, :-1]], axis=1), axis=1)
    mu: FloatArray = np.einsum("nt,ntd->nd", reach, problem.feature_map(outcomes).reshape(*shape, -1))
    return mu
