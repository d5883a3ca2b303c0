"""Reading the folder that ``cirl demo`` or ``cirl explain`` left: what every command that takes one does first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from agents.expert import Expert, simulator_model
from agents.successor.agent import SuccessorAgent
from cirl_gym.files import read_json
from cirl_gym.worlds.tumour import TumourParameters


@contextmanager
def whole_run(run: Path) -> Iterator[None]:
    """Whatever is missing or wrong inside becomes one error that names the folder.

    Raises:
        ValueError: the folder is not a whole run's; the message says why.
    """
    try:
        yield
    except (OSError, KeyError, TypeError, ValueError) as error:
        told = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{run} is not the folder of a whole run: {told}") from error


def settings_of_run(run: Path) -> dict[str, Any]:
    """What the run was asked to do (``config.json``).

    Raises:
        OSError: there is no such file.
        ValueError: it is none of these two commands'.
    """
    settings = read_json(run / "config.json")
    if not isinstance(settings, dict) or settings.get("command") not in ("demo", "explain"):
        raise ValueError(f"{run / 'config.json'} is not the configuration of cirl demo or cirl explain")
    return settings


def forbidden(settings: dict[str, Any]) -> list[str]:
    """The rules of what could not be done (``--forbid``); a run of an earlier version had none."""
    return list(settings["fit"].get("forbid", ()))


def expert_of_run(run: Path, settings: dict[str, Any]) -> tuple[TumourParameters, Expert]:
    """The simulator of a ``cirl demo`` and the expert who acted in it."""
    parameters = TumourParameters(**settings["parameters"])
    model = simulator_model(parameters, forbidden(settings))
    agent = SuccessorAgent.load(run / "expert.npz", model)
    return parameters, Expert.of(agent, np.asarray(settings["weights"], dtype=np.float64), settings["kappa"])
