"""The simulator closed: whatever reaches it afterwards raises."""

from __future__ import annotations

from cirl_gym.envs.tumour import TumourCohort, TumourEnv
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import TumourWorld


class SimulatorReached(BaseException):
    """Not an Exception, so that no handler can swallow it."""


def closed(*arguments, **options):
    raise SimulatorReached


CLOSED = [
    *((TumourWorld, name) for name in ("__init__", "reset", "start", "step")),
    *((TumourCohort, name) for name in ("__init__", "begin", "step")),
    *((TumourEnv, name) for name in ("__init__", "reset", "step")),
    *((OracleModel, name) for name in ("__init__", "start", "encode", "predict", "advance", "end_probability")),
    *((f"cirl_gym.worlds.tumour.{name}", None) for name in ("transition", "append", "draw_start", "initial_state")),
    *((f"cirl_gym.worlds.tumour.{name}", None) for name in ("first_observations", "restart", "expected_outcome")),
    *((f"cirl_gym.worlds.tumour.{name}", None) for name in ("terminal", "end_probability")),
]


def close_the_simulator(monkeypatch) -> None:
    for place, name in CLOSED:
        monkeypatch.setattr(place, closed) if name is None else monkeypatch.setattr(place, name, closed)
