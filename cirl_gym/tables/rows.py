"""The rows of a table as arrays: read cell by cell, duplicates merged, sorted by episode and time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cirl_gym.tables.columns import Duplicates, TableColumns
from cirl_gym.tables.sheet import BadCell, RowNames, Sheet, listed, number, refuse
from cirl_gym.types import BoolArray, FloatArray, IntArray

OBSERVED, EMPTY, BELOW, ABOVE = 0, 1, 2, 3
"""Why a reading is missing, if it is: see :attr:`Rows.state`."""

_FLAGS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}


@dataclass(frozen=True)
class Rows:
    """R rows of a table, parsed."""

    features: tuple[str, ...]
    ids: tuple[str, ...]
    """Names of the ids, in the order of their first rows."""
    groups: tuple[str, ...]
    """``[len(ids)]`` owner of each id."""
    episode: IntArray
    """``[R]`` index into ids."""
    time: FloatArray | IntArray
    """``[R]`` comparable times; microseconds if they were ISO times."""
    values: FloatArray
    """``[R, d]`` readings, NaN where missing."""
    state: IntArray
    """``[R, d]`` OBSERVED, or why the reading is missing: EMPTY, BELOW or ABOVE its plausible range."""
    action: IntArray
    """``[R]`` index into action_values, -1 where there is none."""
    action_values: tuple[tuple[str, ...], ...]
    """Of every action the value of each column of the action."""
    flags: IntArray
    """``[R, 2]`` terminated, truncated; -1 where the field is empty or the table has no such column."""
    names: RowNames
    """What to call the rows in messages."""

    def take(self, index: IntArray | BoolArray) -> Rows:
        """The chosen rows, in the order given; ids and names of actions stay as they are."""
        return replace(
            self,
            episode=self.episode[index],
            time=self.time[index],
            values=self.values[index],
            state=self.state[index],
            action=self.action[index],
            flags=self.flags[index],
            names=replace(self.names, numbers=self.names.numbers[index]),
        )

    def where(self, row: int) -> str:
        """The id and the name of a row, for a message."""
        return f"id {self.ids[self.episode[row]]!r}, {self.names[row]}"


def parse_rows(sheet: Sheet, columns: TableColumns) -> Rows:
    """Read every used cell.

    Raises:
        ValueError: an id, owner or time is empty, a reading is no number or beyond all bounds, a flag is not 0 or 1,
            only some of several columns of the action are filled; one message names column, id and row of all such
            cells (the first ten of them).
    """
    names = sheet.rows
    own = _complete(sheet, columns.id, names)
    faults: list[BadCell] = []
    time, bad = sheet.times(columns.time)
    faults += bad
    values = np.empty((len(sheet), len(columns.features)))
    for j, feature in enumerate(columns.features):
        values[:, j], bad = sheet.readings(feature)
        faults += bad
    flags = np.full((len(sheet), 2), -1, dtype=np.int64)
    for j, flag in enumerate((columns.terminated, columns.truncated)):
        if flag is not None:
            flags[:, j], bad = _flags(sheet, flag)
            faults += bad
    faults += _half_actions(sheet, columns.actions)
    refuse(faults, own, names)

    codes, ids = pd.factorize(np.array(own, dtype=object))
    episode = np.asarray(codes, dtype=np.int64)
    owners = own if columns.group is None else _complete(sheet, columns.group, names)
    action, action_values = _actions(sheet, columns.actions)
    return Rows(
        features=columns.features,
        ids=tuple(ids),
        groups=_owners(episode, tuple(ids), owners, columns.group or columns.id, names),
        episode=episode,
        time=time,
        values=values,
        state=np.where(np.isnan(values), EMPTY, OBSERVED).astype(np.int64),
        action=action,
        action_values=action_values,
        flags=flags,
        names=names,
    )


def _complete(sheet: Sheet, column: str, names: RowNames) -> list[str]:
    found = sheet.texts(column)
    empty = [i for i, text in enumerate(found) if text is None]
    if empty:
        more = f" and in {len(empty) - 1} more rows" if len(empty) > 1 else ""
        raise ValueError(f"column {column!r} is empty in {names[empty[0]]}{more}: every row needs one")
    return [str(text) for text in found]


def _owners(
    episode: IntArray, ids: tuple[str, ...], owners: Sequence[str], column: str, names: RowNames
) -> tuple[str, ...]:
    first: dict[int, str] = {}
    for row, (code, owner) in enumerate(zip(episode.tolist(), owners, strict=True)):
        if first.setdefault(code, owner) != owner:
            raise ValueError(
                f"column {column!r}, id {ids[code]!r}, {names[row]}: the id belongs to {owner!r} here, "
                f"but to {first[code]!r} in an earlier row"
            )
    return tuple(first[code] for code in range(len(ids)))


def _flags(sheet: Sheet, column: str) -> tuple[IntArray, list[BadCell]]:
    missing = sheet.missing(column)
    cells = sheet.cells(column)
    found = [-1 if gap else _FLAGS.get(str(c).strip().lower(), -2) for c, gap in zip(cells, missing, strict=True)]
    flags = np.array(found, dtype=np.int64)
    return flags, [BadCell(column, int(i), f"{cells[i]!r} is not 0 or 1") for i in np.flatnonzero(flags == -2)]


def _half_actions(sheet: Sheet, columns: Sequence[str]) -> list[BadCell]:
    """The empty cells of rows in which other columns of the action are filled."""
    missing = np.stack([sheet.missing(column) for column in columns], axis=1)
    half = missing.any(axis=1) & ~missing.all(axis=1)
    return [
        BadCell(column, int(i), f"the action is missing, but not in column {columns[int(missing[i].argmin())]!r}")
        for j, column in enumerate(columns)
        for i in np.flatnonzero(half & missing[:, j])
    ]


def _actions(sheet: Sheet, columns: Sequence[str]) -> tuple[IntArray, tuple[tuple[str, ...], ...]]:
    """Codes ``[R]``, -1 where empty, and the values of each column; sorted by the columns, one after the other."""
    parts = [_choices(sheet, column) for column in columns]
    codes = np.stack([part[0] for part in parts], axis=1)
    taken = (codes >= 0).all(axis=1)
    occurring, place = np.unique(codes[taken], axis=0, return_inverse=True)
    action = np.full(len(codes), -1, dtype=np.int64)
    action[taken] = place.reshape(-1)
    return action, tuple(
        tuple(part[1][code] for part, code in zip(parts, row, strict=True)) for row in occurring.tolist()
    )


def _choices(sheet: Sheet, column: str) -> tuple[IntArray, tuple[str, ...]]:
    """Codes ``[R]``, -1 where empty, and the names, sorted: by value if all are numbers, else as texts."""
    missing = sheet.missing(column)
    found = [
        # "1.0" is how pandas writes a 1 in a column with gaps; "01" is a code of its own.
        None if gap else re.sub(r"^([+-]?\d+)\.0*$", r"\1", str(text).strip())
        for text, gap in zip(sheet.texts(column), missing, strict=True)
    ]
    names = sorted({name for name in found if name is not None})
    values = {name: number(name) for name in names}
    if None not in values.values():
        names.sort(key=lambda name: values[name] or 0.0)
    index = {name: code for code, name in enumerate(names)}
    return np.array([-1 if name is None else index[name] for name in found], dtype=np.int64), tuple(names)


def action_names(columns: Sequence[str], values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What to call actions: the value itself, or with several columns "antibiotic=0, ventilation=1"."""
    if len(columns) == 1:
        return tuple(value for (value,) in values)
    return tuple(", ".join(map("=".join, zip(columns, row, strict=True))) for row in values)


