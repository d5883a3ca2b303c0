"""The DSFN baseline: the max-margin loop over policies that are found and judged on the batch alone (section 5).

Nothing here sees an outcome model or an environment: mu_E is the discounted sum of the outcomes that were observed, and
policies and their mu come from :class:`agents.dsfn.DSFN`. What a policy does outside the expert's histories is
guessed by temporal differences, which is the weakness that CIRL was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from msgspec import structs

from agents.avril import AVRILConfig, fit_avril
from agents.dsfn import DSFN, DSFNConfig, DSFNSolution
from agents.iq_learn import IQLearnConfig, fit_iq_learn
from agents.policies.cloning import CloningConfig, fit_cloning
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, checked_signs, draw_weights, keep_signs
from cirl_gym.data.rollout import act_along
from cirl_gym.data.rules import ActionRules, rules_for
from cirl_gym.outcome_models.inputs import Kind
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.types import FloatArray, Policy
from irl.baselines.explained import RecoveredPreferences, log_chances, loop_note
from irl.baselines.implied import implied_weights
from irl.baselines.judge import FinishedRun
from irl.checks.metrics import accuracy
from irl.max_margin.loop import FeatureExpectation, MaxMarginResult, Round, expert_mu, max_margin
from irl.pipeline import Fit, fit
from irl.result.baselines import Row
from irl.settings import FitConfig
from irl.study import Study


@dataclass(frozen=True)
class DSFNLoopConfig:
    """The loop's rules (Lee et al. 2019: ten rounds, margin .1, 5 % of accuracy).

    Raises:
        ValueError: a number is out of its range.
    """

    dsfn: DSFNConfig = field(default_factory=DSFNConfig)
    """The networks."""
    rounds: int = 10
    """Largest number of rounds after round 0."""
    tolerance: float = 0.1
    """Margin, in units of mu, at which the loop ends."""
    accuracy_change: float = 0.05
    """The loop ends when a round moves the accuracy on the validation episodes by less; 0: never."""
    warm_start: bool = True
    """Round 0 is the policy that imitates the expert, unless it matches already; otherwise that of drawn weights."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"DSFNLoopConfig.rounds must be at least 1, got {self.rounds}")
        if not (0 <= self.tolerance < np.inf and 0 <= self.accuracy_change <= 1):
            raise ValueError(f"DSFNLoopConfig: tolerance and accuracy_change are out of range: {self}")


def quick_dsfn(config: DSFNLoopConfig) -> DSFNLoopConfig:
    """Fewer rounds and gradient steps; what is less work already stays as it is."""
    dsfn = config.dsfn
    few = replace(
        dsfn,
        training=replace(dsfn.training, epochs=min(dsfn.training.epochs, 8)),
        mu=replace(dsfn.mu, iterations=min(dsfn.mu.iterations, 700)),
        q=replace(dsfn.q, iterations=min(dsfn.q.iterations, 700)),
    )
    return replace(config, dsfn=few, rounds=min(config.rounds, 5))


@dataclass(frozen=True)
class DSFNResult:
    """What the loop tried, and what it picks."""

    loop: MaxMarginResult
    """All rounds: weights, mus, margins, policies. If round 0 is the imitation its weights were drawn and not used."""
    mu_expert: FeatureExpectation
    """mu_E of the outcomes observed."""
    accuracies: tuple[float, ...]
    """One per round: share of the validation episodes' actions that its policy, greedy, would take (appendix H)."""
    imitation: DSFNSolution | None
    """The warm start's own policy, which knows no weights; None where none was asked for."""
    warm_start: bool
    """Whether it was round 0."""

    @property
    def already_matched(self) -> bool:
        """The imitation left nothing to explain, so that the loop began with drawn weights instead."""
        return self.imitation is not None and not self.warm_start

    @property
    def best(self) -> int:
        """The round whose mu is nearest to mu_E, among those that solved for weights; the earliest of equals."""
        first = int(self.warm_start)
        return first + int(np.argmin([r.distance for r in self.loop.rounds[first:]]))

    @property
    def weights(self) -> FloatArray:
        """``[d]`` what the policy was found for, L1 norm 1."""
        return self.loop.rounds[self.best].w

    @property
    def policy(self) -> Policy:
        """The policy of these weights."""
        return self.loop.policies[self.best]


def observed_mu(batch: Batch, feature_map: FeatureMap, gamma: float) -> FeatureExpectation:
    """mu_E from the outcomes that followed the expert's actions; the discount starts anew in every episode.

    Of episodes that any policy played in a world it is the Monte-Carlo estimate of that policy's mu.
    """
    return expert_mu(feature_map(batch.next_obs), batch, gamma)


