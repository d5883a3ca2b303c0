"""Kinds of learned models, and what each reads: covariates scaled by the training rows, and one-hot actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

ScalarT = TypeVar("ScalarT", bound=np.generic)
NetworkKind = Literal["crn", "rmsn", "mb_h", "mb_x"]
"""Kinds of learned outcome models with a network: CRN, RMSN, MB(h), MB(x)."""
Kind = Literal["ar", NetworkKind]
"""Kinds of learned outcome models: the linear law alone, or with a network that corrects it."""
NETWORK_KINDS: tuple[NetworkKind, ...] = get_args(NetworkKind)
KINDS: tuple[Kind, ...] = get_args(Kind)


def set_arrays(record: object, *names: str) -> None:
    """Make fields of a frozen record read-only float64 arrays of their own."""
    for name in names:
        array = np.array(getattr(record, name), dtype=np.float64)
        array.setflags(write=False)
        object.__setattr__(record, name, array)


@dataclass(frozen=True)
class Scaler:
    """(x - mean) / scale, feature by feature, fixed once from training rows.

    Where there is an offset, x stands for log(x + offset).

    Raises:
        ValueError: the arrays do not have one length, a scale is not positive or an offset negative.
    """

    mean: FloatArray
    """``[d]`` raw units (of the logarithm where there is an offset)."""
    scale: FloatArray
    """``[d]`` raw units, positive."""
    offset: FloatArray | None = None
    """``[d]`` raw units, 0 where the value itself is scaled; default: 0 everywhere."""

    def __post_init__(self) -> None:
        if self.offset is None:
            object.__setattr__(self, "offset", np.zeros_like(self.mean))
        set_arrays(self, "mean", "scale", "offset")
        mean, scale, offset = self.mean, self.scale, self.offset
        if mean.ndim != 1 or mean.shape != scale.shape or not (scale > 0).all() or not np.isfinite(mean).all():
            raise ValueError(f"Scaler: mean and scale must be [d] with positive scales, got {mean} and {scale}")
        if offset is None or offset.shape != mean.shape or not (offset >= 0).all():
            raise ValueError(f"Scaler: offset must be [d] and not negative, got {offset}")

    @classmethod
    def from_batch(cls, train: Batch) -> Scaler:
        """Mean and standard deviation of the training observations; a constant feature gets a scale of 1."""
        rows = train.obs[train.seen].astype(np.float64)
        spread = rows.std(axis=0)
        # Rounding gives a constant column a spread of about 1e-16 of its size: that is no spread.
        constant = spread <= 1e-12 * np.maximum(np.abs(rows).max(axis=0), 1.0)
        return cls(rows.mean(axis=0), np.where(constant, 1.0, spread))

    def with_logarithms(self, train: Batch, features: BoolArray) -> Scaler:
        """The same, of log(x + a hundredth of the median) for some ``[d]`` features that are never negative."""
        rows = train.obs[train.seen].astype(np.float64)
        middle = np.array([np.median(column[column > 0]) if (column > 0).any() else 1.0 for column in rows.T])
        offset = np.where(features, 0.01 * middle, 0.0)
        logs = np.log(np.where(features, rows + offset, 1.0))
        spread = logs.std(axis=0)
        return Scaler(
            np.where(features, logs.mean(axis=0), self.mean),
            np.where(features, np.where(spread > 0, spread, 1.0), self.scale),
            offset,
        )

    def __call__(self, obs: npt.NDArray[np.floating]) -> Float32Array:
        """Scaled ``[.., d]`` of raw ``[.., d]``."""
        if self.offset is not None and self.offset.any():
            # Padding and what a roll-out makes up may be anything; below 0 there is no logarithm.
            obs = np.where(
                self.offset > 0, np.log(np.maximum(obs, 0.0) + np.where(self.offset > 0, self.offset, 1.0)), obs
            )
        return ((obs - self.mean) / self.scale).astype(np.float32)


def taken(values: npt.NDArray[ScalarT], batch: Batch) -> npt.NDArray[ScalarT]:
    """``[N, T, ..]`` of the actions that were taken, for values ``[N, T, A, ..]`` of every action."""
    places = batch.actions.reshape(*batch.actions.shape, *(1,) * (values.ndim - 2))
    return np.take_along_axis(values, places, axis=2)[:, :, 0]


def one_hot(actions: IntArray, n_actions: int) -> Float32Array:
    """``[.., A]`` float32 for actions ``[..]``; an action of -1 (none yet) gives zeros."""
    # The last row, that of -1, is zero.
    return np.eye(n_actions + 1, n_actions, dtype=np.float32).take(actions, axis=0)


def sequence_inputs(scaler: Scaler, batch: Batch) -> Float32Array:
    """``[N, T+1, d + A]`` network input of every step: scaled x_t and one-hot a_{t-1} (zeros at t = 0)."""
    first = np.full((len(batch), 1), -1, dtype=np.int64)
    previous = np.concatenate([first, batch.actions], axis=1)
    return np.concatenate([scaler(batch.obs), one_hot(previous, batch.n_actions)], axis=2)


def end_labels(batch: Batch) -> Float32Array:
    """``[N, T]`` 1 where the process ended with this action, else 0 (also where watching ended)."""
    labels = np.zeros(batch.actions.shape, dtype=np.float32)
    labels[np.arange(len(batch)), batch.lengths - 1] = batch.terminated
    return labels


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
        following = np.empty(rows.shape, dtype=np.float32)
        observed, done = following[..., : self.covariates], following[..., self.covariates :]
        observed[..., : self.n_features] = obs
        observed[..., self.n_features :] = rows[..., : self.covariates - self.n_features]
        if self.order > 1:
            done[..., : self.n_actions] = one_hot(actions, self.n_actions)
            done[..., self.n_actions :] = rows[..., self.covariates : self.size - self.n_actions]
        return following

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
