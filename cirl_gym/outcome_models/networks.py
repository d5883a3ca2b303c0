"""Networks that correct a linear law: CRN, MB(h), RMSN's and MB(x); and RMSN's networks of propensities.

A correcting network says by how much the law is wrong, in units of the law's own training error. Its last layer starts
at zero, so that training starts at the law; beside :meth:`~cirl_gym.outcome_models.law.LinearLaw.persistence` it
predicts the change.

The counterfactual recurrent network (Bica et al. 2020; the paper's section 4.1 and appendix F) represents the history
so that the treatment is not given away: the LSTM's output goes through one layer into a balancing representation; one
head predicts the outcome from it and the action, another the action that was taken. Between the representation and the
second head the gradient is reversed, so that the head learns to tell the actions apart while the representation learns
not to let it. MB(h) is an LSTM with one fully connected layer, MB(x) two layers on the last observation (appendix G).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cirl_gym.outcome_models.inputs import NetworkKind
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

    def __post_init__(self) -> None:
        _check_sizes(self, self.hidden, self.representation, self.fully_connected)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"CRNConfig.dropout must lie in [0, 1), got {self.dropout}")
        if not (math.isfinite(self.balance) and self.balance >= 0):
            raise ValueError(f"CRNConfig.balance must not be negative, got {self.balance}")


@dataclass(frozen=True)
class RNNConfig:
    """Sizes of MB(h)'s network and how it is trained; the paper searches 1 to 5 times the input's size for each.

    Raises:
        ValueError: a size is below 1.
    """

    hidden: int = 32
    """Units of the LSTM."""
    fully_connected: int = 32
    """Units of the layer on [LSTM output, one-hot action]."""
    training: TrainingConfig = field(default_factory=network_training)

    def __post_init__(self) -> None:
        _check_sizes(self, self.hidden, self.fully_connected)


@dataclass(frozen=True)
class MLPConfig:
    """Sizes of MB(x)'s network and how it is trained.

    Raises:
        ValueError: a size is below 1.
    """

    first: int = 32
    """Units of the first layer."""
    second: int = 32
    """Units of the second layer."""
    training: TrainingConfig = field(default_factory=network_training)

    def __post_init__(self) -> None:
        _check_sizes(self, self.first, self.second)


@dataclass(frozen=True)
class PropensityConfig:
    """RMSN's networks that say how likely a treatment was.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int = 16
    """Units of the LSTM."""
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            epochs=30, batch_size=128, fewest_steps=32, learning_rate=0.02, weight_decay=0.01, patience=4
        )
    )

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"PropensityConfig.hidden must be at least 1, got {self.hidden}")


@dataclass(frozen=True)
class RMSNConfig(RNNConfig):
    """MB(h)'s network, and how its rows are weighed (:mod:`cirl_gym.outcome_models.correction`).

    Raises:
        ValueError: a number is out of its range.
    """

    propensity: PropensityConfig = field(default_factory=PropensityConfig)
    """Both networks of the weights."""
    clip: float = 0.01
    """Share of the training rows at either end whose weights are moved to that quantile."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.clip < 0.5:
            raise ValueError(f"RMSNConfig.clip must lie in [0, .5), got {self.clip}")


NetworkConfig: TypeAlias = CRNConfig | RNNConfig | MLPConfig
"""Of one correcting network; RMSN's is a kind of MB(h)'s."""


def _check_sizes(config: NetworkConfig, *sizes: int) -> None:
    if min(sizes) < 1:
        raise ValueError(f"{type(config).__name__}: sizes must be at least 1, got {config}")


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


def lstm_step(lstm: nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden and cell states ``[n, H]`` after one input ``[n, I]`` in states ``[n, H]``."""
    _, (hidden, cell) = lstm(inputs[:, None], (hidden[None], cell[None]))
    return hidden[0], cell[0]


