"""Features that change in proportion to their size: tumours that grow and shrink by shares, skewed laboratory values.

For them a network predicts the share by which the current value changes, from its logarithm; there is no linear law to
correct, since no line through raw values says "half of it".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.autoregression import AutoregressionFit
from cirl_gym.outcome_models.censoring import HardLimits, hard_limits
from cirl_gym.outcome_models.linear import LinearLaw
from cirl_gym.types import BoolArray, FloatArray


def relative_columns(train: Batch, names: Sequence[str]) -> BoolArray:
    """``[d]`` which features are named.

    Raises:
        ValueError: a name is no feature, or its feature is negative somewhere.
    """
    for name in names:
        if name not in train.features:
            raise ValueError(f"relative: {name!r} is not a feature; the features are {', '.join(train.features)}")
        if (train.obs[train.seen][:, train.features.index(name)] < 0).any():
            raise ValueError(f"relative: {name!r} is negative in some rows; only a positive size has shares")
    return np.array([name in names for name in train.features])


def without_law(fit: AutoregressionFit, train: Batch, relative: BoolArray) -> AutoregressionFit:
    """The fit in which relative features stay as they are, inside the limits at which their outcomes pile up."""
    law, window = fit.law, fit.law.window
    still = LinearLaw.persistence(window.n_features, window.n_actions)
    coefficients = np.zeros_like(law.coefficients)
    coefficients[: window.n_features] = still.coefficients
    found = [hard_limits(column) for column in train.next_obs[train.mask].astype(np.float64).T]
    low = np.array([max(a, limit.low) if own else a for a, limit, own in zip(fit.low, found, relative, strict=True)])
    high = np.array([min(b, limit.high) if own else b for b, limit, own in zip(fit.high, found, relative, strict=True)])
    free = HardLimits(-np.inf, np.inf)
    return replace(
        fit,
        law=LinearLaw(
            window,
            np.where(relative, 0.0, law.intercept),
            np.where(relative, coefficients, law.coefficients),
            np.where(relative, 0.0, law.effects),
        ),
        scaler=fit.scaler.with_logarithms(train, relative),
        limits=tuple(free if own else limit for limit, own in zip(fit.limits, relative, strict=True)),
        low=low,
        high=high,
    )


def usual_share(train: Batch) -> FloatArray:
    """``[d]`` root mean square of (x_{t+1} - x_t) / x_t over the rows in which x_t is positive; 0 where none is."""
    before = train.obs[:, :-1][train.mask].astype(np.float64)
    change = train.next_obs[train.mask] - before
    positive = before > 0
    shares = np.where(positive, change / np.where(positive, before, 1.0), 0.0)
    spread: FloatArray = np.sqrt((shares**2).sum(axis=0) / np.maximum(positive.sum(axis=0), 1))
    return spread
