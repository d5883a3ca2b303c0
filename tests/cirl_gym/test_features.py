"""phi is linear in the outcome, with ranges that are fixed once; weights lie on the L1 sphere and keep their signs."""

import numpy as np
import pytest
from small_tables import stays

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import (
    FeatureMap,
    allowed_faces,
    arc_weights,
    checked_signs,
    draw_weights,
    keep_signs,
    normalised,
)
from cirl_gym.worlds.tumour import TumourParameters


def test_phi_is_the_papers_linear_clips_nothing_and_keeps_its_ranges() -> None:
    phi = TumourParameters().feature_map
    assert phi(np.array([[50.0, 15.0], [25.0, 3.0], [0.0, 0.0]])).tolist() == [[1, 1], [0.5, 0.2], [0, 0]]
    phi = FeatureMap(("x", "z"), np.array([-1.0, 0.0]), np.array([1.0, 4.0]))
    assert phi([[3.0, -4.0]]).tolist() == [[2, -1]]
    a, b = np.random.default_rng(0).normal(size=(2, 5, 3, 2))
    np.testing.assert_allclose(phi(0.25 * a + 0.75 * b), 0.25 * phi(a) + 0.75 * phi(b))
    assert phi(a).shape == (5, 3, 2)
    low = np.zeros(1)
    phi = FeatureMap(("x",), low, np.ones(1))
    low[:] = 9
    assert phi.low.tolist() == [0]
    with pytest.raises(ValueError, match="read-only"):
        phi.high[:] = 2


def test_ranges_of_a_batch_are_of_its_observations_alone_without_padding() -> None:
    batch, _ = Batch.from_dataframe(stays(2, 1))  # x: 0 1 2 10 11; y: 0 -1 -2 100 99
    for data in (batch, batch.padded(9)):
        phi = FeatureMap.from_batch(data)
        assert phi.features == ("x", "y")
        assert phi.low.tolist() == [0, -2]
        assert phi.high.tolist() == [11, 100]
        scaled = phi(batch.obs[0])
        np.testing.assert_allclose(scaled, [[0, 2 / 102], [1 / 11, 1 / 102], [2 / 11, 0]])
    frame = stays(2, 1).assign(x=["5", "9", "7", "8", "6"], y="-3")
    phi = FeatureMap.from_batch(Batch.from_dataframe(frame)[0])
    assert phi.low.tolist() == [5, -3]  # not the 0 of the padding
    assert phi.high.tolist() == [9, -2]  # a constant feature gets a range of 1


