"""One entry point: from a training and a validation batch to a fitted outcome model and what it is worth."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cirl_gym.data.batch import Batch, warn_of_actions_never_taken
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.known import known_in, without
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.correction import fit_correction, treatment_weights
from cirl_gym.outcome_models.ends import EndHead, EndHeadConfig, EndLines, fit_end_head
from cirl_gym.outcome_models.errors import factual_error
from cirl_gym.outcome_models.inputs import KINDS, Kind, NetworkKind, Scaler, taken
from cirl_gym.outcome_models.known import knowing
from cirl_gym.outcome_models.law import (
    AutoregressionConfig,
    AutoregressionFit,
    LinearLaw,
    fit_law,
    relative_columns,
    usual_share,
    without_law,
)
from cirl_gym.outcome_models.limits import UNLIMITED, HardLimits, OutcomeSpec, ResidualNoise, outcome_bounds
from cirl_gym.outcome_models.model import Correction, EnsembleModel, LearnedModel, RowWeights
from cirl_gym.outcome_models.networks import (
    CorrectingNetwork,
    CRNConfig,
    MLPConfig,
    NetworkConfig,
    RMSNConfig,
    RNNConfig,
)
from cirl_gym.outcome_models.residual_check import check_residuals
from cirl_gym.outcome_models.training import ENOUGH_TO_JUDGE, Progress, Watch, network_training, seeded
from cirl_gym.types import BoolArray, FloatArray

MOST_DECISIONS = 1_000_000
"""An outcome model is fitted to whole episodes of about so many decisions at most, evenly spaced over the batch: its
numbers are known to a thousandth of the noise by then."""
ENOUGH_TO_CHOOSE = 250_000
"""... and all that is chosen (order, ridge, terms, whether a network corrects it) with so many at most."""


@dataclass(frozen=True)
class OutcomeModelConfig:
    """Settings of every stage; those of a kind that is not fitted have no effect."""

    autoregression: AutoregressionConfig = field(default_factory=AutoregressionConfig)
    """The linear law: "ar", and the base of the others."""
    crn: CRNConfig = field(default_factory=CRNConfig)
    rmsn: RMSNConfig = field(default_factory=RMSNConfig)
    mb_h: RNNConfig = field(default_factory=RNNConfig)
    mb_x: MLPConfig = field(default_factory=MLPConfig)
    """The network without memory; its law reads the last observation alone."""
    end: EndHeadConfig = field(default_factory=EndHeadConfig)
    base: bool = True
    """Networks correct the linear law; False: they predict the change from x_t alone and are always accepted."""
    check: bool = True
    """Whether a correction is trained only where trees foretell the law's errors (see ``residual_check``)."""
    relative: tuple[str, ...] = ()
    """Features, never negative, whose change the network predicts as a share of their current value."""
    members: int = 1
    """Models that are fitted, each from other random numbers; their mean predicts."""
    bootstrap: bool = False
    """Whether each member is fitted to a sample of the patients, drawn with replacement."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "relative", tuple(self.relative))
        if self.members < 1:
            raise ValueError(f"OutcomeModelConfig.members must be at least 1, got {self.members}")

    @classmethod
    def quick(cls) -> OutcomeModelConfig:
        """Few epochs, for a first look; the linear law is the same."""
        default, few = cls(), replace(network_training(), epochs=8)
        return cls(
            crn=replace(default.crn, training=few),
            rmsn=replace(default.rmsn, training=few),
            mb_h=replace(default.mb_h, training=few),
            mb_x=replace(default.mb_x, training=few),
            end=replace(default.end, training=replace(default.end.training, epochs=20)),
        )

    def network(self, kind: NetworkKind) -> NetworkConfig:
        """Settings of one kind's network."""
        settings: NetworkConfig = getattr(self, kind)
        return settings


@dataclass(frozen=True)
class FittedOutcomeModel:
    """A model and what is known about it."""

    model: OutcomeModel
    """Deterministic; the linear law itself where a network did not improve on it."""
    report: dict[str, Any]
    """For JSON, of what was learnt; the same seed gives the same report."""
    seconds: float
    """Wall-clock time of the fit."""


def residual_scale(model: OutcomeModel, batch: Batch, fallback: Batch, limits: tuple[HardLimits, ...]) -> FloatArray:
    """``[d]`` root mean squared error, leaving out outcomes at a limit of a feature that was fitted as censored.

    There the error says nothing of the noise: the law is far beyond the limit and the clipped prediction exact. A
    feature with fewer than ten rows left takes those of the fallback.
    """
    errors, free = residuals(model, batch, limits)
    rows = free.sum(axis=0)
    squares = np.where(free, errors**2, 0.0).sum(axis=0)
    scale: FloatArray = np.sqrt(squares / np.maximum(rows, 1))
    if batch is fallback or (rows >= 10).all():
        return scale
    return np.where(rows >= 10, scale, residual_scale(model, fallback, fallback, limits))