def lstm_states(lstm: nn.LSTM, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden and cell states ``[N, T, H]`` after every one of the inputs ``[N, T, I]``, from zero states.

    A plain call yields the hidden states alone; it is faster and enough for training.
    """
    hidden = cell = inputs.new_zeros((len(inputs), lstm.hidden_size))
    hiddens, cells = [], []
    for step in range(inputs.shape[1]):
        hidden, cell = lstm_step(lstm, inputs[:, step], hidden, cell)
        hiddens.append(hidden)
        cells.append(cell)
    return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)


def with_every_action(values: Tensor, n_actions: int) -> Tensor:
    """``[.., A, R + A]``: values ``[.., R]`` beside each action's one-hot."""
    shape = (*values.shape[:-1], n_actions)
    hot = torch.eye(n_actions, dtype=values.dtype, device=values.device).expand(*shape, n_actions)
    return torch.cat([values.unsqueeze(-2).expand(*shape, values.shape[-1]), hot], dim=-1)


def perceptron(sizes: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


class CorrectingNetwork(nn.Module):
    """An outcome head on a representation ``[.., R]`` of the history and each action; it does not correct anything yet.

    It reads x_t (scaled) and the one-hot a_{t-1} at every step: with an LSTM (CRN, RMSN, MB(h)), or, without memory
    (MB(x)), x_t alone. First weights come from torch's global generator.
    """

    lstm: nn.LSTM | None
    """None: without memory."""
    balancing: nn.Sequential
    """Of a CRN alone, as is ``treatment``: from LSTM outputs to the representation."""

    def __init__(self, n_features: int, n_actions: int, config: NetworkConfig) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        if isinstance(config, MLPConfig):
            self.lstm = None
            self.outcome = _outcome_head(n_features + n_actions, config.first, config.second, n_features)
            return
        self.lstm = nn.LSTM(n_features + n_actions, config.hidden, batch_first=True)
        width, units = config.hidden, config.fully_connected
        if isinstance(config, CRNConfig):
            width = config.representation
            self.balancing = nn.Sequential(nn.Dropout(config.dropout), nn.Linear(config.hidden, width), nn.ELU())
        self.outcome = _outcome_head(width + n_actions, units, n_features)
        if isinstance(config, CRNConfig):
            self.treatment = nn.Sequential(nn.Linear(width, units), nn.ELU(), nn.Linear(units, n_actions))

    def read(self, inputs: Tensor) -> Tensor:
        """``[N, T, H]`` what is remembered of inputs ``[N, T, d + A]``: LSTM outputs from zero states, or x_t."""
        if self.lstm is None:
            return inputs[..., : self.n_features]
        hidden: Tensor = self.lstm(inputs)[0]
        return hidden

    def represent(self, hidden: Tensor) -> Tensor:
        """Representation ``[.., R]`` of what is remembered ``[.., H]``: the same, unless there is balancing."""
        return self.balancing(hidden) if isinstance(self.config, CRNConfig) else hidden

    def correction(self, representation: Tensor) -> Tensor:
        """``[.., A, d]`` what is added to the law under every action, for representations ``[.., R]``."""
        corrections: Tensor = self.outcome(with_every_action(representation, self.n_actions))
        return corrections

    def side_loss(self, representation: Tensor, actions: Tensor, share: float) -> Tensor:
        """What is added to the loss of the outcomes, where the share (in [0, 1)) of the training is done.

        With balancing the cross-entropy of the actions taken ``[n]``, whose gradient is reversed before it reaches the
        representation ``[n, R]`` of the histories (no padding); else nothing.
        """
        if not isinstance(self.config, CRNConfig):
            return representation.new_zeros(())
        alpha = self.config.balance * reversal_strength(share)
        return cross_entropy(self.treatment(reverse_gradient(representation, alpha)), actions)


def _outcome_head(*sizes: int) -> nn.Sequential:
    """Linear layers with ELU between them, the last of them zero: training starts at the law."""
    layers = perceptron(sizes, nn.ELU)
    for parameter in layers[-1].parameters():
        nn.init.zeros_(parameter)
    return layers


CONFIGS: dict[NetworkKind, type[NetworkConfig]]
CONFIGS = {"crn": CRNConfig, "rmsn": RMSNConfig, "mb_h": RNNConfig, "mb_x": MLPConfig}


def kind_of(config: NetworkConfig) -> NetworkKind:
    """The kind of model that a network with these settings makes."""
    return next(kind for kind, own in CONFIGS.items() if own is type(config))


class PropensityNetwork(nn.Module):
    """LSTM over inputs ``[N, T, I]`` to logits ``[N, T, A]``, beside a direct linear path that starts at zero."""

    def __init__(self, n_inputs: int, n_actions: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(n_inputs, hidden, batch_first=True)
        self.direct = nn.Linear(n_inputs, n_actions)
        self.remembered = nn.Linear(hidden, n_actions, bias=False)
        for parameter in (*self.direct.parameters(), *self.remembered.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the treatment at every step."""
        logits: Tensor = self.direct(inputs) + self.remembered(self.lstm(inputs)[0])
        return logits
