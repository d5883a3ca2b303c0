"""The expectation of an outcome that stops at a limit, in NumPy, in torch, and of the simulator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cirl_gym.outcome_models.correction import _clipped_mean
from cirl_gym.outcome_models.limits import OutcomeSpec, clipped_mean
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.world import TumourWorld

NONE, TOP = np.array([-np.inf]), np.array([np.inf])


def test_at_the_floor_it_is_the_noise_over_the_root_of_two_pi():
    # E[max(eps, 0)] = 1 / sqrt(2 pi) = .39894 for a standard normal eps.
    mean = clipped_mean(np.array([[0.0]]), np.array([0.1]), np.array([0.0]), TOP)
    np.testing.assert_allclose(mean, [[0.039894]], atol=1e-6)


@pytest.mark.parametrize("expected", [-3.0, -0.05, 0.0, 0.05, 0.9, 1.0, 1.3, 4.0])
def test_it_is_the_mean_of_many_clipped_draws(expected):
    draws = np.clip(expected + 0.2 * np.random.default_rng(0).standard_normal(200_000), 0.0, 1.0)
    mean = clipped_mean(np.array([[expected]]), np.array([0.2]), np.array([0.0]), np.array([1.0]))
    # The standard error of the draws' mean is at most .2 / sqrt(200,000) = .00045.
    assert mean[0, 0] == pytest.approx(draws.mean(), abs=0.002)


def test_without_limits_or_noise_nothing_is_added():
    values = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_array_equal(clipped_mean(values, np.array([0.5]), NONE, TOP), values)
    clipped = clipped_mean(values, np.array([0.0]), np.array([-1.0]), np.array([1.0]))
    np.testing.assert_array_equal(clipped, np.clip(values, -1, 1))


def test_a_row_does_not_depend_on_the_others():
    values = np.random.default_rng(0).normal(scale=0.3, size=(50, 2))
    arguments = (np.array([0.1, 0.2]), np.array([0.0, -np.inf]), np.array([np.inf, 0.4]))
    alone = np.concatenate([clipped_mean(row[None], *arguments) for row in values])
    np.testing.assert_array_equal(clipped_mean(values, *arguments), alone)


def test_torch_says_the_same():
    floor, ceiling, noise = np.array([0.0, -np.inf]), np.array([np.inf, 0.4]), np.array([0.1, 0.2])
    spec = OutcomeSpec(("x", "y"), 2, np.full(2, -9.0), np.full(2, 9.0), noise, floor, ceiling)
    values = np.random.default_rng(0).normal(scale=0.3, size=(50, 2))
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
