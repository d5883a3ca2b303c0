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
"""Why a reading is missing, if it is: see :attr:`TableRows.state`."""

MISSING = "missing"
"""The level of a context where its field is empty."""

_FLAGS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}


@dataclass(frozen=True)
class TableRows:
    """R rows of a table, parsed."""

    features: tuple[str, ...]
    ids: tuple[str, ...]
    """Names of the ids, in the order of texts, so that nothing depends on where rows stand in the file."""
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
    contexts: IntArray
    """``[R, H]`` index into the values of each context, -1 where the field is empty (or says :data:`MISSING`)."""
    context_values: tuple[tuple[str, ...], ...]
    """Of each context, the values that occur."""
    names: RowNames
    """What to call the rows in messages."""

    def take(self, index: IntArray | BoolArray) -> TableRows:
        """The chosen rows, in the order given; ids and names of actions stay as they are."""
        return replace(
            self,
            episode=self.episode[index],
            time=self.time[index],
            values=self.values[index],
            state=self.state[index],
            action=self.action[index],
            flags=self.flags[index],
            contexts=self.contexts[index],
            names=replace(self.names, numbers=self.names.numbers[index]),
        )

    def where(self, row: int) -> str:
        """The id and the name of a row, for a message."""
        return f"id {self.ids[self.episode[row]]!r}, {self.names[row]}"


def parse_rows(sheet: Sheet, columns: TableColumns) -> TableRows:
    """Read every used cell.

    Raises:
        ValueError: an id, owner or time is empty, a reading is no number or beyond all bounds, a flag is not 0 or 1,
            only some of several columns of the action are filled; one message names column, id and row of all such
            cells (the first ten of them).
    """
    names = sheet.rows
    own = _complete(sheet, columns.id)
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
            cells = sheet.cells(flag)
            told = [_FLAGS.get(str(cell).strip().lower(), -2) for cell in cells]
            flags[:, j] = np.where(sheet.missing(flag), -1, told)
            odd = np.flatnonzero(flags[:, j] == -2)
            faults += [BadCell(flag, int(i), f"{cells[i]!r} is not 0 or 1") for i in odd]
    empty = np.stack([sheet.missing(column) for column in columns.actions], axis=1)
    half = empty.any(axis=1) & ~empty.all(axis=1)
    faults += [
        BadCell(column, int(i), f"the action is missing, but not in column {columns.actions[empty[i].argmin()]!r}")
        for j, column in enumerate(columns.actions)
        for i in np.flatnonzero(half & empty[:, j])
    ]
    refuse(faults, own, names)

    groups: dict[str, str] = {}
    for row, owner in enumerate(own if columns.group is None else _complete(sheet, columns.group)):
        if groups.setdefault(own[row], owner) != owner:
            raise ValueError(
                f"column {columns.group!r}, id {own[row]!r}, {names[row]}: the id belongs to {owner!r} here, "
                f"but to {groups[own[row]]!r} in an earlier row"
            )
    ids = sorted(groups)
    place = {id: number for number, id in enumerate(ids)}
    action, action_values = _actions(sheet, columns.actions)
    contexts = [_values(sheet, column, MISSING) for column in columns.contexts]
    return TableRows(
        features=columns.features,
        ids=tuple(ids),
        groups=tuple(groups[id] for id in ids),
        episode=np.array([place[id] for id in own], dtype=np.int64),
        time=time,
        values=values,
        state=np.where(np.isnan(values), EMPTY, OBSERVED).astype(np.int64),
        action=action,
        action_values=action_values,
        flags=flags,
        contexts=np.array([codes for codes, _ in contexts], dtype=np.int64).reshape(len(contexts), len(sheet)).T,
        context_values=tuple(tuple(values) for _, values in contexts),
        names=names,
    )


def _complete(sheet: Sheet, column: str) -> list[str]:
    found = [text for text in sheet.texts(column) if text is not None]
    if len(found) < len(sheet):
        more = f" and in {len(sheet) - len(found) - 1} more rows" if len(found) < len(sheet) - 1 else ""
        first = sheet.rows[sheet.texts(column).index(None)]
        raise ValueError(f"column {column!r} is empty in {first}{more}: every row needs one")
    return found


def _actions(sheet: Sheet, columns: Sequence[str]) -> tuple[IntArray, tuple[tuple[str, ...], ...]]:
    """Codes ``[R]``, -1 where empty, and the values of each column; sorted by the columns, one after the other."""
    found = [_values(sheet, column) for column in columns]
    codes, values = np.stack([code for code, _ in found], axis=1), [names for _, names in found]
    taken = (codes >= 0).all(axis=1)
    occurring, inverse = np.unique(codes[taken], axis=0, return_inverse=True)
    action = np.full(len(codes), -1, dtype=np.int64)
    action[taken] = inverse.reshape(-1)
    return action, tuple(tuple(names[code] for names, code in zip(values, row, strict=True)) for row in occurring)


