"""``result.json``: what one run found, in one frozen, checked object. A run that was killed leaves no such file."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, fields
from importlib import metadata
from math import dist
from typing import Any, TypeAlias

from cirl_gym.files import read_json, write_json
from irl.result.records import (
    AgreementOverTime,
    AllowedActions,
    Episodes,
    GammaChoice,
    HeldOutLikelihood,
    Quality,
    TimeWindow,
    build,
    check_types,
    check_windows,
    plain,
    require,
)

SCHEMA = 1
RETURN_POLICIES = ("expert", "cirl", "cloning", "random", "never", "always")
"""Whose returns are compared where a simulator is at hand."""

Numbers: TypeAlias = tuple[float, ...]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class IdentifiedRanges:
    """The weights that explain the data equally well, feature by feature: regret <= max(minimum, 0) + tolerance."""

    ranges: dict[str, Interval]
    """Smallest and largest weight of each feature within the set."""
    minimum: float
    """Smallest regret of any weights: max over found policies of w . mu, minus w . mu_expert."""
    tolerance: float
    """How far above the minimum still counts as equally well (sampling and solver error)."""
    not_identifiable: dict[str, str]
    """Features whose weight the data cannot tell, with the reason."""
    profile: tuple[tuple[float, float, float], ...] = ()
    """Of two features, (weight, weight, regret) along the allowed weights, in order; else empty."""

    def __post_init__(self) -> None:
        check_types(self, "identified_set")
        for name, interval in self.ranges.items():
            _check_interval(interval, f"identified_set.ranges.{name}")
        require(self.tolerance >= 0, "identified_set.tolerance must not be negative")


@dataclass(frozen=True)
class LoopRound:
    """One round of the loop (paper, algorithm 1)."""

    k: int
    w: Numbers
    """``[d]`` weights that were solved for."""
    mu: Numbers
    """``[d]`` discounted feature expectation of the policy found."""
    lambda_: float | None
    """Step towards mu, 0 to 1; None in the first round, which has no step. The key is ``lambda``."""
    margin: float
    """Distance of mu_expert from the mixture so far."""
    seconds: float
    agreement: float
    """Share of held-out decisions that its policy meets (appendix H), on the first held-out episodes."""
    changed: float | None
    """Share of these decisions in which its policy differs from the round before's; None in the first round."""

    def __post_init__(self) -> None:
        check_types(self, f"rounds[{self.k}]")
        for name in ("agreement", "changed"):
            share = getattr(self, name)
            require(share is None or 0 <= share <= 1, f"rounds[{self.k}].{name} must lie in [0, 1], got {share}")
        require(self.lambda_ is None or 0 <= self.lambda_ <= 1, f"rounds[{self.k}].lambda must lie in [0, 1]")
        require(min(self.k, self.margin, self.seconds) >= 0, f"rounds[{self.k}]: negative number, margin or seconds")


@dataclass(frozen=True)
class Accuracy:
    """Share of held-out actions that each policy's most likely action meets (paper, appendix H)."""

    cirl: float
    cloning: float
    majority: float
    repeat_last_action: float
    ceiling: float | None
    """What nobody can exceed, since the experts draw their actions; None where that is not known."""

    def __post_init__(self) -> None:
        check_types(self, "accuracy")
        for field in fields(self):
            value = getattr(self, field.name)
            require(value is None or 0 <= value <= 1, f"accuracy.{field.name} must lie in [0, 1], got {value}")


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    standard_error: float

    def __post_init__(self) -> None:
        check_types(self, "estimate")
        require(self.standard_error >= 0, "estimate.standard_error must not be negative")


@dataclass(frozen=True)
class Kappa:
    """The experts' inverse temperature with its 90 % interval."""

    mean: float
    interval: Interval

    def __post_init__(self) -> None:
        check_types(self, "kappa")
        _check_interval(self.interval, "kappa.interval")


@dataclass(frozen=True)
class ModelError:
    """Root of the summed squared errors of the predicted outcomes, scaled to [0, 1], on held-out histories."""

    factual: float
    """For the actions that were taken."""
    counterfactual: float | None
    """For the actions that were not; None where there is no simulator to ask."""

    def __post_init__(self) -> None:
        check_types(self, "model_error")
        require(min(self.factual, self.counterfactual or 0.0) >= 0, "model_error must not be negative")


@dataclass(frozen=True)
class Member:
    """What one outcome model of an ensemble says."""

    weights: Numbers
    """``[d]`` posterior mean in its world."""
    mu_expert: Numbers
    """``[d]`` feature expectation of the experts by its predictions."""
    mu_recovered: Numbers
    """``[d]`` that of the policy optimal for its weights, in its world."""

    def __post_init__(self) -> None:
        check_types(self, "members")


