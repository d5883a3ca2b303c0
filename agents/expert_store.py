"""Trained experts as folders: a policy and, beside it, the setting that it solves and the version that trained it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from agents.solvers import ALGORITHMS, Algorithm, Setting, Solved, train_expert
from cirl_gym.files import read_json, write_json
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.parameters import TumourParameters
from cirl_gym.types import Policy

VERSION = 2
"""Of experts: raised whenever the same setting and seed would train another policy, or files are read otherwise."""
ABOUT = "expert.json"


def save_expert(
    folder: str | os.PathLike[str],
    setting: Setting,
    algorithm: Algorithm,
    solved: Solved,
    *,
    seed: int = 0,
    scale: float = 1.0,
) -> Path:
    """Write what :func:`agents.solvers.train_expert` brought; the same arguments as there.

    Returns:
        The policy's file: ``expert.npz`` (no pickle) or ``expert.zip`` (Stable-Baselines3's).

    Raises:
        OSError: the folder cannot be written to.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _file(algorithm)
    # The description comes last and goes first: a folder with one is whole.
    (folder / ABOUT).unlink(missing_ok=True)
    solved.save(str(path))
    curve = [list(point) for point in solved.curve]
    write_json(folder / ABOUT, {**_about(setting, algorithm), "seed": seed, "scale": scale, "curve": curve})
    return path


def load_expert(folder: str | os.PathLike[str]) -> tuple[Setting, Policy]:
    """Read what :func:`save_expert` wrote.

    Args:
        folder: from a source that is trusted: reading DRQN and RecurrentPPO executes Stable-Baselines3's pickles. The
            successor agent is read without.

    Returns:
        The setting and its policy, greedy where ``deterministic=True`` is asked for.

    Raises:
        ValueError: the folder holds no whole expert of this version; the message names the file.
    """
    about = Path(folder) / ABOUT
    if not about.is_file():
        raise ValueError(f"{folder} holds no whole expert: there is no {ABOUT}")
    found = read_json(about)
    try:
        if found["version"] != VERSION:
            raise ValueError(f"its version is {found['version']}, this package reads {VERSION}")
        algorithm: Algorithm = found["algorithm"]
        if algorithm not in ALGORITHMS:
            raise ValueError(f"the algorithm {algorithm!r} is not known")
        parameters = TumourParameters(**found["parameters"])
        setting = Setting(tuple(found["weights"]), found["gamma"], parameters)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{about} does not describe an expert: {error!r}") from error
    return setting, _read(Path(folder) / _file(algorithm), setting, algorithm)


def ready_expert(
    setting: Setting, algorithm: Algorithm = "successor", *, folder: str | os.PathLike[str], seed: int = 0
) -> Policy:
    """The stored expert of a setting; where there is none of this version, it is trained and stored.

    Args:
        setting: weights, discount factor, simulator.
        algorithm: one of :data:`~agents.solvers.ALGORITHMS`.
        folder: of many experts; each lies in a folder of its own, named by version, setting, algorithm and seed.
        seed: of the training.

    Raises:
        ValueError: an argument is not possible, or the folder of that name holds an expert of another simulator.
    """
    place = Path(folder) / _name(setting, algorithm, seed)
    if not (place / ABOUT).is_file():
        save_expert(place, setting, algorithm, train_expert(setting, algorithm, seed=seed), seed=seed)
    found, policy = load_expert(place)
    if found != setting:
        raise ValueError(f"{place} holds the expert of another simulator; keep one folder for each")
    return policy


def _name(setting: Setting, algorithm: Algorithm, seed: int) -> str:
    w = "_".join(f"{value!r}" for value in setting.weights)
    return f"v{VERSION}_w_{w}_gamma_{setting.gamma!r}_{algorithm}_{seed}"


def _about(setting: Setting, algorithm: Algorithm) -> dict[str, Any]:
    weights = [float(value) for value in np.asarray(setting.weights)]
    return {"version": VERSION, "algorithm": algorithm, **asdict(setting), "weights": weights}


def _file(algorithm: Algorithm) -> str:
    return "expert.npz" if algorithm == "successor" else "expert.zip"


def _read(path: Path, setting: Setting, algorithm: Algorithm) -> Policy:
    if algorithm == "successor":
        from agents.successor import SuccessorAgent

        return SuccessorAgent.load(path, OracleModel(setting.parameters)).policy(setting.weights)
    if algorithm == "drqn":
        from agents.drqn import DRQN

        drqn: Policy = DRQN.load(path, device="cpu")
        return drqn
    from sb3_contrib import RecurrentPPO

    ppo: Policy = RecurrentPPO.load(path, device="cpu")
    return ppo
