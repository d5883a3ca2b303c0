"""What may be said of a run: a verdict, how far weights are pinned down, and sentences that claim no more.

The verdict comes first: do the outcomes weighed say anything of these decisions beyond habit? It rests on decisions
that nothing was learnt from. Where it is no, weights are no finding. Where it is yes, different weights can still have
the same best policy: average outcomes then leave a whole set of them, and only the chances of single decisions can tell
more. And the loop's own choice w_K can be nothing but its random start. Beside these, what has to be said of outcomes:
what a weight is per, what was only seen, and what an expectation leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, KnownOutcome, OutcomeFeature, Outside, read_outcome
from cirl_gym.types import FloatArray
from irl.max_margin.loop import MaxMarginResult
from irl.preferences.choice import KAPPA
from irl.preferences.identified_set import IdentifiedSet
from irl.preferences.posterior import PosteriorResult, SamplerReport
from irl.result.gammas import GammaChoice
from irl.result.limits import FoundLimit
from irl.result.result import LEAST, HeldOutLikelihood
from irl.result.windows import TimeWindow

Verdict: TypeAlias = Literal["beyond habit", "nothing beyond habit", "not identifiable"]
Pinned: TypeAlias = Literal["identified", "by decisions only", "not identified"]
WIDE = 0.2
"""A weight that can vary by more than this is not known."""
WHOLE = 1.98
"""A weight of either sign that can vary by more can be anything."""
NOTHING = 0.02
"""A weight of no larger size is next to nothing: where its sign is told beforehand, its interval never holds 0."""
CLOSE = 0.005
"""Log-likelihoods of a decision no further apart are called equally good."""
FAR, DEPENDENT = 5.0, 0.5
"""Kappa so many times the mean of its prior is far from it; below such a power of the likelihood, decisions of one
patient depend much on each other."""
ONLY_FREQUENCIES = "how often each action is taken, the only habit that was looked for"
NOT_READ = "not interpreted"
"""In place of a number that rests on a weight that may not be read."""
NO_FINDING = "By the verdict, decisions are foreseen by habit: what the outcomes contribute to one is not a finding."
TRADE_OFF = (
    "A discount factor and weights trade off: a short-sighted expert looks like one who weighs lasting outcomes less. "
    "What each discount factor would have said of the weights is in the table."
)
SAME_PATIENTS = (
    "A change is called beyond chance if its 90 % interval does not hold 0; without any change, about one of ten would "
    "be called so. The intervals know that windows share patients, and not how errors of the outcome model or of the "
    "search for plans differ over time."
)


def verdict(likelihood: HeldOutLikelihood, not_identifiable: Mapping[str, str], d: int) -> Verdict:
    """Whether the d outcomes explain decisions beyond habit.

    - ``not identifiable``: no outcome's weight can be determined from such data.
    - ``beyond habit``: decisions that nothing was learnt from are foreseen better with the outcomes than by habit
      alone, by more than chance (:attr:`irl.result.result.Difference.clear`) and by :data:`irl.result.result.LEAST`
      or more of what habit leaves unforeseen.
    - ``nothing beyond habit``: they are not. Then weights are no finding.
    """
    if len(not_identifiable) == d:
        return "not identifiable"
    help_seen = likelihood.beyond_habit.clear and likelihood.gained >= LEAST
    return "beyond habit" if help_seen else "nothing beyond habit"


def weights_mean_something(word: str) -> bool:
    """Whether a verdict lets weights be read as a finding."""
    return word == "beyond habit"


def pinned(posterior: PosteriorResult, identified: IdentifiedSet) -> Pinned:
    """How far the weights are pinned down.

    - ``not identified``: some weight varies by more than :data:`WIDE` in the identified set and in its 90 % interval.
    - ``by decisions only``: so it does in the set, but not in the interval, which rests on the model of chances.
    - ``identified``: no weight varies by more in the set.
    """
    open_set, open_interval = identified.high - identified.low > WIDE, posterior.high - posterior.low > WIDE
    if (open_set & open_interval).any():
        return "not identified"
    return "by decisions only" if open_set.any() else "identified"


def clear_weights(names: Sequence[str], posterior: PosteriorResult, unread: Collection[str]) -> list[int]:
    """Outcomes whose weight may be read and matters by its 90 % interval, largest first."""
    low, high = posterior.low, posterior.high
    order = [int(i) for i in np.argsort(-np.abs(posterior.median)) if names[i] not in unread]
    return [i for i in order if low[i] * high[i] > 0 and min(abs(low[i]), abs(high[i])) > NOTHING]


def verdict_sentence(word: Verdict, which: bool = True) -> str:
    """The verdict in plain words, without a number: the first thing that is said.

    ``which``: whether any single weight is clear (:func:`clear_weights`). Outcomes can help together, or by chance,
    where none is.
    """
    together = "" if which else " together; of none alone can it be told that it matters"
    said = {
        "beyond habit": f"the outcomes weighed help to foresee these decisions{together}",
        "nothing beyond habit": "it cannot be seen that the outcomes weighed matter to these decisions",
        "not identifiable": "no outcome's weight can be told from such data",
    }
    return f"{word.capitalize()}: {said[word]}."


def added_sentences(word: Verdict, likelihood: HeldOutLikelihood, habits: bool) -> list[str]:
    """How much outcomes add to habit, in numbers, what follows from it, and what foresees the decisions better still.

    ``habits`` is whether any were looked for; if not, habit is no more than how often each action is taken.
    """
    if word == "not identifiable":
        return []
    added = likelihood.beyond_habit
    seen = f"{likelihood.decisions:,} decisions of {likelihood.patients:,} patients, {learnt_from(likelihood)}"
    better = "better than" if word == "beyond habit" else "better by no more than chance explains than"
    little = word == "nothing beyond habit" and added.clear
    if little:
        better = "hardly better than"
    elif word == "nothing beyond habit" and added.mean <= 0:
        better = "no better than"
    said = [
        f"With them, decisions are foreseen {better} by {'habit alone' if habits else ONLY_FREQUENCIES}: the "
        f"log-likelihood of a decision is {_signed(likelihood.cirl.mean, 3)} in place of "
        f"{_signed(likelihood.habit.mean, 3)}, a difference of {_signed(added.mean, 3)} (standard error "
        f"{added.standard_error:.3f}), over {seen}."
    ]
    if little:
        said.append(
            f"That is less than {100 * LEAST:g} % of what habit leaves unforeseen: with the patients divided "
            "otherwise, it may be gone."
        )
    if word == "nothing beyond habit":
        said.append("So the weights say nothing. That does not prove that the outcomes did not matter.")
    others = {"Gradient boosting": likelihood.boosting, "Behaviour cloning": likelihood.cloning}
    name, best = max(others.items(), key=lambda one: one[1].mean)
    if word == "beyond habit" and best.mean > likelihood.cirl.mean + CLOSE:
        said.append(
            f"{name}, which knows no preferences, foresees them better still ({_signed(best.mean, 3)}): what was "
            "observed says more of these decisions than the outcomes weighed explain."
        )
    return said


def limit_sentences(found: FoundLimit | None, word: Verdict, crossed: bool) -> list[str]:
    """At which limit they act, and how that was found; nothing where none was sought.

    ``crossed``: whether decisions were foreseen from other patients' alone, in parts.
    """
    if found is None:
        return []
    outcome = read_outcome(found.outcome, ())
    assert isinstance(outcome, Above | Below)
    where, told = f"{type(outcome).__name__.lower()} which {outcome.column}", found.written
    among = f"the {len(found.tried)} limits tried ({told(found.tried[0])} to {told(found.tried[-1])})"
    if found.limit is None or found.interval is None or not weights_mean_something(word):
        why = "its interval holds more than half of them"
        if found.gain < found.needed:
            why = "none makes the decisions likelier, beyond chance, than habit and the other outcomes do"
        elif found.limit is not None:
            why = "by the verdict, what the outcomes say of these decisions is no finding"
        return [
            f"It is open {where} they act: of {among}, {why}. {found.outcome} is weighed all the same, the likeliest."
        ]
    low, high = found.interval
    beyond = "; the interval ends where no more were tried" if found.at_end else ""
    part = "; those of each part of the patients are foreseen with the limit that the others tell" if crossed else ""
    return [
        f"They act {where.replace('which ', '')} {told(found.limit)} ({told(low)} to {told(high)}).",
        f"That limit is found from decisions: of {among} it makes them likeliest, with its 90 % interval in "
        f"brackets{beyond}{part}.",
    ]


def learnt_from(likelihood: HeldOutLikelihood) -> str:
    """What decisions were foreseen from, in words."""
    if likelihood.folds:
        return f"each foreseen from other patients alone (cross-validation in {likelihood.folds} parts)"
    return "of episodes that nothing was learnt from"


def verdict_sentences(
    names: Sequence[str],
    per: Callable[[int], str],
    word: Verdict,
    posterior: PosteriorResult,
    identified: IdentifiedSet,
    uninterpreted: Mapping[str, str] | None = None,
) -> list[str]:
    """What was found and its limits, by the names of the d outcomes.

    ``per`` says what one unit of weight i is, ``uninterpreted`` why some weights may not be read.
    """
    unread = {**(uninterpreted or {}), **identified.not_identifiable}
    by_reason: dict[str, list[str]] = {}
    for name, reason in unread.items():
        by_reason.setdefault(reason, []).append(name)
    reasons = [f"{_listed(of)} cannot be judged: {reason}." for reason, of in by_reason.items()]
    if not weights_mean_something(word):
        return reasons
    sentences = []
    w, low, high = posterior.median, posterior.low, posterior.high
    order = [int(i) for i in np.argsort(-np.abs(w)) if names[i] not in unread]
    if not order:
        return reasons
    clear = clear_weights(names, posterior, unread)
    if clear:
        # A single number would claim more than a wide interval holds.
        said = [
            f"{names[i]} {_signed(w[i])} ({per(i)})"
            if high[i] - low[i] <= WIDE
            else f"{names[i]} between {_signed(low[i])} and {_signed(high[i])} ({per(i)})"
            for i in clear
        ]
        sentences.append(f"What the decisions traded off, largest first: {first_of(said)}.")
    if unclear := len(order) - len(clear):
        some = f"{unclear} of {len(order)} features" if clear else "each of the features"
        sentences.append(f"By the 90 % intervals, {some} may weigh nothing, or next to nothing ({NOTHING} or less).")
    open_width = identified.high - identified.low
    anything = [names[i] for i in sorted(order) if open_width[i] > WHOLE]
    wide = [i for i in sorted(order) if WIDE < open_width[i] <= WHOLE]
    if anything and len(anything) == len(order):
        sentences.append("The experts' average outcomes alone allow any weights: single decisions tell them.")
    elif anything:
        sentences.append(f"The experts' average outcomes alone allow any weight of {first_of(anything)}.")
    if wide and not (anything and len(names) == 2):
        ranges = [f"{names[i]} {_signed(identified.low[i])} to {_signed(identified.high[i])}" for i in wide]
        # Of two weights one says it all.
        beyond = ranges[0] if len(names) == 2 else first_of(ranges)
        told = ""
        if all(high[i] - low[i] <= WIDE for i in wide):
            told = (
                "; the narrower interval comes from how single decisions vary, and rests on the model of their chance"
            )
        sentences.append(f"By average outcomes alone, weights are not identified beyond {beyond}{told}.")
    return [*sentences, *reasons]


def sampler_sentences(sampler: SamplerReport) -> list[str]:
    """That the sample behind the numbers cannot be trusted, where that is so."""
    if sampler.converged:
        return []
    return [
        f"The sampler has not converged (R-hat {sampler.r_hat.max():.3f}, effective draws "
        f"{sampler.effective.min():.0f}): weights and intervals can change when the run is repeated."
    ]


def strictness_sentences(posterior: PosteriorResult) -> list[str]:
    """What widens the intervals or leaves kappa to its prior, where that is so."""
    said = []
    if posterior.kappa_interval[0] > FAR * KAPPA:
        said.append(
            f"The decisions follow the outcomes so strictly that kappa is held back by little but its prior: 90 % "
            f"interval {posterior.kappa_interval[0]:,.0f} to {posterior.kappa_interval[1]:,.0f}, far above the prior's "
            f"mean of {KAPPA:,.0f}. Any larger kappa would explain them nearly as well."
        )
    if posterior.sampler.power < DEPENDENT:
        said.append(
            "The decisions of one patient depend much on each other: they count for "
            f"{100 * posterior.sampler.power:.0f} % of as many independent ones, and the intervals are wider for it."
        )
    return said


def first_of(said: Sequence[str]) -> str:
    """The first four in words, and how many more there are."""
    more = f" and {len(said) - 4} more" if len(said) > 4 else ""
    return f"{', '.join(said[:4])}{more}"


def _signed(value: float, digits: int = 2) -> str:
    """With the sign, which zero has not."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def loop_sentences(
    names: Sequence[str], loop: MaxMarginResult, posterior: PosteriorResult, uninterpreted: Collection[str] = ()
) -> list[str]:
    """Where the paper's own choice of weights (Algorithm 1, w_K) would mislead, and why.

    Nothing is said of ``uninterpreted`` weights.
    """
    if loop.stop == "already matched":
        return ["The loop's first policy, of random weights, already has the experts' average outcomes: w_K is chance."]
    if loop.best == 0:
        return [
            "The paper's choice w_K is the loop's random start here, whose policy happens to have the outcomes nearest "
            "to the experts': it is no finding."
        ]
    w = loop.weights
    read = [i for i in range(len(w)) if names[i] not in uninterpreted]
    against = [names[i] for i in read if max(w[i] * posterior.low[i], w[i] * posterior.high[i]) < 0]
    if not against:
        return []
    return [
        f"The paper's choice w_K has the other sign for {', '.join(against)}: it is the direction in which the "
        "policies found before still differed from the experts, not what the experts weigh."
    ]


