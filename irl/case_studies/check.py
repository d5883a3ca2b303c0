"""Would experts who are known be recovered from a study's table (:mod:`irl.semi_synthetic`)?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cirl_gym.data.batch import PREVIOUS, Batch
from cirl_gym.files import StoredParts, read_json, write_json
from irl.processes import one_thread
from irl.result.case_study import CheckedRun
from irl.result.sentences import weights_mean_something
from irl.semi_synthetic import brief, matters, run, ward_of
from irl.settings import ExplainConfig
from irl.whole_run import Episodes

CHECK = "check"
"""Folder of the runs that are done, one file each."""


def checked(
    episodes: Episodes,
    outcomes: Sequence[str],
    config: ExplainConfig,
    runs: int,
    folder: Path,
    told: Callable[[int, CheckedRun], None],
) -> tuple[CheckedRun, ...]:
    """Let experts who are known act in a world fitted to the table, and fit what they do.

    A run whose file is there is not repeated; give another folder where the table or the settings differ.

    Args:
        episodes: of the study's table.
        outcomes: the d that were weighed, with the limit that was found in place of one that was sought.
        config: how it was fitted.
        runs: how many experts there are.
        folder: of the study.
        told: called after every run with its number and what was found.
    """
    everyone = Batch.together(episodes.splits)
    signs = np.array([config.signs.get(name, 0) for name in outcomes], dtype=np.float64)
    how = brief(replace(config.fit.whole(everyone.horizon), habit=(PREVIOUS,)))
    found = []
    with one_thread():
        ward = ward_of(everyone, outcomes, signs, how, StoredParts(folder / CHECK / "world"))
        for number in range(runs):
            path = folder / CHECK / f"run_{number:03}.json"
            if not path.is_file():
                write_json(path, run(ward, number, folder / CHECK, none=False, world_known=False))
            found.append(checked_run(read_json(path)))
            told(number, found[-1])
    return tuple(found)


def checked_run(found: Mapping[str, Any]) -> CheckedRun:
    """What is kept of a run's file."""
    said, truth = found["habit"], found["truth"]
    meant = weights_mean_something(said["verdict"])
    return CheckedRun(
        weights=truth["weights"],
        intervals=said["intervals"],
        kappa=truth["kappa"],
        kappa_interval=said["kappa_interval"],
        matter=matters(found),
        verdict=said["verdict"],
        read=tuple(meant and name not in said["uninterpreted"] for name in found["outcomes"]),
    )
