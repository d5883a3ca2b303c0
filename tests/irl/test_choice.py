"""The choice model's density: by hand, by differences, by scipy, and by what must not change it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from posteriors import drawn_pool
from scipy.optimize import minimize
from scipy.special import log_softmax
from small_batches import batch_of

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Contexts
from irl.preferences.choice import HABIT, KAPPA, Decisions, Density, patients_power
from irl.preferences.likelihood import PlanPool

HABITS = np.array([[0.5, 0.0, -0.5], [1.5, -1.0, -0.5], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
FREE, KNOWN = np.zeros(3), np.array([-1.0, 1.0, 0.0])


def pool_of(
    seed: int = 0, plans: int = 3, episodes: int = 8, steps: int = 5, d: int = 3, forbid: bool = True
) -> PlanPool:
    """Three actions, episodes of different lengths, two contexts, some actions forbidden."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, steps + 1, size=episodes)
    batch = batch_of(*(rng.integers(3, size=n).tolist() for n in [steps, *lengths[1:]]), n_actions=3, d=d)
    shape = batch.actions.shape
    allowed = rng.random((*shape, 3)) < 0.7
    np.put_along_axis(allowed, batch.actions[..., None], True, axis=2)
    batch = replace(
        batch,
        allowed=allowed if forbid else None,
        groups=tuple(f"p{i // 2}" for i in range(episodes)),
        contexts=(("ward", ("A", "B")),),
        context_levels=rng.integers(2, size=(*shape, 1)),
    )
    psi = 0.03 * rng.standard_normal((plans, *shape, 3, d))
    return PlanPool(batch, psi, Contexts.of(batch, ("previous", "ward")))


def density_of(pool: PlanPool, signs=FREE, power: float = 1.0) -> Density:
    return Density(Decisions.of(pool), np.asarray(signs, dtype=float), power)


def somewhere(density: Density, seed: int = 0) -> np.ndarray:
    return 0.5 * np.random.default_rng(seed).standard_normal(density.n)


def likelihood(density: Density, x: np.ndarray) -> float:
    """Without the prior."""
    return density(x)[0] - Density(density.decisions, density.prior.signs, 0.0)(x)[0]


def differences(values, x: np.ndarray, step: float) -> np.ndarray:
    """Slopes by five points: psi are float32, so that steps must not be small."""
    found = []
    for unit in step * np.eye(len(x)):
        near, far = (values(x + k * unit) - values(x - k * unit) for k in (1, 2))
        found.append((8 * near - far) / (12 * step))
    return np.array(found)


@pytest.mark.parametrize("signs", [FREE, KNOWN])
@pytest.mark.parametrize(("plans", "forbid", "power"), [(1, True, 1.0), (1, False, 0.3), (3, True, 1.0)])
def test_the_gradient_by_differences(signs, plans, forbid, power):
    density = density_of(pool_of(2, plans, forbid=forbid), signs, power)
    x = somewhere(density, 1)
    found = density(x)[1]
    assert found.shape == (3 + 6 * 2,)
    if plans == 1:
        np.testing.assert_allclose(differences(lambda at: density(at)[0], x, 0.02), found, atol=2e-3)
        return
    # Of the better of several plans there is a gradient on either side of a tie: as if the best were all there is.
    best = density.decisions.along(density.decisions.values(density.theta(x))[1])
    alone = Density(replace(density.decisions, psi=best[:, None]), density.prior.signs, power)
    np.testing.assert_allclose(alone(x)[1], found, rtol=1e-12)
    assert alone(x)[0] == pytest.approx(density(x)[0], abs=1e-4)


