"""What every action is estimated to change, how sure that is, and which weights may not be read for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cirl_gym.data.features import FeatureMap
from cirl_gym.outcome_models.effects import ActionEffects, LevelEffects
from cirl_gym.outcome_models.sensitivity import Sensitivity
from cirl_gym.outcome_models.stated import StatedEffect
from cirl_gym.types import FloatArray
from irl.result.codec import Count, Interval, NotNegative, Record, Share, require

if TYPE_CHECKING:
    from cirl_gym.diagnostics import EffectiveSize


class LevelEffect(Record, frozen=True):
    """An effect on the next value where the current level lies within a part of its range."""

    level: Interval
    """Of what the outcome is read from, raw units."""
    effect: float
    interval: Interval | None


class HiddenCause(Record, frozen=True):
    """How strong a cause that was not observed would have to be (:mod:`cirl_gym.outcome_models.sensitivity`)."""

    feature: str
    """The observed feature whose next value the effect is on, or the outcome is first read from."""
    effect: float
    """By the regression that this is read off, raw units of the feature."""
    robustness: Share
    """Share of what is left of both, action and next value, that it would have to explain to bring the effect to 0."""
    strongest: str
    """The observed feature that, as strong, would move the effect most."""
    moved: NotNegative | None
    """By how much, raw units; None: without bound."""


class Effect(Record, frozen=True):
    """One action's effect on one outcome, against the reference action, in the outcome's units."""

    action: str
    reference: str
    """The first action, or that of a table that comes first in order: usually none or 0."""
    outcome: str
    next: float
    """Effect on the next value."""
    next_interval: Interval | None
    """90 % interval over patients; None: the outcome model gives none."""
    total: float
    """On the discounted sum to the end, if the action is taken once and the reference action from then on."""
    total_interval: Interval | None
    plain: float | None
    """Mean change to the next row after the action minus that after the reference; None: one was never taken."""
    decisions: Count
    """How often the action was taken."""
    reference_decisions: Count
    by_level: tuple[LevelEffect, ...]
    """Effect on the next value by the current level; empty where it is the same everywhere."""
    hidden: HiddenCause | None
    """What could have been overlooked; None where it cannot be told."""
    outside: Share = 0.0
    """Of the steps behind effects on sums, the share at which a feature lies outside what was observed of it."""
    stated: str | None = None
    """What was said of it beforehand."""
    contradicted: bool = False
    """Whether the estimate contradicts that."""

    def check(self) -> None:
        """Estimates lie in their intervals, and only what was stated can be contradicted."""
        for name, value, interval in (
            ("next", self.next, self.next_interval),
            ("total", self.total, self.total_interval),
        ):
            inside = interval is None or interval[0] <= value <= interval[1]
            require(inside, f"effects: {name} of {self.action} on {self.outcome} must lie in its interval")
        require(self.stated is not None or not self.contradicted, "effects: nothing stated, nothing contradicted")

    @property
    def unknown(self) -> bool:
        """Whether both 90 % intervals hold 0: then not even the sign is known."""
        return all(
            interval is not None and interval[0] <= 0 <= interval[1]
            for interval in (self.next_interval, self.total_interval)
        )

    @property
    def estimate(self) -> str:
        """The effect on the next value in words."""
        span = "" if self.next_interval is None else f" ({self.next_interval[0]:+.3g} to {self.next_interval[1]:+.3g})"
        return f"{self.next:+.3g}{span}"

    @property
    def sensitivity_sentence(self) -> str:
        """How far what was not observed would have to move it until its sign, and that of the weight, changes."""
        if self.hidden is None:
            return ""
        cause = self.hidden
        start = (
            f"{self.action} on {cause.feature}: a cause that was not observed would have to move the effect by "
            f"{abs(cause.effect):.3g} to turn its sign, and with it that of the weight"
        )
        strong = f"it would have to explain {100 * cause.robustness:.2g} % of what the table leaves open of both"
        if not cause.moved:
            return f"{start}; {strong}."
        times = f"{abs(cause.effect) / cause.moved:.2g} times what one as strong as {cause.strongest} can move it"
        return f"{start}: {times} ({strong})."


class ActionOverlap(Record, frozen=True):
    """What the comparison of an action with the reference action rests on."""

    action: str
    reference: str
    decisions: Count
    """Judged decisions for the action."""
    reference_decisions: Count
    worth: NotNegative | None
    """Decisions by the toss of a coin that tell as much (:func:`cirl_gym.diagnostics.effective_sizes`, overlap
    weights); None: one of the two was never taken."""

    def check(self) -> None:
        """They are worth no more than they are."""
        both = self.decisions + self.reference_decisions
        require(
            self.worth is None or self.worth <= both * (1 + 1e-9), f"overlap: {self.action} is worth more than it is"
        )

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.worth is None:
            return f"Of the judged decisions, {self.decisions:,} are for {self.action}: nothing to compare."
        return (
            f"{self.decisions:,} judged decisions with {self.action} and {self.reference_decisions:,} with "
            f"{self.reference}, compared where both were possible, are worth {self.worth:,.0f} that "
            "were decided by the toss of a coin."
        )


def found_overlaps(sizes: Sequence[EffectiveSize], actions: Sequence[str]) -> tuple[ActionOverlap, ...]:
    """The record of every one of A actions but the first, of ``sizes`` in their order."""
    named = zip(actions[1:], sizes, strict=True)
    return tuple(
        ActionOverlap(action, actions[0], one.taken, one.compared - one.taken, one.overlap) for action, one in named
    )


def found_effects(
    effects: ActionEffects,
    actions: Sequence[str],
    sensitivities: Mapping[tuple[int, str], Sensitivity],
    stated: Sequence[StatedEffect],
) -> tuple[Effect, ...]:
    """The record of every action and outcome; of an action that nobody took, or against one, there is none.

    Args:
        effects: of A - 1 actions on d outcomes.
        actions: names of the A actions.
        sensitivities: by number of the action and name of the outcome, where it can be told.
        stated: what is known beforehand.
    """
    said = {(one.action, one.outcome): one for one in stated}
    found = []
    for number, action in enumerate(actions[1:], 1):
        for i, outcome in enumerate(effects.outcomes):
            at, known = (number - 1, i), said.get((action, outcome))
            following, interval = float(effects.next[at]), _ends(effects.next_interval[:, number - 1, i])
            plain = float(effects.plain[at])
            if not np.isfinite(following):
                continue  # the action or the reference was never taken
            found.append(
                Effect(
                    action=action,
                    reference=actions[0],
                    outcome=outcome,
                    next=following,
                    next_interval=interval,
                    total=float(effects.total[at]),
                    total_interval=_ends(effects.total_interval[:, number - 1, i]),
                    plain=plain if np.isfinite(plain) else None,
                    decisions=int(effects.decisions[number]),
                    reference_decisions=int(effects.decisions[0]),
                    by_level=_levels(effects.by_level[number - 1][i]),
                    outside=effects.outside,
                    hidden=_hidden(sensitivities.get((number, outcome))),
                    stated=None if known is None else known.text,
                    contradicted=known is not None and known.contradicted(following, interval),
                )
            )
    return tuple(found)


def uninterpreted(effects: Sequence[Effect], feature_map: FeatureMap) -> dict[str, str]:
    """Why a weight may not be read, by outcome: an effect that it rests on contradicts what is known, or none is known.

    A contradicted effect on an observed feature counts for every outcome that is read from it.
    """
    reasons: dict[str, str] = {}
    wrong = [one for one in effects if one.contradicted]
    for outcome in feature_map.outcomes:
        own = [one for one in effects if one.outcome == outcome.name]
        against = [one for one in wrong if one.outcome == outcome.name or one.outcome in outcome.columns]
        if against:
            reasons[outcome.name] = (
                f"the outcome model contradicts what is known, that {against[0].stated}: it estimates "
                f"{against[0].estimate}"
            )
        elif own and all(one.unknown for one in own):
            which = "every action" if len(own) > 1 else own[0].action
            reasons[outcome.name] = f"the effect of {which} is unknown, its intervals hold 0"
    return reasons


def action_labels(table: Mapping[str, Any] | None, names: Sequence[str]) -> list[str]:
    """Names of the A actions that say what they are of: ``given 1``, where a table's column has a value alone."""
    known = (table or {}).get("actions")
    if not isinstance(known, Sequence) or len(known) != len(names):
        return list(names)
    return [", ".join(f"{column} {value}" for column, value in one.items()) for one in known]


