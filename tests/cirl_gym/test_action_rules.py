"""Rules of what is forbidden: read, written, applied to histories by hand, refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_batches import batch_of

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import Above, Below, Outside
from cirl_gym.data.rules import ActionRule, ActionRules, After, among_allowed, masked, read_rules, rules_for

FEATURES, ACTIONS = ("x", "mean pressure"), ("none", "low dose", "high when needed")


def rules(*texts):
    return read_rules(texts, FEATURES, ACTIONS)


def allowed(text, x=0.0, pressure=0.0, previous=-1):
    return rules(text).allowed(np.array([[x, pressure]], dtype=np.float32), np.array([previous]))[0].tolist()


@pytest.mark.parametrize(
    ("text", "conditions", "unless"),
    [
        ("low dose when Above(x, 3)", (Above("x", 3),), False),
        ('low dose unless Below("mean pressure", -1.5)', (Below("mean pressure", -1.5),), True),
        ("low dose when Outside(x, 1, 2) and After(none)", (Outside("x", 1, 2), After("none")), False),
        ('low dose when After("high when needed")', (After("high when needed"),), False),
    ],
)
def test_what_is_read_is_what_is_written(text, conditions, unless):
    found = rules(text)
    assert found.rules == (ActionRule("low dose", conditions, unless),)
    assert [rule.name for rule in found.rules] == [text]


def test_names_may_hold_the_words_and_be_numbers():
    assert rules("high when needed unless After(none)").rules[0].action == "high when needed"
    found = read_rules(["1 unless After(0)"], ("x",), ("0", "1"))
    assert found.rules[0].conditions == (After("0"),)
    assert found.rules[0].name == "1 unless After(0)"


@pytest.mark.parametrize(
    ("condition", "x", "previous", "holds"),
    [
        ("Above(x, 0.7)", 0.7, -1, False),  # 0.7 as float32 is not the 0.7 of the text, and still not above it
        ("Below(x, 0.7)", 0.7, -1, False),
        ("Above(x, 0.7)", 0.71, -1, True),
        ("Below(x, 0.7)", 0.69, -1, True),
        ("Outside(x, 1, 2)", 1.0, -1, False),
        ("Outside(x, 1, 2)", 2.5, -1, True),
        ("Outside(x, 1, 2)", 0.5, -1, True),
        ("After(none)", 0, 0, True),
        ("After(none)", 0, 1, False),
        ("After(none)", 0, -1, False),
        ("Above(x, 1) and After(none)", 2, 1, False),
        ("Above(x, 1) and After(none)", 2, 0, True),
    ],
)
def test_conditions_by_hand(condition, x, previous, holds):
    assert allowed(f"low dose when {condition}", x, previous=previous) == [True, not holds, True]
    assert allowed(f"low dose unless {condition}", x, previous=previous) == [True, holds, True]


def test_the_last_action_that_is_left_stays_and_what_a_policy_sees_is_enough():
    both = rules("none when Above(x, 1)", "low dose when Above(x, 1)", "high when needed when Above(x, 1)")
    seen = both.allowed(np.array([[2.0, 0.0], [0.0, 0.0]], dtype=np.float32), np.array([-1, -1]))
    assert seen.tolist() == [[False, False, True], [True, True, True]]
    found = rules("low dose when After(none)", "none when Above(x, 1)")
    obs = np.array([[0.0, 0.0], [0.0, 0.0], [2.0, 0.0]], dtype=np.float32)
    hot = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=np.float32)
    seen = found.allowed_next(np.concatenate([obs, hot], axis=1))
    np.testing.assert_array_equal(seen, found.allowed(obs, np.array([-1, 0, 1])))
    assert seen.tolist() == [[True, True, True], [True, False, True], [False, True, True]]


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    chosen=st.lists(st.tuples(st.sampled_from(ACTIONS), st.booleans(), st.floats(-2, 2)), min_size=1, max_size=6),
)
def test_something_is_always_allowed(seed, chosen):
    each = tuple(ActionRule(a, (Above("x", limit),), unless) for a, unless, limit in chosen)
    found = ActionRules(each, FEATURES, ACTIONS)
    rng = np.random.default_rng(seed)
    mask = found.allowed(rng.normal(size=(7, 3, 2)).astype(np.float32), rng.integers(-1, 3, size=(7, 3)))
    assert mask.shape == (7, 3, 3)
    assert mask.any(axis=-1).all()
    alone = found.allowed(np.zeros((1, 2), dtype=np.float32), np.array([-1]))
    # No row knows of another.
    np.testing.assert_array_equal(found.allowed(np.zeros((4, 2), dtype=np.float32), np.full(4, -1)), alone.repeat(4, 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("low dose", "neither when nor unless"),
        ("high dose when Above(x, 1)", "there is no action 'high dose'; the actions are none, low dose"),
        ("none when Above(y, 1)", "'y' is not a feature; the features are x, mean pressure"),
        ("none when After(high)", "there is no action 'high'"),
        ("none when After(none, none)", "After takes one action"),
        ("none when Above(x)", "Above takes 2 arguments"),
        ("none when x", "'x' is no condition"),
        ("none when Change(x)", "no condition"),
        ("none when Above(x, 1) or After(none)", "rule 'none when"),
        ("none when Above(x, 1", "brackets"),
        ("none when ", "brackets"),
        ("none when Outside(x, 2, 1)", "lower end"),
    ],
)
def test_a_wrong_rule_is_refused_by_its_text(text, said):
    with pytest.raises(ValueError, match="rule ") as error:
        rules(text)
    assert text in str(error.value)
    assert said in str(error.value)


def test_without_rules_nothing_changes():
    batch = batch_of([0, 1])
    assert read_rules([], FEATURES, ACTIONS) is None
    assert masked(batch, ()) is batch
    assert rules_for(batch, ()) is None
    with pytest.raises(ValueError, match="there is no rule"):
        ActionRules((), FEATURES, ACTIONS)
    with pytest.raises(ValueError, match="needs a condition"):
        ActionRule("none", ())
    scores = np.array([[1.0, 2.0]])
    assert among_allowed(scores, None) is scores
    assert among_allowed(scores, np.array([[True, False]])).tolist() == [[1.0, -np.inf]]


def test_masks_of_a_batch_by_hand():
    # x of episode e0 is 0, 1, 2 at its steps, that of e1 is 10, 11.
    batch = batch_of([0, 1, 0], [1])
    found = masked(batch, ["a1 when After(a1)", "a0 when Above(x, 5)"])
    assert found.allowed.tolist() == [
        [[True, True], [True, True], [True, False]],
        [[False, True], [True, True], [True, True]],  # behind the end everything is allowed
    ]
    assert not found.allowed.flags.writeable
    assert rules_for(found, ["a1 when After(a1)"]) is not None


@pytest.mark.parametrize(("forbid", "there"), [(["a1 when After(a1)"], False), ([], True)])
def test_rules_and_masks_belong_together(forbid, there):
    batch = batch_of([0, 1])
    batch = masked(batch, ["a1 when After(a1)"]) if there else batch
    with pytest.raises(ValueError, match="belong together"):
        rules_for(batch, forbid)


def test_what_was_taken_against_the_rules_and_rules_of_another_table_are_refused():
    batch = batch_of([0, 0], [1, 1, 0])
    with pytest.raises(ValueError, match=r"episode 'e1', step 1: action 'a1' was taken although") as error:
        masked(batch, ["a0 when Above(x, 99)", "a1 when After(a1)"])
    assert "(a1 when After(a1))" in str(error.value)
    assert "1 of 5 actions are" in str(error.value)
    found = read_rules(["a1 when After(a1)"], ("other",), ("a0", "a1"))
    with pytest.raises(ValueError, match="the rules are for features"):
        found.masked(batch_of([0]))


def test_masks_go_where_episodes_go_and_are_checked(tmp_path):
    forbid = ["a1 when After(a1)", "a0 when Outside(x, -1, 9) and Below(x, 15)"]
    batch = masked(batch_of([0, 1, 0], [1], [0, 0]), forbid)
    taken = batch.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken.allowed, batch.allowed[[2, 0]])
    again = batch.resampled(np.array([0, 0]))
    np.testing.assert_array_equal(again.allowed, batch.allowed[[0, 0]])
    padded = batch.padded(5)
    np.testing.assert_array_equal(padded.allowed[:, :3], batch.allowed)
    assert padded.allowed[:, 3:].all()
    np.testing.assert_array_equal(batch.with_early_ends(9).allowed, batch.allowed)
    batch.save(tmp_path / "batch.npz")
    assert Batch.load(tmp_path / "batch.npz") == batch
    assert batch != batch_of([0, 1, 0], [1], [0, 0])
    batch = batch_of([0, 1])
    fields = {name: getattr(batch, name) for name in Batch.__dataclass_fields__}
    for wrong in (np.ones((1, 2)), np.ones((1, 2, 2))):
        with pytest.raises(ValueError, match="allowed must be bool"):
            Batch(**{**fields, "allowed": wrong})
    mask = np.array([[[True, True], [True, False]]])
    with pytest.raises(ValueError, match=r"episode 'e0', step 1: action 'a1' was taken and is not allowed"):
        Batch(**{**fields, "allowed": mask})
