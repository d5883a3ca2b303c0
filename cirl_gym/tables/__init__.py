"""Tables of decisions, one row per episode and time, as batches.

:func:`read_table` reads a file, :func:`infer_columns` tells what its columns are (or says what it cannot tell),
:func:`prepare_table` gives training, validation and test batches and a :class:`TableReport` of every row, and
:func:`from_dataframe` one batch of all. A :class:`Sheet` holds a frame whose columns are parsed once.
:func:`at_measurements` makes such a table from records of readings and of actions, and :func:`answers_inside` counts
the actions that answer readings inside their own step.
"""

from cirl_gym.tables.account import TableReport
from cirl_gym.tables.answers import NOT_CHECKED, AnswerCounts, answers_inside
from cirl_gym.tables.columns import TableColumns, TableOptions, infer_columns
from cirl_gym.tables.files import read_table
from cirl_gym.tables.measurements import DecisionOptions, DecisionReport, at_measurements, at_times
from cirl_gym.tables.read import PreparedTable, from_dataframe, prepare_table
from cirl_gym.tables.sheet import Sheet

__all__ = [
    "NOT_CHECKED",
    "AnswerCounts",
    "DecisionOptions",
    "DecisionReport",
    "PreparedTable",
    "Sheet",
    "TableColumns",
    "TableOptions",
    "TableReport",
    "answers_inside",
    "at_measurements",
    "at_times",
    "from_dataframe",
    "infer_columns",
    "prepare_table",
    "read_table",
]
