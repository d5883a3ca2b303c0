"""mu of any policy in an outcome model: learnt from a batch as the paper does, or by playing it out.

Counterfactual mu-learning (paper, section 4.1 and appendix C): mu(h, a) = phi(h, a) + gamma E[mu(h', pi(h'))] is learnt
by temporal differences. The histories h are the batch's, the next history h' = (h, a, E[Y(a) | h]) is the outcome
model's, for any action, so that any policy can be evaluated. Roll-outs learn nothing, so that nothing can be learnt
wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from agents.as_printed.histories import Histories, PolicyActions
from agents.as_printed.training import (
    HistoryNetwork,
    HistoryTrainingConfig,
    Rows,
    StoredTraining,
    train_on_histories,
    values_along,
)
from agents.successor.training import Problem
from cirl_gym.data.batch import Batch, evenly_spaced_rows
from cirl_gym.data.outcome_model import CounterfactualWorld, foresee
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models.training import Progress
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Policy, Step

Outcome = Literal["expected", "sampled"]
"""What is observed in a world model: the expectation, or that and a residual."""


@dataclass(frozen=True)
class LearntMu:
    """mu of one policy."""

    mu: FloatArray
    """``[d]`` mu^pi: mean of mu(h_0, pi(h_0)) over the batch's first histories."""
    histories: Histories
    """What it was learnt on."""
    network: HistoryNetwork
    """mu(h, a)."""

    def along(self, batch: Batch) -> FloatArray:
        """mu(h, a) ``[N, T, A, d]`` after every history of a batch; 0 on padding.

        Raises:
            ValueError: the batch has other features or actions.
        """
        self.histories.check_batch(batch)
        return values_along(self.network, self.histories.scaler, batch)


def learn_mu(
    histories: Histories,
    policy: Policy,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    *,
    draws: int = 0,
    progress: Progress | None = None,
    stored: StoredTraining | None = None,
) -> LearntMu:
    """Feature expectation of a policy in the outcome model, from the batch's histories.

    What the policy does after h and h' does not change while mu is learnt: it is asked once, before. Where the world
    has rules, it is the policy that keeps them.

    Args:
        histories: of the batch, with their next histories.
        policy: pi, the policy to evaluate.
        config: how to train.
        rng: first weights, and everything that is drawn.
        draws: how often a policy that draws its actions is asked; expectations over pi are means over the answers. 0:
            the policy's most likely action.
        progress: called with (iterations done, iterations in all).
        stored: where the training is stored, so that one that was killed goes on.

    Raises:
        ValueError: the policy cannot act along the batch, the histories end by another rule than the configuration
            says, or the loss did not stay finite.
    """
    actions = PolicyActions.of(policy, histories, draws)
    network = train_on_histories(histories, MuLearner(histories.phi, actions), config, rng, progress, stored=stored)
    return LearntMu(_mean_at_start(network, histories, actions), histories, network)


class MuLearner:
    """Appendix C: the payoff is phi, and what follows is E over a' ~ pi of mu(h', a')."""

    def __init__(self, phi: Tensor, actions: PolicyActions) -> None:
        self.payoff, self.actions = phi, actions

    def chosen(self, rows: Rows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` a ~ pi(. | h)."""
        del values
        answer = torch.from_numpy(rng.integers(len(self.actions.here), size=len(rows.step)))
        return self.actions.here[answer, rows.episode, rows.step]

    def following(self, rows: Rows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, d]`` mean of mu(h', a') over the policy's answers."""
        answers = self.actions.following[:, rows.episode[:, None], rows.step[:, None], actions]
        return values.take_along_dim(answers.permute(1, 2, 0)[..., None], dim=2).mean(dim=2)

    def loss(self, error: Tensor) -> Tensor:
        """Mean of ||y - mu(h, a)||_2, not squared, as printed."""
        # Its gradient at an error of exactly 0 is 0.
        norms: Tensor = torch.linalg.vector_norm(error, dim=-1)
        return norms.mean()


def _mean_at_start(network: HistoryNetwork, histories: Histories, actions: PolicyActions) -> FloatArray:
    """``[d]`` mean over h_0 of the sum over a of pi(a | h_0) mu(h_0, a)."""
    with torch.inference_mode():
        values = network.values(network.lstm(histories.inputs[:, :1])[0][:, 0])
        answers = actions.here[:, :, 0].T
        mu: FloatArray = values.take_along_dim(answers[..., None], dim=1).double().mean(dim=(0, 1)).numpy()
    return mu


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


class EndlessWorld(CounterfactualWorld):
    """A world model in which no process ends before the horizon, so that the chance of an end can be a weight."""

    def step(self, state: Float32Array, actions: IntArray, rng: np.random.Generator) -> Step:
        """Append the action and its outcome to every history; nothing ends."""
        nobody: BoolArray = np.zeros(len(actions), dtype=np.bool_)
        return super().step(state, actions, rng)._replace(terminated=nobody)


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
    world = EndlessWorld(problem.model, first, problem.horizon, outcome=config.outcome)
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
