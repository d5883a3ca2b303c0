"""``result.json``: what one run found, in one frozen, checked record. A run that was killed leaves no such file."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from math import dist
from typing import Any

from msgspec import field

from cirl_gym.data.batch import Batch
from irl.result.chances import ChanceScores
from irl.result.codec import (
    Count,
    Document,
    Interval,
    LogProbability,
    NotNegative,
    Numbers,
    Record,
    Share,
    Some,
    require,
)
from irl.result.consequences import Consequences
from irl.result.effects import ActionOverlap, Effect
from irl.result.exchange import ExchangeRate
from irl.result.gammas import GammaChoice
from irl.result.habits import Habits
from irl.result.limits import FoundLimit
from irl.result.simulated_habits import SimulatedHabits
from irl.result.windows import TimeWindow, check_starts

BEYOND = 1.645
"""Standard errors above 0 beyond which a gain is called clear: one of twenty is so by chance alone."""
LEAST = 0.01
"""Share of what habit leaves unforeseen below which a gain is too small to be one: the same table, divided otherwise,
gives gains that differ by as much, which standard errors by patient do not know of."""
RETURN_POLICIES = ("expert", "cirl", "cloning", "random", "never", "always")
"""Whose returns are compared where a simulator is at hand."""


class IdentifiedRanges(Record, frozen=True):
    """The weights that explain the data equally well, feature by feature: regret <= max(minimum, 0) + tolerance."""

    ranges: dict[str, Interval]
    minimum: float
    """Smallest regret of any weights: max over found policies of w . mu, minus w . mu_expert."""
    tolerance: NotNegative
    """How far above the minimum still counts as equally well (sampling and solver error)."""
    not_identifiable: dict[str, str]
    """Features whose weight the data cannot tell, with the reason."""
    profile: tuple[tuple[float, float, float], ...] = ()
    """Of two features, (weight, weight, regret) along the allowed weights, in order; else empty."""


class LoopRound(Record, frozen=True):
    """One round of the loop (paper, algorithm 1): the weights ``[d]`` and mu ``[d]`` of the policy found."""

    k: Count
    w: Numbers
    mu: Numbers
    lambda_: Share | None
    """Step towards mu, 0 to 1; None in the first round, which has no step. The key is ``lambda``."""
    margin: NotNegative
    """Distance of mu_expert from the mixture so far."""
    seconds: NotNegative
    agreement: Share
    """Share of held-out decisions that its policy meets (appendix H), on the first held-out episodes."""
    changed: Share | None
    """Share of these decisions in which its policy differs from the round before's; None in the first round."""


class MixedPolicy(Record, frozen=True):
    """A policy of the mixture."""

    round: Count
    share: Share
    """How often it is followed: it is drawn for a whole episode."""
    w: Numbers
    """``[d]`` the weights that it is optimal for."""


class PolicyMixture(Record, frozen=True):
    """The mixture of found policies whose outcomes are nearest to the experts' (paper, section 4.3)."""

    policies: tuple[MixedPolicy, ...]
    mu: Numbers
    distance: NotNegative
    """Of mu_expert from it."""

    def check(self) -> None:
        """Shares add up to 1."""
        total = sum(one.share for one in self.policies)
        require(abs(total - 1) <= 1e-6, f"mixture: shares must add up to 1, got {total}")


class Accuracy(Record, frozen=True):
    """Share of held-out actions that each policy's most likely action meets (paper, appendix H)."""

    cirl: Share
    cloning: Share
    majority: Share
    repeat_last_action: Share
    ceiling: Share | None
    """What nobody can exceed, since the experts draw their actions; None where that is not known."""


class Estimate(Record, frozen=True):
    """A mean and its standard error."""

    mean: float
    standard_error: NotNegative


class Kappa(Record, frozen=True):
    """The experts' inverse temperature with its 90 % interval."""

    mean: float
    interval: Interval


class ModelError(Record, frozen=True):
    """Root of the summed squared errors of the predicted outcomes, scaled to [0, 1], on held-out histories."""

    factual: NotNegative
    counterfactual: NotNegative | None
    """For the actions that were not taken; None where there is no simulator to ask."""


class Member(Record, frozen=True):
    """What one outcome model of an ensemble says."""

    weights: Numbers
    """``[d]`` posterior mean in its world."""
    mu_expert: Numbers
    """``[d]`` feature expectation of the experts by its predictions."""
    mu_recovered: Numbers
    """``[d]`` that of the policy optimal for its weights, in its world."""