def per(feature_map: FeatureMap, i: int) -> str:
    """What weight i is per: ``per 5.2 units``, ``per 1.4 units outside 36..38``, ``per switch``."""
    outcome, size = feature_map.outcomes[i], feature_map.high[i] - feature_map.low[i]
    return (
        f"per {outcome.unit}" if isinstance(outcome, KnownOutcome) and size == 1 else f"per {size:.4g} {outcome.unit}"
    )


def seen_sentences(feature_map: FeatureMap) -> list[str]:
    """What was seen and not weighed; what is known of an action is not seen."""
    seen_outcomes = [outcome for outcome in feature_map.outcomes if not isinstance(outcome, KnownOutcome)]
    needed = {name for outcome in seen_outcomes for name in outcome.needs}
    known = sum(isinstance(read_outcome(name, (name,)), KnownOutcome) for name in feature_map.of)
    seen, weighed, outcomes = len(feature_map.of) - known, len(needed), len(seen_outcomes)
    if seen == weighed:
        return []
    if not weighed:
        return [f"None of the {seen} observed features is weighed: they are only seen and predicted."]
    plain = {outcome.name for outcome in seen_outcomes} == needed
    used = "are weighed as outcomes" if plain else f"go into the {outcomes} outcomes that are weighed"
    return [f"Of {seen} observed features {weighed} {used}; the others are only seen and predicted."]


