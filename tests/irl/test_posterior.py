"""Posterior of weights, kappa and habits: against integration, the prior, known truths, copied rows; and its report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from posteriors import drawn_pool, known_posterior, posterior_like
from scipy.stats import betaprime, norm
from small_batches import batch_of

from cirl_gym.data.habits import Contexts
from irl.preferences.choice import KAPPA
from irl.preferences.likelihood import NO_CONTEXTS, PlanPool
from irl.preferences.posterior import (
    MOST,
    PosteriorResult,
    SamplerReport,
    convergence,
    normal_posterior,
    sample_posterior,
    with_model_spread,
)

HABITS = np.array([[0.5, -0.5], [1.2, -1.2], [-0.8, 0.8]])
THETA = np.array([-30.0, 40.0, 15.0])
SIGNS = np.array([-1.0, 1.0, 0.0])
FREE = np.zeros(2)


def sampled(pool: PlanPool, signs=SIGNS, seed: int = 0) -> PosteriorResult:
    return sample_posterior(pool, signs, np.random.default_rng(seed))


def near(pool: PlanPool, signs=SIGNS, draws: int = 4000) -> PosteriorResult:
    return normal_posterior(pool, signs, draws, np.random.default_rng(1))


@pytest.fixture(scope="module")
def pool() -> PlanPool:
    """1200 decisions of 100 patients that depend on outcomes and on the action before."""
    return drawn_pool(THETA, habit=HABITS, patients=100, steps=12, plans=2, seed=5)


@pytest.fixture(scope="module")
def found(pool) -> PosteriorResult:
    return sampled(pool)


def test_the_truth_comes_back_with_its_habits(found):
    weights, kappa = THETA / np.abs(THETA).sum(), np.abs(THETA).sum()
    assert (found.low <= weights).all()
    assert (weights <= found.high).all()
    assert (found.high - found.low < 0.25).all()
    np.testing.assert_allclose(found.median, weights, atol=0.07)
    low, high = np.quantile(found.kappa_draws, (0.005, 0.995))
    assert low < kappa < high
    logits = found.logits - found.logits.mean(axis=2, keepdims=True)
    low, high = np.quantile(logits, [0.005, 0.995], axis=0)
    assert (low < HABITS).all()
    assert (high > HABITS).all()
    assert (high - low < 1.0).all()
    np.testing.assert_allclose(found.habit.logits, logits.mean(axis=0), atol=1e-9)
    assert found.habit.contexts == found.contexts
    assert found.sampler.converged
    assert found.sampler.r_hat.shape == found.sampler.effective.shape == (4,)
    assert 0.5 < found.sampler.power <= 1
    assert (found.draws[:, 0] < 0).all()
    assert (found.draws[:, 1] > 0).all()


def test_where_much_is_known_it_is_nearly_normal(pool, found):
    normal = near(pool)
    width = found.high - found.low
    for name in ("median", "low", "high", "mean"):
        np.testing.assert_array_less(np.abs(getattr(normal, name) - getattr(found, name)), 0.15 * width, err_msg=name)
    np.testing.assert_allclose(normal.habit.logits, found.habit.logits, atol=0.1)
    assert normal.sampler.power == pytest.approx(found.sampler.power)


def test_intervals_hold_the_truth_as_often_as_they_say():
    weights, runs, hits = THETA / np.abs(THETA).sum(), 40, np.zeros(3)
    for seed in range(runs):
        result = near(drawn_pool(THETA, patients=30, seed=1000 + seed), np.zeros(3), 500)
        hits += (result.low <= weights) & (weights <= result.high)
    # Of 120, 108 are to be expected; those of one run are not independent.
    assert 0.84 < hits.sum() / (3 * runs) < 0.96


@pytest.mark.parametrize("signs", [[-1, -1], [0, 0]])
def test_it_agrees_with_integration(signs):
    # Two outcomes, two actions, no habits: the density is known at every point of a plane.
    pool = drawn_pool([-20.0, -30.0], patients=12, steps=5, scale=0.02, seed=7)
    result = sampled(pool, signs, 1)
    edge = (np.arange(250) + 0.5) / 250 * 350
    axes = [-edge if sign else np.concatenate([-edge[::-1], edge]) for sign in signs]
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    psi, taken = pool.psi[0][pool.batch.mask], pool.batch.actions.ravel()
    ahead = (psi[:, 1] - psi[:, 0]) * np.where(taken == 1, 1.0, -1.0)[:, None]
    log_density = -3 * np.log1p(np.abs(theta).sum(axis=1) / (KAPPA * (np.sqrt(2) - 1)))
    for row in ahead:
        log_density -= result.sampler.power * np.logaddexp(0, -theta @ row)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    kappa = np.abs(theta).sum(axis=1)
    first = theta[:, 0] / kappa
    for values, drawn, effective in (
        (first, result.draws[:, 0], result.sampler.effective[0]),
        (kappa, result.kappa_draws, result.sampler.effective[2]),
    ):
        exact = np.sqrt(density @ (values - density @ values) ** 2)
        assert drawn.mean() == pytest.approx(density @ values, abs=4 * exact / np.sqrt(effective))
        assert drawn.std() == pytest.approx(exact, rel=0.12)
    assert (result.draws[:, 0] < -0.5).mean() == pytest.approx(density @ (first < -0.5), abs=0.06)
    assert result.logits.shape == (len(result.theta), 0, 2)
    assert result.habit is None


def test_decisions_that_say_nothing_leave_the_prior():
    batch = batch_of(*[[0, 1]] * 5, d=3)
    pool = PlanPool(batch, np.zeros((1, 5, 2, 2, 3)))
    result = sampled(pool, [-1, 1, -1])
    assert (np.sign(result.draws) == [-1, 1, -1]).all()
    # Uniform on the simplex of three: means 1/3, P(|w_i| > .5) = 1/4.
    # Kappa apart from it: beta-prime of 3 and 1, median 100.
    np.testing.assert_allclose(np.abs(result.draws).mean(axis=0), 1 / 3, atol=0.04)
    np.testing.assert_allclose((np.abs(result.draws) > 0.5).mean(axis=0), 0.25, atol=0.06)
    quantiles = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    ends = betaprime.ppf(quantiles, 3, 1, scale=KAPPA * (2 ** (1 / 3) - 1))
    np.testing.assert_allclose((result.kappa_draws[:, None] < ends).mean(axis=0), quantiles, atol=0.06)
    assert abs(np.corrcoef(np.abs(result.draws[:, 0]), np.log(result.kappa_draws))[0, 1]) < 0.15
    assert np.abs(result.theta_mean).sum() > 20, "known signs alone make a direction"


def test_experts_who_toss_coins_have_no_weights():
    result = sampled(drawn_pool(np.zeros(3), habit=np.zeros((3, 2)), patients=60, seed=2), np.zeros(3))
    assert (result.low < 0).all()
    assert (result.high > 0).all()
    assert result.kappa_interval[1] < 30
    assert np.abs(result.habit.logits).max() < 0.4


@pytest.mark.parametrize(("sign", "truth"), [(-1.0, -60.0), (0.0, 60.0)])
def test_a_single_outcome_has_a_sign_alone(sign, truth):
    result = sampled(drawn_pool([truth], habit=HABITS, patients=60, seed=4), [sign])
    np.testing.assert_array_equal(result.draws, np.full((len(result.theta), 1), np.sign(truth)))
    assert result.intervals == ((np.sign(truth),) * 2,)
    assert result.mean == [np.sign(truth)]
    assert result.kappa_interval[0] < 60 < result.kappa_interval[1]
    assert result.sampler.r_hat[0] == 1
    assert result.sampler.converged


def test_copied_decisions_do_not_narrow_an_interval():
    # Every stay of every patient four times: nothing was learnt, though a likelihood would believe in four times more.
    pool = drawn_pool(THETA, habit=HABITS, patients=40, seed=6)
    rows = np.repeat(np.arange(40), 4)
    copied = PlanPool(pool.batch.resampled(rows), pool.psi[:, rows], pool.contexts)
    once, again = near(pool), near(copied)
    width = once.high - once.low
    np.testing.assert_allclose(again.high - again.low, width, rtol=0.25)
    np.testing.assert_array_less(np.abs(again.median - once.median), 0.15 * width)
    strangers = near(replace(copied, batch=replace(copied.batch, groups=())))
    assert (strangers.high - strangers.low < 0.7 * width).all(), "as if they were other patients"


def test_draws_depend_on_the_generator_alone():
    pool, state = drawn_pool([-30.0, 20.0], patients=20), np.random.get_state()[1].copy()  # noqa: NPY002
    results = []
    for seed in (7, 7, 8):
        results.append(sample_posterior(pool, [0, 0], np.random.default_rng(seed), 50))
        np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert results[0].theta.tobytes() == results[1].theta.tobytes()
    assert not np.array_equal(results[0].theta, results[2].theta)
    assert len(results[0].theta) == MOST
    assert len(sample_posterior(pool, [0, 0], np.random.default_rng(7), 5).theta) < MOST


class TestConvergence:
    def test_chains_that_agree_and_chains_that_do_not(self):
        rng = np.random.default_rng(0)
        theta = np.array([-3.0, 5.0]) + rng.standard_normal((4, 500, 2)) * [0.3, 0.3]
        r_hat, effective = convergence(theta)
        assert r_hat.shape == effective.shape == (3,)
        assert r_hat.max() < 1.01
        assert (effective > 1500).all()
        apart = theta.copy()
        apart[0, :, 0] -= 1.0
        assert convergence(apart)[0].min() > 1.1
        assert not SamplerReport(*convergence(apart), 1.0).converged
        # Twice as large and in the same direction: kappa alone is unclear.
        longer = theta * np.array([1.0, 1.0, 1.0, 2.0])[:, None, None]
        r_hat, _ = convergence(longer)
        assert r_hat[2] > 1.5
        assert (r_hat[:2] < 1.02).all()

    def test_draws_that_follow_each_other_count_for_less(self):
        # x_t = .8 x_{t-1} + noise: (1 + .8) / (1 - .8) = 9 draws are worth one.
        noise = np.random.default_rng(1).standard_normal((4, 2000))
        x = noise.copy()
        for t in range(1, 2000):
            x[:, t] += 0.8 * x[:, t - 1]
        theta = np.stack([-50.0 + x, np.full_like(x, -50.0)], axis=-1)
        _, effective = convergence(theta)
        np.testing.assert_allclose(effective, 8000 / 9, rtol=0.25)

    def test_what_cannot_vary_has_converged(self):
        theta = -1.0 - np.random.default_rng(2).random((4, 100, 1))
        r_hat, effective = convergence(theta)
        assert (r_hat[0], effective[0]) == (1.0, 400.0)

    def test_chains_that_never_moved_have_not_and_lost_ones_are_refused(self):
        r_hat, effective = convergence(np.full((4, 100, 2), -1.0))
        assert not SamplerReport(r_hat, effective, 1.0).converged
        for lost in (0.0, np.nan, np.inf):
            with pytest.raises(ValueError, match="the sampler has lost its way"):
                convergence(np.full((4, 100, 2), lost))

    @pytest.mark.parametrize(
        ("r_hat", "effective", "converged"),
        [(1.01, 400.0, True), (1.011, 400.0, False), (1.01, 399.0, False), (1.0, np.nan, False), (np.nan, 900, False)],
    )
    def test_the_limits(self, r_hat, effective, converged):
        report = SamplerReport(np.array([1.0, r_hat]), np.array([effective, 1000.0]), 1.0)
        assert report.converged is converged


class TestResult:
    def test_every_number_by_hand(self):
        contexts = Contexts(("ward",), (("A",),))
        logits = np.array([[[1.0, -1.0]], [[0.0, 0.0]], [[2.0, -2.0]]])
        result = known_posterior([[-0.5, 0.5], [-0.2, 0.8], [-0.8, -0.2]], [10.0, 20.0, 30.0], logits, contexts)
        np.testing.assert_allclose(result.kappa_draws, [10, 20, 30])
        np.testing.assert_allclose(result.draws, [[-0.5, 0.5], [-0.2, 0.8], [-0.8, -0.2]])
        np.testing.assert_allclose(result.median, [-0.5, 0.5])
        np.testing.assert_allclose(result.theta_mean, [-33 / 3, 15 / 3])
        np.testing.assert_allclose(result.mean, [-11 / 16, 5 / 16])
        assert result.kappa_mean == 20
        assert result.kappa_interval == (11, 29)
        assert result.intervals[0] == pytest.approx((-0.77, -0.23))
        np.testing.assert_allclose(result.habit.logits, [[1.0, -1.0]])
        theta, kept = result.thinned(2)
        np.testing.assert_allclose(theta, [[-5, 5], [-24, -6]])
        np.testing.assert_array_equal(kept, logits[[0, 2]])
        assert len(result.thinned(99)[0]) == 3

    @settings(max_examples=50, deadline=None)
    @given(seed=st.integers(0, 10_000), draws=st.integers(1, 40), d=st.integers(1, 4))
    def test_medians_lie_in_their_intervals_and_sizes_add_up(self, seed, draws, d):
        theta = np.random.default_rng(seed).standard_cauchy((draws, d))
        report = SamplerReport(np.ones(d + 1), np.ones(d + 1), 1.0)
        result = PosteriorResult(theta, np.zeros((draws, 0, 2)), NO_CONTEXTS, report, np.zeros(d))
        assert (result.low <= result.median).all()
        assert (result.median <= result.high).all()
        np.testing.assert_allclose(np.abs(result.draws).sum(axis=1), 1)
        np.testing.assert_allclose(result.draws * result.kappa_draws[:, None], theta)
        assert np.abs(result.mean).sum() == pytest.approx(1)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"theta": np.ones(3)}, r"theta must be \[M, d\]"),
            ({"theta": np.ones((0, 2)), "logits": np.zeros((0, 0, 2))}, r"theta must be \[M, d\]"),
            ({"logits": np.zeros((3, 1, 2))}, r"logits \[M, 0, A\]"),
            ({"logits": np.zeros((2, 0, 2))}, r"logits \[M, 0, A\]"),
            ({"theta": np.full((3, 2), np.nan)}, "a draw is not finite"),
            ({"theta": np.zeros((3, 2))}, "a draw of theta is zero"),
            ({"signs": np.zeros(3)}, r"signs must be \[d\]"),
            ({"worlds": 2}, "as many of each world"),
            ({"worlds": 0}, "as many of each world"),
        ],
    )
    def test_bad_input(self, change, message):
        values = {"theta": np.ones((3, 2)), "logits": np.zeros((3, 0, 2)), "contexts": NO_CONTEXTS, "signs": FREE}
        with pytest.raises(ValueError, match=message):
            PosteriorResult(**values | change, sampler=SamplerReport(np.ones(3), np.ones(3), 1.0))


@pytest.mark.parametrize(("signs", "message"), [([0, 0], "signs must be 3 numbers, got 2"), ([0, 2, 0], "signs")])
def test_signs_must_fit(pool, signs, message):
    for find in (sampled, lambda pool, signs: normal_posterior(pool, signs, 5, np.random.default_rng(0))):
        with pytest.raises(ValueError, match=message):
            find(pool, signs)


def test_members_of_an_ensemble_have_equal_shares():
    whole = posterior_like([-0.3, -0.7], 0.01, kappa=100)
    assert with_model_spread(whole, []) is whole
    alike = with_model_spread(whole, [whole] * 2)
    np.testing.assert_allclose([alike.low, alike.high], [whole.low, whole.high], atol=1e-3)
    np.testing.assert_allclose(alike.mean, whole.mean, atol=1e-9)
    # Thirds around -.4, -.3 and -.2: of the 95 % points of Student's t of 2 degrees and of the normal 1.7752, times
    # 3 / 2, times the root of 1 + 2 / 9, puts them 2.944 times as far apart. The 5 % point of all is the 15 % point of
    # the one around -.5944, 1.036 deviations below.
    members = [posterior_like([-0.4, -0.6], 0.01, kappa=100), posterior_like([-0.2, -0.8], 0.01, kappa=100)]
    for ordered in (members, members[::-1]):
        wider = with_model_spread(whole, ordered)
        assert (wider.low[0], wider.high[0]) == pytest.approx((-0.60476, 0.00475), abs=0.001)
        assert wider.mean == pytest.approx(whole.mean, abs=1e-6)
        assert len(wider.theta) == len(wider.logits) == len(wider.draws) == 3 * 4000
        assert wider.theta[:, 0].min() > -50, "what is foreseen is by what each says"
        assert wider.kappa_mean == pytest.approx(100)
    few = known_posterior(members[0].draws[:100], np.full(100, 100.0))
    assert len(with_model_spread(whole, [few]).theta) == 2 * 100, "as many of each"
    every = with_model_spread(with_model_spread(few, [few, few]), [few])
    assert (every.worlds, len(every.theta)) == (4, 4 * 100), "a mixture counts as so many worlds as it is of"
    bad = replace(few, sampler=SamplerReport(np.array([1.0, 1.3, 1.0]), np.array([500.0, 20.0, 500.0]), 0.3))
    report = with_model_spread(whole, [bad]).sampler
    np.testing.assert_array_equal(report.r_hat, [1.0, 1.3, 1.0])
    np.testing.assert_array_equal(report.effective, [500.0, 20.0, 500.0])
    assert report.power == 1.0


def test_members_are_put_apart_so_that_intervals_hold():
    # A world errs by .01, members by as much around it, and decisions leave half of it open: intervals hold the truth.
    rng, within = np.random.default_rng(0), 0.005 * norm.ppf((np.arange(40) + 0.5) / 40)
    for worlds in (3, 4):
        held = []
        for _ in range(600):
            middle = 0.01 * rng.standard_normal()
            centres = np.array([middle, *(middle + 0.01 * rng.standard_normal(worlds - 1))])
            shifts = 0.5 + centres[:, None] + 0.005 * rng.standard_normal() + within
            each = [known_posterior(np.stack([1 - one, one], axis=1), np.exp(50 * one)) for one in shifts]
            found = with_model_spread(each[0], each[1:])
            low, high = found.kappa_interval
            held.append([found.low[1] <= 0.5 <= found.high[1], low <= np.exp(25) <= high])
        assert np.mean(held, axis=0) == pytest.approx([0.89, 0.89], abs=0.03)


def test_habits_are_put_apart():
    contexts, zero = Contexts(("ward",), (("A",),)), np.zeros((2, 1, 2))
    each = [known_posterior(np.ones((2, 1)), np.ones(2), zero + logit, contexts) for logit in (1.0, 2.0, 3.0)]
    found = with_model_spread(each[0], each[1:])
    np.testing.assert_allclose(found.habit_draws[::2, 0, 0], [2 - 2.9439, 2, 2 + 2.9439], rtol=1e-4)
    np.testing.assert_allclose(found.habit.logits, 2)


def test_a_known_sign_stays_however_far_members_are_put_apart():
    # Sizes 1 / 2, 2 / 3 and 4 / 5, and so their logarithms from -.69 to -.22, are 2.944 times as far apart.
    signs, sizes = np.array([-1.0, 1.0]), np.array([1.0, 2.0, 4.0])
    three = [known_posterior(np.array([[-size, 1.0]] * 2), np.full(2, 1 + size), signs=signs) for size in sizes]
    found = with_model_spread(three[0], three[1:])
    logs = np.log(np.stack([sizes, np.ones(3)], axis=1) / (1 + sizes[:, None]))
    apart = np.exp(logs.mean(axis=0) + 2.94390 * (logs - logs.mean(axis=0))) * signs
    np.testing.assert_allclose(found.draws[::2], apart / np.abs(apart).sum(axis=1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(found.theta[::2], [[-1, 1], [-2, 1], [-4, 1]])
