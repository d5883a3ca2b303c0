"""Feature expectations (paper, equations 1 and 3), and the max-margin loop over them (Algorithm 1).

The loop looks for weights whose optimal policy has the expert's feature expectation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, checked_signs, keep_signs, normalised
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.rollout import discounted
from cirl_gym.types import FloatArray, Policy

SAME = 1e-12
"""Two feature expectations whose distance is below this share of their size are the same policy's."""
STALL = 1e-9
"""A round that lowers the margin by less than this share of it has not lowered it."""

Stop: TypeAlias = Literal[
    "converged", "already matched", "no new policy", "stalled", "no allowed weights", "rounds", "enough"
]
REASONS: Mapping[Stop, str] = {
    "converged": "the margin is within the tolerance",
    "already matched": "the first policy is within the tolerance",
    "no new policy": "no policy was found that differs from those before",
    "stalled": "the margin no longer fell",
    "no allowed weights": "what is left has signs that are not allowed",
    "rounds": "all rounds were used",
    "enough": "a round changed little",
}
"""Why the loop ended, in words."""


@dataclass(frozen=True)
class FeatureExpectation:
    """A mean over episodes of discounted sums of phi, and how well the episodes determine it."""

    mean: FloatArray
    """``[d]`` mu."""
    covariance: FloatArray | None
    """``[d, d]`` sampling covariance of the mean; groups (patients) are the unit, so that episodes of one patient may
    depend on each other. None with a single group: then nothing can be said."""
    episodes: int
    """N."""
    groups: int
    """Number of different groups."""


def phi_along(model: OutcomeModel, feature_map: FeatureMap, batch: Batch) -> FloatArray:
    """``[N, T, d]`` phi(h_t, a_t) of the actions taken (paper, equation 1), zero on padding.

    Raises:
        ValueError: the three do not speak of the same features, or of the same number of actions.
    """
    if not model.features == feature_map.of == batch.features:
        raise ValueError(
            f"the features differ: model {model.features}, feature map {feature_map.of}, batch {batch.features}"
        )
    if model.n_actions != batch.n_actions:
        raise ValueError(f"the model knows {model.n_actions} actions, the batch has {batch.n_actions}")
    outcomes = model.predict(model.encode(batch)[:, :-1])  # h_T has no action
    taken = np.take_along_axis(outcomes, batch.actions[:, :, None, None], axis=2)[:, :, 0]
    return np.where(batch.mask[..., None], feature_map(taken), 0.0)


def expert_mu(phi: FloatArray, batch: Batch, gamma: float) -> FeatureExpectation:
    """mu_E: mean over episodes of sum over t = 0..T-1 of gamma^t phi_t (paper, equation 3).

    The paper lets the sum run to T, but h_T has no action: there are T terms. gamma starts anew in every episode. Of
    episodes that a policy played in a world this is the Monte-Carlo estimate of that policy's mu. Rows of ``phi
    [N, T, d]`` past an episode's end are not looked at.

    Raises:
        ValueError: phi has another shape or is not finite, or gamma lies outside [0, 1].
    """
    if phi.ndim != 3 or phi.shape[:2] != batch.actions.shape:
        raise ValueError(f"phi must be [N, T, d] with N, T = {batch.actions.shape}, got {phi.shape}")
    phi = np.where(batch.mask[..., None], phi, 0.0)
    if not np.isfinite(phi).all():
        episode, step, _ = (int(i) for i in np.argwhere(~np.isfinite(phi))[0])
        raise ValueError(f"phi of episode {batch.ids[episode]!r}, step {step} is not finite")
    sums = discounted(batch, phi, gamma)
    mean = sums.mean(axis=0)
    names, member = np.unique(batch.groups, return_inverse=True)
    covariance = None
    if len(names) > 1:
        # Groups of unequal size: linearised variance of a ratio of two means over groups, with the usual G/(G-1).
        deviation = np.zeros((len(names), phi.shape[2]))
        np.add.at(deviation, member, sums - mean)
        covariance = deviation.T @ deviation * (len(names) / (len(names) - 1)) / len(batch) ** 2
    return FeatureExpectation(mean, covariance, len(batch), len(names))


