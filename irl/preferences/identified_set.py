"""Which weights explain the expert equally well: regret, the identified set, and features that no data can weigh.

regret(w) = max over found policies of w . mu_k, minus w . mu_E, for w of L1 norm 1: by how much the expert falls
short, under w, of the best policy found. It is convex and piecewise linear in w.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.special import lambertw, stdtrit

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import allowed_faces, arc_weights, checked_signs
from cirl_gym.data.outcomes import check_outcomes, outcome_values, read_outcome
from cirl_gym.types import FloatArray
from irl.max_margin.loop import FeatureExpectation

DEPENDENT = 1e-3
"""Standardised features are linearly dependent where a combination of length 1 varies by less than this."""
TAKES_PART = 0.05
"""A feature takes part in a dependence where its share of the combination is at least this."""


@dataclass(frozen=True)
class IdentifiedSet:
    """All weights of L1 norm 1 with regret <= max(minimum, 0) + tolerance, as an interval per feature.

    A regret of 0 or less means that the expert is at least as good as every policy found: all such weights explain
    the data fully, which is why the bar is never set below 0. Not every combination of values inside the intervals
    belongs to the set, and the set can consist of several parts.
    """

    minimum: float
    """Smallest regret of any allowed weights. Clearly above 0: no weights make the expert optimal."""
    best: FloatArray
    """``[d]`` weights that attain it (there may be others)."""
    tolerance: float
    """Slack for sampling error, solver error and an expert who errs."""
    low: FloatArray
    """``[d]`` smallest value of each weight in the set."""
    high: FloatArray
    """``[d]`` largest value of each weight in the set."""
    exact: bool
    """False where the search was cut short: then the intervals enclose the exact ones."""
    profile: FloatArray | None = None
    """``[M, 3]`` of two features, (weight, weight, regret) along the allowed part of the sphere; else None."""
    not_identifiable: Mapping[str, str] = field(default_factory=dict)
    """Features whose weight no data of this kind can determine, with the reason."""


def regret(w: FloatArray, mus: FloatArray, mu_expert: FloatArray) -> FloatArray:
    """``[M]`` regret of weights ``[M, d]`` for policies' ``mus [K, d]`` and mu_E ``[d]``."""
    worst: FloatArray = (w @ (mus - mu_expert).T).max(axis=1)
    return worst


def sampling_tolerance(
    expectation: FeatureExpectation, signs: npt.ArrayLike, *, level: float = 0.9, solver_error: float = 0.0
) -> float:
    """Tolerance with which the identified set contains the weights of least true regret, with probability ``level``.

    If delta is the error of mu_E, the regrets of two weights are compared with error (w - w') . delta. Over the allowed
    part of the sphere that is largest between two corners (signed unit vectors), so the bound is the largest standard
    deviation between corners times Student's quantile with groups - 1 degrees of freedom, Bonferroni over the pairs.
    An error of at most ``solver_error`` in every component of the mus shifts each of the two regrets by that much.

    Raises:
        ValueError: there is only one group, lengths differ, or an argument is out of range.
    """
    allowed = checked_signs(signs)
    if expectation.covariance is None:
        raise ValueError("the sampling error of mu_E is unknown: the batch has a single group (patient)")
    if allowed.shape != expectation.mean.shape:
        raise ValueError(f"signs must be {len(expectation.mean)} numbers, got {len(allowed)}")
    if not 0 < level < 1 or not solver_error >= 0:
        raise ValueError(f"level must lie in (0, 1) and solver_error not below 0, got {level} and {solver_error}")
    unit = np.eye(len(allowed))
    corners = np.concatenate([unit[allowed >= 0], -unit[allowed <= 0]])
    first, second = np.triu_indices(len(corners), k=1)
    if len(first) == 0:
        return 2 * solver_error
    between = corners[first] - corners[second]
    deviation = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", between, expectation.covariance, between), 0.0)).max()
    quantile = stdtrit(expectation.groups - 1, 1 - (1 - level) / (2 * len(first)))
    return float(quantile * deviation + 2 * solver_error)


