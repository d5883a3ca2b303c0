import five_states
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from small_batches import batch_of, cut_off

from cirl_gym.data.features import draw_weights
from irl.max_margin.loop import FeatureExpectation, expert_mu
from irl.preferences.identified_set import (
    expert_regret_bound,
    identified_set,
    not_identifiable,
    regret,
    sampling_tolerance,
)

FREE, COSTS = [0, 0], [-1, -1]
TRUTH = np.array([-0.3, -0.7])


def brute_force(mu_expert, mus, w, limit):
    """Smallest and largest value of each weight among the rows of ``w`` whose regret is within the limit."""
    inside = w[regret(w, mus, mu_expert) <= limit]
    return inside.min(axis=0), inside.max(axis=0)


def test_regret_by_hand():
    # Policies (0, 0), (4, 0), (0, 4), expert (1, 1): (-.5, -.5) loses 1 to (0, 0), (.75, .25) loses 2 to (4, 0).
    mus = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(
        regret(np.array([[-0.5, -0.5], [0.75, 0.25], [0.5, 0.5]]), mus, np.ones(2)), [1.0, 2.0, 1.0]
    )


def test_the_exact_set_of_an_optimal_expert():
    # The expert's mu is (1.5, .75). With w = -(u, 1 - u) it beats (3.5, 0) where 2 u >= .75 (1 - u), so u >= 3/11, and
    # (.5689, 2.1467) where .9311 u <= 1.3967 (1 - u), so u <= .6.
    expert = five_states.solve(TRUTH).mu
    np.testing.assert_allclose(expert, [1.5, 0.75])
    for signs in (FREE, COSTS, [0, -1]):
        found = identified_set(expert, five_states.ALL_MU, signs, tolerance=0.0)
        assert found.minimum == pytest.approx(0.0, abs=1e-7)
        np.testing.assert_allclose(found.low, [-0.6, -8 / 11], atol=1e-5)
        np.testing.assert_allclose(found.high, [-3 / 11, -0.4], atol=1e-5)
        assert found.tolerance == 0.0


@pytest.mark.parametrize("signs", [FREE, COSTS, [0, -1], [1, 0]])
@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.7])
def test_two_features_against_brute_force(signs, tolerance):
    mu_expert = five_states.mu_of(five_states.softmax_expert(TRUTH, 3.0))
    found = identified_set(mu_expert, five_states.ALL_MU, signs, tolerance=tolerance, points=2000)
    w, lost = found.profile[:, :2], found.profile[:, 2]
    np.testing.assert_allclose(np.abs(w).sum(axis=1), 1.0)
    assert (w * signs >= 0).all()
    assert found.minimum == pytest.approx(lost.min(), abs=2e-3)
    assert found.minimum <= lost.min() + 1e-7
    assert regret(found.best[None], five_states.ALL_MU, mu_expert)[0] == pytest.approx(found.minimum)
    low, high = brute_force(mu_expert, five_states.ALL_MU, w, lost.min() + tolerance)
    np.testing.assert_allclose(found.low, low, atol=3e-3)
    np.testing.assert_allclose(found.high, high, atol=3e-3)


@pytest.mark.parametrize("signs", [[0, 0, 0], [-1, 0, 1], [-1, -1, -1]])
@pytest.mark.parametrize("inside", [True, False])
def test_three_features_against_brute_force(signs, inside):
    rng = np.random.default_rng(4)
    mus = rng.normal(size=(12, 3))
    mu_expert = mus.mean(axis=0) if inside else mus[0] + 0.3 * (mus[0] - mus.mean(axis=0))
    w = draw_weights(signs, rng, 400_000)
    found = identified_set(mu_expert, mus, signs, tolerance=0.2)
    lowest = regret(w, mus, mu_expert).min()
    assert lowest - 0.02 < found.minimum <= lowest + 1e-6
    limit = max(found.minimum, 0.0) + 0.2
    low, high = brute_force(mu_expert, mus, w, limit)
    # Drawn weights come near the ends, never beyond.
    assert (found.low <= low + 1e-6).all()
    assert (found.high >= high - 1e-6).all()
    np.testing.assert_allclose(found.low, low, atol=0.02)
    np.testing.assert_allclose(found.high, high, atol=0.02)
    assert found.profile is None
    assert found.exact
    assert np.abs(found.best).sum() == pytest.approx(1.0)


