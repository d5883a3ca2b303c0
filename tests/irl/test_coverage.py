"""Calibration of intervals over many runs, against tabled numbers and against chance itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from irl.checks.metrics import coverage


def runs(*hits: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of width 1 around or beside a truth of 0, one list per weight."""
    held = np.array(hits, dtype=bool).T
    low = np.where(held, -0.5, 0.5)
    return np.stack([low, low + 1.0], axis=2), np.zeros(held.shape)


def test_shares_and_their_intervals_by_the_tables():
    found = coverage(*runs([True] * 15 + [False] * 3, [True] * 18, [False] * 18))
    np.testing.assert_allclose(found.share, [15 / 18, 1.0, 0.0])
    # Clopper and Pearson, 95 %: 15 of 18; the rule (alpha/2)^(1/n) where all or none hold it.
    np.testing.assert_allclose(found.low, [0.58582, 0.025 ** (1 / 18), 0.0], atol=1e-5)
    np.testing.assert_allclose(found.high, [0.96421, 1.0, 1 - 0.025 ** (1 / 18)], atol=1e-5)


@pytest.mark.parametrize("hits", [1, 7, 12])
def test_at_the_ends_the_count_is_just_possible(hits):
    found = coverage(*runs([True] * hits + [False] * (13 - hits)), level=0.8)
    assert binom.sf(hits - 1, 13, found.low[0]) == pytest.approx(0.1)
    assert binom.cdf(hits, 13, found.high[0]) == pytest.approx(0.1)


def test_ends_count_and_one_truth_serves_all_runs():
    intervals = np.array([[[-0.4, -0.3], [-0.7, -0.6]], [[-0.3, -0.2], [-0.9, -0.8]]])
    found = coverage(intervals, [-0.3, -0.7])
    np.testing.assert_array_equal(found.share, [1.0, 0.5])
    assert coverage(intervals, np.tile([-0.3, -0.7], (2, 1))).share.tolist() == [1.0, 0.5]


def test_honest_intervals_are_found_honest():
    rng = np.random.default_rng(0)
    estimates = rng.standard_normal((2000, 1))
    found = coverage(np.stack([estimates - 1.6449, estimates + 1.6449], axis=2), [0.0])
    assert found.low[0] < 0.9 < found.high[0]
    narrow = coverage(np.stack([estimates - 1.2, estimates + 1.2], axis=2), [0.0])
    assert narrow.high[0] < 0.9


@pytest.mark.parametrize(
    ("intervals", "truths", "level", "message"),
    [
        (np.zeros((3, 2)), np.zeros((3, 2)), 0.95, r"must be \[R, d, 2\]"),
        (np.zeros((3, 2, 2)), np.zeros((2, 3)), 0.95, r"must be \[R, d, 2\]"),
        (np.zeros((0, 2, 2)), np.zeros((0, 2)), 0.95, r"must be \[R, d, 2\]"),
        ([[[1.0, 0.0]]], [[0.5]], 0.95, r"\[low, high\]"),
        ([[[0.0, np.nan]]], [[0.5]], 0.95, "must be finite"),
        ([[[0.0, 1.0]]], [[0.5]], 1.0, "level must lie between 0 and 1"),
    ],
)
def test_what_cannot_be(intervals, truths, level, message):
    with pytest.raises(ValueError, match=message):
        coverage(intervals, truths, level)