def check_static(rows: Rows, static: Sequence[str]) -> None:
    """Check that static features do not change, for sorted rows.

    Raises:
        ValueError: one does; the message names column, id, row and both values.
    """
    for name in static:
        column = rows.values[:, rows.features.index(name)]
        known = np.flatnonzero(~np.isnan(column))
        same = np.diff(rows.episode[known]) == 0
        changed = np.flatnonzero(same & (np.diff(column[known]) != 0))
        if len(changed):
            before, after = known[changed[0]], known[changed[0] + 1]
            raise ValueError(
                f"column {name!r}, {rows.where(int(after))}: {column[after]:g} here, but {column[before]:g} in "
                f"{rows.names[int(before)]}: a static feature must be constant within an episode (--static)"
            )


def limit_ranges(rows: Rows, ranges: dict[str, tuple[float, float]]) -> Rows:
    """Readings outside their plausible range become missing; they are never moved to its bounds."""
    values, state = rows.values.copy(), rows.state.copy()
    for name, (low, high) in ranges.items():
        j = rows.features.index(name)
        state[values[:, j] < low, j] = BELOW
        state[values[:, j] > high, j] = ABOVE
    values[state != OBSERVED] = np.nan
    return replace(rows, values=values, state=state)


def sort_rows(rows: Rows) -> tuple[Rows, int, int]:
    """Rows by episode, then time, then place in the table; how many ids stood apart, and how many out of order."""
    changes = np.flatnonzero(np.diff(rows.episode) != 0) + 1
    runs = np.bincount(rows.episode[np.concatenate([[0], changes])], minlength=len(rows.ids))
    together = np.argsort(rows.episode, kind="stable")
    episode, time = rows.episode[together], rows.time[together]
    backwards = (np.diff(episode) == 0) & (time[1:] < time[:-1])
    resorted = len(np.unique(episode[1:][backwards]))
    order = np.lexsort((np.arange(len(rows.episode)), rows.time, rows.episode))
    return rows.take(order), int((runs > 1).sum()), resorted


