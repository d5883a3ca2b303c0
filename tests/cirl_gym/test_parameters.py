"""The constants of the simulator."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from cirl_gym import TumourParameters


def test_defaults_are_the_papers_with_the_corrected_z_line():
    p = TumourParameters()
    assert (p.order, p.horizon) == (5, 20)
    np.testing.assert_array_equal(p.effect, [-2.5, 1.0])
    # + 0.5 p for x; the z line mirrors it: - 0.5 p.
    np.testing.assert_array_equal(p.drift, [0.5 * 5, -0.5 * 5])
    np.testing.assert_array_equal(p.noise, [0.1, 0.1])
    np.testing.assert_array_equal(p.start_mean, [30, 2])
    np.testing.assert_array_equal(p.start_sd, [5, 1])
    np.testing.assert_array_equal(p.limits, [50, 15])


def test_as_printed_has_the_printed_z_line_and_nothing_else_changed():
    printed = TumourParameters.as_printed()
    assert (printed.side_effect, printed.side_drift) == (0.5, -5.0)
    assert dataclasses.replace(printed, side_effect=1.0, side_drift=-2.5) == TumourParameters()


def test_highest_is_one_largest_step_and_ten_deviations_beyond_the_limits():
    # x grows by at most 2.5 per step (no treatment): 50 + 2.5 + 10 * 0.1.
    # z grows by at most 5 * 1.0 - 2.5 per step (five treatments): 15 + 2.5 + 10 * 0.1.
    np.testing.assert_allclose(TumourParameters().highest, [53.5, 18.5])
    # The printed z line never grows: 15 + 0 + 1.
    np.testing.assert_allclose(TumourParameters.as_printed().highest, [53.5, 16.0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order", 0),
        ("order", 2.5),
        ("order", 5.0),
        ("horizon", 0),
        ("tumour_max", 0.0),
        ("side_max", -1.0),
        ("tumour_noise", -0.1),
        ("side_noise", float("nan")),
        ("tumour_effect", float("inf")),
        ("tumour_effect", "-2.5"),
        ("tumour_start_mean", 50.0),
        ("side_start_mean", 0.0),
        ("side_start_sd", -1.0),
        ("lags", "none"),
    ],
)
def test_an_impossible_constant_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"TumourParameters.{name} "):
        TumourParameters(**{name: value})


def test_derived_arrays_cannot_be_written_into():
    p = TumourParameters()
    with pytest.raises(ValueError, match="read-only"):
        p.effect[0] = 0.0


@pytest.mark.parametrize("again", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_equal_before_and_after_the_derived_arrays_were_used(again):
    p = TumourParameters(order=3)
    assert again(p) == p
    _ = p.highest
    assert again(p) == p
    assert hash(again(p)) == hash(p)
    # A changed copy derives its own arrays.
    np.testing.assert_array_equal(dataclasses.replace(p, tumour_max=60.0).limits, [60, 15])
