"""The table of a case study, from a MEDS data set, part by part; and the account of what was left out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cirl_gym.tables.measurements import DecisionOptions, DecisionReport, at_measurements, at_times, together
from cirl_gym.tables.meds import (
    counted,
    edges_of,
    icu_stays,
    parts,
    read_events,
    readings_of,
    running,
    starts_of,
)
from irl.case_studies.study import StudyDesign, span

_TICK = pd.Timedelta("1us")
"""The least time: an edge of a bin is so much before or after a reading of its own time."""


@dataclass(frozen=True)
class StudyTable:
    """A table of decisions, one row per decision point, and how it was made."""

    frame: pd.DataFrame
    """``stay``, ``subject``, ``time``, the covariates, the action (missing on the last row of a stay), ``terminated``,
    ``truncated``, in the order of stay and time."""
    report: DecisionReport
    stays: int
    """Stays of the data set."""
    cohort: int
    """Those that belong to the cohort."""
    implausible: dict[str, tuple[int, int]]
    """By covariate, how many values were left out as implausible, of how many inside the cohort's stays."""
    files: int
    incomplete: int
    """Stays that were left out, since they have no beginning or no end."""
    endless: int
    """Infusions without an end, which are taken to end where they start."""

    def lines(self) -> list[str]:
        """The account in sentences."""
        dropped = [
            f"{out} of {read} values of {name} left out: not plausible"
            for name, (out, read) in self.implausible.items()
            if out
        ]
        stays = f"{self.files} files, {self.stays} stays, {self.cohort} of them in the cohort"
        told = (
            (self.incomplete, "stays left out: no beginning, or no end"),
            (self.endless, "infusions have no end, and are taken to end where they start"),
        )
        return [stays, *(f"{count} {text}" for count, text in told if count), *dropped, *self.report.lines()]


def study_table(study: StudyDesign, folder: Path) -> StudyTable:
    """The table of a study, of all parts of a MEDS data set; one part at a time is in memory.

    Raises:
        ValueError: there is no such data set or a file of it is not whole, a subject is in two files, or no decision
            is found.
        ImportError: pyarrow is not installed.
    """
    made, subjects = [], set[int]()
    for path in parts(folder):
        one, own = _of_part(study, path)
        if both := subjects & own:
            raise ValueError(
                f"{path}: subject {min(both)} is in another file too: a MEDS data set has each in one file"
            )
        subjects |= own
        made.append(one)
    with_rows = [one for one in made if one.report is not None]
    if not with_rows or not sum(len(one.frame) for one in with_rows):
        raise ValueError(f"{folder}: no stay of the cohort has a decision of this study")
    frame = pd.concat([one.frame for one in with_rows if len(one.frame)], ignore_index=True)
    return StudyTable(
        frame.sort_values(["stay", "time"], kind="stable", ignore_index=True),
        together([one.report for one in with_rows if one.report is not None]),
        stays=sum(one.stays for one in made),
        cohort=sum(one.cohort for one in made),
        implausible=counted([one.implausible for one in made]),
        files=len(made),
        incomplete=sum(one.incomplete for one in made),
        endless=sum(one.endless for one in made),
    )


@dataclass(frozen=True)
class _PartTable:
    """What one file comes to; no report where the cohort has no stay in it."""

    frame: pd.DataFrame
    report: DecisionReport | None
    stays: int
    cohort: int
    incomplete: int
    endless: int
    implausible: dict[str, tuple[int, int]]


def _of_part(study: StudyDesign, path: Path) -> tuple[_PartTable, set[int]]:
    codes, items = re.compile(study.action.codes), [one.item for one in study.covariate]
    events = read_events(path, [number for one in items for number in one.items], codes)
    own = set(events["subject"])
    everyone, incomplete = icu_stays(events)
    stays = everyone.copy()
    if study.cohort.deaths:
        stays["end"] = stays["died"].fillna(stays["end"])
    acts, endless = starts_of(events, stays, codes, study.action.name)
    stays = _cohort(study, everyone, stays, acts)
    if stays.empty:
        return _PartTable(pd.DataFrame(), None, len(everyone), 0, incomplete, endless, {}), own
    readings, dropped = readings_of(events, stays, items)
    frame, report = _decisions(study, stays, readings, acts[acts["id"].isin(stays["id"])])
    frame = frame.rename(columns={"id": "stay", "patient": "subject"})
    return _PartTable(frame, report, len(everyone), len(stays), incomplete, endless, dropped), own


def _cohort(study: StudyDesign, everyone: pd.DataFrame, stays: pd.DataFrame, acts: pd.DataFrame) -> pd.DataFrame:
    """The stays of the cohort; a stay is as long as it was before a death ended it."""
    long = everyone["end"] - everyone["start"] >= span("cohort.least", study.cohort.least)
    if not study.cohort.acted:
        return stays[long].reset_index(drop=True)
    first = acts.groupby("id")["time"].max().reindex(stays["id"]).to_numpy()
    return stays[long & (first >= stays["start"])].reset_index(drop=True)


def _decisions(
    study: StudyDesign, stays: pd.DataFrame, readings: pd.DataFrame, acts: pd.DataFrame
) -> tuple[pd.DataFrame, DecisionReport]:
    when, action = study.decisions, study.action
    points = _edges(study, stays) if when.at is None or when.bins else readings[readings["name"] == when.at]
    options = DecisionOptions(
        window=action.window,
        margin=span("action.margin", action.margin),
        covariates=tuple(one.name for one in study.covariate),
        given=(action.name,),
        max_decisions=when.most,
        duplicates=study.same_time,
        patients=dict(zip(stays["id"], stays["subject"].astype(str), strict=True)),
        terminated=tuple(stays.loc[stays["died"].notna(), "id"]) if study.cohort.deaths else (),
        part=True,
    )
    taken = running(acts, points) if action.running else acts[["id", "time", "name"]]
    if when.at is None or when.bins:
        return at_times(readings, taken, points, options)
    return at_measurements(readings, taken, when.at, span("decisions.apart", when.apart), options)


def _edges(study: StudyDesign, stays: pd.DataFrame) -> pd.DataFrame:
    when = study.decisions
    lengths = (span("decisions.first", when.first), span("decisions.bins", when.bins or "0h"))
    edges = edges_of(stays, *lengths)
    return edges.assign(time=edges["time"] + (_TICK if when.at_edge == "known" else -_TICK))
