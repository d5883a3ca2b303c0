"""Three ways to a good policy in the simulator, behind one call: successor features, DRQN, RecurrentPPO.

A trained expert is stored as a folder: the policy and, beside it, ``expert.json`` with the setting that it solves, the
version that trained it and its learning curve.
"""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback

from agents import SOLVERS, Solver
from agents.drqn.drqn import DRQN, tumour_settings
from agents.expert import EXPERT, successor_expert
from agents.ppo_settings import RecurrentPPOConfig
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.features import check_weights
from cirl_gym.files import loading, parsed_json, read_json, write_json, writing
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import Policy
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import N_ACTIONS, TumourParameters

ROWS = 64
"""Patients that DRQN and RecurrentPPO treat at once."""
VERSION = 3
"""Of experts: raised whenever the same setting and seed would train another policy, or files are read otherwise."""
ABOUT = "expert.json"


@dataclass(frozen=True)
class Setting:
    """What is to be solved.

    Raises:
        ValueError: the weights are not two finite numbers with an L1 norm above 0 and at most 1, or gamma is not in
            [0, 1].
    """

    weights: tuple[float, float] = (-0.3, -0.7)
    """Of tumour and side effects."""
    gamma: float = 0.99
    """Discount factor."""
    parameters: TumourParameters = field(default_factory=TumourParameters)
    """The simulator."""

    def __post_init__(self) -> None:
        if not np.abs(check_weights(self.weights, tumour.FEATURES)).sum() > 0:
            raise ValueError("weights must not both be zero: every policy would be optimal")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, got {self.gamma}")


SIX_SETTINGS = tuple(Setting(w, gamma) for gamma in (0.99, 0.5) for w in ((-0.3, -0.7), (-0.7, -0.3), (-0.5, -0.5)))
"""The paper's (section 5.1)."""


class Point(NamedTuple):
    """One point of a learning curve."""

    steps: int
    """Environment steps so far, real or imagined."""
    seconds: float
    """Of training, without those of looking."""
    value: float
    """What the watcher found."""


class Solved(NamedTuple):
    """What training has brought."""

    policy: Policy
    """Greedy where it is asked for ``deterministic=True``."""
    curve: tuple[Point, ...]
    """From before the first update to the end."""
    save: Callable[[str], None]
    """Writes the policy: the successor agent without pickle, the others as Stable-Baselines3 does."""


Watcher = Callable[[Policy], float]
"""Says what a policy is worth."""


def train_expert(
    setting: Setting,
    algorithm: Solver = "successor",
    watch: Watcher | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    until: float = np.inf,
    watches: int = 10,
) -> Solved:
    """Train a policy for one setting; :func:`save_expert` stores it.

    Args:
        setting: weights, discount factor, simulator.
        algorithm: one of :data:`agents.SOLVERS`.
        watch: called now and then; its time is not counted. Without it there is no curve.
        seed: everything that is drawn.
        scale: share of the usual training, for a first look.
        until: end the training as soon as ``watch`` finds as much; the successor agent has nothing to show before its
            end.
        watches: how often to look while training.

    Raises:
        ValueError: the algorithm is unknown or the scale is not positive.
    """
    if algorithm not in SOLVERS:
        raise ValueError(f"algorithm must be one of {', '.join(SOLVERS)}, got {algorithm!r}")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    if algorithm == "successor":
        return _successor(setting, watch, seed, scale)
    # Needs a newer Gymnasium than the successor agent does.
    from agents.ppo import train_recurrent_ppo
    from agents.sb3_vec_env import make_native_vec_env

    horizon, usual = setting.parameters.horizon, tumour_settings()
    env = make_native_vec_env(
        "CIRLTumour-v0", ROWS, seed, parameters=setting.parameters, weights=setting.weights, max_episode_steps=horizon
    )
    steps = max(int((usual.total_timesteps if algorithm == "drqn" else RecurrentPPOConfig.steps) * scale), 1)
    curve = Curve(watch, steps, until, watches) if watch else None
    trained: DRQN | RecurrentPPO
    if algorithm == "drqn":
        trained = DRQN("MlpLstmPolicy", env, gamma=setting.gamma, seed=seed, device="cpu", **usual.arguments)
        trained.learn(steps, curve)
    else:
        config = RecurrentPPOConfig(steps=steps, rollout=horizon)
        trained = train_recurrent_ppo(env, setting.gamma, config, seed=seed, callback=curve)
    return Solved(trained, curve.finished(trained) if curve else (), trained.save)


def _successor(setting: Setting, watch: Watcher | None, seed: int, scale: float) -> Solved:
    episodes, updates = (max(int(number * scale), 1) for number in (EXPERT.episodes, EXPERT.gradient_steps))
    config = replace(EXPERT, episodes=episodes, gradient_steps=updates)
    w = np.array(setting.weights)
    begun = time.perf_counter()
    expert = successor_expert(setting.parameters, w, setting.gamma, 1.0, config, np.random.default_rng(seed))
    seconds, policy = time.perf_counter() - begun, expert.agent.policy(w)
    # One sweep backwards: only its end is a policy.
    curve = (Point(episodes * setting.parameters.horizon, seconds, watch(policy)),) if watch else ()
    return Solved(policy, curve, expert.agent.save)


