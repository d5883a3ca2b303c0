"""An outcome model of any size whose optimum can be counted: two halves of the features that never meet.

An action is a pair of levels, (action // L, action % L) of L * L; each level moves the features of its own half alone,
and limits bend what would else be linear. So the best plan is the pair of the best plans of the halves, and each of
these is found by trying all L^T.
"""

from __future__ import annotations

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import fold
from cirl_gym.types import Float32Array, FloatArray, IntArray

KEPT, CARRIED = 0.8, 0.5
"""What is left of a feature after a step, and how much of an action's effect comes a second time, a step later."""


class ProductModel:
    """x' = clip(KEPT x + drift + effect of the level + CARRIED times that of the level before, 0, 1).

    A state is [x, effect of the previous action].
    """

    def __init__(self, d: int, levels: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.features = tuple(f"f{i}" for i in range(d))
        self.levels, self.n_actions = levels, levels**2
        self.drift: Float32Array = rng.uniform(0.0, 0.2, d).astype(np.float32)
        # [2, L, d / 2]; the first level does nothing.
        self.halves: Float32Array = rng.uniform(-0.25, 0.25, (2, levels, d // 2)).astype(np.float32)
        self.halves[:, 0] = 0.0
        pairs = [np.concatenate([first, second]) for first in self.halves[0] for second in self.halves[1]]
        self.effects: Float32Array = np.stack(pairs)
        self.noise_scale, self.bounds = np.full(d, 0.01), (np.zeros(d), np.ones(d))
        self.feature_map = FeatureMap(self.features, *self.bounds)

    def noise(self, normals: FloatArray) -> FloatArray:
        return normals * self.noise_scale

    def start(self, obs: Float32Array) -> Float32Array:
        return np.concatenate([obs, np.zeros_like(obs)], axis=1, dtype=np.float32)

    def encode(self, batch: Batch) -> Float32Array:
        return fold(self, batch)

    def predict(self, states: Float32Array) -> Float32Array:
        d = len(self.features)
        drifted = KEPT * states[..., :d] + self.drift + CARRIED * states[..., d:]
        return np.clip(drifted[..., None, :] + self.effects, 0, 1, dtype=np.float32)

    def foresee(self, states: Float32Array, actions: IntArray) -> tuple[Float32Array, Float32Array]:
        d = len(self.features)
        outcome = KEPT * states[:, :d] + self.drift + CARRIED * states[:, d:] + self.effects[actions]
        return np.clip(outcome, 0, 1, dtype=np.float32), np.zeros(len(states), dtype=np.float32)

    def end_probability(self, states: Float32Array) -> Float32Array:
        return np.zeros((*states.shape[:-1], self.n_actions), dtype=np.float32)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        return np.concatenate([obs, self.effects[actions]], axis=-1, dtype=np.float32)


def best_value(model: ProductModel, obs: Float32Array, w: FloatArray, horizon: int, gamma: float) -> float:
    """Highest value w . mu of all plans from one observation ``[d]``: each half's own best of all L^T plans."""
    half = len(obs) // 2
    total = 0.0
    for side in range(2):
        part = slice(side * half, (side + 1) * half)
        x, before = obs[None, part].astype(float), np.zeros((1, half))
        value = np.zeros(1)
        for step in range(horizon):
            moves = model.halves[side].astype(float)
            x = np.clip((KEPT * x + model.drift[part] + CARRIED * before)[:, None] + moves, 0, 1).reshape(-1, half)
            before = np.tile(moves, (len(value), 1))
            value = np.repeat(value, model.levels) + gamma**step * (x @ w[part])
        total += float(value.max())
    return total
