"""A learned outcome model: a linear law and a correction or none; and several models as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.outcome_models.ends import EndHead
from cirl_gym.outcome_models.inputs import Scaler, one_hot, sequence_inputs
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.networks import CorrectingNetwork, lstm_states, lstm_step
from cirl_gym.types import Float32Array, FloatArray, IntArray


@dataclass(frozen=True)
class RowWeights:
    """How RMSN weighed its training rows: by the inverse probability of their treatment, clipped at two quantiles."""

    mean: float
    """Of the clipped weights before they are scaled to 1: near 1 if the probabilities are right."""
    effective_share: float
    """(Sum of weights)^2 / (n sum of their squares)."""
    smallest: float
    """Weight, after scaling."""
    largest: float
    """Weight, after scaling."""
    clipped: int
    """Rows whose weights lay beyond the quantiles and were moved to them."""
    rows: int
    """n, all training rows."""


@dataclass(frozen=True)
class Correction:
    """A network that says by how much a linear law is wrong, and how much of a state is its memory.

    With a memory of H numbers (CRN, RMSN, MB(h)) that is the LSTM's hidden and cell state, M = 2 H; without (MB(x))
    M = 0, and the network sees the last observation.
    """

    network: CorrectingNetwork
    """In eval mode."""
    scaler: Scaler
    """Of what it reads."""
    scale: FloatArray
    """``[d]`` raw units of one unit of its output."""
    weights: RowWeights | None = None
    """How its training rows were weighed; None: alike, or that was not kept."""

    def start(self, obs: Float32Array) -> Float32Array:
        """Memory ``[n, M]`` after one observation ``[n, d]``."""
        lstm = self.network.lstm
        zeros = np.zeros((len(obs), 0 if lstm is None else 2 * lstm.hidden_size), dtype=np.float32)
        return self.advance(zeros, np.full(len(obs), -1, dtype=np.int64), obs)

    @torch.inference_mode()
    def encode(self, batch: Batch) -> Float32Array:
        """Memory ``[N, T+1, M]`` of every history in one pass over whole episodes; any numbers past the end."""
        if self.network.lstm is None:
            return np.zeros((*batch.obs.shape[:2], 0), dtype=np.float32)
        states = lstm_states(self.network.lstm, torch.from_numpy(sequence_inputs(self.scaler, batch)))
        return np.concatenate([state.numpy() for state in states], axis=2)

    @torch.inference_mode()
    def advance(self, memory: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """Memory ``[.., M]`` after action ``[..]`` and observation ``[.., d]``: one step of the cell."""
        if self.network.lstm is None:
            return memory
        hot = one_hot(np.asarray(actions).reshape(-1), self.network.n_actions)
        inputs = np.concatenate([self.scaler(obs.reshape(-1, obs.shape[-1])), hot], axis=1)
        halves = np.split(memory.reshape(-1, memory.shape[-1]), 2, axis=1)
        hidden, cell = (torch.from_numpy(np.array(half)) for half in halves)
        following = lstm_step(self.network.lstm, torch.from_numpy(inputs), hidden, cell)
        return torch.cat(following, dim=1).numpy().reshape(memory.shape)

    def remembered(self, newest: Float32Array, memory: Float32Array) -> Float32Array:
        """``[.., H]`` what the history is represented from: the LSTM's hidden state, or the scaled observation."""
        lstm = self.network.lstm
        return self.scaler(newest) if lstm is None else np.array(memory[..., : lstm.hidden_size])

    @torch.inference_mode()
    def represented(self, newest: Float32Array, memory: Float32Array) -> Float32Array:
        """``[.., R]`` the representation that the network's outcome head sees."""
        return self.network.represent(torch.from_numpy(self.remembered(newest, memory))).numpy()

    @torch.inference_mode()
    def __call__(self, newest: Float32Array, memory: Float32Array) -> Float32Array:
        """``[.., A, d]`` what is added to the law under every action, in units of ``scale``."""
        return self.network.correction(torch.from_numpy(self.represented(newest, memory))).numpy()

    @torch.inference_mode()
    def of_action(self, newest: Float32Array, memory: Float32Array, hot: Float32Array) -> Float32Array:
        """``[n, d]`` the same under one action each, one-hot ``[n, A]``, for observations ``[n, d]``."""
        inputs = np.concatenate([self.represented(newest, memory), hot], axis=1)
        corrections: Float32Array = self.network.outcome(torch.from_numpy(inputs)).numpy()
        return corrections


