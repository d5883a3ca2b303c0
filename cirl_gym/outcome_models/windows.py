"""The last L observations and actions of a history as one flat row: what a linear autoregression needs to know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.types import Float32Array, IntArray


@dataclass(frozen=True)
class Window:
    """Layout of a row: L observations, newest first, then the L - 1 one-hot actions before the current one.

    Before t = 0 the first observation is repeated and there is no action (zeros), as in the simulator.

    Raises:
        ValueError: a number is below 1.
    """

    order: int
    """L, the number of lags, the current observation included."""
    n_features: int
    """d."""
    n_actions: int
    """A."""

    def __post_init__(self) -> None:
        if min(self.order, self.n_features, self.n_actions) < 1:
            raise ValueError(f"Window: every number must be at least 1, got {self}")

    @property
    def covariates(self) -> int:
        """How many leading numbers of a row are observations."""
        return self.order * self.n_features

    @property
    def size(self) -> int:
        """S, the length of a row."""
        return self.covariates + (self.order - 1) * self.n_actions

    def start(self, obs: Float32Array) -> Float32Array:
        """Rows ``[n, S]`` of histories that consist of one observation ``[n, d]``."""
        doses = np.zeros((len(obs), self.size - self.covariates), dtype=np.float32)
        return np.concatenate([np.tile(obs, self.order), doses], axis=1, dtype=np.float32)

    def advance(self, rows: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """Rows ``[.., S]`` after action ``[..]`` and observation ``[.., d]``; the oldest of each falls out."""
        newest = one_hot(actions, self.n_actions)
        older = np.concatenate([newest, rows[..., self.covariates :]], axis=-1)
        parts = [obs, rows[..., : self.covariates - self.n_features], older[..., : self.size - self.covariates]]
        return np.concatenate(parts, axis=-1, dtype=np.float32)

    def encode(self, batch: Batch) -> Float32Array:
        """Rows ``[N, T+1, S]`` of every history at once; zero past an episode's end."""
        steps = np.arange(batch.horizon + 1)
        hot = one_hot(batch.actions, self.n_actions)
        parts = [batch.obs[:, np.maximum(steps - lag, 0)] for lag in range(self.order)]
        for lag in range(1, self.order):
            # Row t holds a_{t - lag}: the actions shifted down by lag, zeros where there was none.
            shifted = np.zeros((len(batch), batch.horizon + 1, self.n_actions), dtype=np.float32)
            shifted[:, lag:] = hot[:, : max(batch.horizon + 1 - lag, 0)]
            parts.append(shifted)
        rows = np.concatenate(parts, axis=2, dtype=np.float32)
        return np.where(batch.seen[..., None], rows, np.float32(0.0))

    def newest(self, rows: Float32Array) -> Float32Array:
        """The current observation ``[.., d]`` of rows ``[.., S]``."""
        return rows[..., : self.n_features]
