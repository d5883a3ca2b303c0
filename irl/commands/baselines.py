"""``cirl baselines RUN``: the paper's methods, the control and habits on the episodes of a run, in one table."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from rich.console import Console

from cirl_gym.files import read_json, write_json
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.oracle import OracleModel
from irl.baselines.judge import FinishedRun, habits, load_finished
from irl.baselines.methods import DSFNLoopConfig, found_by_run, planned_stages, quick_dsfn, settings_of, solve
from irl.checks.metrics import RETURN_EPISODES, accuracy
from irl.checks.predictors import REFERENCES
from irl.commands.options import BaselinesOptions
from irl.commands.terminal import console
from irl.preferences.likelihood import constant_chances, finite_logs, log_chances
from irl.processes import all_done, engine
from irl.report.comparison import report_of_baselines
from irl.report.terminal import show
from irl.result.baselines import METHODS, Baselines, Row, chosen_methods
from irl.result.codec import SCHEMA, plain, restored
from irl.result.result import installed_versions
from irl.settings import FitConfig
from irl.stages import stages
from irl.stored_stages import code_digest
from irl.study import Study

BASELINES = "baselines.json"
ROWS = "rows"
"""Folder of the finished rows, one file each."""


def quick_fit(fit: FitConfig) -> FitConfig:
    """A run's settings with less work: one outcome model, of the run's kind and form."""
    outcome = replace(OutcomeModelConfig.quick(), base=fit.outcome.base, relative=fit.outcome.relative)
    return replace(fit.quick(), model=fit.model, outcome=outcome)


def command(options: BaselinesOptions, dsfn: DSFNLoopConfig | None = None) -> Baselines:
    """Let every method learn from the episodes of a run, print one table, write ``baselines.json``.

    A method that is done is stored in ``rows/`` with its settings. When the command is given again, after it was
    stopped or with further methods, those whose settings are the same are taken from there.

    Args:
        options: of the command line.
        dsfn: how DSFN and DSFN(h) learn; default: as in their paper.

    Raises:
        ValueError: the folder is not a whole run's or an option is not possible; or, when all else is written, a method
            failed: its row says why.
        OSError: the folder cannot be written to.
    """
    if options.seed is not None and options.seed < 0:
        raise ValueError(f"seed must not be negative, got {options.seed}")
    torch.set_num_threads(1)
    folder = options.run if options.out is None else options.out
    loaded = load_finished(options.run)
    methods = chosen_methods(options.methods, loaded.truth is not None)
    seed = loaded.seed if options.seed is None else options.seed
    fit, dsfn = loaded.fit, dsfn or DSFNLoopConfig()
    if options.quick:
        fit, dsfn = quick_fit(fit), quick_dsfn(dsfn)
    study = Study(*loaded.split(), loaded.feature_map, loaded.signs, fit, seed)
    (folder / ROWS).mkdir(parents=True, exist_ok=True)
    (folder / BASELINES).unlink(missing_ok=True)  # of other methods, or of an older run
    rows = _rows(methods, study, dsfn, loaded, folder / ROWS, options.jobs)
    episodes = {"train": len(study.train), "validation": len(study.validation), "test": len(loaded.test)}
    found = Baselines(
        run=str(options.run),
        features=loaded.feature_map.features,
        true_weights=None if loaded.truth is None else tuple(loaded.truth.weights),
        ceiling=loaded.ceiling,
        gap_in=loaded.world.name,
        episodes=episodes if loaded.truth is None else {**episodes, "patients": RETURN_EPISODES},
        seed=seed,
        quick=options.quick,
        cross_validated=loaded.own_scores if loaded.folds else {},
        rows=(*rows, *_references(loaded)),
        notes=_notes(study, options.quick, methods),
    )
    found.write(folder / BASELINES)
    show(report_of_baselines(found, folder), console())
    if found.failed:
        told = "; ".join(f"{name}: {error}" for name, error in found.failed.items())
        raise ValueError(f"{len(found.failed)} of {len(methods)} methods failed ({told}); the others are in {folder}")
    return found


def _rows(
    methods: tuple[str, ...], study: Study, dsfn: DSFNLoopConfig, loaded: FinishedRun, folder: Path, jobs: int
) -> list[Row]:
    """One row for each method. One process shows how far each method has come, several how many are done."""
    shown, found = Console(stderr=True), {}
    tell = partial(shown.print, markup=False, highlight=False, soft_wrap=True)
    settings = {method: _settings(method, study, dsfn, loaded) for method in methods}
    with engine("loky", jobs):
        for number, method in enumerate(methods, 1):
            path = folder / f"{method}.json"
            stored = stored_row(path, method, settings[method])
            if jobs == 1 or stored is not None:
                tell(f"{number} of {len(methods)}: {METHODS[method]}")
            if stored is not None:
                tell(f"taken from {path}")
                found[method] = stored
            elif jobs == 1:
                found[method] = _row(method, study, dsfn, loaded, settings[method], path, shown)
        left = [method for method in methods if method not in found]
        if left:
            with stages(1, console=shown) as run, run.stage(", ".join(METHODS[method] for method in left)) as report:
                calls = [
                    partial(_row, method, study, dsfn, loaded, settings[method], folder / f"{method}.json", None)
                    for method in left
                ]
                found |= zip(left, all_done(calls, report), strict=True)
    return [found[method] for method in methods]


def _row(
    method: str,
    study: Study,
    dsfn: DSFNLoopConfig,
    loaded: FinishedRun,
    settings: dict[str, Any],
    path: Path,
    shown: Console | None,
) -> Row:
    """A new row; a failure is not stored, so that it is tried again."""
    path.unlink(missing_ok=True)
    # The one place where the simulator is handed to a method, and it is the control alone that gets it.
    oracle = OracleModel(loaded.truth.parameters) if method == "oracle" and loaded.truth is not None else None
    try:
        with stages(planned_stages(method, study.config) + 1, console=shown, quiet=shown is None) as run:
            began = time.perf_counter()
            asked = replace(study, stages=run)
            found = found_by_run(loaded) if method == "cirl" else solve(method, asked, dsfn, oracle)
            # Every fit clones as well, which is a row of its own. The run's own time is in its result.
            cloning = 0.0 if method == "cloning" else run.seconds.get("behaviour cloning", 0.0)
            seconds = None if method == "cirl" else time.perf_counter() - began - cloning
            with run.stage("evaluation"):
                measured = loaded.measured(found.policy) | loaded.against_truth(found.row.weights)
                scores = found.row.scores if found.log_chances is None else loaded.scores(found.log_chances)
            row = structs.replace(found.row, seconds=seconds, scores=scores, **measured)
    except Exception as error:  # whatever it is, the other methods go on, and the row and the exit status say so
        if not isinstance(error, ValueError):
            traceback.print_exc()
        return Row(method=method, error=str(error) or type(error).__name__)
    write_json(path, {"schema": SCHEMA, "settings": settings, "row": plain(row, "row")})
    return row


def stored_row(path: Path, method: str, settings: dict[str, Any]) -> Row | None:
    """The row of a method that an earlier call finished with just these settings, or None."""
    try:
        content = read_json(path)
        if not isinstance(content, dict) or content.get("schema") != SCHEMA or content.get("settings") != settings:
            return None
        row = restored(Row, content.get("row"), f"row {method}")
    except (OSError, ValueError):
        return None
    return row if row.method == method and row.error is None else None


def _settings(method: str, study: Study, dsfn: DSFNLoopConfig, loaded: FinishedRun) -> dict[str, Any]:
    """All that a row depends on, in JSON's own types."""
    phi = loaded.feature_map
    settings: dict[str, Any] = plain(
        {
            "method": method,
            "seed": study.seed,
            "settings": settings_of(method, study.config, dsfn),
            "ranges": {name: [phi.low[i], phi.high[i]] for i, name in enumerate(phi.features)},
            "files": loaded.files,
            "versions": installed_versions() | {"code": code_digest()},
        },
        "settings",
    )
    return settings


