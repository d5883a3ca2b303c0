"""Several models as one: what they agree on is the prediction, what they differ in is what the data leave open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.types import Float32Array, FloatArray, IntArray


class EnsembleModel:
    """An outcome model whose outcomes and end probabilities are the means of its members'.

    Any models can be members: networks with other first weights, models of other patients (a bootstrap), other kinds. A
    state is the members' states side by side.

    Args:
        members: at least two models of the same features and actions.
        noise_scale: ``[d]`` standard deviation of outcomes around the mean prediction, raw units; default: root mean
            square of the members'.

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
        squares = np.mean([member.noise_scale**2 for member in members], axis=0)
        self.noise_scale: FloatArray = np.sqrt(squares) if noise_scale is None else np.array(noise_scale)
        """``[d]`` standard deviation of outcomes around the mean prediction, raw units."""
        none = np.zeros((1, len(self.features)), dtype=np.float32)
        widths = [member.start(none).shape[1] for member in members]
        self._cuts = [int(cut) for cut in np.cumsum(widths)[:-1]]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the d features."""
        return self.members[0].features

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return self.members[0].n_actions

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units: the means of the members' for the same standard normal numbers."""
        mean: FloatArray = np.mean([member.noise(normals) for member in self.members], axis=0)
        return mean

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """``[d]`` lower and upper limit of any outcome: the widest of the members'."""
        low, high = zip(*(member.bounds for member in self.members), strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` after one observation ``[n, d]``."""
        return np.concatenate([member.start(obs) for member in self.members], axis=-1)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        return np.concatenate([member.encode(batch) for member in self.members], axis=-1)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` and observation ``[.., d]``."""
        parts = zip(self.members, self._split(states), strict=True)
        return np.concatenate([member.advance(part, actions, obs) for member, part in parts], axis=-1)

    def every_prediction(self, states: Float32Array) -> Float32Array:
        """``[M, .., A, d]`` what each member expects, raw units."""
        parts = zip(self.members, self._split(states), strict=True)
        return np.stack([member.predict(part) for member, part in parts])

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]`` under every action, raw units."""
        return _mean(self.every_prediction(states))

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action."""
        parts = zip(self.members, self._split(states), strict=True)
        return _mean(np.stack([member.end_probability(part) for member, part in parts]))

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        parts = zip(self.members, self._split(states), strict=True)
        outcomes, ends = zip(*(foresee(member, part, actions) for member, part in parts), strict=True)
        return _mean(np.stack(outcomes)), _mean(np.stack(ends))

    def _split(self, states: Float32Array) -> list[Float32Array]:
        return np.split(states, self._cuts, axis=-1)


def _mean(every: Float32Array) -> Float32Array:
    """The members' mean; of equal numbers (a static covariate) it is that number, which float32 would not promise."""
    mean: Float32Array = every.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean
