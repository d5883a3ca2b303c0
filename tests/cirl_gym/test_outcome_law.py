"""The linear law: windows by hand, coefficients and known lags found, censored outcomes, choices by validation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from brief_fits import brief
from outcome_batches import confounded, linear_system
from scipy.stats import kstest, skew
from small_batches import batch_of

from cirl_gym.data.outcomes import with_lags
from cirl_gym.outcome_models.correction import _clipped_mean
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import Scaler, Window, end_labels, sequence_inputs
from cirl_gym.outcome_models.law import AutoregressionConfig, LinearLaw, fit_autoregression, fit_law, known_lags
from cirl_gym.outcome_models.limits import (
    GRID,
    HardLimits,
    OutcomeSpec,
    ResidualNoise,
    censored_regression,
    clipped_mean,
    hard_limits,
    outcome_bounds,
)
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.ridge import ridge
from cirl_gym.outcome_models.store import load_model, save_model
from cirl_gym.outcome_models.terms import STRAIGHT
from cirl_gym.worlds.tumour import TumourWorld


def test_windows_network_inputs_and_end_labels_by_hand():
    batch = batch_of([1, 0, 1], [0], d=1)  # x = 0, 1, 2, 3 and 10, 11
    rows = Window(3, 1, 2).encode(batch)
    # Three observations newest first, then a_{t-1} and a_{t-2} as one-hot; nothing before t = 0.
    assert rows[0].tolist() == [[0] * 7, [1, 0, 0, 0, 1, 0, 0], [2, 1, 0, 1, 0, 0, 1], [3, 2, 1, 0, 1, 1, 0]]
    assert rows[1].tolist() == [[10, 10, 10, 0, 0, 0, 0], [11, 10, 10, 1, 0, 0, 0], [0] * 7, [0] * 7]
    longer = Window(4, 1, 2).encode(batch_of([1], [0], d=1))  # than the episodes
    assert longer[0].tolist() == [[0, 0, 0, 0] + [0] * 6, [1, 0, 0, 0] + [0, 1] + [0] * 4]
    batch = batch_of([1, 0], d=1)
    inputs = sequence_inputs(Scaler(np.array([1.0]), np.array([2.0])), batch)
    assert inputs[0].tolist() == [[-0.5, 0, 0], [0, 0, 1], [0.5, 1, 0]]
    batch = batch_of([1, 0, 1], [0], [1, 1])
    batch = replace(batch, terminated=np.array([True, True, False]), truncated=np.array([False, False, True]))
    assert end_labels(batch).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]


def test_scaler_persistence_and_ridge_by_hand():
    batch = batch_of([0, 0], d=1)  # x = 0, 1, 2
    scaler = Scaler.from_batch(batch)
    assert scaler.mean == pytest.approx([1.0])
    assert scaler.scale == pytest.approx([np.sqrt(2 / 3)])
    constant = replace(batch, obs=np.full((1, 3, 1), 0.1, dtype=np.float32))
    assert Scaler.from_batch(constant).scale.tolist() == [1.0]
    law = LinearLaw.persistence(2, 3)
    assert law(np.array([[4.0, 5.0]])).tolist() == [[[4, 5]] * 3]
    # Mean of x^2 is 1 and of x y is 2: slope 2 / (1 + strength); the mean of y is not shrunk.
    design, targets = np.array([[1.0], [-1.0]]), np.array([[7.0], [3.0]])
    (least, level), (half, same) = ridge(design, targets, (0.0, 1.0))
    assert (least.item(), level.item()) == pytest.approx((2, 5))
    assert (half.item(), same.item()) == pytest.approx((1, 5))
    # Without strength it survives a doubled column.
    ((weights, _),) = ridge(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([[2.0], [-2.0]]), (0.0,))
    assert weights.ravel() == pytest.approx([1, 1])


def test_known_coefficients_are_found_again_and_noise_is_not_fitted():
    train, validation = linear_system(300, 0), linear_system(60, 1)
    fit = fit_autoregression(train, validation, AutoregressionConfig(max_order=4))
    assert fit.order == 2
    coefficients = fit.law.coefficients  # x_t, y_t, x_{t-1}, y_{t-1}, then a_{t-1} as one-hot
    assert coefficients[:4] == pytest.approx(np.array([[0.6, 0.1], [0, 0.9], [0.3, 0], [0, 0]]), abs=1e-5)
    assert np.diff(fit.law.effects, axis=0) == pytest.approx(np.array([[2, 0], [2, -1]]), abs=1e-5)
    assert np.diff(coefficients[4:], axis=0) == pytest.approx(np.array([[-0.5, 0], [-0.5, 0]]), abs=1e-5)
    rows = fit.law.window.encode(validation)[:, :-1]
    predicted = np.take_along_axis(fit.law(rows), validation.actions[..., None, None], axis=2)[:, :, 0]
    assert predicted[validation.mask] == pytest.approx(validation.next_obs[validation.mask], abs=1e-4)
    train, validation = linear_system(30, 0, noise=3.0), linear_system(30, 1, noise=3.0)
    fit = fit_autoregression(train, validation, AutoregressionConfig())
    assert fit.order <= 3


def test_validation_values_do_not_enter_scaler_bounds_or_solutions():
    train, validation = linear_system(200, 0, noise=1.0), linear_system(50, 1, noise=1.0)
    moved = replace(validation, obs=validation.obs * 1000)
    config = AutoregressionConfig(max_order=1, strengths=(0.1,), shapes=(STRAIGHT, STRAIGHT))
    one, other = (fit_autoregression(train, held_out, config) for held_out in (validation, moved))
    for name in ("intercept", "coefficients", "effects"):
        assert np.array_equal(getattr(one.law, name), getattr(other.law, name))
    assert np.array_equal(one.scaler.mean, other.scaler.mean)
    assert np.array_equal(one.low, other.low)


@pytest.mark.parametrize("fields", [{"max_order": 0}, {"strengths": ()}, {"strengths": (-1.0,)}])
def test_bad_settings_are_refused(fields):
    with pytest.raises(ValueError, match="AutoregressionConfig"):
        AutoregressionConfig(**fields)


def test_bounds_are_one_and_a_half_ranges_wider_and_hard_limits_need_a_pile():
    batch = batch_of([0, 0, 0, 0], d=2)  # 0..4 and 100..104
    low, high = outcome_bounds(batch)
    assert low.tolist() == [0, 94]
    assert high.tolist() == [10, 110]
    negative = replace(batch, obs=batch.obs - np.float32(1.0))
    assert outcome_bounds(negative)[0].tolist() == [-7, 93]
    spec = OutcomeSpec(("x",), 2, *(np.array([value]) for value in (0.1, 0.7, 0.0, -np.inf, np.inf)))
    clipped = spec.clip(np.array([[-1.0], [9.0]]))
    assert clipped.dtype == np.float32
    assert clipped.ravel().tolist() == [np.float32(0.1), np.float32(0.7)]
    inside = np.linspace(1, 2, 100)
    assert hard_limits(np.concatenate([np.zeros(12), inside])) == HardLimits(0.0, np.inf)
    assert hard_limits(np.concatenate([np.zeros(3), inside])) == HardLimits(-np.inf, np.inf)
    assert not hard_limits(np.repeat([0.0, 1.0], 50)).any  # yes or no: nothing lies between
    assert HardLimits(0.0, 5.0).side(np.array([-1.0, 0, 2, 5])).tolist() == [-1, -1, 0, 1]


def test_censored_regression_finds_the_law_behind_a_floor_and_a_ceiling():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=4000)
    latent = 1.0 + 2.0 * x + 0.5 * rng.normal(size=4000)
    seen = np.clip(latent, 0.0, 4.0)
    side = HardLimits(0.0, 4.0).side(seen)
    assert (side == 0).mean() < 0.4
    design = np.column_stack([np.ones(4000), x])
    plain = np.linalg.lstsq(design, seen, rcond=None)[0]
    assert plain[1] < 1.0  # what the limits do to a plain regression
    found = censored_regression(design, seen, side, np.zeros(2), plain)
    assert found == pytest.approx([1.0, 2.0], abs=0.06)
    # Without limits it is least squares.
    least = np.linalg.lstsq(design, latent, rcond=None)[0]
    found = censored_regression(design, latent, np.zeros(4000, dtype=np.int64), np.zeros(2), np.zeros(2))
    assert found == pytest.approx(least, abs=1e-9)


def test_simulated_outcomes_that_stop_at_zero():
    """Three in ten side effects are 0 where the law says less: the law is found all the same."""
    train, validation = confounded(1000)
    fit = fit_autoregression(train, validation, AutoregressionConfig())
    assert fit.order in (5, 6)  # 5 is true; one more lag costs nothing
    assert [limit.low for limit in fit.limits] == [0, 0]
    assert np.diff(fit.law.effects, axis=0)[0] == pytest.approx([-2.5, 1.0], abs=0.02)
    assert fit.law.coefficients[:10:2, 0] == pytest.approx(np.full(5, 0.2), abs=0.03)
    oracle = OracleModel()
    true = oracle.predict(oracle.encode(validation)[:, :-1])[validation.mask]
    found = fit.law(fit.law.window.encode(validation)[:, :-1])[validation.mask]
    assert np.sqrt(((np.clip(found, 0, None) - true) ** 2).mean(axis=(0, 1))).max() < 0.01


PLAIN = linear_system(60, 0, noise=0.3), linear_system(30, 1, noise=0.3)
WIDE = tuple(with_lags(batch, ("y",)) for batch in PLAIN)
CONFIG = AutoregressionConfig(max_order=3)


def test_a_known_lag_is_found_by_name_and_data_and_the_law_of_the_others_stays_to_the_byte():
    assert known_lags(PLAIN[0]) == {}
    assert known_lags(WIDE[0]) == {2: 1}
    assert known_lags(with_lags(PLAIN[0], ("y", "x"))) == {2: 1, 3: 0}
    other = np.array(WIDE[0].obs)
    other[3, 2, 2] += 1
    assert known_lags(replace(WIDE[0], obs=other)) == {}, "a column of that name that is something else"
    alone, wide = fit_autoregression(*PLAIN, CONFIG), fit_law(*WIDE, CONFIG)
    assert (wide.order, wide.strength) == (alone.order, alone.strength)
    assert fit_law(*PLAIN, CONFIG).law.coefficients.tobytes() == alone.law.coefficients.tobytes()
    rows = wide.law.window.encode(WIDE[1])[:, :-1][WIDE[1].mask]
    said = alone.law(alone.law.window.encode(PLAIN[1])[:, :-1][PLAIN[1].mask])
    np.testing.assert_allclose(wide.law(rows)[..., :2], said, rtol=1e-12, atol=1e-12)
    now = WIDE[1].obs[:, :-1, 1][WIDE[1].mask]
    np.testing.assert_array_equal(wide.law(rows)[..., 2], np.repeat(now[:, None], 3, axis=1))
    assert (wide.low[2], wide.high[2]) == (wide.low[1], wide.high[1])
    assert not wide.limits[2].any


@pytest.mark.parametrize("kind", ["ar", "mb_h"])
def test_a_model_predicts_it_without_error(kind):
    model = fit_outcome_model(kind, *WIDE, OutcomeModelConfig.quick(), np.random.default_rng(0)).model
    predicted = model.predict(model.encode(WIDE[1])[:, :-1])[WIDE[1].mask]
    now = WIDE[1].obs[:, :-1, 1][WIDE[1].mask]
    np.testing.assert_allclose(predicted[..., 2], np.repeat(now[:, None], 3, axis=1), atol=0.0 if kind == "ar" else 0.1)
    assert model.noise(np.ones((4, 3)))[:, 2].tolist() == pytest.approx([0.0] * 4, abs=0.0 if kind == "ar" else 0.1)


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


def test_a_few_outcomes_at_the_very_end_are_a_limit_where_no_other_value_comes_back():
    inside = np.linspace(1.0, 9.0, 200)
    assert hard_limits(np.append(inside, [0.0] * 4)) == HardLimits(0.0, np.inf)
    assert hard_limits(np.append(inside, [0.0] * 3)) == HardLimits(-np.inf, np.inf)
    assert hard_limits(np.append(inside, [10.0] * 4)) == HardLimits(-np.inf, 10.0)
    # Rounded readings come back too: then ten are needed, as ever.
    assert hard_limits(np.append(np.round(inside), [0.0] * 9)).low == -np.inf
    assert hard_limits(np.append(np.round(inside), [0.0] * 10)).low == 0.0
