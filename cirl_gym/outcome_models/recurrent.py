"""A recurrent network that corrects a linear law: what CRN and MB(h) share.

The network predicts by how much the law is wrong, in units of the law's own training error. Its last layer starts at
zero, so that training starts at the law; on its own (:meth:`LinearLaw.persistence` as the law) it predicts the change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from cirl_gym.outcome_models.training import History, Progress, TrainingConfig, train_network
from cirl_gym.types import Float32Array, FloatArray, IntArray

CorrectionNetwork: TypeAlias = CounterfactualRecurrentNetwork | RecurrentNetwork
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
        network: CorrectionNetwork,
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
        size, hidden_size = self.law.window.size, self.network.lstm.hidden_size
        hidden = np.array(states[..., size : size + hidden_size])
        with torch.inference_mode():
            correction = self.network.correction(self.network.represent(torch.from_numpy(hidden))).numpy()
        total: FloatArray = self.law(states[..., :size]) + self.correction_scale * correction
        return total

    def _cell_step(self, memory: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        inputs = np.concatenate([self.scaler(obs), one_hot(actions, self.n_actions)], axis=1)
        hidden, cell = (torch.from_numpy(np.array(half)) for half in np.split(memory, 2, axis=1))
        with torch.inference_mode():
            following = lstm_step(self.network.lstm, torch.from_numpy(inputs), hidden, cell)
            joined: Float32Array = torch.cat(following, dim=1).numpy()
        return joined


@dataclass(frozen=True)
class CorrectionFit:
    """What training the correction brought."""

    history: History
    """Losses are squared errors in units of the law's training error."""
    law_loss: float
    """Validation loss of the law alone."""
    loss: float
    """Validation loss of law and correction."""
    standard_error: float
    """Of the difference between the two, paired by episode."""

    @property
    def helps(self) -> bool:
        """Whether the correction lowers the validation loss by more than three standard errors.

        Three, because the loss is that of the best of many epochs, chosen on the same episodes: noise alone often
        wins by one or two. And a correction that is only noise does its harm far from the data, unseen.
        """
        return self.law_loss - self.loss > 3.0 * self.standard_error


def fit_correction(
    model: RecurrentModel, train: Batch, validation: Batch, config: TrainingConfig, seed: int, progress: Progress | None
) -> CorrectionFit:
    """Train a model's network in place on what its law leaves over."""
    rows, held_out = (_Leftovers.of(model, batch) for batch in (train, validation))
    network = model.network

    def loss(chosen: Tensor, share: float) -> Tensor:
        part = rows.take(chosen)
        # Padding is dropped before anything is drawn or averaged over it.
        representation = network.represent(network.lstm(part.inputs)[0][part.mask])
        squares = part.squares(network.correction(representation))
        return squares.mean() + network.side_loss(representation, part.actions[part.mask], share)

    def held_out_squares() -> Tensor:
        hidden = network.lstm(held_out.inputs)[0][held_out.mask]
        return held_out.squares(network.correction(network.represent(hidden)))

    history = train_network(network, loss, lambda: held_out_squares().mean().item(), len(train), config, seed, progress)
    with torch.no_grad():
        after = held_out.per_episode(held_out_squares())
        nothing = torch.zeros((validation.n_steps, model.n_actions, len(model.features)))
        before = held_out.per_episode(held_out.squares(nothing))
    error = float((after - before).std() / np.sqrt(len(validation)))
    return CorrectionFit(history, float(before.mean()), float(after.mean()), error)


def _clipped_mean(expected: Tensor, spec: OutcomeSpec) -> Tensor:
    """:func:`cirl_gym.outcome_models.censoring.clipped_mean` with gradients, for features that have a limit."""
    columns = []
    for j in range(expected.shape[-1]):
        column, floor, ceiling = expected[..., j], float(spec.floor[j]), float(spec.ceiling[j])
        noise = max(float(spec.noise_scale[j]), 1e-6)
        if np.isfinite(floor):
            column = floor + _excess(column - floor, noise)
        if np.isfinite(ceiling):
            column = ceiling - _excess(ceiling - column, noise)
        columns.append(column)
    return torch.stack(columns, dim=-1)


def _excess(above: Tensor, noise: float) -> Tensor:
    """E[max(above + noise eps, 0)]."""
    z = above / noise
    excess: Tensor = above * torch.special.ndtr(z) + noise * torch.exp(-0.5 * z**2) / float(np.sqrt(2 * np.pi))
    return excess


@dataclass(frozen=True)
class _Leftovers:
    """What the law leaves over in one split; all ``[N, T, ..]``."""

    inputs: Tensor
    actions: Tensor
    mask: Tensor
    law: Tensor
    outcomes: Tensor
    model: RecurrentModel

    @classmethod
    def of(cls, model: RecurrentModel, batch: Batch) -> _Leftovers:
        law = model.law(model.law.window.encode(batch)[:, :-1])
        taken = np.take_along_axis(law, batch.actions[..., None, None], axis=2)[:, :, 0]
        return cls(
            torch.from_numpy(sequence_inputs(model.scaler, batch)[:, :-1]),
            torch.from_numpy(batch.actions.copy()),
            torch.from_numpy(batch.mask),
            torch.from_numpy(taken.astype(np.float32)),
            torch.from_numpy(batch.next_obs),
            model,
        )

    def take(self, chosen: Tensor) -> _Leftovers:
        parts = {name: getattr(self, name)[chosen] for name in ("inputs", "actions", "mask", "law", "outcomes")}
        return replace(self, **parts)

    def squares(self, correction: Tensor) -> Tensor:
        """``[R, d]`` squared errors of corrections ``[R, A, d]`` for the R actions taken, padding left out.

        They are the errors of what the model will predict: the expectation of an outcome that stops at its limits.
        """
        unit = torch.from_numpy(self.model.correction_scale.astype(np.float32))
        taken = correction[torch.arange(len(correction)), self.actions[self.mask]]
        predicted = _clipped_mean(self.law[self.mask] + unit * taken, self.model.spec)
        return ((predicted - self.outcomes[self.mask]) / unit) ** 2

    def per_episode(self, squares: Tensor) -> FloatArray:
        """``[N]`` mean of squares ``[R, d]`` by episode, weighted so that their mean is the mean over all actions."""
        episode, n = torch.nonzero(self.mask)[:, 0], len(self.mask)
        sums = torch.zeros(n, dtype=torch.float64).index_add_(0, episode, squares.double().mean(dim=1))
        share: FloatArray = (sums * (n / len(squares))).numpy()
        return share
