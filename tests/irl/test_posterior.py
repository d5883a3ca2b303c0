"""Posterior of the weights: against integration, a finer grid, drawn priors, and copied rows."""

from __future__ import annotations

import five_states
import numpy as np
import pytest

from irl.preferences.likelihood import bootstrap_weights
from irl.preferences.posterior import chain_report, grid_posterior, sample_posterior

TRUTH = np.array([-0.3, -0.7])


def on_grid(problem, signs, **options):
    return grid_posterior(problem, signs, np.random.default_rng(0), **options)


class OneState:
    """One state, two actions, psi = (0, 0) and (1, -.4): P(treat) = sigmoid(kappa w . (1, -.4)), 14 of 40 treated."""

    psi = np.array([1.0, -0.4])
    treated, left_alone = 14, 26
    sign = np.repeat([1.0, -1.0], [14, 26])

    def __call__(self, w, kappas):
        return -np.logaddexp(0, -np.outer(kappas * (w @ self.psi), self.sign))

    def many(self, ws, kappas):
        return -np.logaddexp(0, -np.outer(kappas * (ws @ self.psi), self.sign)).sum(axis=1)

    def expectations(self, low, high):
        """Means of |w_1|, kappa and [|w_1| < .45] by numerical integration over |w_1| and log kappa."""

        u = (np.arange(2000)[:, None] + 0.5) / 2000
        kappa = np.exp(np.log(low) + np.log(high / low) * (np.arange(2000) + 0.5) / 2000)
        gap = kappa * (-u + 0.4 * (1 - u))
        density = np.exp(-self.treated * np.logaddexp(0, -gap) - self.left_alone * np.logaddexp(0, gap))
        return tuple(float((value * density).sum() / density.sum()) for value in (u, kappa, u < 0.45))


def test_the_grid_agrees_with_numerical_integration():
    problem = OneState()
    mean, kappa, below = problem.expectations(0.5, 50.0)
    result = on_grid(problem, [-1, -1], kappa_range=(0.5, 50.0), kappa_points=60)
    np.testing.assert_allclose(result.mean, [-mean, mean - 1], atol=5e-4)
    assert result.concentration == pytest.approx(1.0)
    assert result.kappa_mean == pytest.approx(kappa, rel=5e-3)
    assert (result.draws[:, 0] > -0.45).mean() == pytest.approx(below, abs=0.02)
    np.testing.assert_allclose(np.abs(result.draws).sum(axis=1), 1.0)
    np.testing.assert_allclose(np.quantile(result.draws, [0.05, 0.95], axis=0), [result.low, result.high], atol=0.02)
    np.testing.assert_allclose(
        np.quantile(result.kappa_draws, [0.05, 0.95]), [result.kappa_low, result.kappa_high], rtol=0.1
    )
    # The best fit treats in 14 of 40 cases.
    gap = result.best_kappa * (result.best @ problem.psi)
    assert 1 / (1 + np.exp(-gap)) == pytest.approx(14 / 40, abs=0.01)
    highest = 14 * np.log(14 / 40) + 26 * np.log(26 / 40)
    assert highest - 0.01 < result.best_log_likelihood <= highest


def test_the_sampler_agrees_with_numerical_integration_and_the_grid():
    problem = OneState()
    mean, kappa, below = problem.expectations(0.5, 50.0)
    arguments = {"kappa_range": (0.5, 50.0), "budget": 80_000, "walkers": 128}
    result = sample_posterior(problem.many, [-1, -1], np.random.default_rng(1), **arguments)
    assert result.sampler is not None
    assert result.sampler.effective.min() > 300
    error = result.draws[:, 0].std() / np.sqrt(result.sampler.effective[0])
    assert result.mean[0] == pytest.approx(-mean, abs=4 * error)
    error = result.kappa_draws.std() / np.sqrt(result.sampler.effective[2])
    assert result.kappa_mean == pytest.approx(kappa, abs=4 * error)
    assert (result.draws[:, 0] > -0.45).mean() == pytest.approx(below, abs=0.04)
    grid = on_grid(problem, [-1, -1], kappa_range=(0.5, 50.0), kappa_points=60)
    np.testing.assert_allclose(result.mean, grid.mean, atol=0.02)
    np.testing.assert_allclose(result.median, grid.median, atol=0.03)
    np.testing.assert_allclose([result.low, result.high], [grid.low, grid.high], atol=0.05)


