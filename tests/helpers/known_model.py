"""An outcome model of known increments, small enough to try every plan, and its values written a second time."""

from __future__ import annotations

import itertools

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import fold
from cirl_gym.types import Float32Array, FloatArray, IntArray

MOVES = ((1.0, -1.0), (-1.0, 2.0), (0.5, 0.25))
"""What each of the three actions adds to (x, y)."""
ENDS = (0.0, 0.25, 0.5)
"""Chance that the process ends with each action, while x is positive; else it cannot end."""
PHI = FeatureMap(("x", "y"), np.array([0.0, 0.0]), np.array([4.0, 8.0]))


class KnownModel:
    """(x, y) moves by the action's increment and half of the previous action's: it has memory.

    All numbers are short binary fractions, so that float32 holds them without rounding. A state is
    [x, y, previous action + 1]; at the beginning there is none (0).
    """

    features = ("x", "y")
    n_actions = 3
    noise_scale = np.array([0.25, 0.25])
    bounds = (np.full(2, -1e3), np.full(2, 1e3))

    def __init__(self, ends: bool = True) -> None:
        self.ends = ends

    def noise(self, normals: FloatArray) -> FloatArray:
        return normals * self.noise_scale

    def start(self, obs: Float32Array) -> Float32Array:
        return np.concatenate([obs, np.zeros((len(obs), 1))], axis=1, dtype=np.float32)

    def encode(self, batch: Batch) -> Float32Array:
        return fold(self, batch)

    def predict(self, states: Float32Array) -> Float32Array:
        moves = np.array(MOVES, dtype=np.float32)
        before = np.concatenate([np.zeros((1, 2), dtype=np.float32), moves])[states[..., 2].astype(int)]
        return states[..., None, :2] + moves + np.float32(0.5) * before[..., None, :]

    def end_probability(self, states: Float32Array) -> Float32Array:
        chance = np.array(ENDS, dtype=np.float32) * np.float32(self.ends)
        return np.where(states[..., :1] > 0, chance, np.float32(0.0))

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        return np.concatenate([obs, actions[..., None] + 1.0], axis=-1, dtype=np.float32)


def value_of_plan(state, plan, gamma, ends=True, left=None) -> FloatArray | None:
    """Successor features ``[2]`` of a plan from ``state = (x, y, previous action or None)``, in plain Python.

    None where a later action is not among those that ``left(x, y, previous)`` leaves.
    """
    x, y, previous = state
    total, reach = [0.0, 0.0], 1.0
    for step, action in enumerate(plan):
        if left and step and action not in left(x, y, previous):
            return None
        chance = ENDS[action] if ends and x > 0 else 0.0
        before = (0.0, 0.0) if previous is None else MOVES[previous]
        x, y = x + MOVES[action][0] + before[0] / 2, y + MOVES[action][1] + before[1] / 2
        total = [total[0] + reach * x / 4, total[1] + reach * y / 8]
        reach *= gamma * (1 - chance)
        previous = action
    return np.array(total)


def every_plan(state, steps, gamma, first, ends=True, left=None) -> FloatArray:
    """Successor features ``[P, 2]`` of all (allowed) plans of ``steps`` actions that begin with ``first``."""
    rest = itertools.product(range(3), repeat=steps - 1)
    plans = [value_of_plan(state, (first, *plan), gamma, ends, left) for plan in rest]
    return np.array([plan for plan in plans if plan is not None])


def best_plans(state, steps, gamma, w, ends=True, left=None) -> FloatArray:
    """Successor features ``[3, 2]`` of the best plan that begins with each action."""
    plans = [every_plan(state, steps, gamma, first, ends, left) for first in range(3)]
    return np.array([psi[(psi @ w).argmax()] for psi in plans])


def weights(n: int, seed: int = 0) -> FloatArray:
    """``[n, 2]`` of L1 norm 1 and any sign."""
    w = np.random.default_rng(seed).normal(size=(n, 2))
    return w / np.abs(w).sum(axis=1, keepdims=True)


def plain_state(row: Float32Array) -> tuple[float, float, int | None]:
    """A row of the model's state as :func:`value_of_plan` takes it."""
    return float(row[0]), float(row[1]), None if row[2] == 0 else int(row[2]) - 1


def states(n: int, seed: int, begun: bool = True) -> Float32Array:
    """Drawn states ``[n, 3]`` on a grid of quarters; with ``begun`` an action was taken before."""
    rng = np.random.default_rng(seed)
    previous = rng.integers(1, 4, size=(n, 1)) if begun else np.zeros((n, 1))
    return np.concatenate([rng.integers(-8, 9, size=(n, 2)) / 4, previous], axis=1, dtype=np.float32)