class EpisodeCounts(Record, frozen=True):
    """How many episodes each part of the data has, and how long they are."""

    train: int
    validation: int
    test: int
    mean_length: NotNegative
    """Actions of a training episode, on average."""
    mean_length_recovered: NotNegative
    """Actions of an episode of the recovered policy in the world model, on average, from the same first observations:
    where the two differ, what ends episodes may be part of what the weights say."""


class AllowedActions(Record, frozen=True):
    """What rules (:mod:`cirl_gym.data.rules`) forbade; of a table in all its splits, of a simulated run in training."""

    rules: tuple[str, ...]
    decisions: Count
    limited: Count
    forced: Count
    """Decisions in which one action alone was allowed: they say nothing of weights."""

    def check(self) -> None:
        """There is a rule, and numbers rise."""
        require(bool(self.rules), "allowed.rules must hold a rule")
        ordered = self.forced <= self.limited <= self.decisions
        require(ordered, "allowed: forced, limited and decisions must rise in this order")

    @classmethod
    def of(cls, rules: Sequence[str], batch: Batch) -> AllowedActions | None:
        """Of the episodes (of a table: of all its splits); None where nothing was forbidden."""
        if batch.allowed is None:
            return None
        left = batch.allowed[batch.mask].sum(axis=1)
        return cls(tuple(rules), batch.n_steps, int((left < batch.n_actions).sum()), int((left == 1).sum()))

    @property
    def sentence(self) -> str:
        """For the headline."""
        if self.limited == 0:
            return f"What was forbidden never comes up in the {self.decisions:,} decisions."
        forced = f"one action alone was allowed in {self.forced:,}, which say nothing of the weights"
        return f"Some action was forbidden in {self.limited:,} of {self.decisions:,} decisions; {forced}."


class Foreseen(Record, frozen=True):
    """How well held-out decisions are foreseen, on average."""

    mean: LogProbability
    """Log-probability of a decision; nearer to 0 is better; minus the logarithm of the number of actions is chance."""
    standard_error: NotNegative
    """With patients as the unit."""
    accuracy: Share
    """Of the likeliest action (paper, appendix H)."""


class Difference(Record, frozen=True):
    """Log-probability of a decision by one account minus that by another, on average."""

    mean: float
    standard_error: NotNegative
    """Of the differences, patient by patient."""

    @property
    def clear(self) -> bool:
        """Whether it is above 0 beyond chance: by chance alone one of twenty would be called so."""
        return self.mean > BEYOND * self.standard_error


class HeldOutLikelihood(Record, frozen=True, kw_only=True):
    """How well each account of the experts foresees decisions that it was not learnt from."""

    decisions: Some
    patients: Some
    folds: Count
    """Every patient's decisions were foreseen by what was learnt from the others, in so many parts; 0: of episodes that
    nothing was learnt from."""
    beyond_habit: Difference
    """``cirl`` minus ``habit``: what the outcomes add."""
    cirl: Foreseen
    """Preferences and habits: chances averaged over the posterior."""
    habit: Foreseen
    """Habit alone; without habits how often each action is taken."""
    last_action: Foreseen
    """How often each action followed each other one."""
    boosting: Foreseen
    """Gradient boosting on the last observations and actions."""
    cloning: Foreseen
    frequencies: Foreseen
    """How often each action was taken in training."""
    chance: Foreseen
    expert: Foreseen | None
    """The simulated experts' own chances, which nobody exceeds but by luck; None where they are not known."""
    scores: dict[str, ChanceScores] = field(default_factory=dict)
    """Of each account by name, AUROC and the like of the same decisions; a run of an earlier version has none."""

    @property
    def gained(self) -> float:
        """What the outcomes add, as a share of what habit leaves unforeseen (McFadden's pseudo-R squared)."""
        return self.beyond_habit.mean / -self.habit.mean if self.habit.mean < 0 else 0.0


class Sampler(Record, frozen=True):
    """How far the sample behind weights, kappa and intervals can be trusted."""

    converged: bool
    """Whether every R-hat is at most 1.01 and every bulk effective size at least 400."""
    r_hat: dict[str, float]
    """Of every weight, and of ``kappa``."""
    effective: dict[str, float]
    """Bulk effective number of independent draws."""
    power: Share
    """Of the likelihood; below 1 where the decisions of one patient depend on each other."""


