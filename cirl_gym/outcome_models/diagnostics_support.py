"""Where roll-outs of policies go: how often they leave what the data have seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.diagnostics_probe import RARE, FittedClassifier
from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class Support:
    """How often roll-outs leave the data."""

    outside: float
    """Share of steps whose outcome leaves the range of the data in some feature."""
    features: tuple[float, ...]
    """``[d]`` the same, feature by feature."""
    rare: float
    """Share of steps at which the experts, with this history, would hardly ever have taken this action."""
    steps: float
    """Mean length of the roll-outs."""
    n: int
    """Steps."""


def data_range(train: Batch) -> tuple[FloatArray, FloatArray]:
    """``[d]`` least and most of each feature in a batch, padding left out."""
    rows = train.obs[train.seen].astype(np.float64)
    return rows.min(axis=0), rows.max(axis=0)


def support(
    rolled: Batch, span: tuple[FloatArray, FloatArray], propensity: FittedClassifier, threshold: float = RARE
) -> Support:
    """Judge roll-outs of a policy in the world model.

    Args:
        rolled: episodes of one policy (:func:`cirl_gym.rollout.rollout`).
        span: of the data (:func:`data_range`).
        propensity: of the data.
        threshold: a propensity below it is rare.
    """
    outcomes = rolled.next_obs[rolled.mask]
    outside = (outcomes < span[0]) | (outcomes > span[1])
    chances = propensity.probabilities(rolled)
    taken = np.take_along_axis(chances, rolled.actions[..., None], axis=2)[..., 0][rolled.mask]
    return Support(
        float(outside.any(axis=1).mean()),
        tuple(float(share) for share in outside.mean(axis=0)),
        float((taken < threshold).mean()),
        float(rolled.lengths.mean()),
        len(outcomes),
    )
