"""What is reported of habits: chances, intervals and counts, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_batches import batch_of

from cirl_gym.data.habits import Contexts
from irl.result.habits import found_habits

BATCH = batch_of([1, 1, 0], [1], [0, 1])
"""Before a decision: three times nothing, twice 1 (of the first episode), once 0 (of the last)."""
PREVIOUS = Contexts.of(BATCH, ("previous",))


def test_chances_and_counts_by_hand() -> None:
    logits = np.array([[0.0, 0.0], [-1.0, 1.0], [np.log(3) / 2, -np.log(3) / 2]])
    found = found_habits(PREVIOUS, np.tile(logits, (5, 1, 1)), BATCH)
    assert found is not None
    assert found.actions == BATCH.action_names
    (previous,) = found.contexts
    assert [level.level for level in previous.levels] == ["none yet", *BATCH.action_names]
    # First decisions: 1, 1, 0; after 0: 1; after 1: 1, then 0.
    assert [level.taken for level in previous.levels] == [(1, 2), (0, 1), (1, 1)]
    assert [level.decisions for level in previous.levels] == [3, 1, 2]
    np.testing.assert_allclose([level.logits for level in previous.levels], logits)
    # e^2 / (1 + e^2) = .8808; odds of 3 to 1.
    expected = [[0.5, 0.5], [0.1192, 0.8808], [0.75, 0.25]]
    np.testing.assert_allclose([level.chances for level in previous.levels], expected, atol=1e-4)
    np.testing.assert_allclose(previous.levels[2].between, [[0.75, 0.75], [0.25, 0.25]])


def test_medians_lie_between_the_ends_of_the_draws() -> None:
    draws = np.zeros((101, 3, 2))
    draws[:, 0, 1] = np.linspace(-5, 5, 101)
    found = found_habits(PREVIOUS, draws, BATCH)
    assert found is not None
    level = found.contexts[0].levels[0]
    assert level.logits == (0.0, 0.0)
    np.testing.assert_allclose(level.intervals[1], (-4.5, 4.5))
    np.testing.assert_allclose(level.between[1], 1 / (1 + np.exp([4.5, -4.5])))


def test_a_context_is_taken_at_the_mean_of_the_others() -> None:
    levels = np.zeros((*BATCH.actions.shape, 1), dtype=np.int64)
    levels[1:] = 1
    batch = replace(BATCH, contexts=(("ward", ("a", "b")),), context_levels=levels)
    both = Contexts.of(batch, ("previous", "ward"))
    logits = np.zeros((1, 5, 2))
    logits[0, 0, 1], logits[0, 3:, 1] = 1.0, (2.0, 0.0)
    found = found_habits(both, logits, batch)
    assert found is not None
    first, ward = found.contexts
    # At the first decision 1 for action 1, and 1 more as the mean of both wards; in ward a 2 and the mean of 1, 0, 0.
    assert first.levels[0].chances[1] == pytest.approx(1 / (1 + np.exp(-2)))
    assert ward.levels[0].chances[1] == pytest.approx(1 / (1 + np.exp(-(2 + 1 / 3))))
    assert [level.taken for level in ward.levels] == [(1, 2), (1, 2)]


def test_no_contexts_no_habits_and_wrong_draws() -> None:
    assert found_habits(Contexts((), ()), np.zeros((4, 0, 2)), BATCH) is None
    for shape in ((4, 2, 2), (4, 3, 3), (0, 3, 2), (3, 2)):
        with pytest.raises(ValueError, match=r"draws of habits must be \[M, 3, 2\]"):
            found_habits(PREVIOUS, np.zeros(shape), BATCH)
