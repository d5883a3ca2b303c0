"""Tables for benchmarks/fuzz_tables.py: two sound ones to start from, and every way in which they are spoilt.

Nothing here reads a table: what a table holds is known from how it was made.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

ICU_LIKE = pd.read_csv(Path(__file__).parents[1] / "examples" / "icu_like.csv", dtype=str, keep_default_na=False)
"""Every cell as the text that it is in the file."""
FLAGS = ("terminated", "truncated")


@dataclass
class FuzzedTable:
    """A table that is being spoilt, and what of it is still clear."""

    frame: pd.DataFrame
    """Cells as texts (or as objects, in Parquet); a row keeps the number it had in the sound table as its index."""
    id: str
    time: str
    action: str
    features: list[str]
    owner: str | None
    truth: pd.DataFrame
    """By number of the row: its id, its order in time and its action ("" on last rows), as the sound table has them."""
    columns: dict[str, Any] = field(default_factory=dict)
    """What is said of columns (infer_columns)."""
    options: dict[str, Any] = field(default_factory=dict)
    """What is said of how to read them (TableOptions)."""
    kinds: list[str] = field(default_factory=list)
    """Of the mutations made."""
    parquet: bool = False
    types: dict[str, pa.DataType] = field(default_factory=dict)
    """Of columns in Parquet that are not texts."""
    unclear: set[str] = field(default_factory=set)
    """Of "rows", "actions" and the names of features: what can no longer be counted from the sound table."""
    spoil: list[Callable[[bytes], bytes]] = field(default_factory=list)
    """What becomes of the bytes of the file."""
    ending: str = ""
    """Of the file's name; "" for .csv or .parquet."""
    parts: int = 0
    """Files in a folder that the rows are dealt to, 0 for one file."""
    metadata: str | None = None
    """What pandas is to have noted in Parquet, instead of what it notes."""

    def put(self, column: str, place: int, cell: Any) -> None:
        """Another cell in one place; its column is of objects then."""
        cells = self.frame[column].astype(object).tolist()
        cells[place] = cell
        self.frame[column] = pd.Series(cells, index=self.frame.index, dtype=object)

    def put_all(self, column: str, cells: list[Any]) -> None:
        self.frame[column] = pd.Series(cells, index=self.frame.index, dtype=object)

    def cells(self, column: str) -> list[Any]:
        return list(self.frame[column].tolist())

    def blur(self, column: str) -> None:
        """Remember that a column no longer says what the sound table says."""
        self.unclear.add({self.id: "rows", self.time: "rows", self.action: "actions"}.get(column, column))
        if column in (self.id, self.time, self.action, self.owner, *FLAGS):
            self.unclear |= {"rows", "actions", *self.features}


Mutation = Callable[[np.random.Generator, FuzzedTable], None]
MUTATIONS: dict[str, Mutation] = {}
"""By kind."""
LAST = ("one long episode", "ends", "one row", "missing column", "names of columns", "twice the same name")
"""Kinds that come after all others, which need rows and columns by their names."""


def kind(name: str) -> Callable[[Mutation], Mutation]:
    def registered(mutation: Mutation) -> Mutation:
        MUTATIONS[name] = mutation
        return mutation

    return registered


def make_table(seed: int) -> FuzzedTable:
    """The table of a seed: sound, then one to four mutations; every kind is met as often as any other."""
    rng = np.random.default_rng(seed)
    table = icu_like(rng) if rng.random() < 0.4 else small(rng)
    table.parquet = bool(rng.random() < 0.4)
    if rng.random() < 0.5:  # else they are told from the table
        named = {"id": table.id, "time": table.time, "action": (table.action,), "group": table.owner}
        table.columns = named | {"features": tuple(table.features)}
    table.options["drop_bad_patients"] = bool(rng.random() < 0.3)
    names = sorted(MUTATIONS)
    first = names[seed % len(names)]
    others = rng.choice([name for name in names if name != first], size=int(rng.integers(0, 4)), replace=False)
    for name in sorted((first, *others.tolist()), key=lambda name: LAST.index(name) if name in LAST else -1):
        table.kinds.append(name)
        MUTATIONS[name](rng, table)
    return table


