"""A recurrent network that corrects a linear law: what CRN and MB(h) share.

The network predicts by how much the law is wrong, in units of the law's own training error. Its last layer starts at
zero, so that training starts at the law; on its own (:meth:`LinearLaw.persistence` as the law) it predicts the change.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.crn import CounterfactualRecurrentNetwork
from cirl_gym.outcome_models.end_head import EndHead
from cirl_gym.outcome_models.inputs import Scaler, one_hot, sequence_inputs
from cirl_gym.outcome_models.linear import LawModel, LinearLaw
from cirl_gym.outcome_models.rnn import RecurrentNetwork
from cirl_gym.outcome_models.spec import OutcomeSpec
from cirl_gym.types import Float32Array, FloatArray, IntArray

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
