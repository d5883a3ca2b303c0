"""What a fit says of itself: noise, errors and choices, for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.autoregression import AutoregressionFit
from cirl_gym.outcome_models.censoring import HardLimits
from cirl_gym.outcome_models.correction import CorrectionFit
from cirl_gym.outcome_models.diagnostics import factual_error
from cirl_gym.outcome_models.noise import ResidualNoise
from cirl_gym.types import BoolArray, FloatArray, OutcomeModel


def residual_scale(model: OutcomeModel, batch: Batch, fallback: Batch, limits: tuple[HardLimits, ...]) -> FloatArray:
    """``[d]`` root mean squared error, leaving out outcomes at a limit of a feature that was fitted as censored.

    There the error says nothing of the noise: the law is far beyond the limit and the clipped prediction exact. A
    feature with fewer than ten rows left takes those of the fallback.
    """
    errors, free = _residuals(model, batch, limits)
    rows = free.sum(axis=0)
    squares = np.where(free, errors**2, 0.0).sum(axis=0)
    scale: FloatArray = np.sqrt(squares / np.maximum(rows, 1))
    if batch is fallback or (rows >= 10).all():
        return scale
    return np.where(rows >= 10, scale, residual_scale(model, fallback, fallback, limits))


def residual_noise(
    model: OutcomeModel, validation: Batch, limits: tuple[HardLimits, ...], scale: FloatArray
) -> ResidualNoise:
    """The law of the validation residuals; a feature with few of them has a normal one with its ``scale``."""
    errors, free = _residuals(model, validation, limits)
    return ResidualNoise.from_residuals(errors, free, scale)


def _residuals(model: OutcomeModel, batch: Batch, limits: tuple[HardLimits, ...]) -> tuple[FloatArray, BoolArray]:
    """``[R, d]`` outcomes minus expected outcomes, and where they say something of the noise."""
    every = model.predict(model.encode(batch)[:, :-1])
    predicted = np.take_along_axis(every, batch.actions[..., None, None], axis=2)[:, :, 0][batch.mask]
    outcomes = batch.next_obs[batch.mask].astype(np.float64)
    free = np.stack([limit.side(column) == 0 for limit, column in zip(limits, outcomes.T, strict=True)], axis=1)
    return outcomes - predicted, free


def law_report(fit: AutoregressionFit, fitted: bool) -> dict[str, Any]:
    """For JSON; None stands for "no limit"."""
    limits = [[bound if np.isfinite(bound) else None for bound in (limit.low, limit.high)] for limit in fit.limits]
    return {"fitted": fitted, "order": fit.order, "strength": fit.strength, "censored_at": limits}


def correction_report(correction: CorrectionFit, kept: bool) -> dict[str, Any]:
    """For JSON; losses are squared errors in units of the law's training error."""
    return {
        "kept": kept,
        "epochs": correction.history.epochs,
        "best_epoch": correction.history.best_epoch,
        "validation_loss": correction.loss,
        "validation_loss_of_law": correction.law_loss,
        "standard_error": correction.standard_error,
    }


def outcome_report(model: OutcomeModel, train: Batch, validation: Batch) -> dict[str, Any]:
    """For JSON: errors on both splits, on the scale of the training batch's ranges, and the noise."""
    phi = FeatureMap.from_batch(train)
    return {
        "factual": {
            name: factual_error(model, batch, phi).as_dict()
            for name, batch in (("train", train), ("validation", validation))
        },
        "noise_scale": dict(zip(train.features, map(float, model.noise_scale), strict=True)),
    }