def fit_dsfn(
    train: Batch,
    validation: Batch,
    feature_map: FeatureMap,
    signs: npt.ArrayLike,
    gamma: float,
    config: DSFNLoopConfig,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
    *,
    rules: ActionRules | None = None,
) -> DSFNResult:
    """Weights and a policy from the batch alone.

    A warm start can come so near to mu_E that what is left is noise, or a direction of signs that are not allowed. No
    weights follow from it then; Lee et al. would stop there with the imitation as their answer. Here the loop begins
    with the policy of drawn weights in that case, and the result says so.

    Args:
        train: the expert's episodes.
        validation: other episodes, by which the warm start and the loop are stopped.
        feature_map: which features are outcomes, and their ranges.
        signs: ``[d]`` of -1, 0 (free) and 1, one per outcome.
        gamma: discount factor.
        config: settings.
        rng: everything that is drawn.
        progress: called with (rounds done, rounds planned).
        rules: what is forbidden, to the expert and to policies.

    Raises:
        ValueError: the batches, rules, feature map and signs do not fit together, the batches say what was allowed and
            there are no rules, or training did not stay finite.
    """
    w0 = draw_weights(signs, rng)
    if len(w0) != len(feature_map.features):
        raise ValueError(f"signs must be one per outcome {feature_map.features}, got {signs!r}")
    dsfn = DSFN.fit(train, validation, feature_map, gamma, config.dsfn, rng, rules=rules)
    expert = observed_mu(train, feature_map, gamma)
    imitation = dsfn.initial() if config.warm_start else None
    warm = False
    if imitation is not None:  # what it leaves must be more than the tolerance, and partly of a sign that is allowed
        left = expert.mean - imitation.mu
        warm = bool(np.linalg.norm(left) > config.tolerance and keep_signs(left, checked_signs(signs)).any())
    accuracies: list[float] = []

    def solve(w: FloatArray) -> DSFNSolution:
        return imitation if imitation is not None and warm and not accuracies else dsfn.solve(w)

    def enough(done: Round, policy: Policy) -> bool:
        accuracies.append(accuracy(act_along(policy, validation), validation))
        if progress is not None:
            progress(done.k + 1, config.rounds + 1)
        if done.k == 0:
            return False
        moved = abs(accuracies[-1] - accuracies[-2])
        return done.margin <= config.tolerance or moved < config.accuracy_change

    loop = max_margin(
        expert.mean, solve, w0, rounds=config.rounds, tolerance=0.0, signs=np.asarray(signs), enough=enough
    )
    return DSFNResult(loop, expert, tuple(accuracies), imitation, warm)


# --- what each method makes of the same episodes: weights, if it asks for any, and a policy --------------------------


LogChances = Callable[[Batch], FloatArray]
"""Log-probabilities ``[N, T, A]`` of every action after every history of a batch."""


PEERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "avril": (AVRILConfig, fit_avril),
    "iq_learn": (IQLearnConfig, fit_iq_learn),
}
"""Settings and training of the methods that learn a policy and a reward of its own from the batch alone, by name."""


class FittedMethod(NamedTuple):
    """What a method makes of the episodes."""

    policy: Policy
    row: Row
    """Its row of the table before anything is measured."""
    log_chances: LogChances | None
    """How likely it says that the experts' next actions are; None: it says what to do and nothing of chances."""
    fit: Fit | None = None
    """Of a method with an outcome model, all that the nine steps found."""


def planned_stages(method: str, config: FitConfig) -> int:
    """How many stages :func:`solve` shows: the pipeline six, and one more with several outcome models."""
    if method == "cirl":
        return 0
    if method in ("dsfn", "dsfn_h", "cloning", *PEERS):
        return 1
    return 6 + (method != "oracle" and config.outcome.members > 1)


def settings_of(method: str, config: FitConfig, dsfn: DSFNLoopConfig) -> dict[str, Any]:
    """The settings that a method reads, as dataclasses by name."""
    if method == "cirl":
        return {}
    if method in ("dsfn", "dsfn_h"):
        return {"dsfn": _dsfn_config(method, dsfn), "gamma": config.gamma, "horizon": config.length}
    if method in PEERS:
        return {method: PEERS[method][0](config.cloning.longer()), "gamma": config.gamma}
    return {"cloning": config.cloning.longer()} if method == "cloning" else {"fit": _fit_config(method, config)}


def solve(method: str, study: Study, dsfn: DSFNLoopConfig, oracle: OracleModel | None = None) -> FittedMethod:
    """What one method makes of the same episodes.

    Args:
        method: one of :data:`irl.result.baselines.METHODS`; "cirl" is fitted anew, with the outcome model that the
            settings name.
        study: what there is to learn from; no method can ask for the simulator. The length of episodes is known.
        dsfn: settings of DSFN; DSFN(h) has the same with memory.
        oracle: the simulator as outcome model, for the control alone.

    Raises:
        ValueError: the method cannot work with what it is given.
    """
    if method in ("dsfn", "dsfn_h"):
        return _dsfn(method, study, _dsfn_config(method, dsfn))
    if method == "cloning":
        return _cloning(study)
    if method in PEERS:
        return _peer(method, study)
    if method == "oracle" and oracle is None:
        raise ValueError("the oracle control needs the simulator")
    # Not learnt; but it answers all that the nine steps ask of a model.
    model = oracle if method == "oracle" else None
    return _explained(method, replace(study, config=_fit_config(method, study.config), model=model))


