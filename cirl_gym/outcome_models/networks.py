"""The counterfactual recurrent network: a representation of the history that does not give the treatment away.

Bica et al. 2020 (the paper's section 4.1 and appendix F). The LSTM's output goes through one layer into a balancing
representation; one head predicts the outcome from it and the action, another the action that was taken. Between the
representation and the second head the gradient is reversed, so that the head learns to tell the actions apart while
the representation learns not to let it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.ends import EndHead
from cirl_gym.outcome_models.inputs import Scaler, one_hot, sequence_inputs
from cirl_gym.outcome_models.law import LawModel, LinearLaw
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.training import TrainingConfig, network_training
from cirl_gym.types import Float32Array, FloatArray, IntArray


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


# MERGED: MB(h): an LSTM with a fully connected layer that learns to predict the next observation, no more (appendix
# G).


@dataclass(frozen=True)
class RNNConfig:
    """Sizes of the network and how it is trained; the paper searches 1 to 5 times the input's size for each.

    Raises:
        ValueError: a size is below 1.
    """

    hidden: int = 32
    """Units of the LSTM."""
    fully_connected: int = 32
    """Units of the layer on [LSTM output, one-hot action]."""
    training: TrainingConfig = field(default_factory=network_training)
    """The loop."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.fully_connected) < 1:
            raise ValueError(f"RNNConfig: sizes must be at least 1, got {self}")


class RecurrentNetwork(nn.Module):
    """LSTM and outcome head."""

    def __init__(self, n_features: int, n_actions: int, config: RNNConfig) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        self.lstm = nn.LSTM(n_features + n_actions, config.hidden, batch_first=True)
        self.outcome = nn.Sequential(
            nn.Linear(config.hidden + n_actions, config.fully_connected),
            nn.ELU(),
            nn.Linear(config.fully_connected, n_features),
        )
        for parameter in self.outcome[2].parameters():
            nn.init.zeros_(parameter)

    def read(self, inputs: Tensor) -> Tensor:
        """LSTM outputs ``[N, T, H]`` of inputs ``[N, T, d + A]`` from zero states."""
        hidden: Tensor = self.lstm(inputs)[0]
        return hidden

    def represent(self, hidden: Tensor) -> Tensor:
        """The LSTM output itself."""
        return hidden

    def correction(self, representation: Tensor) -> Tensor:
        """``[.., A, d]`` what is added to the law under every action, for LSTM outputs ``[.., H]``."""
        corrections: Tensor = self.outcome(with_every_action(representation, self.n_actions))
        return corrections

    def side_loss(self, representation: Tensor, actions: Tensor, share: float) -> Tensor:
        """Nothing: there is no balancing."""
        return representation.new_zeros(())


# MERGED: A recurrent network that corrects a linear law: what CRN and MB(h) share.
#
# The network predicts by how much the law is wrong, in units of the law's own training error. Its last layer starts
# at
# zero, so that training starts at the law; on its own (:meth:`LinearLaw.persistence` as the law) it predicts the
# change.

MemoryNetwork: TypeAlias = CounterfactualRecurrentNetwork | RecurrentNetwork
"""An LSTM over [scaled x_t, one-hot a_{t-1}] and what it says about the next outcome."""


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


