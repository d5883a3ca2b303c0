"""The losses with which recurrent networks are trained, taken at random weights: nothing is learnt."""

from __future__ import annotations

import numpy as np
import torch
from outcome_batches import random_model
from recurrent_networks import episodes, randomised

import agents.policies.cloning
import cirl_gym.outcome_models.correction
from agents.policies.cloning import CloningConfig, fit_cloning
from cirl_gym.outcome_models.correction import fit_correction, treatment_weights
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.networks import PropensityConfig
from cirl_gym.outcome_models.training import History, TrainingConfig


def captured(monkeypatch, module, fit, ask):
    """What ``ask(network, loss)`` finds where training would have begun, with random weights."""
    found = []

    def instead(network, loss, validation_loss, n_episodes, *_rest, **_named):
        randomised(network)
        found.append(ask(network, lambda share=0.5: loss(torch.arange(n_episodes), share)))
        return History((), (validation_loss(),), 0)

    monkeypatch.setattr(module, "train_network", instead)
    with np.errstate(over="ignore"):  # RMSN's ratios where the padding was filled; they are dropped
        fit()
    return found[-1]


def training_loss(monkeypatch, kind, batch, ask):
    """``ask(network, loss)`` for behaviour cloning, an outcome model's network, or RMSN's of the treatment."""
    if kind == "cloning":
        config = CloningConfig(hidden=6, priors=(1.0,))
        fit = lambda: fit_cloning(batch, episodes(4, 2), config, np.random.default_rng(0))  # noqa: E731
        return captured(monkeypatch, agents.policies.cloning, fit, ask)
    if kind == "propensity":
        splits, scaler = (batch, episodes(4, 2)), Scaler.from_batch(batch)
        # The last of two networks is the one that sees the whole history.
        fit = lambda: treatment_weights(*splits, scaler, PropensityConfig(hidden=6), 0.01, (0, 1))  # noqa: E731
        return captured(monkeypatch, cirl_gym.outcome_models.correction, fit, ask)
    model = random_model(kind)
    fit = lambda: fit_correction(model, (batch, episodes(4, 2)), TrainingConfig(), 0)  # noqa: E731
    return captured(monkeypatch, cirl_gym.outcome_models.correction, fit, ask)


TRAINED = ("cloning", "crn", "rmsn", "propensity", "mb_h")
