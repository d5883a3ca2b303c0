"""IQ-Learn, inverse soft Q-learning (Garg et al., NeurIPS 2021): offline, discrete actions, with history.

One network Q gives both what is done, P(a | h) proportional to exp(Q(h, a) / tau), and a reward, by the inverse soft
Bellman operator: r(h, a) = Q(h, a) - gamma V(h'), V = tau log sum exp(Q / tau). Among all Q it looks for the one that
maximises, with the chi-squared penalty phi(r) = r - r^2 / (4 alpha),

    E[phi(r(h, a))] - (1 - gamma) E[V(h_0)]

where decisions are those of the experts, weighed by gamma^t. The second term is a telescoping sum, V(h) - gamma V(h')
over the same decisions, and the authors' offline form takes it as that, with every decision weighed alike. Then
E[r] - E[V(h) - gamma V(h')] is E[Q - V], the log-likelihood: offline IQ-Learn is behaviour cloning with a price
1 / (4 alpha) on the square of the reward that the copy implies.

tau is 1 here: dividing Q by tau is the same problem with alpha / tau for alpha. The authors' alpha of 1/2 is 50 here at
a temperature of .01 and 500 at .001, which both stand in their published commands.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from agents.policies.cloning import CloningConfig, CloningPolicy, check_kind
from agents.soft_q import EpisodeTensors, ahead, begin, log_losses, soft_value
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import ActionRules
from cirl_gym.files import loading
from cirl_gym.outcome_models.network_files import read_model_file, write_model_file
from cirl_gym.outcome_models.training import History, Progress, check_settings
from cirl_gym.types import FloatArray

Form = Literal["value", "v0"]
"""How what experts start from is charged: V(h) - gamma V(h') of every decision alike, or V(h_0) as printed."""


@dataclass(frozen=True)
class IQLearnConfig:
    """The network, and what is maximised.

    Raises:
        ValueError: a number is out of its range, or the form unknown.
    """

    network: CloningConfig = field(default_factory=lambda: CloningConfig().longer())
    """Its size and training: the size is that of behaviour cloning."""
    alpha: float = 50.0
    """Of the chi-squared penalty: the smaller, the nearer to 0 the rewards are held. Between 50 and 500 validation
    tells no difference (2,000 simulated episodes)."""
    form: Form = "value"

    def __post_init__(self) -> None:
        check_settings(self, "alpha", "positive and finite", lambda value: 0 < value < math.inf)
        check_settings(self, "form", "'value' or 'v0'", get_args(Form).__contains__)


def implied_rewards(logits: Tensor, histories: EpisodeTensors, gamma: float) -> Tensor:
    """``[N, T]`` Q(h, a) - gamma V(h') of the actions taken, for Q ``[N, T+1, A]``; 0 on padding."""
    after = ahead(soft_value(logits), histories.goes_on)
    return (histories.of_actions(logits) - gamma * after).masked_fill(~histories.mask, 0.0)


def iq_loss(logits: Tensor, histories: EpisodeTensors, gamma: float, alpha: float, form: Form) -> Tensor:
    """Minus the objective, per decision (``v0``: per unit of discounted weight), for Q ``[N, T+1, A]``."""
    rewards = implied_rewards(logits, histories, gamma)
    penalty = rewards**2 / (4 * alpha)
    if form == "value":
        return (log_losses(logits, histories) + penalty).sum() / histories.mask.sum()
    weights = histories.mask * gamma ** torch.arange(rewards.shape[1], device=rewards.device)
    return (soft_value(logits[:, 0]).sum() - (weights * (rewards - penalty)).sum()) / weights.sum()


@dataclass(frozen=True)
class IQLearn:
    """What IQ-Learn found: a policy, and with it a reward."""

    policy: CloningPolicy
    """Its logits are Q."""
    gamma: float
    """Discount factor."""

    def rewards(self, batch: Batch) -> FloatArray:
        """``[N, T]`` Q(h, a) - gamma V(h') of the actions taken; 0 on padding.

        Raises:
            ValueError: the batch says what was allowed and the policy has no rules.
        """
        histories = EpisodeTensors.of(self.policy.scaler, batch, self.policy.rules)
        with torch.inference_mode():
            return implied_rewards(histories.logits(self.policy.network).double(), histories, self.gamma).numpy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it whole, without pickle; generator and rules are not part of it."""
        settings, arrays = self.policy.stored()
        write_model_file(path, {"kind": "iq_learn", "gamma": self.gamma, **settings}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], rng: np.random.Generator, rules: ActionRules | None = None) -> IQLearn:
        """Read what :meth:`save` wrote; actions are drawn with the generator given and among those the rules allow.

        Raises:
            ValueError: the file is not whole; the message names it.
        """
        settings, arrays = read_model_file(path)
        with loading(path, "what IQ-Learn found"):
            check_kind(settings, "iq_learn")
            return cls(CloningPolicy.restored(settings, arrays, rng, rules), float(settings["gamma"]))


def fit_iq_learn(
    train: Batch,
    validation: Batch,
    gamma: float,
    config: IQLearnConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    rules: ActionRules | None = None,
) -> tuple[IQLearn, History]:
    """Fit the network to the experts' episodes, and stop by its loss on the validation episodes.

    Where an episode terminated, nothing follows its last action; where watching was cut, V of the last history does.

    Args:
        train: the experts' episodes.
        validation: other episodes of the same features and actions.
        gamma: discount factor, 0 to 1.
        config: how.
        rng: first weights, order of episodes and dropout; the policy draws its actions from a child of it.
        progress: called with (epochs done, epochs planned).
        rules: what is forbidden, to the experts and to the policy.

    Raises:
        ValueError: the batches do not fit together or with the rules, they say what was allowed and there are no rules,
            gamma lies outside [0, 1], or training did not stay finite.
    """
    seeds = [int(seed) for seed in rng.integers(2**63 - 1, size=3)]
    start = begin(train, validation, gamma, config.network, seeds[0], rules)

    def loss(histories: EpisodeTensors) -> Tensor:
        return iq_loss(histories.logits(start.network), histories, gamma, config.alpha, config.form)

    history = start.fit(start.network, loss, config.network.training, seeds[1], progress)
    policy = CloningPolicy(start.network, start.scaler, np.random.default_rng(seeds[2]), rules)
    return IQLearn(policy, gamma), history
