"""AVRIL, approximate variational reward imitation learning (Chan and van der Schaar, ICLR 2021), with history.

Two networks are fitted together: Q, from which behaviour follows, P(a | h) proportional to exp(beta Q(h, a)), and a
normal posterior of the reward q(r | h, a), by its mean and standard deviation. What is maximised, per decision, is

    log P(a | h) - KL(q(. | h, a), N(0, 1)) + lambda log q(Q(h, a) - gamma Q(h', a') | h, a)

where h' and a' are the experts' own next history and action. The first two terms bound the evidence of the decisions
from below (the reward's prior is standard normal); the third, a Lagrangian of the constraint that Q be the value of the
reward, asks that the temporal difference be likely as a reward. Where the process ended it is Q(h, a); where watching
was cut there is no a', and the decision is in the first two terms alone.

Above lambda = 1 the third term outweighs the KL divergence as the deviation shrinks to 0, so that nothing bounds the
objective: it is refused.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from agents.policies.cloning import CloningConfig, CloningNetwork, CloningPolicy, check_kind, stored_sizes
from agents.soft_q import EpisodeTensors, ahead, begin, log_losses
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import ActionRules
from cirl_gym.files import loading
from cirl_gym.outcome_models.network_files import (
    module_arrays,
    part,
    prefixed,
    read_model_file,
    stored_module,
    write_model_file,
)
from cirl_gym.outcome_models.training import History, Progress, check_settings, seeded
from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class AVRILConfig:
    """The networks, and what is maximised.

    Raises:
        ValueError: a number is out of its range.
    """

    network: CloningConfig = field(default_factory=lambda: CloningConfig().longer())
    """Size of either network, and their training: the size is that of behaviour cloning."""
    beta: float = 20.0
    """Inverse temperature: how large Q, and with it the reward, must be for behaviour to be sure. By validation on
    2,000 simulated episodes, at lambda 1: decisions' log-likelihood is -.47 with 1, -.35 with 5 and -.33 with 20."""
    td_weight: float = 1.0
    """lambda, 0 to 1, of the temporal differences."""

    def __post_init__(self) -> None:
        check_settings(self, "beta", "positive and finite", lambda value: 0 < value < math.inf)
        check_settings(self, "td_weight", "within [0, 1]", lambda value: 0 <= value <= 1)


@dataclass(frozen=True)
class ObjectiveTerms:
    """The three terms of the objective; ``[N, T]`` each, 0 on padding."""

    log_losses: Tensor
    """Minus log P(a | h)."""
    divergences: Tensor
    """KL(q, N(0, 1))."""
    td_densities: Tensor
    """log q(Q(h, a) - gamma Q(h', a')); 0 also where there is no temporal difference."""


def temporal_differences(q: Tensor, histories: EpisodeTensors, gamma: float) -> tuple[Tensor, Tensor]:
    """Q(h, a) - gamma Q(h', a') ``[N, T]`` for Q ``[N, T+1, A]``, and where there is one ``[N, T]``."""
    taken = histories.of_actions(q)
    after = ahead(nn.functional.pad(taken, (0, 1)), histories.acted_on)
    return taken - gamma * after, histories.acted_on | (histories.mask & ~histories.goes_on)


def terms(
    logits: Tensor, mean: Tensor, log_deviation: Tensor, histories: EpisodeTensors, gamma: float, beta: float
) -> ObjectiveTerms:
    """The terms for beta Q ``[N, T+1, A]`` and the posterior of the rewards of the actions taken ``[N, T]``."""
    differences, known = temporal_differences(logits / beta, histories, gamma)
    deviation = log_deviation.exp()
    divergences = 0.5 * (mean**2 + deviation**2 - 1) - log_deviation
    densities = -0.5 * ((differences - mean) / deviation) ** 2 - log_deviation - 0.5 * math.log(2 * math.pi)
    return ObjectiveTerms(
        log_losses(logits, histories),
        divergences.masked_fill(~histories.mask, 0.0),
        densities.masked_fill(~known, 0.0),
    )