class RecurrentModel(LawModel):
    """Law plus correction inside the bounds; a state is the window row, then the LSTM's hidden and cell state."""

    def __init__(
        self,
        law: LinearLaw,
        network: MemoryNetwork,
        scaler: Scaler,
        correction_scale: FloatArray,
        spec: OutcomeSpec,
        end: EndHead,
    ) -> None:
        self.law = law
        self.network = network
        self.scaler = scaler
        self.correction_scale = np.array(correction_scale, dtype=np.float64)
        """``[d]`` raw units of one unit of the network's output."""
        self.spec = spec
        self.end = end

    def with_outcomes(self, spec: OutcomeSpec, end: EndHead) -> RecurrentModel:
        """The same law and network with another noise or end head."""
        return RecurrentModel(self.law, self.network, self.scaler, self.correction_scale, spec, end)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` after one observation ``[n, d]``."""
        none_yet = np.full(len(obs), -1, dtype=np.int64)
        zeros = np.zeros((len(obs), 2 * self.network.lstm.hidden_size), dtype=np.float32)
        return np.concatenate([self.law.window.start(obs), self._cell_step(zeros, none_yet, obs)], axis=1)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history in one pass over whole episodes; zero past the end."""
        with torch.inference_mode():
            states = lstm_states(self.network.lstm, torch.from_numpy(sequence_inputs(self.scaler, batch)))
        rows = [self.law.window.encode(batch), *(state.numpy() for state in states)]
        return np.where(batch.seen[..., None], np.concatenate(rows, axis=2), np.float32(0.0))

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` and observation ``[.., d]``: one step of the cell."""
        window, memory = states[..., : self.law.window.size], states[..., self.law.window.size :]
        following = self._cell_step(
            memory.reshape(-1, memory.shape[-1]), np.asarray(actions).reshape(-1), obs.reshape(-1, obs.shape[-1])
        )
        moved = self.law.window.advance(window, actions, obs)
        return np.concatenate([moved, following.reshape(memory.shape)], axis=-1)

    def raw(self, states: Float32Array) -> FloatArray:
        """Outcomes ``[.., A, d]`` before they are clipped to the bounds."""
        rows = states[..., : self.law.window.size]
        total: FloatArray = self.law(rows) + self._unit(rows)[..., None, :] * self._correction(states)
        return total

    def raw_of(self, states: Float32Array, actions: IntArray) -> FloatArray:
        """Outcomes ``[n, d]`` under one action ``[n]`` each, before they are clipped."""
        rows = states[:, : self.law.window.size]
        correction = self._correction(states)[np.arange(len(actions)), actions]
        return self.law.of_action(rows, actions) + self._unit(rows) * correction

    def _correction(self, states: Float32Array) -> Float32Array:
        """``[.., A, d]`` what the network adds, in its own units."""
        size = self.law.window.size
        hidden = np.array(states[..., size : size + self.network.lstm.hidden_size])
        with torch.inference_mode():
            correction: Float32Array = self.network.correction(self.network.represent(torch.from_numpy(hidden))).numpy()
        return correction

    def _unit(self, rows: Float32Array) -> FloatArray:
        """``[.., d]`` raw units of one unit of the correction."""
        return self.correction_scale * self.spec.size(self.law.window.newest(rows))

    def _cell_step(self, memory: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        inputs = np.concatenate([self.scaler(obs), one_hot(actions, self.n_actions)], axis=1)
        hidden, cell = (torch.from_numpy(np.array(half)) for half in np.split(memory, 2, axis=1))
        with torch.inference_mode():
            following = lstm_step(self.network.lstm, torch.from_numpy(inputs), hidden, cell)
            joined: Float32Array = torch.cat(following, dim=1).numpy()
        return joined


# MERGED: MB(x): two fully connected layers on the current observation and action, without memory (appendix G).


@dataclass(frozen=True)
class MLPConfig:
    """Sizes of the network and how it is trained.

    Raises:
        ValueError: a size is below 1.
    """

    first: int = 32
    """Units of the first layer."""
    second: int = 32
    """Units of the second layer."""
    training: TrainingConfig = field(default_factory=network_training)
    """The loop."""

    def __post_init__(self) -> None:
        if min(self.first, self.second) < 1:
            raise ValueError(f"MLPConfig: sizes must be at least 1, got {self}")


class MemorylessNetwork(nn.Module):
    """Two layers with ELU on [scaled x_t, one-hot a_t], and a linear output that starts at zero."""

    def __init__(self, n_features: int, n_actions: int, config: MLPConfig) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        self.outcome = nn.Sequential(
            nn.Linear(n_features + n_actions, config.first),
            nn.ELU(),
            nn.Linear(config.first, config.second),
            nn.ELU(),
            nn.Linear(config.second, n_features),
        )
        for parameter in self.outcome[4].parameters():
            nn.init.zeros_(parameter)

    def read(self, inputs: Tensor) -> Tensor:
        """``[.., d]`` all that is kept of inputs ``[.., d + A]``: the observation."""
        return inputs[..., : self.n_features]

    def represent(self, hidden: Tensor) -> Tensor:
        """The observation itself."""
        return hidden

    def correction(self, representation: Tensor) -> Tensor:
        """``[.., A, d]`` what is added to the law under every action, for observations ``[.., d]``."""
        corrections: Tensor = self.outcome(with_every_action(representation, self.n_actions))
        return corrections

    def side_loss(self, representation: Tensor, actions: Tensor, share: float) -> Tensor:
        """Nothing: there is no balancing."""
        return representation.new_zeros(())


class MemorylessModel(LawModel):
    """A law of the last observation plus correction inside the bounds; a state is the window row, x_t alone."""

    def __init__(
        self,
        law: LinearLaw,
        network: MemorylessNetwork,
        scaler: Scaler,
        correction_scale: FloatArray,
        spec: OutcomeSpec,
        end: EndHead,
    ) -> None:
        if law.window.order != 1:
            raise ValueError(f"MemorylessModel: the law must read one observation, not {law.window.order}")
        self.law = law
        self.network = network
        self.scaler = scaler
        self.correction_scale = np.array(correction_scale, dtype=np.float64)
        """``[d]`` raw units of one unit of the network's output."""
        self.spec = spec
        self.end = end

    def with_outcomes(self, spec: OutcomeSpec, end: EndHead) -> MemorylessModel:
        """The same law and network with another noise or end head."""
        return MemorylessModel(self.law, self.network, self.scaler, self.correction_scale, spec, end)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, d]`` after one observation ``[n, d]``."""
        return self.law.window.start(obs)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, d]`` of every history; zero past the end."""
        return self.law.window.encode(batch)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., d]`` after action and observation."""
        return self.law.window.advance(states, actions, obs)

    def raw(self, states: Float32Array) -> FloatArray:
        """Outcomes ``[.., A, d]`` before they are clipped to the bounds."""
        unit = self.correction_scale * self.spec.size(states)
        total: FloatArray = self.law(states) + unit[..., None, :] * self._correction(states)
        return total

    def raw_of(self, states: Float32Array, actions: IntArray) -> FloatArray:
        """Outcomes ``[n, d]`` under one action ``[n]`` each, before they are clipped."""
        correction = self._correction(states)[np.arange(len(actions)), actions]
        return self.law.of_action(states, actions) + self.correction_scale * self.spec.size(states) * correction

    def _correction(self, states: Float32Array) -> Float32Array:
        """``[.., A, d]`` what the network adds, in its own units."""
        with torch.inference_mode():
            correction: Float32Array = self.network.correction(torch.from_numpy(self.scaler(states))).numpy()
        return correction
