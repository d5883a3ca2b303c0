"""What may be said of a run: the verdict by hand, the exact sentences, experts who toss coins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from posteriors import known_posterior
from sample_result import sample_result
from scripted import Scripted
from small_batches import batch_of
from tiny_run import fitted, tiny_fit

from agents.policies.policy import ConstantPolicy
from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import act_along
from irl.evaluation import headline, judged, measured_accuracy, recorded_mixture
from irl.max_margin.mixture import Mixture
from irl.preferences.identified_set import IdentifiedSet
from irl.preferences.posterior import PosteriorResult, SamplerReport
from irl.result.result import Accuracy, Difference, Foreseen, MixedPolicy, PolicyMixture
from irl.result.sentences import (
    added_sentences,
    loop_sentences,
    pinned,
    sampler_sentences,
    strictness_sentences,
    verdict,
    verdict_sentence,
    verdict_sentences,
    weights_mean_something,
)
from irl.study import Study

NAMES = ("volume", "side effects", "third", "fourth", "fifth", "sixth")
LIKELIHOOD = structs.replace(sample_result().likelihood, folds=5)
"""Beyond habit by .108 with a standard error of .011; no other account is better."""


def adding(mean: float, error: float = 0.01):
    return structs.replace(LIKELIHOOD, beyond_habit=Difference(mean, error))


def posterior(w, low, high, kappas=(20.0, 20.0)) -> PosteriorResult:
    """Of known median and ends; what else is asked of a posterior is that of draws at the median."""
    w, low, high = (np.array(values, dtype=np.float64) for values in (w, low, high))
    post = known_posterior(np.tile(w, (10, 1)), np.linspace(*kappas, 10))
    vars(post).update(median=w, low=low, high=high)  # as if the draws had these
    return post


def identified(low, high, reasons=None) -> IdentifiedSet:
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    return IdentifiedSet(0.0, low, 0.1, low, high, True, None, reasons or {})


def said(post, known, word="beyond habit"):
    names = NAMES[: len(post.median)]
    return verdict_sentences(names, lambda i: f"per {10**i} units", word, post, known)


def test_the_verdict_by_hand():
    # .0165 is more than 1.645 standard errors of .01, .0164 is not.
    assert verdict(adding(0.0165), {}, 2) == "beyond habit"
    assert verdict(adding(0.0164), {}, 2) == "nothing beyond habit"
    assert verdict(adding(-0.3), {}, 2) == "nothing beyond habit"
    # Habit leaves .46 unforeseen: a hundredth of it is .0046, however sure the gain.
    assert verdict(adding(0.0047, 0.0001), {}, 2) == "beyond habit"
    assert verdict(adding(0.0045, 0.0001), {}, 2) == "nothing beyond habit"
    assert verdict(adding(0.3), {"a": "constant"}, 2) == "beyond habit"
    assert verdict(adding(0.3), {"a": "constant", "b": "constant"}, 2) == "not identifiable"
    words = ("beyond habit", "nothing beyond habit", "not identifiable")
    assert [weights_mean_something(word) for word in words] == [True, False, False]


def test_how_far_weights_are_pinned():
    narrow, wide = ([-0.35, -0.75], [-0.25, -0.65]), ([-0.9, -0.9], [-0.1, -0.1])
    w = [-0.3, -0.7]
    words = {
        (s, i): pinned(posterior(w, *i_range), identified(*s_range))
        for s, s_range in (("narrow set", narrow), ("wide set", wide))
        for i, i_range in (("narrow interval", narrow), ("wide interval", wide))
    }
    assert words == {
        ("narrow set", "narrow interval"): "identified",
        ("narrow set", "wide interval"): "identified",
        ("wide set", "narrow interval"): "by decisions only",
        ("wide set", "wide interval"): "not identified",
    }
    # One weight that is open in set and interval is enough.
    post = posterior([0.2, 0.3, 0.5], [0.1, 0.0, 0.45], [0.15, 0.4, 0.55])
    assert pinned(post, identified([0.0, 0.29, 0.45], [0.5, 0.31, 0.55])) == "by decisions only"
    assert pinned(post, identified([0.0, 0.0, 0.45], [0.5, 0.6, 0.55])) == "not identified"


def test_the_verdict_in_words_has_no_number_and_then_come_the_numbers():
    assert verdict_sentence("beyond habit") == "Beyond habit: the outcomes weighed help to foresee these decisions."
    assert verdict_sentence("nothing beyond habit") == (
        "Nothing beyond habit: it cannot be seen that the outcomes weighed matter to these decisions."
    )
    assert verdict_sentence("not identifiable").startswith("Not identifiable: no outcome's weight can be told")
    assert added_sentences("beyond habit", LIKELIHOOD, habits=True) == [
        "With them, decisions are foreseen better than by habit alone: the log-likelihood of a decision is -0.352 in "
        "place of -0.460, a difference of +0.108 (standard error 0.011), over 2,010 decisions of 104 patients, each "
        "foreseen from other patients alone (cross-validation in 5 parts)."
    ]
    held_out = structs.replace(LIKELIHOOD, folds=0)
    (alone,) = added_sentences("beyond habit", held_out, habits=False)
    assert "better than by how often each action is taken, the only habit that was looked for: the log" in alone
    assert alone.endswith("over 2,010 decisions of 104 patients, of episodes that nothing was learnt from.")
    assert added_sentences("not identifiable", LIKELIHOOD, habits=True) == []


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        (-0.002, "foreseen no better than by habit alone"),
        (0.0, "foreseen no better than by habit alone"),
        (0.002, "foreseen better by no more than chance explains than by habit alone"),
    ],
)
def test_nothing_beyond_habit_claims_no_more_than_the_difference_does(mean, words):
    first, second = added_sentences("nothing beyond habit", adding(mean), habits=True)
    assert words in first
    assert second == "So the weights say nothing. That does not prove that the outcomes did not matter."


def test_a_gain_that_is_sure_but_small_is_not_relied_on():
    first, second, third = added_sentences("nothing beyond habit", adding(0.003, 0.001), habits=True)
    assert "foreseen hardly better than by habit alone: the log" in first
    assert second == (
        "That is less than 1 % of what habit leaves unforeseen: with the patients divided otherwise, it may be gone."
    )
    assert third.startswith("So the weights say nothing.")


def test_what_foresees_better_without_preferences_is_said():
    def others(boosting, cloning):
        one = Foreseen(boosting, 0.01, 0.8)
        better = structs.replace(LIKELIHOOD, boosting=one, cloning=structs.replace(one, mean=cloning))
        return added_sentences("beyond habit", better, habits=True)[1:]

    assert others(-0.348, -0.4) == [], "no more than .005 apart is no difference"
    (trees,) = others(-0.34, -0.36)
    assert trees.startswith("Gradient boosting, which knows no preferences, foresees them better still (-0.340):")
    (copy,) = others(-0.34, -0.3)
    assert copy.startswith("Behaviour cloning, which knows no preferences, foresees them better still (-0.300):")


def test_what_is_said_of_a_sampler_kappa_and_dependent_decisions():
    post = posterior([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65], kappas=(300.0, 400.0))
    assert sampler_sentences(post.sampler) == strictness_sentences(post) == []
    bad = SamplerReport(np.array([1.002, 1.025, 1.0]), np.array([600.0, 156.4, 500.0]), 0.49)
    assert not bad.converged
    assert sampler_sentences(bad) == [
        "The sampler has not converged (R-hat 1.025, effective draws 156): weights and intervals can change when the "
        "run is repeated."
    ]
    (few,) = strictness_sentences(replace(post, sampler=bad))
    assert few.startswith("The decisions of one patient depend much on each other: they count for 49 % of")
    # The prior's mean is 100; kappa's lower end, the 5 % quantile of ten draws, is above 500.
    strict = known_posterior(np.tile([-0.3, -0.7], (10, 1)), np.linspace(600.0, 1500.0, 10))
    (held,) = strictness_sentences(strict)
    assert "kappa is held back by little but its prior: 90 % interval 645 to 1,455" in held


def test_sentences_claim_no_more_than_set_and_interval_hold():
    ends = ([-0.35, -0.75], [-0.25, -0.65])
    post = posterior([-0.3, -0.7], *ends)
    largest = "What the decisions traded off, largest first: "
    sure = f"{largest}side effects -0.70 (per 10 units), volume -0.30 (per 1 units)."
    assert said(post, identified(*ends)) == [sure]
    for word in ("nothing beyond habit", "not identifiable"):
        assert said(post, identified(*ends), word) == [], "weights that mean nothing are not named"
    # Only single decisions determine the weights.
    assert said(post, identified([-0.8, -1.0], [0.0, -0.2])) == [
        sure,
        "By average outcomes alone, weights are not identified beyond volume -0.80 to 0.00; the narrower interval "
        "comes from how single decisions vary, and rests on the model of their chance.",
    ]
    # No confident number for a weight of a wide interval.
    wide = posterior([-0.72, -0.28], [-0.98, -0.57], [-0.43, -0.03])
    assert said(wide, identified([-1.0, -0.58], [-0.42, 0.0])) == [
        f"{largest}volume between -0.98 and -0.43 (per 1 units), side effects between -0.57 and -0.03 (per 10 units).",
        "By average outcomes alone, weights are not identified beyond volume -1.00 to -0.42.",
    ]


def test_which_weights_may_be_nothing_and_which_cannot_be_judged():
    post = posterior([-0.6, -0.1, 0.3], [-0.7, -0.2, -0.1], [-0.5, 0.1, 0.1])
    assert said(post, identified(post.low, post.low)) == [
        "What the decisions traded off, largest first: volume -0.60 (per 1 units).",
        "By the 90 % intervals, 2 of 3 features may weigh nothing, or next to nothing (0.02 or less).",
    ]
    # A sign that was told keeps 0 out of the interval, which says nothing of the weight.
    one = posterior([-0.6, -0.4], [-0.7, -0.9], [-0.5, -0.01])
    assert said(one, identified(one.low, one.low))[1] == (
        "By the 90 % intervals, 1 of 2 features may weigh nothing, or next to nothing (0.02 or less)."
    )
    none = posterior([-0.6, -0.4], [-0.9, -0.9], [0.1, 0.1])
    assert said(none, identified(none.low, none.low)) == [
        "By the 90 % intervals, each of the features may weigh nothing, or next to nothing (0.02 or less)."
    ]
    w = np.array([-0.5, 0.3, 0.2])
    known = identified(w - 0.01, w + 0.01, {"third": "constant"})
    told = said(posterior(w, w - 0.01, w + 0.01), known)
    assert told[-1] == "third cannot be judged: constant."
    assert "third" not in told[0], "what cannot be judged is no trade-off"
    every = identified(w, w, dict.fromkeys(NAMES[:3], "constant"))
    assert said(posterior(w, w, w), every, "not identifiable") == [
        "volume, side effects and third cannot be judged: constant."
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
    assert loop_sentences(NAMES, loop([0.3, -0.7]), post, {"volume"}) == [], (
        "of what is not interpreted nothing is said"
    )
    # Where the interval itself holds both signs there is nothing to be against.
    assert loop_sentences(NAMES, loop([0.3, -0.7]), posterior([-0.3, -0.7], [-0.5, -0.75], [0.1, -0.65])) == []


@pytest.mark.parametrize("chance", [0.5, 0.85])
def test_experts_who_toss_coins_have_no_weights(chance):
    parameters = TumourParameters(horizon=6)
    whole = rollout(TumourWorld(parameters), Scripted(chance, 1), 200, np.random.default_rng(0), deterministic=False)
    train, validation, test = (whole.take(np.arange(*ends)) for ends in ((0, 150), (150, 170), (170, 200)))
    config = tiny_fit()
    config = replace(config, posterior=replace(config.posterior, decisions=1000, near_width=4))
    found = fitted(train, validation, config)
    study = Study(train, validation, found.feature_map, np.array([-1.0, -1.0]), config)
    result = judged(study, found, test, config={})
    assert result.verdict == "nothing beyond habit"
    assert result.headline[0].startswith("Nothing beyond habit: ")
    assert not any(sentence.startswith("What the decisions traded off") for sentence in result.headline)
    if chance == 0.5:
        # Nor is there a confident number: what could have been drawn at the outset is still possible.
        assert found.posterior.high[0] - found.posterior.low[0] > 0.5
    assert abs(result.likelihood.beyond_habit.mean) < 0.05


MET = Accuracy(cirl=0.83, cloning=0.84, majority=0.6, repeat_last_action=0.7, ceiling=0.85)


def found(w, low, high, kappa=20.0):
    """What :func:`headline` looks at of a fit, and nothing else; feature j has a range of 10^j units."""
    d = len(w)
    return SimpleNamespace(
        model=SimpleNamespace(model=SimpleNamespace(noise_scale=np.zeros(d))),
        feature_map=FeatureMap(NAMES[:d], np.zeros(d), 10.0 ** np.arange(d)),
        posterior=posterior(w, low, high, (kappa, kappa)),
        loop=SimpleNamespace(stop="converged", best=3, weights=np.array(w)),
        identified=IdentifiedSet(0.0, np.array(w), 0.1, np.array(low), np.array(high), exact=True, not_identifiable={}),
        windows=(),
        choice=None,
        limit=None,
    )


CLEAR = ([-0.3, -0.7], [-0.35, -0.75], [-0.25, -0.65])


def test_a_headline_from_the_verdict_to_what_is_met():
    assert headline(found(*CLEAR), "beyond habit", LIKELIHOOD, MET, truth=np.array([-0.32, -0.68])) == (
        verdict_sentence("beyond habit"),
        *added_sentences("beyond habit", LIKELIHOOD, habits=False),
        "What the decisions traded off, largest first: side effects -0.70 (per 10 units), volume -0.30 (per 1 units).",
        "The simulated expert's true weights are (-0.32, -0.68); the largest error is 0.020.",
        "What the experts are predicted to do meets 0.800 of 2,010 decisions (last-action table 0.800, gradient "
        "boosting 0.800, cloning 0.800). What the preferences alone would do meets 0.830 of the decisions of held-out "
        "episodes (most frequent action 0.600, last action again 0.700; nobody can exceed 0.850 there but by luck).",
    )


def test_outcomes_that_help_together_are_not_told_to_matter_alone():
    open_all = ([-0.3, -0.7], [-0.8, -0.99], [0.2, 0.4])
    told = headline(found(*open_all), "beyond habit", LIKELIHOOD, MET)
    assert told[0] == (
        "Beyond habit: the outcomes weighed help to foresee these decisions together; of none alone can it be told "
        "that it matters."
    )
    assert not any("traded off" in line for line in told)


@pytest.mark.parametrize("word", ["nothing beyond habit", "not identifiable"])
def test_a_headline_without_weights_tells_none(word):
    stub = found(*CLEAR, kappa=900.0)
    stub.loop.best = 0
    told = headline(stub, word, adding(0.0), MET, truth=np.array([-0.32, -0.68]))
    assert told[0] == verdict_sentence(word)
    assert "The simulated expert's true weights are (-0.32, -0.68)." in told
    assert not any(words in " ".join(told) for words in ("traded off", "w_K", "kappa", "-0.70", "largest error"))


def test_the_verdict_comes_first_and_the_traps_after_it():
    stub = found(*CLEAR, kappa=900.0)
    stub.loop.best = 0
    told = headline(stub, "beyond habit", LIKELIHOOD, MET)
    assert told[0] == verdict_sentence("beyond habit")
    assert told[2].startswith("What the decisions traded off")
    assert "held back by little but its prior" in told[3]
    assert "random start" in told[4]


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