def _values(sheet: Sheet, column: str, empty: str | None = None) -> tuple[IntArray, list[str]]:
    """Codes ``[R]`` of a column, -1 where a cell is missing or says ``empty``; its values, by size if all are numbers.

    "1.0" is how pandas writes a 1 in a column with gaps; "01" is a value of its own.
    """
    found = [
        None if gap else re.sub(r"^([+-]?\d+)\.0*$", r"\1", str(text).strip())
        for text, gap in zip(sheet.texts(column), sheet.missing(column), strict=True)
    ]
    names = sorted({name for name in found if name is not None and name != empty})
    if all(number(name) is not None for name in names):
        names.sort(key=lambda name: number(name) or 0.0)
    place = {name: code for code, name in enumerate(names)}
    return np.array([-1 if name is None else place.get(name, -1) for name in found], dtype=np.int64), names


def check_static(rows: TableRows, static: Sequence[str]) -> None:
    """A ValueError that names column, id, row and both values where a static feature changes, for sorted rows."""
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


def limit_ranges(rows: TableRows, ranges: dict[str, tuple[float, float]]) -> TableRows:
    """Readings outside their plausible range become missing; they are never moved to its bounds."""
    values, state = rows.values.copy(), rows.state.copy()
    for name, (low, high) in ranges.items():
        j = rows.features.index(name)
        state[values[:, j] < low, j] = BELOW
        state[values[:, j] > high, j] = ABOVE
    values[state != OBSERVED] = np.nan
    return replace(rows, values=values, state=state)


def sort_rows(rows: TableRows) -> tuple[TableRows, int, int]:
    """Rows by episode, then time, then place in the table; how many ids stood apart, and how many out of order."""
    changes = np.flatnonzero(np.diff(rows.episode) != 0) + 1
    runs = np.bincount(rows.episode[np.concatenate([[0], changes])], minlength=len(rows.ids))
    together = np.argsort(rows.episode, kind="stable")
    episode, time = rows.episode[together], rows.time[together]
    backwards = (np.diff(episode) == 0) & (time[1:] < time[:-1])
    resorted = len(np.unique(episode[1:][backwards]))
    order = np.lexsort((np.arange(len(rows.episode)), rows.time, rows.episode))
    return rows.take(order), int((runs > 1).sum()), resorted


def merge_duplicates(
    rows: TableRows, rule: Duplicates, never_average: Sequence[str] = ()
) -> tuple[TableRows, int, int]:
    """One row per (id, time), for sorted rows; how many were the same as another, and how many merged by the rule.

    Features in ``never_average`` (mixed units) have no mean.

    Raises:
        ValueError: rows differ and the rule does not settle it; the message lists the ids.
    """
    key = pd.DataFrame({"episode": rows.episode, "time": rows.time, "action": rows.action})
    blocks = (rows.flags, rows.contexts, rows.values, rows.state)
    key = pd.concat([key, *map(pd.DataFrame, blocks)], axis=1)
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


def _average(rows: TableRows, starts: IntArray, later: BoolArray, never_average: Sequence[str]) -> TableRows:
    run = np.cumsum(~later) - 1
    for row in np.flatnonzero(later):
        first = starts[run[row]]
        told = np.column_stack([rows.action, rows.flags, rows.contexts])[[first, row]]
        if (told[0] != told[1]).any():
            raise ValueError(
                f"{rows.where(int(row))}: the action, the end or what habits depend on differs from that of "
                f"{rows.names[int(first)]}, which has the same id and time; they have no mean. Use --duplicates first "
                "or last"
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
    # From the smallest on: a sum must not depend on where its rows stand in the file.
    rising = [np.lexsort((column, run)) for column in rows.values.T]
    readings = np.take_along_axis(np.where(known, rows.values, 0.0), np.stack(rising, axis=1), axis=0)
    total = np.add.reduceat(readings, starts, axis=0)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    first_rows = rows.take(starts)
    why = np.maximum.reduceat(rows.state, starts, axis=0)
    return replace(first_rows, values=mean, state=np.where(count > 0, OBSERVED, why))


def blanks_apart(ids: Sequence[str]) -> list[str]:
    """A warning if ids differ in surrounding blanks only: they stay apart, but may be one and the same."""
    plain: dict[str, set[str]] = {}
    for name in ids:
        plain.setdefault(name.strip(), set()).add(name)
    twins = sorted(name for names in plain.values() if len(names) > 1 for name in names)
    return [f"ids that differ in surrounding blanks only are different episodes: {listed(twins)}"] if twins else []
