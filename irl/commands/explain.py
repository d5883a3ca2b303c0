"""``cirl demo`` and ``cirl explain TABLE``: what experts were trading off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cirl_gym.files import escaped
from cirl_gym.tables.read import PreparedTable
from irl import whole_run
from irl.commands.options import DemoOptions, ExplainOptions, fit_config
from irl.commands.prepared import prepared
from irl.commands.terminal import console
from irl.processes import engine
from irl.report.run import report_of
from irl.report.terminal import show
from irl.result.result import Result
from irl.run import Run
from irl.settings import DemoConfig, ExplainConfig
from irl.stored_stages import remove

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables.columns import TableOptions
    from cirl_gym.tables.sheet import Sheet


def command(options: DemoOptions) -> None:
    """Run ``cirl demo``; raises as :func:`demo` does."""
    config = DemoConfig(
        options.weights, options.kappa, options.episodes, seed=options.seed, expert_habit=options.expert_habit
    )
    config = replace(config.quick() if options.quick else config, fit=fit_config(options))
    with engine("loky", options.jobs):
        if options.fresh:
            remove(options.out)
        demo(config, options.out)


def of_table(options: ExplainOptions, table: PreparedTable, how: TableOptions, signs: Mapping[str, int]) -> None:
    """Run ``cirl explain`` on a table that was read as ``how`` says; raises as :func:`explain` does."""
    asked = whole_run.asked_of(options, table.report.columns, how, signs, options.table.name)
    with engine("loky", options.jobs):
        if options.fresh:
            remove(options.out)
        explain(table, asked, options.out)


def demo(config: DemoConfig, out: Path) -> Result:
    """Recover a simulated expert's preferences, compare them with the truth, print what was found.

    Raises:
        ValueError: an option is out of its range.
        OSError: the folder cannot be written to.
    """
    return _shown(whole_run.demo(config, out))


def explain(frame: pd.DataFrame | Sheet | PreparedTable, config: ExplainConfig, out: Path) -> Result:
    """Recover the preferences behind a table of decisions, print what was found in it and of them.

    Raises:
        ValueError: the table cannot be used as it is; the message names column, id and row, or the option to give.
        OSError: the folder cannot be written to.
    """
    table = frame
    if not isinstance(table, PreparedTable):
        table = prepared(table, config.columns, config.options, config.outcomes, config.fit.forbid, config.seed)
    for line in table.report.lines():
        print(escaped(line))
    return _shown(whole_run.explain(whole_run.Episodes.of_table(table), config, out))


def _shown(run: Run) -> Result:
    show(report_of(run.result, folder=run.folder), console())
    return run.result
