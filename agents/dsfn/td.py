"""Networks of the DSFN baseline, and off-policy temporal differences on a fixed set of transitions.

The warm start imitates and predicts; values are functions of what it has learnt: mu of a policy, and Q of the best one.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

from agents.policies.policy import only_allowed
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rules import ActionRules
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.networks import lstm_step, with_every_action
from cirl_gym.outcome_models.training import NotFiniteError

Backup: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""What follows a transition, ``[B, k]``, from the values ``[B, A, k]`` of every next action and the rows ``[B]``."""


@dataclass(frozen=True)
class WarmStartSizes:
    """Units of :class:`WarmStartNetwork` (Lee et al. 2019: two layers of 128 and one more per head).

    Raises:
        ValueError: a size is below 1, memory below 0.
    """

    hidden: int = 128
    """Of the two layers before the shared one, and of the one before the next state."""
    shared: int = 64
    """S, of the shared layer phi_s."""
    memory: int = 0
    """Of the LSTM: DSFN(h); 0: none, s is the current observation alone: DSFN."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.shared) < 1 or self.memory < 0:
            raise ValueError(f"WarmStartSizes: sizes must be at least 1 and memory not negative, got {self}")


class WarmStartNetwork(nn.Module):
    """Transition-regularised imitation: one tanh layer phi_s from which both the action and the next state are read.

    An input is [scaled x_t, one-hot a_{t-1}]. Without memory only the observation is read. With memory an LSTM reads
    both, and [x_t, its output] takes the place of s.
    """

    def __init__(self, n_features: int, n_actions: int, sizes: WarmStartSizes) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.sizes = n_features, n_actions, sizes
        self.lstm = nn.LSTM(n_features + n_actions, sizes.memory, batch_first=True) if sizes.memory else None
        self.trunk = nn.Sequential(
            _tanh_layers(n_features + sizes.memory, sizes.hidden, sizes.hidden, sizes.shared), nn.Tanh()
        )
        self.action = nn.Linear(sizes.shared, n_actions)
        self.transition = _tanh_layers(sizes.shared + n_actions, sizes.hidden, n_features)

    def shared(self, inputs: Tensor) -> Tensor:
        """phi_s ``[N, T, S]`` of whole episodes ``[N, T, d + A]`` from their first observation on."""
        seen = inputs[..., : self.n_features]
        if self.lstm is not None:
            seen = torch.cat([seen, self.lstm(inputs)[0]], dim=-1)
        features: Tensor = self.trunk(seen)
        return features

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """phi_s ``[n, S]`` after one more input ``[n, d + A]``, and the memory after it (two ``[n, H]``, or none)."""
        seen = inputs[:, : self.n_features]
        if self.lstm is not None:
            memory = lstm_step(self.lstm, inputs, *memory)
            seen = torch.cat([seen, memory[0]], dim=-1)
        return self.trunk(seen), memory

    def next_state(self, features: Tensor, actions: Tensor) -> Tensor:
        """Scaled next observation ``[M, d]`` for phi_s ``[M, S]`` and actions ``[M]``."""
        predicted: Tensor = self.transition(_with_action(features, actions, self.n_actions))
        return predicted


class ActionNetwork(nn.Module):
    """k numbers for [phi_s, one-hot a]: mu (k = d) or Q (k = 1), by two tanh layers.

    The output is the average of what is still to come per step, ``scale`` the discounted number of steps of a whole
    episode: the network learns numbers of the size of phi, whatever gamma is.
    """

    def __init__(self, n_inputs: int, n_actions: int, n_outputs: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.n_actions, self.scale = n_actions, scale
        self.layers = _tanh_layers(n_inputs + n_actions, hidden, hidden, n_outputs)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """``[M, k]`` for phi_s ``[M, S]`` and actions ``[M]``."""
        values: Tensor = self.layers(_with_action(features, actions, self.n_actions)) * self.scale
        return values

    def every(self, features: Tensor) -> Tensor:
        """``[.., A, k]`` of every action for phi_s ``[.., S]``."""
        values: Tensor = self.layers(with_every_action(features, self.n_actions)) * self.scale
        return values


def _with_action(features: Tensor, actions: Tensor, n_actions: int) -> Tensor:
    return torch.cat([features, one_hot(actions, n_actions).to(features.dtype)], dim=-1)


def _tanh_layers(*sizes: int) -> nn.Sequential:
    """Linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(n_inputs, n_outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


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


def best_of(allowed: Tensor | None) -> Backup:
    """The largest value of the next actions that are allowed ``[M, A]``; None: all are. Q-learning's."""
    return lambda values, rows: only_allowed(values.mT, None if allowed is None else allowed[rows][:, None]).amax(dim=2)


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
