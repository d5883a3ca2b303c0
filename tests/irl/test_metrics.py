"""Accuracy, habits and ceilings; weights and intervals against the truth; how likely held-out decisions are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from posteriors import known_posterior
from scipy.stats import binom
from small_batches import batch_of

from irl.checks.metrics import (
    HeldOutConfig,
    accuracy,
    accuracy_by_step,
    agreement,
    averaged_log_likelihood,
    ceiling,
    coverage,
    held_out_likelihood,
    held_out_plans,
    majority,
    repeat_last_action,
    same_order,
    weight_error,
)
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import PlanPool, action_log_likelihood

BATCH = batch_of([0, 1, 1, 0], [1], [0, 0])
STAYS = batch_of([0, 1], [1], [1, 1, 0])
CHOSEN = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])


def test_accuracy_by_hand_whatever_padding_order_and_names_of_actions():
    # Episodes 3/4, 1/1, 0/2: their mean is 1.75/3.
    assert accuracy(CHOSEN, BATCH) == pytest.approx(1.75 / 3)
    np.testing.assert_allclose(accuracy_by_step(CHOSEN, BATCH), [2 / 3, 1 / 2, 0, 1])
    met = [[True, True, False, True], [True, False, False, False], [False] * 4]
    np.testing.assert_array_equal(agreement(CHOSEN, BATCH), met)
    padded = BATCH.padded(9)
    chosen = np.pad(CHOSEN, ((0, 0), (0, 5)), constant_values=0)  # equal to the padding: must not count as right
    assert accuracy(chosen, padded) == accuracy(CHOSEN, BATCH)
    np.testing.assert_array_equal(accuracy_by_step(chosen, padded), accuracy_by_step(CHOSEN, BATCH))
    order = np.array([2, 0, 1])
    assert accuracy(CHOSEN[order], BATCH.take(order)) == pytest.approx(accuracy(CHOSEN, BATCH))
    assert accuracy(BATCH.actions, BATCH) == 1.0
    assert accuracy(1 - BATCH.actions, BATCH) == 0.0
    swapped = batch_of([1, 0, 0, 1], [0], [1, 1])
    assert accuracy(1 - CHOSEN, swapped) == accuracy(CHOSEN, BATCH)


@pytest.mark.parametrize("chosen", [CHOSEN[:2], CHOSEN[:, :3], CHOSEN.astype(float)])
def test_chosen_actions_must_fit(chosen):
    with pytest.raises(ValueError, match="chosen actions must be"):
        accuracy(chosen, BATCH)


def test_habits_learn_from_the_training_data_alone():
    training = batch_of([1, 0, 0], [1, 0], [0, 0], [1, 2], n_actions=3)
    held_out = batch_of([2, 2, 1], [1], n_actions=3)
    # Training: action 0 five times, 1 three times; first actions 1, 1, 0, 1.
    np.testing.assert_array_equal(majority(training, held_out), np.zeros((2, 3)))
    np.testing.assert_array_equal(repeat_last_action(training, held_out)[0], [1, 2, 2])
    assert repeat_last_action(training, held_out)[1, 0] == 1
    assert accuracy(repeat_last_action(training, held_out), held_out) == pytest.approx((1 / 3 + 1) / 2)
    # Padding is stored as action 0: 1 is taken twice, 0 once.
    assert majority(batch_of([1, 1, 0], [2], n_actions=3), BATCH)[0, 0] == 1
    assert majority(batch_of([2, 1], n_actions=3), BATCH)[0, 0] == 1


def test_the_ceiling_by_hand_is_what_nobody_beats():
    batch = batch_of([0, 1], [1])
    p = np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [np.nan, np.nan]]])
    assert ceiling(p, batch) == pytest.approx(((0.9 + 0.7) / 2 + 0.5) / 2)
    assert ceiling(None, batch) is None
    rng = np.random.default_rng(0)
    treat = rng.random((4000, 5))
    taken = (rng.random((4000, 5)) < treat).astype(int)
    batch = batch_of(*taken)
    p = np.stack([1 - treat, treat], axis=2)
    limit = ceiling(p, batch)
    assert limit == pytest.approx(0.75, abs=0.01)  # E[max(u, 1 - u)]
    assert accuracy(p.argmax(axis=2), batch) == pytest.approx(limit, abs=0.015)


@pytest.mark.parametrize("p", [np.ones((1, 2, 2)), np.array([[[1.5, -0.5], [1, 0]]]), np.full((1, 2, 2), np.nan)])
def test_ceiling_refuses_what_are_no_probabilities_of_the_batch(p):
    with pytest.raises(ValueError, match="must not be negative and must sum to 1"):
        ceiling(p, batch_of([0, 1]))
    with pytest.raises(ValueError, match="probabilities must be"):
        ceiling(np.full((1, 2, 3), 1 / 3), batch_of([0, 1]))


def test_weights_are_compared_by_direction_and_by_order():
    np.testing.assert_allclose(weight_error([-0.9, -2.1], [-0.3, -0.7]), [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(weight_error([-0.4, -0.6], [-3, -7]), [0.1, 0.1])
    np.testing.assert_allclose(weight_error([0.3, -0.7], [-0.3, -0.7]), [0.6, 0.0])
    for bad in ([0, 0], [np.nan, 1]):
        with pytest.raises(ValueError, match="weights must"):
            weight_error(bad, [1, 1])
    with pytest.raises(ValueError, match="differ in length"):
        weight_error([1, 1], [1, 1, 1])
    assert same_order([-0.4, -0.6], [-0.3, -0.7])
    assert not same_order([-0.6, -0.4], [-0.3, -0.7])
    assert not same_order([-0.5, -0.5], [-0.3, -0.7]), "a tie is not an order"
    assert same_order([-0.6, -0.4], [-0.5, -0.5])
    with pytest.raises(ValueError, match="differ in length"):
        same_order([1, 1], [1])


def test_habits_do_what_is_allowed():
    train = batch_of([1, 1, 1, 2, 2, 0], n_actions=3)
    # After 1, 1 is forbidden at step 1; at step 2 both 1 and 2 are.
    mask = np.ones((1, 3, 3), dtype=np.bool_)
    mask[0, 1, 1] = mask[0, 2, 1] = mask[0, 2, 2] = False
    test = replace(batch_of([1, 2, 0], n_actions=3), allowed=mask)
    assert majority(train, test).tolist() == [[1, 2, 0]]
    assert repeat_last_action(train, test).tolist() == [[1, 2, 0]]
    assert repeat_last_action(train, replace(test, allowed=None)).tolist() == [[1, 1, 2]]
    # Masks that forbid nothing change no habit.
    batch = batch_of([1, 2, 0, 1], [2, 0], n_actions=3)
    full = replace(batch, allowed=np.ones((2, 4, 3), dtype=np.bool_))
    for habit in (majority, repeat_last_action):
        np.testing.assert_array_equal(habit(batch, batch), habit(full, full))


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


def test_ends_count_and_honest_intervals_are_found_honest():
    intervals = np.array([[[-0.4, -0.3], [-0.7, -0.6]], [[-0.3, -0.2], [-0.9, -0.8]]])
    found = coverage(intervals, [-0.3, -0.7])
    np.testing.assert_array_equal(found.share, [1.0, 0.5])
    assert coverage(intervals, np.tile([-0.3, -0.7], (2, 1))).share.tolist() == [1.0, 0.5]
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
def test_what_no_coverage_can_be_of(intervals, truths, level, message):
    with pytest.raises(ValueError, match=message):
        coverage(intervals, truths, level)


def pool_of(batch, seed: int = 0, plans: int = 1) -> PlanPool:
    shape = (plans, *batch.actions.shape, batch.n_actions, 2)
    return PlanPool(batch, np.random.default_rng(seed).random(shape))


class TestHeldOut:
    def test_draws_average_chances_not_logarithms(self):
        batch = batch_of([0])
        pool = PlanPool(batch, np.array([[[[[1.0, 0.0], [0.0, 1.0]]]]]))
        # Under one draw the action is sure, under the other it is a coin.
        w, kappas = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1000.0, 5.0])
        assert averaged_log_likelihood(pool, w, kappas)[0] == pytest.approx(np.log(0.75))

    def test_every_number_of_the_record(self):
        pool, found = pool_of(STAYS), known_posterior([[-0.4, -0.6], [-0.2, -0.8]], [10.0, 30.0])
        train = batch_of([0, 0, 1], [0])  # counted with one more of each: 4 of 6
        chances = np.full((3, 3, 2), [0.25, 0.75])
        cloned = np.full((3, 3, 2), np.log(0.5))
        record = held_out_likelihood(pool, found, train, cloned, chances)
        q = pool.q(np.array([-0.3, -0.7]))
        by_draw = [
            np.exp(action_log_likelihood(pool.q(w), STAYS, [k])[0]) for w, k in zip(found.draws, (10, 30), strict=True)
        ]
        assert (record.decisions, record.patients) == (6, 3)
        assert record.cirl.mean == pytest.approx(action_log_likelihood(q, STAYS, [20.0]).sum() / 6)
        for even in (record.chance, record.cloning):
            assert even.mean == pytest.approx(-np.log(2))
            assert even.standard_error == pytest.approx(0.0, abs=1e-12)
        assert record.frequencies.mean == pytest.approx((2 * np.log(4 / 6) + 4 * np.log(2 / 6)) / 6)
        assert record.expert.mean == pytest.approx((2 * np.log(0.25) + 4 * np.log(0.75)) / 6)
        # Of the episode with a single decision, the averaged chance is the mean of both draws' chances.
        alone = averaged_log_likelihood(pool, found.draws, found.kappa_draws)[1]
        assert np.exp(alone) == pytest.approx((by_draw[0][1] + by_draw[1][1]) / 2)
        assert held_out_likelihood(pool, found, train, cloned, None).expert is None

    def test_an_experts_own_chances_are_the_likeliest(self):
        rng = np.random.default_rng(0)
        empty = batch_of(*[[0] * 6] * 300)
        pool = pool_of(empty)
        value = 20.0 * pool.q(np.array([-0.3, -0.7]))
        chances = np.exp(value) / np.exp(value).sum(axis=2, keepdims=True)
        drawn = (rng.random(empty.actions.shape) < chances[..., 1]).astype(np.int64)
        batch = replace(empty, actions=drawn)
        pool = PlanPool(batch, pool.psi)
        cloned = np.log(np.full((300, 6, 2), 0.5))
        right = held_out_likelihood(pool, known_posterior([[-0.3, -0.7]], [20.0]), batch, cloned, chances)
        for own in (right.cirl, right.averaged):  # the same chances, summed in other orders
            assert structs.asdict(own) == pytest.approx(structs.asdict(right.expert), rel=1e-12)
        assert right.chance.mean < right.expert.mean
        for w, kappa in (([-0.7, -0.3], 20.0), ([-0.3, -0.7], 60.0), ([-0.3, -0.7], 3.0)):
            wrong = held_out_likelihood(pool, known_posterior([w], [kappa]), batch, cloned, chances)
            assert wrong.cirl.mean < right.cirl.mean - right.cirl.standard_error

    def test_plans_are_those_of_the_mean_and_of_draws_from_one_end_to_the_other(self):
        asked = []

        def psi(w, width):
            asked.append((w.tolist(), width))
            return np.zeros((3, 3, 2, 2))

        draws = np.stack([-np.arange(10) / 9, np.arange(10) / 9 - 1], axis=1)
        pool = held_out_plans(psi, known_posterior(draws, np.ones(10)), STAYS, HeldOutConfig(plans=3, width=5))
        assert len(pool.psi) == 4
        assert [w for w, _ in asked] == [[-0.5, -0.5], *draws[[0, 4, 9]].tolist()]
        assert {width for _, width in asked} == {5}

    def test_whole_episodes_until_there_are_enough_and_impossible_settings(self):
        assert [len(judged_episodes(STAYS, n)) for n in (1, 2, 3, 4, 6, 999)] == [1, 1, 2, 3, 3, 3]
        for changes in ({"decisions": 0}, {"plans": 0}, {"draws": 0}, {"width": 0}):
            with pytest.raises(ValueError, match="every number must be at least 1"):
                HeldOutConfig(**changes)
