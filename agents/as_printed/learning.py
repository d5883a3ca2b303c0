"""What the paper learns on the histories of a batch: the policy of given weights, and mu of any policy.

Both go from h, which is the batch's, to the outcome model's h' = (h, a, E[Y(a) | h]), for any action:

- Recurrent Q-learning (section 4.2 and appendix D): Q(h, a) = w . phi(h, a) + gamma max over a' of Q(h', a').
  :class:`agents.drqn.drqn.DRQN` is the same network in an environment that is acted in.
- Counterfactual mu-learning (section 4.1 and appendix C): mu(h, a) = phi(h, a) + gamma E[mu(h', pi(h'))].
- :func:`rolled_out_mu` plays a policy out instead: nothing is learnt, so that nothing can be learnt wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.as_printed.histories import Histories, Masks, PolicyActions
from agents.as_printed.training import (
    HistoryNetwork,
    HistoryRows,
    HistoryTrainingConfig,
    StoredTraining,
    train_on_histories,
    values_along,
)
from agents.policies.policy import RecurrentPolicy, StoredPolicies, only_allowed
from agents.successor.training import Problem
from cirl_gym.data.batch import Batch, evenly_spaced_rows
from cirl_gym.data.outcome_model import CounterfactualWorld, foresee
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models.network_files import Arrays, load_module_arrays, module_arrays
from cirl_gym.outcome_models.networks import lstm_step
from cirl_gym.outcome_models.training import Progress, check_settings, seeded
from cirl_gym.types import Float32Array, FloatArray, IntArray, Policy, Step

Outcome = Literal["expected", "sampled"]
"""What is observed in a world model: the expectation, or that and a residual."""


class LearntPolicy(RecurrentPolicy):
    """The greedy policy of Q(h, a), a :class:`~cirl_gym.types.Policy`.

    It never draws: pi(a | h) is 1 for the action of largest Q (paper, section 4.2), the first of equals. Where the
    histories' world has rules, it is the largest of the allowed ones.

    Args:
        histories: what it was learnt on.
        network: Q(h, a).
    """

    def __init__(self, histories: Histories, network: HistoryNetwork) -> None:
        super().__init__(histories.scaler, network.n_actions, network.lstm.hidden_size, histories.rules)
        self.histories, self.network = histories, network

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Q ``[n, A]`` after one more input, and the states after it."""
        following = lstm_step(self.network.lstm, inputs, *memory)
        return self.network.values(following[0])[..., 0], following

    def q(self, batch: Batch) -> FloatArray:
        """Q(h, a) ``[N, T, A]`` after every history of a batch, minus infinity where a is not allowed; 0 on padding.

        Raises:
            ValueError: the batch has other features or actions.
        """
        self.histories.check_batch(batch)
        q = values_along(self.network, self.scaler, batch)[..., 0]
        if self.rules is not None:
            q = np.where(self.rules.allowed_along(batch)[:, :-1] | ~batch.mask[..., None], q, -np.inf)
        return q


def learn_policy(
    histories: Histories,
    w: npt.ArrayLike,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    stored: StoredTraining | None = None,
) -> LearntPolicy:
    """A policy that is optimal for preferences w ``[d]`` in the outcome model, trained by :func:`train_on_histories`.

    The values have the scale of w.

    Raises:
        ValueError: w is not ``d`` finite numbers, the histories end by another rule than the configuration says, or
            the loss did not stay finite.
    """
    weights, d = np.asarray(w, dtype=np.float32), histories.phi.shape[-1]
    if weights.shape != (d,) or not np.isfinite(weights).all():
        raise ValueError(f"w must be {d} finite numbers, got {weights}")
    learner = QLearner((histories.phi @ torch.from_numpy(weights))[..., None], histories.masks)
    return LearntPolicy(histories, train_on_histories(histories, learner, config, rng, progress, stored=stored))


def stored_policies(histories: Histories, config: HistoryTrainingConfig) -> StoredPolicies:
    """Policies that :func:`learn_policy` found, as arrays and back."""

    def arrays(policy: Policy) -> Arrays:
        assert isinstance(policy, LearntPolicy)
        return module_arrays(policy.network)

    def policy(_w: FloatArray, found: Arrays) -> LearntPolicy:
        # First weights are drawn, from torch's own generator: it stays as it is.
        with seeded(0):
            network = HistoryNetwork(histories.inputs.shape[2], histories.phi.shape[2], 1, config.hidden)
        load_module_arrays(network, found)
        return LearntPolicy(histories, network.eval())

    return StoredPolicies(arrays, policy)