def test_a_perfect_fit_is_never_judged_against_a_better_one():
    # Under w = (-1, 0) the expert is ahead by 1, under (-.7, -.3) by .55: both explain the data fully, and with one
    # policy found the half of the sphere with w . (mu - mu_E) <= 0 must stay, not the single best direction.
    found = identified_set(np.zeros(2), np.array([[1.0, -0.5]]), FREE, tolerance=0.0)
    assert found.minimum == pytest.approx(-1.0)
    # w_1 <= w_2 / 2: from (1/3, 2/3) over (-1, 0) to (-1/3, -2/3) on either side of (0, 1) and (0, -1).
    np.testing.assert_allclose(found.low, [-1.0, -2 / 3], atol=1e-6)
    np.testing.assert_allclose(found.high, [1 / 3, 1.0], atol=1e-6)


def test_scale_and_order_of_features_do_not_matter():
    mu_expert = five_states.mu_of(five_states.softmax_expert(TRUTH, 3.0))
    mus = five_states.ALL_MU
    plain = identified_set(mu_expert, mus, [-1, 0], tolerance=0.1)
    for scale in (1e-6, 3.0, 1e6):
        other = identified_set(scale * mu_expert[::-1], scale * mus[:, ::-1], [0, -1], tolerance=0.1 * scale)
        assert other.minimum == pytest.approx(scale * plain.minimum, rel=1e-5)
        np.testing.assert_allclose(other.low[::-1], plain.low, atol=1e-5)
        np.testing.assert_allclose(other.high[::-1], plain.high, atol=1e-5)


def test_a_search_cut_short_gives_wider_bounds():
    rng = np.random.default_rng(0)
    mus = rng.normal(size=(40, 6))
    mu_expert = mus.mean(axis=0)
    exact = identified_set(mu_expert, mus, np.zeros(6), tolerance=0.05)
    short = identified_set(mu_expert, mus, np.zeros(6), tolerance=0.05, nodes=1)
    assert exact.exact
    assert not short.exact
    assert short.minimum >= exact.minimum - 1e-9
    assert (short.low <= exact.low + 1e-6).all()
    assert (short.high >= exact.high - 1e-6).all()
    assert (np.abs([short.low, short.high]) <= 1).all()
    assert identified_set(mu_expert, mus, -np.ones(6), tolerance=0.05, nodes=1).exact, "fixed signs need no search"


@pytest.mark.parametrize("kappa", [0.3, 1.0, 3.0, 10.0, 100.0])
def test_the_bound_for_an_expert_who_errs_keeps_the_truth_inside(kappa):
    for truth in (TRUTH, np.array([-0.7, -0.3]), np.array([-0.5, -0.5])):
        mu_expert = five_states.mu_of(five_states.softmax_expert(truth, kappa))
        lost = regret(truth[None], five_states.ALL_MU, mu_expert)[0]
        bound = expert_regret_bound(kappa, five_states.GAMMA, 200, 2)
        assert 0 <= lost <= bound
        found = identified_set(mu_expert, five_states.ALL_MU, FREE, tolerance=bound)
        assert (found.low <= truth).all()
        assert (found.high >= truth).all()