def expectation_sentences(feature_map: FeatureMap, noise: FloatArray) -> list[str]:
    """By how much outcomes with a kink fall short of their expectation, at most.

    ``noise`` is ``[D]``, the standard deviation of each observed feature around its prediction, raw units.
    """
    short = []
    for outcome in feature_map.outcomes:
        if not outcome.columns:
            continue  # known exactly
        most = most_understated(outcome, float(noise[feature_map.of.index(outcome.columns[0])]))
        if most > 0:
            short.append(f"{most:.2g} to {outcome.name}")
    if not short:
        return []
    return [
        "Distances from a limit are measured at the expected value, which leaves out what chance adds on average: at "
        f"most {', '.join(short)}."
    ]


def most_understated(outcome: OutcomeFeature, deviation: float) -> float:
    """How much less an outcome of the expected value can be than the outcome expected, raw units (Jensen's inequality).

    For normal residuals of one standard deviation s, at the worst place, which is a kink: E max(x - limit, 0) exceeds
    max(E x - limit, 0) by s g(z) with g(z) = density(z) - z tail(z), z >= 0 the distance from the limit in units of s.
    Of a range of width r the other end adds s g(r / s). It is 0 for an outcome without a kink.
    """
    if deviation <= 0 or not isinstance(outcome, Outside | Above | Below):
        return 0.0
    distances = [0.0]
    if isinstance(outcome, Outside):
        distances.append((outcome.high - outcome.low) / deviation)
    return deviation * sum(
        math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) - z * math.erfc(z / math.sqrt(2)) / 2 for z in distances
    )