def merge_duplicates(rows: Rows, rule: Duplicates, never_average: Sequence[str] = ()) -> tuple[Rows, int, int]:
    """One row per (id, time), for sorted rows.

    Args:
        rows: sorted.
        rule: what to do with rows of one (id, time) that differ.
        never_average: features whose mean would mean nothing (mixed units).

    Returns:
        The rows, how many were dropped as identical to another, and how many were merged by the rule.

    Raises:
        ValueError: rows differ and the rule does not settle it; the message lists the ids.
    """
    key = pd.DataFrame({"episode": rows.episode, "time": rows.time, "action": rows.action})
    key = pd.concat([key, pd.DataFrame(rows.flags), pd.DataFrame(rows.values), pd.DataFrame(rows.state)], axis=1)
    same = key.set_axis(range(key.shape[1]), axis=1).duplicated(keep="last" if rule == "last" else "first").to_numpy()
    rows = rows.take(~same)
    later = np.concatenate([[False], (np.diff(rows.episode) == 0) & (rows.time[1:] == rows.time[:-1])])
    if not later.any():
        return rows, int(same.sum()), 0
    starts = np.flatnonzero(~later)
    if rule == "error":
        where = [rows.where(int(i)) for i in np.flatnonzero(later)]
        raise ValueError(
            f"{len(where)} rows have the id and time of another row and differ from it: {'; '.join(where[:10])}"
            f"{' and more' if len(where) > 10 else ''}. Say which to keep (--duplicates first, last or mean), "
            "or name a column that tells them apart (--id, --time)"
        )
    if rule == "mean":
        merged = _average(rows, starts, later, never_average)
    else:
        merged = rows.take(starts if rule == "first" else np.append(starts[1:], len(later)) - 1)
    return merged, int(same.sum()), int(later.sum())


def _average(rows: Rows, starts: IntArray, later: BoolArray, never_average: Sequence[str]) -> Rows:
    run = np.cumsum(~later) - 1
    for row in np.flatnonzero(later):
        first = starts[run[row]]
        if rows.action[row] != rows.action[first] or (rows.flags[row] != rows.flags[first]).any():
            raise ValueError(
                f"{rows.where(int(row))}: the action or the end differs from that of {rows.names[int(first)]}, which "
                "has the same id and time; they have no mean. Use --duplicates first or last"
            )
    known = ~np.isnan(rows.values)
    for name in never_average:
        j = rows.features.index(name)
        low = np.minimum.reduceat(np.where(known[:, j], rows.values[:, j], np.inf), starts)
        high = np.maximum.reduceat(np.where(known[:, j], rows.values[:, j], -np.inf), starts)
        if (low < high).any():
            where = rows.where(int(starts[np.flatnonzero(low < high)[0]]))
            raise ValueError(f"column {name!r}, {where}: readings in mixed units are not averaged")
    count = np.add.reduceat(known, starts, axis=0, dtype=np.int64)
    total = np.add.reduceat(np.where(known, rows.values, 0.0), starts, axis=0)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    first_rows = rows.take(starts)
    return replace(first_rows, values=mean, state=np.where(count > 0, OBSERVED, first_rows.state))


def blanks_apart(ids: Sequence[str]) -> list[str]:
    """A warning if ids differ in surrounding blanks only: they stay apart, but may be one and the same."""
    plain: dict[str, set[str]] = {}
    for name in ids:
        plain.setdefault(name.strip(), set()).add(name)
    twins = sorted(name for names in plain.values() if len(names) > 1 for name in names)
    return [f"ids that differ in surrounding blanks only are different episodes: {listed(twins)}"] if twins else []