@dataclass(frozen=True, kw_only=True)
class Result:
    """Field by field the keys of ``result.json`` (beside ``schema``); numbers are finite, what is unknown is None.

    NumPy's numbers and arrays are taken and become plain numbers and tuples.

    Raises:
        ValueError: a field has another type, a number is not finite, a length is not d, the weights' L1 norm is not 1
            within 1e-6, an interval is upside down, or feature names do not agree.
    """

    features: tuple[str, ...]
    """Names of the d outcomes that are weighed (what else was observed is in ``config.columns.features``)."""
    weights: Numbers
    """``[d]`` reward weights, L1 norm 1."""
    intervals: dict[str, Interval]
    """90 % interval of each weight."""
    identified_set: IdentifiedRanges
    mu_expert: Numbers
    """``[d]`` discounted feature expectation of the experts."""
    margin: float
    """Distance of mu_expert from the mixture that the loop ended with (paper, Algorithm 1: t)."""
    rounds: tuple[LoopRound, ...]
    accuracy: Accuracy
    returns: dict[str, Estimate] | None
    """Return in the simulator of each of :data:`RETURN_POLICIES`; None without a simulator."""
    model_error: ModelError
    seconds: dict[str, float]
    """Seconds per stage."""
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
    """The finding in plain sentences."""
    stop: str
    """Why the loop ended."""
    verdict: str
    """One word for what the data can tell of the weights (:func:`irl.result.verdict.verdict`)."""
    episodes: Episodes
    members: tuple[Member, ...]
    """Of an ensemble of outcome models, what each says; empty for a single model."""
    windows: tuple[TimeWindow, ...] = ()
    """What the decisions of each window of time say; empty where no windows were asked for."""
    gammas: GammaChoice | None = None
    """The discount factors that held-out decisions chose from; None where it was given (``config.fit.gamma``)."""
    mu_recovered: Numbers | None = None
    """``[d]`` discounted feature expectation of the recovered policy in the world model."""
    mu_gap: float | None = None
    """Distance of mu_expert from it."""
    agreement: AgreementOverTime | None = None
    """Accuracy at every time step."""
    likelihood: HeldOutLikelihood | None = None
    """How likely held-out decisions are."""
    quality: Quality | None = None
    """Whether planning in the world model keeps what it promises."""
    allowed: AllowedActions | None = None
    """What rules forbade in the training episodes; None where every action was always allowed."""

    def __post_init__(self) -> None:
        check_types(self, "result")
        d = len(self.features)
        require(d > 0 and len(set(self.features)) == d, f"features must be distinct names, got {self.features}")
        vectors = {"weights": self.weights, "mu_expert": self.mu_expert}
        vectors |= {f"estimates.{name}": values for name, values in self.estimates.items()}
        if self.true_weights is not None:
            vectors["true_weights"] = self.true_weights
        if self.mu_recovered is not None:
            vectors["mu_recovered"] = self.mu_recovered
        for entry in self.rounds:
            vectors |= {f"rounds[{entry.k}].w": entry.w, f"rounds[{entry.k}].mu": entry.mu}
        for number, member in enumerate(self.members):
            vectors |= {f"members[{number}].{field.name}": getattr(member, field.name) for field in fields(member)}
        for name, values in vectors.items():
            require(len(values) == d, f"{name} must be {d} numbers, one per feature, got {len(values)}")
        norm = sum(abs(weight) for weight in self.weights)
        require(abs(norm - 1) <= 1e-6, f"weights must have L1 norm 1, got {norm}")
        for name, ranges in (("intervals", self.intervals), ("identified_set.ranges", self.identified_set.ranges)):
            require(set(ranges) == set(self.features), f"{name} must have one [low, high] for each feature")
        for name, interval in self.intervals.items():
            _check_interval(interval, f"intervals.{name}")
        unknown = set(self.identified_set.not_identifiable) - set(self.features)
        require(not unknown, f"identified_set.not_identifiable names no feature: {sorted(unknown)}")
        if self.returns is not None:
            require(set(self.returns) == set(RETURN_POLICIES), f"returns must be of {', '.join(RETURN_POLICIES)}")
        require(min(self.margin, *self.seconds.values(), 0.0) >= 0, "margin and seconds must not be negative")
        require((self.mu_recovered is None) == (self.mu_gap is None), "mu_recovered and mu_gap belong together")
        if self.mu_recovered is not None and self.mu_gap is not None:
            gap = dist(self.mu_expert, self.mu_recovered)
            require(abs(self.mu_gap - gap) <= 1e-6 * max(gap, 1.0), f"mu_gap must be {gap}, got {self.mu_gap}")
        check_windows(self.windows, d)
        if self.gammas is not None:
            require(len(self.gammas.tried[0].weights) == d, f"gammas must have {d} weights, one per feature")

    def as_dict(self) -> dict[str, Any]:
        """The content of ``result.json``, in JSON's own types."""
        content: dict[str, Any] = plain(self, "result")
        return {"schema": SCHEMA, **content}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole."""
        write_json(path, self.as_dict())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Result:
        """Read what :meth:`write` wrote.

        Raises:
            ValueError: the file is not a whole result of this schema; the message names it and what is wrong.
        """
        content = read_json(path)
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} is not a result of schema {SCHEMA}")
        try:
            result: Result = build(cls, content, "result")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return result


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers, read without importing them."""
    packages = ("numpy", "torch", "gymnasium", "stable_baselines3", "cirl_gym")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}


def _check_interval(interval: Interval, where: str) -> None:
    require(interval[0] <= interval[1], f"{where} must be [low, high], got {list(interval)}")
