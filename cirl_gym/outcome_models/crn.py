"""The counterfactual recurrent network: a representation of the history that does not give the treatment away.

Bica et al. 2020 (the paper's section 4.1 and appendix F). The LSTM's output goes through one layer into a balancing
representation; one head predicts the outcome from it and the action, another the action that was taken. Between the
representation and the second head the gradient is reversed, so that the head learns to tell the actions apart while
the representation learns not to let it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cirl_gym.outcome_models.training import TrainingConfig, network_training


@dataclass(frozen=True)
class CRNConfig:
    """Sizes of the network and how it is trained; the paper searches .5 to 4 times the input's size for each.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int = 32
    """Units of the LSTM."""
    representation: int = 16
    """Size of the balancing representation."""
    fully_connected: int = 32
    """Units of each head's hidden layer."""
    dropout: float = 0.1
    """Of the LSTM's output, in training only."""
    balance: float = 1.0
    """Largest alpha, the strength of the reversed gradient; 0 trains the same network without balancing."""
    training: TrainingConfig = field(default_factory=network_training)
    """The loop."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.representation, self.fully_connected) < 1:
            raise ValueError(f"CRNConfig: sizes must be at least 1, got {self}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"CRNConfig.dropout must lie in [0, 1), got {self.dropout}")
        if not (math.isfinite(self.balance) and self.balance >= 0):
            raise ValueError(f"CRNConfig.balance must not be negative, got {self.balance}")


def reversal_strength(share: float) -> float:
    """Alpha = 2 / (1 + exp(-10 p)) - 1 for the share p of training that is done: 0 at first, rising, below 1."""
    return 2.0 / (1.0 + math.exp(-10.0 * share)) - 1.0


class _Reversal(torch.autograd.Function):
    """The identity, whose gradient is multiplied by -alpha."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, alpha: float) -> Tensor:
        ctx.alpha = alpha
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.alpha * gradients[0], None


def reverse_gradient(values: Tensor, alpha: float) -> Tensor:
    """The same values; what flows back is -alpha times the gradient."""
    reversed_values: Tensor = _Reversal.apply(values, alpha)  # type: ignore[no-untyped-call]
    return reversed_values


class CounterfactualRecurrentNetwork(nn.Module):
    """LSTM, balancing representation, outcome head and treatment head."""

    def __init__(self, n_features: int, n_actions: int, config: CRNConfig) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        self.lstm = nn.LSTM(n_features + n_actions, config.hidden, batch_first=True)
        self.balancing = nn.Sequential(
            nn.Dropout(config.dropout), nn.Linear(config.hidden, config.representation), nn.ELU()
        )
        self.outcome = nn.Sequential(
            nn.Linear(config.representation + n_actions, config.fully_connected),
            nn.ELU(),
            nn.Linear(config.fully_connected, n_features),
        )
        self.treatment = nn.Sequential(
            nn.Linear(config.representation, config.fully_connected),
            nn.ELU(),
            nn.Linear(config.fully_connected, n_actions),
        )
        for parameter in self.outcome[2].parameters():
            nn.init.zeros_(parameter)

    def read(self, inputs: Tensor) -> Tensor:
        """LSTM outputs ``[N, T, H]`` of inputs ``[N, T, d + A]`` from zero states."""
        hidden: Tensor = self.lstm(inputs)[0]
        return hidden

    def represent(self, hidden: Tensor) -> Tensor:
        """Balancing representation ``[.., R]`` of LSTM outputs ``[.., H]``."""
        representation: Tensor = self.balancing(hidden)
        return representation

    def correction(self, representation: Tensor) -> Tensor:
        """``[.., A, d]`` what is added to the law under every action, for representations ``[.., R]``."""
        corrections: Tensor = self.outcome(with_every_action(representation, self.n_actions))
        return corrections

    def side_loss(self, representation: Tensor, actions: Tensor, share: float) -> Tensor:
        """Cross-entropy of the actions taken, whose gradient is reversed before it reaches the representation.

        Args:
            representation: ``[n, R]`` of the histories at which an action was taken (no padding).
            actions: ``[n]`` the actions.
            share: of the training that is done, in [0, 1).
        """
        alpha = self.config.balance * reversal_strength(share)
        return cross_entropy(self.treatment(reverse_gradient(representation, alpha)), actions)


def with_every_action(values: Tensor, n_actions: int) -> Tensor:
    """``[.., A, R + A]``: values ``[.., R]`` beside each action's one-hot."""
    shape = (*values.shape[:-1], n_actions)
    hot = torch.eye(n_actions, dtype=values.dtype, device=values.device).expand(*shape, n_actions)
    return torch.cat([values.unsqueeze(-2).expand(*shape, values.shape[-1]), hot], dim=-1)
