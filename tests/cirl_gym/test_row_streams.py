"""Rows of random numbers: a generator's own sequence, however far ahead they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirl_gym.envs.process import RowStreams


@pytest.mark.parametrize("kind", ["normal", "uniform"])
@given(takes=st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=25), ahead=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_a_row_gets_its_generators_numbers_in_order(kind, takes, ahead):
    streams = RowStreams(4, 2, kind, ahead)
    streams.use(range(4), [np.random.default_rng(i) for i in range(4)])
    got = [[] for _ in range(4)]
    for k, rows in enumerate(takes):
        if k % 2:
            chosen = np.array(sorted(rows), dtype=np.int64)
            for i, numbers in zip(chosen, streams.take(chosen), strict=True):
                got[i].append(numbers)
        else:
            going = np.isin(np.arange(4), list(rows))
            numbers = streams.take_all(going)
            for i in np.flatnonzero(going):
                got[i].append(numbers[i])
    for i in range(4):
        rng = np.random.default_rng(i)
        drawn = rng.standard_normal((50, 2)) if kind == "normal" else rng.random((50, 2))
        np.testing.assert_array_equal(np.reshape(got[i], (-1, 2)), drawn[: len(got[i])])


def test_a_new_generator_begins_at_its_own_beginning_and_the_same_one_goes_on():
    streams, rng = RowStreams(1, 1, "uniform", 5), np.random.default_rng(0)
    drawn = np.random.default_rng(0).random(4)
    row = np.array([0])
    streams.use([0], [rng])
    assert streams.take(row).item() == drawn[0]
    streams.use([0], [rng])
    assert streams.take(row).item() == drawn[1]
    streams.use([0], [np.random.default_rng(0)])
    assert streams.take(row).item() == drawn[0]
    # With one ahead the generator stays where the last number was.
    streams, rng, reference = RowStreams(1, 2, "normal", 1), np.random.default_rng(0), np.random.default_rng(0)
    streams.use([0], [rng])
    streams.take(row)
    reference.standard_normal(2)
    assert rng.bit_generator.state == reference.bit_generator.state