def test_the_bound_by_hand():
    # Two actions, gap x / kappa: the loss is x / (kappa (1 + e^x)).
    highest = -minimize_scalar(lambda x: -x / (1 + np.exp(x)), bounds=(0, 5), method="bounded").fun
    assert expert_regret_bound(4.0, 0.5, 3, 2) == pytest.approx(highest / 4 * 1.75, rel=1e-6)
    # Five actions, four of them equally bad.
    highest = -minimize_scalar(lambda x: -4 * x / (4 + np.exp(x)), bounds=(0, 5), method="bounded").fun
    assert expert_regret_bound(1.0, 0.0, 9, 5) == pytest.approx(highest, rel=1e-6)
    assert expert_regret_bound(0.0, 0.9, 1, 2) == np.inf
    for bad in ((-1.0, 0.9, 1, 2), (1.0, 1.1, 1, 2), (1.0, 0.9, 0, 2), (1.0, 0.9, 1, 1)):
        with pytest.raises(ValueError, match="no bound for"):
            expert_regret_bound(*bad)


def test_a_random_expert_or_nothing_found_but_the_expert_tells_nothing():
    mu_expert = five_states.mu_of(np.full((5, 2), 0.5))
    bound = expert_regret_bound(0.05, five_states.GAMMA, 200, 2)  # the kappa that such an expert would be given
    found = identified_set(mu_expert, five_states.ALL_MU, FREE, tolerance=bound)
    np.testing.assert_allclose(found.low, [-1.0, -1.0], atol=1e-6)
    np.testing.assert_allclose(found.high, [1.0, 1.0], atol=1e-6)
    assert found.minimum > 0.2, "and no weights make it optimal"
    anything = identified_set(mu_expert, five_states.ALL_MU, COSTS, tolerance=np.inf)
    np.testing.assert_allclose([anything.low, anything.high], [[-1, -1], [0, 0]], atol=1e-9)
    reasons = {"x": "constant: for a test"}
    found = identified_set(np.ones(3), np.ones((2, 3)), [-1, 0, 0], tolerance=0.0, not_identifiable=reasons)
    assert (found.minimum, found.not_identifiable) == (0.0, reasons)
    np.testing.assert_allclose(found.low, [-1.0, -1.0, -1.0])
    np.testing.assert_allclose(found.high, [0.0, 1.0, 1.0], atol=1e-9)