def icu_like(rng: np.random.Generator) -> FuzzedTable:
    """Some stays of the table of the examples, now and then all of them."""
    frame = ICU_LIKE
    if rng.random() > 0.02:
        stays = rng.choice(frame["stay_id"].unique(), size=int(rng.integers(6, 40)), replace=False)
        frame = frame[frame["stay_id"].isin(stays)]
    frame = frame.reset_index(drop=True)
    features = [name for name in frame if name not in ("stay_id", "subject_id", "bin", "antibiotic", *FLAGS)]
    truth = pd.DataFrame(
        {"id": frame["stay_id"], "order": frame["bin"].astype(int), "action": frame["antibiotic"]}, dtype=object
    )
    empty = {name for name in features if (frame[name] == "").any()}
    return FuzzedTable(
        frame.astype(object), "stay_id", "bin", "antibiotic", features, "subject_id", truth, unclear=empty
    )


def small(rng: np.random.Generator) -> FuzzedTable:
    """A few episodes with one or several patients each, times of three kinds and two to four actions."""
    n_actions, n_features = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    dates, words, flags = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.7
    rows, truth = [], []
    for i in range(int(rng.integers(5, 17))):
        length = int(rng.integers(1, 7))
        for t in range(length + 1):
            taken = int(rng.integers(n_actions))
            action = "" if t == length else ("abcd"[taken] if words else str(taken))
            when = (datetime(2020, 1, 31) + timedelta(hours=6 * t)).isoformat() if dates else str(t)
            ends = [str(int(t == length and i % 2 == k)) for k in (0, 1)] if flags else []
            rows.append(
                [f"e{i:02d}", f"p{i // 2:02d}", when, *np.round(rng.normal(5, 2, n_features), 3), action, *ends]
            )
            truth.append([f"e{i:02d}", t, action])
    features = [f"x{j}" for j in range(n_features)]
    names = ["episode_id", "patient_id", "time", *features, "action", *(FLAGS if flags else ())]
    frame = pd.DataFrame(rows, columns=names).astype(str).astype(object)
    told = pd.DataFrame(truth, columns=["id", "order", "action"], dtype=object)
    options = {} if flags else {"end": "truncated"}
    return FuzzedTable(frame, "episode_id", "time", "action", features, "patient_id", told, options=options)


