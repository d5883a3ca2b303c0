"""The rows of a table as arrays: read cell by cell, duplicates merged, sorted by episode and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from cirl_gym.tables.cells import moment, number, value_of
from cirl_gym.tables.columns import Duplicates, TableColumns, TableOptions
from cirl_gym.tables.sheet import BadCell, BadRows, RowNames, Sheet, refuse
from cirl_gym.tables.spellings import is_no_id, one_action, one_id
from cirl_gym.types import BoolArray, FloatArray, IntArray

OBSERVED, EMPTY, BELOW, ABOVE = 0, 1, 2, 3
"""Why a reading is missing, if it is: see :attr:`TableRows.state`."""

MISSING = "missing"
"""The level of a context where its field is empty."""

_SHOWN = 20
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
    iso: bool
    """Whether they were ISO times or durations, and no numbers."""
    values: FloatArray
    """``[R, d]`` readings, NaN where missing."""
    state: npt.NDArray[np.int8]
    """``[R, d]`` OBSERVED, or why the reading is missing: EMPTY, BELOW or ABOVE its plausible range."""
    action: IntArray
    """``[R]`` index into action_values, -1 where there is none."""
    action_values: tuple[tuple[str, ...], ...]
    """Of every action the value of each column of the action."""
    stated: bool
    """Whether the actions are those that were stated, also if one is never taken."""
    flags: IntArray
    """``[R, 2]`` terminated, truncated; -1 where the field is empty or the table has no such column."""
    contexts: IntArray
    """``[R, H]`` index into the values of each context, -1 where the field is empty (or says :data:`MISSING`)."""
    context_values: tuple[tuple[str, ...], ...]
    """Of each context, the values that occur."""
    names: RowNames
    """What to call the rows in messages."""
    position: IntArray
    """``[R]`` place in the table, from 0."""
    repairs: tuple[str, ...]
    """What was read as something else than it was written, in words with counts."""

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
            position=self.position[index],
        )

    def where(self, row: int) -> str:
        """The id and the name of a row, for a message."""
        return f"id {self.ids[self.episode[row]]!r}, {self.names[row]}"

    def span(self, time: float) -> str:
        """A length of time in words: "7 days 12:00:00" of ISO times, else the number."""
        return str(timedelta(microseconds=time)) if self.iso else f"{time:g}"


def parse_rows(sheet: Sheet, columns: TableColumns, options: TableOptions | None = None) -> TableRows:
    """Read every used cell.

    Raises:
        BadRows: an id, owner or time is empty, a reading is no number or beyond all bounds, a flag is not 0 or 1, only
            some of several columns of the action are filled, an action is not among those stated, or an id has two
            owners; one message names column, id and row of all such cells (the first twenty of them).
    """
    options = options or TableOptions()
    names, repairs = sheet.rows, list[str]()
    own = _complete(sheet, columns.id, options, repairs)
    owner = own if columns.group is None else _complete(sheet, columns.group, options, repairs)
    time, faults = sheet.times(columns.time)
    faults = list(faults)
    values = np.empty((len(sheet), len(columns.features)))
    for j, feature in enumerate(columns.features):
        values[:, j], bad = _readings(sheet, feature, options.missing_values, repairs)
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
    stated = _stated(sheet, columns.actions, options.actions)
    action, action_values, unknown = _actions(sheet, columns.actions, stated, options.as_written, repairs)
    faults += unknown
    groups: dict[str, str] = {}
    for row, (id, patient) in enumerate(zip(own, owner, strict=True)):
        if groups.setdefault(id, patient) != patient:
            why = f"the id belongs to {patient!r} here, but to {groups[id]!r} in an earlier row"
            faults.append(BadCell(str(columns.group), row, why))
    refuse(faults, own, names)

    ids = sorted(groups)
    place = {id: number for number, id in enumerate(ids)}
    contexts = [_values(sheet, column, options.as_written, repairs, empty=MISSING) for column in columns.contexts]
    return TableRows(
        features=columns.features,
        ids=tuple(ids),
        groups=tuple(groups[id] for id in ids),
        episode=np.array([place[id] for id in own], dtype=np.int64),
        time=time,
        iso=moment(sheet.cells(columns.time)[0]) is not None,
        values=values,
        state=np.where(np.isnan(values), EMPTY, OBSERVED).astype(np.int8),
        action=action,
        action_values=action_values,
        stated=bool(stated),
        flags=flags,
        contexts=np.array([codes for codes, _ in contexts], dtype=np.int64).reshape(len(contexts), len(sheet)).T,
        context_values=tuple(tuple(values) for _, values in contexts),
        names=names,
        position=np.arange(len(sheet)),
        repairs=tuple(repairs),
    )


def refuse_rows(bad: Sequence[tuple[str, int]]) -> None:
    """One error that says what is wrong with the first of the rows, if there are any.

    Raises:
        BadRows: there are.
    """
    if not bad:
        return
    shown = [text for text, _ in bad[:_SHOWN]]
    rest = f"\n  ... and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    several = f"{len(bad)} rows cannot be used:\n  " + "\n  ".join(shown) + rest
    raise BadRows(shown[0] if len(bad) == 1 else several, [position for _, position in bad])


def _complete(sheet: Sheet, column: str, options: TableOptions, repairs: list[str]) -> list[str]:
    """Ids or owners ``[R]``; what stands for a missing one is no id, unless texts are taken as they are written."""
    cells = sheet.texts(column)
    gaps = [cell is None or (not options.as_written and is_no_id(cell)) for cell in cells]
    if any(gaps):
        rows = [row for row, gap in enumerate(gaps) if gap]
        word = cells[rows[0]]
        said = "is empty" if word is None else f"is {word!r}, which stands for a missing id,"
        where = f"{', '.join(sheet.rows[row] for row in rows[:5])}{' and more' if len(rows) > 5 else ''}"
        hint = "" if word is None else " (--as-written takes it for an id)"
        raise BadRows(
            f"column {column!r} {said} in {where} ({len(rows)} of {len(cells)} rows): every row needs one{hint}", rows
        )
    found, told = one_id(column, cells, options.as_written)
    repairs += told
    return [str(text) for text in found]


def _readings(
    sheet: Sheet, feature: str, missing: Sequence[str], repairs: list[str]
) -> tuple[FloatArray, list[BadCell]]:
    """Readings ``[R]`` of a feature and its bad cells, those of ``missing`` taken out with a count."""
    values, bad = sheet.readings(feature)
    if not missing:
        return values, bad
    values, words = values.copy(), {value_of(text) for text in missing}
    gone = np.isin(values, [word for word in words if not isinstance(word, str)])
    cells = sheet.cells(feature)
    named = {cell.position for cell in bad if value_of(str(cells[cell.position])) in words}
    count = int(gone.sum()) + len(named - set(np.flatnonzero(gone).tolist()))
    if count:
        repairs.append(f"column {feature!r}: {count} cells read as missing (--missing-values {' '.join(missing)})")
    values[gone] = np.nan
    return values, [cell for cell in bad if cell.position not in named and not gone[cell.position]]


def _stated(sheet: Sheet, columns: Sequence[str], actions: Sequence[str]) -> list[str]:
    """The actions that the user or the column's categories state, in their order; none where nothing does."""
    if actions and len(columns) > 1:
        raise ValueError(f"--actions states the values of one column, but the action has {len(columns)}: {columns}")
    kind = sheet.frame[columns[0]].dtype
    if actions or len(columns) > 1 or not isinstance(kind, pd.CategoricalDtype):
        return list(actions)
    return [text for text in Sheet(pd.DataFrame({"of": kind.categories})).texts("of") if text is not None]


