"""Which discount factors were tried on held-out decisions, as ``result.json`` keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from irl.records import check_types, require

Numbers: TypeAlias = tuple[float, ...]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class GammaTried:
    """What one discount factor says."""

    gamma: float
    log_likelihood: float
    """Mean log-probability of a held-out decision, its chance averaged over the posterior of weights and kappa."""
    difference: float
    """That minus the best discount factor's: 0 for the best, else negative."""
    standard_error: float
    """Of the difference, paired by patient."""
    weights: Numbers
    """``[d]`` posterior mean under this discount factor, L1 norm 1."""
    intervals: tuple[Interval, ...]
    """``[d]`` 90 % intervals."""
    kappa: float
    """Posterior mean of the experts' inverse temperature."""

    def __post_init__(self) -> None:
        check_types(self, "gammas.tried")
        require(0 <= self.gamma <= 1, f"gammas.tried: gamma must lie between 0 and 1, got {self.gamma}")
        require(self.log_likelihood <= 0 and self.difference <= 0, "gammas.tried: log-probabilities are not above 0")
        require(self.standard_error >= 0, "gammas.tried: standard_error must not be negative")
        require(len(self.intervals) == len(self.weights), "gammas.tried: one interval for each weight")
        require(all(low <= high for low, high in self.intervals), "gammas.tried: an interval is not [low, high]")

    @property
    def tied(self) -> bool:
        """Whether the best is at most one standard error better: held-out decisions do not tell the two apart."""
        return -self.difference <= self.standard_error


@dataclass(frozen=True)
class GammaChoice:
    """The discount factor that was taken, and all that were tried."""

    chosen: float
    tried: tuple[GammaTried, ...]
    """By rising gamma."""
    decisions: int
    """Held-out decisions that were judged."""
    patients: int
    """Whose they are."""

    def __post_init__(self) -> None:
        check_types(self, "gammas")
        check_gammas([one.gamma for one in self.tried])
        require(self.chosen in [one.gamma for one in self.tied], "gammas: the chosen one is none of the best")
        require(len({len(one.weights) for one in self.tried}) == 1, "gammas: all must weigh the same features")

    @property
    def best(self) -> GammaTried:
        """The one of the highest likelihood (of equals the largest)."""
        return max(self.tried, key=lambda one: (one.difference, one.gamma))

    @property
    def tied(self) -> tuple[GammaTried, ...]:
        """Those that held-out decisions do not tell from the best, and the best itself."""
        return tuple(one for one in self.tried if one.tied)


def check_gammas(gammas: Sequence[float]) -> None:
    """Check that there is a choice: at least two discount factors, rising.

    Raises:
        ValueError: there is none, or one is out of its range.
    """
    rising = all(a < b for a, b in pairwise(gammas))
    if len(gammas) < 2 or not rising or not all(0 <= gamma <= 1 for gamma in gammas):
        listed = ", ".join(map(str, gammas))
        raise ValueError(f"a discount factor is chosen from two or more, rising and between 0 and 1, got {listed}")
