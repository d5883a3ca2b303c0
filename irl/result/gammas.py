"""The discount factors of which held-out decisions chose one, as result.json has them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from irl.result.codec import Interval, LogProbability, NotNegative, Numbers, Record, Share, require


class GammaTried(Record, frozen=True):
    """What one discount factor says: medians and 90 % intervals of the weights, the mean of kappa."""

    gamma: Share
    log_likelihood: LogProbability
    """Mean log-probability of a held-out decision, its chance averaged over the posterior of weights and kappa."""
    difference: LogProbability
    """That minus the best discount factor's: 0 for the best, else negative."""
    standard_error: NotNegative
    """Of the difference, paired by patient."""
    weights: Numbers
    """``[d]`` posterior medians under this discount factor."""
    intervals: tuple[Interval, ...]
    kappa: float

    def check(self) -> None:
        """One interval for each weight."""
        require(len(self.intervals) == len(self.weights), "gammas.tried: one interval for each weight")

    @property
    def tied(self) -> bool:
        """Whether the best is at most one standard error better: held-out decisions do not tell the two apart."""
        return -self.difference <= self.standard_error


class GammaChoice(Record, frozen=True):
    """The discount factor that was taken, and all that were tried."""

    chosen: float
    tried: tuple[GammaTried, ...]
    decisions: int
    patients: int

    def check(self) -> None:
        """There was a choice, of one of the best, about the same features."""
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
