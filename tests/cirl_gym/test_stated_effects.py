"""What is known of effects, as it is written: every form, names with blanks and verbs in them, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirl_gym.outcome_models.stated import StatedEffect, read_effect

ACTIONS, OUTCOMES = ("none", "insulin", "insulin slow"), ("glucose", "Above(glucose, 10)", "mean pressure")
TWO = ("0", "1")


@pytest.mark.parametrize(
    ("text", "action", "outcome", "low", "high"),
    [
        ("insulin lowers glucose", "insulin", "glucose", -math.inf, 0.0),
        ("insulin raises glucose", "insulin", "glucose", 0.0, math.inf),
        ("insulin does not change glucose", "insulin", "glucose", 0.0, 0.0),
        ("insulin slow lowers mean pressure", "insulin slow", "mean pressure", -math.inf, 0.0),
        ("insulin slow does not change Above(glucose, 10)", "insulin slow", "Above(glucose, 10)", 0.0, 0.0),
        ("insulin glucose -3 to -0.5", "insulin", "glucose", -3.0, -0.5),
        ("insulin glucose -3 to +1e-1", "insulin", "glucose", -3.0, 0.1),
        ("insulin slow mean pressure 0 to 2", "insulin slow", "mean pressure", 0.0, 2.0),
        ("insulin glucose \N{MINUS SIGN}3 to \N{MINUS SIGN}0.5", "insulin", "glucose", -3.0, -0.5),
        ("  insulin   lowers   glucose ", "insulin", "glucose", -math.inf, 0.0),
    ],
)
def test_every_form_is_read(text, action, outcome, low, high):
    found = read_effect(text, ACTIONS, OUTCOMES)
    assert found.bounds == (action, outcome, low, high)
    assert found.text == text


@pytest.mark.parametrize("text", ["given lowers glucose", "1 lowers glucose", "given=1 lowers glucose"])
def test_a_column_of_two_actions_stands_for_the_second(text):
    assert read_effect(text, TWO, OUTCOMES, "given").action == "1"


def test_names_that_hold_a_verb_are_names():
    actions, outcomes = ("no", "what lowers pain"), ("pain", "raises alarm", "it raises alarm")
    found = read_effect("what lowers pain raises pain", actions, outcomes)
    assert (found.action, found.outcome, found.low) == ("what lowers pain", "pain", 0.0)
    assert read_effect("what lowers pain lowers it raises alarm", actions, outcomes).outcome == "it raises alarm"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with no action"),
        ("insulin", "begins with no action"),
        ("insulin increases glucose", "must be"),
        ("insulin glucose 1", "must be"),
        ("insulin glucose 1 to", "must be"),
        ("lowers glucose", "begins with no action|must be"),
        ("dialysis lowers glucose", "begins with no action; the actions are none, insulin, insulin slow"),
        ("insulins lowers glucose", "begins with no action"),
        ("insulin lowers sugar", "'sugar' is no outcome nor feature; there are glucose"),
        ("insulin lowers", "must be"),
        ("none lowers glucose", "against 'none'; name one of insulin, insulin slow"),
        ("insulin glucose 2 to 1", "2 is above 1"),
        ("insulin glucose nan to 1", "must be"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(ValueError, match=message) as error:
        read_effect(text, ACTIONS, OUTCOMES)
    assert repr(text) in str(error.value)


def test_the_first_of_two_actions_is_no_subject():
    with pytest.raises(ValueError, match="effects are of other actions against"):
        read_effect("given=0 lowers glucose", TWO, OUTCOMES, "given")
    with pytest.raises(ValueError, match="given=1"):
        read_effect("dialysis lowers glucose", TWO, OUTCOMES, "given")


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_any_size_is_read_as_python_writes_it(low, width):
    found = read_effect(f"insulin glucose {low} to {low + width}", ACTIONS, OUTCOMES)
    assert (found.low, found.high) == (low, low + width)


def test_contradictions():
    raises = StatedEffect("a raises x", "a", "x", 0.0, math.inf)
    # A sign is about the estimate, whose plans are searched, whatever its interval.
    assert raises.contradicted(-0.1, (-0.5, 0.3))
    assert not raises.contradicted(0.0, None)
    assert not raises.contradicted(0.1, (-9.0, 9.0))
    # A law that is held to the sign keeps it at mean levels, up to rounding.
    assert not raises.contradicted(-0.03, (-0.5, 0.3))
    assert raises.contradicted(-0.05, (-0.5, 0.3))
    size = StatedEffect("a x 1 to 2", "a", "x", 1.0, 2.0)
    assert size.contradicted(0.5, (0.2, 0.9))
    assert not size.contradicted(0.5, (0.2, 1.0))
    assert size.contradicted(0.5, None)
    assert not size.contradicted(1.5, None)
    none = StatedEffect("a does not change x", "a", "x", 0.0, 0.0)
    assert not none.contradicted(3.0, (-1.0, 7.0))
    assert none.contradicted(3.0, (1.0, 7.0))
    with pytest.raises(ValueError, match="is above"):
        StatedEffect("a x", "a", "x", 2.0, 1.0)


def test_actions_may_be_named_as_reports_name_them():
    for text, names, column in (
        ("given 1 lowers x", ("0", "1"), "given"),
        ("given=1 lowers x", ("0", "1"), "given"),
        ("a 1, b 0 lowers x", ("a=0, b=0", "a=1, b=0"), ""),
    ):
        read = read_effect(text, names, ("x",), column)
        assert (read.action, read.outcome, read.high) == (names[1], "x", 0.0)