def expert_regret_bound(kappa: float, gamma: float, horizon: int, n_actions: int) -> float:
    """Largest regret, under its own weights, of an expert who draws actions from softmax(kappa Q).

    In one step such an expert loses sum_a p(a) (max Q - Q(a)) on average. That is largest where all other actions are
    worse by the same x / kappa, with x = 1 + W and value W / kappa, where W = W((A - 1) / e) is Lambert's function.
    By the performance-difference lemma the regret is the discounted sum of these losses.

    Raises:
        ValueError: kappa is negative, gamma outside [0, 1], or there are no steps or less than two actions.
    """
    if not kappa >= 0 or not 0 <= gamma <= 1 or horizon < 1 or n_actions < 2:
        raise ValueError(f"no bound for kappa {kappa}, gamma {gamma}, horizon {horizon}, {n_actions} actions")
    if kappa == 0:
        return float("inf")
    steps = float((gamma ** np.arange(horizon)).sum())
    return float(lambertw((n_actions - 1) / np.e).real) / kappa * steps


def identified_set(
    mu_expert: FloatArray,
    mus: FloatArray,
    signs: npt.ArrayLike,
    *,
    tolerance: float,
    points: int = 200,
    nodes: int = 10_000,
    not_identifiable: Mapping[str, str] | None = None,
) -> IdentifiedSet:
    """Bound every weight over the identified set by mixed-integer linear programs, 2 d + 1 of them.

    Args:
        mu_expert: ``[d]`` mu_E.
        mus: ``[K, d]`` feature expectations of the policies found; the more policies, the smaller the set.
        signs: ``[d]`` of -1, 0 (free) and 1.
        tolerance: slack in regret, see :func:`sampling_tolerance` and :func:`expert_regret_bound` (add them).
        points: steps of the profile per face, for two features.
        nodes: largest number of sign patterns that a program may branch on (with fixed signs none is needed).
        not_identifiable: see :func:`not_identifiable`.

    Raises:
        ValueError: shapes do not match, a number is not finite, or the tolerance is negative.
    """
    mu_expert, mus = np.asarray(mu_expert, dtype=np.float64), np.asarray(mus, dtype=np.float64)
    allowed = checked_signs(signs)
    if mus.ndim != 2 or len(mus) == 0 or not mus.shape[1:] == mu_expert.shape == allowed.shape:
        raise ValueError(
            f"mus must be [K, d], mu_expert and signs [d], got {mus.shape}, {mu_expert.shape}, {allowed.shape}"
        )
    if not (np.isfinite(mus).all() and np.isfinite(mu_expert).all()) or not tolerance >= 0:
        raise ValueError(f"mus and mu_expert must be finite and the tolerance not negative, got {tolerance}")
    d = len(allowed)
    scale = float(np.abs(mus - mu_expert).max()) or 1.0
    program = _Program((mus - mu_expert) / scale, allowed, nodes)
    best, _ = program.minimise(np.append(np.zeros(d), 1.0), 2.0)
    if best is None:  # no candidate before the nodes ran out: any allowed corner does, the set only grows
        best = np.eye(d)[0] * (allowed[0] or 1.0)
    minimum = float(regret(best[None], mus, mu_expert)[0])
    limit = (max(minimum, 0.0) + tolerance) / scale
    # A corner of the sphere that belongs to the set is its bound; only the other bounds need a program.
    inside = regret(np.concatenate([-np.eye(d), np.eye(d)]), mus, mu_expert) / scale <= limit
    inside &= np.concatenate([allowed <= 0, allowed >= 0])
    unit = np.eye(d, d + 1)
    low = np.array([-1.0 if inside[i] else program.minimise(unit[i], limit)[1] for i in range(d)])
    high = np.array([1.0 if inside[d + i] else -program.minimise(-unit[i], limit)[1] for i in range(d)])
    low, high = np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0) + 0.0  # no minus zero
    profile = None
    if d == 2:
        along = np.unique(np.concatenate([face + np.arange(points + 1) / points for face in allowed_faces(allowed)]))
        profile = np.column_stack([arc_weights(along), regret(arc_weights(along), mus, mu_expert)])
    named = dict(not_identifiable or {})
    return IdentifiedSet(minimum, best, float(tolerance), low, high, program.exact, profile, named)


