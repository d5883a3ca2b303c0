"""Off-policy temporal differences on a fixed set of transitions: mu of a policy, and Q of the best one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from agents.allowed_actions import only_allowed
from agents.dsfn_networks import ActionNetwork, WarmStartNetwork
from cirl_gym.action_rules import ActionRules
from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.training import NotFiniteError

Backup: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""What follows a transition, ``[B, k]``, from the values ``[B, A, k]`` of every next action and the rows ``[B]``."""


@dataclass(frozen=True)
class TDConfig:
    """Training of one value network.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int
    """Units of each of the two tanh layers."""
    iterations: int
    """Gradient steps."""
    batch_size: int
    """Transitions per gradient step, drawn with replacement."""
    learning_rate: float
    """Of Adam."""
    ema: float = 0.01
    """Share by which the target network moves towards the network in each step."""
    epsilon: float = 1e-4
    """Of Adam."""

    def __post_init__(self) -> None:
        for name in ("hidden", "iterations", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"TDConfig.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "epsilon"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"TDConfig.{name} must be positive and finite, got {getattr(self, name)}")
        if not 0 < self.ema <= 1:
            raise ValueError(f"TDConfig.ema must lie in (0, 1], got {self.ema}")


@dataclass(frozen=True)
class Transitions:
    """M steps of the batch, as phi_s of the histories before and after."""

    features: Tensor
    """``[M, S]`` phi_s of h_t."""
    actions: Tensor
    """``[M]`` a_t."""
    outcomes: Tensor
    """``[M, d]`` phi(x_{t+1}) as observed."""
    following: Tensor
    """``[M, S]`` phi_s of h_{t+1}."""
    goes_on: Tensor
    """``[M]`` bool, False where the process ended with a_t: nothing follows."""
    allowed: Tensor | None = None
    """``[M, A]`` bool, which actions h_{t+1} leaves; None: all."""


def td_target(outcomes: Tensor, goes_on: Tensor, gamma: float, following: Tensor) -> Tensor:
    """Targets y ``[B, k]``: phi where the process ended, phi + gamma mu(h', a') elsewhere.

    A Q-value is the same with w . phi for phi.

    Args:
        outcomes: ``[B, k]``.
        goes_on: ``[B]`` bool.
        gamma: discount factor.
        following: ``[B, k]``; where nothing follows it is not looked at.
    """
    return outcomes + gamma * torch.where(goes_on[:, None], following, torch.zeros_like(following))


def under(probabilities: Tensor) -> Backup:
    """Expectation over a' ~ pi, for pi's probabilities ``[M, A]`` in every next history: no draw adds its noise."""
    return lambda values, rows: (probabilities[rows][..., None] * values).sum(dim=1)


def best(values: Tensor, _rows: Tensor) -> Tensor:
    """The largest value of the next actions: Q-learning's."""
    return values.amax(dim=1)


def best_of(allowed: Tensor | None) -> Backup:
    """The same, among actions that are allowed ``[M, A]`` in every next history; None: :func:`best`."""
    if allowed is None:
        return best
    return lambda values, rows: only_allowed(values.mT, allowed[rows][:, None]).amax(dim=2)


def move_towards(target: nn.Module, network: nn.Module, share: float) -> None:
    """Exponential moving average: target += share (network - target), parameter by parameter."""
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
            slow.lerp_(fast, share)


def fit_td(
    network: ActionNetwork,
    steps: Transitions,
    outcomes: Tensor,
    backup: Backup,
    gamma: float,
    config: TDConfig,
    seed: int,
) -> ActionNetwork:
    """Train ``network`` in place, and return its slow average: the target network after the last step.

    Args:
        network: values of [phi_s, one-hot a].
        steps: the batch.
        outcomes: ``[M, k]`` what each step yields: phi, or w . phi.
        backup: value of what follows.
        gamma: discount factor.
        config: how.
        seed: of the order of transitions.

    Raises:
        NotFiniteError: the loss is not finite; the message names the step.
    """
    target = copy.deepcopy(network)
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate, eps=config.epsilon)
    order = torch.Generator().manual_seed(seed)
    for step in range(config.iterations):
        rows = torch.randint(len(outcomes), (config.batch_size,), generator=order)
        with torch.no_grad():
            following = backup(target.every(steps.following[rows]), rows)
            y = td_target(outcomes[rows], steps.goes_on[rows], gamma, following)
        values = network(steps.features[rows], steps.actions[rows])
        loss = mse_loss(values / network.scale, y / network.scale)
        if not math.isfinite(loss.item()):
            raise NotFiniteError(f"temporal differences stopped at step {step + 1}: the loss is {loss.item()}")
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        move_towards(target, network, config.ema)
    return target


def transitions(
    network: WarmStartNetwork,
    scaler: Scaler,
    feature_map: FeatureMap,
    batch: Batch,
    ended: npt.NDArray[np.bool_],
    rules: ActionRules | None = None,
) -> tuple[Tensor, Transitions]:
    """phi_s of first histories ``[N, S]``, and every step of the batch.

    Args:
        network: gives phi_s.
        scaler: of its inputs.
        feature_map: which features are outcomes.
        batch: the episodes; an outcome is what was observed after the action.
        ended: ``[N]`` whether nothing follows the last step; where watching was merely cut, something does.
        rules: what is forbidden.
    """
    with torch.no_grad():
        shared = network.shared(torch.from_numpy(sequence_inputs(scaler, batch)))
    mask = torch.from_numpy(batch.mask)
    last = np.arange(batch.horizon) == batch.lengths[:, None] - 1
    outcomes = feature_map(batch.next_obs).astype(np.float32)
    steps = Transitions(
        features=shared[:, :-1][mask],
        actions=torch.from_numpy(batch.actions[batch.mask]),
        outcomes=torch.from_numpy(outcomes[batch.mask]),
        following=shared[:, 1:][mask],
        goes_on=torch.from_numpy(~(last & ended[:, None])[batch.mask]),
        allowed=None if rules is None else torch.from_numpy(rules.allowed_along(batch)[:, 1:][batch.mask]),
    )
    return shared[:, 0], steps