class FiveStates:
    """The exact likelihood of episodes of the five-state patient."""

    def __init__(self, expert, episodes, seed, *, order=(0, 1), actions=(0, 1), copies=1):
        batch = five_states.play(expert, episodes, 8, np.random.default_rng(seed))
        states, taken = five_states.states_of(batch), batch.actions
        self.counts = np.zeros((episodes, 5, 2))
        np.add.at(self.counts, (np.arange(episodes)[:, None], states, taken), copies)
        self.counts = self.counts[..., list(actions)]
        self.order, self.actions = list(order), list(actions)
        self.cache = {}

    def __call__(self, w, kappas):
        key = w.tobytes()
        if key not in self.cache:
            self.cache[key] = five_states.optimal_q(w[self.order])[:, self.actions]
        z = kappas[:, None, None] * self.cache[key]
        log_p = z - np.logaddexp(z[..., :1], z[..., 1:])
        return np.einsum("gsa,ksa->kg", self.counts, log_p)


EXPERT = five_states.softmax_expert(TRUTH, 8.0)


def test_the_truth_comes_back_in_an_exact_world():
    result = on_grid(FiveStates(EXPERT, 300, 0), [0, 0], points=40, refinements=1)
    assert (result.low <= TRUTH).all()
    assert (result.high >= TRUTH).all()
    np.testing.assert_allclose(result.mean, TRUTH, atol=0.05)
    np.testing.assert_allclose(result.median, TRUTH, atol=0.05)
    assert (result.high - result.low < 0.2).all()
    assert result.concentration > 0.99
    assert result.kappa_low < 8 < result.kappa_high
    assert np.abs(result.mean).sum() == pytest.approx(1.0)
    assert np.abs(result.median).sum() == pytest.approx(1.0)


def test_refinement_finds_what_a_fine_grid_finds():
    problem = FiveStates(EXPERT, 3000, 1)
    problem.counts = problem.counts.sum(axis=0, keepdims=True)
    coarse = on_grid(problem, [-1, -1], points=25, kappa_points=20)
    fine = on_grid(problem, [-1, -1], points=500, kappa_points=600, refinements=0)
    assert (fine.high - fine.low)[0] < 0.04, "narrower than a cell of the coarse grid"
    np.testing.assert_allclose(coarse.mean, fine.mean, atol=1e-3)
    np.testing.assert_allclose([coarse.low, coarse.high], [fine.low, fine.high], atol=2e-3)
    assert coarse.kappa_mean == pytest.approx(fine.kappa_mean, rel=2e-3)
    assert coarse.kappa_low == pytest.approx(fine.kappa_low, rel=5e-3)


def test_order_of_features_and_names_of_actions_do_not_matter():
    arguments = {"points": 20, "kappa_points": 10, "refinements": 1}
    plain = on_grid(FiveStates(EXPERT, 100, 2), [0, -1], **arguments)
    swapped = on_grid(FiveStates(EXPERT, 100, 2, order=(1, 0)), [-1, 0], **arguments)
    np.testing.assert_allclose(swapped.mean[::-1], plain.mean, atol=1e-6)
    np.testing.assert_allclose(swapped.low[::-1], plain.low, atol=1e-6)
    renamed = on_grid(FiveStates(EXPERT, 100, 2, actions=(1, 0)), [0, -1], **arguments)
    np.testing.assert_allclose(renamed.mean, plain.mean, atol=1e-9)
    assert renamed.kappa_mean == pytest.approx(plain.kappa_mean)


def test_a_random_expert_has_no_weights():
    coin = np.full((5, 2), 0.5)
    arguments = {"points": 20, "kappa_points": 12, "refinements": 1, "kappa_range": (0.01, 100.0)}
    result = on_grid(FiveStates(coin, 300, 3), [0, 0], **arguments)
    assert (result.high - result.low > 1).all()
    assert result.concentration < 0.7
    assert result.kappa_mean < 1.0


def test_copied_rows_do_not_fool_the_bootstrap():
    # Every row of every patient nine times: nothing was learnt, but a likelihood believes in nine times the data.
    arguments = {"points": 40, "kappa_points": 12}
    weights = bootstrap_weights(150, 200, np.random.default_rng(0))
    once = FiveStates(EXPERT, 150, 5)
    copied = FiveStates(EXPERT, 150, 5, copies=9)
    honest = on_grid(once, [-1, -1], **arguments)
    fooled = on_grid(copied, [-1, -1], **arguments)
    saved = on_grid(copied, [-1, -1], group_weights=weights, **arguments)
    width, narrow, wide = ((r.high - r.low)[0] for r in (honest, fooled, saved))
    assert narrow == pytest.approx(width / 3, rel=0.3)
    assert wide == pytest.approx(width, rel=0.35)
    assert saved.bootstrap.shape == (200, 2)
    np.testing.assert_allclose(np.abs(saved.bootstrap).sum(axis=1), 1.0)
    np.testing.assert_allclose(saved.mean, fooled.mean, atol=5e-3)