class LearnedModel:
    """A linear law, and what corrects it, inside the bounds: AR, CRN, RMSN, MB(h) and MB(x).

    A state is the row of the law's window, then the correction's memory, if it has one. Without correction the model is
    the law; ``end`` is told the outcomes before limits and bounds.
    """

    def __init__(self, law: LinearLaw, spec: OutcomeSpec, end: EndHead, correction: Correction | None = None) -> None:
        self.law, self.spec, self.end, self.correction = law, spec, end, correction
        self.features, self.n_actions = spec.features, spec.n_actions
        self.noise_scale, self.bounds = spec.noise_scale, (spec.low, spec.high)

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for independent standard normal numbers ``[.., d]``."""
        return self.spec.noise(normals)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` after one observation ``[n, d]``."""
        rows = self.law.window.start(obs)
        return rows if self.correction is None else np.concatenate([rows, self.correction.start(obs)], axis=1)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        rows = self.law.window.encode(batch)
        if self.correction is None:
            return rows
        states = np.concatenate([rows, self.correction.encode(batch)], axis=2)
        return np.where(batch.seen[..., None], states, np.float32(0.0))

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` and observation ``[.., d]``."""
        rows, memory = self.parts(states)
        moved = self.law.window.advance(rows, actions, obs)
        if self.correction is None:
            return moved
        return np.concatenate([moved, self.correction.advance(memory, actions, obs)], axis=-1)

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]`` under every action, raw units."""
        return self.spec.expected(self.raw(states))

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action."""
        return self.end(self.raw(states), self.law.window.newest(states))

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        rows, memory = self.parts(states)
        raw, newest = self.law.of_action(rows, actions), self.law.window.newest(rows)
        hot = one_hot(actions, self.n_actions)
        if self.correction is not None:
            raw = raw + self.unit(newest) * self.correction.of_action(newest, memory, hot)
        return self.spec.expected(raw), self.end.of_action(raw, newest, hot)

    def raw(self, states: Float32Array) -> FloatArray:
        """Outcomes ``[.., A, d]`` before limits and bounds."""
        rows, memory = self.parts(states)
        outcomes = self.law(rows)
        if self.correction is None:
            return outcomes
        newest = self.law.window.newest(rows)
        total: FloatArray = outcomes + self.unit(newest)[..., None, :] * self.correction(newest, memory)
        return total

    def parts(self, states: Float32Array) -> tuple[Float32Array, Float32Array]:
        """Rows of the law's window ``[.., W]`` and the correction's memory ``[.., M]`` of states ``[.., S]``."""
        size = self.law.window.size
        return states[..., :size], states[..., size:]

    def unit(self, newest: npt.NDArray[np.floating]) -> FloatArray:
        """``[.., d]`` raw units of one unit of the correction after observations ``[.., d]``; 0 without correction."""
        scale = np.zeros(len(self.features)) if self.correction is None else self.correction.scale
        return scale * self.spec.size(newest)


class EnsembleModel:
    """An outcome model whose outcomes and end probabilities are the means of its members'.

    Any models can be members: networks with other first weights, models of other patients (a bootstrap), other kinds. A
    state is the members' states side by side. The default of ``noise_scale`` is the root mean square of the members'.

    Raises:
        ValueError: there are less than two members, or they are of other features or actions.
    """

    def __init__(self, members: Sequence[OutcomeModel], noise_scale: FloatArray | None = None) -> None:
        if len(members) < 2:
            raise ValueError(f"an ensemble needs two members, got {len(members)}")
        for member in members[1:]:
            if (member.features, member.n_actions) != (members[0].features, members[0].n_actions):
                raise ValueError(
                    f"the members of an ensemble must be of the same features and actions: {members[0].features} and "
                    f"{members[0].n_actions}, {member.features} and {member.n_actions}"
                )
        self.members = tuple(members)
        self.features, self.n_actions = members[0].features, members[0].n_actions
        squares = np.mean([member.noise_scale**2 for member in members], axis=0)
        self.noise_scale: FloatArray = np.sqrt(squares) if noise_scale is None else np.array(noise_scale)
        """``[d]`` standard deviation of outcomes around the mean prediction, raw units."""
        low, high = zip(*(member.bounds for member in members), strict=True)
        self.bounds: tuple[FloatArray, FloatArray] = (np.min(low, axis=0), np.max(high, axis=0))
        """``[d]`` lower and upper limit of any outcome: the widest of the members'."""
        none = np.zeros((1, len(self.features)), dtype=np.float32)
        widths = [member.start(none).shape[1] for member in members]
        self._cuts = [int(cut) for cut in np.cumsum(widths)[:-1]]

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units: the means of the members' for the same standard normal numbers."""
        mean: FloatArray = np.mean([member.noise(normals) for member in self.members], axis=0)
        return mean

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` after one observation ``[n, d]``."""
        return np.concatenate([member.start(obs) for member in self.members], axis=-1)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        return np.concatenate([member.encode(batch) for member in self.members], axis=-1)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` and observation ``[.., d]``."""
        return np.concatenate([one.advance(part, actions, obs) for one, part in self._each(states)], axis=-1)

    def every_prediction(self, states: Float32Array) -> Float32Array:
        """``[M, .., A, d]`` what each member expects, raw units."""
        return np.stack([member.predict(part) for member, part in self._each(states)])

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]`` under every action, raw units."""
        return _mean(self.every_prediction(states))

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action."""
        return _mean(np.stack([member.end_probability(part) for member, part in self._each(states)]))

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        outcomes, ends = zip(*(foresee(member, part, actions) for member, part in self._each(states)), strict=True)
        return _mean(np.stack(outcomes)), _mean(np.stack(ends))

    def _each(self, states: Float32Array) -> Iterator[tuple[OutcomeModel, Float32Array]]:
        return zip(self.members, np.split(states, self._cuts, axis=-1), strict=True)


def _mean(every: Float32Array) -> Float32Array:
    """The members' mean; of equal numbers (a static covariate) it is that number, which float32 would not promise."""
    mean: Float32Array = every.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean
