"""A table, read and split as its commands need it; light to import, so that what is wrong with it comes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import ACTIONS_BEFORE
from cirl_gym.data.known import known_names
from cirl_gym.data.outcomes import changing
from cirl_gym.files import escaped
from cirl_gym.tables.columns import TableColumns, TableOptions
from cirl_gym.tables.read import PreparedTable, check_enough, prepare_table
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from irl.commands.arguments import TableArguments, WeighedArguments, habit_contexts
from irl.commands.options import ExplainOptions, check_at_once

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables.sheet import Sheet


def prepared(
    frame: pd.DataFrame | Sheet,
    columns: TableColumns,
    how: TableOptions,
    outcomes: Sequence[str],
    forbid: Sequence[str],
    seed: int,
) -> PreparedTable:
    """Training, validation and test episodes of a table with all that is weighed in them.

    Args:
        frame: the table.
        columns: which column is what.
        how: how it is read.
        outcomes: what is weighed; none: the features.
        forbid: rules of what could not be done.
        seed: that of the run; it draws who is held out.

    Raises:
        ValueError: the table cannot be used as it is; or too few patients are left to learn from.
    """
    table = prepare_table(frame, columns, how, rng=np.random.default_rng([seed, 0]))
    asked_for = (outcomes, columns.features)
    table = table.with_lags(changing(*asked_for)).with_known(known_names(*asked_for)).masked(forbid)
    check_enough(table.train.groups, table.report.episodes.groups)
    return table


def asked_table(
    options: ExplainOptions, source: Path | pd.DataFrame
) -> tuple[PreparedTable, TableOptions, dict[str, int]]:
    """The table of a file or frame as ``options`` ask for it, how it was read, and the signs that are known.

    Raises:
        ValueError: what is wrong with the options, a name or the table, in this order.
        OSError: the file cannot be read.
    """
    check_at_once(options)
    asked = options.weighed
    habits = [name for name in habit_contexts(asked.habit, ()) if name not in ACTIONS_BEFORE]
    sheet, columns, how = options.columns.read(source, habits)
    signs = signs_of(asked, columns)
    return prepared(sheet, columns, how, asked.outcomes, asked.forbid, options.seed), how, signs


def signs_of(asked: WeighedArguments, columns: TableColumns) -> dict[str, int]:
    """By outcome the sign of its weight, where it is said that it is known.

    Raises:
        ValueError: a name is no outcome of such columns, or an entry cannot be read.
    """
    return known_signs(chosen_outcomes(columns, asked.outcomes), asked.lower_is_better, asked.sign)


def splits(data: Path, arguments: TableArguments, seed: int) -> tuple[Batch, Batch]:
    """Training and validation episodes: of a table those that ``cirl explain`` takes with the same seed.

    Of a batch (``.npz``) a tenth of the groups are held out.

    Raises:
        ValueError: the file cannot be used, or options of a table are given with a batch.
    """
    if data.suffix == ".npz":
        given = [f.name for f in fields(arguments) if getattr(arguments, f.name) != f.default]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"{data} is a batch, whose columns are known; {options} say how a table is read")
        parts: tuple[Batch, ...] = Batch.load(data).split(0.1, np.random.default_rng([seed, 0]))
    else:
        frame, columns, how = arguments.read(data)
        table = prepare_table(frame, columns, how, rng=np.random.default_rng([seed, 0]))
        for line in table.report.lines():
            print(escaped(line))
        parts = (table.train, table.validation, table.test)
    horizon = max(part.horizon for part in parts)
    return parts[0].with_early_ends(horizon), parts[1].with_early_ends(horizon)
