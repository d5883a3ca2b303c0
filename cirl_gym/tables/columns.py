"""What the columns of a table are, found where that needs no guess, and the choices that only its owner can make.

The rules by which columns are found, in order; where none settles it, the error says which option to give. A name is
compared without regard to case, and with blanks and hyphens as underscores.

* End flags are the columns named ``terminated`` and ``truncated``.
* The id is a column with a well-known name (:data:`EPISODE_NAMES`, :data:`PATIENT_NAMES`) each of whose values goes
  with one value of every other such column: a stay has one patient, while a patient may have several stays.
* The group is the coarsest of the other well-known ones.
* The time is a column with a well-known name (:data:`TIME_NAMES`) that tells the rows of an id apart.
* The action is the column of few values that is empty on the last row of the ids and on no other row, since what
  would follow that row was not watched; or, if there is none, the column named ``action`` or ``treatment``.
* Static features and what habits depend on are never found, only given.
* The features are all other columns, if all are numbers and none looks like something else: a key, a counter of rows,
  a second time, an end flag of another name, or a reward that is empty where the action is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import pandas as pd

from cirl_gym.data.batch import NONE, PREVIOUS, PREVIOUS2
from cirl_gym.names import did_you_mean
from cirl_gym.tables.cells import value_of
from cirl_gym.tables.sheet import Sheet, listed, refuse
from cirl_gym.types import BoolArray, IntArray

End = Literal["terminated", "truncated"]
LastRow = Literal["observation", "drop_action"]
Duplicates = Literal["error", "first", "last", "mean"]

EPISODE_NAMES = (
    "id|stay|episode|trajectory|patientunitstayid|(stay|icustay|episode|trajectory|encounter|admission|hadm|visit)_id"
)
PATIENT_NAMES = "(patient|subject|person)(_id)?|patientid|uniquepid"
TIME_NAMES = "t|time|time_?step|step|timestamp|bin|hours?|days?|week|month|visit"
ACTION_NAMES = "action|treatment"
MOST_ACTIONS = 20
"""A column with more values than this is taken for an action only if the user says so."""

_MOST = 0.95  # share of ids that must follow a rule; the exceptions are faults, which reading the table will name


@dataclass(frozen=True)
class TableColumns:
    """Which column plays which part.

    Raises:
        ValueError: no action or feature is named, one column is named for two parts, or a static one is no feature.
            (A context may be a feature too.)
    """

    id: str
    """The episode (a patient, or a stay)."""
    time: str
    """When, a number or an ISO time; orders the rows of an episode."""
    action: str | tuple[str, ...]
    """What was decided after the row's observation. Of several columns every combination of values that is ever taken
    is one action, "antibiotic=0, ventilation=1"; :attr:`~cirl_gym.tables.read.TableReport.actions` holds the values
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
    contexts: tuple[str, ...] = ()
    """Columns of few values (a ward, a shift) that habits may depend on, as they stand in the row of a decision
    (:attr:`~cirl_gym.data.batch.Batch.contexts`). No model sees them, unless they are named among the features too."""

    def __post_init__(self) -> None:
        for name in ("features", "static", "contexts"):
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
        words = [name for name in self.contexts if name in (PREVIOUS, PREVIOUS2, NONE)]
        if words:
            raise ValueError(
                f"--habit {words[0]} is no column: rename the column {words[0]!r} for habits to depend on it"
            )

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
        further = (name for name in self.contexts if name not in self.features)
        return (*(name for name in others if name is not None), *self.features, *further)


