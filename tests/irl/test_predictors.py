"""Reference predictors: chances by hand, never none, and the same whatever the order, the names or the padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_batches import batch_of, cut_off

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import action_before
from irl.checks.predictors import HISTORY, REFERENCES, Boosting, BoostingConfig, LastActionTable, boosting_inputs


def patients(n: int = 60, steps: int = 8, seed: int = 0, n_actions: int = 3) -> Batch:
    """Action 1 is taken where x exceeds 0, 0 otherwise; 2 never. Episodes differ in length."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n, steps + 1, 2)).round(2)
    actions = (obs[:, :-1, 0] > 0).astype(np.int64)
    names = tuple(f"a{i}" for i in range(n_actions))
    return cut_off(obs, actions, ("x", "y"), names, lengths=rng.integers(3, steps + 1, size=n))


def test_actions_before():
    batch = batch_of([1, 0, 1], [0, 1])
    assert action_before(batch)[batch.mask].tolist() == [0, 2, 1, 0, 1]
    assert action_before(batch, 2)[batch.mask].tolist() == [0, 0, 2, 0, 0]


def test_table_by_hand():
    # After none yet: 1, 0, 1. After 0: 1, 1. After 1: 1, 0, 1, 0. One more of each in every row.
    table = LastActionTable.fit(batch_of([1, 1, 0, 1], [0, 1, 1], [1, 0]))
    assert table.chances == pytest.approx(np.array([[2 / 5, 3 / 5], [1 / 4, 3 / 4], [1 / 2, 1 / 2]]))
    found = table.log_probabilities(batch_of([0, 1], [1]))
    assert np.exp(found[0]) == pytest.approx(np.array([[0.4, 0.6], [0.25, 0.75]]))
    assert found[1, 1].tolist() == [0, 0]  # padding


def test_what_the_trees_look_at():
    batch = batch_of([1, 0, 1], d=1)  # x is 0, 1, 2, 3
    inputs, categories = boosting_inputs(batch)
    none = np.nan
    expected = [[0, none, 0, none, none], [1, 1, 1, 1, none], [2, 1, 2, 0, 1]]
    np.testing.assert_array_equal(inputs, np.array(expected))
    assert categories.tolist() == [False, False, False, True, True]
    ward = replace(batch, contexts=(("ward", ("A", "B")),), context_levels=np.array([[[1], [0], [1]]]))
    assert boosting_inputs(ward)[0][:, -1].tolist() == [1, 0, 1]


def test_trees_can_look_back_further():
    batch = batch_of([1, 0, 1, 1], d=1)  # x is 0, 1, 2, 3, 4
    none = np.nan
    last = [3, 1, 2, 3, 1, 0, 1]  # x, its changes since one and two steps before, the step, three actions
    np.testing.assert_array_equal(boosting_inputs(batch, 3)[0][2:], np.array([[2, 1, 2, 2, 0, 1, none], last]))
    with pytest.raises(ValueError, match="lags must be at least 2"):
        BoostingConfig(lags=1)


def test_trees_with_a_history_find_what_decided_steps_ago():
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=200)
    train = batch_of(*([a, *rng.integers(2, size=3), a] for a in first.tolist()))
    chances = [Boosting.fit(train, 0, config).log_probabilities(train)[:, 4] for config in (None, HISTORY)]
    near, far = ((found.argmax(axis=1) == first).mean() for found in chances)
    assert (near < 0.8, far) == (True, 1.0)
    short = batch_of([1, 0], [0, 1], [1, 1])
    assert Boosting.fit(short, 0, HISTORY).lags == 2


def test_trees_find_what_decides():
    train, test = patients(), patients(seed=1)
    found = Boosting.fit(train, 0).log_probabilities(test)
    assert (found.argmax(axis=2) == test.actions)[test.mask].mean() > 0.95
    never = np.exp(found[test.mask][:, 2])
    # One more decision of each action stands beside n: an action that was never taken has 1 of n + 3.
    n = train.n_steps + 3
    assert never == pytest.approx(3 / n / n)


def test_trees_of_one_action_alone():
    batch = batch_of([0, 0, 0], [0, 0])
    # The trees' share is 5 of 7 and certain of action 0; the rest says 6 of 7.
    chances = np.exp(Boosting.fit(batch, 0).log_probabilities(batch))[batch.mask]
    assert chances == pytest.approx(np.tile([5 / 7 + 2 / 7 * 6 / 7, 2 / 7 / 7], (5, 1)))


@pytest.mark.parametrize("name", REFERENCES)
class TestEvery:
    def test_forbidden_actions_have_no_chance_and_the_others_all(self, name):
        batch = patients()
        allowed = np.ones((*batch.actions.shape, 3), dtype=np.bool_)
        allowed[:, ::2, 2] = False
        fitted = REFERENCES[name](batch, 0)
        free = np.exp(fitted.log_probabilities(batch))
        chances = np.exp(fitted.log_probabilities(replace(batch, allowed=allowed)))
        forbidden = ~replace(batch, allowed=allowed).allowed
        assert (chances[forbidden] == 0).all()
        assert chances[batch.mask].sum(axis=1) == pytest.approx(1)
        assert (chances[~forbidden] > 0).all()
        among = np.where(forbidden, 0, free)
        assert chances[batch.mask] == pytest.approx((among / among.sum(axis=2, keepdims=True))[batch.mask])

    def test_padding_and_order_change_nothing(self, name):
        batch, order = patients(), np.random.default_rng(1).permutation(60)
        found = REFERENCES[name](batch, 0).log_probabilities(batch)
        shuffled = REFERENCES[name](batch.take(order).padded(12), 0).log_probabilities(batch.padded(12))
        np.testing.assert_array_equal(shuffled[:, :8], found)
        assert not shuffled[:, 8:].any()
        assert not found[~batch.mask].any()

    def test_names_of_actions_change_nothing(self, name):
        batch, names = patients(), np.array([2, 0, 1])  # what was 0 is 2, ...
        mask = batch.mask
        renamed = replace(batch, actions=np.where(mask, names[batch.actions], 0), action_names=("b", "c", "a"))
        found = REFERENCES[name](batch, 0).log_probabilities(batch)
        other = REFERENCES[name](renamed, 0).log_probabilities(renamed)
        assert other[..., names][mask] == pytest.approx(found[mask])

    def test_the_future_changes_nothing(self, name):
        batch = patients()
        fitted = REFERENCES[name](batch, 0)
        obs, actions = batch.obs.copy(), batch.actions.copy()
        obs[:, 3:], actions[:, 2:] = 5, 2
        changed = fitted.log_probabilities(replace(batch, obs=obs, actions=actions))
        np.testing.assert_array_equal(changed[:, :3], fitted.log_probabilities(batch)[:, :3])

    def test_other_actions_are_refused(self, name):
        fitted = REFERENCES[name](patients(), 0)
        with pytest.raises(ValueError, match="fitted to the actions a0, a1, a2, not a0, a1"):
            fitted.log_probabilities(patients(n_actions=2))


def test_trees_refuse_other_features():
    fitted = Boosting.fit(patients(), 0)
    with pytest.raises(ValueError, match="other features or contexts"):
        fitted.log_probabilities(replace(patients(), features=("x", "z")))
