"""Which preferences an agent is trained for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray
from cirl_gym.weight_sphere import checked_signs, draw_weights

WeightSampler = Callable[[int, np.random.Generator], FloatArray]
"""Draws n preferences ``[n, d]`` to train on."""


def uniform_weights(signs: npt.ArrayLike) -> WeightSampler:
    """W uniform on the allowed part of the L1 sphere; ``signs [d]``: -1 or +1 fixes a sign, 0 leaves it free."""
    allowed = checked_signs(signs)
    return lambda n, rng: draw_weights(allowed, rng, n)


def fixed_weights(w: npt.ArrayLike) -> WeightSampler:
    """Always the same w, scaled to L1 norm 1: for an agent that needs to know one preference only."""
    weights = np.asarray(w, dtype=np.float64)
    weights = weights / max(np.abs(weights).sum(), 1e-12)
    return lambda n, rng: np.tile(weights, (n, 1))