class AgreementOverTime(Record, frozen=True):
    """Share of held-out decisions at each time step ``[T]`` that a policy's most likely action meets."""

    episodes: tuple[Some, ...]
    """Held-out, and still going on at t = 0, 1, ..."""
    cirl: tuple[Share, ...]
    cloning: tuple[Share, ...]

    def check(self) -> None:
        """One number for each step."""
        same = len(self.episodes) == len(self.cirl) == len(self.cloning) > 0
        require(same, "agreement: one number for each step")


class Quality(Record, frozen=True):
    """Feature expectations read off plans against those that policies reach in the same world model.

    Differences are shares of an outcome's full discounted range, the sum of gamma^t over the horizon.
    """

    weights: Some
    """How many weights were looked at: some from the loop and the posterior, the others from everywhere."""
    expected: NotNegative
    """Largest difference of any outcome's mu for any weights, along the world model's expected path."""
    sampled: NotNegative
    """The same with the world model's noise. It is large, and harmless, where two policies are equally good."""
    noise: NotNegative
    """Largest standard error of a mu in ``sampled``: the part of chance."""
    systematic: NotNegative
    """Largest mean difference of an outcome's mu over all weights that neither chance nor ties explain."""
    value: NotNegative
    """Largest size, for any weights, of the difference in value w . mu that chance does not explain."""
    promised: float
    """Largest value w . mu, for any weights, that plans promise and policies do not reach with noise; negative where
    they always reach more."""
    search_gain: float
    """Value that the search adds to the network's own choices, on average over the weights: large where the network
    knows little."""
    limit: NotNegative | None
    """What stops a run if ``systematic`` or ``value`` is above it; None: nothing does."""

    def check(self) -> None:
        """Nothing is above the limit."""
        if self.limit is not None:
            above = max(self.systematic, self.value) > self.limit
            require(not above, "quality: systematic or value is above the limit, which stops a run")


