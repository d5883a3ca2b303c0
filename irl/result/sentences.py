"""What may be said of a run: one word, and sentences that claim no more than the data hold.

Three things can be in the way. Decisions can be no more than coin tosses or habit, and then no weights explain them.
Different weights can have the same best policy; average outcomes then leave a whole set of them, and only the chances
of single decisions can tell more. And the loop's own choice w_K can be nothing but its random start. Beside these, what
has to be said of outcomes: what a weight is per, what was only seen, and what an expectation leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import chi2

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, KnownOutcome, OutcomeFeature, Outside, read_outcome
from cirl_gym.types import FloatArray
from irl.max_margin.loop import MaxMarginResult
from irl.preferences.identified_set import IdentifiedSet
from irl.preferences.likelihood import constant_chances, even_log_chances, log_chances, taken_log_probabilities
from irl.preferences.posterior import PosteriorResult
from irl.result.result import GammaChoice, TimeWindow

Verdict: TypeAlias = Literal[
    "identified", "by decisions only", "not identified", "no better than habit", "not identifiable"
]
WIDE = 0.2
"""A weight that can vary by more than this is not known."""
BEYOND_CHANCE = 0.99
"""Probability with which coin tosses are recognised as such."""
TRADE_OFF = (
    "A discount factor and weights trade off: a short-sighted expert looks like one who weighs lasting outcomes less. "
    "What each discount factor would have said of the weights is in the table."
)
SAME_PATIENTS = (
    "A change is called beyond chance if its 90 % interval does not hold 0; without any change, about one of ten would "
    "be called so. The intervals know that windows share patients, and not how errors of the outcome model or of the "
    "search for plans differ over time."
)


@dataclass(frozen=True)
class Evidence:
    """Log-likelihoods of the same decisions.

    Raises:
        ValueError: a number is not finite, or there are no decisions.
    """

    weights: float
    """Under the best weights and the best kappa, d numbers in all."""
    chance: float
    """If every action, of those allowed, were as likely."""
    habit: float
    """If actions had the same chances whatever is observed (:func:`irl.preferences.likelihood.constant_chances`)."""
    decisions: int

    def __post_init__(self) -> None:
        if not np.isfinite([self.weights, self.chance, self.habit]).all() or self.decisions < 1:
            raise ValueError(f"Evidence: log-likelihoods of at least one decision must be finite, got {self}")

    @classmethod
    def of(cls, posterior: PosteriorResult, judged: Batch) -> Evidence:
        """Of the episodes that the posterior has judged."""
        chance, habit = (
            float(taken_log_probabilities(logs, judged).sum())
            for logs in (even_log_chances(judged), log_chances(constant_chances(judged), judged))
        )
        return cls(posterior.best_log_likelihood, chance, habit, judged.n_steps)

    def beyond_chance(self, d: int) -> bool:
        """Whether a likelihood-ratio test tells the decisions from coin tosses; d - 1 weights are free, and kappa."""
        return 2 * (self.weights - self.chance) > float(chi2.ppf(BEYOND_CHANCE, d))


def verdict(posterior: PosteriorResult, identified: IdentifiedSet, evidence: Evidence) -> Verdict:
    """One word for what a run has found.

    - ``not identifiable``: decisions look like coin tosses, or no outcome's weight can be determined from such data.
    - ``no better than habit``: constant chances explain the decisions at least as well as any weights.
    - ``not identified``: some weight varies by more than :data:`WIDE` in the identified set and in its 90 % interval.
    - ``by decisions only``: so it does in the set, but not in the interval, which rests on the model of chances.
    - ``identified``: no weight varies by more in the set.
    """
    d = len(posterior.mean)
    if not evidence.beyond_chance(d) or len(identified.not_identifiable) == d:
        return "not identifiable"
    if evidence.weights <= evidence.habit:
        return "no better than habit"
    open_set, open_interval = identified.high - identified.low > WIDE, posterior.high - posterior.low > WIDE
    if (open_set & open_interval).any():
        return "not identified"
    return "by decisions only" if open_set.any() else "identified"


def weights_mean_something(word: str) -> bool:
    """Whether the weights of a run with this verdict say anything of what experts prefer."""
    return word not in ("no better than habit", "not identifiable")


def verdict_sentences(
    names: Sequence[str],
    per: Callable[[int], str],
    word: Verdict,
    posterior: PosteriorResult,
    identified: IdentifiedSet,
) -> list[str]:
    """The finding and its limits, by the names of the d outcomes; ``per`` says what one unit of weight i is."""
    reasons = [f"{name} cannot be judged: {reason}." for name, reason in identified.not_identifiable.items()]
    if word == "not identifiable":
        tosses = len(reasons) < len(names)
        first = "Not identifiable: the decisions cannot be told from coin tosses, so that they say nothing of weights."
        return [first if tosses else "Not identifiable: no outcome's weight can be told from such data.", *reasons]
    sentences = []
    if word == "no better than habit":
        sentences.append(
            "Acting with the same chances whatever is observed explains the decisions at least as well as any weights: "
            "what follows describes outcomes, not what drives decisions."
        )
    w, low, high = posterior.mean, posterior.low, posterior.high
    order = [int(i) for i in np.argsort(-np.abs(w))]
    clear = [i for i in order if low[i] * high[i] > 0]
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
        have = "has a weight" if unclear == 1 else "have weights"
        some = f"{unclear} of {len(order)} features {have} whose sign is not"
        which = some if clear else "none of the features has a weight whose sign is"
        sentences.append(f"By the 90 % intervals, {which} determined by the data.")
    wide = [i for i in range(len(names)) if identified.high[i] - identified.low[i] > WIDE]
    if wide:
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


def first_of(said: Sequence[str]) -> str:
    """The first four in words, and how many more there are."""
    more = f" and {len(said) - 4} more" if len(said) > 4 else ""
    return f"{', '.join(said[:4])}{more}"


def _signed(value: float) -> str:
    """Two digits with the sign, which zero has not."""
    text = f"{value:+.2f}"
    return text[1:] if float(text) == 0 else text


def loop_sentences(names: Sequence[str], loop: MaxMarginResult, posterior: PosteriorResult) -> list[str]:
    """Where the paper's own choice of weights (Algorithm 1, w_K) would mislead, and why."""
    if loop.stop == "already matched":
        return ["The loop's first policy, of random weights, already has the experts' average outcomes: w_K is chance."]
    if loop.best == 0:
        return [
            "The paper's choice w_K is the loop's random start here, whose policy happens to have the outcomes nearest "
            "to the experts': it is no finding."
        ]
    w = loop.weights
    against = [names[i] for i in range(len(w)) if max(w[i] * posterior.low[i], w[i] * posterior.high[i]) < 0]
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


def window_sentences(features: Sequence[str], windows: Sequence[TimeWindow]) -> list[str]:
    """What changes beyond chance from each window to the next, and which windows say nothing."""
    sentences = []
    for before, after in pairwise(windows):
        if after.changes is None:
            continue
        clear = [(one.difference, name) for name, one in zip(features, after.changes, strict=True) if one.clear]
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
    return f"{', '.join(names[:-1])} and {names[-1]}"
