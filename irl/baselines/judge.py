"""How the policies of all methods are measured: on the same episodes, the same patients and the same noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.policies.policy import Repeating, WithinRules
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import CounterfactualWorld, OutcomeModel
from cirl_gym.data.rollout import act_along, rollout
from cirl_gym.data.rules import ActionRules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import Float32Array, FloatArray, Policy, World
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.baselines.explained import RecoveredPreferences
from irl.checks.chances import judged_chances
from irl.checks.metrics import (
    HeldOutConfig,
    accuracy,
    ceiling,
    majority,
    mean_and_error,
    repeat_last_action,
    same_order,
    simulated_returns,
    weight_error,
)
from irl.max_margin.loop import expert_mu, phi_along
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import constant_chances
from irl.result.chances import ChanceScores
from irl.run import Run
from irl.settings import DemoConfig, FitConfig

MU_EPISODES = 1000
"""Training episodes whose patients the feature expectations are compared on, at most."""


def habits(train: Batch, rules: ActionRules | None = None) -> dict[str, Policy]:
    """The most frequent action of the training episodes, and the last action again, begun with the usual first one.

    Where the rules forbid it, the most frequent action that is allowed is taken.
    """
    free = replace(train, allowed=None)
    often, first = (int(chosen(train, free)[0, 0]) for chosen in (majority, repeat_last_action))
    always, again = Repeating(often, train.n_actions, False), Repeating(first, train.n_actions, True)
    if rules is None:
        return {"majority": always, "repeat": again}
    chances = constant_chances(train)
    return {"majority": WithinRules(always, rules, chances), "repeat": WithinRules(again, rules, chances)}


@dataclass(frozen=True)
class SharedWorld:
    """Where feature expectations are compared, for the patients of some of the experts' episodes."""

    name: str
    """What it is called in the table."""
    world: World
    """Where a policy acts."""
    start: tuple[object, Float32Array]
    """The patients' first states and observations ``[n, D]`` in it."""
    model: OutcomeModel
    """phi, of the policy's histories and of the experts' alike."""
    feature_map: FeatureMap
    gamma: float
    seen: Batch
    """The same patients' episodes."""

    @cached_property
    def mu_expert(self) -> FloatArray:
        """``[d]`` the experts' feature expectation."""
        return self._mean(self.seen)

    def mu(self, policy: Policy, rng: np.random.Generator) -> FloatArray:
        """``[d]`` the policy's feature expectation, as a mean over the patients."""
        return self._mean(rollout(self.world, policy, len(self.start[1]), rng, start=self.start))

    def _mean(self, batch: Batch) -> FloatArray:
        return expert_mu(phi_along(self.model, self.feature_map, batch), batch, self.gamma).mean


def simulator_world(parameters: TumourParameters, seen: Batch, feature_map: FeatureMap, gamma: float) -> SharedWorld:
    """The simulator, with its noise; phi is exact."""
    world = TumourWorld(parameters)
    start = world.start(seen.start.astype(np.float64))
    return SharedWorld("the simulator", world, start, OracleModel(parameters), feature_map, gamma, seen)


def imagined_world(
    model: OutcomeModel, seen: Batch, feature_map: FeatureMap, gamma: float, horizon: int
) -> SharedWorld:
    """The world model of one outcome model, which is the same for every method: h' = (h, a, phi(h, a))."""
    world, start = CounterfactualWorld(model, seen.start, horizon), (model.start(seen.start), seen.start)
    return SharedWorld("the run's own world model", world, start, model, feature_map, gamma, seen)


@dataclass(frozen=True)
class KnownExperts:
    """What is known of simulated experts."""

    parameters: TumourParameters
    weights: FloatArray
    """``[d]`` L1 norm 1."""
    expert: Policy
    """Without mistakes if it acts with ``deterministic=True``."""
    chances: FloatArray
    """``[N, T, A]`` the experts' action probabilities along the held-out episodes."""


VALIDATION = 0.1
"""Share of the saved patients that every method chooses by."""