def _actions(
    sheet: Sheet, columns: Sequence[str], stated: Sequence[str], as_written: bool, repairs: list[str]
) -> tuple[IntArray, tuple[tuple[str, ...], ...], list[BadCell]]:
    """Codes ``[R]``, -1 where empty, and the values of each column, sorted by the columns, one after the other.

    Where actions are stated, these are all of them, in their order; other cells are bad.
    """
    if stated:
        codes, values = _values(sheet, columns[0], as_written, repairs, stated=stated)
        cells, rows = sheet.texts(columns[0]), np.flatnonzero((codes < 0) & ~sheet.missing(columns[0]))
        why = f"is not among the actions stated, {', '.join(values)} (--actions)"
        return (
            codes,
            tuple((value,) for value in values),
            [BadCell(columns[0], int(i), f"{cells[i]!r} {why}") for i in rows],
        )
    found = [_values(sheet, column, as_written, repairs) for column in columns]
    codes, names_of = np.stack([code for code, _ in found], axis=1), [names for _, names in found]
    taken = (codes >= 0).all(axis=1)
    occurring, inverse = np.unique(codes[taken], axis=0, return_inverse=True)
    action = np.full(len(codes), -1, dtype=np.int64)
    action[taken] = inverse.reshape(-1)
    return action, tuple(tuple(names[code] for names, code in zip(names_of, row, strict=True)) for row in occurring), []


