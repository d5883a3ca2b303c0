"""Feature expectations, the projection and the loop of Algorithm 1: by hand, by invariance, in an exact world."""

from __future__ import annotations

from typing import NamedTuple, get_args

import five_states
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted
from small_batches import batch_of

from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.data.outcome_model import fold
from cirl_gym.data.rollout import returns, rollout
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.checks.metrics import same_order
from irl.max_margin.loop import REASONS, MaxMarginResult, Stop, expert_mu, max_margin, phi_along, project


class Adds:
    """The next observation is the present one plus (number of the action) in x and its square in y."""

    features = ("x", "y")
    n_actions = 3
    noise_scale = np.zeros(2)
    bounds = (np.full(2, -np.inf), np.full(2, np.inf))

    def noise(self, normals):
        return normals * self.noise_scale

    def start(self, obs):
        return obs

    def encode(self, batch):
        return fold(self, batch)

    def predict(self, states):
        steps = np.arange(3)[:, None] ** np.array([1, 2])
        return states[..., None, :] + steps.astype(np.float32)

    def end_probability(self, states):
        return np.zeros((*states.shape[:-1], 3), dtype=np.float32)

    def advance(self, states, actions, obs):
        return obs


MAP = FeatureMap(("x", "y"), np.array([0.0, 100.0]), np.array([10.0, 200.0]))


def test_phi_along_by_hand():
    batch = batch_of([0, 2], [1], n_actions=3)
    # Episode 0 sees (0, 100) and (1, 101); episode 1 sees (10, 110). Actions 0, 2 add (0, 0), (2, 4); action 1 (1, 1).
    # Scaled by (x / 10, (y - 100) / 100).
    expected = [[[0.0, 0.0], [0.3, 0.05]], [[1.1, 0.11], [0.0, 0.0]]]
    phi = phi_along(Adds(), MAP, batch)
    np.testing.assert_allclose(phi, expected, rtol=1e-6)
    longer = phi_along(Adds(), MAP, batch.padded(7))
    np.testing.assert_array_equal(longer[:, :2], phi)
    assert not longer[:, 2:].any()
    with pytest.raises(ValueError, match="features differ"):
        phi_along(Adds(), FeatureMap(("y", "x"), np.zeros(2), np.ones(2)), batch_of([0], n_actions=3))
    with pytest.raises(ValueError, match="knows 3 actions, the batch has 2"):
        phi_along(Adds(), MAP, batch_of([0]))


def test_mu_is_a_geometric_series():
    # phi = 1, gamma = .5, lengths 1, 2, 3: (1 + 1.5 + 1.75) / 3. A discount that ran on from episode to episode, or a
    # sum with T + 1 terms, would give something else.
    batch = batch_of([0], [0, 1], [0, 1, 1])
    mu = expert_mu(np.ones((3, 3, 1)), batch, 0.5)
    assert mu.mean[0] == pytest.approx(1.41667, abs=1e-5)
    # Deviations -.41667, .08333, .33333: variance .145833, over three episodes .0486111.
    assert mu.covariance is not None
    assert mu.covariance[0, 0] == pytest.approx(0.0486111, rel=1e-5)
    assert (mu.episodes, mu.groups) == (3, 3)
    phi = np.array([[[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [2.0]]])
    for gamma, value in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0)):
        assert expert_mu(phi, batch_of([0, 0], [0, 0], [0, 0]), gamma).mean[0] == value


def test_mu_refuses_what_is_no_phi_and_no_discount():
    batch = batch_of([0, 1], [1])
    for gamma in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
            expert_mu(np.ones((2, 2, 1)), batch, gamma)
    with pytest.raises(ValueError, match=r"phi must be \[N, T, d\]"):
        expert_mu(np.ones((2, 3, 2)), batch, 0.9)
    phi = np.ones((2, 2, 2))
    phi[0, 1, 0] = np.inf
    with pytest.raises(ValueError, match="'e0', step 1 is not finite"):
        expert_mu(phi, batch, 0.9)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(0, 4), st.randoms(use_true_random=False))
def test_order_of_episodes_and_padding_do_not_matter(lengths, extra, random):
    batch = batch_of(*([0] * length for length in lengths))
    phi = np.random.default_rng(len(lengths)).normal(size=(*batch.actions.shape, 2))
    order = np.array(random.sample(range(len(lengths)), len(lengths)))
    mu, shuffled = expert_mu(phi, batch, 0.9), expert_mu(phi[order], batch.take(order), 0.9)
    np.testing.assert_allclose(shuffled.mean, mu.mean, rtol=1e-12)
    np.testing.assert_allclose(shuffled.covariance, mu.covariance, rtol=1e-9, atol=1e-12)
    rubbish = np.where(batch.mask[..., None], phi, np.nan)
    rubbish = np.pad(rubbish, ((0, 0), (0, extra), (0, 0)), constant_values=1e30)
    padded = expert_mu(rubbish, batch.padded(batch.horizon + extra), 0.9)
    np.testing.assert_allclose(padded.mean, mu.mean, rtol=1e-12)


