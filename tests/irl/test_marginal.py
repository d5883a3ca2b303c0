"""The choice model's density without its habits: by differences, by integration, and beside the whole density."""

from __future__ import annotations

import numpy as np
import pytest
from posteriors import drawn_pool
from scipy.integrate import quad
from test_choice import FREE, KNOWN, differences, pool_of

from cirl_gym.data.habits import Contexts
from irl.preferences.choice import HABIT, Decisions, Density, patients_power
from irl.preferences.likelihood import NO_CONTEXTS, PlanPool
from irl.preferences.marginal import Marginal
from irl.preferences.samplers import convergence, ensemble_chains, independent_chains

HABITS = np.array([[0.5, 0.0, -0.5], [1.5, -1.0, -0.5], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])


def marginal_of(pool: PlanPool, signs=FREE, power: float = 1.0) -> Marginal:
    return Marginal(Decisions.of(pool), np.asarray(signs, dtype=float), power)


def on(pool: PlanPool, names: tuple[str, ...]) -> PlanPool:
    return PlanPool(pool.batch, pool.psi, Contexts.of(pool.batch, names) if names else NO_CONTEXTS)


@pytest.mark.parametrize("signs", [FREE, KNOWN])
@pytest.mark.parametrize(("names", "power"), [((), 1.0), (("previous",), 0.5), (("previous", "ward"), 1.0)])
def test_the_gradient_by_differences(signs, names, power, monkeypatch):
    monkeypatch.setattr("irl.preferences.marginal._CLOSE", 1e-8)
    density = marginal_of(on(pool_of(2, plans=1), names), signs, power)
    x = np.array([0.6, -0.8, 0.7])
    values, slopes = density.slopes(np.stack([x, x + 0.1]))
    found = differences(lambda at: density.slopes(at[None])[0][0], x, 0.05)
    np.testing.assert_allclose(found, slopes[0], atol=5e-3)
    assert not np.allclose(values[0], values[1])


def test_one_level_by_integration():
    # Two actions, one level: what is integrated out is the difference of two logits, normal with twice their variance.
    batch = drawn_pool([60.0], patients=10, steps=6, seed=3).batch
    pool = drawn_pool([60.0], patients=10, steps=6, seed=3)
    ward = Contexts(("ward",), (("A",),))
    levels = np.zeros((*batch.actions.shape, 1), dtype=np.int64)
    density = marginal_of(PlanPool(batch, pool.psi, ward, levels), [0])
    psi, taken = pool.psi[0][batch.mask][..., 0], batch.actions[batch.mask]
    ahead = np.where(taken == 1, 1.0, -1.0)

    def by_hand(theta: float) -> float:
        def integrand(b: float) -> float:
            scores = ahead * (theta * (psi[:, 1] - psi[:, 0]) + b)
            return float(np.exp(40 - np.logaddexp(0, -scores).sum() - b**2 / (4 * HABIT**2)))

        return float(np.log(quad(integrand, -15, 15)[0]))

    x = np.array([[0.1], [0.5], [0.9]])
    found = density.many(x) - density.prior(x)[0]
    exact = np.array([by_hand(theta) for theta in density.theta(x)[:, 0]])
    np.testing.assert_allclose(np.diff(found), np.diff(exact), atol=0.02)


@pytest.mark.parametrize("signs", [[0, 0], [-1, 0]])
def test_draws_are_those_of_the_whole_density(signs):
    pool = drawn_pool([-40.0, 30.0], habit=HABITS, n_actions=3, patients=40, plans=2, seed=1)
    quantiles = {}
    for kind, sample in ((Density, ensemble_chains), (Marginal, independent_chains)):
        density = kind(Decisions.of(pool), np.asarray(signs, dtype=float))
        density.power = patients_power(density, density.peak()[0])
        peak, covariance = density.peak()
        rng = np.random.default_rng(0)
        chains = sample(density, peak, covariance, rng, 800)
        assert convergence(density.theta(chains))[0].max() < 1.02
        theta, logits = density.drawn(chains.reshape(-1, density.n), rng)
        kappa = np.abs(theta).sum(axis=1)
        shown = np.column_stack([theta / kappa[:, None], kappa, logits.reshape(len(logits), -1)])
        quantiles[kind] = np.quantile(shown, [0.05, 0.5, 0.95], axis=0)
        assert density.power > 0.5
    whole, alone = quantiles[Density], quantiles[Marginal]
    np.testing.assert_array_less(np.abs(alone - whole) / (whole[2] - whole[0]), 0.15)


def test_names_of_levels_and_order_of_decisions_change_nothing():
    pool = on(pool_of(4), ("previous", "ward"))
    one, other = marginal_of(pool), marginal_of(pool.take(np.random.default_rng(0).permutation(len(pool.batch))))
    x = np.random.default_rng(1).standard_normal((3, 3))
    np.testing.assert_allclose(one.many(x), other.many(x), atol=1e-2)
    np.testing.assert_allclose(one.peak()[0], other.peak()[0], atol=1e-2)


def test_outcomes_that_play_no_part_leave_kappa_to_its_prior():
    # The peak, theta 0, is a spike that holds next to nothing of the density: kappa is below k by (k / (s + k))^d.
    batch, d = drawn_pool([60.0], patients=10, steps=6, seed=3).batch, 30
    density = marginal_of(PlanPool(batch, np.zeros((1, *batch.actions.shape, batch.n_actions, d))), [0] * d)
    peak, covariance = density.peak()
    chains = independent_chains(density, peak, covariance, np.random.default_rng(0), 1600)
    kappa = np.abs(density.theta(chains)).sum(axis=-1).ravel()
    chance = (kappa / (density.prior.scale + kappa)) ** d
    np.testing.assert_allclose(np.quantile(chance, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.06)
    assert convergence(density.theta(chains))[0].max() < 1.05
