"""The projection and the loop of Algorithm 1: by hand, by invariance, in an exact world, and every way to stop."""

from __future__ import annotations

from typing import NamedTuple, get_args

import five_states
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirl_gym.data.features import draw_weights
from irl.checks.metrics import same_order
from irl.max_margin.loop import REASONS, MaxMarginResult, Stop, max_margin, project

points = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=3, max_size=3).map(np.array)


def test_a_projection_by_hand():
    # bar = (0, 0), mu = (3, 4), mu_E = (5, 0): d . (mu_E - bar) = 15, d . d = 25, factor .6, new bar (1.8, 2.4),
    # left over (3.2, -2.4) with norm 4. Parentheses put elsewhere, d * d @ (mu_E - bar), would give 45.
    step = project(np.array([5.0, 0.0]), np.zeros(2), np.array([3.0, 4.0]))
    assert step is not None
    assert step.raw == step.clipped == pytest.approx(0.6)
    np.testing.assert_allclose(step.bar, [1.8, 2.4])
    assert np.linalg.norm([5.0, 0.0] - step.bar) == pytest.approx(4.0)


def test_a_projection_by_hand_from_a_bar_that_is_not_zero():
    # bar = (1, 1), mu = (5, 1), mu_E = (3, 2): d = (4, 0), factor (4 * 2) / 16 = .5, new bar (3, 1), margin 1.
    step = project(np.array([3.0, 2.0]), np.ones(2), np.array([5.0, 1.0]))
    assert step is not None
    assert step.raw == 0.5
    np.testing.assert_array_equal(step.bar, [3.0, 1.0])


@pytest.mark.parametrize(
    ("mu_expert", "raw", "clipped", "bar"),
    [
        ([6.0, 8.0], 2.0, 1.0, [3.0, 4.0]),  # beyond mu: no mixture reaches it, 5 are left
        ([-3.0, -4.0], -1.0, 0.0, [0.0, 0.0]),  # behind bar: stay, 5 are left
    ],
)
def test_the_factor_is_clipped_and_the_raw_one_reported(mu_expert, raw, clipped, bar):
    step = project(np.array(mu_expert), np.zeros(2), np.array([3.0, 4.0]))
    assert step is not None
    assert (step.raw, step.clipped) == (raw, clipped)
    np.testing.assert_array_equal(step.bar, bar)


def test_the_same_mu_is_no_new_policy():
    bar = np.array([7.5, 0.3])
    assert project(np.ones(2), bar, bar.copy()) is None
    assert project(np.ones(2), bar, bar * (1 + 1e-15)) is None, "rounding is not a new policy"
    assert project(np.ones(2), np.zeros(2), np.zeros(2)) is None
    assert project(np.ones(2), bar, bar * (1 + 1e-9)) is not None
    tiny = project(np.array([1e-200, 0.0]), np.zeros(2), np.array([4e-200, 0.0]))
    assert tiny is not None, "small is not the same"
    assert tiny.raw == pytest.approx(0.25)


@settings(deadline=None, max_examples=100)
@given(points, points, points)
def test_no_point_of_the_segment_is_nearer(mu_expert, bar, mu):
    step = project(mu_expert, bar, mu)
    if step is None:
        return
    for share in np.linspace(0, 1, 11):
        assert np.linalg.norm(mu_expert - step.bar) <= np.linalg.norm(mu_expert - (bar + share * (mu - bar))) + 1e-9


@settings(deadline=None, max_examples=50)
@given(points, points, points, st.sampled_from([3.0, 1e-6, 1e6]))
def test_scale_and_order_of_features_do_not_matter_to_a_projection(mu_expert, bar, mu, scale):
    step, other = project(mu_expert, bar, mu), project(mu_expert[::-1] * scale, bar[::-1] * scale, mu[::-1] * scale)
    assert (step is None) == (other is None)
    if step is not None and other is not None and np.linalg.norm(mu - bar) > 1e-3:
        assert other.raw == pytest.approx(step.raw, rel=1e-6, abs=1e-9)
        np.testing.assert_allclose(other.bar[::-1], scale * step.bar, rtol=1e-6, atol=1e-9 * scale)


W0 = np.array([-0.5, -0.5])


class Found(NamedTuple):
    policy: object
    mu: np.ndarray


def solver(*mus, seen=None):
    """The best of the given mus for each w (the first of equals); its number stands for its policy."""
    table = np.array(mus, dtype=float)

    def solve(w):
        assert np.abs(w).sum() == pytest.approx(1.0), "weights are scaled before they are solved for"
        if seen is not None:
            seen.append(w.copy())
        best = int((table @ w).argmax())
        w[:] = np.nan  # a solver that spoils its input spoils nothing else
        return Found(best, table[best])

    return solve