def gamma_sentences(choice: GammaChoice | None) -> list[str]:
    """Which discount factor was taken and why; nothing where none was chosen."""
    if choice is None:
        return []
    among = f"Of the discount factors {_listed([f'{one.gamma:g}' for one in choice.tried])}"
    tied = [f"{one.gamma:g}" for one in choice.tied]
    if len(tied) == 1:
        return [f"{among}, {tied[0]} makes held-out decisions most likely, by more than one standard error."]
    return [
        f"{among}, held-out decisions do not tell {_listed(tied)} apart (within one standard error): a tie, of which "
        f"the largest is taken, {choice.chosen:g}."
    ]


def window_sentences(
    features: Sequence[str], windows: Sequence[TimeWindow], uninterpreted: Collection[str] = ()
) -> list[str]:
    """What changes beyond chance from each window to the next, and which windows say nothing.

    Nothing is said of ``uninterpreted`` weights.
    """
    if set(features) <= set(uninterpreted):
        return []
    sentences = []
    for before, after in pairwise(windows):
        if after.changes is None:
            continue
        named = [pair for pair in zip(features, after.changes, strict=True) if pair[0] not in uninterpreted]
        clear = [(one.difference, name) for name, one in named if one.clear]
        # Of two weights of the same sign, the changes are equal but for rounding.
        clear.sort(key=lambda pair: -round(abs(pair[0]), 6))
        listed = first_of([f"{name} {difference:+.2f}" for difference, name in clear])
        said = f"these weights change beyond chance: {listed}" if clear else "no weight changes beyond chance"
        sentences.append(f"From {steps_of(before)} to {steps_of(after)}, {said}.")
    for window in windows:
        if window.found is None:
            few = f"{window.decisions} decisions of {window.patients} patients"
            sentences.append(f"{steps_of(window).capitalize()} have too few decisions to say anything: {few}.")
    return sentences


def steps_of(window: TimeWindow) -> str:
    """The window in words: ``steps 0 to 5``, ``steps 12 on``."""
    return f"steps {window.from_} on" if window.to is None else f"steps {window.from_} to {window.to}"


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
