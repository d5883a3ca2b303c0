"""Records of ICU stays from MEDS files beside a checkout: who, when, what, how much, as long tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

NEEDED = ["subject_id", "time", "code", "numeric_value", "icustay_id"]


def read_events(folder: Path) -> pd.DataFrame:
    """Every event with a time, of all shards, in the order of the files."""
    shards = [pd.read_parquet(path, columns=NEEDED) for path in sorted(folder.glob("data/**/*.parquet"))]
    return pd.concat(shards, ignore_index=True).dropna(subset="time")


def icu_stays(events: pd.DataFrame) -> pd.DataFrame:
    """One row per ICU stay: ``id``, ``subject_id``, ``start``, ``end``."""
    edges = {}
    for column, kind in (("start", "ICU_ADMISSION//"), ("end", "ICU_DISCHARGE//")):
        own = events[events["code"].str.startswith(kind)]
        edges[column] = own.set_index("icustay_id")["time"]
    stays = pd.DataFrame(edges)
    stays["subject_id"] = own.set_index("icustay_id")["subject_id"]
    stays.index = pd.Index(stays.index.astype("int64").astype(str), name="id")
    return stays.reset_index()


def records_of(events: pd.DataFrame, stays: pd.DataFrame, items: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Laboratory and charted values of each stay's patient, at whatever time: ``id``, ``time``, ``name``, ``value``.

    ``items`` are the item ids by the name of a variable.
    """
    item = events["code"].str.extract(r"^LAB//(\d+)//", expand=False)
    names = {str(number): name for name, numbers in items.items() for number in numbers}
    found = events.assign(name=item.map(names)).dropna(subset=["name", "numeric_value"])
    found["value"] = found["numeric_value"].astype("float64").round(4)  # they are single precision
    return found.merge(stays, on="subject_id")[["id", "time", "name", "value", "start", "end"]]


def inside(records: pd.DataFrame, name: str) -> pd.DataFrame:
    """Records without those of a variable that lie outside the stay."""
    out = (records["time"] < records["start"]) | (records["time"] > records["end"])
    return records[~(out & (records["name"] == name))]


def actions_of(events: pd.DataFrame, stays: pd.DataFrame, pattern: str, name: str) -> pd.DataFrame:
    """Events of each stay's patient whose code matches a pattern: ``id``, ``time``, ``name``."""
    found = events[events["code"].str.match(pattern)]
    return found.merge(stays, on="subject_id")[["id", "time"]].assign(name=name)
