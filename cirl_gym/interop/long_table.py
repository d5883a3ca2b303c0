"""A batch as a table of pandas, one row per episode and time, and back without a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.types import IntArray

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables import TableColumns, TableOptions, TableReport

_COLUMNS = ("id", "step", "action", "patient", "terminated", "truncated")


def columns_of(batch: Batch) -> TableColumns:
    """What the columns of a batch are called in :func:`to_long_table`.

    Raises:
        ValueError: a feature or a context has one of the other columns' names.
    """
    from cirl_gym.tables.columns import TableColumns

    named = tuple(name for name, _ in batch.contexts)
    return TableColumns(*_COLUMNS[:3], batch.features, *_COLUMNS[3:], contexts=named)


def to_long_table(batch: Batch, columns: TableColumns | None = None) -> pd.DataFrame:
    """A table of ``sum(k + 1)`` rows, as :meth:`Batch.from_dataframe` and :func:`from_long_table` read it.

    A row holds the id and the group as text (the latter in a column "patient", a name that the reader knows), the step
    t from 0, the d features (float32, raw units), the name of the action that was chosen after them (a categorical
    whose categories are all A names in their order; missing on the last row of an episode, which has no action), and
    two flags that are 1 on the last row if the process ended there (``terminated``) or watching did (``truncated``).
    Contexts of habits are categoricals as the action is, with the level of the decision. (What rules allowed is no
    column: say the rules again.)

    ``columns`` says what to call them; None: id, patient, step, action, terminated, truncated, and the names of the
    features and contexts. All of these are needed, since nothing of the batch may be lost.

    Raises:
        ValueError: two columns would have one name, a column is not named or the features or contexts are others than
            the batch's, or an id or group is blank, which in a table cannot be told from an empty cell.
    """
    import pandas as pd

    from cirl_gym.tables.files import check_names

    named = tuple(name for name, _ in batch.contexts)
    if columns is None:
        columns = columns_of(batch)
    if columns.group is None or columns.terminated is None or columns.truncated is None:
        raise ValueError("columns must name group, terminated and truncated: the table would lose them")
    if not isinstance(columns.action, str):
        raise ValueError(f"a batch has one action per step, but columns names {len(columns.action)} for it")
    if columns.features != batch.features:
        raise ValueError(f"columns has the features {columns.features}, the batch {batch.features}")
    if columns.contexts != named:
        raise ValueError(f"columns has the contexts {columns.contexts}, the batch {named}")
    both = [name for name in columns.contexts if name in columns.features]
    if both:
        raise ValueError(f"{both[0]!r} is a feature and a context: two columns would have one name")
    check_names(columns.used, "columns")
    for column, names in (("id", batch.ids), ("group", batch.groups)):
        blank = [name for name in names if not name.strip()]
        if blank:
            raise ValueError(f"the {column} {blank[0]!r} is blank: a table cannot tell it from an empty cell")

    live = batch.seen
    last = np.arange(batch.horizon + 1) == batch.lengths[:, None]
    episode, step = np.nonzero(live)

    def decided(numbers: IntArray, names: Sequence[str]) -> pd.Categorical:
        codes = np.full(live.shape, -1, dtype=np.int64)
        codes[:, :-1][batch.mask] = numbers[batch.mask]
        return pd.Categorical.from_codes(codes[live], categories=pd.Index(list(names), dtype=object), ordered=False)

    content: dict[str, object] = {
        columns.id: np.array(batch.ids, dtype=object)[episode],
        columns.group: np.array(batch.groups, dtype=object)[episode],
        columns.time: step.astype(np.int64),
        **{name: batch.obs[..., j][live] for j, name in enumerate(columns.features)},
        **{name: decided(batch.levels_of(name), levels) for name, levels in batch.contexts},
        columns.action: decided(batch.actions, batch.action_names),
        columns.terminated: (last & batch.terminated[:, None])[live].astype(np.int64),
        columns.truncated: (last & batch.truncated[:, None])[live].astype(np.int64),
    }
    return pd.DataFrame(content)


def from_long_table(
    frame: pd.DataFrame, columns: TableColumns | None = None, options: TableOptions | None = None
) -> tuple[Batch, TableReport]:
    """The batch of a table that :func:`to_long_table` made, and the account of its rows.

    The reader is :func:`cirl_gym.tables.read.from_dataframe`, with its checks and repairs. What this adds: the default
    names of the columns; episodes in the order of their first rows; and, where the action or a context is a
    categorical, that its values are numbered as the categories are (the reader alone sorts those that occur). A batch
    comes back equal, padded to its longest episode. A CSV file keeps no categories; Parquet does.

    Rows may stand in any order. ``columns`` says which column is what; None: the default names of
    :func:`to_long_table`, all others being features, or contexts if they are categoricals.

    Raises:
        ValueError: the table cannot be used as it is (the reader refuses tables in which only one action is ever
            taken, or a context has one level, for instance); the message names column, id and row, or the option to
            give.
    """
    import pandas as pd

    from cirl_gym.tables.columns import TableColumns, TableOptions, check_known
    from cirl_gym.tables.read import from_dataframe
    from cirl_gym.tables.sheet import Sheet

    def categories(column: str) -> tuple[str, ...] | None:
        kind = frame[column].dtype
        return tuple(map(str, kind.categories)) if isinstance(kind, pd.CategoricalDtype) else None

    if columns is None:
        others = [str(name) for name in frame.columns if name not in _COLUMNS]
        contexts = tuple(name for name in others if categories(name) is not None)
        features = tuple(name for name in others if name not in contexts)
        columns = TableColumns(*_COLUMNS[:3], features, *_COLUMNS[3:], contexts=contexts)
    check_known(columns.used, [str(name) for name in frame.columns])
    coded = columns.contexts if len(columns.actions) > 1 else (*columns.actions, *columns.contexts)
    known = {column: names for column in coded if (names := categories(column)) is not None}
    codes = {column: frame[column].cat.codes.astype("Int64") for column in known}
    batch, report = from_dataframe(
        frame.assign(**{column: code.mask(code < 0) for column, code in codes.items()}),
        columns,
        replace(options or TableOptions(), as_written=True),  # names are those that the batch had
    )
    rows = {name: row for row, name in enumerate(batch.ids)}
    first = [rows[name] for name in dict.fromkeys(Sheet(frame).texts(columns.id)) if name in rows]
    return _renumbered(batch.take(np.array(first)), report, known)


def _renumbered(batch: Batch, report: TableReport, known: Mapping[str, tuple[str, ...]]) -> tuple[Batch, TableReport]:
    """The same with actions and levels of contexts, which were read as numbers, by the names ``known`` for them."""
    from cirl_gym.tables.account import ActionCounts
    from cirl_gym.tables.read import counted
    from cirl_gym.tables.rows import MISSING

    contexts, levels = [], []
    for name, codes in batch.contexts:
        names, numbers = known.get(name), batch.levels_of(name)
        if names is not None:
            # Of a level that is "missing" no category is known: it comes behind them.
            names = (*names, MISSING) if MISSING in codes and MISSING not in names else names
            of_code = np.array([names.index(MISSING) if code == MISSING else int(code) for code in codes])
            numbers = of_code[numbers]
        contexts.append((name, names or codes))
        levels.append(numbers)
    if contexts:
        batch = replace(batch, contexts=tuple(contexts), context_levels=np.stack(levels, axis=-1))
    column = report.columns.actions[0]
    if column in known:
        of_action = np.array([int(name) for name in batch.action_names])
        batch = replace(batch, actions=of_action[batch.actions], action_names=known[column])
        told = {int(counts.action): counts for counts in report.taken}
        report = replace(
            report,
            actions=tuple({column: name} for name in known[column]),
            taken=tuple(
                replace(told[code], action=name) if code in told else ActionCounts(name, 0, 0, 0.0, "")
                for code, name in enumerate(known[column])
            ),
        )
    return batch, counted(report, batch, report.features)