class TestSamplingTolerance:
    def test_by_hand(self):
        # Costs only: one pair of corners, (-1, 0) and (0, -1); delta_1 - delta_2 has variance 4 + 1 - 2 = 3.
        covariance = np.array([[4.0, 1.0], [1.0, 1.0]])
        expectation = FeatureExpectation(np.zeros(2), covariance, 10_001, 10_001)
        assert sampling_tolerance(expectation, COSTS) == pytest.approx(1.645 * np.sqrt(3), rel=1e-3)
        # Free signs: six pairs; the widest is (1, 0) to (-1, 0), deviation 2 * 2; the quantile of 1 - .1/12 is 2.394.
        assert sampling_tolerance(expectation, FREE) == pytest.approx(2.394 * 4, rel=1e-3)
        assert sampling_tolerance(expectation, COSTS, solver_error=0.5) == pytest.approx(
            1 + 1.645 * np.sqrt(3), rel=1e-3
        )
        few = FeatureExpectation(np.zeros(2), covariance, 100, 6)
        assert sampling_tolerance(few, COSTS) == pytest.approx(2.015 * np.sqrt(3), rel=1e-3)  # Student, 5 degrees
        alone = FeatureExpectation(np.zeros(1), np.eye(1), 5, 5)
        assert sampling_tolerance(alone, [-1], solver_error=0.25) == 0.5, "one feature has nothing to compare"

    def test_it_covers(self):
        # 200 data sets of 40 patients each: the weights of least true regret are in the set in 9 of 10 at least.
        expert = five_states.softmax_expert(TRUTH, 5.0)
        rng = np.random.default_rng(0)
        phi = five_states.PHI
        truth = five_states.mu_of(expert)
        w = np.stack([-np.linspace(0, 1, 501), np.linspace(0, 1, 501) - 1], axis=1)
        best = w[regret(w, five_states.ALL_MU, truth).argmin()]
        batch = five_states.play(expert, 8000, 40, rng)  # 40 steps: .8^40 is nothing
        along = phi[five_states.states_of(batch), batch.actions]
        held = 0
        for i in range(200):
            some = np.arange(40 * i, 40 * i + 40)
            mu = expert_mu(along[some], batch.take(some), five_states.GAMMA)
            tolerance = sampling_tolerance(mu, COSTS)
            regrets = regret(np.vstack([w, best]), five_states.ALL_MU, mu.mean)
            held += regrets[-1] <= max(regrets.min(), 0.0) + tolerance
        assert held >= 180

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"signs": [-1]}, "signs must be 2 numbers, got 1"),
            ({"level": 1.0}, "level must lie"),
            ({"solver_error": -1.0}, "level must lie"),
            ({"expectation": FeatureExpectation(np.zeros(2), None, 3, 1)}, "single group"),
        ],
    )
    def test_bad_input(self, arguments, message):
        plain = {"expectation": FeatureExpectation(np.zeros(2), np.eye(2), 9, 9), "signs": COSTS}
        with pytest.raises(ValueError, match=message):
            sampling_tolerance(**(plain | arguments))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mus": np.ones((3, 1))}, "mus must be"),
        ({"mus": np.ones((0, 2))}, "mus must be"),
        ({"signs": [-1]}, "mus must be"),
        ({"mu_expert": np.array([np.nan, 0.0])}, "must be finite"),
        ({"tolerance": -1.0}, "not negative"),
        ({"tolerance": np.nan}, "not negative"),
    ],
)
def test_bad_input(change, message):
    arguments = {"mu_expert": np.zeros(2), "mus": np.ones((3, 2)), "signs": FREE, "tolerance": 0.0} | change
    with pytest.raises(ValueError, match=message):
        identified_set(**arguments)


def table(**columns):
    """One long episode whose outcomes are the columns."""
    outcomes = np.stack(list(columns.values()), axis=1)
    obs = np.concatenate([np.full((1, outcomes.shape[1]), 5.0), outcomes])
    return cut_off(obs[None], np.zeros((1, len(outcomes)), dtype=np.int64), tuple(columns))


class TestNotIdentifiable:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 300))

    def test_ordinary_and_constant_features(self):
        assert not_identifiable(table(a=self.a, b=self.b, c=0.9 * self.a + 0.1 * self.c)) == {}
        reasons = not_identifiable(table(a=self.a, flat=np.full(300, 37.5), b=self.b))
        assert list(reasons) == ["flat"]
        assert "constant: every outcome is 37.5" in reasons["flat"]
        # Only the first observation, which is no outcome of anything, differs.
        assert list(not_identifiable(table(flat=np.full(300, 1.0)))) == ["flat"]
        assert set(not_identifiable(batch_of([0, 1], [0]).padded(9))) == {"x", "y"}  # y = x + 100
        assert not_identifiable(table(a=self.a, b=self.b).padded(400)) == {}

    def test_duplicate_and_collinear(self):
        reasons = not_identifiable(table(celsius=37 + self.a, b=self.b, fahrenheit=32 + 1.8 * (37 + self.a)))
        assert reasons == {
            "celsius": "duplicate: moves exactly with 'fahrenheit'",
            "fahrenheit": "duplicate: moves exactly with 'celsius'",
        }
        reasons = not_identifiable(table(a=self.a, b=1000 * self.b, other=self.c, total=2 - self.a + 3 * self.b))
        assert set(reasons) == {"a", "b", "total"}
        assert reasons["total"] == "collinear: a linear function of 'a', 'b'"
        both = not_identifiable(table(a=self.a, b=self.b, minus=-self.a, shifted=self.b + 7))
        assert both["a"] == "duplicate: moves exactly with 'minus'"
        assert both["b"] == "duplicate: moves exactly with 'shifted'"
