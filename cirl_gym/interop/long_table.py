"""Batches as long tables of pandas, one row per episode and time, and back without a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cirl_gym.data.batch import Batch

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables.columns import TableColumns, TableOptions
    from cirl_gym.tables.read import TableReport

_NAMES = ("id", "step", "action", "patient", "terminated", "truncated")


def to_long_table(batch: Batch, columns: TableColumns | None = None) -> pd.DataFrame:
    """A table of ``sum(k + 1)`` rows, as :meth:`Batch.from_dataframe` and :func:`from_long_table` read it.

    A row holds the id and the group as text (the latter in a column "patient", a name that the reader knows), the step
    t from 0, the d features (float32, raw units), the name of the action that was chosen after them (a categorical
    whose categories are all A names in their order; missing on the last row of an episode, which has no action), and
    two flags that are 1 on the last row if the process ended there (``terminated``) or watching did (``truncated``).

    Args:
        batch: N episodes.
        columns: what to call the columns; None: id, patient, step, action, terminated, truncated, and the features'
            names. All of these are needed, since nothing of the batch may be lost.

    Raises:
        ValueError: two columns would have one name, a column is not named or the features are others than the
            batch's, or an id or group is blank, which in a table cannot be told from an empty cell.
    """
    import pandas as pd

    from cirl_gym.tables.columns import TableColumns
    from cirl_gym.tables.sheet import check_names

    if columns is None:
        columns = TableColumns(*_NAMES[:3], batch.features, *_NAMES[3:])
    if columns.group is None or columns.terminated is None or columns.truncated is None:
        raise ValueError("columns must name group, terminated and truncated: the table would lose them")
    if not isinstance(columns.action, str):
        raise ValueError(f"a batch has one action per step, but columns names {len(columns.action)} for it")
    if columns.features != batch.features:
        raise ValueError(f"columns has the features {columns.features}, the batch {batch.features}")
    check_names(columns.used, "columns")
    _check_not_blank("id", batch.ids)
    _check_not_blank("group", batch.groups)

    rows = batch.horizon + 1
    live = batch.seen
    last = np.arange(rows) == batch.lengths[:, None]
    episode, step = np.nonzero(live)
    chosen = np.full(live.shape, -1, dtype=np.int64)
    chosen[:, :-1][batch.mask] = batch.actions[batch.mask]
    content: dict[str, object] = {
        columns.id: np.array(batch.ids, dtype=object)[episode],
        columns.group: np.array(batch.groups, dtype=object)[episode],
        columns.time: step.astype(np.int64),
        **{name: batch.obs[..., j][live] for j, name in enumerate(columns.features)},
        columns.action: pd.Categorical.from_codes(
            chosen[live], categories=pd.Index(batch.action_names, dtype=object), ordered=False
        ),
        columns.terminated: (last & batch.terminated[:, None])[live].astype(np.int64),
        columns.truncated: (last & batch.truncated[:, None])[live].astype(np.int64),
    }
    return pd.DataFrame(content)


def from_long_table(
    frame: pd.DataFrame, columns: TableColumns | None = None, options: TableOptions | None = None
) -> tuple[Batch, TableReport]:
    """The batch of a table that :func:`to_long_table` made, and the account of its rows.

    The reader is :func:`cirl_gym.tables.read.from_dataframe`, with its checks and repairs. What this adds: the default
    names of the columns, and, where the action is a categorical, that the actions are numbered as its categories are
    (the reader alone sorts those that occur). A batch comes back equal, padded to its longest episode. A CSV file
    keeps no categories; Parquet does.

    Args:
        frame: the table; rows in any order.
        columns: which column is what; None: the default names of :func:`to_long_table`, all others being features.
        options: of the reader, see :class:`~cirl_gym.tables.columns.TableOptions`.

    Raises:
        ValueError: the table cannot be used as it is (the reader refuses tables in which only one action is ever
            taken, for instance); the message names column, id and row, or the option to give.
    """
    import pandas as pd

    from cirl_gym.tables.columns import TableColumns, check_known
    from cirl_gym.tables.read import from_dataframe

    if columns is None:
        features = tuple(str(name) for name in frame.columns if name not in _NAMES)
        columns = TableColumns(*_NAMES[:3], features, *_NAMES[3:])
    check_known(columns.used, [str(name) for name in frame.columns])
    if not isinstance(columns.action, str):
        return from_dataframe(frame, columns, options)
    action = frame[columns.action]
    if not isinstance(action.dtype, pd.CategoricalDtype):
        return from_dataframe(frame, columns, options)
    codes = action.cat.codes.astype("Int64")
    numbered = frame.assign(**{columns.action: codes.mask(codes < 0)})
    batch, report = from_dataframe(numbered, columns, options)
    of_code = np.array([int(name) for name in batch.action_names])
    names = tuple(str(name) for name in action.cat.categories)
    return replace(batch, actions=of_code[batch.actions], action_names=names), report


def _check_not_blank(column: str, names: Sequence[str]) -> None:
    blank = [name for name in names if not name.strip()]
    if blank:
        raise ValueError(f"the {column} {blank[0]!r} is blank: a table cannot tell it from an empty cell")
