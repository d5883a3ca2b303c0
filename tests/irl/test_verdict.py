"""What may be said of the weights: the word by hand, the exact sentences, experts who toss coins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from posteriors import known_posterior
from scripted import Scripted
from small_batches import batch_of
from tiny_run import fitted, tiny_fit

from agents.policies.policy import ConstantPolicy
from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import act_along
from irl.evaluation import found_verdict, headline, measured_accuracy, recorded_mixture
from irl.max_margin.mixture import Mixture
from irl.preferences.identified_set import IdentifiedSet
from irl.preferences.posterior import PosteriorResult
from irl.result.result import Accuracy, MixedPolicy, PolicyMixture
from irl.result.sentences import Evidence, loop_sentences, verdict, verdict_sentences

NAMES = ("volume", "side effects", "third", "fourth", "fifth", "sixth")
STRONG = Evidence(weights=-10.0, chance=-70.0, habit=-60.0, decisions=100)


def posterior(w, low, high, best=-10.0) -> PosteriorResult:
    w, low, high = (np.array(values, dtype=np.float64) for values in (w, low, high))
    return replace(known_posterior(np.tile(w, (10, 1)), np.ones(10), w, low, high), best_log_likelihood=best)


def identified(low, high, reasons=None) -> IdentifiedSet:
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    return IdentifiedSet(0.0, low, 0.1, low, high, True, None, reasons or {})


def said(post, known, word="identified"):
    names = NAMES[: len(post.mean)]
    return verdict_sentences(names, lambda i: f"per {10**i} units", word, post, known)


def test_evidence_by_hand():
    # Action 1 in three of four decisions; padding is no decision.
    found = Evidence.of(posterior([1.0], [1.0], [1.0], best=-2.5), batch_of([1, 0], [1], [1]))
    assert found.decisions == 4
    assert (found.weights, found.chance) == (-2.5, pytest.approx(4 * np.log(0.5)))
    assert found.habit == pytest.approx(3 * np.log(0.75) + np.log(0.25))
    # 2 (L - L_chance) must exceed the 99 % quantile of chi-squared: 9.2103 for two numbers.
    assert not Evidence(-65.4, -70.0, -69.0, 100).beyond_chance(2)
    assert Evidence(-65.39, -70.0, -69.0, 100).beyond_chance(2)
    with pytest.raises(ValueError, match="finite"):
        Evidence(-np.inf, -70.0, -69.0, 100)


def test_the_word():
    narrow, wide = ([-0.35, -0.75], [-0.25, -0.65]), ([-0.9, -0.9], [-0.1, -0.1])
    w = [-0.3, -0.7]
    words = {
        (s, i): verdict(posterior(w, *i_range), identified(*s_range), STRONG)
        for s, s_range in (("narrow set", narrow), ("wide set", wide))
        for i, i_range in (("narrow interval", narrow), ("wide interval", wide))
    }
    assert words == {
        ("narrow set", "narrow interval"): "identified",
        ("narrow set", "wide interval"): "identified",
        ("wide set", "narrow interval"): "by decisions only",
        ("wide set", "wide interval"): "not identified",
    }
    post, known = posterior(w, *narrow), identified(*narrow)
    assert verdict(post, known, replace(STRONG, weights=-68.0, habit=-69.0)) == "not identifiable"
    assert verdict(post, known, replace(STRONG, weights=-60.0)) == "no better than habit"
    assert verdict(post, identified(*narrow, dict.fromkeys(NAMES[:2], "constant")), STRONG) == "not identifiable"
    # One weight that is open in set and interval is enough.
    post = posterior([0.2, 0.3, 0.5], [0.1, 0.0, 0.45], [0.15, 0.4, 0.55])
    assert verdict(post, identified([0.0, 0.29, 0.45], [0.5, 0.31, 0.55]), STRONG) == "by decisions only"
    assert verdict(post, identified([0.0, 0.0, 0.45], [0.5, 0.6, 0.55]), STRONG) == "not identified"


def test_sentences_claim_no_more_than_set_and_interval_hold():
    ends = ([-0.35, -0.75], [-0.25, -0.65])
    post = posterior([-0.3, -0.7], *ends)
    largest = "What the decisions traded off, largest first: "
    sure = f"{largest}side effects -0.70 (per 10 units), volume -0.30 (per 1 units)."
    assert said(post, identified(*ends)) == [sure]
    # Only single decisions determine the weights.
    assert said(post, identified([-0.8, -1.0], [0.0, -0.2])) == [
        sure,
        "By average outcomes alone, weights are not identified beyond volume -0.80 to 0.00; the narrower interval "
        "comes from how single decisions vary, and rests on the model of their chance.",
    ]
    # No confident number for a weight of a wide interval.
    wide = posterior([-0.72, -0.28], [-0.98, -0.57], [-0.43, -0.02])
    assert said(wide, identified([-1.0, -0.58], [-0.42, 0.0])) == [
        f"{largest}volume between -0.98 and -0.43 (per 1 units), side effects between -0.57 and -0.02 (per 10 units).",
        "By average outcomes alone, weights are not identified beyond volume -1.00 to -0.42.",
    ]


def test_which_signs_and_features_cannot_be_judged():
    post = posterior([-0.6, -0.1, 0.3], [-0.7, -0.2, -0.1], [-0.5, 0.1, 0.1])
    assert said(post, identified(post.low, post.low)) == [
        "What the decisions traded off, largest first: volume -0.60 (per 1 units).",
        "By the 90 % intervals, 2 of 3 features have weights whose sign is not determined by the data.",
    ]
    one = posterior([-0.6, -0.4], [-0.7, -0.9], [-0.5, 0.1])
    assert said(one, identified(one.low, one.low))[1] == (
        "By the 90 % intervals, 1 of 2 features has a weight whose sign is not determined by the data."
    )
    none = posterior([-0.6, -0.4], [-0.9, -0.9], [0.1, 0.1])
    assert said(none, identified(none.low, none.low)) == [
        "By the 90 % intervals, none of the features has a weight whose sign is determined by the data."
    ]
    w = np.array([-0.5, 0.3, 0.2])
    known = identified(w - 0.01, w + 0.01, {"third": "constant"})
    assert said(posterior(w, w - 0.01, w + 0.01), known)[-1] == "third cannot be judged: constant."
    every = identified(w, w, dict.fromkeys(NAMES[:3], "constant"))
    assert said(posterior(w, w, w), every, "not identifiable") == [
        "Not identifiable: no outcome's weight can be told from such data.",
        *(f"{name} cannot be judged: constant." for name in NAMES[:3]),
    ]


def test_four_features_are_named_and_the_others_counted():
    w = np.array([0.1, -0.3, 0.05, -0.25, 0.2, 0.1])
    first, second = said(posterior(w, w - 0.01, w + 0.01), identified(w - 0.2, w + 0.2))
    assert first.endswith("volume +0.10 (per 1 units) and 2 more.")
    assert "beyond volume -0.10 to +0.30, side effects -0.50 to -0.10, third -0.15 to +0.25, fourth" in second
    assert " and 2 more; the narrower" in second


def loop(w, best=2, stop="converged"):
    return SimpleNamespace(weights=np.array(w), best=best, stop=stop)


def test_the_traps_of_the_papers_choice_are_explained():
    post = posterior([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65])
    assert loop_sentences(NAMES, loop([-0.3, -0.7]), post) == []
    (start,) = loop_sentences(NAMES, loop([-0.3, -0.7], best=0), post)
    assert "random start" in start
    (sign,) = loop_sentences(NAMES, loop([0.3, -0.7]), post)
    assert "the other sign for volume:" in sign
    (matched,) = loop_sentences(NAMES, loop([-0.3, -0.7], best=0, stop="already matched"), post)
    assert "already has" in matched
    # Where the interval itself holds both signs there is nothing to be against.
    assert loop_sentences(NAMES, loop([0.3, -0.7]), posterior([-0.3, -0.7], [-0.5, -0.75], [0.1, -0.65])) == []


@pytest.mark.parametrize(("chance", "word"), [(0.5, "not identifiable"), (0.85, "no better than habit")])
def test_experts_who_toss_coins_have_no_weights(chance, word):
    parameters = TumourParameters(horizon=6)
    whole = rollout(TumourWorld(parameters), Scripted(chance, 1), 200, np.random.default_rng(0), deterministic=False)
    splits = whole.take(np.arange(180)), whole.take(np.arange(180, 200))
    config = tiny_fit()
    found = fitted(*splits, replace(config, posterior=replace(config.posterior, decisions=1000, near_width=4)))
    assert found_verdict(found) == word
    first = headline(found, Accuracy(0.5, 0.5, 0.5, 0.5, None))[0]
    assert first.startswith("Not identifiable" if chance == 0.5 else "Acting with the same chances")
    if chance == 0.5:
        # Nor is there a confident number: what could have been drawn at the outset is still possible.
        assert found.posterior.high[0] - found.posterior.low[0] > 0.5
        assert found.identified.high[0] - found.identified.low[0] > 0.9


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