def check_known(wanted: Sequence[str], names: Sequence[str]) -> None:
    """A ValueError where a table with columns ``names`` lacks one of those ``wanted``."""
    unknown = [name for name in wanted if name not in names]
    if unknown:
        likely = did_you_mean(unknown, names)
        raise ValueError(
            f"the table has no column {listed(unknown)}{likely}; its columns are {', '.join(map(repr, names))}"
        )


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
    actions: tuple[str, ...] = ()
    """All values of the one column of the action, in the order in which they are numbered, also those that are never
    taken; none: the column's categories, or those that occur."""
    as_written: bool = False
    """Ids, actions and what habits depend on are taken as they are written: "1" and "1.0", "Yes" and "yes" are values
    of their own, and "NA" is an id like any other."""
    max_steps: int | None = None
    """Episodes end, truncated, after so many steps; None: where the table ends."""
    drop_bad_patients: bool = False
    """Patients of whom a row cannot be used are left out, counted and listed, instead of an error."""
    missing_values: tuple[str, ...] = ()
    """What stands for a missing reading, such as -999 or "unknown": numbers by their value, or texts."""

    def __post_init__(self) -> None:
        choices = (("last_row", LastRow), ("duplicates", Duplicates), ("end", End))
        for name, allowed in choices:
            value = getattr(self, name)
            if value not in get_args(allowed) and not (name == "end" and value is None):
                raise ValueError(f"{name} must be one of {', '.join(get_args(allowed))}, got {value!r}")
        for name in ("lag", "actions", "missing_values"):
            several = getattr(self, name)
            several = (several,) if isinstance(several, str) else tuple(several)
            object.__setattr__(self, name, tuple(map(str, several)))
        same = str.strip if self.as_written else value_of
        if len(set(map(same, self.actions))) < len(self.actions) or len(self.actions) == 1:
            raise ValueError(f"actions (--actions) must be two or more different values, got {listed(self.actions)}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps (--max-steps) must be at least 1, got {self.max_steps}")
        ranges = {str(name): (float(low), float(high)) for name, (low, high) in dict(self.ranges).items()}
        for name, (low, high) in ranges.items():
            if math.isnan(low) or math.isnan(high) or low > high:
                raise ValueError(f"ranges: {name!r} must have low <= high, got ({low}, {high})")
        object.__setattr__(self, "ranges", ranges)

    def check(self, features: Sequence[str], static: Sequence[str] = ()) -> None:
        """A ValueError where an option names what is no feature, or lags what cannot change."""
        fixed = [feature for feature in self.lag if feature in static]
        if fixed:
            raise ValueError(f"lag: {listed(fixed)} is static, so there is nothing to move to the next row")
        for name, wanted in (("ranges", tuple(self.ranges)), ("lag", self.lag)):
            unknown = [feature for feature in wanted if feature not in features]
            if unknown:
                raise ValueError(
                    f"{name}: {listed(unknown)} is not among the features {listed(features)}"
                    + did_you_mean(unknown, features)
                )