def _references(loaded: FinishedRun) -> list[Row]:
    """Simulated experts as they would act without mistakes, what foresees their decisions by habit alone, and habits.

    Beside the experts' row stand the chances of their own that they acted by, mistakes included.
    """
    truth, rows = loaded.truth, []
    if truth is not None:
        own = loaded.scores(lambda batch: finite_logs(truth.chances[: len(batch)]))
        rows.append(Row(method="expert", model="simulator", memory=True, scores=own, **loaded.measured(truth.expert)))
    for name, fitted in REFERENCES.items():
        predictor = fitted(loaded.train, loaded.seed)
        met = accuracy(predictor.log_probabilities(loaded.test).argmax(axis=2), loaded.test)
        rows.append(Row(method=name, memory=True, accuracy=met, scores=loaded.scores(predictor.log_probabilities)))
    frequencies = constant_chances(loaded.train, more=1.0)
    scores = {"majority": loaded.scores(lambda batch: log_chances(frequencies, batch)), "repeat": None}
    for name, policy in habits(loaded.train, loaded.rules).items():
        rows.append(Row(method=name, memory=name == "repeat", scores=scores[name], **loaded.measured(policy)))
    return rows


def _notes(study: Study, quick: bool, methods: tuple[str, ...]) -> tuple[str, ...]:
    notes = [
        f"All others learn from {len(study.train)} episodes and choose by {len(study.validation)}: those that "
        "the run learnt from, split anew by its seed, since what it chose by is not saved."
    ]
    if "cirl" in methods:
        notes.insert(0, "CIRL is the run itself, as it was found; nothing of it is fitted again.")
    if {"dsfn", "dsfn_h"} & set(methods):
        notes.append(
            "Weights of DSFN are weak evidence: without an outcome model, what policies unlike the experts' lead to is "
            "guessed."
        )
    if study.config.forbid:
        notes.append(f"No method's policy does what is forbidden: {'; '.join(study.config.forbid)}.")
    if quick:
        notes.append("Quick: every method did a fraction of its work.")
    return tuple(notes)