class QLearner:
    """Appendix D: the payoff is w . phi, and what follows is max over a' of Q(h', a'), of the a' that are allowed."""

    def __init__(self, reward: Tensor, masks: Masks | None = None) -> None:
        self.payoff, self.masks = reward, masks

    def chosen(self, rows: HistoryRows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` the allowed action of largest Q."""
        del rng
        if self.masks is not None:
            return only_allowed(values[..., 0], self.masks.here[rows.episode, rows.step]).argmax(dim=1)
        return values[..., 0].argmax(dim=1)

    def following(self, rows: HistoryRows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, 1]`` the largest Q of the next histories' allowed actions."""
        if self.masks is not None:
            allowed = self.masks.following[rows.episode[:, None], rows.step[:, None], actions]
            return only_allowed(values[..., 0], allowed).amax(dim=2, keepdim=True)
        return values.amax(dim=2)

    def loss(self, error: Tensor) -> Tensor:
        """Mean of (y - Q(h, a)) squared."""
        return error.square().mean()


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

    What the policy does after h and h' does not change while mu is learnt by :func:`train_on_histories`: it is asked
    once, before. Where the world has rules, it is the policy that keeps them. A policy that draws its actions is asked
    ``draws`` times, and expectations over pi are means over the answers; 0: its most likely action.

    Raises:
        ValueError: the policy cannot act along the batch, the histories end by another rule than the configuration
            says, or the loss did not stay finite.
    """
    actions = PolicyActions.of(policy, histories, draws)
    network = train_on_histories(histories, MuLearner(histories.phi, actions), config, rng, progress, stored=stored)
    with torch.inference_mode():
        values = network.values(network.lstm(histories.inputs[:, :1])[0][:, 0])
        answers = actions.here[:, :, 0].T
        mu: FloatArray = values.take_along_dim(answers[..., None], dim=1).double().mean(dim=(0, 1)).numpy()
    return LearntMu(mu, histories, network)


class MuLearner:
    """Appendix C: the payoff is phi, and what follows is E over a' ~ pi of mu(h', a')."""

    def __init__(self, phi: Tensor, actions: PolicyActions) -> None:
        self.payoff, self.actions = phi, actions

    def chosen(self, rows: HistoryRows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` a ~ pi(. | h)."""
        del values
        answer = torch.from_numpy(rng.integers(len(self.actions.here), size=len(rows.step)))
        return self.actions.here[answer, rows.episode, rows.step]

    def following(self, rows: HistoryRows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, d]`` mean of mu(h', a') over the policy's answers."""
        answers = self.actions.following[:, rows.episode[:, None], rows.step[:, None], actions]
        return values.take_along_dim(answers.permute(1, 2, 0)[..., None], dim=2).mean(dim=2)

    def loss(self, error: Tensor) -> Tensor:
        """Mean of ||y - mu(h, a)||_2, not squared, as printed."""
        # Its gradient at an error of exactly 0 is 0.
        norms: Tensor = torch.linalg.vector_norm(error, dim=-1)
        return norms.mean()


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
        check_settings(self, "episodes", "at least 1", lambda value: value >= 1)
        check_settings(self, "outcome", "'expected' or 'sampled'", get_args(Outcome).__contains__)


class EndlessWorld(CounterfactualWorld):
    """A world model in which no process ends before the horizon, so that the chance of an end can be a weight."""

    def step(self, state: Float32Array, actions: IntArray, rng: np.random.Generator) -> Step:
        """Append the action and its outcome to every history; nothing ends."""
        return super().step(state, actions, rng)._replace(terminated=np.zeros(len(actions), dtype=np.bool_))


def rolled_out_mu(policy: Policy, problem: Problem, config: RollOutConfig | None = None, seed: int = 0) -> FloatArray:
    """Feature expectation ``[d]`` of a policy in the world model: discounted phi(h_t, a_t), meaned over roll-outs.

    Ends are not drawn: what comes later counts with the probability of getting there, the product of 1 - p_end(h, a).
    With expected outcomes, and a policy that draws nothing, the answer is exact for the given first observations. It is
    always phi(h, a), the expected outcome, that is added up, also where histories go on with sampled ones.

    The policy is asked for its most likely actions; the same seed gives every policy the same residuals of sampled
    outcomes.
    """
    config = config or RollOutConfig()
    first = problem.starts[evenly_spaced_rows(len(problem.starts), config.episodes)]
    world = EndlessWorld(problem.model, first, problem.horizon, outcome=config.outcome)
    played = rollout(world, policy, len(first), np.random.default_rng(seed))
    return np.asarray(mu_along(problem, played).mean(axis=0))


def mu_along(problem: Problem, played: Batch) -> FloatArray:
    """``[N, d]`` discounted phi(h_t, a_t) of each episode, each with the probability that none has ended before."""
    states, shape = problem.model.encode(played)[:, :-1], played.actions.shape
    outcomes, ends = foresee(problem.model, states.reshape(-1, states.shape[2]), played.actions.reshape(-1))
    goes_on = problem.gamma * (1.0 - ends.reshape(shape).astype(np.float64))
    # At t = 0 everybody is there.
    reach = np.cumprod(np.concatenate([np.ones((len(played), 1)), goes_on[:, :-1]], axis=1), axis=1)
    mu: FloatArray = np.einsum("nt,ntd->nd", reach, problem.feature_map(outcomes).reshape(*shape, -1))
    return mu