def infer_columns(
    frame: pd.DataFrame | Sheet,
    *,
    id: str | None = None,
    time: str | None = None,
    action: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    group: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    static: Sequence[str] = (),
    contexts: Sequence[str] = (),
) -> TableColumns:
    """Find the columns that were not given, by the rules of this module.

    The names given are those of :class:`TableColumns`; static features need not be named among the features as well,
    and contexts are features only if they are.

    Raises:
        ValueError: a given column does not exist, or one that was not given cannot be told; the message names the
            option and the candidates.
    """
    sheet = frame if isinstance(frame, Sheet) else Sheet(frame)
    names = sheet.columns
    decided = (action,) if isinstance(action, str) else tuple(action or ())
    given = [name for name in (id, time, *decided, group, terminated, truncated) if name is not None]
    given += [*(features or ()), *static, *contexts]
    check_known(given, names)
    free = [name for name in names if name not in given]

    terminated = terminated or next((name for name in free if _is(name, "terminated")), None)
    truncated = truncated or next((name for name in free if _is(name, "truncated")), None)
    free = [name for name in free if name not in (terminated, truncated)]
    keys = [name for name in free if _is(name, f"{EPISODE_NAMES}|{PATIENT_NAMES}")]
    if id is None:
        id = _find_id(sheet, keys, free)
    keys = [name for name in keys if name != id]
    if group is None:
        group = _find_group(sheet, id, keys)
    free = [name for name in free if name != id and name not in keys]
    if time is None:
        time = _find_time(sheet, id, free)
    free = [name for name in free if name != time]
    _refuse_unread(sheet, id, time, 1 - _MOST)

    # The latest row of each id (all of them, if it is there twice).
    times, _ = sheet.times(time)
    last: BoolArray = np.asarray(times == pd.Series(times).groupby(sheet.codes(id)).transform("max"), dtype=np.bool_)
    # Share of the ids in which a column is empty on the last row and on no other (ids of one row do not count).
    codes, _ = pd.factorize(sheet.cells(id))
    known = codes >= 0
    several = np.bincount(codes[known]) > 1
    odd = {name: np.bincount(codes[known], (sheet.missing(name) != last)[known])[several] for name in free}
    ending = {name: float((rows == 0).mean()) if len(rows) else 0.0 for name, rows in odd.items()}
    decided = decided or (_find_action(sheet, free, ending),)
    free = [name for name in free if name not in decided]
    found = list(features or ())
    if features is None:
        doubts = {name: _why_no_feature(sheet, name, last, ending[name]) for name in free}
        found = [name for name in free if not doubts[name]]
        if len(found) < len(free) or not found:
            why = "; ".join(f"{name!r} {doubt}" for name, doubt in doubts.items() if doubt) or "no column is left"
            numeric = listed(found) or "none"
            raise ValueError(f"cannot tell which columns are features: {why}. Give --features (numbers: {numeric})")
    further = [name for name in static if name not in found]
    # What was found stands in the order of the table, what was given in the order given.
    observed = [*found, *further] if features else [name for name in names if name in (*found, *further)]
    return TableColumns(
        id, time, decided, tuple(observed), group, terminated, truncated, tuple(static), tuple(contexts)
    )


def _is(name: str, known: str) -> bool:
    return re.fullmatch(known, name.strip().lower().replace(" ", "_").replace("-", "_")) is not None


def _pairs(a: IntArray, b: IntArray) -> int:
    return len(np.unique(np.stack([a, b]), axis=1).T)


def _determines(a: IntArray, b: IntArray, most: float = 1.0) -> bool:
    # Nearly all: one stay under two patients is a fault of the data, which reading the table will name.
    ids = len(np.unique(a))
    return _pairs(a, b) - ids <= (1 - most) * ids


def _find_id(sheet: Sheet, keys: Sequence[str], free: Sequence[str]) -> str:
    codes = {name: sheet.codes(name) for name in keys}
    # A column that is different in every row names rows, not episodes.
    episodes = {name: code for name, code in codes.items() if len(np.unique(code)) < len(sheet)}
    finest = [a for a in episodes if all(_determines(episodes[a], episodes[b], _MOST) for b in episodes)]
    if finest:
        exact = {a: all(_determines(episodes[a], episodes[b]) for b in episodes) for a in finest}
        return min(finest, key=lambda a: (not _is(a, EPISODE_NAMES), not exact[a]))
    if len(episodes) > 1:
        why = f"neither of {listed(episodes)} has one value of each of the others"
    elif keys:
        why = f"{listed(keys)} is different in every row"
    else:
        repeated = [name for name in free if len(np.unique(sheet.codes(name))) < len(sheet)]
        why = f"no column has a well-known name; columns whose values repeat: {listed(repeated) or 'none'}"
    raise ValueError(f"cannot tell which column is the id of an episode: {why}. Give --id")


def _find_group(sheet: Sheet, id: str, keys: Sequence[str]) -> str | None:
    own = sheet.codes(id)
    if _is(id, PATIENT_NAMES):  # an episode of a patient does not own the patient
        keys = [name for name in keys if _is(name, PATIENT_NAMES)]
    holding = {name: sheet.codes(name) for name in keys if _determines(own, sheet.codes(name), _MOST)}
    coarsest = [a for a in holding if all(_determines(holding[b], holding[a]) for b in holding)]
    if holding and not coarsest:
        raise ValueError(f"cannot tell whom an episode belongs to: {listed(holding)} cross each other. Give --group")
    return min(coarsest, key=lambda name: not _is(name, PATIENT_NAMES), default=None)