def any_of(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def odd_cells(column: Callable[[np.random.Generator, FuzzedTable], str], words: tuple[Any, ...]) -> Mutation:
    """One to three cells of a column say something else."""

    def mutation(rng: np.random.Generator, table: FuzzedTable) -> None:
        name = column(rng, table)
        if name not in table.frame:
            return
        for _ in range(int(rng.integers(1, 4))):
            word, place = any_of(rng, words), int(rng.integers(len(table.frame)))
            if name == table.action and table.cells(name)[place] == "":
                continue  # the last row of an id has none
            table.put(name, place, word if table.parquet else str(word))
        table.blur(name)

    return mutation


def whole_column(
    column: Callable[[np.random.Generator, FuzzedTable], str], ways: tuple[Callable[[Any], Any], ...]
) -> Mutation:
    """All cells of a column, or half of them, are written in another way."""

    def mutation(rng: np.random.Generator, table: FuzzedTable) -> None:
        name, way, half = column(rng, table), any_of(rng, ways), rng.random() < 0.3
        if name not in table.frame:
            return
        chosen = rng.random(len(table.frame)) < (0.5 if half else 2)
        cells = [
            way(cell) if it and isinstance(cell, str) and cell else cell
            for cell, it in zip(table.cells(name), chosen, strict=True)
        ]
        table.put_all(name, cells if table.parquet else [str(cell) for cell in cells])
        table.blur(name)

    return mutation


def an_id(rng: np.random.Generator, table: FuzzedTable) -> str:
    return table.id


def an_owner(rng: np.random.Generator, table: FuzzedTable) -> str:
    return table.owner or table.id


def a_time(rng: np.random.Generator, table: FuzzedTable) -> str:
    return table.time


def an_action(rng: np.random.Generator, table: FuzzedTable) -> str:
    return table.action


def a_feature(rng: np.random.Generator, table: FuzzedTable) -> str:
    return str(any_of(rng, table.features))


def a_flag(rng: np.random.Generator, table: FuzzedTable) -> str:
    return str(any_of(rng, FLAGS))


def any_column(rng: np.random.Generator, table: FuzzedTable) -> str:
    return str(any_of(rng, list(table.frame.columns)))


LONG = "9" * 5000
NUMBERS = ("0.5", "-1", "999", "0.50", "-0", "+1", "1e0", "1.0", "1.", ".0", "1e400", "-1e308", "0x1", "1_0", "٣", LONG)
WORDS = (
    "l",
    "Yes",
    "yes",
    " yes ",
    "True",
    "FALSE",
    "ja",
    "NaN",
    "None",
    "NULL",
    "<NA>",
    "\x1b[31mred",
    "é",
    "💊",
    "﷽",
)
OBJECTS = (None, float("nan"), float("inf"), float("-inf"), True, 2**70, -(2**63), 1.5, b"1000", b"\xff", pd.NaT)
MOMENTS = ("2020-01-01 00:00:00+00", "2020-01-31T08:30:00Z", "2020-01-31T24:00", "2020-01-31 08:30 UTC", "2020-02-30")
MOMENTS += ("31.01.2020", "1/31/2020", "08:30", "8:30 PM", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00+14:00")
MOMENTS += ("0000-01-01", "2020-01-31T08:30:00.123456789", "3 days 02:00:00", "P1D", "NaT", "inf", "1e30", "")
TIMES = (*MOMENTS, pd.Timestamp("2020-01-31"), pd.Timestamp("2020-01-31", tz="UTC"), pd.Timedelta("1h"))
TIMES += (datetime(9999, 12, 31, 23), datetime(2020, 1, 31).date(), datetime(2020, 1, 31, 8).time())

kind("odd actions")(odd_cells(an_action, (*NUMBERS, *WORDS)))
kind("odd ids")(odd_cells(an_id, (*NUMBERS, *WORDS, "", " ", "007", "7", "44", "44.0")))
kind("odd owners")(odd_cells(an_owner, (*NUMBERS, *WORDS, "", "44", "44.0")))
kind("odd readings")(odd_cells(a_feature, (*NUMBERS, *WORDS)))
kind("odd times")(odd_cells(a_time, (*NUMBERS, *WORDS, *MOMENTS)))
kind("odd flags")(odd_cells(a_flag, ("", "2", "-1", "yes", "True", "false", "1.0", "nan", "\uff11", LONG)))
kind("missing marks")(
    odd_cells(a_feature, (*"-.?", "NA", "N/A", "none", "unknown", "n.d.", "--", "pending", "#N/A", " "))
)
kind("sentinels")(odd_cells(a_feature, ("-999", "-99", "-9", "999", "9999", "99999", "1e9", "1e15", "-9999.0")))
kind("objects in cells")(odd_cells(any_column, OBJECTS))
kind("odd moments as objects")(odd_cells(a_time, TIMES))
kind("huge integers")(odd_cells(any_column, ("9" * 19, "9" * 40, "9" * 400, LONG, 2**62, 2**64, -(2**64), 10**30)))
kind("infinite")(odd_cells(any_column, (float("inf"), float("-inf"), "inf", "-Infinity", "1e999")))
kind("unicode")(
    odd_cells(any_column, ("é", "💊", "\u202e1", "1\u200b", "\ufeff1", "\u00a01", "\u22121", "1\u0301", "\ud7ff"))
)
kind("control characters")(odd_cells(any_column, ("\x1b[2J", "\r", "\n", "\t", "\x7f", "a\nb", '"', ",", "\x01")))
kind("spellings of the action")(
    whole_column(
        an_action, (str.upper, lambda a: f" {a} ", lambda a: f"{a}.0", lambda a: {"1": "True", "0": "no"}.get(a, a))
    )
)
kind("spellings of ids")(
    whole_column(an_id, (lambda a: f"{a}.0", str.upper, lambda a: f"{a} ", lambda a: a.lstrip("0ep") or "0"))
)
kind("other times")(
    whole_column(
        a_time,
        (
            lambda t: f"{t} 00:00",
            lambda t: f"{t}+00",
            lambda t: f"{t}e300",
            lambda t: f"-{t}",
            lambda t: pd.Timedelta(hours=len(t)),
            lambda t: "2020-01-01T00:00:00Z",
            lambda t: f"01/02/20{len(t)}",
            lambda t: "9" * 30,
        ),
    )
)


@kind("irregular steps")
def irregular(rng: np.random.Generator, table: FuzzedTable) -> None:
    steps = np.cumsum(10.0 ** rng.integers(-3, 9, size=1000))
    cells = table.cells(table.time)
    table.put_all(table.time, [repr(float(steps[int(t)])) if t in map(str, range(1000)) else t for t in cells])


@kind("empty column")
def empty_column(rng: np.random.Generator, table: FuzzedTable) -> None:
    column = any_column(rng, table) if rng.random() < 0.3 else a_feature(rng, table)
    table.put_all(column, [any_of(rng, ("", "", "NA", " ")) if rng.random() < 0.1 else "" for _ in table.frame.index])
    table.blur(column)


@kind("mostly empty")
def mostly_empty(rng: np.random.Generator, table: FuzzedTable) -> None:
    column = any_column(rng, table)
    gone = rng.random(len(table.frame)) < rng.choice([0.3, 0.6, 0.95])
    table.put_all(column, ["" if it else cell for cell, it in zip(table.cells(column), gone, strict=True)])
    table.blur(column)


@kind("contradiction")
def contradiction(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.columns["static"] = (a_feature(rng, table),)
    if rng.random() < 0.5:
        table.options["duplicates"] = any_of(rng, ("first", "last", "mean"))
    if rng.random() < 0.5:  # sound: one value for everybody
        table.put_all(table.columns["static"][0], ["43"] * len(table.frame))
        table.unclear.add(table.columns["static"][0])


@kind("shuffled rows")
def shuffled(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.frame = table.frame.iloc[rng.permutation(len(table.frame))]


@kind("identical rows")
def identical(rng: np.random.Generator, table: FuzzedTable) -> None:
    again = rng.integers(len(table.frame), size=int(rng.integers(1, 5)))
    table.frame = pd.concat([table.frame, table.frame.iloc[again]])


@kind("differing duplicates")
def differing(rng: np.random.Generator, table: FuzzedTable) -> None:
    again = table.frame.iloc[rng.integers(len(table.frame), size=2)].copy()
    column = any_of(rng, (*table.features, table.action))
    again[column] = "1.25"
    table.frame = pd.concat([table.frame, again])
    if rng.random() < 0.8:
        table.options["duplicates"] = any_of(rng, ("first", "last", "mean"))
    table.unclear |= {column, "rows", "actions"}
    table.unclear |= set(table.features)


@kind("lone rows")
def lone(rng: np.random.Generator, table: FuzzedTable) -> None:
    keep = np.ones(len(table.frame), dtype=bool)
    keep[rng.integers(len(keep), size=int(rng.integers(1, 4)))] = False
    table.frame = table.frame[keep]
    table.unclear |= {"rows", "actions", *table.features}


@kind("one row")
def one_row(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.frame = table.frame.iloc[: int(rng.integers(0, 5))]
    table.unclear |= {"rows", "actions", *table.features}


@kind("few patients")
def few(rng: np.random.Generator, table: FuzzedTable) -> None:
    owners = list(dict.fromkeys(table.cells(table.owner or table.id)))[: int(rng.integers(1, 5))]
    table.frame = table.frame[table.frame[table.owner or table.id].isin(owners)]


@kind("one long episode")
def long_episode(rng: np.random.Generator, table: FuzzedTable) -> None:
    n, owner = int(rng.choice([50, 501])), table.owner or table.id
    more = pd.concat([table.frame.iloc[[0]]] * n + [table.frame.iloc[[-1]]])  # the last row has no action, but flags
    more[table.id], more[owner], more[table.features] = "long", "long", "5"
    more[table.time] = [str(t) for t in range(n + 1)]
    if "T" in str(table.cells(table.time)[0]):
        more[table.time] = [(datetime(2020, 1, 31) + timedelta(hours=t)).isoformat() for t in range(n + 1)]
    table.frame = pd.concat([table.frame, more])
    if rng.random() < 0.5:
        table.options["max_steps"] = int(rng.integers(1, 20))
    table.unclear |= {"rows", "actions", *table.features}


@kind("max steps")
def max_steps(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.options["max_steps"] = int(rng.integers(1, 8))
    table.unclear |= {"rows", "actions", *table.features}


@kind("valid ranges")
def ranges(rng: np.random.Generator, table: FuzzedTable) -> None:
    name = a_feature(rng, table)
    table.options["ranges"] = {
        name: any_of(rng, ((0.0, 5.0), (100.0, 200.0), (-np.inf, 4.0), (5.0, 5.0), (9.0, np.inf)))
    }
    table.unclear.add(name)


@kind("lag and indicators")
def lagged(rng: np.random.Generator, table: FuzzedTable) -> None:
    name = a_feature(rng, table)
    if rng.random() < 0.7:
        table.options["lag"] = (name,)
    table.options["missing_indicator"] = bool(rng.random() < 0.5)
    table.unclear.add(name)


@kind("stated actions")
def stated(rng: np.random.Generator, table: FuzzedTable) -> None:
    known = [action for action in dict.fromkeys(table.truth["action"]) if action]
    table.options["actions"] = any_of(rng, ((*known, "9"), ("z", *known), ("0", "1"), tuple(f"{a}.0" for a in known)))
    table.unclear |= {"actions"}


@kind("stated missing values")
def stated_missing(rng: np.random.Generator, table: FuzzedTable) -> None:
    column = a_feature(rng, table)
    table.options["missing_values"] = any_of(
        rng, (("-999",), ("unknown",), ("-999", "NA "), ("1e999",), ("",), (LONG,))
    )
    for place in rng.integers(len(table.frame), size=2).tolist():
        table.put(column, place, any_of(rng, ("-999", "-999.0", "Unknown", "unknown")))
    table.unclear |= set(table.features)


@kind("drop bad patients")
def drop_bad(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.options["drop_bad_patients"] = True
    MUTATIONS[any_of(rng, ("odd readings", "odd times", "odd flags", "odd owners", "missing marks"))](rng, table)
    table.unclear |= {"rows", "actions", *table.features}


@kind("as written")
def as_written(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.options["as_written"] = True
    MUTATIONS[any_of(rng, ("odd actions", "odd ids", "spellings of the action", "spellings of ids"))](rng, table)
    table.unclear |= {"rows", "actions", *table.features}


@kind("ends")
def ends(rng: np.random.Generator, table: FuzzedTable) -> None:
    way = any_of(rng, ("no flags", "all 0", "both 1", "one flag", "early", "end stated"))
    present = [flag for flag in FLAGS if flag in table.frame]
    if way == "end stated":
        table.options["end"] = any_of(rng, ("terminated", "truncated"))
    elif way == "no flags":
        table.frame = table.frame.drop(columns=present)
    elif way == "one flag":
        table.frame = table.frame.drop(columns=present[:1])
    for flag in present if way in ("all 0", "both 1", "early") else ():
        last = [action == "" for action in table.truth["action"].loc[table.frame.index]]
        told = {"all 0": "0", "both 1": "1", "early": any_of(rng, ("0", "1"))}[way]
        table.put_all(flag, [told if it or way == "early" else "0" for it in last])


@kind("last rows")
def last_rows(rng: np.random.Generator, table: FuzzedTable) -> None:
    some = rng.random() < 0.5
    table.put_all(
        table.action, ["0" if a == "" and (not some or rng.random() < 0.5) else a for a in table.cells(table.action)]
    )
    table.options["last_row"] = any_of(rng, ("observation", "drop_action"))
    table.unclear |= {"actions"}


@kind("many actions")
def many_actions(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.put_all(
        table.action, [a and str(i % int(rng.choice([49, 200]))) for i, a in enumerate(table.cells(table.action))]
    )
    table.blur(table.action)


@kind("two columns of the action")
def two_actions(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.frame["second"] = pd.Series(
        [a and str(int(rng.integers(2))) for a in table.cells(table.action)], dtype=object
    ).to_numpy()
    table.columns["action"] = (table.action, "second")
    if rng.random() < 0.3:
        table.put("second", int(rng.integers(len(table.frame))), any_of(rng, ("", "x", "1.0")))
    table.unclear |= {"rows", "actions", *table.features}


@kind("contexts")
def contexts(rng: np.random.Generator, table: FuzzedTable) -> None:
    column = any_column(rng, table)
    table.columns["contexts"] = (column,)
    if column in (table.id, table.owner, table.time):  # then another column is told to be it
        table.blur(column)


@kind("names of columns")
def names(rng: np.random.Generator, table: FuzzedTable) -> None:
    old = any_column(rng, table)
    new = any_of(
        rng,
        (
            "",
            " ",
            "\x1b[31m",
            "tune[/v2]",
            "a\nb",
            "é💊",
            "Change(wbc)",
            "x\x00y",
            "time",
            "id",
            old.upper(),
            "None",
            "line",
        ),
    )
    table.frame = table.frame.rename(columns={old: new})
    table.unclear |= {"rows", "actions", *table.features}


@kind("twice the same name")
def twice(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.frame = table.frame.set_axis([*table.frame.columns[:-1], table.frame.columns[0]], axis=1)
    table.unclear |= {"rows", "actions", *table.features}


@kind("further columns")
def further(rng: np.random.Generator, table: FuzzedTable) -> None:
    n = len(table.frame)
    cells = any_of(
        rng, (list(range(n)), ["note"] * n, [""] * n, ["0"] * n, [str(-i) for i in range(n)], ["2020-01-01"] * n)
    )
    table.frame[any_of(rng, ("row", "hour", "hadm_id", "Unnamed: 0", "reward", "done"))] = [str(cell) for cell in cells]
    table.columns |= {"id": table.id, "time": table.time, "action": (table.action,), "features": tuple(table.features)}


@kind("missing column")
def missing_column(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.frame = table.frame.drop(columns=[any_column(rng, table)])
    table.unclear |= {"rows", "actions", *table.features}


@kind("list and struct columns")
def nested(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet = True
    column, cell = any_column(rng, table), any_of(rng, ([1, 2], {"a": 1}, [], [[1]], ["x"]))
    table.put_all(column, [None if rng.random() < 0.1 else cell for _ in table.frame.index])
    table.types.pop(column, None)
    table.blur(column)


@kind("types in Parquet")
def typed(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet = True
    kinds = (pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(12, 3), pa.bool_())
    kinds += (pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.binary(), pa.null(), pa.date32())
    kinds += (
        pa.timestamp("ns"),
        pa.timestamp("s", tz="Europe/Berlin"),
        pa.duration("ms"),
        pa.time32("s"),
        pa.time64("us"),
    )
    for _ in range(int(rng.integers(1, 4))):
        column, wanted = any_column(rng, table), any_of(rng, kinds)
        table.types[column] = wanted
        table.blur(column)


@kind("numbers in Parquet")
def numbers(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet = True
    table.types |= dict.fromkeys(table.features, pa.float64())
    if rng.random() < 0.5:
        table.types |= dict.fromkeys((table.action, *FLAGS), any_of(rng, (pa.int64(), pa.float64(), pa.int8())))


@kind("stale metadata")
def stale(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet = True
    entry = {"name": "gone", "field_name": "gone", "pandas_type": "int64", "numpy_type": "int64", "metadata": None}
    names = [dict(entry, name=name, field_name=name, numpy_type="datetime64[ns, Mars]") for name in table.frame]
    told = {"index_columns": ["gone"], "column_indexes": [], "columns": [entry, *names], "pandas_version": "0.1"}
    table.metadata = any_of(
        rng, (json.dumps(told), json.dumps(told | {"index_columns": [table.id]}), "{}", "no json", "[]")
    )


@kind("parts")
def parts(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet, table.parts = True, int(rng.integers(1, 4))


@kind("file's form")
def form(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet = False
    way = any_of(rng, ("bom", "crlf", "sep", "blank lines", "gz", "upper"))
    table.ending = {"gz": ".csv.gz", "upper": ".CSV"}.get(way, "")
    change: dict[str, Callable[[bytes], bytes]] = {
        "bom": lambda content: b"\xef\xbb\xbf" + content,
        "crlf": lambda content: content.replace(b"\n", b"\r\n"),
        "sep": lambda content: b"sep=,\n" + content,
        "blank lines": lambda content: content + b"\n\n\n",
        "gz": lambda content: gzip.compress(content, mtime=0),
    }
    if way in change:
        table.spoil.append(change[way])


@kind("encodings and separators")
def encoding(rng: np.random.Generator, table: FuzzedTable) -> None:
    table.parquet = False
    table.spoil.append(
        any_of(
            rng,
            (
                lambda content: content.decode("latin-1").encode("utf-16"),
                lambda content: content.replace(b"\n", "\né".encode("latin-1"), 1),
                lambda content: content.replace(b",", b";"),
                lambda content: content.replace(b",", b"\t"),
                lambda content: content + b"1,2,3\n",
                lambda content: content + b'"',
                lambda content: content[: content.index(b"\n") + 1],
                lambda content: b"",
                lambda content: b"\n\n",
                lambda content: content.replace(b"\n", b"\r"),
            ),
        )
    )
    table.unclear |= {"rows", "actions", *table.features}


@kind("damaged file")
def damaged(rng: np.random.Generator, table: FuzzedTable) -> None:
    where, much = rng.random(3), int(rng.integers(1, 256))

    def spoilt(content: bytes) -> bytes:
        if where[0] < 0.4:
            return content[: int(where[1] * len(content))]
        at = int(where[1] * len(content))
        return content[:at] + bytes([content[at] ^ much]) + content[at + 1 :]

    table.spoil.append(spoilt)
    table.unclear |= {"rows", "actions", *table.features}