def test_refinement_keeps_what_matters_to_the_bootstrap_alone():
    # A dozen patients, each row 200 times: the posterior is a needle, the bootstrap means lie far around it.
    weights = bootstrap_weights(12, 100, np.random.default_rng(1))
    problem = FiveStates(EXPERT, 12, 6, copies=200)
    arguments = {"kappa_range": (1.0, 100.0), "group_weights": weights}
    refined = on_grid(problem, [-1, -1], points=30, kappa_points=20, **arguments)
    fine = on_grid(problem, [-1, -1], points=300, kappa_points=100, refinements=0, **arguments)
    posterior = np.quantile(fine.draws[:, 0], [0.05, 0.95])
    assert fine.high[0] - fine.low[0] > 3 * (posterior[1] - posterior[0])
    np.testing.assert_allclose([refined.low, refined.high], [fine.low, fine.high], atol=0.02)


def linear_logistic(d, n, seed, kappa=20.0):
    rng = np.random.default_rng(seed)
    psi = 0.3 * rng.normal(size=(n, d))
    w = -np.arange(1, d + 1) / np.arange(1, d + 1).sum()
    treated = rng.random(n) < 1 / (1 + np.exp(-kappa * psi @ w))
    signed = np.where(treated, 1.0, -1.0)[:, None] * psi
    return lambda ws, kappas: -np.logaddexp(0, -kappas[:, None] * (ws @ signed.T)).sum(axis=1)


@pytest.mark.parametrize("signs", [[-1, -1, -1], [0, 0, 0]])
def test_the_sampler_in_three_dimensions_agrees_with_weighted_prior_draws(signs):
    target = linear_logistic(3, 60, 0)
    rng = np.random.default_rng(9)
    v = rng.standard_exponential((200_000, 3)) * np.where(
        np.array(signs) == 0, rng.choice([-1.0, 1.0], (200_000, 3)), signs
    )
    w, kappas = v / np.abs(v).sum(axis=1, keepdims=True), np.exp(rng.uniform(np.log(2), np.log(200), 200_000))
    log_weight = np.concatenate([target(w[i : i + 5000], kappas[i : i + 5000]) for i in range(0, 200_000, 5000)])
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    rng = np.random.default_rng(0)
    result = sample_posterior(target, signs, rng, kappa_range=(2.0, 200.0), budget=60_000, walkers=128)
    np.testing.assert_allclose(result.draws.mean(axis=0), weight @ w, atol=0.02)
    np.testing.assert_allclose(result.draws.std(axis=0), np.sqrt(weight @ (w - weight @ w) ** 2), rtol=0.15)
    assert np.log(result.kappa_draws).mean() == pytest.approx(weight @ np.log(kappas), abs=0.05)
    assert np.abs(result.mean).sum() == pytest.approx(1.0)
    assert result.best_log_likelihood >= log_weight.max() - 0.1


def test_the_sampler_without_data_returns_the_prior_and_one_feature_has_one_weight():
    result = sample_posterior(
        lambda ws, kappas: np.zeros(len(ws)), [-1, 1, 0], np.random.default_rng(0), budget=80_000, walkers=128
    )
    # Uniform on the simplex of three: means 1/3, P(|w_i| > .5) = 1/4; log kappa uniform over (log .01, log 1000).
    np.testing.assert_allclose(np.abs(result.draws).mean(axis=0), 1 / 3, atol=0.03)
    np.testing.assert_allclose((np.abs(result.draws) > 0.5).mean(axis=0), 0.25, atol=0.04)
    assert (result.draws[:, 0] <= 0).all()
    assert (result.draws[:, 1] >= 0).all()
    assert np.log(result.kappa_draws).mean() == pytest.approx(np.log(10) / 2, abs=0.3)
    result = sample_posterior(linear_logistic(1, 50, 0), [-1], np.random.default_rng(0), budget=2000)
    np.testing.assert_array_equal([result.mean, result.low, result.high], [[-1.0]] * 3)
    assert np.isfinite(result.sampler.effective).all()