class _Program:
    """The L1 sphere and the regret as mixed-integer constraints on (p, n, b, r): w = p - n, and b = 1 where w > 0."""

    def __init__(self, gaps: FloatArray, signs: FloatArray, nodes: int) -> None:
        k, d = gaps.shape
        self._d = d
        self._nodes = nodes
        self.exact = True
        eye, none = np.eye(d), np.zeros((d, d))
        rows = np.vstack(
            [
                np.hstack([eye, none, -eye, np.zeros((d, 1))]),  # p <= b
                np.hstack([none, eye, eye, np.zeros((d, 1))]),  # n <= 1 - b
                np.hstack([gaps, -gaps, np.zeros((k, d)), -np.ones((k, 1))]),  # (mu_k - mu_E) . w <= r
                np.concatenate([np.ones(2 * d), np.zeros(d + 1)])[None],  # sum(p + n) = 1
            ]
        )
        upper = np.concatenate([np.zeros(d), np.ones(d), np.zeros(k), [1.0]])
        lower = np.concatenate([np.full(2 * d + k, -np.inf), [1.0]])
        self._constraints = LinearConstraint(rows, lower, upper)
        self._low = np.concatenate([np.zeros(2 * d), signs > 0, [-2.0]])
        self._high = np.concatenate([signs >= 0, signs <= 0, signs >= 0, [2.0]]).astype(np.float64)
        self._integrality = np.concatenate([np.zeros(2 * d), signs == 0, [0]])

    def minimise(self, objective: FloatArray, limit: float) -> tuple[FloatArray | None, float]:
        """The w ``[d]`` with the least ``objective [d + 1]`` over (w, r) with r <= limit, and a lower bound of it.

        Where the nodes ran out the bound still holds, and w can be worse or missing.
        """
        d = self._d
        high = self._high.copy()
        high[-1] = min(high[-1], limit + 1e-9)  # the solver's own rounding must not empty the set
        result = milp(
            np.concatenate([objective[:d], -objective[:d], np.zeros(d), objective[d:]]),
            constraints=self._constraints,
            bounds=Bounds(self._low, high),
            integrality=self._integrality,
            options={"mip_rel_gap": 0.0, "node_limit": self._nodes},
        )
        done = result.status == 0
        bound = result.fun if done else result.mip_dual_bound
        if bound is None or not np.isfinite(bound):
            raise RuntimeError(f"the linear program of the identified set failed: {result.message}")
        self.exact &= done
        if result.x is None:
            return None, float(bound)
        x = cast(FloatArray, result.x)
        return np.clip(x[:d] - x[d : 2 * d], -1.0, 1.0), float(bound)


def not_identifiable(batch: Batch, outcomes: Sequence[str] | None = None) -> dict[str, str]:
    """Features whose weights the outcomes in a batch cannot tell apart, by name, with the reason.

    A constant outcome says nothing but how long episodes last; of outcomes that are linear functions of each other
    only a combination of the weights is determined. ``outcomes`` names those that are weighed, computed ones among
    them; None: all features.

    Raises:
        ValueError: an outcome is none of the batch's features, nor computed of them.
    """
    names = batch.features if outcomes is None else tuple(outcomes)
    read = [read_outcome(name, batch.features) for name in names]
    check_outcomes(read, batch.features)
    rows = outcome_values(batch.next_obs[batch.mask], read, batch.features)
    centre, spread = rows.mean(axis=0), rows.std(axis=0)
    constant = rows.min(axis=0) == rows.max(axis=0)
    reasons = {
        names[i]: f"constant: every outcome is {centre[i]:.6g}, so its weight would only count steps"
        for i in np.flatnonzero(constant)
    }
    varying = np.flatnonzero(~constant)
    z = (rows[:, varying] - centre[varying]) / spread[varying]
    eigenvalues, vectors = np.linalg.eigh(z.T @ z / len(z))
    null = vectors[:, eigenvalues < DEPENDENT**2]
    shared = null @ null.T
    for j, column in enumerate(varying):
        if np.sqrt(max(shared[j, j], 0.0)) < TAKES_PART:
            continue
        partners = [names[varying[i]] for i in range(len(varying)) if i != j and abs(shared[i, j]) > 0.01]
        reasons[names[column]] = (
            f"duplicate: moves exactly with {partners[0]!r}"
            if len(partners) == 1
            else f"collinear: a linear function of {', '.join(repr(name) for name in partners)}"
        )
    return reasons
