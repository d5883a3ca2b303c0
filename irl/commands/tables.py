"""``cirl explain TABLE`` and ``cirl tune TABLE``: what is wrong with the table or a name in it is said first.

PyTorch and the samplers take seconds to import; they are imported once the table can be used.
"""

from __future__ import annotations

from irl.commands.options import ExplainOptions, TuneOptions
from irl.commands.prepared import asked_table, splits


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
    asked = asked_table(options, options.table)
    from irl.commands import explain

    explain.of_table(options, *asked)
