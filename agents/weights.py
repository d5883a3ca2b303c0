"""Which preferences an agent is trained for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray

WeightSampler = Callable[[int, np.random.Generator], FloatArray]
"""Draws n preferences ``[n, d]`` to train on."""


def uniform_weights(signs: npt.ArrayLike) -> WeightSampler:
    """W uniform on the allowed part of the L1 sphere; ``signs [d]``: -1 or +1 fixes a sign, 0 leaves it free.

    Raises:
        ValueError: a sign is none of the three.
    """
    fixed = np.asarray(signs, dtype=np.float64)
    if fixed.ndim != 1 or not np.isin(fixed, (-1, 0, 1)).all():
        raise ValueError(f"signs must each be -1, 0 or 1, got {fixed}")

    def draw(n: int, rng: np.random.Generator) -> FloatArray:
        size = rng.exponential(size=(n, len(fixed)))
        sign = np.where(fixed == 0, rng.choice([-1.0, 1.0], size=size.shape), fixed)
        weights: FloatArray = sign * size / size.sum(axis=1, keepdims=True)
        return weights

    return draw


def fixed_weights(w: npt.ArrayLike) -> WeightSampler:
    """Always the same w, scaled to L1 norm 1: for an agent that needs to know one preference only."""
    weights = np.asarray(w, dtype=np.float64)
    weights = weights / max(np.abs(weights).sum(), 1e-12)
    return lambda n, rng: np.tile(weights, (n, 1))
