"""The linear law where features are known beforehand: what was observed of another one step earlier.

:func:`cirl_gym.lags.with_lags` adds such features. What they will be is what is observed now, whatever is done, so they
take no part in fitting: the law of the others, its order and its strength are what they would be without them. (Left
in, an error that any weak ridge makes zero draws the choice of strength away from what the others need.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.outcome_features import before
from cirl_gym.outcome_models.autoregression import AutoregressionConfig, AutoregressionFit, fit_autoregression
from cirl_gym.outcome_models.censoring import HardLimits
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.linear import LinearLaw
from cirl_gym.outcome_models.spec import outcome_bounds
from cirl_gym.outcome_models.windows import Window


def known_lags(batch: Batch) -> dict[int, int]:
    """By the number of a feature named "NAME before", the number of the feature NAME, where the data bear it out."""
    place = {name: i for i, name in enumerate(batch.features)}
    named = {place[before(name)]: i for name, i in place.items() if before(name) in place}
    now, then = batch.obs[:, :-1][batch.mask], batch.obs[:, 1:][batch.mask]
    return {j: i for j, i in named.items() if i not in named and np.array_equal(then[:, j], now[:, i])}


def fit_law(train: Batch, validation: Batch, config: AutoregressionConfig) -> AutoregressionFit:
    """:func:`~cirl_gym.outcome_models.autoregression.fit_autoregression`, features that are known lags left out."""
    known = known_lags(train)
    if not known:
        return fit_autoregression(train, validation, config)
    kept = [i for i in range(len(train.features)) if i not in known]
    fit = fit_autoregression(_of(train, kept), _of(validation, kept), config)
    lags, now = list(known), list(known.values())
    low, high = outcome_bounds(train)
    low[kept], high[kept] = fit.low, fit.high
    low[lags], high[lags] = low[now], high[now]
    limits = dict(zip(kept, fit.limits, strict=True))
    return replace(
        fit,
        law=_wider(fit.law, kept, known),
        scaler=Scaler.from_batch(train),
        limits=tuple(limits.get(i, HardLimits(-np.inf, np.inf)) for i in range(len(train.features))),
        low=low,
        high=high,
    )


def _of(batch: Batch, kept: Sequence[int]) -> Batch:
    return replace(batch, obs=batch.obs[..., kept], features=tuple(batch.features[i] for i in kept))


def _wider(law: LinearLaw, kept: Sequence[int], known: dict[int, int]) -> LinearLaw:
    """The law of the kept features, and of the known ones that they are what is observed now."""
    d = len(kept) + len(known)
    window = Window(law.window.order, d, law.window.n_actions)
    rows = [lag * d + i for lag in range(window.order) for i in kept] + list(range(window.covariates, window.size))
    intercept, effects = np.zeros(d), np.zeros((window.n_actions, d))
    coefficients = np.zeros((window.size, d))
    intercept[kept], effects[:, kept] = law.intercept, law.effects
    coefficients[np.ix_(rows, kept)] = law.coefficients
    coefficients[list(known.values()), list(known)] = 1.0
    return LinearLaw(window, intercept, coefficients, effects)
