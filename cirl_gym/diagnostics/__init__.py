"""Diagnostics of outcome models: whether what a model says of chance holds, and what tells the treatment.

:func:`interval_coverage` and :func:`end_calibration` compare intervals and probabilities of an end with what happened;
:func:`treatment_probe`, :func:`fit_propensity`, :func:`overlap` and :func:`support` say how far the data reach: what a
model says of an action that was hardly ever tried is extrapolated. Errors one and several steps ahead are in
:mod:`cirl_gym.outcome_models.errors`. The names below are loaded when they are first used.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "calibration": "Coverage EndCalibration end_calibration interval_coverage member_predictions",
    "probe": "Overlap Support TreatmentProbe data_range fit_propensity overlap representations support treatment_probe",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
