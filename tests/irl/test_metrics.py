"""Accuracy, habits and ceilings; weights and intervals against the truth; how likely held-out decisions are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from posteriors import drawn_pool, known_posterior
from scipy.stats import binom
from small_batches import batch_of

from cirl_gym.data.habits import Contexts
from irl.checks.metrics import (
    ACCOUNTS,
    HeldOutConfig,
    accuracy,
    accuracy_by_step,
    agreement,
    averaged_log_chances,
    ceiling,
    coverage,
    habit_log_chances,
    held_out_likelihood,
    held_out_plans,
    majority,
    repeat_last_action,
    same_order,
    simple_accounts,
    weight_error,
)
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import NO_CONTEXTS, PlanPool

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


def even(batch):
    """Log-probabilities of every account, all as likely as each other."""
    logs = np.full((*batch.actions.shape, batch.n_actions), -np.log(batch.n_actions))
    return dict.fromkeys(ACCOUNTS, logs)


def said(*treated) -> np.ndarray:
    """Log-probabilities of two actions along :data:`STAYS`, from the chance of the second at every decision."""
    chances = np.full((3, 3, 2), 0.5)
    for episode, row in enumerate(treated):
        for step, chance in enumerate(row):
            chances[episode, step] = 1 - chance, chance
    return np.log(chances)


class TestAccounts:
    def test_draws_average_chances_not_logarithms(self):
        batch = batch_of([0])
        pool = PlanPool(batch, np.array([[[[[1.0, 0.0], [0.0, 1.0]]]]]))
        # Under one draw the action is sure, under the other it is a coin.
        torn = known_posterior([[1.0, 0.0], [0.5, 0.5]], [1000.0, 5.0])
        np.testing.assert_allclose(averaged_log_chances(pool, torn)[0, 0], np.log([0.75, 0.25]))
        # Of many draws the ends and what lies evenly between them: here every other one, which are all alike.
        many = known_posterior([[1.0, 0.0], [0.5, 0.5]] * 50 + [[1.0, 0.0]], [1000.0, 5.0] * 50 + [1000.0])
        np.testing.assert_allclose(averaged_log_chances(pool, many, 51)[0, 0, 0], 0.0, atol=1e-12)

    def test_chances_sum_to_one_with_habits_and_what_is_forbidden_has_none(self):
        rng = np.random.default_rng(0)
        batch = batch_of(*rng.integers(3, size=(4, 5)).tolist(), n_actions=3)
        allowed = rng.random((4, 5, 3)) < 0.5
        np.put_along_axis(allowed, batch.actions[..., None], True, axis=2)
        batch = replace(batch, allowed=allowed)
        contexts = Contexts.of(batch, ("previous",))
        found = known_posterior(rng.random((20, 2)), 10 + rng.random(20), rng.normal(size=(20, 4, 3)), contexts)
        pool = PlanPool(batch, rng.random((2, 4, 5, 3, 2)), contexts)
        chances = np.exp(averaged_log_chances(pool, found))
        np.testing.assert_allclose(chances.sum(axis=2), 1.0)
        assert (chances[~allowed] < 1e-200).all()

    def test_habit_without_contexts_is_how_often_an_action_is_taken(self):
        train = batch_of([0, 0, 1], [0])  # counted with one more of each: 4 of 6
        logs = habit_log_chances(train, STAYS, NO_CONTEXTS, np.random.default_rng(0))
        np.testing.assert_allclose(np.exp(logs), np.broadcast_to([4 / 6, 2 / 6], (3, 3, 2)))

    def test_habit_of_the_action_before_is_how_often_one_follows_the_other(self):
        # After 0 comes 1 in three of four cases, after 1 always 0; the first is always 0. Five hundred times.
        train = batch_of(*[[0, 1, 0, 1], [0, 1, 0, 0]] * 250)
        contexts = Contexts.of(train, ("previous",))
        test = batch_of([1, 0, 1])
        logs = habit_log_chances(train, test, contexts, np.random.default_rng(0))
        np.testing.assert_allclose(np.exp(logs[0, 2]), [1 / 4, 3 / 4], atol=0.03)
        assert np.exp(logs[0, [0, 1], 0]).min() > 0.97
        # Nothing that was observed matters, and neither does what is judged.
        other = replace(test, obs=test.obs + 5.0, actions=np.array([[1, 0, 0]]))
        np.testing.assert_array_equal(habit_log_chances(train, other, contexts, np.random.default_rng(0)), logs)

    def test_what_knows_no_preferences(self):
        rng = np.random.default_rng(0)
        train, test = (batch_of(*rng.integers(2, size=(30, 6)).tolist()) for _ in range(2))
        found = simple_accounts(train, test, Contexts.of(train, ("previous",)), np.random.default_rng(1))
        assert {*found, "cirl", "cloning"} == {*ACCOUNTS}
        for name, logs in found.items():
            every = np.broadcast_to(logs, (30, 6, 2))
            np.testing.assert_allclose(np.exp(every).sum(axis=2), 1.0, err_msg=name)
        np.testing.assert_allclose(found["chance"], np.log([0.5, 0.5]))
        again = simple_accounts(train, test, Contexts.of(train, ("previous",)), np.random.default_rng(1))
        for name, logs in found.items():
            np.testing.assert_array_equal(again[name], logs, err_msg=name)


class TestHeldOut:
    def test_every_number_of_the_record(self):
        chances = even(STAYS) | {
            "cirl": said([0.2, 0.8], [0.6], [0.9, 0.3, 0.4]),
            "habit": said([0.5, 0.5], [0.5], [0.5, 0.5, 0.5]),
            "frequencies": np.log([4 / 6, 2 / 6]),
            "expert": np.log(np.full((3, 3, 2), [0.25, 0.75])),
        }
        record = held_out_likelihood(chances, STAYS, folds=3)
        assert (record.decisions, record.patients, record.folds) == (6, 3, 3)
        # Taken: 0 1, 1, 1 1 0.
        episodes = np.log([0.8 * 0.8, 0.6, 0.9 * 0.3 * 0.6])
        assert record.cirl.mean == pytest.approx(episodes.sum() / 6)
        rest = episodes - np.array([2, 1, 3]) * episodes.sum() / 6
        assert record.cirl.standard_error == pytest.approx(np.sqrt(3 / 2 * (rest**2).sum()) / 6)
        assert record.cirl.accuracy == pytest.approx((1 + 1 + 2 / 3) / 3)
        for account in (record.chance, record.cloning, record.last_action, record.boosting):
            assert (account.mean, account.standard_error) == (pytest.approx(-np.log(2)), pytest.approx(0, abs=1e-12))
        assert record.frequencies.mean == pytest.approx((2 * np.log(4 / 6) + 4 * np.log(2 / 6)) / 6)
        assert record.frequencies.accuracy == pytest.approx((1 / 2 + 0 + 1 / 3) / 3)
        assert record.expert.mean == pytest.approx((2 * np.log(0.25) + 4 * np.log(0.75)) / 6)
        assert held_out_likelihood(even(STAYS), STAYS).expert is None

    def test_beyond_habit_is_paired_by_patient(self):
        # Both foresee the patients very differently; cirl always by log 1.2 better, in every decision.
        habit = said([0.9, 0.1], [0.2], [0.5, 0.5, 0.5])
        taken = np.take_along_axis(habit, STAYS.actions[..., None], axis=2)
        better = np.exp(np.where(STAYS.mask[..., None], taken + np.log(1.2), np.log(0.5)))
        cirl = np.zeros((3, 3, 2))
        np.put_along_axis(cirl, STAYS.actions[..., None], better, axis=2)
        np.put_along_axis(cirl, 1 - STAYS.actions[..., None], 1 - better, axis=2)
        record = held_out_likelihood(even(STAYS) | {"cirl": np.log(cirl), "habit": habit}, STAYS)
        assert record.beyond_habit.mean == pytest.approx(np.log(1.2))
        assert record.beyond_habit.standard_error == pytest.approx(0.0, abs=1e-9)
        assert record.habit.standard_error > 0.1
        # Better in one stay and worse in the other of the same patient: with patients as the unit that is no scatter.
        stays = batch_of([1], [1], [1], [1])
        halves = np.log([[[0.4, 0.6]], [[0.6, 0.4]]] * 2)
        apart, pairs = (
            held_out_likelihood(even(one) | {"cirl": halves}, one).beyond_habit
            for one in (stays, replace(stays, groups=("p", "p", "q", "q")))
        )
        total = np.log([1.2, 0.8])
        assert apart.mean == pairs.mean == pytest.approx(total.mean())
        assert apart.standard_error == pytest.approx(np.sqrt(4 / 3 * 4) * np.ptp(total) / 2 / 4)
        assert pairs.standard_error == pytest.approx(0.0, abs=1e-12)

    def test_an_experts_own_chances_are_the_likeliest(self):
        pool = drawn_pool([-6.0, -14.0], patients=300, steps=6, scale=0.2, seed=1)
        batch, none = pool.batch, np.zeros((0, 2))
        expert = pool.log_chances(np.array([-6.0, -14.0]), none)
        right = held_out_likelihood(
            even(batch)
            | {"cirl": averaged_log_chances(pool, known_posterior([[-0.3, -0.7]], [20.0])), "expert": expert},
            batch,
        )
        assert structs.asdict(right.cirl) == pytest.approx(structs.asdict(right.expert), rel=1e-9)
        assert right.chance.mean < right.expert.mean
        for w, kappa in (([-0.7, -0.3], 20.0), ([-0.3, -0.7], 60.0), ([-0.3, -0.7], 3.0)):
            logs = averaged_log_chances(pool, known_posterior([w], [kappa]))
            wrong = held_out_likelihood(even(batch) | {"cirl": logs}, batch)
            assert wrong.cirl.mean < right.cirl.mean - right.cirl.standard_error

    def test_what_are_no_log_probabilities(self):
        for bad, message in ((np.zeros((3, 3, 3)), "must be"), (np.full((3, 3, 2), 0.1), "not above 0")):
            with pytest.raises(ValueError, match=message):
                held_out_likelihood(even(STAYS) | {"habit": bad}, STAYS)

    def test_plans_are_those_of_the_mean_and_of_draws_from_one_end_to_the_other(self):
        asked = []

        def psi(w, width):
            asked.append((w, width))
            return np.zeros((len(w), 3, 3, 2, 2))

        draws = np.stack([-np.arange(10) / 9, np.arange(10) / 9 - 1], axis=1)
        pool = held_out_plans(psi, known_posterior(draws, np.ones(10)), STAYS, HeldOutConfig(plans=3, width=5))
        assert len(pool.psi) == 4
        ((w, width),) = asked
        np.testing.assert_allclose(w, [[-0.5, -0.5], *draws[[0, 4, 9]]], atol=1e-12)
        assert width == 5

    def test_whole_episodes_until_there_are_enough_and_impossible_settings(self):
        assert [len(judged_episodes(STAYS, n)) for n in (1, 2, 3, 4, 6, 999)] == [1, 1, 2, 3, 3, 3]
        for changes in ({"decisions": 0}, {"plans": 0}, {"draws": 0}, {"width": 0}):
            with pytest.raises(ValueError, match="every number must be at least 1"):
                HeldOutConfig(**changes)