def reward_posterior(network: CloningNetwork, histories: EpisodeTensors) -> tuple[Tensor, Tensor]:
    """Means and logarithms of the standard deviations ``[N, T]`` of the rewards of the actions taken; 0 on padding."""
    live = nn.functional.pad(histories.mask, (0, 1))
    every = network.live_logits(histories.inputs, live).reshape(-1, 2, network.n_actions)
    actions = histories.actions[histories.mask]
    taken = every.gather(2, actions[:, None, None].expand(-1, 2, 1))[..., 0]
    found = every.new_zeros((*histories.mask.shape, 2))
    found[histories.mask] = taken
    return found[..., 0], found[..., 1]


@dataclass(frozen=True)
class AVRIL:
    """What AVRIL found: a policy, and a posterior of the reward."""

    policy: CloningPolicy
    """Its logits are beta Q."""
    reward_network: CloningNetwork
    """Mean and logarithm of the standard deviation of every action's reward."""

    def rewards(self, batch: Batch) -> FloatArray:
        """``[N, T]`` posterior means of the rewards of the actions taken; 0 on padding."""
        return self.posterior(batch)[0]

    def posterior(self, batch: Batch) -> tuple[FloatArray, FloatArray]:
        """Means and standard deviations ``[N, T]`` of the rewards of the actions taken; 0 on padding.

        Raises:
            ValueError: the batch says what was allowed and the policy has no rules.
        """
        histories = EpisodeTensors.of(self.policy.scaler, batch, self.policy.rules)
        with torch.inference_mode():
            mean, log_deviation = reward_posterior(self.reward_network, histories)
            deviation = log_deviation.exp().masked_fill(~histories.mask, 0.0)
            return mean.double().numpy(), deviation.double().numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it whole, without pickle; generator and rules are not part of it."""
        settings, arrays = self.policy.stored()
        arrays |= prefixed("reward.", module_arrays(self.reward_network))
        write_model_file(path, {"kind": "avril", **settings}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], rng: np.random.Generator, rules: ActionRules | None = None) -> AVRIL:
        """Read what :meth:`save` wrote; actions are drawn with the generator given and among those the rules allow.

        Raises:
            ValueError: the file is not whole; the message names it.
        """
        settings, arrays = read_model_file(path)
        with loading(path, "what AVRIL found"):
            check_kind(settings, "avril")
            sizes = stored_sizes(settings)
            reward = stored_module(lambda: CloningNetwork(*sizes, outputs=2), part("reward.", arrays))
            return cls(CloningPolicy.restored(settings, arrays, rng, rules), reward.eval())


def fit_avril(
    train: Batch,
    validation: Batch,
    gamma: float,
    config: AVRILConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    rules: ActionRules | None = None,
) -> tuple[AVRIL, History]:
    """Fit both networks to the experts' episodes, and stop by the objective on the validation episodes.

    Args:
        train: the experts' episodes.
        validation: other episodes of the same features and actions.
        gamma: discount factor, 0 to 1.
        config: how.
        rng: first weights, order of episodes and dropout; the policy draws its actions from a child of it.
        progress: called with (epochs done, epochs planned).
        rules: what is forbidden, to the experts and to the policy.

    Returns:
        What was found, and minus the objective per decision, epoch by epoch.

    Raises:
        ValueError: the batches do not fit together or with the rules, they say what was allowed and there are no rules,
            gamma lies outside [0, 1], or training did not stay finite.
    """
    seeds = [int(seed) for seed in rng.integers(2**63 - 1, size=4)]
    start = begin(train, validation, gamma, config.network, seeds[0], rules)
    with seeded(seeds[1]):
        reward = CloningNetwork(len(train.features), train.n_actions, config.network, outputs=2)

    def loss(histories: EpisodeTensors) -> Tensor:
        posterior = reward_posterior(reward, histories)
        found = terms(histories.logits(start.network), *posterior, histories, gamma, config.beta)
        every = found.log_losses + found.divergences - config.td_weight * found.td_densities
        return every.sum() / histories.mask.sum()

    history = start.fit(nn.ModuleList([start.network, reward]), loss, config.network.training, seeds[2], progress)
    policy = CloningPolicy(start.network, start.scaler, np.random.default_rng(seeds[3]), rules)
    return AVRIL(policy, reward), history
