"""What an outcome model promises: phi of any history, deterministic. Everything above a model sees only this."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.types import Float32Array, FloatArray, IntArray


class OutcomeModel(Protocol):
    """phi before scaling: expected next observation under every action, for any history (paper, equation 1).

    A history is carried as a flat row of S float32 numbers, so that states can be indexed, stored and repeated like
    any other array. All methods are deterministic and treat every row alone: a row's result does not depend on which
    other rows are in the array.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d features."""

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""

    @property
    def noise_scale(self) -> FloatArray:
        """``[d]`` standard deviation of the observed outcome around the expected one, raw units."""

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for independent standard normal numbers ``[.., d]``."""

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """``[d]`` lower and upper limit of any outcome, raw units; predictions and samples stay inside."""

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of the histories h_0..h_T of every episode; rows past the end are zero."""

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` of the histories that consist of one observation ``[n, d]``."""

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]``, raw units, for states ``[.., S]`` under every action."""

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action, for states ``[.., S]``."""

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` was taken and ``[.., d]`` was observed."""


@runtime_checkable
class ForesightModel(Protocol):
    """What an outcome model can have beside: both answers for one action each, which a search asks for all the time.

    Without it the answers for every action are asked for, twice (:func:`foresee`).
    """

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` of states ``[n, S]``, actions ``[n]``."""


def foresee(model: OutcomeModel, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
    """Expected next observations ``[n, d]`` and end probabilities ``[n]`` of states ``[n, S]``, actions ``[n]``.

    They equal those of ``predict`` and ``end_probability`` up to the last bits.
    """
    if isinstance(model, ForesightModel):
        return model.foresee(states, actions)
    rows = np.arange(len(actions))
    return model.predict(states)[rows, actions], model.end_probability(states)[rows, actions]


def fold(model: OutcomeModel, batch: Batch) -> Float32Array:
    """States ``[N, T+1, S]`` of every history by starting and advancing; zero past an episode's end."""
    state = model.start(batch.start)
    states = [state]
    for step in range(batch.horizon):
        state = model.advance(state, batch.actions[:, step], batch.obs[:, step + 1])
        states.append(state)
    return np.where(batch.seen[..., None], np.stack(states, axis=1), np.float32(0.0))
