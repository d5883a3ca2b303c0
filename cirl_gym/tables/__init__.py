"""Tables of decisions, one row per episode and time, as batches.

:func:`read_table` reads a file, :func:`infer_columns` tells what its columns are (or says what it cannot tell),
:func:`prepare_table` gives training, validation and test batches and a :class:`TableReport` of every row, and
:func:`from_dataframe` one batch of all. A :class:`Sheet` holds a frame whose columns are parsed once.
"""

from cirl_gym.tables.columns import TableColumns, TableOptions, infer_columns
from cirl_gym.tables.read import PreparedTable, TableReport, from_dataframe, prepare_table
from cirl_gym.tables.sheet import Sheet, read_table

__all__ = [
    "PreparedTable",
    "Sheet",
    "TableColumns",
    "TableOptions",
    "TableReport",
    "from_dataframe",
    "infer_columns",
    "prepare_table",
    "read_table",
]
