"""Weights of treatments: near 1 where treatment was a coin, as the rule says where it followed one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from outcome_batches import linear_system

from cirl_gym.outcome_models.correction import treatment_weights
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.networks import PropensityConfig, PropensityNetwork, RMSNConfig
from cirl_gym.outcome_models.training import seeded


def weights(train, validation, clip=0.01):
    return treatment_weights(train, validation, Scaler.from_batch(train), PropensityConfig(), clip, (0, 1))


def confound(batch, slope, seed=0):
    """Actions 0 and 1 by a rule on the current x, which no earlier x or treatment foretells."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(scale=3.0, size=batch.obs.shape)
    p = 1 / (1 + np.exp(-slope * obs[:, :-1, 0]))
    return replace(batch, obs=obs, actions=(rng.random(p.shape) < p).astype(np.int64)), p


def test_independent_treatment_has_weights_near_one():
    train, validation = linear_system(400, 0, noise=1.0), linear_system(100, 1, noise=1.0)
    found = weights(train, validation)
    assert found.mean == pytest.approx(1.0, abs=0.05)
    assert found.effective > 0.95
    assert found.train[train.mask].mean() == pytest.approx(1.0)
    assert not found.train[~train.mask].any()
    assert not found.validation[~validation.mask].any()


def test_a_rule_is_recovered():
    (train, p), (validation, _) = (confound(linear_system(n, s, noise=1.0), 0.5, s) for n, s in ((1500, 0), (300, 1)))
    found = weights(train, validation, clip=0.0)
    given = np.where(train.actions == 1, p, 1 - p)[train.mask]
    assert np.corrcoef(np.log(found.train[train.mask]), -np.log(given))[0, 1] > 0.97
    # E[marginal / given] = 1 whatever the rule.
    assert found.mean == pytest.approx(1.0, abs=0.1)
    assert found.effective < 0.9


def test_clipping_moves_the_tails_to_their_quantiles():
    train, _ = confound(linear_system(300, 0, noise=1.0), 1.0)
    validation, _ = confound(linear_system(80, 1, noise=1.0), 1.0, 1)
    wide, narrow = (weights(train, validation, clip) for clip in (0.0, 0.2))
    assert narrow.train.max() * narrow.mean == pytest.approx(np.quantile(wide.train[train.mask], 0.8) * wide.mean)
    assert narrow.effective > wide.effective


@pytest.mark.slow
def test_with_independent_treatment_weighing_changes_nothing():
    train, validation, test = (linear_system(n, s, noise=1.0) for n, s in ((2000, 0), (400, 1), (1000, 2)))
    errors = {}
    for kind in ("mb_h", "rmsn"):
        model = fit_outcome_model(
            kind, train, validation, OutcomeModelConfig(base=False), np.random.default_rng(0)
        ).model
        taken = np.take_along_axis(model.predict(model.encode(test)[:, :-1]), test.actions[..., None, None], axis=2)
        squares = ((taken[:, :, 0] - test.next_obs) ** 2)[test.mask]
        errors[kind] = float(np.sqrt(squares.mean()))
    assert errors["rmsn"] == pytest.approx(errors["mb_h"], rel=0.02)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="clip"):
        RMSNConfig(clip=0.5)
    with pytest.raises(ValueError, match="hidden"):
        PropensityConfig(hidden=0)
    with pytest.raises(ValueError, match="sizes"):
        RMSNConfig(hidden=0)


def test_case_30_propensities_do_not_look_ahead():
    """A weight of a step depends on what came before it, the step's own treatment, and nothing later."""
    batch = linear_system(20, 0, noise=1.0)
    with seeded(0):
        network = PropensityNetwork(5, 3, 8).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    scaler = Scaler.from_batch(batch)
    obs, actions = batch.obs.copy(), batch.actions.copy()
    obs[:, 6:], actions[:, 5:] = 100.0, 2
    later = replace(batch, obs=obs, actions=actions)
    with torch.inference_mode():
        one, other = (network(torch.from_numpy(sequence_inputs(scaler, b)[:, :-1])) for b in (batch, later))
    assert torch.equal(one[:, :6], other[:, :6])
    assert not torch.equal(one[:, 6:], other[:, 6:])
