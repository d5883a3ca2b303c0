"""Decisions among some of the actions: likelihoods, habits, records, by hand and by invariance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from small_batches import batch_of

from irl.checks.held_out import averaged_log_likelihood
from irl.checks.metrics import majority, repeat_last_action
from irl.preferences.likelihood import (
    PlanPool,
    action_log_likelihood,
    constant_chances,
    even_log_chances,
    log_chances,
    taken_log_probabilities,
)
from irl.result.result import AllowedActions
from irl.studies.windows import window_pool


def masked_batch(seed=0, n_actions=3, episodes=6, steps=4):
    rng = np.random.default_rng(seed)
    batch = batch_of(*rng.integers(n_actions, size=(episodes, steps)).tolist(), n_actions=n_actions)
    allowed = rng.random((episodes, steps, n_actions)) < 0.5
    np.put_along_axis(allowed, batch.actions[..., None], True, axis=2)
    return replace(batch, allowed=allowed)


def pool_of(batch, plans=3, d=2, seed=1):
    return PlanPool(batch, np.random.default_rng(seed).normal(size=(plans, *batch.actions.shape, batch.n_actions, d)))


def test_by_hand():
    # Values 1, 2, 5; the last is forbidden; the first was taken: p = 1 / (1 + e^kappa), whatever the 5 is.
    batch = replace(batch_of([0], n_actions=3), allowed=np.array([[[True, True, False]]]))
    kappas = np.array([0.0, 1.0, 20.0])
    for third in (5.0, -1e6, np.inf, np.nan):
        found = action_log_likelihood(np.array([[[1.0, 2.0, third]]]), batch, kappas)
        np.testing.assert_allclose(found[:, 0], -np.log1p(np.exp(kappas)))


def test_a_forced_decision_says_nothing():
    batch = replace(batch_of([1, 0]), allowed=np.array([[[False, True], [True, True]]]))
    q = np.array([[[7.0, -3.0], [1.0, 2.0]]])
    np.testing.assert_allclose(action_log_likelihood(q, batch, [1.0])[0], -np.log1p(np.e))


def test_a_value_that_counts_must_be_finite():
    batch = replace(batch_of([0]), allowed=np.array([[[True, True]]]))
    with pytest.raises(ValueError, match="not finite"):
        action_log_likelihood(np.array([[[1.0, -np.inf]]]), batch, [1.0])


def test_masks_that_forbid_nothing_change_nothing():
    batch = masked_batch()
    free, full = replace(batch, allowed=None), replace(batch, allowed=np.ones_like(batch.allowed))
    w, kappas = np.array([0.3, -0.7]), np.array([0.5, 30.0])
    one, two = pool_of(free), pool_of(full)
    np.testing.assert_array_equal(one.group_log_likelihood(w, kappas), two.group_log_likelihood(w, kappas))
    np.testing.assert_array_equal(constant_chances(free), constant_chances(full))
    np.testing.assert_array_equal(majority(free, free), majority(full, full))
    np.testing.assert_array_equal(repeat_last_action(free, free), repeat_last_action(full, full))
    np.testing.assert_allclose(
        taken_log_probabilities(even_log_chances(free), free), taken_log_probabilities(even_log_chances(full), full)
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_likelihoods_of_a_pool_agree(seed):
    batch = masked_batch(seed)
    pool = pool_of(batch, seed=seed)
    rng = np.random.default_rng(seed)
    w, kappas = rng.normal(size=(5, 2)), rng.uniform(0.1, 20, size=5)
    expected = [pool.group_log_likelihood(one, kappa[None]).sum() for one, kappa in zip(w, kappas, strict=True)]
    np.testing.assert_allclose(pool.log_likelihoods(w, kappas), expected, rtol=1e-5, atol=1e-5)
    averaged = averaged_log_likelihood(pool, w[:1], kappas[:1])
    np.testing.assert_allclose(averaged, action_log_likelihood(pool.q(w[0]), batch, kappas[:1])[0], atol=1e-9)


def test_what_is_forbidden_is_as_if_it_were_not_there():
    # Actions 0 and 2 of three, everywhere: the same as a batch of two actions.
    small = batch_of([0, 1, 1], [1, 0])
    big = replace(batch_of([0, 2, 2], [2, 0], n_actions=3), allowed=np.tile([True, False, True], (2, 3, 1)))
    psi = np.random.default_rng(0).normal(size=(2, 2, 3, 3, 2))
    w, kappas = np.array([0.4, 0.6]), np.array([2.0])
    np.testing.assert_allclose(
        PlanPool(big, psi).group_log_likelihood(w, kappas),
        PlanPool(small, psi[:, :, :, [0, 2]]).group_log_likelihood(w, kappas),
    )
    np.testing.assert_allclose(constant_chances(big)[[0, 2]], constant_chances(small), atol=1e-9)


def test_windows_keep_the_masks_of_their_steps():
    batch = masked_batch()
    part = window_pool(pool_of(batch), 1, 3)
    assert part is not None
    np.testing.assert_array_equal(part.batch.allowed, batch.allowed[:, 1:3])


# --- habits --------------------------------------------------------------------------------------


def test_constant_chances_by_hand():
    # Without masks: frequencies. Where 1 was forbidden in the first step, that 0 was taken there tells nothing.
    batch = batch_of([0, 0, 1])
    np.testing.assert_allclose(constant_chances(batch), [2 / 3, 1 / 3])
    np.testing.assert_allclose(constant_chances(batch, more=1.0), [3 / 5, 2 / 5])
    mask = np.array([[[True, False], [True, True], [True, True]]])
    np.testing.assert_allclose(constant_chances(replace(batch, allowed=mask)), [0.5, 0.5], atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_constant_chances_are_the_likeliest(seed):
    batch = masked_batch(seed, n_actions=4, episodes=20)
    found = constant_chances(batch)

    def lost(logits):
        return -taken_log_probabilities(log_chances(np.exp(logits) / np.exp(logits).sum(), batch), batch).sum()

    best = minimize(lost, np.zeros(4), method="BFGS", options={"gtol": 1e-6})
    assert -taken_log_probabilities(log_chances(found, batch), batch).sum() <= best.fun + 1e-6


def test_log_chances_are_of_what_is_allowed():
    batch = masked_batch(3)
    logs = log_chances(np.array([0.2, 0.3, 0.5]), batch)
    np.testing.assert_allclose(np.exp(logs).sum(axis=2), 1.0)
    assert np.isneginf(logs[~batch.allowed]).all()
    even = even_log_chances(batch)
    np.testing.assert_allclose(np.exp(even).sum(axis=2), 1.0)
    left = batch.allowed.sum(axis=2).ravel()
    np.testing.assert_allclose(np.exp(even)[batch.allowed], np.repeat(1 / left, left))


def test_habits_do_what_is_allowed():
    train = batch_of([1, 1, 1, 2, 2, 0], n_actions=3)
    # After 1, 1 is forbidden at step 1; at step 2 both 1 and 2 are.
    mask = np.ones((1, 3, 3), dtype=np.bool_)
    mask[0, 1, 1] = mask[0, 2, 1] = mask[0, 2, 2] = False
    test = replace(batch_of([1, 2, 0], n_actions=3), allowed=mask)
    assert majority(train, test).tolist() == [[1, 2, 0]]
    assert repeat_last_action(train, test).tolist() == [[1, 2, 0]]
    assert repeat_last_action(train, replace(test, allowed=None)).tolist() == [[1, 1, 2]]


# --- the record ----------------------------------------------------------------------------------


def test_what_is_recorded():
    batch = replace(
        batch_of([0, 1], [1]), allowed=np.array([[[True, False], [True, True]], [[False, True], [True, True]]])
    )
    found = AllowedActions.of(["a rule"], batch)
    assert found == AllowedActions(("a rule",), 3, 2, 2)
    assert found.sentence == (
        "Some action was forbidden in 2 of 3 training decisions; one action alone was allowed in 2, which say nothing "
        "of the weights."
    )
    assert "never comes up in the 3 training decisions" in AllowedActions(("a rule",), 3, 0, 0).sentence
    assert AllowedActions.of([], replace(batch, allowed=None)) is None


@pytest.mark.parametrize("numbers", [(3, 4, 2), (3, 1, 2), (3, 1, -1)])
def test_a_record_that_cannot_be_is_refused(numbers):
    with pytest.raises(ValueError, match=r"AllowedActions|allowed: forced"):
        AllowedActions(("a rule",), *numbers)
