import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirl_gym.data.features import allowed_faces, arc_weights, checked_signs, draw_weights, keep_signs, normalised
from irl.max_margin.loop import project

points = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=3, max_size=3).map(np.array)


def test_by_hand():
    # bar = (0, 0), mu = (3, 4), mu_E = (5, 0): d . (mu_E - bar) = 15, d . d = 25, factor .6, new bar (1.8, 2.4),
    # left over (3.2, -2.4) with norm 4. Parentheses put elsewhere, d * d @ (mu_E - bar), would give 45.
    step = project(np.array([5.0, 0.0]), np.zeros(2), np.array([3.0, 4.0]))
    assert step is not None
    assert step.raw == step.clipped == pytest.approx(0.6)
    np.testing.assert_allclose(step.bar, [1.8, 2.4])
    assert np.linalg.norm([5.0, 0.0] - step.bar) == pytest.approx(4.0)


def test_by_hand_from_a_bar_that_is_not_zero():
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
def test_scale_and_order_of_features_do_not_matter(mu_expert, bar, mu, scale):
    step, other = project(mu_expert, bar, mu), project(mu_expert[::-1] * scale, bar[::-1] * scale, mu[::-1] * scale)
    assert (step is None) == (other is None)
    if step is not None and other is not None and np.linalg.norm(mu - bar) > 1e-3:
        assert other.raw == pytest.approx(step.raw, rel=1e-6, abs=1e-9)
        np.testing.assert_allclose(other.bar[::-1], scale * step.bar, rtol=1e-6, atol=1e-9 * scale)


def test_normalised():
    np.testing.assert_allclose(normalised([-3, 1]), [-0.75, 0.25])
    np.testing.assert_allclose(normalised([-1e-300, -3e-300]), [-0.25, -0.75])
    np.testing.assert_allclose(normalised([1e308, -1e308]), [0.5, -0.5])
    for bad in ([0, 0], [np.nan, 1], [np.inf, 1], [], 3.0):
        with pytest.raises(ValueError, match="weights must"):
            normalised(bad)


def test_signs():
    np.testing.assert_array_equal(checked_signs([-1, 0, 1]), [-1, 0, 1])
    for bad in ([2, 0], [0.5], [], [np.nan], 1):
        with pytest.raises(ValueError, match="signs must"):
            checked_signs(bad)
    signs = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(keep_signs(np.array([0.2, 0.3, 0.5]), signs), [0.0, 0.3, 0.5])
    np.testing.assert_array_equal(keep_signs(np.array([-0.2, -0.3, -0.5]), signs), [-0.2, -0.3, 0.0])


def test_drawn_weights_are_uniform_on_the_allowed_sphere():
    w = draw_weights([-1, 0, 1], np.random.default_rng(0), 20_000)
    np.testing.assert_allclose(np.abs(w).sum(axis=1), 1.0)
    assert (w[:, 0] < 0).all()
    assert (w[:, 2] > 0).all()
    assert (w[:, 1] < 0).mean() == pytest.approx(0.5, abs=0.02)
    # Uniform on the simplex of three: P(|w_i| > c) = (1 - c)^2, so 1/4 at c = .5.
    np.testing.assert_allclose((np.abs(w) > 0.5).mean(axis=0), 0.25, atol=0.02)
    assert draw_weights([0, 0], np.random.default_rng(0)).shape == (2,)
    np.testing.assert_array_equal(
        draw_weights([0, 0], np.random.default_rng(5)), draw_weights([0, 0], np.random.default_rng(5))
    )


def test_the_walk_along_the_sphere():
    np.testing.assert_array_equal(arc_weights(np.arange(5.0)), [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]])
    np.testing.assert_allclose(arc_weights(np.array([0.25, 2.7])), [[0.75, 0.25], [-0.3, -0.7]])
    assert allowed_faces(np.array([0.0, 0.0])) == [0, 1, 2, 3]
    assert allowed_faces(np.array([-1.0, -1.0])) == [2]
    assert allowed_faces(np.array([-1.0, 0.0])) == [1, 2]
