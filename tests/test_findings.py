"""What a run says of itself: numbers by hand, and the exact sentences."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_batches import batch_of

from cirl_gym.features import FeatureMap
from irl.findings import ConstantPolicy, headline, measured_accuracy
from irl.identifiability import IdentifiedSet
from irl.result import Accuracy

MET = Accuracy(cirl=0.83, cloning=0.84, majority=0.6, repeat_last_action=0.7, ceiling=0.85)


def found(w, low, high, set_low=None, set_high=None, reasons=None):
    """What :func:`headline` looks at of a fit, and nothing else; feature j has a range of 10^j units."""
    d = len(w)
    names = ("volume", "side effects", "third", "fourth", "fifth", "sixth")[:d]
    identified = IdentifiedSet(
        minimum=0.0,
        best=np.array(w),
        tolerance=0.1,
        low=np.array(low if set_low is None else set_low),
        high=np.array(high if set_high is None else set_high),
        exact=True,
        not_identifiable=reasons or {},
    )
    return SimpleNamespace(
        feature_map=FeatureMap(names, np.zeros(d), 10.0 ** np.arange(d)),
        posterior=SimpleNamespace(low=np.array(low), high=np.array(high)),
        identified=identified,
        weights=np.array(w),
    )


def test_clear_weights_that_the_average_outcomes_determine_as_well():
    said = headline(found([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65]), MET, np.array([-0.32, -0.68]))
    assert said == (
        "What the decisions traded off, largest first: side effects -0.70 (per 10 units), volume -0.30 (per 1 units).",
        "The simulated expert's true weights are (-0.32, -0.68); the largest error is 0.020.",
        "The recovered policy meets 0.830 of held-out decisions (cloning 0.840, majority 0.600, last action 0.700; "
        "nobody can exceed 0.850).",
    )


def test_weights_that_the_average_outcomes_do_not_determine():
    said = headline(found([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65], [-0.8, -1.0], [0.0, -0.2]), MET)
    assert said[1:-1] == (
        "Average outcomes alone leave volume weights from -0.80 to 0.00 possible; the narrower "
        "interval comes from how single decisions vary, and rests on the model of their chance.",
    )


def test_habit_that_beats_the_policy_is_said():
    met = Accuracy(cirl=0.7, cloning=0.84, majority=0.6, repeat_last_action=0.84, ceiling=None)
    assert headline(found([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65]), met)[-1] == (
        "The recovered policy meets 0.700 of held-out decisions (cloning 0.840, majority 0.600, last action 0.840). "
        "Habit alone predicts these decisions better: read the weights as a description of outcomes preferred, not as "
        "what drives each decision."
    )


@pytest.mark.parametrize(
    ("majority", "last", "beaten"), [(0.71, 0.5, True), (0.5, 0.71, True), (0.7, 0.7, False), (0.6, 0.6, False)]
)
def test_habit_is_the_better_of_the_two_baselines_and_a_tie_is_no_defeat(majority, last, beaten):
    met = replace(MET, cirl=0.7, majority=majority, repeat_last_action=last)
    assert ("Habit alone" in headline(found([-1.0, 0.0], [-1, -0.1], [-0.9, 0.1]), met)[-1]) == beaten


def test_signs_that_are_not_determined_are_said():
    one = headline(found([-0.6, -0.1, 0.3], [-0.7, -0.2, -0.1], [-0.5, 0.1, 0.5]), MET)
    assert one[:2] == (
        "What the decisions traded off, largest first: volume -0.60 (per 1 units).",
        "By the 90 % intervals, 2 of 3 features have weights whose sign is not determined by the data.",
    )
    none = headline(found([-0.6, -0.4], [-0.9, -0.9], [0.1, 0.1], [-0.7, -0.5], [-0.6, -0.4]), MET)
    assert none[0] == "By the 90 % intervals, none of the features has a weight whose sign is determined by the data."
    assert len(none) == 2


def test_one_undetermined_sign_is_said_in_the_singular():
    said = headline(found([-0.6, -0.4], [-0.7, -0.9], [-0.5, 0.1], [-0.6, -0.4], [-0.6, -0.4]), MET)
    assert said[1] == "By the 90 % intervals, 1 of 2 features has a weight whose sign is not determined by the data."


def test_four_features_are_named_and_the_others_counted():
    w = np.array([0.1, -0.3, 0.05, -0.25, 0.2, 0.1])
    said = headline(found(w, w - 0.01, w + 0.01), MET)
    assert said[0] == (
        "What the decisions traded off, largest first: side effects -0.30 (per 10 units), fourth -0.25 (per 1000 "
        "units), fifth +0.20 (per 1e+04 units), volume +0.10 (per 1 units) and 2 more."
    )


def test_with_more_features_what_is_not_identified_is_counted_and_named():
    w = np.array([-0.5, 0.3, 0.2])
    said = headline(found(w, w - 0.05, w + 0.05, w - 0.15, w + np.array([0.1, 0.01, 0.01]), {"third": "constant"}), MET)
    assert said[1:-1] == (
        "third cannot be judged: constant.",
        "By average outcomes alone, 1 of 3 weights is not identified within 0.2.",
    )


def test_accuracy_of_constant_policies_by_hand():
    train, test = batch_of([1, 1, 0], [1]), batch_of([1, 0], [1], [0, 0, 0, 1])
    always = ConstantPolicy(1, 2, np.random.default_rng(0))
    never = ConstantPolicy(0, 2, np.random.default_rng(0))
    met = measured_accuracy(SimpleNamespace(policy=always, cloning=never), train, test, None)
    # Treated in 1 of 2, 1 of 1 and 1 of 4; repeated: first as in training (1): 1/2, 1, then 0 against 1, 2 of 4.
    assert met.cirl == pytest.approx((1 / 2 + 1 + 1 / 4) / 3)
    assert met.cloning == pytest.approx((1 / 2 + 0 + 3 / 4) / 3)
    assert met.majority == met.cirl
    assert met.repeat_last_action == pytest.approx((1 / 2 + 1 + 2 / 4) / 3)
    assert met.ceiling is None


def test_the_random_baseline_draws_every_action_evenly():
    actions, memory = ConstantPolicy(None, 3, np.random.default_rng(0)).predict(np.zeros((6000, 2)))
    assert memory is None
    np.testing.assert_allclose(np.bincount(actions) / 6000, [1 / 3] * 3, atol=0.02)
