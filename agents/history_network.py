"""The recurrent network of appendices C and D: a value of every action after every history of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.recurrent import lstm_states
from cirl_gym.types import FloatArray


class Rows(NamedTuple):
    """Which histories of a batch: R episodes and times."""

    episode: Tensor
    """``[R]`` int64."""
    step: Tensor
    """``[R]`` int64, t of h_t."""
    whole: tuple[Tensor, Tensor] | None = None
    """Where they are all histories of some episodes: these ``[B]``, and ``[B, T]`` True where there is a history."""


class HistoryNetwork(nn.Module):
    """An LSTM over [scaled x_t, one-hot a_{t-1}] and a linear output: a value ``[A, k]`` after every history."""

    def __init__(self, n_inputs: int, n_actions: int, size: int, hidden: int) -> None:
        super().__init__()
        self.n_actions, self.size = n_actions, size
        self.lstm = nn.LSTM(n_inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_actions * size)

    def values(self, hidden: Tensor) -> Tensor:
        """``[.., A, k]`` for the memory's output ``[.., H]``."""
        out: Tensor = self.head(hidden)
        return out.reshape(*hidden.shape[:-1], self.n_actions, self.size)

    def hidden(self, inputs: Tensor, rows: Rows) -> Tensor:
        """The memory's output ``[R, H]`` after histories of the inputs ``[N, T, I]``."""
        if rows.whole is None:
            return self.memory(inputs, rows)[0]
        # In one pass, which yields no cell states.
        episodes, live = rows.whole
        hidden: Tensor = self.lstm(inputs[episodes])[0][live]
        return hidden

    def memory(self, inputs: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Hidden and cell states ``[R, H]`` after histories of the inputs ``[N, T, I]``."""
        if rows.whole is not None:
            episodes, live = rows.whole
            hidden, cell = (states[live] for states in lstm_states(self.lstm, inputs[episodes]))
            return hidden, cell
        packed = pack_padded_sequence(inputs[rows.episode], rows.step + 1, batch_first=True, enforce_sorted=False)
        _, (hidden, cell) = self.lstm(packed)
        return hidden[0], cell[0]


def values_along(network: HistoryNetwork, scaler: Scaler, batch: Batch) -> FloatArray:
    """``[N, T, A, k]`` values after every history of a batch; 0 on padding."""
    with torch.inference_mode():
        inputs = torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1].copy())
        values = network.values(network.lstm(inputs)[0]).double().numpy()
    return np.where(batch.mask[..., None, None], values, 0.0)
