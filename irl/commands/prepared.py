"""A table, read and split as its commands need it; light to import, so that what is wrong with it comes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import known_names
from cirl_gym.data.outcomes import changing
from cirl_gym.files import escaped
from cirl_gym.tables.columns import TableColumns, TableOptions
from cirl_gym.tables.read import PreparedTable, prepare_table
from irl.commands.options import TableArguments

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
    if len(set(table.train.groups)) < 2:  # said now, and not after the models are fitted
        raise ValueError(
            f"{table.report.episodes.groups} patients are too few: weights are learnt from at least two, and two more "
            "are held out"
        )
    return table


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
