"""Hyper-parameter search of the networks among the outcome models: the paper's tables, tried in a study that survives.

:func:`tune` tries combinations of a :class:`Search` until there are enough and gives a :class:`Tuning`, which writes
``tuning.json``; :func:`read_tuned` reads the best settings from it. Only :func:`tune` needs Optuna.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "search": "Parameter Search Tuning TuningConfig TrialRow load_search read_tuned shown",
    "study": "tune",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