def held_sentences(held: Sequence[StatedEffect]) -> list[str]:
    """That the outcome model was held to what is known; nothing where it was not."""
    if not held:
        return []
    return [
        "The outcome model was held to what was said of effects ("
        + "; ".join(one.text for one in held)
        + "): what it says of these is no finding of the data, and no network corrects it."
    ]


def contradiction_sentences(effects: Sequence[Effect]) -> list[str]:
    """The first thing that is said where an estimate contradicts what is known."""
    return [
        f"Contradiction: it is known that {one.stated}, but by the outcome model {one.action} changes the next "
        f"{one.outcome} by {one.estimate}. No weight that rests on it is interpreted."
        for one in effects
        if one.contradicted
    ]


def _ends(interval: FloatArray) -> tuple[float, float] | None:
    return (float(interval[0]), float(interval[1])) if np.isfinite(interval).all() else None


def _levels(found: LevelEffects | None) -> tuple[LevelEffect, ...]:
    if found is None:
        return ()
    edges = zip(found.edges[:-1], found.edges[1:], strict=True)
    ends = (_ends(np.array(pair)) for pair in zip(found.low, found.high, strict=True))
    each = zip(edges, found.mean, ends, strict=True)
    return tuple(LevelEffect((float(a), float(b)), float(mean), interval) for (a, b), mean, interval in each)


def _hidden(found: Sensitivity | None) -> HiddenCause | None:
    if found is None:
        return None
    moved = found.moved if np.isfinite(found.moved) else None
    return HiddenCause(found.feature, found.effect, found.robustness, found.strongest, moved)
