"""Records of intensive-care stays from a MEDS data set (Parquet), one part at a time: who, when, what, how much.

MEDS, the Medical Event Data Standard, has one event per row: ``subject_id``, ``time``, ``code``, ``numeric_value``. All
events of a subject stand in one file, so tables are made file by file, and no more than one is ever in memory; of it,
batch by batch, only events of the codes that are asked for. Codes are those of MIMIC-IV in MEDS form, of both
generations of it: a reading is ``LAB//220045//bpm`` or ``LAB//RESULT//220045//bpm``. (In the newer one a laboratory
value has the time at which it was known, in the older one that of the specimen.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped,unused-ignore]

OPEN_DATA = (
    "Open data: the MIMIC-IV demo in MEDS form, 100 patients, on PhysioNet (https://doi.org/10.13026/t2y8-ea41), under "
    "the Open Database License. All of MIMIC-IV, for which PhysioNet asks for a training and an agreement, is brought "
    "to this form by the package MIMIC-IV-MEDS."
)
"""Where data of this form can be had."""
ADMISSION, DISCHARGE, DEATH = "ICU_ADMISSION//", "ICU_DISCHARGE//", "MEDS_DEATH"
START, END = "INFUSION_START//", "INFUSION_END//"
_READING = re.compile(r"LAB//(?:RESULT//)?(\d+)//")
_COLUMNS = ("subject_id", "time", "code", "numeric_value", "icustay_id")
_BATCH = 1 << 16
"""Rows that are looked through at once."""
_DIGITS = 4
"""Decimals of a reading: in the files they are of single precision."""


def parts(folder: Path) -> list[Path]:
    """The Parquet files of the events of a MEDS data set, in the order of their paths.

    Raises:
        ValueError: there is no such folder, or no such file in it.
    """
    found = sorted((folder / "data").rglob("*.parquet")) if folder.is_dir() else []
    if not found:
        raise ValueError(f"{folder}: no MEDS data set, whose events are in data/**/*.parquet. {OPEN_DATA}")
    return found


def is_reading(code: str, items: Iterable[int]) -> bool:
    """Whether a code is that of a value, charted or of the laboratory, of one of these items."""
    found = _READING.match(code)
    return found is not None and int(found[1]) in items


def read_events(path: Path, items: Iterable[int], actions: re.Pattern[str]) -> pd.DataFrame:
    """Events of one part: stays, deaths, values of these items, and what matches ``actions`` whole, with its end.

    Returns:
        ``subject`` (int64), ``time`` (datetime64[us]), ``code``, ``value`` (float64, NaN where there is none) and
        ``stay`` (text, missing where there is none), in the order of the file; events without a time are no events.

    Raises:
        ValueError: the file is not a whole one of this form.
        ImportError: pyarrow is not installed.
    """
    wanted = frozenset(items)

    def asked_for(code: str) -> bool:
        if code.startswith((ADMISSION, DISCHARGE)) or code == DEATH or is_reading(code, wanted):
            return True
        return actions.fullmatch(code.replace(END, START, 1) if code.startswith(END) else code) is not None

    try:
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
        from pyarrow import compute
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError("MEDS data are read by pyarrow: pip install 'cirl-gym[clinical]'") from error
    known: dict[str, bool] = {}
    batches = []
    try:
        with ParquetFile(path) as file:
            schema = _schema(file, path)
            for batch in file.iter_batches(_BATCH, columns=list(_COLUMNS)):
                codes = batch.column("code").dictionary_encode()
                for code in codes.dictionary.to_pylist():
                    known[code] = known.get(code, False) or asked_for(code)
                chosen = pa.array([known[code] for code in codes.dictionary.to_pylist()], type=pa.bool_())
                keep = compute.and_(chosen.take(codes.indices), compute.is_valid(batch.column("time")))
                batches.append(batch.filter(keep))
            frame = pa.Table.from_batches(batches, schema).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from error
    stays = frame["icustay_id"]
    return pd.DataFrame(
        {
            "subject": frame["subject_id"].astype(np.int64),
            "time": frame["time"].astype("datetime64[us]"),
            "code": frame["code"].astype(str),
            "value": frame["numeric_value"].astype(np.float64).round(_DIGITS),
            "stay": stays.map(lambda one: str(int(one)), na_action="ignore").astype(object),
        }
    )


def _schema(file: ParquetFile, path: Path) -> Any:
    """Of the columns that are read."""
    own = file.schema_arrow
    absent = [name for name in _COLUMNS if name not in own.names]
    if absent:
        raise ValueError(
            f"{path}: events of intensive-care stays have the columns {', '.join(_COLUMNS)}; it lacks {absent[0]}"
        )
    return own.empty_table().select(list(_COLUMNS)).schema


@dataclass(frozen=True)
class Item:
    """What is read as one variable.

    Raises:
        ValueError: it has no item, or the range is empty.
    """

    name: str
    items: tuple[int, ...]
    """Numbers of the items."""
    low: float
    """Least value that is plausible, in the variable's unit."""
    high: float
    before: pd.Timedelta | None
    """How long before a stay a value is still read; None: however long."""
    fahrenheit: tuple[int, ...] = ()
    """Those of the items that are in degrees Fahrenheit; they become degrees Celsius."""

    def __post_init__(self) -> None:
        if not self.items or not set(self.fahrenheit) <= set(self.items):
            raise ValueError(f"{self.name}: name its items, those in Fahrenheit among them")
        if not self.low < self.high:
            raise ValueError(f"{self.name}: the range must have low < high, got {self.low} and {self.high}")


