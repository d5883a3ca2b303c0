"""Actions that answer readings inside their own step: the row does not hold what the action was a reaction to.

The effect of such an action on the next row is not what a model of the table learns: the next value says as well what
made somebody act. It can be counted only where records have finer times than the rows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cirl_gym.tables.records import Span, first_after, last_before, one_clock, read_records, read_times

MANY = 0.1
"""A share of decisions from which on actions that answer readings inside their own step are warned of."""

NOT_CHECKED = (
    "Whether actions answer readings inside their own step cannot be told from a table that has one row per step: the "
    "next row tells of the action by its effect and by what it was a reaction to alike, so an effect may have the "
    "wrong sign (docs/timing.md)."
)
"""What is to be said beside effects of a table whose records are not at hand."""


@dataclass(frozen=True)
class AnswerCounts:
    """How many actions follow a reading inside their own step; a ValueError where parts are more than the whole.

    A step lasts from its row to the next one; an action follows a reading inside it if the reading came after the row
    and not after the action. Several actions of one name in one step are one decision, at the time of the first.
    """

    name: str
    """Of the readings."""
    actions: int
    """Actions inside a step."""
    actions_after: int
    """Those that follow a reading inside their own step."""
    decisions: int
    """Decisions to act: what is 1 in the table."""
    decisions_after: int
    """Those that follow a reading inside their own step."""
    by_chance: float
    """How many of the decisions would be expected to, at random times of the same steps: more, the more often there
    are readings, whether anybody acts on them or not."""
    chance_spread: float
    """Standard deviation of that number."""

    def __post_init__(self) -> None:
        parts = (self.actions_after, self.decisions, self.decisions_after, self.by_chance)
        if max(parts) > self.actions or max(parts[2:]) > self.decisions or min(parts) < 0:
            raise ValueError(f"AnswerCounts: parts are more than the whole, or less than nothing: {self}")

    @property
    def share(self) -> float:
        """Of the decisions to act, those that follow a reading inside their own step; 0 where there is none."""
        return self.decisions_after / self.decisions if self.decisions else 0.0

    @property
    def warned(self) -> bool:
        """Whether there are many, and more than by chance (by three standard deviations): decisions answer readings
        that their rows do not hold."""
        return self.share >= MANY and self.decisions_after > self.by_chance + 3 * self.chance_spread

    @classmethod
    def together(cls, parts: Sequence[AnswerCounts]) -> AnswerCounts:
        """Those of one name in several parts of the records, of different ids."""
        return cls(
            parts[0].name,
            actions=sum(one.actions for one in parts),
            actions_after=sum(one.actions_after for one in parts),
            decisions=sum(one.decisions for one in parts),
            decisions_after=sum(one.decisions_after for one in parts),
            by_chance=sum(one.by_chance for one in parts),
            chance_spread=float(np.sqrt(sum(one.chance_spread**2 for one in parts))),
        )

    def sentence(self) -> str:
        """The count in words, as a warning where there are many and more than by chance."""
        chance = f"{100 * self.by_chance / max(self.decisions, 1):.0f} %"
        told = (
            f"{self.decisions_after} of {self.decisions} decisions to act ({100 * self.share:.0f} %) follow a reading "
            f"of {self.name} inside their own step, which their row does not hold ({chance} would at random times)"
        )
        if not self.warned:
            return told
        return (
            f"warning: {told}: the next {self.name} tells of what the action answered as well as of what it caused, "
            "and its effect may have the wrong sign; a row at every reading mends that (docs/timing.md)"
        )


def answers_inside(
    records: pd.DataFrame,
    actions: pd.DataFrame,
    rows: pd.DataFrame,
    names: Sequence[str] | None = None,
    *,
    window: Span | None = None,
    margin: Span = 0,
) -> tuple[AnswerCounts, ...]:
    """Count the actions that follow a reading inside their own step.

    Args:
        records: readings of finer times than the rows: ``id``, ``time``, ``name`` (and ``value``, which is not read).
        actions: ``id``, ``time``, ``name``; those inside no step are not counted.
        rows: ``id`` and ``time`` of the rows of a table, in any order: a decision table, or the edges of its bins. A
            step lasts from a row to the next one of its id.
        names: of the readings, one count each; None: all that there are.
        window: as for :func:`~cirl_gym.tables.measurements.at_measurements`: later actions of a step do not count.
        margin: as there: actions so close to the next row do not count.

    Raises:
        ValueError: a column is missing or a cell cannot be read, a row has no id or time, the times cannot be compared,
            a name has no record, or window or margin is no length of time.
    """
    readings, read_clock, _ = read_records(records, "records", names)
    acts, act_clock, _ = read_records(actions, "actions", None)
    points, row_clock = read_times(rows, "rows")
    clock = one_clock(rows=row_clock, records=read_clock, actions=act_clock)
    span = None if window is None else clock.span("window", window)
    taken = place(acts, steps(points, span, clock.span("margin", margin)))
    return count_answers(taken[taken["place"] == "taken"], readings, names or sorted(set(readings["name"])))


def steps(points: pd.DataFrame, window: float | None, margin: float) -> pd.DataFrame:
    """One row per row of a table (``id``, ``time``, in their order), with the step that it begins.

    ``row`` is its place in the frame, ``start`` its time once more, ``next`` the time of the next row of the id (NaN
    in its last). An action counts until ``latest``, which is ``window`` after the one, and until ``end``, which is the
    earlier of that and ``margin`` before the other (and may be before ``start``).
    """
    start = points["time"].to_numpy()
    following = points.groupby("id")["time"].shift(-1).to_numpy(dtype=np.float64)
    latest = start + (np.inf if window is None else window)
    return pd.DataFrame(
        {
            "id": points["id"].array,
            "time": start,
            "row": np.arange(len(points)),
            "start": start,
            "next": following,
            "latest": latest,
            "end": np.minimum(latest, following - margin),
        }
    )


def place(actions: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """To each action the step (:func:`steps`) of the row at or before it, and in ``place`` what became of it.

    The places: "elsewhere" (its id has no row), "before" the first row of its id, "after" (at or after the last one),
    "late" (too long after its row), "near" (too close to the next one), or "taken".
    """
    placed = last_before(actions, rows)
    conditions = {
        "elsewhere": ~placed["id"].isin(rows["id"]),
        "before": placed["start"].isna(),
        "after": placed["next"].isna(),
        "late": placed["time"] > placed["latest"],
        "near": placed["time"] > placed["end"],
    }
    return placed.assign(place=np.select(list(conditions.values()), list(conditions), "taken"))


def count_answers(taken: pd.DataFrame, readings: pd.DataFrame, names: Sequence[str]) -> tuple[AnswerCounts, ...]:
    """One count per name of a reading, of actions that were placed in a step (:func:`place`)."""
    counts = []
    start, end = (taken[name].to_numpy(dtype=np.float64) for name in ("start", "end"))
    for name in names:
        own = readings.loc[readings["name"] == name, ["id", "time"]]
        seen = last_before(taken[["id", "time"]], own.assign(seen=own["time"]))["seen"].to_numpy(dtype=np.float64)
        begun = taken[["id", "start"]].rename(columns={"start": "time"}).astype({"time": taken["time"].dtype})
        first = first_after(begun, own)
        left = np.divide(end - first, end - start, out=np.zeros(len(taken)), where=(end > start) & (first < end))
        told = taken.assign(follows=seen > start, chance=left)
        once = told.sort_values("time", kind="stable").drop_duplicates(["row", "name"])
        parts = (len(told), int(told["follows"].sum()), len(once), int(once["follows"].sum()))
        chance = once["chance"].to_numpy()
        spread = float(np.sqrt((chance * (1 - chance)).sum()))
        counts.append(AnswerCounts(name, *parts, float(chance.sum()), spread))
    return tuple(counts)
