"""What is known of outcomes whatever predicts them: expectations at a limit, and noise as residuals have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from brief_fits import brief
from outcome_batches import linear_system
from scipy.stats import kstest, skew

from cirl_gym.outcome_models.correction import _clipped_mean
from cirl_gym.outcome_models.fitting import fit_outcome_model
from cirl_gym.outcome_models.limits import GRID, OutcomeSpec, ResidualNoise, clipped_mean
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model
from cirl_gym.worlds.tumour import TumourWorld

NONE, TOP = np.array([-np.inf]), np.array([np.inf])


def test_means_at_the_floor_and_without_limits_or_noise_by_hand():
    # E[max(eps, 0)] = 1 / sqrt(2 pi) = .39894 for a standard normal eps.
    mean = clipped_mean(np.array([[0.0]]), np.array([0.1]), np.array([0.0]), TOP)
    np.testing.assert_allclose(mean, [[0.039894]], atol=1e-6)
    values = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_array_equal(clipped_mean(values, np.array([0.5]), NONE, TOP), values)
    clipped = clipped_mean(values, np.array([0.0]), np.array([-1.0]), np.array([1.0]))
    np.testing.assert_array_equal(clipped, np.clip(values, -1, 1))


@pytest.mark.parametrize("expected", [-3.0, -0.05, 0.0, 0.05, 0.9, 1.0, 1.3, 4.0])
def test_it_is_the_mean_of_many_clipped_draws(expected):
    draws = np.clip(expected + 0.2 * np.random.default_rng(0).standard_normal(200_000), 0.0, 1.0)
    mean = clipped_mean(np.array([[expected]]), np.array([0.2]), np.array([0.0]), np.array([1.0]))
    # The standard error of the draws' mean is at most .2 / sqrt(200,000) = .00045.
    assert mean[0, 0] == pytest.approx(draws.mean(), abs=0.002)


def test_a_row_does_not_depend_on_the_others_and_torch_says_the_same():
    values = np.random.default_rng(0).normal(scale=0.3, size=(50, 2))
    arguments = (np.array([0.1, 0.2]), np.array([0.0, -np.inf]), np.array([np.inf, 0.4]))
    alone = np.concatenate([clipped_mean(row[None], *arguments) for row in values])
    np.testing.assert_array_equal(clipped_mean(values, *arguments), alone)
    floor, ceiling, noise = np.array([0.0, -np.inf]), np.array([np.inf, 0.4]), np.array([0.1, 0.2])
    spec = OutcomeSpec(("x", "y"), 2, np.full(2, -9.0), np.full(2, 9.0), noise, floor, ceiling)
    twin = _clipped_mean(torch.from_numpy(values), spec)
    np.testing.assert_allclose(twin.numpy(), clipped_mean(values, noise, floor, ceiling), atol=1e-6)


def test_the_oracle_expects_what_the_simulator_gives_on_average():
    # From (30, 2.5) without treatment the law says z = 2.5 - 2.5 = 0: half of the patients stop at the floor.
    n = 40_000
    world, model = TumourWorld(), OracleModel()
    state, obs = world.start(np.repeat([[30.0, 2.5]], n, axis=0))
    after = world.step(state, np.zeros(n, dtype=np.int64), np.random.default_rng(0)).obs
    expected = model.predict(model.start(obs[:1]))[0, 0]
    np.testing.assert_allclose(expected, [32.5, 0.039894], atol=1e-5)
    # Standard errors of the means: .0005 and .0003.
    np.testing.assert_allclose(after.mean(axis=0), expected, atol=0.002)


def normals(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def everything(residuals):
    return np.ones(residuals.shape, dtype=np.bool_)


def test_normal_few_absent_and_identical_residuals():
    noise = ResidualNoise(GRID[:, None] * np.array([0.5, 2.0]), np.eye(2))
    z = normals(1000, 2)
    np.testing.assert_allclose(noise(z), z * [0.5, 2.0], atol=1e-12)
    assert noise(z.reshape(10, 100, 2)).shape == (10, 100, 2)
    truth = np.column_stack([normals(500, 1), np.zeros(500)])
    noise = ResidualNoise.from_residuals(truth, everything(truth), np.array([1.0, 0.0]))
    assert not noise(normals(100, 2))[:, 1].any()
    one = normals(500, 1)
    truth = np.column_stack([one, one])
    drawn = ResidualNoise.from_residuals(truth, everything(truth), np.ones(2))(normals(100, 2))
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1], atol=0.01)
    truth = normals(150, 2)
    noise = ResidualNoise.from_residuals(truth, everything(truth), np.array([1.0, 3.0]))
    np.testing.assert_allclose(noise.quantiles, GRID[:, None] * [1.0, 3.0])
    many = np.abs(normals(1000, 2, 3))
    free = everything(many)
    free[100:, 1] = False
    noise = ResidualNoise.from_residuals(many, free, np.array([1.0, 3.0]))
    np.testing.assert_allclose(noise.quantiles[:, 1], GRID * 3.0)
    assert noise.quantiles[0, 0] > -1
    assert np.array_equal(noise.mixing, np.eye(2))


def test_skew_and_correlation_come_back():
    z = normals(20_000, 2, 1)
    truth = np.stack([np.exp(z[:, 0]), 0.8 * z[:, 0] + 0.6 * z[:, 1]], axis=1)
    noise = ResidualNoise.from_residuals(truth, everything(truth), truth.std(axis=0))
    drawn = noise(normals(20_000, 2, 2))
    centred = truth - truth.mean(axis=0)
    assert kstest(drawn[:, 0], centred[:, 0]).statistic < 0.02
    assert kstest(drawn[:, 1], centred[:, 1]).statistic < 0.02
    assert skew(drawn[:, 0]) > 2
    assert np.corrcoef(np.log(drawn[:, 0] - drawn[:, 0].min() + 1e-3), drawn[:, 1])[0, 1] > 0.7
    assert drawn.mean(axis=0) == pytest.approx([0, 0], abs=0.05)


def test_a_fitted_model_scatters_as_its_validation_episodes(tmp_path):
    train, validation = linear_system(100, 0, noise=1.0), linear_system(100, 1, noise=1.0)
    model = fit_outcome_model("ar", train, validation, brief(1), np.random.default_rng(0)).model
    drawn = model.noise(normals(20_000, 2))
    assert drawn.std(axis=0) == pytest.approx(model.noise_scale, rel=0.06)
    assert drawn.mean(axis=0) == pytest.approx([0, 0], abs=0.03)
    save_model(model, tmp_path / "model.npz")
    assert np.array_equal(load_model(tmp_path / "model.npz").noise(normals(10, 2)), model.noise(normals(10, 2)))


@pytest.mark.parametrize(
    ("quantiles", "mixing", "message"),
    [
        (np.zeros((3, 2)), np.eye(2), "go together"),
        (-GRID[:, None] * np.ones(2), np.eye(2), "must not fall"),
        (GRID[:, None] * np.ones(2), 2 * np.eye(2), "norm 1"),
    ],
)
def test_wrong_parts_are_refused(quantiles, mixing, message):
    with pytest.raises(ValueError, match=message):
        ResidualNoise(quantiles, mixing)
