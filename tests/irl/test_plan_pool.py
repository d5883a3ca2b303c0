"""The pool of plans: the best value over plans for any weights, and the likelihoods that follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_batches import batch_of

from irl.preferences.likelihood import PlanPool

BATCH = batch_of([0, 1, 1], [1], [0, 0], groups=("p", "q", "p"))


def random_pool(seed: int, plans: int = 4, d: int = 2) -> PlanPool:
    rng = np.random.default_rng(seed)
    return PlanPool(BATCH, rng.normal(size=(plans, *BATCH.actions.shape, 2, d)))


def by_hand() -> PlanPool:
    """One decision, two actions; plan 0 gives (1, 0) and (0, 2), plan 1 gives (0, 3) and (2, 2)."""
    return PlanPool(batch_of([1]), np.array([[[[[1.0, 0.0], [0.0, 2.0]]]], [[[[0.0, 3.0], [2.0, 2.0]]]]]))


@pytest.mark.parametrize(
    ("w", "values"),
    [([1, 0], [1, 2]), ([0, 1], [3, 2]), ([-1, 0], [0, 0]), ([-0.5, -0.5], [-0.5, -1]), ([0.5, -0.5], [0.5, 0])],
)
def test_q_is_the_best_plan_of_each_action_by_hand(w, values):
    np.testing.assert_allclose(by_hand().q(np.array(w, dtype=float))[0, 0], values)


def test_likelihood_by_hand():
    # Values 3 and 2, the second action was taken: p = e^(2 kappa) / (e^(3 kappa) + e^(2 kappa)) = 1 / (1 + e^kappa).
    w, kappas = np.array([0.0, 1.0]), np.array([0.0, 1.0, 5.0])
    expected = -np.log1p(np.exp(kappas))
    np.testing.assert_allclose(by_hand().group_log_likelihood(w, kappas)[:, 0], expected)
    np.testing.assert_allclose(by_hand().log_likelihoods(np.tile(w, (3, 1)), kappas), expected, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), w=st.lists(st.floats(-1, 1), min_size=2, max_size=2))
def test_more_plans_never_lower_a_value(seed, w):
    pool, more = random_pool(seed), random_pool(seed + 1, plans=2)
    bigger = pool.extended(more.psi)
    weights = np.array(w)
    assert len(bigger.psi) == 6
    # Products over other numbers of rows may differ in their last bit.
    assert (bigger.q(weights) >= pool.q(weights) - 1e-12).all()
    np.testing.assert_allclose(bigger.q(weights), np.maximum(pool.q(weights), more.q(weights)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_the_two_likelihoods_agree(d, scale):
    pool = replace(random_pool(d, d=d), psi=scale * random_pool(d, d=d).psi)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(7, d))
    w /= np.abs(w).sum(axis=1, keepdims=True)
    kappas = np.exp(rng.uniform(0, np.log(1000), size=7))
    one_by_one = [pool.group_log_likelihood(w[i], kappas[i : i + 1]).sum() for i in range(7)]
    np.testing.assert_allclose(pool.log_likelihoods(w, kappas), one_by_one, rtol=1e-4)


def test_groups_are_patients_in_sorted_order():
    pool, w, kappas = random_pool(0), np.array([-0.3, -0.7]), np.array([2.0])
    groups = pool.group_log_likelihood(w, kappas)
    alone = [
        PlanPool(BATCH.take(np.array([i])), pool.psi[:, [i]]).group_log_likelihood(w, kappas)[0, 0] for i in range(3)
    ]
    np.testing.assert_allclose(groups, [[alone[0] + alone[2], alone[1]]])


def test_padding_is_not_looked_at():
    pool = random_pool(0)
    spoilt = pool.psi.copy()
    spoilt[:, ~BATCH.mask] = np.nan
    other = PlanPool(BATCH, spoilt)
    w, kappas = np.array([[-0.3, -0.7]]), np.array([5.0])
    assert other.log_likelihoods(w, kappas) == pool.log_likelihoods(w, kappas)
    np.testing.assert_array_equal(other.group_log_likelihood(w[0], kappas), pool.group_log_likelihood(w[0], kappas))


@pytest.mark.parametrize("shape", [(0, 3, 3, 2, 2), (1, 2, 3, 2, 2), (1, 3, 4, 2, 2), (1, 3, 3, 3, 2), (3, 3, 2, 2)])
def test_shapes_must_match_the_batch(shape):
    with pytest.raises(ValueError, match=r"PlanPool.psi must be \[J, 3, 3, 2, d\], got"):
        PlanPool(BATCH, np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_must_be_finite_where_an_action_was_taken(bad):
    psi = np.zeros((1, *BATCH.actions.shape, 2, 2))
    psi[0, 0, 2, 1, 0] = bad
    with pytest.raises(ValueError, match="not finite where an action was taken"):
        PlanPool(BATCH, psi)
    with pytest.raises(ValueError, match="not finite where an action was taken"):
        random_pool(0).extended(psi)