def icu_stays(events: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Stays of one part that have a beginning and an end.

    Returns:
        ``id`` (text), ``subject``, ``start``, ``end`` and ``died`` (the time of a death from the beginning to the end,
        else missing), in the order of the ids; and how many stays lack one of the two.

    Raises:
        ValueError: an admission or discharge has no stay, or two stays have one id.
    """
    edges = {}
    for column, kind in (("start", ADMISSION), ("end", DISCHARGE)):
        own = events[events["code"].str.startswith(kind)]
        if own["stay"].isna().any() or own["stay"].duplicated().any():
            raise ValueError(f"events {kind}...: every one must have an icustay_id of its own")
        edges[column] = own.set_index("stay")["time"]
        edges["subject"] = own.set_index("stay")["subject"]
    every = pd.DataFrame(edges)
    stays = every.dropna().rename_axis("id").sort_index().reset_index()
    deaths = events[events["code"] == DEATH].groupby("subject")["time"].min()
    stays["died"] = deaths.reindex(stays["subject"]).astype("datetime64[us]").to_numpy()
    inside = (stays["died"] >= stays["start"]) & (stays["died"] <= stays["end"])
    stays["died"] = stays["died"].where(inside)
    return stays.astype({"id": str, "subject": np.int64}), len(every) - len(stays)


def readings_of(
    events: pd.DataFrame, stays: pd.DataFrame, items: Sequence[Item]
) -> tuple[pd.DataFrame, dict[str, tuple[int, int]]]:
    """Plausible values of each stay (of its patient, until its end).

    Returns:
        ``id``, ``time``, ``name`` and ``value`` in the order of the events; and by variable how many implausible values
        were left out, of how many inside the stays.
    """
    number = pd.to_numeric(events["code"].str.extract(_READING, expand=False)).fillna(-1).astype(np.int64)
    owner = {item: one for one in items for item in one.items}
    found = events.assign(item=number)[number.isin(list(owner)) & events["value"].notna()]
    warm = found["item"].isin([item for one in items for item in one.fahrenheit])
    found["value"] = found["value"].where(~warm, (found["value"] - 32) * 5 / 9)
    found["name"] = found["item"].map({item: one.name for item, one in owner.items()})
    found = found[["subject", "time", "name", "value"]].merge(stays[["id", "subject", "start", "end"]], on="subject")
    ahead = (found["start"] - found["time"]).dt.total_seconds()
    seconds = {one.name: np.inf if one.before is None else one.before.total_seconds() for one in items}
    found = found[(found["time"] <= found["end"]) & (ahead <= found["name"].map(seconds).astype(float))]
    limits = {one.name: (one.low, one.high) for one in items}
    low, high = (found["name"].map({name: ends[i] for name, ends in limits.items()}).astype(float) for i in (0, 1))
    plausible = (found["value"] >= low) & (found["value"] <= high)
    inside = found["time"] >= found["start"]
    out, read = (found.loc[these, "name"].value_counts() for these in (inside & ~plausible, inside))
    dropped = {one.name: (int(out.get(one.name, 0)), int(read.get(one.name, 0))) for one in items}
    return found.loc[plausible, ["id", "time", "name", "value"]].reset_index(drop=True), dropped


def starts_of(events: pd.DataFrame, stays: pd.DataFrame, codes: re.Pattern[str], name: str) -> tuple[pd.DataFrame, int]:
    """Events of a code that matches whole, of each stay, as actions.

    Returns:
        ``id``, ``time`` (of the start), ``name`` and ``end``: that of the infusion, paired with its start by order; of
        anything else, and of an infusion without an end, the start. And how many infusions have no end.
    """
    matches = events["code"].map({code: codes.fullmatch(code) is not None for code in events["code"].unique()})
    begun = events[matches.astype(bool)].assign(kind=lambda own: own["code"].str.removeprefix(START))
    ended = events[events["code"].str.startswith(END)].assign(kind=lambda own: own["code"].str.removeprefix(END))
    pair = ["subject", "kind", "number"]
    keyed = []
    for one in (begun, ended):
        ordered = one.sort_values("time", kind="stable")
        keyed.append(ordered.assign(number=ordered.groupby(["subject", "kind"]).cumcount()))
    both = keyed[0].merge(keyed[1][[*pair, "time"]].rename(columns={"time": "end"}), on=pair, how="left")
    endless = int((both["end"].isna() & both["code"].str.startswith(START)).sum())
    both["end"] = both["end"].where(both["end"] > both["time"], both["time"])
    inside = both[["subject", "time", "end"]].merge(
        stays[["id", "subject", "start", "end"]].rename(columns={"end": "last"}), on="subject"
    )
    inside = inside[(inside["end"] >= inside["start"]) & (inside["time"] <= inside["last"])]
    return inside[["id", "time", "end"]].assign(name=name).reset_index(drop=True), endless


def running(actions: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Actions that last, as single ones: at their start, and again at every point (``id``, ``time``) until their end.

    A step whose point lies within an action, or in which one starts, then has it.
    """
    times = {id: own["time"].sort_values().to_numpy() for id, own in points.groupby("id")}
    none = np.array([], dtype="datetime64[us]")
    inside = []
    for id, start, end in zip(actions["id"], actions["time"].to_numpy(), actions["end"].to_numpy(), strict=True):
        own = times.get(id, none)
        inside.append(own[np.searchsorted(own, start, "right") : np.searchsorted(own, end, "left")])
    count = [len(own) for own in inside]
    again = actions.loc[actions.index.repeat(count), ["id", "name"]].assign(time=np.concatenate([none, *inside]))
    return pd.concat([actions[["id", "time", "name"]], again], ignore_index=True)


def edges_of(stays: pd.DataFrame, first: pd.Timedelta, length: pd.Timedelta) -> pd.DataFrame:
    """Edges of bins of each stay, until its end: ``id``, ``time``; the first so long after its beginning."""
    spent = (stays["end"] - stays["start"]).dt.total_seconds().to_numpy() - first.total_seconds()
    count = np.maximum(np.floor(spent / length.total_seconds()).astype(np.int64) + 1, 0)
    number = np.concatenate([np.arange(n) for n in count]) if len(count) else np.zeros(0, dtype=np.int64)
    begin = stays["start"].repeat(count).reset_index(drop=True)
    times = begin + first + pd.Series(number) * length
    return pd.DataFrame({"id": stays["id"].repeat(count).to_numpy(), "time": times.astype("datetime64[us]")})


def counted(dropped: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """Counts of :func:`readings_of` of several parts, added up."""
    total: dict[str, Any] = {}
    for one in dropped:
        for name, (out, read) in one.items():
            before = total.get(name, (0, 0))
            total[name] = (before[0] + out, before[1] + read)
    return total
