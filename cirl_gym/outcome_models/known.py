"""An outcome model, and beside what it predicts the outcomes that are known exactly (:mod:`cirl_gym.data.known`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import known_values, without
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.data.outcomes import KnownOutcome, read_outcome
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.masked import MaskedModel
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel
from cirl_gym.types import Float32Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class KnowingModel:
    """Any outcome model, and K outcomes of actions that it does not know of: 0 or 1, exactly and without noise.

    A state is the model's own; where an outcome looks back, the one-hot action before stands behind it. What is
    observed of the K outcomes is not looked at: the actions say it.

    Raises:
        ValueError: a feature is neither the model's nor known, all are the model's, there are other actions, or an
            outcome is about none of them; or the model has rules, which must stand outside.
    """

    model: OutcomeModel
    """Of the other features."""
    features: tuple[str, ...]
    """Names of the D features, predicted and known ones."""
    action_names: tuple[str, ...]
    """Names of the A actions."""

    def __post_init__(self) -> None:
        if isinstance(self.model, MaskedModel):
            raise ValueError("rules must stand outside of what is known: with_rules(knowing(model, ..), rules)")
        others = tuple(self.features[i] for i in self._free)
        if not self.known or (others, len(self.action_names)) != (self.model.features, self.model.n_actions):
            raise ValueError(
                f"of the features {self.features} the model must predict {others}, under {len(self.action_names)} "
                f"actions; it predicts {self.model.features} under {self.model.n_actions}"
            )
        self._values(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))  # every action there is

    @cached_property
    def known(self) -> Mapping[int, KnownOutcome]:
        """The K outcomes, by their places among the features."""
        read = {i: read_outcome(name, ()) for i, name in enumerate(self.features) if name not in self.model.features}
        return {i: one for i, one in read.items() if isinstance(one, KnownOutcome)}

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return len(self.action_names)

    @property
    def noise_scale(self) -> FloatArray:
        """``[D]`` the model's; 0 of what is known."""
        return self.wide(self.model.noise_scale, 0.0)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """``[D]`` the model's limits; 0 and 1 of what is known."""
        low, high = self.model.bounds
        return self.wide(low, 0.0), self.wide(high, 1.0)

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., D]``, raw units, for standard normal numbers ``[.., D]``; 0 of what is known."""
        return self.wide(self.model.noise(np.take(normals, self._free, axis=-1)), 0.0)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        states = self.model.encode(without(batch, self.known))
        if not self._looks_back:
            return states
        hot = one_hot(batch.actions, self.n_actions) * batch.mask[..., None]
        return np.concatenate([states, np.pad(hot, ((0, 0), (1, 0), (0, 0)))], axis=-1, dtype=np.float32)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` of the histories that consist of one observation ``[n, D]``."""
        states = self.model.start(np.take(obs, self._free, axis=-1))
        none = np.zeros((len(obs), self.n_actions if self._looks_back else 0))
        return np.concatenate([states, none], axis=-1, dtype=np.float32)

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, D]``, raw units, under every action."""
        own, previous = self._parts(states)
        values = self._values(np.arange(self.n_actions), previous[..., None])
        return self._together(self.model.predict(own), values)

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action."""
        return self.model.end_probability(self._parts(states)[0])

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, D]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        own, previous = self._parts(states)
        outcomes, ends = foresee(self.model, own, actions)
        return self._together(outcomes, self._values(actions, previous)), ends

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` and observation ``[.., D]``."""
        moved = self.model.advance(self._parts(states)[0], actions, np.take(obs, self._free, axis=-1))
        if not self._looks_back:
            return moved
        return np.concatenate([moved, one_hot(actions, self.n_actions)], axis=-1, dtype=np.float32)

    def wide(self, own: FloatArray, value: float) -> FloatArray:
        """Numbers ``[.., D]`` from those of the model's own features, and one value for what is known."""
        every = np.full((*own.shape[:-1], len(self.features)), value)
        every[..., self._free] = own
        return every

    @cached_property
    def _free(self) -> list[int]:
        return [i for i in range(len(self.features)) if i not in self.known]

    @cached_property
    def _looks_back(self) -> bool:
        return any(one.looks_back for one in self.known.values())

    def _parts(self, states: Float32Array) -> tuple[Float32Array, IntArray]:
        """The model's own states, and the action before ``[..]``: -1 where there was none, or nobody looks back."""
        if not self._looks_back:
            return states, np.full(states.shape[:-1], -1, dtype=np.int64)
        hot = states[..., -self.n_actions :]
        return np.ascontiguousarray(states[..., : -self.n_actions]), np.where(hot.any(axis=-1), hot.argmax(axis=-1), -1)

    def _values(self, actions: IntArray, previous: IntArray) -> Float32Array:
        return known_values(tuple(self.known.values()), actions, previous, self.action_names)

    def _together(self, predicted: Float32Array, values: Float32Array) -> Float32Array:
        every = np.empty((*predicted.shape[:-1], len(self.features)), dtype=np.float32)
        every[..., self._free], every[..., list(self.known)] = predicted, values
        return every


def knowing(
    model: OutcomeModel, features: Sequence[str], action_names: Sequence[str]
) -> OutcomeModel | KnowingModel | EnsembleModel:
    """The model that predicts all of these features: as it is, or one that knows the others exactly.

    Of an ensemble every member does.

    Raises:
        ValueError: as :class:`KnowingModel`.
    """
    if model.features == tuple(features):
        return model
    if isinstance(model, EnsembleModel):
        members = [KnowingModel(member, tuple(features), tuple(action_names)) for member in model.members]
        return EnsembleModel(members, members[0].wide(model.noise_scale, 0.0))
    return KnowingModel(model, tuple(features), tuple(action_names))


def law_alone(model: OutcomeModel) -> LinearLaw | None:
    """The one linear law that a model is, without a network; known outcomes may stand beside it. None: it is more."""
    inner = model.model if isinstance(model, KnowingModel) else model
    return inner.law if isinstance(inner, LearnedModel) and inner.correction is None else None
