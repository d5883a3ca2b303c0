"""Hyper-parameter search of the networks among the outcome models: the paper's tables, tried in a study that survives.

:func:`tune` tries combinations of a :class:`Search` until there are enough and gives a :class:`Tuning`, which writes
``tuning.json``; :func:`read_tuned` reads the best settings from it. Only :func:`tune` needs Optuna.
"""

from cirl_gym.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".search": "Parameter Search Tuning TuningConfig TrialRow load_search read_tuned shown",
        ".study": "tune",
    },
)
