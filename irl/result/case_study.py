"""``study.json``: what a case study asked, what it found, and whether that is what medicine knows."""

from __future__ import annotations

from typing import Literal

from irl.result.codec import Count, Document, Interval, NotNegative, Numbers, Record, Some, require
from irl.result.limits import FoundLimit
from irl.result.result import Difference, Foreseen
from irl.result.sentences import weights_mean_something

Says = Literal["agrees", "contradicts", "open", "nothing known"]
"""Of a finding beside what is known: the whole interval is on the known side, on the other one, on both; or nothing is
known."""


class Counts(Record, frozen=True, kw_only=True):
    """Of the table."""

    stays: Count
    """Of the data set."""
    cohort: Count
    """Stays that the study is about."""
    used: Count
    """Those with a decision."""
    patients: Some
    decisions: Some
    taken: Count
    """Decisions to act."""
    changes: Count
    """Decisions that differ from the one before of the same stay."""
    rows: Some

    def check(self) -> None:
        """They nest."""
        require(self.used <= self.cohort <= self.stays, "counts: used, cohort and stays must rise in this order")
        require(self.taken <= self.decisions < self.rows, "counts: taken, decisions and rows must rise in this order")


class EffectFinding(Record, frozen=True, kw_only=True):
    """What the action is estimated to change in the next value, raw units.

    Where the effect differs by level it is that of the level at which the action is usually taken: what it would be
    where nobody takes it is not what medicine speaks of.
    """

    action: str
    outcome: str
    effect: float
    interval: Interval | None
    """90 % interval over patients."""
    level: Interval | None
    """The part of the levels that it is of; None: it is the same everywhere, or of all decisions."""
    known: str | None
    """What was known beforehand."""
    source: str | None
    says: Says


class WeightFinding(Record, frozen=True, kw_only=True):
    """A weight, and the sign that it is known to have."""

    outcome: str
    weight: float
    interval: Interval
    """90 %."""
    per: str
    """What the weight is of one of."""
    unread: str | None
    """Why it may not be read, if so."""
    known: str | None
    source: str | None
    says: Says


class Rate(Record, frozen=True, kw_only=True):
    """How much of one outcome weighs as much as one unit of another, both in their own units.

    Where both ends are None, no number bounds it: the other's weight may be 0.
    """

    outcome: str
    against: str
    """The outcome of the largest weight."""
    rate: float | None
    """Of ``against`` for one unit of ``outcome``; negative where one is liked and the other avoided."""
    interval: Interval | None
    """90 %."""


class VariantFinding(Record, frozen=True, kw_only=True):
    """What the same study says with another choice."""

    name: str
    why: str
    decisions: Some
    taken: Count
    verdict: str
    beyond_habit: Difference
    effects: tuple[EffectFinding, ...]
    weights: tuple[WeightFinding, ...]
    limit: FoundLimit | None
    """The level at which they act, where it was sought."""


class CheckedRun(Record, frozen=True, kw_only=True):
    """Experts who are known in a world fitted to the study's table, and what a fit of their decisions says."""

    weights: Numbers
    """``[d]`` those that they have, in the order of the study's outcomes; with a kappa of 0 they play no part."""
    intervals: tuple[Interval, ...]
    """``[d]`` 90 % intervals that are found."""
    kappa: NotNegative
    kappa_interval: Interval
    matter: bool
    """Whether their outcomes foresee their decisions better than habit can, by more than two standard errors."""
    verdict: str
    read: tuple[bool, ...]
    """``[d]`` which weights may be read: the verdict is "beyond habit", and the effect that each rests on is known."""

    @property
    def held(self) -> tuple[bool, ...]:
        """Which intervals of weights hold the truth; of experts without preferences there is none."""
        pairs = zip(self.weights, self.intervals, strict=True)
        return tuple(low <= weight <= high for weight, (low, high) in pairs) if self.kappa else ()

    @property
    def held_if_read(self) -> tuple[bool, ...]:
        """The same of those that may be read."""
        return tuple(held for held, read in zip(self.held, self.read, strict=False) if read)

    @property
    def right(self) -> bool:
        """Whether the verdict says what is so."""
        return weights_mean_something(self.verdict) == self.matter


class CaseStudy(Document, frozen=True, kw_only=True):
    """The findings of one study: aggregates alone, no row of the data."""

    study: str
    variant: str | None = None
    """The choice that differs from the study's own."""
    title: str
    question: str
    action: str
    """What the action is."""
    seed: Count
    quick: bool
    counts: Counts
    verdict: str
    beyond_habit: Difference
    """What outcomes add to habit, in the log-likelihood of a decision."""
    limit: FoundLimit | None
    """The level at which they act, where it was sought."""
    effects: tuple[EffectFinding, ...]
    weights: tuple[WeightFinding, ...]
    rates: tuple[Rate, ...]
    methods: dict[str, Foreseen]
    """By account of the decisions how well it foresees those of patients that it was not learnt from."""
    folds: Count
    """Parts of the cross-validation over patients; 0: held-out patients."""
    seconds: NotNegative
    variants: tuple[VariantFinding, ...] = ()
    """The same with other choices, where they were asked for."""
    simulated: tuple[CheckedRun, ...] = ()
    """Whether experts who are known would be recovered from such a table, where it was asked for."""
