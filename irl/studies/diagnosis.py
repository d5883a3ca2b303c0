"""How far a run's outcome model can be believed: every number of ``diagnostics.json``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cirl_gym import diagnostics
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import CounterfactualWorld, OutcomeModel
from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models import errors
from cirl_gym.outcome_models.model import RowWeights
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds.exact import Patients, constant_futures
from irl.result.codec import Document

Errors: TypeAlias = tuple[errors.PredictionError, ...]


@dataclass(frozen=True)
class Material:
    """What is diagnosed, and on what."""

    model: OutcomeModel
    train: Batch
    """What the model was fitted on."""
    test: Batch
    """Held out: never seen by the model."""
    feature_map: FeatureMap
    horizon: int
    """Number of actions of a whole episode."""
    policies: Mapping[str, Policy]
    """By name, whose roll-outs are checked for support."""


@dataclass(frozen=True)
class Truth:
    """What only a simulator can tell about the held-out episodes."""

    patients: Patients
    """Whom they are of."""
    chances: FloatArray
    """``[N, T, A]`` the experts' true probabilities of each action along them."""


@dataclass(frozen=True)
class ErrorsAhead:
    """Errors 1, 2, .. K steps ahead."""

    model: Errors
    oracle: Errors | None
    """The noise-free simulator's on the very same rows; None without a simulator."""
    unchanged: Errors | None
    """Those of "nothing changes" on the same rows; None where it is not asked."""
    ratio: tuple[float | None, ...] | None
    """Pooled error of the model over that of the oracle; None where the oracle makes none."""

    @classmethod
    def of(cls, model: Errors, oracle: Errors | None = None, unchanged: Errors | None = None) -> ErrorsAhead:
        """The same with the ratios."""
        ratio = None
        if oracle is not None:
            pairs = zip(model, oracle, strict=True)
            ratio = tuple(a.pooled / b.pooled if b.pooled > 0 else None for a, b in pairs)
        return cls(model, oracle, unchanged, ratio)


@dataclass(frozen=True)
class Counterfactual:
    """Errors on what was not done; known only where there is a simulator."""

    flipped: ErrorsAhead
    """Under the other action at every step, with the same noise."""
    expected: errors.PredictionError
    """One step ahead under the actions that were not taken, against the true expectation: no noise in it."""
    courses: dict[str, errors.CourseGap]
    """By action, the mean course of "always this action" against the simulator's."""


@dataclass(frozen=True)
class Propensity:
    """Overlap, and what the probabilities that it rests on are worth."""

    estimated: diagnostics.Overlap
    quality: diagnostics.TreatmentProbe
    """Of the estimated propensity as a prediction of the held-out actions."""
    true: diagnostics.Overlap | None
    """By the simulated experts' own probabilities; None for a table."""


class Diagnosis(Document, frozen=True):
    """Field by field the keys of ``diagnostics.json`` (beside ``schema``); what is unknown is None."""

    features: tuple[str, ...]
    """``[D]`` observed features: the order of errors in raw units."""
    outcomes: tuple[str, ...]
    """``[d]`` outcomes of phi: the order of scaled errors."""
    normaliser: dict[str, tuple[float, float]]
    """By outcome, the raw values that phi makes 0 and 1: scaled errors are in units of this range."""
    actions: tuple[str, ...]
    episodes: dict[str, int]
    """Of training and held-out episodes."""
    factual: ErrorsAhead
    counterfactual: Counterfactual | None
    probes: dict[str, diagnostics.TreatmentProbe]
    """By part of the model's state; empty where only one action occurs in the training episodes."""
    propensity: Propensity | None
    """None where only one action occurs in the training episodes: nothing of it can be measured."""
    row_weights: tuple[RowWeights, ...]
    """How RMSN weighed its training rows, member by member; empty: it did not."""
    intervals: tuple[diagnostics.IntervalCoverage, ...]
    members: int
    """Models in the ensemble; 1: a single model."""
    ends: diagnostics.EndCalibration
    support: dict[str, diagnostics.Support]
    """By policy."""


def diagnose(
    material: Material,
    truth: Truth | None,
    rng: np.random.Generator,
    stage: Callable[[str], AbstractContextManager[Any]],
    steps: int | None = None,
) -> Diagnosis:
    """All diagnostics of one model.

    Args:
        material: model, data and policies.
        truth: what a simulator knows beyond them; None for a table.
        rng: splits, first weights and roll-outs.
        stage: ``with stage(name):`` around each part.
        steps: look at most so many steps ahead; default: as far as the episodes go.

    Raises:
        ValueError: ``steps`` is below 1, or the training episodes are of one patient.
    """
    model, train, test, phi = material.model, material.train, material.test, material.feature_map
    oracle = None if truth is None else OracleModel(truth.patients.parameters)
    with stage("errors"):
        exact = None if oracle is None else errors.factual_ahead(oracle, test, phi, steps)
        factual = ErrorsAhead.of(
            errors.factual_ahead(model, test, phi, steps), exact, errors.unchanged_ahead(test, phi, steps)
        )
    counterfactual = None
    if truth is not None and oracle is not None:
        with stage("flipped actions"):
            patients = truth.patients
            flipped = ErrorsAhead.of(
                *(errors.flipped_ahead(one, test, patients, phi, steps) for one in (model, oracle))
            )
            courses = {
                name: errors.course_gap(model, test.start, constant_futures(patients, action), phi)
                for action, name in enumerate(test.action_names)
            }
            counterfactual = Counterfactual(flipped, errors.counterfactual_error(model, test, oracle, phi), courses)
    several = len(np.unique(train.actions[train.mask])) > 1
    with stage("probes"):
        parts = diagnostics.representations(model) if several else {}
        probes = {name: diagnostics.treatment_probe(part, train, test, rng) for name, part in parts.items()}
    with stage("propensity"):
        fitted = diagnostics.fit_propensity(train, rng)
        propensity = _propensity(fitted, train, test, truth) if several else None
    with stage("calibration"):
        predicted = diagnostics.member_predictions(model, test)
        observed, whose = test.next_obs[test.mask], np.nonzero(test.mask)[0]
        intervals = diagnostics.interval_coverage(predicted, model.noise_scale, observed, model.bounds, episode=whose)
        ends = diagnostics.end_calibration(model, test.with_early_ends(material.horizon))
    with stage("support"):
        world = CounterfactualWorld(model, test.start, material.horizon)
        span = diagnostics.data_range(train)
        supports = {
            name: diagnostics.support(rollout(world, policy, len(test), rng), span, fitted)
            for name, policy in material.policies.items()
        }
    return Diagnosis(
        features=test.features,
        outcomes=phi.features,
        normaliser={name: (float(a), float(b)) for name, a, b in zip(phi.features, phi.low, phi.high, strict=True)},
        actions=test.action_names,
        episodes={"train": len(train), "test": len(test)},
        factual=factual,
        counterfactual=counterfactual,
        probes=probes,
        propensity=propensity,
        row_weights=diagnostics.row_weights(model),
        intervals=intervals,
        members=len(predicted),
        ends=ends,
        support=supports,
    )


def _propensity(fitted: diagnostics.FittedClassifier, train: Batch, test: Batch, truth: Truth | None) -> Propensity:
    chances = fitted.probabilities(test)
    return Propensity(
        estimated=diagnostics.overlap(chances, test),
        quality=diagnostics.judged(chances, train, test, fitted.inputs(test).shape[-1]),
        true=None if truth is None else diagnostics.overlap(truth.chances, test),
    )