@pytest.mark.parametrize("power", [1.0, 0.25])
def test_one_decision_by_hand(power):
    # One outcome whose values are .01 and 0, one context of a single level; the first action was taken.
    batch = replace(batch_of([0], d=1), contexts=(("ward", ("A",)),), context_levels=np.zeros((1, 1, 1), dtype=int))
    pool = PlanPool(batch, np.array([[[[[0.01], [0.0]]]]]), Contexts.of(batch, ("ward",)))
    free, known = density_of(pool, [0], power), density_of(pool, [-1], power)
    x = np.array([0.7, 0.9])
    [[first, second]] = free.logits(x)
    assert first == pytest.approx(-second)
    assert abs(first) == pytest.approx(0.9 / np.sqrt(2)), "a contrast of length 1"
    assert free.theta(x) == pytest.approx([0.7 * KAPPA])
    assert known.theta(x) == pytest.approx([-np.exp(0.7) * KAPPA])
    for density, value, prior in (
        (free, 0.7, -2 * np.log1p(0.7)),
        (known, -np.exp(0.7), 0.7 - 2 * np.log1p(np.exp(0.7))),
    ):
        expected = -power * np.log1p(np.exp(second - first - value)) + prior - 0.9**2 / (2 * HABIT**2)
        assert density(x)[0] == pytest.approx(expected, abs=1e-6)
    # A second plan that is better for the second action, by 1.
    two = density_of(pool.extended(np.array([[[[[0.0], [0.01]]]]])), [0])
    x = np.array([1.0, 0.0])
    assert two(x)[0] == pytest.approx(-np.log(2) - 2 * np.log(2))


def test_coordinates_keep_signs_and_logits_have_mean_zero():
    density = density_of(pool_of(), KNOWN)
    x = 3 * np.random.default_rng(0).standard_normal((50, density.n))
    theta, logits = density.theta(x), density.logits(x)
    assert (theta[:, 0] < 0).all()
    assert (theta[:, 1] > 0).all()
    np.testing.assert_array_equal(np.sign(theta[:, 2]), np.sign(x[:, 2]))
    assert density.prior.scale == pytest.approx(KAPPA * (2 ** (1 / 3) - 1))
    assert logits.shape == (50, 6, 3)
    np.testing.assert_allclose(logits.mean(axis=2), 0, atol=1e-12)
    # Contrasts are lengths: none of the directions is more likely beforehand.
    np.testing.assert_allclose((logits**2).sum(axis=(1, 2)), (x[:, 3:] ** 2).sum(axis=1))
    far = np.concatenate([np.full(3, 900.0), np.zeros(density.n - 3)])
    assert np.isfinite(density(far)[0]), "what a search may try"


@pytest.mark.parametrize("signs", [FREE, KNOWN])
def test_information_is_the_curvature_of_a_plain_logit_and_scores_add_up_to_the_gradient(signs):
    density = density_of(pool_of(3, plans=1), signs)
    x = somewhere(density, 2)
    information, scores = density.information(x)
    assert scores.shape == (4, density.n)
    rest = Density(density.decisions, density.prior.signs, 0.0)
    slope = density(x)[1] - rest(x)[1]
    np.testing.assert_allclose(scores.sum(axis=0), slope, atol=1e-6)
    np.testing.assert_allclose(information, information.T, atol=1e-9)
    curvature = -differences(lambda at: density(at)[1] - rest(at)[1], x, 0.05)
    # A coordinate that is a logarithm bends by itself too: by its slope.
    curvature += np.diag(np.where(np.arange(density.n) < 3, slope * np.resize(signs != 0, density.n), 0.0))
    np.testing.assert_allclose(information, curvature, atol=5e-3)


