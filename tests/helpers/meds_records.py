"""Small MEDS data sets, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

DAY = "2150-03-01"


def event(subject: int, time: str | None, code: str, value: float | None = None, stay: int | None = None) -> list[Any]:
    """One event; ``time`` is of :data:`DAY` ("08:00"), or a whole date and time, or None."""
    when = time if time is None or " " in time else f"{DAY} {time}"
    return [subject, when, code, value, stay]


def stay(subject: int, number: int, start: str, end: str) -> list[list[Any]]:
    """A stay in intensive care, as its two events."""
    ward = "Medical Intensive Care Unit (MICU)"
    return [
        event(subject, start, f"ICU_ADMISSION//{ward}", stay=number),
        event(subject, end, f"ICU_DISCHARGE//{ward}", stay=number),
    ]


def meds_folder(folder: Path, *parts: Sequence[list[Any]], **dropped: bool) -> Path:
    """A data set of one file for each list of events."""
    for number, events in enumerate(parts):
        frame = pd.DataFrame(events, columns=["subject_id", "time", "code", "numeric_value", "icustay_id"])
        frame["time"] = pd.to_datetime(frame["time"]).astype("datetime64[us]")
        frame = frame.astype({"numeric_value": "float32", "icustay_id": "Int64"})
        path = folder / "data" / "train" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.drop(columns=[name for name, gone in dropped.items() if gone]).to_parquet(path, index=False)
    return folder
