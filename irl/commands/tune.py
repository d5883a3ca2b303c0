"""``cirl tune``: which settings of an outcome model predict best what happened next."""

from __future__ import annotations

import os

import torch

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.tuning.search import Tuning, TuningConfig, shown
from cirl_gym.tuning.study import tune as search
from irl.commands.options import TuneOptions
from irl.commands.terminal import console
from irl.report.section import Rows, Table
from irl.report.terminal import show_table
from irl.stages import duration, stages


def search_settings(options: TuneOptions, train: Batch, validation: Batch) -> None:
    """Search on a table's or a batch's episodes, print every trial, write ``tuning.json``.

    Raises:
        ValueError: the data or an option cannot be used, or the study was begun with others.
        OSError: a file cannot be read or the folder not be written to.
        ImportError: Optuna is not installed.
    """
    config = TuningConfig(
        options.model,
        trials=options.trials,
        sampler=options.sampler,
        prune=options.prune,
        seed=options.seed,
        start=OutcomeModelConfig(base=not options.alone),
    )
    torch.set_num_threads(1)
    out = options.out
    out.mkdir(parents=True, exist_ok=True)  # before hours of training
    journal: str | os.PathLike[str] = options.storage or out / "study.journal"
    with stages(1) as run, run.stage(f"tuning {config.model}") as report:
        found = search(train, validation, config, journal, name=options.study, progress=report)
    found.write(out / "tuning.json")
    shown_on = console()
    show_table(trial_table(found), shown_on)
    for line in remarks(found):
        shown_on.print(line, soft_wrap=True)
    shown_on.print(f"Written to {out / 'tuning.json'}; the study is kept in {shown(journal)}", soft_wrap=True)


def trial_table(found: Tuning) -> Table:
    """Every trial: what was tried, in values and sizes, and what came of it."""
    parameters = found.config.table.parameters
    rows: Rows = []
    for row in found.trials:
        settings = [row.settings.get(parameter.fields[0]) for parameter in parameters]
        rows.append(
            [
                f"{row.number} *" if row.number == found.best.number else str(row.number),
                row.state,
                "" if row.value is None else f"{row.value:.5f}{' (law)' if row.accepted is False else ''}",
                *("" if value is None else f"{value:g}" for value in settings),
                "" if row.seconds is None else duration(row.seconds),
            ]
        )
    head = ["trial", "state", "error", *(parameter.name for parameter in parameters), "time"]
    return Table(f"{found.config.model}: one-step validation error, C = {found.inputs}", head, rows)


def remarks(found: Tuning) -> list[str]:
    """What should not be overlooked."""
    rows, table = found.trials, found.config.table
    counts = {state: sum(row.state == state for row in rows) for state in ("finished", "pruned", "diverged")}
    lines = ["* the best. Trials: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
    running = sum(row.state == "running" for row in rows)
    if running:
        lines.append(f"{running} still running elsewhere, or lost there; not counted")
    if sum(counts.values()) < found.config.goal:
        lines.append(f"All {table.combinations} combinations have been tried; there are no more")
    finished = [row for row in rows if row.state == "finished"]
    if finished and not any(row.accepted or row.epochs for row in finished):
        lines.append(
            "Nothing foretells the linear law's errors on the validation episodes: no network was trained, and every "
            "error is the law's"
        )
    elif all(row.accepted is False for row in finished):
        lines.append(
            "No network improved on the linear law: every error is the law's; the network that came closest is marked"
        )
    elif any(row.accepted is False for row in rows):
        lines.append("(law): the network did not improve on the linear law, which is what predicts")
    return lines
