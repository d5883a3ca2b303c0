"""A linear law of the next observation, and the outcome model that is nothing else ("AR")."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.end_head import EndHead
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.outcome_models.spec import OutcomeSpec
from cirl_gym.outcome_models.windows import Window
from cirl_gym.types import Float32Array, FloatArray, IntArray


@dataclass(frozen=True)
class LinearLaw:
    """x_{t+1} = intercept + window . coefficients + effect of a_t, raw units, not clipped.

    Raises:
        ValueError: a shape does not fit the window, or a number is not finite.
    """

    window: Window
    """Layout of the rows."""
    intercept: FloatArray
    """``[d]``."""
    coefficients: FloatArray
    """``[S, d]`` of the window's numbers (past observations, past actions)."""
    effects: FloatArray
    """``[A, d]`` of the current action."""

    def __post_init__(self) -> None:
        d, a, s = self.window.n_features, self.window.n_actions, self.window.size
        for name, shape in (("intercept", (d,)), ("coefficients", (s, d)), ("effects", (a, d))):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"LinearLaw.{name} must be finite with shape {shape}, got shape {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def persistence(cls, n_features: int, n_actions: int) -> LinearLaw:
        """Everything stays as it is: x_{t+1} = x_t."""
        return cls(
            Window(1, n_features, n_actions),
            np.zeros(n_features),
            np.eye(n_features),
            np.zeros((n_actions, n_features)),
        )

    def __call__(self, rows: npt.NDArray[np.floating]) -> FloatArray:
        """Next observation ``[.., A, d]`` under every action for window rows ``[.., S]``."""
        common: FloatArray = rows.astype(np.float64) @ self.coefficients + self.intercept
        every: FloatArray = common[..., None, :] + self.effects
        return every

    def of_action(self, rows: npt.NDArray[np.floating], actions: IntArray) -> FloatArray:
        """Next observation ``[n, d]`` under one action ``[n]`` each, for window rows ``[n, S]``."""
        outcome: FloatArray = rows.astype(np.float64) @ self.coefficients
        outcome += (self.effects + self.intercept)[actions]
        return outcome


class LawModel(ABC):
    """What a model with a linear law at its base says of outcomes and ends, once it has said what to expect."""

    law: LinearLaw
    """Its linear law."""
    spec: OutcomeSpec
    """Names, bounds and noise."""
    end: EndHead
    """Of what it expects, the probability that the process ends."""

    @abstractmethod
    def raw(self, states: Float32Array) -> FloatArray:
        """Outcomes ``[.., A, d]`` before limits and bounds."""

    @abstractmethod
    def raw_of(self, states: Float32Array, actions: IntArray) -> FloatArray:
        """Outcomes ``[n, d]`` before limits and bounds, for states ``[n, S]`` under one action ``[n]`` each."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d features."""
        return self.spec.features

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return self.spec.n_actions

    @property
    def noise_scale(self) -> FloatArray:
        """``[d]`` standard deviation of the outcome around the prediction, raw units."""
        return self.spec.noise_scale

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for independent standard normal numbers ``[.., d]``."""
        return self.spec.noise(normals)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """``[d]`` lower and upper limit of any outcome, raw units."""
        return self.spec.low, self.spec.high

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]`` under every action, raw units."""
        return self.spec.expected(self.raw(states))

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action."""
        return self.end(self.raw(states), self.law.window.newest(states))

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        raw, newest = self.raw_of(states, actions), self.law.window.newest(states)
        return self.spec.expected(raw), self.end.of_action(raw, newest, one_hot(actions, self.n_actions))


class AutoregressiveModel(LawModel):
    """AR: the linear law inside its bounds; a state is the window row.

    The simplest learned :class:`~cirl_gym.types.OutcomeModel` and the base of the recurrent ones.
    """

    def __init__(self, law: LinearLaw, spec: OutcomeSpec, end: EndHead) -> None:
        self.law = law
        self.spec = spec
        self.end = end

    def with_outcomes(self, spec: OutcomeSpec, end: EndHead) -> AutoregressiveModel:
        """The same law with another noise or end head."""
        return AutoregressiveModel(self.law, spec, end)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` after one observation ``[n, d]``."""
        return self.law.window.start(obs)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        return self.law.window.encode(batch)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action and observation."""
        return self.law.window.advance(states, actions, obs)

    def raw(self, states: Float32Array) -> FloatArray:
        """The law's outcomes ``[.., A, d]`` before they are clipped to the bounds."""
        return self.law(states)

    def raw_of(self, states: Float32Array, actions: IntArray) -> FloatArray:
        """The law's outcomes ``[n, d]`` under one action ``[n]`` each, before they are clipped."""
        return self.law.of_action(states, actions)