@pytest.mark.parametrize(
    ("features", "low", "high", "of", "message"),
    [
        (("x", "z"), [0.0], [0.0, 1.0], (), r"FeatureMap\.low must be 2 finite numbers"),
        (("x", "z"), [0.0, 0.0], [1.0, np.nan], (), r"FeatureMap\.high must be 2 finite numbers"),
        (("x", "z"), [0.0, 1.0], [1.0, 1.0], (), "the range of 'z' is empty"),
        (("x", "z"), [0.0, 2.0], [1.0, 1.0], (), "the range of 'z' is empty"),
        (("x", "x"), [0, 0], [1, 1], (), "the names must be different"),
        ((), [], [], (), "and one at least"),
        (("x", "z"), [0, 0], [1, 1], ("x", "z", "x"), "the names must be different"),
        (("x", "q"), [0, 0], [1, 1], ("x", "z"), "outcome 'q' is not among the observed features: x, z"),
    ],
)
def test_ranges_and_names_that_are_none_are_refused(features, low, high, of, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureMap(features, np.array(low), np.array(high), of)


OBSERVED = ("age", "lactate", "pressure", "temperature")
TWO = FeatureMap(("temperature", "lactate"), np.array([36.0, 1.0]), np.array([40.0, 5.0]), OBSERVED)
"""Two of four, in another order."""


def test_some_of_the_features_by_hand_have_the_ranges_of_all() -> None:
    assert TWO.columns.tolist() == [3, 1]
    # ((39 - 36) / 4, (2 - 1) / 4) and ((35 - 36) / 4, (7 - 1) / 4); age and pressure play no part.
    assert TWO([[60, 2, 80, 39], [0, 7, 1e9, 35]]).tolist() == [[0.75, 0.25], [-0.25, 1.5]]
    assert TWO(np.zeros((5, 3, 4))).shape == (5, 3, 2)
    assert TWO.unscaled([[0.75, 0.25]]).tolist() == [[39, 2]]
    for observed in (3.0, [1.0, 2.0], np.zeros((4, 3))):
        with pytest.raises(ValueError, match=r"phi is of \[\.\., 4\] numbers, one for each of age, lactate, pressure"):
            TWO(observed)
    batch, _ = Batch.from_dataframe(stays(2, 1))
    phi, one = FeatureMap.from_batch(batch), FeatureMap.from_batch(batch, ["y"])
    assert (one.features, one.of, one.low.tolist(), one.high.tolist()) == (("y",), ("x", "y"), [-2], [100])
    np.testing.assert_array_equal(one(batch.obs), phi(batch.obs)[..., 1:])
    turned = FeatureMap.from_batch(batch, ["y", "x"])
    np.testing.assert_array_equal(turned(batch.obs), phi(batch.obs)[..., ::-1])


def test_there_is_an_inverse_only_where_nothing_is_left_out() -> None:
    with pytest.raises(ValueError, match="phi has no inverse: it says nothing of age, pressure"):
        TWO.raw([0.5, 0.5])
    turned = FeatureMap(("b", "a"), np.array([0.0, 10.0]), np.array([2.0, 20.0]), ("a", "b"))
    assert turned([15.0, 2.0]).tolist() == [1, 0.5]
    assert turned.raw([1.0, 0.5]).tolist() == [15, 2]


def test_phi_is_read_from_other_features() -> None:
    alone = FeatureMap(TWO.features, TWO.low, TWO.high)
    assert alone.of == TWO.features
    wide = alone.among(OBSERVED)
    assert wide([60, 2, 80, 39]).tolist() == alone([39, 2]).tolist() == [0.75, 0.25]
    with pytest.raises(ValueError, match="outcome 'lactate' is not among the observed features: age, temperature"):
        alone.among(("age", "temperature"))


def test_weights_are_normalised_and_keep_their_signs():
    np.testing.assert_allclose(normalised([-3, 1]), [-0.75, 0.25])
    np.testing.assert_allclose(normalised([-1e-300, -3e-300]), [-0.25, -0.75])
    np.testing.assert_allclose(normalised([1e308, -1e308]), [0.5, -0.5])
    for bad in ([0, 0], [np.nan, 1], [np.inf, 1], [], 3.0):
        with pytest.raises(ValueError, match="weights must"):
            normalised(bad)
    np.testing.assert_array_equal(checked_signs([-1, 0, 1]), [-1, 0, 1])
    for bad in ([2, 0], [0.5], [], [np.nan], 1):
        with pytest.raises(ValueError, match="signs must"):
            checked_signs(bad)
    signs = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(keep_signs(np.array([0.2, 0.3, 0.5]), signs), [0.0, 0.3, 0.5])
    np.testing.assert_array_equal(keep_signs(np.array([-0.2, -0.3, -0.5]), signs), [-0.2, -0.3, 0.0])


def test_drawn_weights_are_uniform_and_walks_stay_on_the_allowed_sphere():
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
    np.testing.assert_array_equal(arc_weights(np.arange(5.0)), [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0]])
    np.testing.assert_allclose(arc_weights(np.array([0.25, 2.7])), [[0.75, 0.25], [-0.3, -0.7]])
    assert allowed_faces(np.array([0.0, 0.0])) == [0, 1, 2, 3]
    assert allowed_faces(np.array([-1.0, -1.0])) == [2]
    assert allowed_faces(np.array([-1.0, 0.0])) == [1, 2]