@dataclass(frozen=True)
class Projection:
    """mu_E projected onto the segment from bar to mu (paper, Algorithm 1, line 10)."""

    bar: FloatArray
    """``[d]`` the nearest point of the segment to mu_E."""
    clipped: float
    """The factor used, within [0, 1]."""
    raw: float
    """The factor before clipping; outside [0, 1] the solver or mu is off (optimal policies never give less than 0)."""


def project(mu_expert: FloatArray, bar: FloatArray, mu: FloatArray) -> Projection | None:
    """Move ``bar [d]`` towards ``mu [d]`` of the newest policy, as near to mu_E ``[d]`` as the segment allows.

    The paper projects onto the whole line. A point outside the segment is the feature expectation of no mixture of
    policies, so the factor is kept within [0, 1]. None where mu equals bar: there is no line, and no new policy.
    """
    d = mu - bar
    scale = max(float(np.abs(vector).max()) for vector in (mu_expert, bar, mu))
    size = float(np.abs(d).max())
    if size <= SAME * scale:
        return None
    along = d / size  # first, so that the square of a tiny step does not become zero
    raw = float(along @ ((mu_expert - bar) / size)) / float(along @ along)
    clipped = min(max(raw, 0.0), 1.0)
    return Projection(bar + clipped * d, clipped, raw)


class Solution(Protocol):
    """What solving for a policy yields."""

    @property
    def policy(self) -> Policy:
        """Optimal for the weights asked for, as well as the solver can."""

    @property
    def mu(self) -> FloatArray:
        """``[d]`` its feature expectation."""


@dataclass(frozen=True)
class Round:
    """One solved policy and the projection that followed."""

    k: int
    """Number of the round; 0 is the initial policy."""
    w: FloatArray
    """``[d]`` the weights solved for, L1 norm 1."""
    mu: FloatArray
    """``[d]`` feature expectation of the policy found."""
    lambda_clipped: float | None
    """Factor of the projection, within [0, 1]; None where nothing was projected (round 0, no new policy)."""
    lambda_raw: float | None
    """The factor before clipping."""
    margin: float
    """||mu_E - mu_bar|| after the round, of the vectors themselves and not of scaled ones."""
    distance: float
    """||mu_E - mu||, what K is chosen by."""
    seconds: float
    """Wall time of the round."""


@dataclass(frozen=True)
class MaxMarginResult:
    """Everything that the loop tried, and what it picks.

    Raises:
        ValueError: there is not one policy per round, or the rounds are not numbered 0, 1, 2, ...
    """

    mu_expert: FloatArray
    """``[d]`` mu_E."""
    rounds: tuple[Round, ...]
    """Round 0 and those that followed."""
    policies: tuple[Policy, ...]
    """One per round (Pi in the paper)."""
    bar: FloatArray
    """``[d]`` mu_bar after the last round: the feature expectation of a mixture of the policies."""
    stop: Stop
    """Why the loop ended: the margin fell below the tolerance; mu equals mu_bar; the margin no longer falls; every
    component of mu_E - mu_bar has the sign that is not allowed; all rounds were used; or the caller had enough."""

    def __post_init__(self) -> None:
        if not self.rounds or len(self.policies) != len(self.rounds):
            raise ValueError(f"{len(self.rounds)} rounds and {len(self.policies)} policies do not match")
        if [r.k for r in self.rounds] != list(range(len(self.rounds))):
            raise ValueError("the rounds must be numbered 0, 1, 2, ...")

    @property
    def mus(self) -> FloatArray:
        """``[rounds, d]`` feature expectations of the policies (Delta in the paper)."""
        return np.stack([r.mu for r in self.rounds])

    @property
    def best(self) -> int:
        """K: the round whose mu is nearest to mu_E (paper, Algorithm 1, line 13); the earliest of equals."""
        return int(np.argmin([r.distance for r in self.rounds]))

    @property
    def weights(self) -> FloatArray:
        """``[d]`` w_K, L1 norm 1. Where K is 0 these are the weights that the loop was started with, by chance."""
        return self.rounds[self.best].w

    @property
    def policy(self) -> Policy:
        """The policy of round K."""
        return self.policies[self.best]

    @property
    def last_weights(self) -> FloatArray:
        """``[d]`` the last projection direction that was solved for, L1 norm 1."""
        return self.rounds[-1].w

    @property
    def margin(self) -> float:
        """||mu_E - mu_bar|| after the last round."""
        return self.rounds[-1].margin


