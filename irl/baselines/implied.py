"""Weights that a method never asked for: what its own reward says, read as a linear function of the outcomes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, normalised
from cirl_gym.types import FloatArray


class Implied(NamedTuple):
    """A reward as w . phi and a constant, by least squares."""

    weights: FloatArray | None
    """``[d]`` L1 norm 1; None where the reward does not change with phi at all."""
    explained: float
    """Share of the reward's variance that the linear function explains (R squared), 0 to 1."""


def implied_weights(rewards: FloatArray, batch: Batch, feature_map: FeatureMap) -> Implied:
    """What rewards ``[N, T]`` of the actions of a batch say of the outcomes that followed them; padding is left out.

    A reward that explains behaviour is known up to a potential (gamma f(h') - f(h)) only, in which the true w . phi can
    hide: a small share says that the reward cannot be read as weights, not that there are none.
    """
    phi, wanted = feature_map(batch.next_obs)[batch.mask], rewards[batch.mask]
    centred, values = phi - phi.mean(axis=0), wanted - wanted.mean()
    w = np.linalg.lstsq(centred, values, rcond=None)[0]
    total = float(values @ values)
    if total == 0 or not w.any():
        return Implied(None, 0.0)
    left = values - centred @ w
    return Implied(normalised(w), float(np.clip(1 - left @ left / total, 0.0, 1.0)))
