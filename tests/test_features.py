"""phi is linear in the outcome, with ranges that are fixed once."""

import numpy as np
import pytest
from small_tables import stays

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.parameters import TumourParameters


def test_the_simulators_phi_is_the_papers() -> None:
    phi = FeatureMap.from_parameters(TumourParameters(), ("tumour", "side_effects"))
    assert phi(np.array([[50.0, 15.0], [25.0, 3.0], [0.0, 0.0]])).tolist() == [[1, 1], [0.5, 0.2], [0, 0]]


def test_ranges_of_a_batch_are_of_its_observations_alone() -> None:
    batch, _ = Batch.from_dataframe(stays(2, 1))  # x: 0 1 2 10 11; y: 0 -1 -2 100 99
    for data in (batch, batch.padded(9)):
        phi = FeatureMap.from_batch(data)
        assert phi.features == ("x", "y")
        assert phi.low.tolist() == [0, -2]
        assert phi.high.tolist() == [11, 100]
        scaled = phi(batch.obs[0])
        np.testing.assert_allclose(scaled, [[0, 2 / 102], [1 / 11, 1 / 102], [2 / 11, 0]])


def test_padding_does_not_reach_the_ranges() -> None:
    frame = stays(2, 1).assign(x=["5", "9", "7", "8", "6"], y="-3")
    phi = FeatureMap.from_batch(Batch.from_dataframe(frame)[0])
    assert phi.low.tolist() == [5, -3]  # not the 0 of the padding
    assert phi.high.tolist() == [9, -2]  # a constant feature gets a range of 1


def test_phi_is_linear_and_clips_nothing() -> None:
    phi = FeatureMap(("x", "z"), np.array([-1.0, 0.0]), np.array([1.0, 4.0]))
    assert phi([[3.0, -4.0]]).tolist() == [[2, -1]]
    a, b = np.random.default_rng(0).normal(size=(2, 5, 3, 2))
    np.testing.assert_allclose(phi(0.25 * a + 0.75 * b), 0.25 * phi(a) + 0.75 * phi(b))
    assert phi(a).shape == (5, 3, 2)


def test_ranges_cannot_be_changed_afterwards() -> None:
    low = np.zeros(1)
    phi = FeatureMap(("x",), low, np.ones(1))
    low[:] = 9
    assert phi.low.tolist() == [0]
    with pytest.raises(ValueError, match="read-only"):
        phi.high[:] = 2


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([0.0], [0.0, 1.0], r"FeatureMap\.low must be 2 finite numbers"),
        ([0.0, 0.0], [1.0, np.nan], r"FeatureMap\.high must be 2 finite numbers"),
        ([0.0, 1.0], [1.0, 1.0], "the range of 'z' is empty"),
        ([0.0, 2.0], [1.0, 1.0], "the range of 'z' is empty"),
    ],
)
def test_a_range_that_is_none_is_refused(low: list[float], high: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureMap(("x", "z"), np.array(low), np.array(high))
