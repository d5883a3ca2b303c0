"""Windows of time whose weights are found one by one, as result.json has them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from irl.result.codec import Count, Interval, Numbers, Record, require


class WindowChange(Record, frozen=True):
    """One feature's weight in a window minus its weight in the window before, and the 90 % interval of that."""

    difference: float
    interval: Interval

    @property
    def clear(self) -> bool:
        """Whether the interval does not hold 0: the change is beyond chance."""
        return self.interval[0] * self.interval[1] > 0


class WindowWeights(Record, frozen=True):
    """The posterior of weights and kappa from the decisions of one window: medians, kappa's mean, 90 % intervals."""

    weights: Numbers
    """``[d]`` posterior medians."""
    intervals: tuple[Interval, ...]
    kappa: float
    kappa_interval: Interval

    def check(self) -> None:
        """One interval for each weight."""
        require(len(self.intervals) == len(self.weights), "windows: one interval for each weight")


class TimeWindow(Record, frozen=True):
    """One window of time steps, and what its decisions say. The key of ``from_`` is ``from``."""

    from_: Count
    to: int | None
    """Last time step; None: to the end of the episodes."""
    decisions: Count
    patients: Count
    found: WindowWeights | None
    """None where there are too few decisions to say anything; the window is named all the same."""
    changes: tuple[WindowChange, ...] | None
    """``[d]`` how the weights differ from those of the window before; None where one of the two was not fitted."""

    def check(self) -> None:
        """It holds a step, and one change for each weight."""
        require(self.to is None or self.to >= self.from_, f"windows: from {self.from_} to {self.to} holds no step")
        if self.changes is not None:
            same = self.found is not None and len(self.changes) == len(self.found.weights)
            require(same, "windows: one change for each weight that was found")


def check_starts(starts: Sequence[int]) -> None:
    """Check the first steps of windows.

    Raises:
        ValueError: one is negative, or they do not rise.
    """
    if any(step < 0 for step in starts) or any(a >= b for a, b in pairwise(starts)):
        raise ValueError(f"windows must be first steps from 0 on, each larger than the one before, got {list(starts)}")
