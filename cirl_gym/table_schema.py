"""What the columns of a table are, and the choices that only its owner can make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from cirl_gym.table_cells import listed

End = Literal["terminated", "truncated"]
LastRow = Literal["observation", "drop_action"]
Duplicates = Literal["error", "first", "last", "mean"]


@dataclass(frozen=True)
class TableColumns:
    """Which column plays which part.

    Raises:
        ValueError: no action or feature is named, one column is named for two parts, or a static one is no feature.
    """

    id: str
    """The episode (a patient, or a stay)."""
    time: str
    """When, a number or an ISO time; orders the rows of an episode."""
    action: str | tuple[str, ...]
    """What was decided after the row's observation. Of several columns every combination of values that is ever taken
    is one action, "antibiotic=0, ventilation=1"; :attr:`~cirl_gym.table_report.TableReport.actions` holds the values
    of each. (What was never taken has no outcomes to learn from.)"""
    features: tuple[str, ...]
    """The D observed numbers."""
    group: str | None = None
    """Whom the episode belongs to (a patient with several stays); splits are by it. None: every episode alone."""
    terminated: str | None = None
    """1 on the last row of an episode if the process ended there."""
    truncated: str | None = None
    """1 on the last row of an episode if only watching ended there."""
    static: tuple[str, ...] = ()
    """Features that do not change within an episode (age, sex). No action changes them, so they are no outcomes."""

    def __post_init__(self) -> None:
        for name in ("features", "static"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        features, actions = self.features, self.actions
        if not actions:
            raise ValueError("at least one column must be the action (--action)")
        object.__setattr__(self, "action", actions[0] if len(actions) == 1 else actions)
        if self.group == self.id:
            object.__setattr__(self, "group", None)
        if not features:
            raise ValueError("at least one feature is needed (--features)")
        twice = sorted({name for name in self.used if self.used.count(name) > 1})
        if twice:
            raise ValueError(f"a column cannot play two parts: {listed(twice)}")
        unknown = [name for name in self.static if name not in features]
        if unknown:
            raise ValueError(f"static: {listed(unknown)} is not among the features {listed(features)}")

    @property
    def actions(self) -> tuple[str, ...]:
        """The columns of the action, one or several."""
        return (self.action,) if isinstance(self.action, str) else tuple(self.action)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The features that can be weighed: those that are not static."""
        return tuple(name for name in self.features if name not in self.static)

    @property
    def action_words(self) -> str:
        """The columns of the action for a message."""
        return f"column{'s' if len(self.actions) > 1 else ''} {' and '.join(map(repr, self.actions))}"

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that play a part."""
        others = (self.id, self.time, *self.actions, self.group, self.terminated, self.truncated)
        return tuple(name for name in others if name is not None) + self.features

    def check(self, names: Sequence[str]) -> None:
        """Check that a table has them all.

        Raises:
            ValueError: one is not among ``names``.
        """
        check_known(self.used, names)


def check_known(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Check that a table with columns ``names`` has those ``wanted``.

    Raises:
        ValueError: it has not.
    """
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise ValueError(f"the table has no column {listed(unknown)}; its columns are {', '.join(map(repr, names))}")


@dataclass(frozen=True)
class TableOptions:
    """Choices that change what is read from a table; every repair is counted in the report.

    Raises:
        ValueError: a value is not among those allowed, or a range is empty.
    """

    end: End | None = None
    """How episodes end, if the table has no end flags: the process ended with the last action, or only watching did."""
    last_row: LastRow = "observation"
    """A final row without an action is the last observation. If no episode has such a row, each one's last action,
    whose outcome nobody saw, is dropped. If only some have one, that is an error, or ("drop_action") the action on the
    final row of the others is dropped."""
    missing_indicator: bool = False
    """Append a feature ``<name>_missing`` (0 or 1) for every feature that is missing somewhere in the training rows."""
    duplicates: Duplicates = "error"
    """Rows of one (id, time) that differ: an error, or keep the first or last of the file, or the mean of readings."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Plausible (low, high) per feature, both inclusive, infinite where open; readings outside become missing."""
    lag: tuple[str, ...] = ()
    """Features that describe the interval after the row's time (a dose given): moved to the next row of the episode."""

    def __post_init__(self) -> None:
        choices = (("last_row", LastRow), ("duplicates", Duplicates), ("end", End))
        for name, allowed in choices:
            value = getattr(self, name)
            if value not in get_args(allowed) and not (name == "end" and value is None):
                raise ValueError(f"{name} must be one of {', '.join(get_args(allowed))}, got {value!r}")
        object.__setattr__(self, "lag", (self.lag,) if isinstance(self.lag, str) else tuple(self.lag))
        ranges = {str(name): (float(low), float(high)) for name, (low, high) in dict(self.ranges).items()}
        for name, (low, high) in ranges.items():
            if math.isnan(low) or math.isnan(high) or low > high:
                raise ValueError(f"ranges: {name!r} must have low <= high, got ({low}, {high})")
        object.__setattr__(self, "ranges", ranges)

    def check(self, features: Sequence[str], static: Sequence[str] = ()) -> None:
        """Check that every feature that an option names is one, and that what is lagged can change.

        Raises:
            ValueError: it is not, or it cannot.
        """
        fixed = [feature for feature in self.lag if feature in static]
        if fixed:
            raise ValueError(f"lag: {listed(fixed)} is static, so there is nothing to move to the next row")
        for name, wanted in (("ranges", tuple(self.ranges)), ("lag", self.lag)):
            unknown = [feature for feature in wanted if feature not in features]
            if unknown:
                raise ValueError(f"{name}: {listed(unknown)} is not among the features {listed(features)}")