def test_three_rounds_by_hand():
    # mu_E = (2, 1), policies at (0, 0), (4, 0), (0, 4).
    # k = 0: w_0 = (-.5, -.5) gives (0, 0); bar = (0, 0), margin sqrt(5).
    # k = 1: w = (2, 1)/3 gives (4, 0); factor (4 * 2)/16 = .5; bar = (2, 0), margin 1.
    # k = 2: w = (0, 1) gives (0, 4); d = (-2, 4), factor 4/20 = .2; bar = (1.6, .8), left (.4, .2), margin sqrt(.2).
    # k = 3: w = (2, 1)/3 gives (4, 0); d = (2.4, -.8), factor (.96 - .16)/6.4 = .125; bar = (1.9, .7), left (.1, .3).
    seen, told = [], []
    policies = solver((0, 0), (4, 0), (0, 4), seen=seen)
    result = max_margin(np.array([2.0, 1.0]), policies, W0, rounds=3, progress=told.append)
    assert tuple(told) == result.rounds
    assert [r.k for r in result.rounds] == [0, 1, 2, 3]
    np.testing.assert_allclose(seen, [[-0.5, -0.5], [2 / 3, 1 / 3], [0, 1], [2 / 3, 1 / 3]], atol=1e-12)
    np.testing.assert_allclose([r.w for r in result.rounds], seen)
    np.testing.assert_array_equal(result.mus, [[0, 0], [4, 0], [0, 4], [4, 0]])
    np.testing.assert_allclose([r.margin for r in result.rounds], np.sqrt([5, 1, 0.2, 0.1]))
    np.testing.assert_allclose([r.distance for r in result.rounds], np.sqrt([5, 5, 13, 5]))
    assert result.rounds[0].lambda_raw is None
    np.testing.assert_allclose([r.lambda_clipped for r in result.rounds[1:]], [0.5, 0.2, 0.125])
    np.testing.assert_allclose([r.lambda_raw for r in result.rounds[1:]], [0.5, 0.2, 0.125])
    np.testing.assert_allclose(result.bar, [1.9, 0.7])
    np.testing.assert_allclose(result.mu_expert - result.bar, [0.1, 0.3])
    assert result.margin == pytest.approx(np.sqrt(0.1))
    assert result.stop == "rounds"
    assert result.policies == (0, 1, 2, 1)
    assert result.best == 0, "of equal distances the earliest"
    assert all(r.seconds >= 0 for r in result.rounds)


def test_the_margin_is_taken_before_scaling():
    result = max_margin(np.array([40.0, 30.0]), solver((0, 0)), W0)
    assert result.rounds[0].margin == 50.0


def test_weights_and_policy_are_those_of_the_nearest_mu():
    result = max_margin(np.array([3.0, 1.0]), solver((0, 0), (4, 0), (0, 4)), W0, rounds=2)
    # Distances: sqrt(10), sqrt(2) for (4, 0), sqrt(18): K = 1 with w = (3, 1)/4; the last w was (0, 1).
    assert result.best == 1
    assert result.policy == 1
    np.testing.assert_allclose(result.weights, [0.75, 0.25])
    np.testing.assert_allclose(result.last_weights, [0.0, 1.0])


def test_stop_converged():
    result = max_margin(np.array([2.0, 0.0]), solver((0, 0), (4, 0)), W0)
    assert result.stop == "converged"
    assert result.margin == 0.0
    at_once = max_margin(np.zeros(2), solver((0, 0), (4, 0)), W0)
    assert at_once.stop == "already matched"
    assert len(at_once.rounds) == 1
    assert max_margin(np.zeros(2), solver((0, 0), (4, 0)), W0, tolerance=0.0).stop == "already matched"
    assert set(REASONS) == set(get_args(Stop))


def test_stop_no_new_policy():
    # The expert lies outside the hull; the corner next to it is found again.
    result = max_margin(np.array([6.0, 0.0]), solver((0, 0), (4, 0)), W0)
    assert result.stop == "no new policy"
    assert result.margin == 2.0
    assert [r.lambda_clipped for r in result.rounds] == [None, 1.0, None]
    assert result.rounds[1].lambda_raw == 1.5, "clipped, and reported"


def test_stop_stalled():
    # The bar is the foot of the perpendicular on an edge: both ends of the edge are equally good and no step helps.
    result = max_margin(np.array([2.0, 2.0]), solver((0, 0), (4, 0)), W0)
    assert result.stop == "stalled"
    assert result.margin == 2.0
    assert result.rounds[-1].lambda_raw == 0.0
    np.testing.assert_array_equal(result.rounds[-1].w, [0.0, 1.0])