def _find_time(sheet: Sheet, id: str, free: Sequence[str]) -> str:
    named = [name for name in free if _is(name, TIME_NAMES)]
    for name in named:
        _refuse_unread(sheet, id, name, 0.5)
    sheet = Sheet(sheet.frame[~sheet.frame.astype(str).duplicated()])  # a row that is there twice says nothing
    own = sheet.codes(id)

    def tells_apart(name: str) -> bool:
        values, faults = sheet.times(name)
        repeats = len(sheet) - _pairs(own, np.unique(values, return_inverse=True)[1].astype(np.int64))
        return repeats <= max(2, (1 - _MOST) * len(sheet)) and 2 * len(faults) <= len(sheet)

    fitting = [name for name in named if tells_apart(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        why = f"{listed(fitting)} all order the rows of an id"
    elif named:
        why = f"{listed(named)} does not tell the rows of one {id!r} apart (is that the episode?)"
    else:
        others = [name for name in free if tells_apart(name)]
        why = f"no column has a well-known name; columns that tell the rows of {id!r} apart: {listed(others) or 'none'}"
    raise ValueError(f"cannot tell which column is the time: {why}. Give --time")


def _refuse_unread(sheet: Sheet, id: str, time: str, share: float) -> None:
    """Faults of a time first, where there are many: what is told from the order of rows would be wrong."""
    faults = sheet.times(time)[1]
    if len(faults) > share * len(sheet):
        refuse(faults, sheet.texts(id), sheet.rows)


def _find_action(sheet: Sheet, free: Sequence[str], ending: dict[str, float]) -> str:
    fitting = [name for name in free if ending[name] >= _MOST and 1 <= sheet.distinct(name) <= MOST_ACTIONS]
    named = [name for name in free if _is(name, ACTION_NAMES)]
    both = [name for name in fitting if name in named]
    for candidates in (both, [] if both else fitting + named):
        if len(candidates) == 1:
            return candidates[0]
    if fitting or named:
        why = f"it could be {listed(dict.fromkeys(fitting + named))}"
    else:
        few = [
            f"{name} ({sheet.distinct(name)} values; empty on the last row only in {ending[name]:.0%} of ids)"
            for name in free
            if 2 <= sheet.distinct(name) <= MOST_ACTIONS
        ]
        why = "no column is empty on the last row of each id and only there; "
        why += f"columns of few values: {', '.join(few) or 'none'}"
    raise ValueError(f"cannot tell which column is the action: {why}. Give --action")


def _why_no_feature(sheet: Sheet, name: str, last: BoolArray, ending: float) -> str:
    """What speaks against a column as a feature; empty if nothing does."""
    values, bad = sheet.measured(name)
    known = ~np.isnan(values)
    # Up to one half: single texts among numbers are faults, which reading the table will point at cell by cell.
    if 2 * bad.sum() > bad.sum() + known.sum():
        return "is not a number"
    if not known.any():
        return "is empty"
    if _is(name, TIME_NAMES):
        return "has the name of a time"
    if ending >= _MOST:
        return "is empty on the last row of each id, like an action or a reward"
    # From 0 or 1 in any order: the rows of a table that was numbered may have been shuffled.
    counter = np.sort(values) if values[known].min() in (0, 1) else values
    if len(sheet) > 2 and np.isfinite(values).all() and (np.diff(counter) == 1).all():
        return "counts the rows"
    if np.isin(values[known], (0, 1)).all() and not values[~last & known].any() and values[last & known].any():
        return "is 0 except on last rows, like an end flag"
    return ""
