"""The DSFN baseline: the max-margin loop over policies that are found and judged on the batch alone (section 5).

Nothing here sees an outcome model or an environment: mu_E is the discounted sum of the outcomes that were observed, and
policies and their mu come from :class:`agents.dsfn.DSFN`. What a policy does outside the expert's histories is guessed
by temporal differences, which is the weakness that CIRL was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from agents.dsfn import DSFN, DSFNConfig, DSFNSolution
from cirl_gym.action_rules import ActionRules
from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.rollout import act_along
from cirl_gym.types import FloatArray, Policy
from cirl_gym.weight_sphere import checked_signs, draw_weights, keep_signs
from irl.feature_expectations import FeatureExpectation, expert_mu
from irl.max_margin import MaxMarginResult, Round, max_margin
from irl.metrics import accuracy


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

    @property
    def mus(self) -> FloatArray:
        """``[rounds, d]`` feature expectations of all policies, as the networks have them."""
        return self.loop.mus

    @property
    def margins(self) -> FloatArray:
        """``[rounds]`` distance from mu_E to mu_bar after each round, of the vectors themselves."""
        return np.array([r.margin for r in self.loop.rounds])


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
    warm = imitation is not None and _leaves_something(expert.mean - imitation.mu, signs, config.tolerance)
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


def _leaves_something(left: FloatArray, signs: npt.ArrayLike, tolerance: float) -> bool:
    """Whether mu_E - mu_0 ``[d]`` is more than the tolerance and has a component whose sign is allowed."""
    return bool(np.linalg.norm(left) > tolerance and keep_signs(left, checked_signs(signs)).any())