def test_scipy_finds_the_same_peak_of_a_multinomial_logit():
    pool = drawn_pool([-40.0, 30.0], habit=HABITS, n_actions=3, patients=60, seed=1)
    density = density_of(pool, [-1, 0])
    peak, covariance = density.peak()
    psi, level, taken = pool.psi[0][pool.batch.mask], pool.levels[pool.batch.mask][:, 0], pool.batch.actions.ravel()

    def lost(parameters):
        theta, logits = np.array([-np.exp(parameters[0]), parameters[1]]), parameters[2:].reshape(4, 3)
        logits = logits - logits.mean(axis=1, keepdims=True)
        said = log_softmax(psi @ theta + logits[level], axis=1)[np.arange(len(taken)), taken].sum()
        size = np.abs(theta) / (KAPPA * (np.sqrt(2) - 1))
        return -said - np.log(size[0]) + 3 * np.log1p(size.sum()) + (logits**2).sum() / (2 * HABIT**2)

    best = minimize(lost, np.concatenate([[3.0, 10.0], np.zeros(12)]), method="BFGS", options={"gtol": 1e-4})
    theta, logits = density.theta(peak), density.logits(peak)
    np.testing.assert_allclose(theta, [-np.exp(best.x[0]), best.x[1]], rtol=5e-3)
    found = best.x[2:].reshape(4, 3)
    np.testing.assert_allclose(logits, found - found.mean(axis=1, keepdims=True), atol=0.02)
    # Around it the density is as wide as its curvature says.
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    curvature = -differences(lambda at: density(at)[1], peak, 0.02)
    np.testing.assert_allclose(np.diag(np.linalg.inv(curvature)), np.diag(covariance), rtol=0.1)


class TestSame:
    """What must not change the density."""

    def test_names_of_actions(self):
        pool, order = pool_of(4), np.array([2, 0, 1])  # the new number of each action
        back = np.argsort(order)
        batch = pool.batch
        renamed = replace(
            batch,
            actions=np.where(batch.mask, order[batch.actions], 0),
            allowed=batch.allowed[..., back],
            action_names=tuple(batch.action_names[i] for i in back),
        )
        levels = np.concatenate([[0], order + 1, [4, 5]])  # none yet, actions, wards
        contexts = Contexts.of(renamed, pool.contexts.names)
        one, other = density_of(pool), density_of(PlanPool(renamed, pool.psi[:, :, :, back], contexts))
        x = somewhere(one)
        logits = np.empty((6, 3))
        logits[levels] = one.logits(x)[:, back]
        contrasts = other.logits(np.eye(other.n)[3:]).reshape(-1, logits.size) @ logits.ravel()
        y = np.concatenate([x[:3], contrasts])
        np.testing.assert_allclose(other.logits(y), logits, atol=1e-12)
        assert other(y)[0] == pytest.approx(one(x)[0], abs=1e-4)

    def test_order_and_scale_of_outcomes(self):
        pool = pool_of(5)
        one, order = density_of(pool, KNOWN), np.array([2, 0, 1])
        x = somewhere(one)
        other = density_of(replace(pool, psi=pool.psi[..., order]), KNOWN[order])
        y = np.concatenate([x[:3][order], x[3:]])
        assert other(y)[0] == pytest.approx(one(x)[0], abs=1e-4)
        np.testing.assert_allclose(other(y)[1][:3], one(x)[1][:3][order], atol=1e-3)
        # Values that are four times as large under a quarter of theta.
        one, other = density_of(pool), density_of(replace(pool, psi=4 * pool.psi))
        y = np.concatenate([x[:3] / 4, x[3:]])
        assert likelihood(other, y) == pytest.approx(likelihood(one, x), abs=1e-4)

    def test_a_number_added_to_all_values_of_a_decision(self):
        pool = pool_of(6, plans=1)
        shifted = replace(pool, psi=pool.psi + 0.1 * np.random.default_rng(0).random((*pool.psi.shape[:3], 1, 3)))
        one, other = density_of(pool), density_of(shifted)
        x = somewhere(one)
        assert other(x)[0] == pytest.approx(one(x)[0], abs=1e-3)

    def test_padding_and_order_of_episodes(self):
        pool = pool_of(7)
        longer = pool.batch.padded(pool.batch.horizon + 3)
        psi = np.pad(pool.psi, ((0, 0), (0, 0), (0, 3), (0, 0), (0, 0)))
        psi[:, ~longer.mask] = np.nan
        one, other = Decisions.of(pool), Decisions.of(PlanPool(longer, psi, pool.contexts))
        for name, value in vars(one).items():
            np.testing.assert_array_equal(getattr(other, name), value, err_msg=name)
        assert one.psi.shape == (3, 3, 3, pool.batch.n_steps)
        assert one.forbidden.shape == (3, pool.batch.n_steps)
        order = np.random.default_rng(0).permutation(len(pool.batch))
        moved = density_of(pool.take(order))
        x = somewhere(moved)
        assert moved(x)[0] == pytest.approx(density_of(pool)(x)[0], abs=1e-4)
        np.testing.assert_allclose(moved.information(x)[1], density_of(pool).information(x)[1], atol=1e-6)

    def test_masks_that_forbid_nothing(self):
        pool = pool_of(8, forbid=False)
        full = replace(pool.batch, allowed=np.ones((*pool.batch.actions.shape, 3), dtype=bool))
        one, other = density_of(pool), density_of(replace(pool, batch=full))
        x = somewhere(one)
        assert other(x)[0] == one(x)[0]


