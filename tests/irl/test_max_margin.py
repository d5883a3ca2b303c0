from typing import NamedTuple, get_args

import five_states
import numpy as np
import pytest

from cirl_gym.data.features import draw_weights
from irl.checks.metrics import same_order
from irl.max_margin.loop import REASONS, MaxMarginResult, Stop, max_margin

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
    np.testing.assert_allclose(result.residual, [0.1, 0.3])
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
