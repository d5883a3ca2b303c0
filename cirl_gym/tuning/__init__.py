"""Hyper-parameter search of the networks among the outcome models: the paper's tables, tried in a study that survives.

:func:`tune` tries combinations of a :class:`Search` until there are enough and gives a :class:`Tuning`, which writes
``tuning.json``; :func:`read_tuned` reads the best settings from it. Only :func:`tune` needs Optuna.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    **dict.fromkeys(
        ("Parameter", "Search", "Tuning", "TuningConfig", "TrialRow", "load_search", "read_tuned", "shown"),
        "cirl_gym.tuning.search",
    ),
    "tune": "cirl_gym.tuning.study",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cirl_gym.tuning' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
