"""Telling the columns of a table where that needs no guess; where it would, the error says which option to give.

The rules, in order. A name is compared without regard to case, and with blanks and hyphens as underscores.

* End flags are the columns named ``terminated`` and ``truncated``.
* The id is a column with a well-known name (:data:`EPISODE_NAMES`, :data:`PATIENT_NAMES`) each of whose values goes
  with one value of every other such column: a stay has one patient, while a patient may have several stays.
* The group is the coarsest of the other well-known ones.
* The time is a column with a well-known name (:data:`TIME_NAMES`) that tells the rows of an id apart.
* The action is the column of few values that is empty on the last row of the ids and on no other row, since what
  would follow that row was not watched; or, if there is none, the column named ``action`` or ``treatment``.
* Static features are never found, only given.
* The features are all other columns, if all are numbers and none looks like something else: a key, a counter of rows,
  a second time, an end flag of another name, or a reward that is empty where the action is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cirl_gym.table_cells import empties, listed, numbers, texts, times
from cirl_gym.table_file import check_names
from cirl_gym.table_schema import TableColumns, check_known
from cirl_gym.types import BoolArray, IntArray

EPISODE_NAMES = (
    "id|stay|episode|trajectory|patientunitstayid|(stay|icustay|episode|trajectory|encounter|admission|hadm|visit)_id"
)
PATIENT_NAMES = "(patient|subject|person)(_id)?|patientid|uniquepid"
TIME_NAMES = "t|time|time_?step|step|timestamp|bin|hours?|days?|week|month|visit"
ACTION_NAMES = "action|treatment"
MOST_ACTIONS = 20
"""A column with more values than this is taken for an action only if the user says so."""

_MOST = 0.95  # share of ids that must follow a rule; the exceptions are faults, which reading the table will name


def infer_columns(
    frame: pd.DataFrame,
    *,
    id: str | None = None,
    time: str | None = None,
    action: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    group: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    static: Sequence[str] = (),
) -> TableColumns:
    """Find the columns that were not given, by the rules of this module.

    Args:
        frame: the table, as :func:`~cirl_gym.table_file.read_table` returns it or any other.
        id: the episode's column; likewise the other names, see :class:`~cirl_gym.table_schema.TableColumns`.
        time: when.
        action: what was decided, one column or several.
        features: what was observed.
        group: whom an episode belongs to.
        terminated: the flag of an end of the process.
        truncated: the flag of an end of watching.
        static: features that do not change within an episode; they need not be named among the features as well.

    Raises:
        ValueError: a given column does not exist, or one that was not given cannot be told; the message names the
            option and the candidates.
    """
    names = check_names(list(frame.columns), "the table")
    decided = (action,) if isinstance(action, str) else tuple(action or ())
    given = [name for name in (id, time, *decided, group, terminated, truncated) if name is not None]
    given += [*(features or ()), *static]
    check_known(given, names)
    free = [name for name in names if name not in given]

    terminated = terminated or next((name for name in free if _is(name, "terminated")), None)
    truncated = truncated or next((name for name in free if _is(name, "truncated")), None)
    free = [name for name in free if name not in (terminated, truncated)]
    keys = [name for name in free if _is(name, f"{EPISODE_NAMES}|{PATIENT_NAMES}")]
    if id is None:
        id = _find_id(frame, keys, free)
    keys = [name for name in keys if name != id]
    if group is None:
        group = _find_group(frame, id, keys)
    free = [name for name in free if name != id and name not in keys]
    if time is None:
        time = _find_time(frame, id, free)
    free = [name for name in free if name != time]

    last = _last_rows(frame, id, time)
    ending = {name: _share_ending(frame[name], frame[id], last) for name in free}
    decided = decided or (_find_action(frame, free, ending),)
    free = [name for name in free if name not in decided]
    found = _find_features(frame, free, last, ending) if features is None else list(features)
    further = [name for name in static if name not in found]
    # What was found stands in the order of the table, what was given in the order given.
    observed = [*found, *further] if features else [name for name in names if name in (*found, *further)]
    return TableColumns(id, time, decided, tuple(observed), group, terminated, truncated, tuple(static))


def _is(name: str, known: str) -> bool:
    return re.fullmatch(known, name.strip().lower().replace(" ", "_").replace("-", "_")) is not None


def _codes(frame: pd.DataFrame, name: str) -> IntArray:
    """``[R]`` equal numbers where the texts of a column are equal; empty cells are -1."""
    codes, _ = pd.factorize(np.array(texts(frame[name], name), dtype=object))
    return np.asarray(codes, dtype=np.int64)


def _pairs(a: IntArray, b: IntArray) -> int:
    return len(np.unique(np.stack([a, b]), axis=1).T)


def _determines(a: IntArray, b: IntArray) -> bool:
    return _pairs(a, b) == len(np.unique(a))


def _nearly_determines(a: IntArray, b: IntArray) -> bool:
    # One stay under two patients is a fault of the data, which reading the table will name.
    return _pairs(a, b) - len(np.unique(a)) <= (1 - _MOST) * len(np.unique(a))


def _find_id(frame: pd.DataFrame, keys: Sequence[str], free: Sequence[str]) -> str:
    codes = {name: _codes(frame, name) for name in keys}
    # A column that is different in every row names rows, not episodes.
    episodes = {name: code for name, code in codes.items() if len(np.unique(code)) < len(frame)}
    finest = [a for a in episodes if all(_nearly_determines(episodes[a], episodes[b]) for b in episodes)]
    finest.sort(
        key=lambda a: (not _is(a, EPISODE_NAMES), not all(_determines(episodes[a], episodes[b]) for b in episodes))
    )
    if finest:
        return finest[0]
    if len(episodes) > 1:
        why = f"neither of {listed(episodes)} has one value of each of the others"
    elif keys:
        why = f"{listed(keys)} is different in every row"
    else:
        repeated = [name for name in free if len(np.unique(_codes(frame, name))) < len(frame)]
        why = f"no column has a well-known name; columns whose values repeat: {listed(repeated) or 'none'}"
    raise ValueError(f"cannot tell which column is the id of an episode: {why}. Give --id")


def _find_group(frame: pd.DataFrame, id: str, keys: Sequence[str]) -> str | None:
    own = _codes(frame, id)
    if _is(id, PATIENT_NAMES):  # an episode of a patient does not own the patient
        keys = [name for name in keys if _is(name, PATIENT_NAMES)]
    codes = {name: _codes(frame, name) for name in keys}
    holding = {name: code for name, code in codes.items() if _nearly_determines(own, code)}
    coarsest = [a for a in holding if all(_determines(holding[b], holding[a]) for b in holding)]
    coarsest.sort(key=lambda name: not _is(name, PATIENT_NAMES))
    if coarsest:
        return coarsest[0]
    if holding:
        raise ValueError(f"cannot tell whom an episode belongs to: {listed(holding)} cross each other. Give --group")
    return None


def _find_time(frame: pd.DataFrame, id: str, free: Sequence[str]) -> str:
    frame = frame[~frame.astype(str).duplicated()]  # a row that is there twice says nothing
    own = _codes(frame, id)

    def tells_apart(name: str) -> bool:
        values, faults = times(frame[name], name)
        repeats = len(frame) - _pairs(own, np.unique(values, return_inverse=True)[1].astype(np.int64))
        return repeats <= max(2, (1 - _MOST) * len(frame)) and 2 * len(faults) <= len(frame)

    named = [name for name in free if _is(name, TIME_NAMES)]
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


def _last_rows(frame: pd.DataFrame, id: str, time: str) -> BoolArray:
    """``[R]`` True on the latest row of each id (on all of them, if it is there twice)."""
    own = _codes(frame, id)
    values, _ = times(frame[time], time)
    latest = pd.Series(values).groupby(own).transform("max").to_numpy()
    last: BoolArray = np.asarray(values == latest, dtype=np.bool_)
    return last


def _share_ending(column: pd.Series, ids: pd.Series, last: BoolArray) -> float:
    """Share of the ids in which a column is empty on the last row and on no other (ids of one row do not count)."""
    follows = pd.Series(empties(column) == last).groupby(ids.astype(object).to_numpy()).agg(["all", "size"])
    several = follows[follows["size"] > 1]
    return float(several["all"].mean()) if len(several) else 0.0


def _values(frame: pd.DataFrame, name: str) -> int:
    return int(frame[name][~empties(frame[name])].nunique())


def _find_action(frame: pd.DataFrame, free: Sequence[str], ending: dict[str, float]) -> str:
    fitting = [name for name in free if ending[name] >= _MOST and 1 <= _values(frame, name) <= MOST_ACTIONS]
    named = [name for name in free if _is(name, ACTION_NAMES)]
    both = [name for name in fitting if name in named]
    for candidates in (both, [] if both else fitting + named):
        if len(candidates) == 1:
            return candidates[0]
    if fitting or named:
        why = f"it could be {listed(dict.fromkeys(fitting + named))}"
    else:
        few = [
            f"{name} ({_values(frame, name)} values; empty on the last row only in {ending[name]:.0%} of ids)"
            for name in free
            if 2 <= _values(frame, name) <= MOST_ACTIONS
        ]
        why = "no column is empty on the last row of each id and only there; "
        why += f"columns of few values: {', '.join(few) or 'none'}"
    raise ValueError(f"cannot tell which column is the action: {why}. Give --action")


def _find_features(frame: pd.DataFrame, free: Sequence[str], last: BoolArray, ending: dict[str, float]) -> list[str]:
    odd, good = [], []
    for name in free:
        why = _why_no_feature(frame, name, last, ending[name])
        if why:
            odd.append(f"{name!r} {why}")
        else:
            good.append(name)
    if odd or not good:
        why = "; ".join(odd) or "no column is left"
        numeric = listed(good) or "none"
        raise ValueError(f"cannot tell which columns are features: {why}. Give --features (numbers: {numeric})")
    return good


def _why_no_feature(frame: pd.DataFrame, name: str, last: BoolArray, ending: float) -> str:
    """What speaks against a column as a feature; empty if nothing does."""
    values, bad = numbers(frame[name])
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
    if len(frame) > 2 and (np.diff(values) == 1).all():
        return "counts the rows"
    if np.isin(values[known], (0, 1)).all() and not values[~last & known].any() and values[last & known].any():
        return "is 0 except on last rows, like an end flag"
    return ""