class Curve(BaseCallback):
    """Looks at the policy ``watches`` times in a training of so many steps, and stops it once it is worth ``until``."""

    def __init__(self, watch: Watcher, steps: int, until: float, watches: int) -> None:
        super().__init__()
        self._watch, self._every, self._until = watch, max(steps // watches, 1), until
        self._points: list[Point] = []
        self._due, self._looking = 0, 0.0
        self._begun = time.perf_counter()

    def finished(self, policy: Policy) -> tuple[Point, ...]:
        """The curve, with a last point for the trained policy."""
        self._look(policy)
        return tuple(self._points)

    def _on_training_start(self) -> None:
        self._begun = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._due:
            self._due += self._every
            self._look(self.model)
            return self._points[-1].value < self._until
        return True

    def _look(self, policy: Policy) -> None:
        at = time.perf_counter()
        seconds = at - self._begun - self._looking
        self._points.append(Point(self.num_timesteps, seconds, self._watch(policy)))
        self._looking += time.perf_counter() - at


def save_expert(
    folder: str | os.PathLike[str],
    setting: Setting,
    algorithm: Solver,
    solved: Solved,
    *,
    seed: int = 0,
    scale: float = 1.0,
) -> Path:
    """Write what :func:`train_expert` brought for the same arguments, as ``.npz`` or Stable-Baselines3's ``.zip``.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = _file(folder, algorithm)
    # The description comes last and goes first: a folder with one is whole.
    (folder / ABOUT).unlink(missing_ok=True)
    with writing(path):
        solved.save(str(path))
    about = {"version": VERSION, "algorithm": algorithm, **asdict(setting), "seed": seed, "scale": scale}
    weights, curve = [float(value) for value in setting.weights], [list(point) for point in solved.curve]
    write_json(folder / ABOUT, {**about, "weights": weights, "curve": curve})
    return path


def load_expert(folder: str | os.PathLike[str]) -> tuple[Setting, Policy]:
    """The setting that :func:`save_expert` wrote and its policy, greedy where ``deterministic=True`` is asked for.

    Args:
        folder: from a source that is trusted: reading DRQN and RecurrentPPO executes Stable-Baselines3's pickles. The
            successor agent is read without.

    Raises:
        ValueError: the folder holds no whole expert of this version; the message names the file.
    """
    about = Path(folder) / ABOUT
    if not about.is_file():
        raise ValueError(f"{folder} holds no whole expert: there is no {ABOUT}")
    with loading(about, "the description of an expert"):
        found = read_json(about)
        if found["version"] != VERSION:
            raise ValueError(f"its version is {found['version']}, this package reads {VERSION}")
        algorithm: Solver = found["algorithm"]
        if algorithm not in SOLVERS:
            raise ValueError(f"the algorithm {algorithm!r} is not known")
        setting = Setting(tuple(found["weights"]), found["gamma"], TumourParameters(**found["parameters"]))
    path = _file(Path(folder), algorithm)
    if not path.is_file():
        raise ValueError(f"{folder} holds no whole expert: there is no {path.name}")
    with loading(path, f"the whole expert that {about} describes"):
        if algorithm == "successor":
            agent = SuccessorAgent.load(path, OracleModel(setting.parameters))
            if agent.gamma != setting.gamma:
                raise ValueError(f"its gamma is {agent.gamma}, not {setting.gamma}")
            return setting, agent.policy(setting.weights)
        return setting, _read_zip(path, algorithm, setting)


def _read_zip(path: Path, algorithm: Solver, setting: Setting) -> Policy:
    """What Stable-Baselines3 saved, once its own description says that it is of this kind and has these spaces.

    Raises:
        ValueError: it is of another kind, or acts on other observations or with other actions.
    """
    with zipfile.ZipFile(path) as archive:
        told = parsed_json(archive.read("data").decode())
    spaces = {"shape": told["observation_space"]["_shape"], "actions": str(told["action_space"]["n"])}
    found = {"policy of": told["policy_class"]["__module__"], "gamma": told["gamma"], **spaces}
    # What is observed, and the action before.
    seen = [len(setting.parameters.feature_map.features) + N_ACTIONS]
    home = "agents.drqn.policy" if algorithm == "drqn" else "agents.ppo"
    asked = {"policy of": home, "gamma": setting.gamma, "shape": seen, "actions": str(N_ACTIONS)}
    if wrong := [f"{name} {found[name]!r}, not {asked[name]!r}" for name in asked if found[name] != asked[name]]:
        raise ValueError(f"it has {', '.join(wrong)}")
    policy: DRQN | RecurrentPPO = (DRQN if algorithm == "drqn" else RecurrentPPO).load(path, device="cpu")
    return policy


def ready_expert(
    setting: Setting, algorithm: Solver = "successor", *, folder: str | os.PathLike[str], seed: int = 0
) -> Policy:
    """The stored expert of a setting; where there is none of this version, it is trained and stored.

    Args:
        setting: weights, discount factor, simulator.
        algorithm: one of :data:`agents.SOLVERS`.
        folder: of many experts; each lies in a folder of its own, named by version, setting, algorithm and seed.
        seed: of the training.

    Raises:
        ValueError: an argument is not possible, or the folder of that name holds an expert of another simulator.
    """
    w = "_".join(f"{value!r}" for value in setting.weights)
    place = Path(folder) / f"v{VERSION}_w_{w}_gamma_{setting.gamma!r}_{algorithm}_{seed}"
    if not (place / ABOUT).is_file():
        save_expert(place, setting, algorithm, train_expert(setting, algorithm, seed=seed), seed=seed)
    found, policy = load_expert(place)
    if found != setting:
        raise ValueError(f"{place} holds the expert of another simulator; keep one folder for each")
    return policy


def _file(folder: Path, algorithm: Solver) -> Path:
    return folder / ("expert.npz" if algorithm == "successor" else "expert.zip")
