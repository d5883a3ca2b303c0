"""Three ways to a good policy in the simulator, behind one call: successor features, DRQN, RecurrentPPO."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from agents import Solver
from agents.expert import EXPERT, successor_expert
from cirl_gym.data.features import check_weights
from cirl_gym.files import read_json, write_json
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import Policy
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters

Algorithm: TypeAlias = Solver
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
ROWS = 64
"""Patients that DRQN and RecurrentPPO treat at once."""
WATCHES = 10
"""How often a curve looks at a policy that is being trained."""


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
    algorithm: Algorithm = "successor",
    watch: Watcher | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    until: float = np.inf,
    watches: int = WATCHES,
) -> Solved:
    """Train a policy for one setting; :mod:`agents.solvers` keeps it.

    Args:
        setting: weights, discount factor, simulator.
        algorithm: one of :data:`ALGORITHMS`.
        watch: called now and then; its time is not counted. Without it there is no curve.
        seed: everything that is drawn.
        scale: share of the usual training, for a first look.
        until: end the training as soon as ``watch`` finds as much; the successor agent has nothing to show before its
            end.
        watches: how often to look while training.

    Raises:
        ValueError: the algorithm is unknown or the scale is not positive.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    if algorithm == "successor":
        return _successor(setting, watch, seed, scale)
    new_curve = partial(Curve, watch, until=until, watches=watches) if watch else lambda _: None
    return _stable_baselines(setting, algorithm, seed, scale, new_curve)


def _successor(setting: Setting, watch: Watcher | None, seed: int, scale: float) -> Solved:
    config = replace(
        EXPERT,
        episodes=max(int(EXPERT.episodes * scale), 1),
        gradient_steps=max(int(EXPERT.gradient_steps * scale), 1),
    )
    w = np.array(setting.weights)
    begun = time.perf_counter()
    expert = successor_expert(setting.parameters, w, setting.gamma, 1.0, config, np.random.default_rng(seed))
    seconds, policy = time.perf_counter() - begun, expert.agent.policy(w)
    # One sweep backwards: only its end is a policy.
    steps = config.episodes * setting.parameters.horizon
    curve = (Point(steps, seconds, watch(policy)),) if watch else ()
    return Solved(policy, curve, expert.agent.save)


def _stable_baselines(
    setting: Setting, algorithm: Algorithm, seed: int, scale: float, new_curve: Callable[[int], Curve | None]
) -> Solved:
    # Only these two need it, and a newer Gymnasium.
    from agents.sb3_vec_env import make_native_vec_env

    env = make_native_vec_env(
        "CIRLTumour-v0",
        ROWS,
        seed=seed,
        parameters=setting.parameters,
        weights=setting.weights,
        max_episode_steps=setting.parameters.horizon,
    )
    if algorithm == "drqn":
        from agents.drqn.drqn import DRQN
        from agents.drqn.settings import tumour_settings

        settings = tumour_settings()
        steps = max(int(settings.total_timesteps * scale), 1)
        curve = new_curve(steps)
        drqn = DRQN("MlpLstmPolicy", env, gamma=setting.gamma, seed=seed, device="cpu", **settings.arguments).learn(
            steps, callback=curve
        )
        return Solved(drqn, curve.finished(drqn) if curve else (), drqn.save)
    from agents.ppo.ppo import train_recurrent_ppo
    from agents.ppo.settings import RecurrentPPOConfig

    steps = max(int(RecurrentPPOConfig.steps * scale), 1)
    curve = new_curve(steps)
    config = RecurrentPPOConfig(steps=steps, rollout=setting.parameters.horizon)
    ppo = train_recurrent_ppo(env, setting.gamma, config, seed=seed, callback=curve)
    return Solved(ppo, curve.finished(ppo) if curve else (), ppo.save)


class Curve(BaseCallback):
    """A callback of Stable-Baselines3 that looks at the policy some times while it is trained.

    Args:
        watch: says what it is worth.
        steps: of the whole training.
        until: stop once it is worth as much.
        watches: how often to look.
    """

    def __init__(self, watch: Watcher, steps: int, until: float = np.inf, watches: int = WATCHES) -> None:
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


# MERGED: Trained experts as folders: a policy and, beside it, the setting that it solves and the version that trained
# it.

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
        from agents.successor.agent import SuccessorAgent

        return SuccessorAgent.load(path, OracleModel(setting.parameters)).policy(setting.weights)
    if algorithm == "drqn":
        from agents.drqn.drqn import DRQN

        drqn: Policy = DRQN.load(path, device="cpu")
        return drqn
    from sb3_contrib import RecurrentPPO

    ppo: Policy = RecurrentPPO.load(path, device="cpu")
    return ppo