class Result(Document, frozen=True, kw_only=True):
    """Field by field the keys of ``result.json`` (beside ``schema``); numbers are finite, what is unknown is None.

    Raises:
        ValueError: a field has another type, a number is not finite, a length is not d, a weight lies outside its
            interval, an interval is upside down, or feature names do not agree.
    """

    verdict: str
    """Whether outcomes add anything to habit (:func:`irl.result.sentences.verdict`): whether weights mean anything."""
    features: tuple[str, ...]
    """Names of the d outcomes that are weighed (what else was observed is in ``config.columns.features``)."""
    weights: Numbers
    """``[d]`` reward weights, the posterior median of each; their sizes need not add up to 1, as a single draw's do."""
    intervals: dict[str, Interval]
    """90 % interval of each weight."""
    identified_set: IdentifiedRanges
    mu_expert: Numbers
    margin: NotNegative
    """Distance of mu_expert from the mixture that the loop ended with (paper, Algorithm 1: t)."""
    rounds: tuple[LoopRound, ...]
    accuracy: Accuracy
    returns: dict[str, Estimate] | None
    """Return in the simulator of each of :data:`RETURN_POLICIES`; None without a simulator."""
    model_error: ModelError
    seconds: dict[str, NotNegative]
    seed: int
    config: dict[str, Any]
    versions: dict[str, str]
    estimates: dict[str, Numbers]
    """``[d]`` weights by other readings of the same run: posterior, w_K, last_direction, least_regret."""
    kappa: Kappa | None
    true_weights: Numbers | None
    """``[d]`` the weights that the simulated experts had; None for a real table."""
    table: dict[str, Any] | None
    """What was found and repaired when the table was read; None without a table."""
    headline: tuple[str, ...]
    stop: str
    identification: str
    """How far average outcomes and single decisions pin the weights down (:func:`irl.result.sentences.pinned`)."""
    sampler: Sampler
    episodes: EpisodeCounts
    members: tuple[Member, ...]
    """Of an ensemble of outcome models, what each says; empty for a single model."""
    windows: tuple[TimeWindow, ...] = ()
    """What the decisions of each window of time say; empty where no windows were asked for."""
    gammas: GammaChoice | None = None
    """The discount factors that held-out decisions chose from; None where it was given (``config.fit.gamma``)."""
    limit: FoundLimit | None = None
    """The limit at which experts act, where one was sought (``Below(potassium, ?)``); None elsewhere."""
    mu_recovered: Numbers | None = None
    """``[d]`` discounted feature expectation of the recovered policy in the world model."""
    mu_gap: float | None = None
    """Distance of mu_expert from it."""
    agreement: AgreementOverTime | None = None
    likelihood: HeldOutLikelihood | None = None
    quality: Quality | None = None
    allowed: AllowedActions | None = None
    """What rules forbade in the training episodes; None where every action was always allowed."""
    mixture: PolicyMixture | None = None
    """The mixture of found policies nearest to the experts; None in a run of an earlier version."""
    exchange_rates: tuple[ExchangeRate, ...] = ()
    """What makes up for one more step with an action that is weighed; empty where none is."""
    effects: tuple[Effect, ...] = ()
    """What every action changes in every outcome that is not known of the action; empty in a run of an earlier
    version."""
    overlap: tuple[ActionOverlap, ...] = ()
    """What the comparison of every action with the first rests on; empty in a run of an earlier version."""
    uninterpreted: dict[str, str] = field(default_factory=dict)
    """By outcome, why its weight may not be read though the verdict would let it
    (:func:`irl.result.effects.uninterpreted`)."""
    habits: Habits | None = None
    """What was found of habits beside preferences; None where none were looked for."""
    simulated_habits: SimulatedHabits | None = None
    """What was found of the habits of simulated experts; None where they have none, or none were looked for."""
    consequences: Consequences | None = None
    """What every policy comes to in the world model; None in a run of an earlier version."""

    def check(self) -> None:
        """Everything is about the same features, and every weight lies in its interval."""
        d = len(self.features)
        require(len(self.headline) > 0, "headline must have the verdict's sentence at least")
        require(d > 0 and len(set(self.features)) == d, f"features must be distinct names, got {self.features}")
        for name, values in self._vectors().items():
            require(len(values) == d, f"{name} must be {d} numbers, one per feature, got {len(values)}")
        for name, ranges in (("intervals", self.intervals), ("identified_set.ranges", self.identified_set.ranges)):
            require(set(ranges) == set(self.features), f"{name} must have one [low, high] for each feature")
        for name, weight in zip(self.features, self.weights, strict=True):
            low, high = self.intervals[name]
            require(low <= weight <= high, f"the weight of {name}, {weight}, must lie in its interval")
        require(set(self.uninterpreted) <= set(self.features), "uninterpreted must be of outcomes")
        unknown = set(self.identified_set.not_identifiable) - set(self.features)
        require(not unknown, f"identified_set.not_identifiable names no feature: {sorted(unknown)}")
        if self.returns is not None:
            require(set(self.returns) == set(RETURN_POLICIES), f"returns must be of {', '.join(RETURN_POLICIES)}")
        require((self.mu_recovered is None) == (self.mu_gap is None), "mu_recovered and mu_gap belong together")
        if self.mu_recovered is not None and self.mu_gap is not None:
            gap = dist(self.mu_expert, self.mu_recovered)
            require(abs(self.mu_gap - gap) <= 1e-6 * max(gap, 1.0), f"mu_gap must be {gap}, got {self.mu_gap}")
        require(self.limit is None or self.limit.outcome in self.features, "limit.outcome must be one of the features")
        check_starts([window.from_ for window in self.windows])
        first = self.windows[0] if self.windows else None
        require(first is None or first.changes is None, "windows: the first has none before it to differ from")

    def _vectors(self) -> dict[str, Numbers]:
        """By name, what has one number per feature."""
        vectors = {"weights": self.weights, "mu_expert": self.mu_expert}
        optional = {"true_weights": self.true_weights, "mu_recovered": self.mu_recovered}
        vectors |= {name: values for name, values in optional.items() if values is not None}
        vectors |= {f"estimates.{name}": values for name, values in self.estimates.items()}
        for one in self.rounds:
            vectors |= {f"rounds[{one.k}].w": one.w, f"rounds[{one.k}].mu": one.mu}
        for i, member in enumerate(self.members):
            vectors |= {f"members[{i}].{name}": getattr(member, name) for name in Member.__struct_fields__}
        for i, window in enumerate(self.windows):
            if window.found is not None:
                vectors[f"windows[{i}].found.weights"] = window.found.weights
        if self.mixture is not None:
            vectors["mixture.mu"] = self.mixture.mu
            vectors |= {f"mixture.policies[{i}].w": one.w for i, one in enumerate(self.mixture.policies)}
        if self.gammas is not None:
            vectors["gammas.tried[0].weights"] = self.gammas.tried[0].weights
        return vectors


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers, read without importing them."""
    packages = ("numpy", "torch", "gymnasium", "stable_baselines3", "cirl_gym")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}
