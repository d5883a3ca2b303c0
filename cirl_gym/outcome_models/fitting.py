"""One entry point: from a training and a validation batch to a fitted outcome model and what it is worth."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.autoregression import AutoregressionConfig, AutoregressionFit, fit_autoregression
from cirl_gym.outcome_models.censoring import HardLimits
from cirl_gym.outcome_models.crn import CounterfactualRecurrentNetwork, CRNConfig
from cirl_gym.outcome_models.diagnostics import factual_error
from cirl_gym.outcome_models.end_fit import EndHeadConfig, EndReport, fit_end_head
from cirl_gym.outcome_models.end_head import EndHead, EndLines
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.linear import AutoregressiveModel, LinearLaw
from cirl_gym.outcome_models.recurrent import CorrectionFit, CorrectionNetwork, RecurrentModel, fit_correction
from cirl_gym.outcome_models.rnn import RecurrentNetwork, RNNConfig
from cirl_gym.outcome_models.spec import OutcomeSpec, outcome_bounds
from cirl_gym.outcome_models.training import Progress, TrainingConfig, seeded
from cirl_gym.types import FloatArray

Kind = Literal["ar", "crn", "mb_h"]
LearnedModel: TypeAlias = AutoregressiveModel | RecurrentModel


@dataclass(frozen=True)
class OutcomeModelConfig:
    """Settings of every stage; those of a kind that is not fitted have no effect."""

    autoregression: AutoregressionConfig = field(default_factory=AutoregressionConfig)
    """The linear law: "ar", and the base of the others."""
    crn: CRNConfig = field(default_factory=CRNConfig)
    """The counterfactual recurrent network."""
    mb_h: RNNConfig = field(default_factory=RNNConfig)
    """The plain recurrent network."""
    end: EndHeadConfig = field(default_factory=EndHeadConfig)
    """The end-of-episode head."""
    base: bool = True
    """Networks correct the linear law; False: they predict the change from x_t alone and are always kept."""

    @classmethod
    def quick(cls) -> OutcomeModelConfig:
        """Few epochs, for a first look; the linear law is the same."""
        default = cls()
        return cls(
            crn=replace(default.crn, training=replace(default.crn.training, epochs=8)),
            mb_h=replace(default.mb_h, training=replace(default.mb_h.training, epochs=8)),
            end=replace(default.end, training=replace(default.end.training, epochs=20)),
        )


@dataclass(frozen=True)
class FittedOutcomeModel:
    """A model and what is known about it."""

    model: LearnedModel
    """Deterministic; the linear law itself where a network did not improve on it."""
    report: dict[str, Any]
    """For JSON; the same seed gives the same report."""
    seconds: float
    """Wall-clock time of the fit."""


def fit_outcome_model(
    kind: Kind,
    train: Batch,
    validation: Batch,
    config: OutcomeModelConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> FittedOutcomeModel:
    """Fit one kind of model on the training episodes; everything that is chosen is chosen on the validation episodes.

    Args:
        kind: "ar" (linear law), "crn" or "mb_h" (networks that correct it).
        train: episodes to fit.
        validation: other episodes of the same features and actions.
        config: settings.
        rng: first weights, order of episodes and dropout.
        progress: called with (steps done, steps planned).

    Raises:
        ValueError: an unknown kind, batches that do not fit together, or a training that did not stay finite.
    """
    if kind not in ("ar", "crn", "mb_h"):
        raise ValueError(f"kind must be 'ar', 'crn' or 'mb_h', got {kind!r}")
    if (train.features, train.action_names) != (validation.features, validation.action_names):
        raise ValueError("the training and the validation batch do not have the same features and actions")
    began = time.perf_counter()
    seeds = [int(seed) for seed in rng.integers(2**63 - 1, size=3)]
    planned = {"ar": 0, "crn": config.crn.training.epochs, "mb_h": config.mb_h.training.epochs}[kind] + 2
    tell: Progress = progress or (lambda _done, _total: None)

    with_law = kind == "ar" or config.base
    fit = fit_autoregression(train, validation, config.autoregression) if with_law else _persistence(train)
    model: LearnedModel = _law_alone(fit, train)
    report: dict[str, Any] = {"kind": kind, "law": _law_report(fit, with_law), "correction": None}
    tell(1, planned)
    if kind != "ar":
        network, training = _network(kind, train, config, seeds[0])
        scale = _residual_scale(model, train, train, fit.limits)
        unit = np.where(scale > 0, scale, fit.scaler.scale)
        spec = replace(model.spec, noise_scale=scale)
        corrected = RecurrentModel(fit.law, network, fit.scaler, unit, spec, model.end)
        correction = fit_correction(
            corrected, train, validation, training, seeds[1], lambda done, _: tell(1 + done, planned)
        )
        kept = correction.helps or not config.base
        report["correction"] = _correction_report(correction, kept)
        model = corrected if kept else model
    model, end = _with_noise_and_end(model, fit, (train, validation), config.end, seeds[2])
    report |= _outcome_report(model, train, validation)
    report["end"] = end.as_dict()
    tell(planned, planned)
    return FittedOutcomeModel(model, report, time.perf_counter() - began)


def _law_alone(fit: AutoregressionFit, train: Batch) -> AutoregressiveModel:
    """The law as a model whose noise and ends are not known yet."""
    end = EndHead("never", EndLines.from_batch(train, fit.scaler, fit.scaler.scale), 0.0)
    floor, ceiling = np.array([[limit.low, limit.high] for limit in fit.limits]).T
    spec = OutcomeSpec(
        train.features, train.n_actions, fit.low, fit.high, np.zeros(len(train.features)), floor, ceiling
    )
    return AutoregressiveModel(fit.law, spec, end)


def _with_noise_and_end(
    model: LearnedModel, fit: AutoregressionFit, splits: tuple[Batch, Batch], config: EndHeadConfig, seed: int
) -> tuple[LearnedModel, EndReport]:
    train, validation = splits
    spec = replace(model.spec, noise_scale=_residual_scale(model, validation, train, fit.limits))
    raw = [model.raw(model.encode(batch)[:, :-1]) for batch in splits]
    predicted = ((train, raw[0]), (validation, raw[1]))
    end, report = fit_end_head(predicted, fit.scaler, spec.noise_scale, config, seed)
    return model.with_outcomes(spec, end), report


def _persistence(train: Batch) -> AutoregressionFit:
    """In place of a fitted law: nothing changes."""
    law = LinearLaw.persistence(len(train.features), train.n_actions)
    none = tuple(HardLimits(-np.inf, np.inf) for _ in train.features)
    return AutoregressionFit(law, Scaler.from_batch(train), 1, 0.0, none, *outcome_bounds(train))


def _network(
    kind: Literal["crn", "mb_h"], train: Batch, config: OutcomeModelConfig, seed: int
) -> tuple[CorrectionNetwork, TrainingConfig]:
    d, a = len(train.features), train.n_actions
    with seeded(seed):
        if kind == "crn":
            return CounterfactualRecurrentNetwork(d, a, config.crn), config.crn.training
        return RecurrentNetwork(d, a, config.mb_h), config.mb_h.training


def _residual_scale(model: LearnedModel, batch: Batch, fallback: Batch, limits: tuple[HardLimits, ...]) -> FloatArray:
    """``[d]`` root mean squared error, leaving out outcomes at a limit of a feature that was fitted as censored.

    There the error says nothing of the noise: the law is far beyond the limit and the clipped prediction exact. A
    feature with fewer than ten rows left takes those of the fallback.
    """
    every = model.predict(model.encode(batch)[:, :-1])
    predicted = np.take_along_axis(every, batch.actions[..., None, None], axis=2)[:, :, 0][batch.mask]
    outcomes = batch.next_obs[batch.mask].astype(np.float64)
    free = np.stack([limit.side(column) == 0 for limit, column in zip(limits, outcomes.T, strict=True)], axis=1)
    rows = free.sum(axis=0)
    squares = np.where(free, (predicted - outcomes) ** 2, 0.0).sum(axis=0)
    scale: FloatArray = np.sqrt(squares / np.maximum(rows, 1))
    if batch is fallback or (rows >= 10).all():
        return scale
    return np.where(rows >= 10, scale, _residual_scale(model, fallback, fallback, limits))


def _law_report(fit: AutoregressionFit, fitted: bool) -> dict[str, Any]:
    """For JSON; None stands for "no limit"."""
    limits = [[bound if np.isfinite(bound) else None for bound in (limit.low, limit.high)] for limit in fit.limits]
    return {"fitted": fitted, "order": fit.order, "strength": fit.strength, "censored_at": limits}


def _correction_report(correction: CorrectionFit, kept: bool) -> dict[str, Any]:
    """For JSON; losses are squared errors in units of the law's training error."""
    return {
        "kept": kept,
        "epochs": correction.history.epochs,
        "best_epoch": correction.history.best_epoch,
        "validation_loss": correction.loss,
        "validation_loss_of_law": correction.law_loss,
        "standard_error": correction.standard_error,
    }


def _outcome_report(model: LearnedModel, train: Batch, validation: Batch) -> dict[str, Any]:
    """For JSON: errors on both splits, on the scale of the training batch's ranges, and the noise."""
    phi = FeatureMap.from_batch(train)
    return {
        "factual": {
            name: factual_error(model, batch, phi).as_dict()
            for name, batch in (("train", train), ("validation", validation))
        },
        "noise_scale": dict(zip(train.features, map(float, model.noise_scale), strict=True)),
    }