class TestPruned:
    def test_plans_that_are_never_best_go_and_nothing_changes(self):
        pool = drawn_pool([-40.0, 30.0], plans=1, patients=20)
        many = pool.extended(np.concatenate([pool.psi, pool.psi - 0.5 * np.array([-1.0, 1.0])]))
        density = density_of(many, [-1, 1])
        peak, covariance = density.peak()
        few = density.pruned(peak, covariance, np.random.default_rng(0))
        assert few.decisions.psi.shape[1] == 1
        for at in np.random.default_rng(1).multivariate_normal(peak, covariance, size=5):
            assert few(at)[0] == density(at)[0]

    def test_what_is_lost_is_far_below_what_is_unknown(self):
        density = density_of(drawn_pool([-40.0, 30.0], plans=30, patients=60, seed=2), [-1, 1])
        peak, covariance = density.peak()
        few = density.pruned(peak, covariance, np.random.default_rng(0))
        assert few.decisions.psi.shape[1] <= 6
        at = np.random.default_rng(1).multivariate_normal(peak, covariance, size=50)
        lost = np.array([density(x)[0] - few(x)[0] for x in at])
        # A constant means nothing; what varies, in units in which the posterior varies by about 1.
        assert lost.std() < 0.1
        np.testing.assert_allclose(few.peak()[0], peak, atol=0.2 * np.sqrt(np.diag(covariance)).min())


class TestPatientsPower:
    @staticmethod
    def power(pool: PlanPool) -> float:
        density = density_of(pool)
        return patients_power(density, density.peak()[0])

    @staticmethod
    def drawn(**changes) -> PlanPool:
        return drawn_pool([-40.0, 30.0, 20.0], habit=HABITS[:3, :2], patients=150, **changes)

    def test_decisions_that_do_not_depend_on_each_other_count_in_full(self):
        assert self.power(self.drawn()) > 0.85

    def test_copies_count_once(self):
        pool = self.drawn()
        once, rows = self.power(pool), np.repeat(np.arange(150), 5)
        copied = replace(pool.batch.resampled(rows), groups=tuple(pool.batch.groups[i] for i in rows))
        found = self.power(PlanPool(copied, pool.psi[:, rows], pool.contexts))
        assert found == pytest.approx(once / 5, rel=0.25)

    def test_patients_with_tastes_of_their_own_count_for_less(self):
        pool = self.drawn(steps=30)
        # A quarter weigh outcomes the other way round: 30 decisions of one patient say little more than what he is.
        turned = drawn_pool([40.0, -30.0, -20.0], habit=HABITS[:3, :2], patients=50, steps=30, seed=5)
        other = replace(turned.batch, ids=tuple(f"t{name}" for name in turned.batch.ids), groups=())
        order = np.argsort(np.array([*pool.batch.ids, *other.ids]), kind="stable")
        psi = np.concatenate([pool.psi, turned.psi], axis=1)[:, order]
        mixed = PlanPool(Batch.together([pool.batch, other]), psi, pool.contexts)
        assert self.power(mixed) < 0.5 * self.power(pool)

    def test_one_patient_alone_says_nothing_of_patients(self):
        pool = self.drawn()
        assert self.power(replace(pool, batch=replace(pool.batch, groups=("p",) * 150))) == 1.0
