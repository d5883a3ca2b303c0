"""An outcome model in whose world not every action is always allowed (:mod:`cirl_gym.data.rules`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel, foresee
from cirl_gym.data.rules import ActionRules
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray


class MaskedModel:
    """Any outcome model, and which actions each of its histories leaves.

    A state is the model's own, and beside it what rules look at: the last observation and the action before, counted
    from 1 (0: there was none). Predictions are the model's; those of forbidden actions are only never acted on.

    Raises:
        ValueError: the rules are for other features or another number of actions.
    """

    def __init__(self, model: OutcomeModel, rules: ActionRules) -> None:
        if (rules.features, len(rules.action_names)) != (model.features, model.n_actions):
            raise ValueError(
                f"the rules are for features {rules.features} and {len(rules.action_names)} actions, the model for "
                f"{model.features} and {model.n_actions}"
            )
        self.model, self.rules = model, rules
        self.features, self.n_actions = model.features, model.n_actions
        self.noise_scale, self.bounds = model.noise_scale, model.bounds

    def noise(self, normals: FloatArray) -> FloatArray:
        """Residuals ``[.., d]``, raw units, for independent standard normal numbers ``[.., d]``."""
        return self.model.noise(normals)

    def allowed(self, states: Float32Array) -> BoolArray:
        """``[.., A]`` which actions states ``[.., S]`` leave, at least one."""
        seen = states[..., -len(self.features) - 1 :]
        return self.rules.allowed(seen[..., :-1], seen[..., -1].astype(np.int64) - 1)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, S]`` of every history; zero past the end."""
        before = np.concatenate([np.zeros((len(batch), 1)), batch.actions + 1], axis=1) * batch.seen
        states = self.model.encode(batch)
        return np.concatenate([states, batch.obs, before[..., None]], axis=-1, dtype=np.float32)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, S]`` of the histories that consist of one observation ``[n, d]``."""
        return np.concatenate([self.model.start(obs), obs, np.zeros((len(obs), 1))], axis=-1, dtype=np.float32)

    def predict(self, states: Float32Array) -> Float32Array:
        """Expected next observation ``[.., A, d]``, raw units, under every action."""
        return self.model.predict(self._own(states))

    def end_probability(self, states: Float32Array) -> Float32Array:
        """Probability ``[.., A]`` that the process ends with this action."""
        return self.model.end_probability(self._own(states))

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        """Expected next observations ``[n, d]`` and end probabilities ``[n]`` under one action ``[n]`` each."""
        return foresee(self.model, self._own(states), actions)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., S]`` after action ``[..]`` and observation ``[.., d]``."""
        own = self.model.advance(self._own(states), actions, obs)
        return np.concatenate([own, obs, actions[..., None] + 1], axis=-1, dtype=np.float32)

    def _own(self, states: Float32Array) -> Float32Array:
        return np.ascontiguousarray(states[..., : -len(self.features) - 1])


def with_rules(model: OutcomeModel, rules: ActionRules | None) -> OutcomeModel:
    """The model in whose world the rules hold, behind those that hold there already; without rules as it is."""
    if rules is None:
        return model
    if isinstance(model, MaskedModel):
        return MaskedModel(model.model, replace(rules, rules=(*model.rules.rules, *rules.rules)))
    return MaskedModel(model, rules)


def rules_of(model: OutcomeModel) -> ActionRules | None:
    """The rules of a model's world; None where every action is always allowed."""
    return model.rules if isinstance(model, MaskedModel) else None


def allowed_actions(model: OutcomeModel, states: Float32Array) -> BoolArray | None:
    """``[.., A]`` which actions states ``[.., S]`` leave; None where every action is always allowed."""
    return model.allowed(states) if isinstance(model, MaskedModel) else None


def without_rules(model: OutcomeModel) -> OutcomeModel:
    """The model alone."""
    return model.model if isinstance(model, MaskedModel) else model
