"""What each method makes of the same episodes: weights, if it asks for any, and a policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from agents.cloning import CloningConfig, fit_cloning
from cirl_gym.action_rule_text import rules_for
from cirl_gym.action_rules import ActionRules
from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, Kind, LearnedModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import FloatArray, Policy
from irl.dsfn_baseline import DSFNLoopConfig, DSFNResult, fit_dsfn
from irl.max_margin import REASONS, MaxMarginResult
from irl.pipeline import Fit, fit
from irl.progress import Stages
from irl.settings import FitConfig

_PLANNED = {"dsfn": 1, "dsfn_h": 1, "cloning": 1}
"""Stages of what is not the pipeline, whose own are five, and one more with several outcome models."""


@dataclass(frozen=True)
class Given:
    """What every method gets, and no more than it: no method can ask for the simulator."""

    train: Batch
    validation: Batch
    feature_map: FeatureMap
    signs: FloatArray
    """``[d]`` of -1, 0 (free) and 1."""
    fit: FitConfig
    """The run's, of which the horizon is known."""
    dsfn: DSFNLoopConfig
    """Of DSFN; DSFN(h) has the same with memory."""
    seed: int

    @property
    def rules(self) -> ActionRules | None:
        """What was forbidden to the experts, and is to every method's policy."""
        return rules_for(self.train, self.fit.forbid)


class Found(NamedTuple):
    """What a method came to."""

    policy: Policy
    model: str | None = None
    """Kind of the outcome model."""
    memory: bool = False
    """Whether the policy sees more than the current observation."""
    weights: FloatArray | None = None
    """``[d]`` L1 norm 1."""
    intervals: dict[str, tuple[float, float]] | None = None
    """90 % interval of each weight."""
    note: str = ""
    """How it went."""

    def fields(self) -> dict[str, Any]:
        """All but the policy, as fields of :class:`irl.baselines.Row`."""
        return {name: value for name, value in self._asdict().items() if name != "policy"}


def planned_stages(method: str, config: FitConfig) -> int:
    """How many stages :func:`solve` shows."""
    several = method != "oracle" and config.outcome.members > 1
    return _PLANNED.get(method, 5 + several)


def settings_of(method: str, given: Given) -> dict[str, Any]:
    """The settings that a method reads, as dataclasses by name."""
    if method in ("dsfn", "dsfn_h"):
        return {"dsfn": _dsfn_config(method, given.dsfn), "gamma": given.fit.gamma, "horizon": given.fit.horizon}
    return {"cloning": given.fit.cloning} if method == "cloning" else {"fit": _fit_config(method, given.fit)}


def solve(method: str, given: Given, run: Stages, oracle: OracleModel | None = None) -> Found:
    """One method.

    Args:
        method: one of :data:`irl.baselines.METHODS`.
        given: what there is to learn from.
        run: shows and times the stages.
        oracle: the simulator as outcome model, for the control alone.

    Raises:
        ValueError: the method cannot work with what it is given.
    """
    if method in ("dsfn", "dsfn_h"):
        return _dsfn(method, given, run)
    if method == "cloning":
        return _cloning(given, run)
    if method != "oracle":
        return _explained(method, given, run, None)
    if oracle is None:
        raise ValueError("the oracle control needs the simulator")
    # Not learnt; but it answers all that the nine steps ask of a model.
    return _explained(method, given, run, FittedOutcomeModel(cast(LearnedModel, oracle), {}, 0.0))


def _fit_config(method: str, config: FitConfig) -> FitConfig:
    """With the method's outcome model; every fit also clones, which is a row of its own: here as little as can be."""
    least = CloningConfig(hidden=1, priors=(0.0,), training=replace(config.cloning.training, epochs=1))
    kind = config.model if method in ("cirl", "oracle") else cast(Kind, method)
    return replace(config, model=kind, cloning=least)


def _explained(method: str, given: Given, run: Stages, model: FittedOutcomeModel | None) -> Found:
    """Steps 4 to 9 of the pipeline."""
    config = _fit_config(method, given.fit)
    found = fit(given.train, given.validation, given.feature_map, given.signs, config, given.seed, run, model=model)
    ends = zip(found.posterior.low.tolist(), found.posterior.high.tolist(), strict=True)
    return Found(
        policy=found.policy,
        model=config.model if model is None else "simulator",
        memory=model is not None or config.model != "mb_x",
        weights=found.weights,
        intervals=dict(zip(given.feature_map.features, ends, strict=True)),
        note=_fit_note(found),
    )


def _fit_note(found: Fit) -> str:
    told = [_loop_note(found.loop)]
    reports = found.model.report.get("members", [found.model.report])
    corrections = [report["correction"] for report in reports if report.get("correction") is not None]
    dropped = sum(not correction["kept"] for correction in corrections)
    if dropped and dropped == len(corrections):
        told.append("the network did not improve on the linear law, which predicts alone")
    elif dropped:
        told.append(f"{dropped} of {len(corrections)} networks did not improve on the linear law")
    return "; ".join(told)


def _loop_note(loop: MaxMarginResult) -> str:
    n = len(loop.rounds)
    return f"loop: {n} round{'' if n == 1 else 's'}, {REASONS[loop.stop]}"


def _dsfn_config(method: str, config: DSFNLoopConfig) -> DSFNLoopConfig:
    return replace(config, dsfn=config.dsfn.with_history()) if method == "dsfn_h" else config


def _dsfn(method: str, given: Given, run: Stages) -> Found:
    """From the batch alone (Lee et al. 2019); an episode ends where watching ended, as in the pipeline."""
    horizon = given.fit.horizon or given.train.horizon
    splits = (given.train.with_early_ends(horizon), given.validation.with_early_ends(horizon))
    rng = np.random.default_rng([given.seed, *method.encode()])
    with run.stage("policies from the batch alone") as report:
        found = fit_dsfn(
            *splits,
            given.feature_map,
            given.signs,
            given.fit.gamma,
            _dsfn_config(method, given.dsfn),
            rng,
            report,
            rules=given.rules,
        )
    policy, weights = dsfn_answer(found)
    return Found(policy, memory=method == "dsfn_h", weights=weights, note=dsfn_note(found))


def dsfn_answer(found: DSFNResult) -> tuple[Policy, FloatArray | None]:
    """Its policy, and weights ``[d]`` if they follow from the experts' decisions.

    Where the imitation left nothing to explain and no round came nearer than the one that was begun with drawn weights,
    there are none, and the policy is the imitation: there Lee et al. would have stopped.
    """
    if found.warm_start or found.best > 0:
        return found.policy, found.weights
    return (found.policy if found.imitation is None else found.imitation.policy), None


def dsfn_note(found: DSFNResult) -> str:
    """What its loop did, and whether it found weights at all."""
    told = [_loop_note(found.loop)]
    if found.already_matched:
        told.append("already matched: imitating the experts left nothing to explain, so it began with drawn weights")
    if dsfn_answer(found)[1] is None:
        policy = "" if found.imitation is None else ", and the policy is the imitation"
        told.append(f"no round came nearer than theirs: there are no weights{policy}")
    return "; ".join(told)


def _cloning(given: Given, run: Stages) -> Found:
    """Recurrent behaviour cloning: what the experts would do, not what they want."""
    rng = np.random.default_rng([given.seed, *b"cloning"])
    with run.stage("behaviour cloning") as report:
        found = fit_cloning(given.train, given.validation, given.fit.cloning, rng, report, rules=given.rules)
    note = "" if found.kept else "the network did not improve on a logistic regression, which acts alone"
    return Found(found.policy, memory=True, note=note)
