"""Logits of habits by the context of a decision: every number worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_batches import batch_of

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import NONE, NONE_YET, PREVIOUS, PREVIOUS2, Contexts, Habit

WARD = ("ward", ("east", "west"))


def in_wards() -> Batch:
    """Actions 0, 1, 1 in wards east, west, east, and action 2 in west."""
    levels = np.array([[[0], [1], [0]], [[1], [0], [0]]])
    return replace(batch_of([0, 1, 1], [2], n_actions=3), contexts=(WARD,), context_levels=levels)


def test_the_levels_of_a_decision_are_numbered_through_all_contexts() -> None:
    contexts = Contexts.of(in_wards(), (PREVIOUS, "ward"))
    assert contexts.levels == ((NONE_YET, "a0", "a1", "a2"), ("east", "west"))
    assert (contexts.size, contexts.first.tolist()) == (6, [0, 4])
    along = contexts.along(in_wards())
    assert along[in_wards().mask].tolist() == [[0, 4], [1, 5], [2, 4], [0, 5]]
    turned = Contexts.of(in_wards(), ("ward", PREVIOUS)).along(in_wards())
    assert turned[in_wards().mask].tolist() == [[0, 2], [1, 3], [0, 4], [1, 2]]
    none = Contexts.of(in_wards(), ())
    assert (none.size, none.along(in_wards()).shape) == (0, (2, 3, 0))


def test_logits_of_several_contexts_add_up_and_padding_changes_none() -> None:
    logits = np.arange(18.0).reshape(6, 3) ** 2
    habit = Habit(Contexts.of(in_wards(), (PREVIOUS, "ward")), logits)
    want = [logits[0] + logits[4], logits[1] + logits[5], logits[2] + logits[4], logits[0] + logits[5]]
    assert habit.along(in_wards())[in_wards().mask].tolist() == np.array(want).tolist()
    longer = in_wards().padded(5)
    assert habit.along(longer)[longer.mask].tolist() == np.array(want).tolist()
    assert Habit(Contexts((), ()), np.zeros((0, 3))).along(in_wards()).tolist() == np.zeros((2, 3, 3)).tolist()
    with pytest.raises(ValueError, match="read-only"):
        habit.logits[0, 0] = 1


def test_repeating_and_treating_have_their_logits_also_where_a_policy_acts() -> None:
    habit = Habit.repeating(("wait", "treat"), 2.0, [0.0, -1.0])
    assert habit.contexts == Contexts((PREVIOUS,), ((NONE_YET, "wait", "treat"),))
    assert habit.logits.tolist() == [[0, -1], [2, -1], [0, 1]]
    nobody = np.full(3, -1)
    assert habit.after(np.array([-1, 1, 0]), nobody).tolist() == [[0, -1], [0, 1], [2, -1]]
    # Of a column that a policy does not know it takes the mean.
    both = Habit(
        Contexts((PREVIOUS, *WARD[:1]), (habit.contexts.levels[0], WARD[1])),
        np.vstack([habit.logits, [[4, 0], [0, 2]]]),
    )
    assert both.after(np.array([-1, 1]), nobody[:2]).tolist() == [[2, 0], [2, 2]]
    batch = replace(batch_of([0, 1, 1]), action_names=("wait", "treat"))
    assert habit.along(batch)[0].tolist() == habit.after(np.array([-1, 0, 1]), nobody).tolist()


def test_the_action_two_steps_before_has_logits_of_its_own_along_a_batch_and_where_a_policy_acts() -> None:
    batch = replace(batch_of([0, 1, 1, 0]), action_names=("wait", "treat"))
    contexts = Contexts.of(batch, (PREVIOUS, PREVIOUS2))
    assert contexts.levels == ((NONE_YET, "wait", "treat"),) * 2
    assert contexts.along(batch)[0].tolist() == [[0, 3], [1, 3], [2, 4], [2, 5]]
    assert Contexts.of(batch_of([0]), (PREVIOUS2,)).along(batch_of([0]))[0].tolist() == [[0]]
    habit = Habit(contexts, np.arange(12.0).reshape(6, 2) ** 2)
    previous, previous2 = np.array([-1, 0, 1, 1]), np.array([-1, -1, 0, 1])
    assert habit.along(batch)[0].tolist() == habit.after(previous, previous2).tolist()


def test_other_numbers_for_the_actions_change_no_logit() -> None:
    batch, order = in_wards(), np.array([2, 0, 1])  # action k becomes order[k]
    names = [""] * 3
    for old, new in enumerate(order):
        names[new] = batch.action_names[old]
    other = replace(batch, actions=order[batch.actions], action_names=tuple(names))
    logits = np.random.default_rng(0).normal(size=(6, 3))
    rows = np.concatenate([[0], 1 + np.argsort(order), [4, 5]])
    habit = Habit(Contexts.of(batch, (PREVIOUS, "ward")), logits)
    relabelled = Habit(Contexts.of(other, (PREVIOUS, "ward")), logits[rows][:, np.argsort(order)])
    assert relabelled.along(other)[..., order][batch.mask].tolist() == habit.along(batch)[batch.mask].tolist()


def test_what_is_no_context_and_no_logit_is_refused() -> None:
    with pytest.raises(
        ValueError, match="habit: 'shift' is no context of the batch; there are previous, previous2, ward"
    ):
        Contexts.of(in_wards(), (PREVIOUS, "shift"))
    with pytest.raises(ValueError, match="names must be different and each have its levels"):
        Contexts.of(in_wards(), ("ward", "ward"))
    with pytest.raises(ValueError, match="ward must have different levels"):
        Contexts(("ward",), (("east", "east"),))
    contexts = Contexts.of(in_wards(), ("ward",))
    other = replace(in_wards(), contexts=(("ward", ("east", "north")),))
    with pytest.raises(ValueError, match="the levels of ward differ between the batch and the habit"):
        contexts.along(other)
    for logits in (np.zeros((3, 3)), np.zeros(2), np.full((2, 3), np.inf)):
        with pytest.raises(ValueError, match=r"Habit.logits must be \[2, A\] finite numbers"):
            Habit(contexts, logits)
    assert {PREVIOUS, NONE}.isdisjoint(name for name, _ in in_wards().contexts)