def test_autocorrelation_times():
    # x_t = .8 x_{t-1} + noise has the time (1 + .8)/(1 - .8) = 9; independent numbers have 1.
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4000, 20))
    x = np.zeros_like(noise)
    for t in range(1, len(x)):
        x[t] = 0.8 * x[t - 1] + noise[t]
    result = chain_report(np.stack([x, noise, np.ones_like(x)], axis=2), 0.3, 5)
    np.testing.assert_allclose(result.autocorrelation, [9, 1, 1], rtol=0.1)
    np.testing.assert_allclose(result.effective, 80_000 / result.autocorrelation)
    assert (result.acceptance, result.evaluations, result.steps) == (0.3, 5, 4000)
    assert result.long_enough
    # Walkers that do not move are as many draws as there are walkers, at most.
    stuck = chain_report(np.broadcast_to(rng.normal(size=20), (4000, 20))[..., None], 0.0, 5)
    assert stuck.effective[0] <= 40
    assert not stuck.long_enough


def test_the_sampler_reports_honestly():
    calls = []
    target = linear_logistic(4, 500, 1)

    def counted(ws, kappas):
        calls.append(len(ws))
        return target(ws, kappas)

    result = sample_posterior(counted, np.full(4, -1), np.random.default_rng(0), budget=5000)
    report = result.sampler
    assert report.evaluations == sum(calls) <= 5000
    assert max(calls) <= 32
    assert len(result.draws) == report.steps * 32
    assert 0.05 < report.acceptance < 0.9
    assert report.autocorrelation.shape == report.effective.shape == (5,)
    np.testing.assert_allclose(report.effective * report.autocorrelation, len(result.draws))
    assert not report.long_enough, "a few dozen steps are not 50 autocorrelation times"


def test_draws_depend_on_the_generator_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    target = linear_logistic(3, 50, 0)
    results = []
    for seed in (7, 7, 8):
        results.append(sample_posterior(target, np.full(3, -1), np.random.default_rng(seed), budget=2000))
        np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        state = np.random.get_state()[1].copy()  # noqa: NPY002
    np.testing.assert_array_equal(results[0].draws, results[1].draws)
    assert not np.array_equal(results[0].draws, results[2].draws)
    grids = [grid_posterior(OneState(), [0, 0], np.random.default_rng(3), points=10) for _ in range(2)]
    np.testing.assert_array_equal(grids[0].draws, grids[1].draws)


GRID = {"log_likelihood": OneState(), "points": 5}
GRID_FAULTS = (
    ({"signs": [-1, -1, -1]}, "two features and 2 points"),
    ({"points": 1}, "two features and 2 points"),
    ({"kappa_range": (0.0, 1.0)}, "kappa_range must be"),
    ({"kappa_range": (2.0, 1.0)}, "kappa_range must be"),
    ({"group_weights": np.ones((5, 39))}, r"group_weights must be \[B, 40\]"),
    ({"log_likelihood": lambda w, k: np.zeros(len(k))}, r"must give \[40, G\]"),
    ({"log_likelihood": lambda w, k: np.full((len(k), 3), np.nan)}, "numbers below infinity"),
    ({"log_likelihood": lambda w, k: np.full((len(k), 3), -np.inf)}, "impossible under every"),
)
SAMPLER = {"log_likelihood": OneState().many}
SAMPLER_FAULTS = (
    ({"walkers": 4}, "6 walkers and 80 likelihoods at least, got 4"),
    ({"budget": 100}, "640 likelihoods at least, got 32 and 100"),
    ({"kappa_range": (-1.0, 1.0)}, "kappa_range must be"),
    ({"log_likelihood": lambda w, k: np.zeros(1)}, "must give 32 numbers"),
    ({"log_likelihood": lambda w, k: np.full(len(k), np.nan)}, "must give 32 numbers"),
    ({"log_likelihood": lambda w, k: np.full(len(k), -np.inf)}, "impossible under every"),
)


@pytest.mark.parametrize(
    ("find", "plain", "change", "message"),
    [
        *((grid_posterior, GRID, *fault) for fault in GRID_FAULTS),
        *((sample_posterior, SAMPLER, *fault) for fault in SAMPLER_FAULTS),
    ],
)
def test_bad_input(find, plain, change, message):
    arguments = {"signs": [-1, -1], "rng": np.random.default_rng(0)} | plain | change
    with pytest.raises(ValueError, match=message):
        find(**arguments)
