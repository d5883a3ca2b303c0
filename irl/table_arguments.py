"""The options of the command line that say how a table is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.table_schema import TableColumns, TableOptions


@dataclass(frozen=True)
class TableArguments:
    """Columns that are not named are found by their content, or asked for."""

    id: str | None = None
    """Column that names the episode (a hospital stay)."""
    time: str | None = None
    """Column of the time step, a number or a date."""
    action: tuple[str, ...] = ()
    """Column of the action; of several, every combination of values that was taken is one action."""
    features: tuple[str, ...] = ()
    """Columns of what was observed; default: all other columns, if they are numbers."""
    static: tuple[str, ...] = ()
    """Features that do not change within an episode (age), as numbers; they are observed and never weighed."""
    group: str | None = None
    """Column that says whose episode it is (a patient with several stays); default: found, if there is one."""
    end: Literal["terminated", "truncated"] | None = None
    """How episodes end, if the table has no columns terminated and truncated."""
    last_row: Literal["observation", "drop_action"] = "observation"
    """What the last row of an episode is, where not all agree."""
    duplicates: Literal["error", "first", "last", "mean"] = "error"
    """What to do with differing rows of one (id, time)."""
    lag: tuple[str, ...] = ()
    """Features that describe the time after the row's action (a dose given), moved to the next row."""

    def read(self, table: Path) -> tuple[pd.DataFrame, TableColumns, TableOptions]:
        """The table, which column is what, and how it is to be read.

        Raises:
            ValueError: it is no table, or what a column is cannot be told; the message names the option to give.
            OSError: there is no such file, or it may not be read.
        """
        from cirl_gym.table_file import read_table
        from cirl_gym.table_infer import infer_columns
        from cirl_gym.table_schema import TableOptions

        frame = read_table(table)
        columns = infer_columns(
            frame,
            id=self.id,
            time=self.time,
            action=self.action or None,
            features=self.features or None,
            group=self.group,
            static=self.static,
        )
        options = TableOptions(end=self.end, last_row=self.last_row, duplicates=self.duplicates, lag=self.lag)
        return frame, columns, options


AS_FOUND = TableArguments()
"""Nothing is said of the table."""
