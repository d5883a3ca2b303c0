"""What the decisions of one window of time say of the weights, as ``result.json`` keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from irl.records import check_types, require

Numbers: TypeAlias = tuple[float, ...]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Change:
    """One feature's weight in a window minus its weight in the window before."""

    difference: float
    interval: Interval
    """90 % interval of the difference."""

    def __post_init__(self) -> None:
        check_types(self, "change")
        require(self.interval[0] <= self.interval[1], f"change.interval must be [low, high], got {self.interval}")

    @property
    def clear(self) -> bool:
        """Whether the interval does not hold 0: the change is beyond chance."""
        return self.interval[0] * self.interval[1] > 0


@dataclass(frozen=True)
class WindowWeights:
    """The posterior of the weights from the decisions of one window."""

    weights: Numbers
    """``[d]`` posterior mean, L1 norm 1."""
    intervals: tuple[Interval, ...]
    """``[d]`` 90 % interval of each weight."""
    kappa: float
    """Posterior mean of the experts' inverse temperature in this window."""
    kappa_interval: Interval

    def __post_init__(self) -> None:
        check_types(self, "windows.found")
        require(len(self.intervals) == len(self.weights), "windows: one interval for each weight")
        for low, high in (*self.intervals, self.kappa_interval):
            require(low <= high, f"windows: an interval must be [low, high], got {[low, high]}")


@dataclass(frozen=True)
class TimeWindow:
    """One window of time steps, and what its decisions say. The key of ``from_`` is ``from``."""

    from_: int
    """First time step."""
    to: int | None
    """Last time step; None: to the end of the episodes."""
    decisions: int
    """Decisions that were judged in it."""
    patients: int
    """Whose decisions they are."""
    found: WindowWeights | None
    """None where there are too few decisions to say anything; the window is named all the same."""
    changes: tuple[Change, ...] | None
    """``[d]`` how the weights differ from those of the window before; None where one of the two was not fitted."""

    def __post_init__(self) -> None:
        check_types(self, "windows")
        require(min(self.from_, self.decisions, self.patients) >= 0, "windows: from and numbers must not be negative")
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


def check_windows(windows: Sequence[TimeWindow], d: int) -> None:
    """Check that windows follow each other and weigh d features.

    Raises:
        ValueError: they do not.
    """
    check_starts([window.from_ for window in windows])
    for window in windows:
        if window.found is not None:
            require(len(window.found.weights) == d, f"windows must have {d} weights, got {len(window.found.weights)}")
    require(not windows or windows[0].changes is None, "windows: the first has none before it to differ from")