def test_a_solver_that_makes_it_worse_moves_nothing():
    mus = iter([np.zeros(2), np.array([-1.0, 0.0])])
    result = max_margin(np.array([2.0, 0.0]), lambda w: Found(None, next(mus)), W0)
    assert result.stop == "stalled"
    assert result.rounds[-1].lambda_raw == -2.0
    assert result.rounds[-1].lambda_clipped == 0.0
    np.testing.assert_array_equal(result.bar, [0.0, 0.0])


def test_signs_are_kept():
    seen = []
    policies = solver((3, 3), (1, 2), (2, 1), seen=seen)
    result = max_margin(np.array([1.0, 3.5]), policies, W0, signs=[-1, -1])
    assert all((w <= 0).all() for w in seen)
    assert all((r.w <= 0).all() for r in result.rounds)
    # bar = (1, 2) from the start, left over (0, 1.5): only a positive weight on y would explain it.
    assert result.stop == "no allowed weights"
    one_free = max_margin(np.array([1.0, 3.5]), solver((3, 3), (1, 2), (2, 1)), W0, signs=[-1, 0])
    assert any(r.w[1] > 0 for r in one_free.rounds)
    assert all(r.w[0] <= 0 for r in one_free.rounds)


@pytest.mark.parametrize("truth", [(-0.3, -0.7), (-0.7, -0.3), (-0.15, -0.85), (-0.85, -0.15)])
def test_an_exact_world_gives_the_order_of_the_weights(truth):
    expert = five_states.solve(np.array(truth))
    for seed in range(8):
        w0 = draw_weights([0, 0], np.random.default_rng(seed))
        result = max_margin(expert.mu, five_states.solve, w0)
        assert result.stop in ("converged", "already matched")
        assert result.margin < 1e-3
        margins = [r.margin for r in result.rounds]
        assert (np.diff(margins) <= 1e-12).all()
        np.testing.assert_allclose(result.mus[result.best], expert.mu, rtol=1e-12)
        assert all(0 <= r.lambda_raw <= 1 + 1e-9 for r in result.rounds[1:]), "an exact solver never leaves the segment"
        assert same_order(result.weights, truth)


@pytest.mark.parametrize("kappa", [2.0, 10.0])
def test_an_expert_who_errs_is_matched_by_a_mixture(kappa):
    expert = five_states.mu_of(five_states.softmax_expert(np.array([-0.3, -0.7]), kappa))
    result = max_margin(expert, five_states.solve, W0, rounds=200)
    assert result.margin < 0.02
    assert result.margin < 0.1 * min(r.distance for r in result.rounds)


def test_scale_of_the_start_and_order_of_features_do_not_matter():
    expert = five_states.solve(np.array([-0.3, -0.7])).mu

    def swapped(w):
        found = five_states.solve(w[::-1])
        return Found(found.policy, found.mu[::-1])

    w0 = np.array([0.9, -0.1])
    plain = max_margin(expert, five_states.solve, w0)
    larger = max_margin(expert, five_states.solve, 3 * w0)
    other = max_margin(expert[::-1], swapped, w0[::-1])
    np.testing.assert_allclose(larger.weights, plain.weights, rtol=1e-12)
    np.testing.assert_allclose(larger.mus, plain.mus, rtol=1e-12)
    np.testing.assert_allclose(other.weights[::-1], plain.weights)
    assert [r.margin for r in other.rounds] == pytest.approx([r.margin for r in plain.rounds])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w0": np.zeros(2)}, "must not all be zero"),
        ({"w0": np.ones(3)}, "differ in length: 2, 3, 2"),
        ({"signs": [-1]}, "differ in length: 2, 2, 1"),
        ({"w0": np.array([-1.0, 1.0]), "signs": [-1, -1]}, "breaks the fixed sign of feature 1"),
        ({"mu_expert": np.array([np.nan, 1.0])}, "mu_expert must be"),
        ({"rounds": -1}, "must not be negative"),
        ({"tolerance": np.nan}, "must not be negative"),
        ({"solve": lambda w: Found(None, np.array([np.nan, 0.0]))}, "round 0: the solver's mu"),
        ({"solve": lambda w: Found(None, np.zeros(3))}, "round 0: the solver's mu must be 2"),
    ],
)
def test_bad_input(change, message):
    arguments = {"mu_expert": np.ones(2), "solve": solver((0, 0)), "w0": W0} | change
    with pytest.raises(ValueError, match=message):
        max_margin(**arguments)


def test_a_result_keeps_its_promises():
    result = max_margin(np.ones(2), solver((0, 0)), W0, rounds=0)
    assert result.stop == "rounds"
    with pytest.raises(ValueError, match="do not match"):
        MaxMarginResult(result.mu_expert, result.rounds, (), result.bar, "rounds")
    with pytest.raises(ValueError, match="numbered"):
        MaxMarginResult(result.mu_expert, result.rounds * 2, (0, 0), result.bar, "rounds")