def max_margin(
    mu_expert: FloatArray,
    solve: Callable[[FloatArray], Solution],
    w0: FloatArray,
    *,
    rounds: int = 50,
    tolerance: float = 1e-3,
    signs: npt.ArrayLike | None = None,
    progress: Callable[[Round], None] | None = None,
    enough: Callable[[Round, Policy], bool] | None = None,
) -> MaxMarginResult:
    """Run Algorithm 1.

    Where the printed algorithm leaves a hole: the projection stays on the segment between the two points; w_k is scaled
    to L1 norm 1 before it is solved for, and the margin taken before that; the margin of the initial policy is looked
    at too (w_1 would be zero if it were 0); and the loop ends when no progress is possible any more.

    With ``signs`` a component of mu_E - mu_bar whose sign is not the fixed one is set to zero before solving, which
    is the nearest direction that is allowed. Margins and projections are left as they are.

    Args:
        mu_expert: ``[d]`` mu_E.
        solve: gives a policy that is optimal for weights ``[d]`` of L1 norm 1, and its mu.
        w0: ``[d]`` initial weights, of any scale (see :func:`cirl_gym.data.features.draw_weights`).
        rounds: largest number of rounds after round 0.
        tolerance: epsilon, the margin at which the loop has converged.
        signs: ``[d]`` of -1, 0 (free) and 1; default: all free.
        progress: called with every round when it is over.
        enough: a further rule: called with every round and its policy, ends the loop where it is True.

    Raises:
        ValueError: shapes differ, an argument is out of range, w0 is zero or breaks a fixed sign, or ``solve``
            answers with a mu that is not ``[d]`` finite numbers.
    """
    if rounds < 0 or not tolerance >= 0:
        raise ValueError(f"rounds and tolerance must not be negative, got {rounds} and {tolerance}")
    mu_expert, w = np.array(mu_expert, dtype=np.float64), normalised(w0)
    if mu_expert.ndim != 1 or not np.isfinite(mu_expert).all():
        raise ValueError(f"mu_expert must be a vector of finite numbers, got {mu_expert}")
    d = len(mu_expert)
    allowed = np.zeros(d) if signs is None else checked_signs(signs)
    if not len(w) == len(allowed) == d:
        raise ValueError(f"mu_expert, w0 and signs differ in length: {d}, {len(w)}, {len(allowed)}")
    if (w * allowed < 0).any():
        raise ValueError(f"w0 {w} breaks the fixed sign of feature {int(np.flatnonzero(w * allowed < 0)[0])}")
    done: list[Round] = []
    policies: list[Policy] = []
    bar = mu_expert
    stop: Stop | None = None
    while stop is None:
        begin = time.perf_counter()
        found = solve(w.copy())
        mu = np.array(found.mu, dtype=np.float64)
        if mu.shape != (d,) or not np.isfinite(mu).all():
            raise ValueError(f"round {len(done)}: the solver's mu must be {d} finite numbers, got {mu}")
        step = project(mu_expert, bar, mu) if done else None
        bar = step.bar if step else bar if done else mu
        margin, distance = (float(np.linalg.norm(mu_expert - point)) for point in (bar, mu))
        clipped, raw = (step.clipped, step.raw) if step else (None, None)
        done.append(Round(len(done), w, mu, clipped, raw, margin, distance, time.perf_counter() - begin))
        policies.append(found.policy)
        if progress is not None:
            progress(done[-1])
        direction = keep_signs(mu_expert - bar, allowed)
        stop = _stop(done, rounds, tolerance, direction)
        if enough is not None and enough(done[-1], found.policy) and stop is None:
            stop = "enough"
        if stop is None:
            w = normalised(direction)
    return MaxMarginResult(mu_expert, tuple(done), tuple(policies), bar, stop)


def _stop(done: list[Round], rounds: int, tolerance: float, direction: FloatArray) -> Stop | None:
    last = done[-1]
    if last.margin < tolerance or last.margin == 0:
        return "converged" if last.k else "already matched"
    if last.k > 0 and last.lambda_raw is None:
        return "no new policy"
    if not direction.any():
        return "no allowed weights"
    if last.k > 0 and last.margin >= done[-2].margin * (1 - STALL):
        return "stalled"
    return "rounds" if last.k >= rounds else None
