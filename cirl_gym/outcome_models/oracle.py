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
        rows = self._unpack(states)
        outcomes = [self._outcome(rows, actions) for actions in self._every_action(rows)]
        return np.stack(outcomes, axis=1).reshape(*states.shape[:-1], self.n_actions, 2)

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Exact probability ``[.., 2]`` that the process ends with this action."""
        rows = self._unpack(states)
        chances = [tumour.end_probability(self.parameters, rows, actions) for actions in self._every_action(rows)]
        return np.stack(chances, axis=1).reshape(*states.shape[:-1], self.n_actions).astype(np.float32)

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next (x, z) ``[n, 2]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        rows = self._unpack(states)
        chance = tumour.end_probability(self.parameters, rows, actions)
        return self._outcome(rows, actions), chance.astype(np.float32)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action and observation."""
        following = tumour.append(
            self._unpack(states),
            np.asarray(actions, dtype=np.int64).reshape(-1),
            np.asarray(obs, dtype=np.float64).reshape(-1, 2),
        )
        return self._pack(following).reshape(states.shape)

    def _outcome(self, rows: TumourState, actions: IntArray) -> Float32Array:
        expected = tumour.expected_outcome(self.parameters, rows, actions)
        return clipped_mean(expected, self.noise_scale, *self.bounds).astype(np.float32)

    def _every_action(self, rows: TumourState) -> list[IntArray]:
        return [np.full(len(rows.seen), action, dtype=np.int64) for action in range(self.n_actions)]

    def _pack(self, state: TumourState) -> Float32Array:
        n = len(state.seen)
        flat = [state.recent.reshape(n, -1), state.doses, state.seen[:, None]]
        return np.concatenate(flat, axis=1, dtype=np.float32)

    def _unpack(self, states: Float32Array) -> TumourState:
        p = self.parameters.order
        flat = states.reshape(-1, 3 * p + 1).astype(np.float64)
        # An all-zero row is padding: it counts one observation, so that nothing divides by zero.
        seen = np.maximum(flat[:, -1].astype(np.int64), 1)
        return TumourState(flat[:, : 2 * p].reshape(-1, p, 2), flat[:, 2 * p : 3 * p], seen)
