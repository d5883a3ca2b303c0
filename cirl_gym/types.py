"""The seams of the project: what a world, an outcome model and a policy promise.

Everything above an outcome model sees only :class:`OutcomeModel`; everything that acts sees only
:class:`Policy`; the one rollout loop (:mod:`cirl_gym.data.rollout`) sees only :class:`World` and :class:`Policy`.

Shapes use the letters of the README: N episodes, T actions at most, d features, A actions, S numbers of state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from cirl_gym.data.batch import Batch

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

    Without it the answers for every action are asked for, twice (:func:`cirl_gym.worlds.world.foresee`).
    """

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` of states ``[n, S]``, actions ``[n]``."""
