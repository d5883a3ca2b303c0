"""From a fit to what is reported: every number of result.json, and the finding in plain sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.diagnostics import counterfactual_error, factual_error
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.parameters import TumourParameters
from cirl_gym.rollout import act_along, returns, rollout
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds import CounterfactualWorld, TumourWorld
from irl.max_margin import MaxMarginResult
from irl.metrics import accuracy, ceiling, majority, repeat_last_action
from irl.pipeline import Fit, Simulated
from irl.result import Accuracy, Episodes, Estimate, IdentifiedRanges, Kappa, LoopRound, Member, ModelError

WIDE = 0.2
"""An identified interval wider than this is called wide."""
_WATCHED = 25
"""Held-out episodes on which the policy of every round is watched."""
_IMAGINED = 200
"""Episodes of the recovered policy that are imagined to see how long they are."""


class ConstantPolicy:
    """Always the same action, or one drawn evenly: the baselines that look at nothing."""

    def __init__(self, action: int | None, n_actions: int, rng: np.random.Generator) -> None:
        self.action, self.n_actions, self.rng = action, n_actions, rng

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, None]:
        """Actions ``[n]``; see :class:`cirl_gym.types.Policy`."""
        n = len(observation)
        drawn = self.rng.integers(self.n_actions, size=n)
        return (drawn if self.action is None else np.full(n, self.action)), None


def measured_accuracy(found: Fit, train: Batch, test: Batch, chances: FloatArray | None) -> Accuracy:
    """Appendix H on held-out episodes, beside what a copy, habit and repetition reach, and the ceiling if known."""
    return Accuracy(
        cirl=accuracy(act_along(found.policy, test), test),
        cloning=accuracy(act_along(found.cloning, test), test),
        majority=accuracy(majority(train, test), test),
        repeat_last_action=accuracy(repeat_last_action(train, test), test),
        ceiling=ceiling(chances, test),
    )


def measured_returns(
    found: Fit, simulated: Simulated, parameters: TumourParameters, episodes: int, seed: int
) -> dict[str, Estimate]:
    """Undiscounted return under the true weights in the simulator; every policy has the same patients and noise."""
    rng = np.random.default_rng(seed)
    feature_map = simulated.expert.agent.feature_map
    policies: dict[str, Policy] = {
        "expert": simulated.expert.policy(),
        "cirl": found.policy,
        "cloning": found.cloning,
        "random": ConstantPolicy(None, 2, rng),
        "never": ConstantPolicy(0, 2, rng),
        "always": ConstantPolicy(1, 2, rng),
    }
    estimates = {}
    for name, policy in policies.items():
        batch = rollout(TumourWorld(parameters), policy, episodes, np.random.default_rng([seed, 1]))
        values = returns(batch, feature_map, simulated.expert.w)
        estimates[name] = Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(episodes)))
    return estimates


def measured_error(found: Fit, test: Batch, parameters: TumourParameters | None) -> ModelError:
    """Error of phi on held-out histories; of actions not taken only where a simulator can be asked."""
    model, feature_map = found.model.model, found.feature_map
    factual = factual_error(model, test, feature_map).pooled
    if parameters is None:
        return ModelError(factual, None)
    return ModelError(factual, counterfactual_error(model, test, OracleModel(parameters), feature_map).pooled)


def parts(found: Fit, splits: tuple[Batch, Batch, Batch]) -> dict[str, Any]:
    """The fields of :class:`irl.result.Result` that follow from the fit alone."""
    names, posterior, identified = found.feature_map.features, found.posterior, found.identified
    ranges = zip(names, zip(identified.low, identified.high, strict=True), strict=True)
    return {
        "features": names,
        "weights": found.weights,
        "intervals": _intervals(names, posterior.low, posterior.high),
        "identified_set": IdentifiedRanges(
            ranges={name: (float(min(pair)), float(max(pair))) for name, pair in ranges},
            minimum=identified.minimum,
            tolerance=identified.tolerance,
            not_identifiable=dict(identified.not_identifiable),
        ),
        "mu_expert": found.mu_expert.mean,
        "margin": found.loop.margin,
        "rounds": recorded_rounds(found.loop, splits[2]),
        "estimates": {
            "posterior": posterior.mean,
            "w_K": found.loop.weights,
            "last_direction": found.loop.last_weights,
            "least_regret": identified.best,
        },
        "kappa": Kappa(posterior.kappa_mean, (posterior.kappa_low, posterior.kappa_high)),
        "stop": found.loop.stop,
        "episodes": Episodes(len(splits[0]), len(splits[1]), len(splits[2]), *mean_lengths(found, splits[0])),
        "members": tuple(
            Member(tuple(one.posterior.mean), tuple(one.mu_expert), tuple(one.mu_recovered)) for one in found.members
        ),
    }


def recorded_rounds(loop: MaxMarginResult, test: Batch) -> tuple[LoopRound, ...]:
    """Every round of the loop, with what its policy would have done on the first held-out episodes."""
    watched = test.take(np.arange(min(len(test), _WATCHED)))
    rounds: list[LoopRound] = []
    before = None
    for entry, policy in zip(loop.rounds, loop.policies, strict=True):
        chosen = act_along(policy, watched)
        changed = None if before is None else float((chosen != before)[watched.mask].mean())
        numbers = (entry.k, tuple(entry.w), tuple(entry.mu), entry.lambda_clipped, entry.margin, entry.seconds)
        rounds.append(LoopRound(*numbers, accuracy(chosen, watched), changed))
        before = chosen
    return tuple(rounds)


def mean_lengths(found: Fit, train: Batch) -> tuple[float, float]:
    """Mean number of actions of the experts' episodes, and of the recovered policy's in the world model."""
    starts = train.start[:_IMAGINED]
    world = CounterfactualWorld(found.model.model, starts, found.agent.horizon)
    imagined = rollout(world, found.policy, len(starts), np.random.default_rng(0))
    return float(train.lengths.mean()), float(imagined.lengths.mean())


def _intervals(names: tuple[str, ...], low: FloatArray, high: FloatArray) -> dict[str, tuple[float, float]]:
    return {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}


def headline(found: Fit, met: Accuracy, truth: FloatArray | None = None) -> tuple[str, ...]:
    """The finding and what limits it, one sentence each."""
    return (
        *_weights_sentences(found),
        *_seen_sentences(found.feature_map),
        *_identified_sentences(found),
        *([] if truth is None else [_truth_sentence(found, truth)]),
        _accuracy_sentence(met),
    )


def _weights_sentences(found: Fit) -> list[str]:
    names, posterior, w = found.feature_map.features, found.posterior, found.weights
    order = np.argsort(-np.abs(w))
    clear = [i for i in order if posterior.low[i] * posterior.high[i] > 0]
    unclear = len(order) - len(clear)
    sentences = []
    if clear:
        listed = ", ".join(f"{names[i]} {w[i]:+.2f} ({_per(found.feature_map, int(i))})" for i in clear[:4])
        more = f" and {len(clear) - 4} more" if len(clear) > 4 else ""
        sentences.append(f"What the decisions traded off, largest first: {listed}{more}.")
    if unclear:
        have = "has a weight" if unclear == 1 else "have weights"
        some = f"{unclear} of {len(order)} features {have} whose sign is not"
        which = some if clear else "none of the features has a weight whose sign is"
        sentences.append(f"By the 90 % intervals, {which} determined by the data.")
    return sentences


def _seen_sentences(feature_map: FeatureMap) -> list[str]:
    """What was seen and not weighed."""
    if set(feature_map.of) == set(feature_map.features):
        return []
    seen, weighed = len(feature_map.of), len(feature_map.features)
    return [f"Of {seen} observed features {weighed} are weighed as outcomes; the others are only seen and predicted."]


def _per(feature_map: FeatureMap, i: int) -> str:
    return f"per {feature_map.high[i] - feature_map.low[i]:.4g} units"


def _identified_sentences(found: Fit) -> list[str]:
    identified, names = found.identified, found.feature_map.features
    wide = [i for i in range(len(names)) if identified.high[i] - identified.low[i] > WIDE]
    sentences = [f"{name} cannot be judged: {reason}." for name, reason in identified.not_identifiable.items()]
    if len(names) == 2 and wide:
        low, high = identified.low[0], identified.high[0]
        sentences.append(
            f"Average outcomes alone leave {names[0]} weights from {low:.2f} to {high:.2f} possible; the narrower "
            "interval comes from how single decisions vary, and rests on the model of their chance."
        )
    elif wide:
        verb = "is" if len(wide) == 1 else "are"
        sentences.append(
            f"By average outcomes alone, {len(wide)} of {len(names)} weights {verb} not identified within {WIDE:g}."
        )
    return sentences


def _truth_sentence(found: Fit, truth: FloatArray) -> str:
    error = float(np.abs(found.weights - truth).max())
    values = ", ".join(f"{value:+.3g}" for value in truth)
    return f"The simulated expert's true weights are ({values}); the largest error is {error:.3f}."


def _accuracy_sentence(met: Accuracy) -> str:
    beside = f"cloning {met.cloning:.3f}, majority {met.majority:.3f}, last action {met.repeat_last_action:.3f}"
    known = "" if met.ceiling is None else f"; nobody can exceed {met.ceiling:.3f}"
    text = f"The recovered policy meets {met.cirl:.3f} of held-out decisions ({beside}{known})."
    if met.cirl < max(met.majority, met.repeat_last_action):
        text += (
            " Habit alone predicts these decisions better: read the weights as a description of outcomes preferred, "
            "not as what drives each decision."
        )
    return text
