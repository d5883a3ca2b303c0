import numpy as np
import pytest
from small_batches import batch_of

from cirl_gym.data.rollout import act_along, observation
from irl.checks.metrics import (
    accuracy,
    accuracy_by_step,
    agreement,
    ceiling,
    majority,
    repeat_last_action,
    same_order,
    weight_error,
)

BATCH = batch_of([0, 1, 1, 0], [1], [0, 0])
CHOSEN = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])


def test_accuracy_by_hand():
    # Episodes 3/4, 1/1, 0/2: their mean is 1.75/3.
    assert accuracy(CHOSEN, BATCH) == pytest.approx(1.75 / 3)
    np.testing.assert_allclose(accuracy_by_step(CHOSEN, BATCH), [2 / 3, 1 / 2, 0, 1])
    np.testing.assert_array_equal(
        agreement(CHOSEN, BATCH), [[True, True, False, True], [True, False, False, False], [False] * 4]
    )


def test_accuracy_does_not_depend_on_padding_or_order():
    padded = BATCH.padded(9)
    chosen = np.pad(CHOSEN, ((0, 0), (0, 5)), constant_values=0)  # equal to the padding: must not count as right
    assert accuracy(chosen, padded) == accuracy(CHOSEN, BATCH)
    np.testing.assert_array_equal(accuracy_by_step(chosen, padded), accuracy_by_step(CHOSEN, BATCH))
    order = np.array([2, 0, 1])
    assert accuracy(CHOSEN[order], BATCH.take(order)) == pytest.approx(accuracy(CHOSEN, BATCH))


def test_accuracy_bounds_and_relabelled_actions():
    assert accuracy(BATCH.actions, BATCH) == 1.0
    assert accuracy(1 - BATCH.actions, BATCH) == 0.0
    swapped = batch_of([1, 0, 0, 1], [0], [1, 1])
    assert accuracy(1 - CHOSEN, swapped) == accuracy(CHOSEN, BATCH)


@pytest.mark.parametrize("chosen", [CHOSEN[:2], CHOSEN[:, :3], CHOSEN.astype(float)])
def test_chosen_actions_must_fit(chosen):
    with pytest.raises(ValueError, match="chosen actions must be"):
        accuracy(chosen, BATCH)


def test_baselines_learn_from_the_training_data_alone():
    training = batch_of([1, 0, 0], [1, 0], [0, 0], [1, 2], n_actions=3)
    held_out = batch_of([2, 2, 1], [1], n_actions=3)
    # Training: action 0 five times, 1 three times; first actions 1, 1, 0, 1.
    np.testing.assert_array_equal(majority(training, held_out), np.zeros((2, 3)))
    np.testing.assert_array_equal(repeat_last_action(training, held_out)[0], [1, 2, 2])
    assert repeat_last_action(training, held_out)[1, 0] == 1
    assert accuracy(repeat_last_action(training, held_out), held_out) == pytest.approx((1 / 3 + 1) / 2)


def test_majority_does_not_count_padding_and_takes_the_first_of_equals():
    # Padding is stored as action 0: 1 is taken twice, 0 once.
    assert majority(batch_of([1, 1, 0], [2], n_actions=3), BATCH)[0, 0] == 1
    assert majority(batch_of([2, 1], n_actions=3), BATCH)[0, 0] == 1


def test_ceiling_by_hand():
    batch = batch_of([0, 1], [1])
    p = np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [np.nan, np.nan]]])
    assert ceiling(p, batch) == pytest.approx(((0.9 + 0.7) / 2 + 0.5) / 2)
    assert ceiling(None, batch) is None


def test_no_policy_beats_the_ceiling_in_expectation():
    rng = np.random.default_rng(0)
    treat = rng.random((4000, 5))
    taken = (rng.random((4000, 5)) < treat).astype(int)
    batch = batch_of(*taken)
    p = np.stack([1 - treat, treat], axis=2)
    limit = ceiling(p, batch)
    assert limit == pytest.approx(0.75, abs=0.01)  # E[max(u, 1 - u)]
    assert accuracy(p.argmax(axis=2), batch) == pytest.approx(limit, abs=0.015)


@pytest.mark.parametrize("p", [np.ones((1, 2, 2)), np.array([[[1.5, -0.5], [1, 0]]]), np.full((1, 2, 2), np.nan)])
def test_ceiling_refuses_what_are_no_probabilities(p):
    with pytest.raises(ValueError, match="must not be negative and must sum to 1"):
        ceiling(p, batch_of([0, 1]))


def test_ceiling_refuses_other_shapes():
    with pytest.raises(ValueError, match="probabilities must be"):
        ceiling(np.full((1, 2, 3), 1 / 3), batch_of([0, 1]))


def test_weight_error_compares_directions():
    np.testing.assert_allclose(weight_error([-0.9, -2.1], [-0.3, -0.7]), [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(weight_error([-0.4, -0.6], [-3, -7]), [0.1, 0.1])
    np.testing.assert_allclose(weight_error([0.3, -0.7], [-0.3, -0.7]), [0.6, 0.0])
    for bad in ([0, 0], [np.nan, 1]):
        with pytest.raises(ValueError, match="weights must"):
            weight_error(bad, [1, 1])
    with pytest.raises(ValueError, match="differ in length"):
        weight_error([1, 1], [1, 1, 1])


def test_same_order():
    assert same_order([-0.4, -0.6], [-0.3, -0.7])
    assert not same_order([-0.6, -0.4], [-0.3, -0.7])
    assert not same_order([-0.5, -0.5], [-0.3, -0.7]), "a tie is not an order"
    assert same_order([-0.6, -0.4], [-0.5, -0.5])
    with pytest.raises(ValueError, match="differ in length"):
        same_order([1, 1], [1])


class Recorder:
    """Answers with the number of calls of the episode and keeps what it saw."""

    def __init__(self):
        self.seen, self.starts, self.flags = [], [], []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        calls = np.zeros(len(observation), dtype=np.int64) if state is None else state[0]
        self.seen.append(observation)
        self.starts.append(episode_start)
        self.flags.append(deterministic)
        return calls % 2, (calls + 1,)


def test_act_along_shows_the_real_history_and_keeps_the_memory():
    policy = Recorder()
    batch = batch_of([1, 0, 1], [1])
    chosen = act_along(policy, batch.padded(6))
    np.testing.assert_array_equal(chosen, [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    assert len(policy.seen) == 3, "padding is not walked"
    # Raw features, then the one-hot action that was really taken before (none at t = 0).
    np.testing.assert_array_equal(np.stack(policy.seen)[:, 0], [[0, 100, 0, 0], [1, 101, 0, 1], [2, 102, 1, 0]])
    np.testing.assert_array_equal(policy.seen[0], observation(batch.start, np.full(2, -1), 2))
    np.testing.assert_array_equal(np.stack(policy.starts), [[True, True], [False, False], [False, False]])
    assert all(policy.flags)
    act_along(policy, batch, deterministic=False)
    assert not policy.flags[-1]
