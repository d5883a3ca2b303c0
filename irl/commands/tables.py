"""``cirl explain TABLE`` and ``cirl tune TABLE``: what is wrong with the table or a name in it is said first.

PyTorch and the samplers take seconds to import; they are imported once the table can be used.
"""

from __future__ import annotations

from cirl_gym.data.habits import ACTIONS_BEFORE
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from irl.commands.options import ExplainOptions, TuneOptions, check_at_once, habit_contexts
from irl.commands.prepared import prepared, splits


def command(options: ExplainOptions | TuneOptions) -> None:
    """Run ``cirl explain`` or ``cirl tune``.

    Raises:
        ValueError: the table or an option cannot be used.
        OSError: a file cannot be read or the folder not be written to.
        ImportError: Optuna, which ``cirl tune`` needs, is not installed.
    """
    if isinstance(options, TuneOptions):
        parts = splits(options.data, options.columns, options.seed)
        from irl.commands import tune

        tune.search_settings(options, *parts)
        return
    check_at_once(options)
    habits = [name for name in habit_contexts(options.habit, ()) if name not in ACTIONS_BEFORE]
    sheet, columns, how = options.columns.read(options.table, habits)
    outcomes = chosen_outcomes(columns, options.outcomes)
    signs = known_signs(outcomes, options.lower_is_better, options.sign)
    table = prepared(sheet, columns, how, options.outcomes, options.forbid, options.seed)
    from irl.commands import explain

    explain.of_table(options, table, how, signs)