def _values(
    sheet: Sheet,
    column: str,
    as_written: bool,
    repairs: list[str],
    *,
    empty: str | None = None,
    stated: Sequence[str] = (),
) -> tuple[IntArray, list[str]]:
    """Codes ``[R]`` of a column, -1 where a cell is missing, says ``empty`` or is not ``stated``; its values.

    They are those stated, or by size if all are numbers, or as texts. "1.0" is how pandas writes a 1 in a column with
    gaps. What is read as the same is added to ``repairs``.
    """
    cells = [None if gap else text for text, gap in zip(sheet.texts(column), sheet.missing(column), strict=True)]
    floating = getattr(sheet.frame[column].dtype, "kind", "") == "f"  # pandas wrote 1.0, not the table's maker
    found, told = one_action(column, cells, as_written and not floating)
    repairs += told
    same = str.strip if as_written else value_of
    # What was stated has the name that it was stated by, however the table spells it.
    names = list({same(text): text.strip() for text in reversed(stated)}.values())[::-1]
    place = {same(name): code for code, name in enumerate(names)}
    if not stated:
        names = sorted({name for name in found if name is not None and name != empty})
        if all(number(name) is not None for name in names):
            names.sort(key=lambda name: number(name) or 0.0)
        place = {name: code for code, name in enumerate(names)}
        return np.array([-1 if name is None else place.get(name, -1) for name in found], dtype=np.int64), names
    return np.array([-1 if name is None else place.get(same(name), -1) for name in found], dtype=np.int64), names


def check_static(rows: TableRows, static: Sequence[str]) -> None:
    """A ValueError that names column, id, row and both values where a static feature changes, for sorted rows."""
    for name in static:
        column = rows.values[:, rows.features.index(name)]
        known = np.flatnonzero(~np.isnan(column))
        same = np.diff(rows.episode[known]) == 0
        changed = np.flatnonzero(same & (np.diff(column[known]) != 0))
        refuse_rows(
            [
                (
                    f"column {name!r}, {rows.where(int(after))}: {column[after]:g} here, but {column[before]:g} in "
                    f"{rows.names[int(before)]}: a static feature must be constant within an episode (--static)",
                    int(rows.position[after]),
                )
                for before, after in zip(known[changed], known[changed + 1], strict=True)
            ]
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
    key = pd.concat([key, *(pd.DataFrame(block) for block in blocks)], axis=1)
    same = key.set_axis(range(key.shape[1]), axis=1).duplicated(keep="last" if rule == "last" else "first").to_numpy()
    rows = rows.take(~same)
    later = np.concatenate([[False], (np.diff(rows.episode) == 0) & (rows.time[1:] == rows.time[:-1])])
    if not later.any():
        return rows, int(same.sum()), 0
    starts = np.flatnonzero(~later)
    if rule == "error":
        where = [rows.where(int(i)) for i in np.flatnonzero(later)]
        raise BadRows(
            f"{len(where)} rows have the id and time of another row and differ from it: {'; '.join(where[:10])}"
            f"{' and more' if len(where) > 10 else ''}. Say which to keep (--duplicates first, last or mean), "
            "or name a column that tells them apart (--id, --time)",
            rows.position[later],
        )
    if rule == "mean":
        merged = _average(rows, starts, later, never_average)
    else:
        merged = rows.take(starts if rule == "first" else np.append(starts[1:], len(later)) - 1)
    return merged, int(same.sum()), int(later.sum())


def _average(rows: TableRows, starts: IntArray, later: BoolArray, never_average: Sequence[str]) -> TableRows:
    run = np.cumsum(~later) - 1
    told = np.column_stack([rows.action, rows.flags, rows.contexts])
    differing = np.flatnonzero(later & (told != told[starts[run]]).any(axis=1))
    refuse_rows(
        [
            (
                f"{rows.where(int(row))}: the action, the end or what habits depend on differs from that of "
                f"{rows.names[int(starts[run[row]])]}, which has the same id and time; they have no mean. Use "
                "--duplicates first or last",
                int(rows.position[row]),
            )
            for row in differing
        ]
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
