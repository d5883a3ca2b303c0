"""What a run says of itself: numbers by hand, and the exact sentences."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from small_batches import batch_of

from agents.policies.policy import ConstantPolicy
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import act_along
from irl.evaluation import found_verdict, headline, measured_accuracy, recorded_mixture
from irl.max_margin.mixture import Mixture
from irl.preferences.identified_set import IdentifiedSet
from irl.result.result import Accuracy, MixedPolicy, PolicyMixture

MET = Accuracy(cirl=0.83, cloning=0.84, majority=0.6, repeat_last_action=0.7, ceiling=0.85)


def found(w, low, high):
    """What :func:`headline` looks at of a fit, and nothing else; feature j has a range of 10^j units."""
    d = len(w)
    names = ("volume", "side effects", "third", "fourth", "fifth", "sixth")[:d]
    return SimpleNamespace(
        model=SimpleNamespace(model=SimpleNamespace(noise_scale=np.zeros(d))),
        feature_map=FeatureMap(names, np.zeros(d), 10.0 ** np.arange(d)),
        posterior=SimpleNamespace(mean=np.array(w), low=np.array(low), high=np.array(high), best_log_likelihood=-1.0),
        pool=SimpleNamespace(batch=batch_of([0, 1, 0, 1, 1, 0], [1, 1, 0, 0] * 3)),
        loop=SimpleNamespace(stop="converged", best=3, weights=np.array(w)),
        identified=IdentifiedSet(0.0, np.array(w), 0.1, np.array(low), np.array(high), exact=True, not_identifiable={}),
        weights=np.array(w),
        windows=(),
        choice=None,
    )


def test_clear_weights_that_the_average_outcomes_determine_as_well():
    said = headline(found([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65]), MET, np.array([-0.32, -0.68]))
    assert said == (
        "What the decisions traded off, largest first: side effects -0.70 (per 10 units), volume -0.30 (per 1 units).",
        "The simulated expert's true weights are (-0.32, -0.68); the largest error is 0.020.",
        "The recovered policy meets 0.830 of held-out decisions (cloning 0.840, majority 0.600, last action 0.700; "
        "nobody can exceed 0.850).",
    )
    # Habit that beats the policy is said.
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
    met = structs.replace(MET, cirl=0.7, majority=majority, repeat_last_action=last)
    assert ("Habit alone" in headline(found([-1.0, 0.0], [-1, -0.1], [-0.9, 0.1]), met)[-1]) == beaten


def test_the_verdict_comes_first_and_the_loops_trap_after_it():
    stub = found([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65])
    stub.loop.best = 0
    said = headline(stub, MET)
    assert said[0].startswith("What the decisions traded off")
    assert "random start" in said[1]
    assert found_verdict(stub) == "identified"
    stub.posterior.best_log_likelihood = -13.0
    assert found_verdict(stub) == "not identifiable"
    assert headline(stub, MET)[0].startswith("Not identifiable")


def test_accuracy_of_constant_policies_by_hand():
    train, test = batch_of([1, 1, 0], [1]), batch_of([1, 0], [1], [0, 0, 0, 1])
    always = ConstantPolicy(1, 2, np.random.default_rng(0))
    never = ConstantPolicy(0, 2, np.random.default_rng(0))
    met = measured_accuracy(act_along(always, test), act_along(never, test), train, test, None)
    # Treated in 1 of 2, 1 of 1 and 1 of 4; repeated: first as in training (1): 1/2, 1, then 0 against 1, 2 of 4.
    assert met.cirl == pytest.approx((1 / 2 + 1 + 1 / 4) / 3)
    assert met.cloning == pytest.approx((1 / 2 + 0 + 3 / 4) / 3)
    assert met.majority == met.cirl
    assert met.repeat_last_action == pytest.approx((1 / 2 + 1 + 2 / 4) / 3)
    assert met.ceiling is None
    actions, memory = ConstantPolicy(None, 3, np.random.default_rng(0)).predict(np.zeros((6000, 2)))
    assert memory is None
    np.testing.assert_allclose(np.bincount(actions) / 6000, [1 / 3] * 3, atol=0.02)


def test_a_policy_without_a_share_of_the_mixture_is_left_out():
    rounds = [SimpleNamespace(k=k, w=np.array([-1.0 + k / 4, -k / 4])) for k in range(3)]
    mixture = Mixture(np.array([0.4, 0.0, 0.6]), np.array([3.0, 2.0]), 0.5)
    assert recorded_mixture(mixture, SimpleNamespace(rounds=rounds)) == PolicyMixture(
        (MixedPolicy(0, 0.4, (-1.0, 0.0)), MixedPolicy(2, 0.6, (-0.5, -0.5))), (3.0, 2.0), 0.5
    )