def found_by_run(run: FinishedRun) -> FittedMethod:
    """The row of CIRL: what the run found itself, so that the table says of it what the run says."""
    row = structs.replace(run.own.row("cirl"), scores=run.own_scores.get("cirl"))
    return FittedMethod(run.own.policy, row, None)


def _fit_config(method: str, config: FitConfig) -> FitConfig:
    """With the method's outcome model; every fit also clones, which is a row of its own: here as little as can be."""
    least = CloningConfig(hidden=1, priors=(0.0,), training=replace(config.cloning.training, epochs=1))
    kind = config.model if method in ("cirl", "oracle") else cast(Kind, method)
    return replace(config, model=kind, cloning=least)


def _explained(method: str, study: Study) -> FittedMethod:
    """Steps 4 to 9 of the pipeline."""
    found = fit(study)
    said = RecoveredPreferences.of_fit(found, "simulator" if method == "oracle" else study.config.model)
    return FittedMethod(said.policy, said.row(method), partial(log_chances, found), found)


def _dsfn_config(method: str, config: DSFNLoopConfig) -> DSFNLoopConfig:
    return replace(config, dsfn=config.dsfn.with_history()) if method == "dsfn_h" else config


def _dsfn(method: str, study: Study, config: DSFNLoopConfig) -> FittedMethod:
    """From the batch alone (Lee et al. 2019); an episode ends where watching ended, as in the pipeline."""
    horizon = study.config.length or study.train.horizon
    splits = (study.train.with_early_ends(horizon), study.validation.with_early_ends(horizon))
    rng, gamma = np.random.default_rng([study.seed, *method.encode()]), study.config.gamma
    with study.stages.stage("policies from the batch alone") as report:
        phi, signs = study.feature_map, study.signs
        found = fit_dsfn(*splits, phi, signs, gamma, config, rng, report, rules=_rules(study))
    policy, w = dsfn_answer(found)
    weights = None if w is None else tuple(w.tolist())
    row = Row(method=method, memory=method == "dsfn_h", weights=weights, note=dsfn_note(found))
    return FittedMethod(policy, row, None)


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
    told = [loop_note(len(found.loop.rounds), found.loop.stop)]
    if found.already_matched:
        told.append("already matched: imitating the experts left nothing to explain, so it began with drawn weights")
    if dsfn_answer(found)[1] is None:
        policy = "" if found.imitation is None else ", and the policy is the imitation"
        told.append(f"no round came nearer than theirs: there are no weights{policy}")
    return "; ".join(told)


def _cloning(study: Study) -> FittedMethod:
    """Recurrent behaviour cloning: what the experts would do, not what they want."""
    rng, config = np.random.default_rng([study.seed, *b"cloning"]), study.config.cloning.longer()
    with study.stages.stage("behaviour cloning") as report:
        found = fit_cloning(study.train, study.validation, config, rng, report, rules=_rules(study))
    note = "" if found.accepted else "the network did not improve on a logistic regression, which acts alone"
    return FittedMethod(found.policy, Row(method="cloning", memory=True, note=note), found.policy.log_probabilities)


def _peer(method: str, study: Study) -> FittedMethod:
    """AVRIL or IQ-Learn, with the network of behaviour cloning; nothing follows an episode's last action, as in mu."""
    train, validation = (
        replace(batch, terminated=np.ones_like(batch.terminated), truncated=np.zeros_like(batch.truncated))
        for batch in (study.train, study.validation)
    )
    (settings, fit_peer), rng = PEERS[method], np.random.default_rng([study.seed, *method.encode()])
    config, gamma = settings(study.config.cloning.longer()), study.config.gamma
    with study.stages.stage("policy and reward from the batch alone") as report:
        found, _ = fit_peer(train, validation, gamma, config, rng, report, rules=_rules(study))
    w, explained = implied_weights(found.rewards(train), train, study.feature_map)
    note = f"weights are implied: a linear function of the outcomes explains {100 * explained:.0f} % of its own reward"
    weights = None if w is None else tuple(w.tolist())
    row = Row(method=method, memory=True, weights=weights, reward_explained=explained, note=note)
    return FittedMethod(found.policy, row, found.policy.log_probabilities)


def _rules(study: Study) -> ActionRules | None:
    """What was forbidden to the experts, and is to every method's policy."""
    return rules_for(study.train, study.config.forbid)