def test_a_patient_counted_twice_makes_nothing_more_certain():
    phi = np.array([0.0, 1.0, 5.0])
    once = expert_mu(phi.reshape(3, 1, 1), batch_of([0], [0], [0]), 1.0)
    batch = batch_of(*[[0]] * 6, groups=("p", "q", "r", "r", "q", "p"))
    twice = expert_mu(np.concatenate([phi, phi[::-1]]).reshape(6, 1, 1), batch, 1.0)
    np.testing.assert_allclose(twice.mean, once.mean)
    np.testing.assert_allclose(twice.covariance, once.covariance)
    assert (twice.episodes, twice.groups) == (6, 3)
    alone = expert_mu(np.ones((2, 1, 1)), batch_of([0], [0], groups=("p", "p")), 1.0)
    assert alone.covariance is None, "one patient says nothing about the error"


def test_monte_carlo_mu_of_a_policy_is_the_return_it_earns():
    # Without noise the oracle predicts what happens, so w . mu is the mean return for every w.
    quiet = TumourParameters(tumour_noise=0.0, side_noise=0.0)
    world = TumourWorld(quiet)
    batch = rollout(world, Scripted(0.4), 200, np.random.default_rng(0))
    feature_map = quiet.feature_map
    mu = expert_mu(phi_along(OracleModel(quiet), feature_map, batch), batch, 0.9).mean
    for w in (np.array([-0.3, -0.7]), np.array([1.0, 0.0])):
        assert w @ mu == pytest.approx(returns(batch, feature_map, w, 0.9).mean(), abs=1e-5)


def test_mu_is_a_mean_over_episodes_and_not_a_function_of_the_mean_history():
    # phi bends: the mean of phi is not phi of the mean, so anything linear in the raw input would be wrong here.
    batch = batch_of([0], [2], n_actions=3)
    phi = phi_along(Adds(), MAP, batch)
    middle = batch_of([1], n_actions=3)
    # y adds 0 and 4 to 100 and 110: mean of phi_y (0 + .14) / 2 = .07; the mean history (105) with the mean action (1)
    # would give .06.
    assert expert_mu(phi, batch, 1.0).mean[1] == pytest.approx(0.07, rel=1e-5)
    assert phi_along(Adds(), MAP, middle)[0, 0, 1] + 0.05 == pytest.approx(0.06, rel=1e-5)


points = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=3, max_size=3).map(np.array)


@pytest.mark.parametrize(
    ("mu_expert", "start", "mu", "raw", "bar"),
    [
        # d . (mu_E - bar) = 15, d . d = 25: factor .6. Parentheses put elsewhere, d * d @ (mu_E - bar), would give 45.
        ([5.0, 0.0], [0.0, 0.0], [3.0, 4.0], 0.6, [1.8, 2.4]),
        ([3.0, 2.0], [1.0, 1.0], [5.0, 1.0], 0.5, [3.0, 1.0]),  # d = (4, 0), factor (4 * 2) / 16
        ([6.0, 8.0], [0.0, 0.0], [3.0, 4.0], 2.0, [3.0, 4.0]),  # beyond mu: no mixture reaches it
        ([-3.0, -4.0], [0.0, 0.0], [3.0, 4.0], -1.0, [0.0, 0.0]),  # behind bar: stay
    ],
)
def test_a_projection_by_hand(mu_expert, start, mu, raw, bar):
    step = project(*map(np.array, (mu_expert, start, mu)))
    assert step.raw == pytest.approx(raw)
    assert step.clipped == pytest.approx(np.clip(raw, 0, 1))
    np.testing.assert_allclose(step.bar, bar)


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
    result = max_margin(np.array([3.0, 1.0]), solver((0, 0), (4, 0), (0, 4)), W0, rounds=2)
    # Distances: sqrt(10), sqrt(2) for (4, 0), sqrt(18): K = 1 with w = (3, 1)/4; the last w was (0, 1).
    assert result.best == 1
    assert result.policy == 1
    np.testing.assert_allclose(result.weights, [0.75, 0.25])
    np.testing.assert_allclose(result.last_weights, [0.0, 1.0])


def test_reasons_to_stop():
    result = max_margin(np.array([2.0, 0.0]), solver((0, 0), (4, 0)), W0)
    assert result.stop == "converged"
    assert result.margin == 0.0
    at_once = max_margin(np.zeros(2), solver((0, 0), (4, 0)), W0)
    assert at_once.stop == "already matched"
    assert len(at_once.rounds) == 1
    assert max_margin(np.zeros(2), solver((0, 0), (4, 0)), W0, tolerance=0.0).stop == "already matched"
    assert max_margin(np.array([40.0, 30.0]), solver((0, 0)), W0).margin == 50.0, "of vectors that nobody scaled"
    assert set(REASONS) == set(get_args(Stop))
    # The expert lies outside the hull; the corner next to it is found again.
    result = max_margin(np.array([6.0, 0.0]), solver((0, 0), (4, 0)), W0)
    assert result.stop == "no new policy"
    assert result.margin == 2.0
    assert [r.lambda_clipped for r in result.rounds] == [None, 1.0, None]
    assert result.rounds[1].lambda_raw == 1.5, "clipped, and reported"
    # The bar is the foot of the perpendicular on an edge: both ends of the edge are equally good and no step helps.
    result = max_margin(np.array([2.0, 2.0]), solver((0, 0), (4, 0)), W0)
    assert result.stop == "stalled"
    assert result.margin == 2.0
    assert result.rounds[-1].lambda_raw == 0.0
    np.testing.assert_array_equal(result.rounds[-1].w, [0.0, 1.0])
    # A solver that makes it worse moves nothing.
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
