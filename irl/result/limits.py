"""The limit at which experts act, as it was found from their decisions (:mod:`irl.studies.limits`)."""

from __future__ import annotations

from itertools import pairwise

from irl.result.codec import Interval, NotNegative, Numbers, Record, Share, Some, require


class FoundLimit(Record, frozen=True, kw_only=True):
    """A limit that was sought, as in ``Below(potassium, ?)``, and the profile of the likelihood that tells it."""

    asked: str
    """As it was written, with the question mark."""
    outcome: str
    """What was weighed in its place: the outcome of the limit that makes the decisions likeliest."""
    limit: float | None
    """That limit, in the column's units; None where the decisions leave it open."""
    interval: Interval | None
    """90 % interval; None as well."""
    tried: Numbers
    """``[K]`` the limits that were tried, rising."""
    log_likelihood: tuple[float, ...]
    """``[K]`` of all decisions, at the best weights, kappa and habits of each."""
    without: float
    """The same without the outcome: what the others and habits can do."""
    power: Share
    """Of the likelihood, that makes patients the unit; below 1 where decisions of one depend on each other."""
    gain: float
    """By how much the likeliest limit's outcome raises the log-likelihood, times the power."""
    needed: NotNegative
    """By how much it has to, not to be chance."""
    decisions: Some
    patients: Some

    def check(self) -> None:
        """One number for each limit; the limit is one of them, in its interval, or none is told."""
        require(all(a < b for a, b in pairwise(self.tried)), "limit: those tried must rise")
        require(len(self.tried) == len(self.log_likelihood) > 0, "limit: one log-likelihood for each limit tried")
        if self.limit is None or self.interval is None:
            require(self.limit is None and self.interval is None, "limit: limit and interval go together")
            return
        require(self.limit in self.tried, "limit: the one found must be among those tried")
        require(self.interval[0] <= self.limit <= self.interval[1], "limit: it must lie in its interval")

    def written(self, limit: float) -> str:
        """A limit with as many decimals as any that was tried: 4.0 beside 4.1."""
        texts = [f"{one:.9g}" for one in self.tried]
        if any("e" in text for text in texts):
            return f"{limit:.9g}"
        return f"{limit:.{max(len(text.partition('.')[2]) for text in texts)}f}"

    @property
    def at_end(self) -> bool:
        """Whether its interval reaches the first or the last limit that was tried."""
        return self.interval is not None and bool({*self.interval} & {self.tried[0], self.tried[-1]})