@dataclass(frozen=True)
class FinishedRun:
    """A run, read from its folder, on whose held-out episodes, patients and noise every policy is measured."""

    train: Batch
    """The training episodes that it saved."""
    test: Batch
    """Those that it held out."""
    feature_map: FeatureMap
    signs: FloatArray
    """``[d]`` of -1, 0 (free) and 1: what it was told of the weights' signs."""
    fit: FitConfig
    """With the length of its episodes, and the discount factor that the run was given or chose."""
    rules: ActionRules | None
    """What was forbidden to the experts, and is to every policy."""
    seed: int
    world: SharedWorld
    """Where feature expectations are compared."""
    truth: KnownExperts | None
    """None for a table."""
    own: RecoveredPreferences
    """What the run found itself."""
    own_scores: dict[str, ChanceScores]
    """How well its accounts foresee decisions, as it says itself (:class:`irl.result.result.HeldOutLikelihood`)."""
    folds: int
    """Of the cross-validation that these come from; 0: they are of the held-out episodes."""
    files: dict[str, str]
    """SHA-256 of the files that this was read from, by name."""

    def split(self) -> tuple[Batch, Batch]:
        """Episodes to learn from and to choose by, split by patient and by the run's seed: the same in every call.

        Raises:
            ValueError: there is one patient alone.
        """
        return self.train.split(VALIDATION, np.random.default_rng([self.seed, *b"baselines"]))

    @property
    def ceiling(self) -> float | None:
        """Accuracy that nobody can exceed; None where it is not known."""
        return None if self.truth is None else ceiling(self.truth.chances, self.test)

    def measured(self, policy: Policy) -> dict[str, Any]:
        """The fields of :class:`irl.result.baselines.Row` that follow from a policy; all are drawn the same numbers."""
        mu = self.world.mu(policy, np.random.default_rng([self.seed, 2]))
        fields = {
            "mu_gap": float(np.linalg.norm(self.world.mu_expert - mu)),
            "accuracy": accuracy(act_along(policy, self.test), self.test),
        }
        if self.truth is not None:
            earned = self.earned(self.truth, policy)
            fields["return_"], fields["return_error"] = mean_and_error(earned)
            fields["behind"], fields["behind_error"] = mean_and_error(self._best - earned)
        return fields

    @cached_property
    def judged(self) -> Batch:
        """The held-out episodes whose decisions are foreseen: those that the run itself was judged by."""
        return judged_episodes(self.test, HeldOutConfig().decisions)

    def scores(self, log_chances: Callable[[Batch], FloatArray]) -> ChanceScores:
        """How well the actions of the judged episodes are foreseen; patients are drawn the same for every method."""
        return judged_chances(log_chances(self.judged), self.judged, np.random.default_rng([self.seed, 3]))

    def against_truth(self, w: npt.ArrayLike | None) -> dict[str, Any]:
        """The fields of :class:`irl.result.baselines.Row` that follow from weights ``[d]`` and the truth."""
        if w is None or self.truth is None:
            return {}
        truth = self.truth.weights
        return {"weight_error": float(weight_error(w, truth).max()), "right_order": same_order(w, truth)}

    def earned(self, truth: KnownExperts, policy: Policy) -> FloatArray:
        """``[patients]`` returns of a policy, with the patients and the noise of ``cirl demo``."""
        return simulated_returns(policy, truth.parameters, self.feature_map, truth.weights, self.seed)

    @cached_property
    def _best(self) -> FloatArray:
        assert self.truth is not None
        return self.earned(self.truth, self.truth.expert)


def load_finished(folder: Path) -> FinishedRun:
    """Read a run of ``cirl demo`` or ``cirl explain``.

    Raises:
        ValueError: the folder is not a whole run's; the message names the file and what is wrong.
    """
    run = Run(folder)
    with run.whole():
        phi, train, test, settings = run.reward.feature_map, run.train, run.test, run.settings
        fit = settled(restored(FitConfig(), settings["fit"], "fit"), run.chosen_gamma)
        rules = run.rules
        seen = train.take(np.arange(min(len(train), MU_EPISODES)))
        truth = None
        if run.simulated:
            tumour, side_effects = map(float, settings["weights"])
            signs = np.array(DemoConfig(weights=(tumour, side_effects)).signs, dtype=np.float64)
            fit = fit.whole(run.parameters.horizon)
            world = simulator_world(run.parameters, seen, phi, fit.gamma)
            truth = KnownExperts(run.parameters, run.expert.w, run.expert.optimal, run.expert.probabilities(test))
        else:
            signs = np.array([run.result.config["signs"].get(name, 0) for name in phi.features], dtype=np.float64)
            fit = fit.whole(max(train.horizon, test.horizon))
            world = imagined_world(run.model, seen, phi, fit.gamma, fit.length or train.horizon)
        files = run.digests(
            *("config.json", "batch.npz", "test.npz", "outcome_model.npz", "agent.npz", "result.json"),
            *(("expert.npz",) if run.simulated else ()),
        )
        said = run.result.likelihood
        scores, folds = ({}, 0) if said is None else (said.scores, said.folds)
        own = (RecoveredPreferences.of_run(run), scores, folds)
        return FinishedRun(train, test, phi, signs, fit, rules, int(settings["seed"]), world, truth, *own, files)


def settled(fit: FitConfig, chosen_gamma: float | None) -> FitConfig:
    """What all methods are asked the same way: under one discount factor, and for weights of the whole episodes.

    The discount factor is the one that held-out decisions chose, or that of ``fit`` where they chose none.
    """
    gamma = fit.gamma if chosen_gamma is None else chosen_gamma
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
