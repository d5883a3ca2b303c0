"""The seams of the project: what a world and a policy promise, and the arrays that they exchange.

Everything that acts sees only :class:`Policy`; the one rollout loop (:mod:`cirl_gym.data.rollout`) sees only
:class:`World` and :class:`Policy`. What an outcome model promises: :mod:`cirl_gym.data.outcome_model`.

Shapes use the same letters everywhere: N episodes, T actions at most, d features, A actions, S numbers of state.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


class Policy(Protocol):
    """Stable-Baselines3's calling convention for policies with memory, so that its agents are policies as they are."""

    def predict(
        self,
        observation: Any,
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """Choose one action per row.

        Args:
            observation: ``[n, d + A]`` float32, raw features then the one-hot previous action (zeros at t=0).
            state: what the previous call returned; None at the first step.
            episode_start: ``[n]`` bool, True where a new episode begins and the memory must be cleared.
            deterministic: take the most likely action instead of drawing one.

        Returns:
            ``[n]`` integer actions and the state to hand to the next call.
        """


class Step(NamedTuple):
    """What one batched transition of a :class:`World` yields."""

    state: Any
    """Opaque state of the n processes."""
    obs: Float32Array
    """``[n, d]`` the next observation, raw units; where the process ended, the observation that ended it."""
    outcomes: Float32Array
    """``[n, d]`` the outcomes that the reward weighs, raw units (here the next observation itself)."""
    terminated: BoolArray
    """``[n]`` the process ended (never: watching ended; the horizon is the caller's)."""


class World(Protocol):
    """A batched partially observed process without hidden randomness: state in, state out, generator handed in."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d features."""

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""

    @property
    def horizon(self) -> int:
        """Largest number of actions of an episode."""

    def reset(self, n: int, rng: np.random.Generator) -> tuple[Any, Float32Array]:
        """Start n processes: opaque state and first observations ``[n, d]``."""

    def step(self, state: Any, actions: IntArray, rng: np.random.Generator) -> Step:
        """Apply one action ``[n]`` to each process."""