def residuals(model: OutcomeModel, batch: Batch, limits: tuple[HardLimits, ...]) -> tuple[FloatArray, BoolArray]:
    """``[R, d]`` outcomes minus expected outcomes, and where they say something of the noise."""
    predicted = taken(model.predict(model.encode(batch)[:, :-1]), batch)[batch.mask]
    outcomes = batch.next_obs[batch.mask].astype(np.float64)
    free = np.stack([limit.side(column) == 0 for limit, column in zip(limits, outcomes.T, strict=True)], axis=1)
    return outcomes - predicted, free


def outcome_report(model: OutcomeModel, train: Batch, validation: Batch) -> dict[str, Any]:
    """For JSON: errors on both splits, on the scale of the training batch's ranges, and the noise."""
    phi = FeatureMap.from_batch(train)
    return {
        "factual": {
            name: asdict(factual_error(model, batch, phi))
            for name, batch in (("train", train), ("validation", validation))
        },
        "noise_scale": dict(zip(train.features, map(float, model.noise_scale), strict=True)),
    }


def fit_outcome_model(
    kind: Kind,
    train: Batch,
    validation: Batch,
    config: OutcomeModelConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    watch: Watch | None = None,
) -> FittedOutcomeModel:
    """Fit one kind of model on the training episodes; everything that is chosen is chosen on the validation episodes.

    Features that are known exactly (:mod:`cirl_gym.data.known`) are left out of the fit, which is what it would be
    without them, and appended to what the model predicts. Of more decisions than :data:`MOST_DECISIONS` a part is used,
    as the report says ("decisions").

    Args:
        kind: "ar" (linear law), or a network that corrects it: "crn", "rmsn", "mb_h", or without memory "mb_x".
        train: episodes to fit.
        validation: other episodes of the same features and actions.
        config: settings.
        rng: first weights, order of episodes and dropout.
        progress: called with (steps done, steps planned).
        watch: who looks at the training of every network ("correction", "numerator", "denominator", "end"), and where
            it is stored, so that a fit that was killed goes on with the same arguments.

    Raises:
        ValueError: an unknown kind, batches that do not fit together, or a training that did not stay finite.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if config.relative and kind == "ar":
        raise ValueError(f"relative: {', '.join(config.relative)} need a network; the kind 'ar' is a linear law alone")
    if (train.features, train.action_names) != (validation.features, validation.action_names):
        raise ValueError("the training and the validation batch do not have the same features and actions")
    warn_of_actions_never_taken(train, validation)
    began, features, known = time.perf_counter(), train.features, known_in(train)
    if known:
        if known != known_in(validation):
            raise ValueError(f"{', '.join(one.name for one in known.values())}: not of the validation batch's actions")
        train, validation = without(train, known), without(validation, known)
    train, validation = train.thinned(MOST_DECISIONS), validation.thinned(ENOUGH_TO_JUDGE)
    fit = _fit_members if config.members > 1 else _fit_one
    model, report = fit(kind, train, validation, config, rng, progress, watch)
    whole = knowing(model, features, train.action_names)
    report["decisions"] = {"train": train.n_steps, "validation": validation.n_steps}
    return FittedOutcomeModel(whole, report, time.perf_counter() - began)


def _fit_members(
    kind: Kind,
    train: Batch,
    validation: Batch,
    config: OutcomeModelConfig,
    rng: np.random.Generator,
    progress: Progress | None,
    watch: Watch | None,
) -> tuple[EnsembleModel, dict[str, Any]]:
    """Every member by itself; all are judged and stopped by the same validation episodes."""
    found, n = [], config.members
    for member, own in enumerate(rng.spawn(n)):

        def tell(done: int, total: int, member: int = member) -> None:
            if progress is not None:
                progress(member * total + done, n * total)

        part = bootstrapped(train, own) if config.bootstrap else train
        below = watch.within(f"member{member}") if watch else None
        found.append(_fit_one(kind, part, validation, config, own, tell, below))
    model = EnsembleModel([model for model, _ in found])
    report = {"kind": kind, "members": [report for _, report in found], "correction": None}
    return model, report | outcome_report(model, train, validation)


def bootstrapped(batch: Batch, rng: np.random.Generator) -> Batch:
    """As many patients, drawn with replacement, each with all of its episodes."""
    names, owner = np.unique(np.array(batch.groups, dtype=object), return_inverse=True)
    episodes = [np.flatnonzero(owner == i) for i in range(len(names))]
    return batch.resampled(np.concatenate([episodes[i] for i in rng.integers(len(names), size=len(names))]))


def _fit_one(
    kind: Kind,
    train: Batch,
    validation: Batch,
    config: OutcomeModelConfig,
    rng: np.random.Generator,
    progress: Progress | None,
    watch: Watch | None,
) -> tuple[LearnedModel, dict[str, Any]]:
    if config.autoregression.effects:
        kind = "ar"  # a network could undo what the law is held to
    every, train = train, train.thinned(ENOUGH_TO_CHOOSE)
    seeds, splits = [int(seed) for seed in rng.integers(2**63 - 1, size=5)], (train, validation)
    planned = 2 if kind == "ar" else config.network(kind).training.epochs + 2
    tell: Progress = progress or (lambda _done, _total: None)

    d, with_law = len(train.features), kind == "ar" or config.base
    if with_law:
        lags = replace(config.autoregression, max_order=1) if kind == "mb_x" else config.autoregression
        # Sums of two threads differ in their last bits from those of one.
        with threadpool_limits(1, user_api="blas"):
            fit = fit_law(train, validation, lags)
            if every is not train:  # as it was chosen, from all
                fit = fit_law(every, validation, replace(lags.like(fit.law), strengths=(fit.strength,)))
    else:  # nothing changes
        law = LinearLaw.persistence(d, train.n_actions)
        fit = AutoregressionFit(law, Scaler.from_batch(train), 1, 0.0, (UNLIMITED,) * d, *outcome_bounds(train))
    endless = EndHead("never", EndLines.from_batch(train, fit.scaler, fit.scaler.scale), 0.0)
    model = LearnedModel(fit.law, _spec(fit, train), endless)
    # In JSON, None stands for "no limit".
    limits = [[bound if np.isfinite(bound) else None for bound in (limit.low, limit.high)] for limit in fit.limits]
    law_report = {"fitted": with_law, "order": fit.order, "strength": fit.strength, "censored_at": limits}
    law_report["terms"] = {name: shape._asdict() for name, shape in zip(train.features, fit.law.shapes, strict=True)}
    law_report["held_to"] = [list(map(str, bounds)) for bounds in config.autoregression.effects]
    report: dict[str, Any] = {"kind": kind, "law": law_report, "residual_check": None, "correction": None}
    tell(1, planned)
    weighed: RowWeights | None = None
    corrected = None if kind == "ar" else _uncorrected(model, fit, train, config, kind, seeds[0])
    if corrected is not None and config.check and config.base and not config.relative:
        checked = check_residuals(LearnedModel(model.law, corrected.spec, endless), train, validation)
        report |= {"residual_check": checked.as_dict(), "correction": checked.untrained()}
        corrected = corrected if checked.predictable else None
    if kind != "ar" and corrected is not None:
        network, weights = config.network(kind), None
        if isinstance(network, RMSNConfig):
            weights, weighed = treatment_weights(
                train, validation, fit.scaler, network.propensity, network.clip, (seeds[3], seeds[4]), watch
            )
            report["weights"] = asdict(weighed)
        correction = fit_correction(
            corrected,
            splits,
            network.training,
            seeds[1],
            lambda done, _: tell(1 + done, planned),
            weights=weights,
            watch=watch,
        )
        accepted = correction.helps or not config.base
        model = corrected if accepted else model
        # Losses are squared errors in units of the law's training error.
        report["correction"] = {
            "kept": accepted,
            "tried": True,
            "epochs": correction.history.epochs,
            "best_epoch": correction.history.best_epoch,
            "validation_loss": correction.loss,
            "validation_loss_of_law": correction.law_loss,
            "standard_error": correction.standard_error,
        }
    scale = residual_scale(model, validation, train, fit.limits)
    # A feature with few validation residuals has normal ones with its scale.
    noise = ResidualNoise.from_residuals(*residuals(model, validation, fit.limits), scale)
    before, after = ((batch, model.raw(model.encode(batch)[:, :-1])) for batch in splits)
    corrects = model.correction and replace(model.correction, weights=weighed)
    end, end_report = fit_end_head((before, after), fit.scaler, scale, config.end, seeds[2], watch)
    model = LearnedModel(model.law, replace(model.spec, noise_scale=scale, residuals=noise), end, corrects)
    report |= outcome_report(model, train, validation) | {"end": end_report}
    tell(planned, planned)
    return model, report


def _spec(fit: AutoregressionFit, train: Batch, relative: tuple[str, ...] = ()) -> OutcomeSpec:
    """Outcomes whose noise is not known yet."""
    floor, ceiling = np.array([[limit.low, limit.high] for limit in fit.limits]).T
    silent = np.zeros(len(train.features))
    return OutcomeSpec(train.features, train.n_actions, fit.low, fit.high, silent, floor, ceiling, relative=relative)


def _uncorrected(
    law: LearnedModel, fit: AutoregressionFit, train: Batch, config: OutcomeModelConfig, kind: NetworkKind, seed: int
) -> LearnedModel:
    """The law and a network that does not correct it yet."""
    # One unit of the network's output is the law's own error. Where it has none (a static covariate) nothing is learnt.
    scale = noise = residual_scale(law, train, train, fit.limits)
    if config.relative:
        columns = relative_columns(train, config.relative)
        fit, scale = without_law(fit, train, columns), np.where(columns, usual_share(train), noise)
    with seeded(seed):
        network = CorrectingNetwork(len(train.features), train.n_actions, config.network(kind))
    spec = replace(_spec(fit, train, config.relative), noise_scale=noise)
    return LearnedModel(fit.law, spec, law.end, Correction(network, fit.scaler, scale))
