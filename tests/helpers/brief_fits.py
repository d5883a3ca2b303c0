"""Fits of outcome models that take a second."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from outcome_batches import linear_system

from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS
from cirl_gym.outcome_models.networks import CRNConfig, MLPConfig, PropensityConfig, RMSNConfig, RNNConfig
from cirl_gym.outcome_models.store import save_model
from cirl_gym.outcome_models.training import TrainingConfig

NETWORKS = tuple(kind for kind in KINDS if kind != "ar")
TRAIN, VALIDATION = linear_system(60, 0, noise=1.0), linear_system(20, 1, noise=1.0)


def brief(epochs: int, base: bool = True) -> OutcomeModelConfig:
    """So many epochs of small batches; `base`: a network corrects the linear law."""
    training = TrainingConfig(epochs=epochs, batch_size=32, learning_rate=0.01)
    few = replace(training, epochs=min(epochs, 5))
    return replace(
        OutcomeModelConfig.quick(),
        base=base,
        crn=CRNConfig(training=training),
        rmsn=RMSNConfig(training=training, propensity=PropensityConfig(training=few)),
        mb_h=RNNConfig(training=training),
        mb_x=MLPConfig(training=training),
    )


def fitted(kind, path, watch=None, members=1, seed=0):
    """Bytes of the model's file, and the report."""
    config = replace(brief(4, base=False), members=members)
    found = fit_outcome_model(kind, TRAIN, VALIDATION, config, np.random.default_rng(seed), watch=watch)
    save_model(found.model, path)
    return path.read_bytes(), found.report
