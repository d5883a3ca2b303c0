"""The simulator itself as an outcome model, so that the error of a model and that of IRL can be told apart."""

from __future__ import annotations

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import fold
from cirl_gym.outcome_models.limits import clipped_mean
from cirl_gym.types import Float32Array, FloatArray, IntArray
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters, TumourState


class OracleModel:
    """The expectation of equation 22; a state is the last p observations and treatments and how many were seen."""

    features = tumour.FEATURES
    n_actions = tumour.N_ACTIONS

    def __init__(self, parameters: TumourParameters | None = None) -> None:
        self.parameters = parameters or TumourParameters()
        self.noise_scale = self.parameters.noise
        """``[2]`` standard deviations of eps and eta."""
        self.bounds: tuple[FloatArray, FloatArray] = (np.zeros(2), self.parameters.highest)
        """``[2]`` limits of any observation."""

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` after one observation ``[n, 2]``."""
        return self._pack(tumour.initial_state(self.parameters, obs.astype(np.float64)))

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., 2]`` for standard normal numbers ``[.., 2]``."""
        return normals * self.noise_scale

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        return fold(self, batch)

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next (x, z) ``[.., 2, 2]`` under both actions: exact, with what clipping at zero adds."""
        outcomes = [self._seen(expected) for expected in self._expected(states)]
        return np.stack(outcomes, axis=1).reshape(*states.shape[:-1], self.n_actions, 2)

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Exact probability ``[.., 2]`` that the process ends with this action."""
        chances = [tumour.end_probability(self.parameters, expected) for expected in self._expected(states)]
        return np.stack(chances, axis=1).reshape(*states.shape[:-1], self.n_actions).astype(np.float32)

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next (x, z) ``[n, 2]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        expected = tumour.expected_outcome(self.parameters, self._unpack(states), actions)
        return self._seen(expected), tumour.end_probability(self.parameters, expected).astype(np.float32)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action and observation."""
        p, following = self.parameters.order, np.empty_like(states)
        following[..., :2], following[..., 2 : 2 * p] = obs, states[..., : 2 * p - 2]
        following[..., 2 * p], following[..., 2 * p + 1 : 3 * p] = actions, states[..., 2 * p : 3 * p - 1]
        # A row of zeros is padding, of which one observation counts as seen.
        np.minimum(np.maximum(states[..., 3 * p], 1) + 1, p, out=following[..., 3 * p])
        return following

    def _expected(self, states: Float32Array) -> list[FloatArray]:
        """``[n, 2]`` next (x, z) under each action, before noise and limits."""
        rows, n_actions = self._unpack(states), self.n_actions
        every = (np.full(len(rows.seen), action, dtype=np.int64) for action in range(n_actions))
        return [tumour.expected_outcome(self.parameters, rows, actions) for actions in every]

    def _seen(self, expected: FloatArray) -> Float32Array:
        return clipped_mean(expected, self.noise_scale, *self.bounds).astype(np.float32)

    def _pack(self, state: TumourState) -> Float32Array:
        n = len(state.seen)
        flat = [state.recent.reshape(n, -1), state.doses, state.seen[:, None]]
        return np.concatenate(flat, axis=1, dtype=np.float32)

    def _unpack(self, states: Float32Array) -> TumourState:
        p = self.parameters.order
        # Columns one after the other: rows are short, and many.
        flat = states.reshape(-1, 3 * p + 1).astype(np.float64, order="F")
        # An all-zero row is padding: it counts one observation, so that nothing divides by zero.
        seen = np.maximum(flat[:, -1].astype(np.int64), 1)
        recent = flat.T[: 2 * p].reshape(p, 2, -1).transpose(2, 0, 1)
        return TumourState(recent, flat[:, 2 * p : 3 * p], seen)
