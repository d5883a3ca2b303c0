"""Tables of decisions from records: a row is what was known when somebody could decide, at a measurement or a set time.

An action belongs to the last row at or before it and comes before the next row, so what the next row says came after
the action. In rows that summarise a stretch of time this is not so (docs/timing.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from cirl_gym.tables.answers import AnswerCounts, count_answers, place, steps
from cirl_gym.tables.columns import Duplicates
from cirl_gym.tables.files import check_names
from cirl_gym.tables.records import Clock, RecordCounts, Span, last_before, one_clock, read_records, read_times
from cirl_gym.tables.sheet import listed
from cirl_gym.tables.spellings import plain_id
from cirl_gym.types import BoolArray, FloatArray, IntArray

_OWN = ("id", "patient", "time", "terminated", "truncated")
T = TypeVar("T", "PointCounts", "ActionPlaces", "IdCounts", RecordCounts)
_PLACES = ("taken", "elsewhere", "before", "after", "late", "near")


def _add_up(counts: PointCounts | ActionPlaces | IdCounts) -> None:
    parts = asdict(counts)
    if parts.pop("read") != sum(parts.values()):
        raise ValueError(f"{type(counts).__name__}: the counts do not add up to {counts.read}: {counts}")


@dataclass(frozen=True)
class PointCounts:
    """What became of the readings (or times) at which one could decide; a ValueError where it does not add up."""

    read: int
    rows: int
    """Rows of the table, the last one of each id among them, which has no action."""
    close: int
    """Too soon after the row before."""
    short: int
    """Of ids with too few decisions."""
    beyond: int
    """After as many decisions of the id as are kept."""

    def __post_init__(self) -> None:
        _add_up(self)


@dataclass(frozen=True)
class ActionPlaces:
    """What became of the actions that have an id, a time and a name; a ValueError where it does not add up."""

    read: int
    taken: int
    """Given in a row of the table (some of them in one and the same)."""
    elsewhere: int
    """Of ids without a row."""
    before: int
    """Before the first row of their id."""
    after: int
    """At or after the last row of their id."""
    late: int
    """Later after their row than the window."""
    near: int
    """So close to the next row that they could not show in it."""

    def __post_init__(self) -> None:
        _add_up(self)


@dataclass(frozen=True)
class IdCounts:
    """Which ids have rows; a ValueError where it does not add up."""

    read: int
    used: int
    without_points: int
    """Ids without a reading (or time) at which one could decide."""
    short: int
    """Ids with too few decisions."""

    def __post_init__(self) -> None:
        _add_up(self)


@dataclass(frozen=True)
class DecisionReport:
    """The account of one table that was made from records."""

    points_of: str
    """What the rows stand at, such as "readings of potassium"."""
    records: RecordCounts
    actions: RecordCounts
    points: PointCounts
    places: ActionPlaces
    ids: IdCounts
    given: dict[str, int]
    """By action in how many decisions it was given."""
    decisions: int
    answers: tuple[AnswerCounts, ...]
    """By covariate how many decisions to act follow a reading of it that their row does not hold."""

    def lines(self) -> list[str]:
        """The account in sentences, for a terminal; what did not occur is not mentioned."""
        points, places, ids = self.points, self.places, self.ids
        told = (
            (points.close, f"{self.points_of} passed over: too soon after the row before"),
            (points.short, f"{self.points_of} left out: too few decisions of their id"),
            (points.beyond, f"{self.points_of} left out: beyond the most decisions of an id"),
            (ids.without_points, f"ids left out: no {self.points_of}"),
            (ids.short, "ids left out: too few decisions"),
            (places.elsewhere, "actions left out: no row of their id"),
            (places.before, "actions left out: before the first row of their id"),
            (places.after, "actions left out: at or after the last row of their id"),
            (places.late, "actions left out: too long after their row"),
            (places.near, "actions left out: too shortly before the next row"),
        )
        shares = [
            f"action {name!r} in {count} of {self.decisions} decisions ({100 * count / self.decisions:.0f} %)"
            for name, count in self.given.items()
        ]
        return [
            *self.records.lines("records"),
            *self.actions.lines("actions"),
            f"{points.read} {self.points_of}, {points.rows} rows: {ids.used} of {ids.read} ids with "
            f"{self.decisions} decisions",
            *(f"{count} {text}" for count, text in told if count),
            *shares,
            *(answer.sentence() for answer in self.answers if answer.decisions_after),
        ]


@dataclass(frozen=True)
class DecisionOptions:
    """Choices that change which rows and actions a table of decisions has; what is left out is counted.

    Raises:
        ValueError: a number of decisions is not positive, there are fewer at most than at least, a name is there twice,
            two columns of the table would have one name, or a part does not name its columns.
    """

    window: Span | None = None
    """An action counts if it starts at most so long after its row; None: until the next row."""
    margin: Span = 0
    """An action counts if it starts at least so long before the next row, so that it can show there."""
    covariates: tuple[str, ...] | None = None
    """Names of the variables of a row, in the order of their columns; None: all of the records."""
    given: tuple[str, ...] | None = None
    """Names of the actions, of which each gets a column of its own; None: all."""
    min_decisions: int = 1
    """Ids with fewer decisions have no rows."""
    max_decisions: int | None = None
    """Rows of an id end after so many decisions; None: with its last reading."""
    duplicates: Duplicates = "mean"
    """What holds where readings of one id, time and name differ: their mean, the first or last in the order of the
    records, or an error."""
    patients: Mapping[str, str] | None = None
    """To whom each id belongs; None: there is no such column."""
    terminated: Collection[str] = ()
    """Ids that ended with what happened to them (a death), not only with the watching."""
    part: bool = False
    """The records are one part of all: there may be none of a covariate or an action that is named, or no row. Reports
    of parts are added up by :func:`together`."""

    def __post_init__(self) -> None:
        for name in ("covariates", "given"):
            names = getattr(self, name)
            if names is not None:
                object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))
        check_names([*_OWN, *(self.covariates or ()), *(self.given or ())], "the table of decisions")
        if self.part and (self.covariates is None or self.given is None):
            raise ValueError("part: name the covariates and what is given: a part may lack some")
        most = self.min_decisions if self.max_decisions is None else self.max_decisions
        if not 1 <= self.min_decisions <= most:
            raise ValueError(
                f"min_decisions must be at least 1 and at most max_decisions, got {self.min_decisions} and "
                f"{self.max_decisions}"
            )


def at_measurements(
    records: pd.DataFrame, actions: pd.DataFrame, at: str, apart: Span, options: DecisionOptions | None = None
) -> tuple[pd.DataFrame, DecisionReport]:
    """A table of decisions with a row at each reading of one variable, from records and actions in any order.

    Args:
        records: readings, columns ``id`` (an episode: a patient or a stay), ``time`` (numbers, ISO times or datetimes),
            ``name`` and ``value``.
        actions: when which action started, columns ``id``, ``time``, ``name``.
        at: the variable at whose readings somebody decides. Its column is the first, unless covariates say otherwise.
        apart: a row stands at least so long after the row before; readings between them are passed over.
        options: choices that change which rows and actions there are.

    Returns:
        The table in the order of id and time: ``id``, ``patient`` (if asked for), ``time``, a column per covariate (the
        last reading at or before the row, of whatever age; NaN where there is none yet), a column per action (1 if it
        was given, else 0; missing on the last row of an id), ``terminated`` and ``truncated``, as
        :func:`~cirl_gym.tables.read.prepare_table` and ``cirl explain`` read it; and the account of what was left out.

    Raises:
        ValueError: a column is missing or a cell cannot be read; times cannot be compared; a name has no record; two
            columns would have one name; a span is no length of time; an id has no patient; or no id has enough
            readings. The message names column, id and row, or the option.
    """
    options = options or DecisionOptions()
    if options.covariates is not None and at not in options.covariates:
        options = replace(options, covariates=(at, *options.covariates))
    readings, clock, read = read_records(records, "records", options.covariates, options.duplicates, options.part)
    names = sorted(set(readings["name"]))
    if at not in names and not options.part:
        raise ValueError(f"records: no reading that can be placed has the name {at!r}; the names are {listed(names)}")
    columns = options.covariates or (at, *(name for name in names if name != at))
    points = readings.loc[readings["name"] == at, ["id", "time"]]
    known = _Known(readings, columns, clock, read)
    return _table(known, actions, points, f"readings of {at}", apart, options)


def at_times(
    records: pd.DataFrame, actions: pd.DataFrame, times: pd.DataFrame, options: DecisionOptions | None = None
) -> tuple[pd.DataFrame, DecisionReport]:
    """A table of decisions with a row at each given time, such as that of the daily round, or the edge of a bin.

    ``times`` has the columns ``id`` and ``time``, in any order. Everything else is as for :func:`at_measurements`; the
    report says how many actions answer readings that came after their row.

    Raises:
        ValueError: as :func:`at_measurements`; or a row of ``times`` has no id, no time, or those of another.
    """
    options = options or DecisionOptions()
    readings, clock, read = read_records(records, "records", options.covariates, options.duplicates, options.part)
    points, own = read_times(times, "times")
    clock = one_clock(times=own, records=clock)
    columns = options.covariates or tuple(sorted(set(readings["name"])))
    return _table(_Known(readings, columns, clock, read), actions, points, "times", 0, options)


@dataclass(frozen=True)
class _Known:
    """What was read, when, and how the records were counted."""

    readings: pd.DataFrame
    columns: tuple[str, ...]
    clock: Clock | None
    counts: RecordCounts


def _table(
    known: _Known, actions: pd.DataFrame, points: pd.DataFrame, points_of: str, apart: Span, options: DecisionOptions
) -> tuple[pd.DataFrame, DecisionReport]:
    acts, act_clock, act_counts = read_records(actions, "actions", options.given, part=options.part)
    clock = one_clock(records=known.clock, actions=act_clock)
    with_points, everyone = set(points["id"]), set(points["id"]) | set(known.readings["id"])
    if not everyone & set(acts["id"]) and not options.part:
        here, there = acts["id"].iloc[0], min(everyone)
        raise ValueError(f"actions: no id is one of those of the records, {here!r} and others here, {there!r} there")
    given = options.given or tuple(sorted(set(acts["name"])))
    check_names([*_OWN, *known.columns, *given], "the table of decisions")
    kept, counts, cut = _points(points, clock.span("apart", apart), options)
    if kept.empty and not options.part:
        far = f" at least {apart!r} apart" if apart else ""
        raise ValueError(f"no id has {options.min_decisions + 1} {points_of}{far}, as its decisions and last row need")
    window = None if options.window is None else clock.span("window", options.window)
    rows = steps(kept, window, clock.span("margin", options.margin))
    placed = place(acts, rows)
    taken = placed[placed["place"] == "taken"]
    frame = _frame(rows, known, taken, given, options, clock)
    last = rows["next"].isna()
    ended = last & rows["id"].isin({plain_id(id) for id in options.terminated} - cut)
    frame["terminated"], frame["truncated"] = ended.astype(np.int64), (last & ~ended).astype(np.int64)
    ids = int(last.sum())
    report = DecisionReport(
        points_of,
        known.counts,
        act_counts,
        counts,
        ActionPlaces(len(placed), **{name: int((placed["place"] == name).sum()) for name in _PLACES}),
        IdCounts(len(everyone), ids, len(everyone) - len(with_points), len(with_points) - ids),
        {name: int(frame[name].sum()) for name in given},
        len(rows) - ids,
        count_answers(taken, known.readings, known.columns),
    )
    return frame, report


def together(reports: Sequence[DecisionReport]) -> DecisionReport:
    """The account of a table whose parts were made one by one, of different ids and with the same options.

    Raises:
        ValueError: there is no report, or they are of tables with different columns.
    """
    if len({(one.points_of, tuple(one.given), tuple(answer.name for answer in one.answers)) for one in reports}) != 1:
        raise ValueError("reports of parts of one table have the same columns, and there is at least one")
    first = reports[0]
    return DecisionReport(
        first.points_of,
        records=_sum([one.records for one in reports]),
        actions=_sum([one.actions for one in reports]),
        points=_sum([one.points for one in reports]),
        places=_sum([one.places for one in reports]),
        ids=_sum([one.ids for one in reports]),
        given={name: sum(one.given[name] for one in reports) for name in first.given},
        decisions=sum(one.decisions for one in reports),
        answers=tuple(AnswerCounts.together(of_one) for of_one in zip(*(one.answers for one in reports), strict=True)),
    )


def _sum(counts: Sequence[T]) -> T:
    """Counts of parts, field by field; what is said in words is said once."""
    summed: dict[str, Any] = {}
    for field in fields(counts[0]):
        each = [getattr(one, field.name) for one in counts]
        summed[field.name] = tuple(dict.fromkeys(sum(each, ()))) if isinstance(each[0], tuple) else sum(each)
    return replace(counts[0], **summed)


def _points(points: pd.DataFrame, apart: float, options: DecisionOptions) -> tuple[pd.DataFrame, PointCounts, set[str]]:
    """Points that become rows and the ids that were cut; ``points`` are in the order of id and time, all different."""
    spaced = points[_spaced(points["id"].to_numpy(), points["time"].to_numpy(), apart)]
    place_in_id = spaced.groupby("id").cumcount()
    rows_of_id = spaced.groupby("id")["time"].transform("size")
    short = rows_of_id < options.min_decisions + 1
    beyond = ~short & (place_in_id > (np.inf if options.max_decisions is None else options.max_decisions))
    kept = spaced[~short & ~beyond].reset_index(drop=True)
    close = len(points) - len(spaced)
    counts = PointCounts(len(points), len(kept), close, int(short.sum()), int(beyond.sum()))
    return kept, counts, set(spaced.loc[beyond, "id"])


def _spaced(ids: npt.NDArray[np.object_], times: FloatArray | IntArray, apart: float) -> BoolArray:
    """``[R]`` True at the first point of an id, and at those at least ``apart`` after the one before that was kept."""
    kept = np.zeros(len(times), dtype=np.bool_)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    for start, stop in zip(starts, [*starts[1:], len(times)], strict=True):
        now = start
        while now < stop:
            kept[now] = True
            now = max(now + 1, start + np.searchsorted(times[start:stop], times[now] + apart))
    return kept


def _frame(
    rows: pd.DataFrame,
    known: _Known,
    taken: pd.DataFrame,
    given: Sequence[str],
    options: DecisionOptions,
    clock: Clock,
) -> pd.DataFrame:
    ids, last = rows["id"], rows["next"].isna().to_numpy()
    columns: dict[str, Any] = {"id": ids.to_numpy()}
    if options.patients is not None:
        owners = {plain_id(id): owner for id, owner in options.patients.items()}
        alone = sorted(set(ids) - set(owners))
        if alone:
            raise ValueError(f"patients: nobody is named for id {listed(alone)}")
        columns["patient"] = [str(owners[id]) for id in ids]
    columns["time"] = clock.written(rows["time"].to_numpy())
    readings = known.readings
    for name in known.columns:
        own = readings.loc[readings["name"] == name, ["id", "time", "value"]]
        columns[name] = last_before(rows[["id", "time"]], own)["value"].to_numpy()
    for name in given:
        done = np.isin(rows["row"], taken.loc[taken["name"] == name, "row"])
        columns[name] = pd.array(np.where(last, 0, done), dtype="Int64")
        columns[name][last] = pd.NA
    return pd.DataFrame(columns)
