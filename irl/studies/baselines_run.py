"""What a finished run left, as what every baseline is given and measured by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rules import ActionRules, rules_for
from cirl_gym.files import read_json
from cirl_gym.outcome_models.store import load_model
from cirl_gym.types import FloatArray
from cirl_gym.wrappers.learned_reward import load_reward
from irl.result.run_folder import expert_of_run, settings_of_run, whole_run
from irl.settings import DemoConfig, FitConfig
from irl.studies.judge import MU_EPISODES, Ground, Judge, Truth, ground_of_model, ground_of_simulator

VALIDATION = 0.1
"""Share of the saved patients that every method chooses by."""


@dataclass(frozen=True)
class FinishedRun:
    """A run, read from its folder."""

    train: Batch
    """The training episodes that it saved."""
    test: Batch
    """Those that it held out."""
    feature_map: FeatureMap
    signs: FloatArray
    """``[d]`` of -1, 0 (free) and 1: what it was told of the weights' signs."""
    fit: FitConfig
    """With the horizon of its data, and the discount factor that the run was given or chose."""
    rules: ActionRules | None
    """What was forbidden to the experts, and is to every policy."""
    seed: int
    ground: Ground
    """Where feature expectations are compared."""
    truth: Truth | None
    """None for a table."""
    files: dict[str, str]
    """SHA-256 of the files that this was read from, by name."""

    def split(self) -> tuple[Batch, Batch]:
        """Episodes to learn from and to choose by, split by patient and by the run's seed: the same in every call.

        Raises:
            ValueError: there is one patient alone.
        """
        return self.train.split(VALIDATION, np.random.default_rng([self.seed, *b"baselines"]))

    def judge(self) -> Judge:
        """Measures all methods alike."""
        return Judge(self.ground, self.test, self.truth, self.seed)


def load_finished(run: Path) -> FinishedRun:
    """Read a run of ``cirl demo`` or ``cirl explain``.

    Raises:
        ValueError: the folder is not a whole run's; the message names the file and what is wrong.
    """
    with whole_run(run):
        reward, settings = load_reward(run), settings_of_run(run)
        train, test = Batch.load(run / "batch.npz"), Batch.load(run / "test.npz")
        feature_map = reward.among(train.features).feature_map
        fit = settled(restored(FitConfig(), settings["fit"], "fit"), read_json(run / "result.json").get("gammas"))
        rules = rules_for(train, fit.forbid)
        read = _simulated if settings["command"] == "demo" else _of_table
        signs, fit, ground, truth = read(run, settings, fit, train, test, feature_map)
        names = ("config.json", "batch.npz", "test.npz", "expert.npz" if truth else "outcome_model.npz")
        files = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
        return FinishedRun(train, test, feature_map, signs, fit, rules, int(settings["seed"]), ground, truth, files)


def settled(fit: FitConfig, gammas: Mapping[str, Any] | None) -> FitConfig:
    """What all methods are asked the same way: under one discount factor, and for weights of the whole episodes.

    Args:
        fit: settings of the run.
        gammas: what its ``result.json`` says of a discount factor that held-out decisions chose; None: it was given.
    """
    gamma = fit.gamma if gammas is None else float(gammas["chosen"])
    return replace(fit, gamma=gamma, choose_gamma=(), windows=())


def restored(default: Any, values: Mapping[str, Any], where: str) -> Any:
    """A dataclass from what ``dataclasses.asdict`` and JSON made of it; fields that are missing keep their defaults.

    Raises:
        ValueError: a field is unknown, or a value is not possible.
    """
    changed = {}
    for name, value in values.items():
        if not hasattr(default, name):
            raise ValueError(f"{where} has a field {name!r} that this version does not know")
        current = getattr(default, name)
        if is_dataclass(current):
            value = restored(current, value, f"{where}.{name}")
        changed[name] = tuple(value) if isinstance(value, list) else value
    return replace(default, **changed)


def _simulated(
    run: Path, settings: dict[str, Any], fit: FitConfig, train: Batch, test: Batch, feature_map: FeatureMap
) -> tuple[FloatArray, FitConfig, Ground, Truth | None]:
    """Of ``cirl demo``: the simulator and the experts can be asked."""
    parameters, expert = expert_of_run(run, settings)
    tumour, side_effects = map(float, settings["weights"])
    signs = np.array(DemoConfig(weights=(tumour, side_effects)).signs, dtype=np.float64)
    ground = ground_of_simulator(parameters, _seen(train), feature_map, fit.gamma)
    truth = Truth(parameters, expert.w, expert.policy(), expert.probabilities(test))
    return signs, fit.whole(parameters.horizon), ground, truth


def _of_table(
    run: Path, settings: dict[str, Any], fit: FitConfig, train: Batch, test: Batch, feature_map: FeatureMap
) -> tuple[FloatArray, FitConfig, Ground, Truth | None]:
    """Of ``cirl explain``: the run's outcome model is the world that all are compared in."""
    model = load_model(run / "outcome_model.npz")
    fit = fit.whole(max(train.horizon, test.horizon))
    signs = np.array([settings["signs"].get(name, 0) for name in feature_map.features], dtype=np.float64)
    horizon = fit.horizon or train.horizon
    return signs, fit, ground_of_model(model, _seen(train), feature_map, fit.gamma, horizon), None


def _seen(train: Batch) -> Batch:
    return train.take(np.arange(min(len(train), MU_EPISODES)))
