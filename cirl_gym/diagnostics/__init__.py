"""Diagnostics of outcome models: whether what a model says of chance holds, and what tells the treatment.

:func:`interval_coverage` and :func:`end_calibration` compare intervals and probabilities of an end with what happened;
:func:`treatment_probe`, :func:`fit_propensity`, :func:`overlap` and :func:`support` say how far the data reach: what a
model says of an action that was hardly ever tried is extrapolated. Errors one and several steps ahead are in
:mod:`cirl_gym.outcome_models.errors`. The names below are loaded when they are first used.
"""

from cirl_gym.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".calibration": "Coverage EndCalibration end_calibration interval_coverage member_predictions",
        ".probe": "Overlap Support TreatmentProbe data_range fit_propensity overlap representations support "
        "treatment_probe",
    },
)
