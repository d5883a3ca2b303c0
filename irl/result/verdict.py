"""What may be said of the weights: one word for a run, and sentences that claim no more than the data hold.

Three things can be in the way. Decisions can be no more than coin tosses or habit, and then no weights explain them.
Different weights can have the same best policy; average outcomes then leave a whole set of them, and only the chances
of single decisions can tell more. And the loop's own choice w_K can be nothing but its random start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import chi2

from cirl_gym.data.batch import Batch
from irl.max_margin.loop import MaxMarginResult
from irl.preferences.identified_set import IdentifiedSet
from irl.preferences.likelihood import constant_chances, even_log_chances, log_chances, taken_log_probabilities
from irl.preferences.posterior import PosteriorResult

Verdict: TypeAlias = Literal[
    "identified", "by decisions only", "not identified", "no better than habit", "not identifiable"
]
WIDE = 0.2
"""A weight that can vary by more than this is not known."""
BEYOND_CHANCE = 0.99
"""Probability with which coin tosses are recognised as such."""
_LISTED = 4


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


def verdict_sentences(
    names: Sequence[str],
    per: Callable[[int], str],
    word: Verdict,
    posterior: PosteriorResult,
    identified: IdentifiedSet,
) -> list[str]:
    """The finding and its limits.

    Args:
        names: of the d outcomes.
        per: of an outcome's number, what one unit of its weight is.
        word: from :func:`verdict`.
        posterior: weights and intervals.
        identified: which weights average outcomes leave.
    """
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
    sentences += _weights(names, per, posterior)
    return [*sentences, *_left_open(names, posterior, identified), *reasons]


def _weights(names: Sequence[str], per: Callable[[int], str], posterior: PosteriorResult) -> list[str]:
    w, low, high = posterior.mean, posterior.low, posterior.high
    order = [int(i) for i in np.argsort(-np.abs(w))]
    clear = [i for i in order if low[i] * high[i] > 0]
    unclear = len(order) - len(clear)
    sentences = []
    if clear:
        # A single number would claim more than a wide interval holds.
        said = [
            f"{names[i]} {_signed(w[i])} ({per(i)})"
            if high[i] - low[i] <= WIDE
            else f"{names[i]} between {_signed(low[i])} and {_signed(high[i])} ({per(i)})"
            for i in clear[:_LISTED]
        ]
        more = f" and {len(clear) - _LISTED} more" if len(clear) > _LISTED else ""
        sentences.append(f"What the decisions traded off, largest first: {', '.join(said)}{more}.")
    if unclear:
        have = "has a weight" if unclear == 1 else "have weights"
        some = f"{unclear} of {len(order)} features {have} whose sign is not"
        which = some if clear else "none of the features has a weight whose sign is"
        sentences.append(f"By the 90 % intervals, {which} determined by the data.")
    return sentences


def _left_open(names: Sequence[str], posterior: PosteriorResult, identified: IdentifiedSet) -> list[str]:
    wide = [i for i in range(len(names)) if identified.high[i] - identified.low[i] > WIDE]
    if not wide:
        return []
    # Of two weights one says it all.
    shown = wide[:1] if len(names) == 2 else wide[:_LISTED]
    ranges = ", ".join(f"{names[i]} {_signed(identified.low[i])} to {_signed(identified.high[i])}" for i in shown)
    more = f" and {len(wide) - len(shown)} more" if len(names) > 2 and len(wide) > len(shown) else ""
    text = f"By average outcomes alone, weights are not identified beyond {ranges}{more}"
    narrow = all(posterior.high[i] - posterior.low[i] <= WIDE for i in wide)
    told = "; the narrower interval comes from how single decisions vary, and rests on the model of their chance"
    return [f"{text}{told if narrow else ''}."]


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
