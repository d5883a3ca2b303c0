"""How strong something that was not observed would have to be to turn the sign of an effect.

After Cinelli and Hazlett (2020), "Making sense of sensitivity: extending omitted variable bias", J. R. Stat. Soc. B 82.
The regression is the law's: the next value on the current and past observations and actions, bends of its own level
among them, and on whether this action was taken, of all decisions with it or with the reference action. A cause
that was not observed moves the effect by at most

    standard error x sqrt(degrees of freedom) x sqrt(R2_y R2_a / (1 - R2_a)),

R2_a and R2_y being the shares that it explains of what is left of the action and of the next value. Observed
covariates, all numbers of one feature together, say how strong such a cause can be (their section 4.4). How strong they
are is itself only estimated, so that the upper end of a 95 % bound is given (a jackknife over parts of the patients).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import known_in, without
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.outcomes import KnownOutcome, OutcomeFeature
from cirl_gym.outcome_models.known import KnowingModel
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.masked import without_rules
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel
from cirl_gym.outcome_models.terms import chosen_rows
from cirl_gym.types import FloatArray, IntArray

SURE = 1.645
"""Standard errors up to the end of a bound that holds with 95 %."""


@dataclass(frozen=True)
class Sensitivity:
    """Of one action's effect on the next value of one feature."""

    feature: str
    effect: float
    """By the regression, raw units."""
    robustness: float
    """Share of what is left of both, the action and the next value, that a cause would have to explain to bring the
    effect to 0 (their robustness value)."""
    strongest: str
    """The observed feature by which a cause of the same strength would move the effect most."""
    moved: float
    """By how much such a cause would move the effect at most, raw units: upper end of a 95 % bound."""
    decisions: int
    """With this action or the reference action."""


def sensitivities(
    model: OutcomeModel, batch: Batch, outcomes: Sequence[OutcomeFeature]
) -> dict[tuple[int, str], Sensitivity]:
    """Sensitivity of every effect against the first action, by number of the action and name of the outcome.

    That of a computed outcome is that of the first feature that it is read from. What is known of the action, and what
    cannot be told, is left out; without a law there is none.

    Args:
        model: whose law says order and bends of the regression.
        batch: the episodes; of many, some whole patients.
        outcomes: what is weighed.
    """
    known = known_in(batch)
    rows = without(batch, known) if known else batch
    inner = without_rules(model)
    inner = inner.model if isinstance(inner, KnowingModel) else inner
    inner = inner.members[0] if isinstance(inner, EnsembleModel) else inner
    if not isinstance(inner, LearnedModel):
        return {}
    found = {}
    for action in range(1, rows.n_actions):
        regression = _Regression.of(inner.law, rows, action)
        for outcome in outcomes:
            if not isinstance(outcome, KnownOutcome):
                one = regression.sensitivity(rows.features.index(outcome.columns[0]))
                if one is not None:
                    found[action, outcome.name] = one
    return found


@dataclass(frozen=True)
class _Regression:
    """Columns of the regressions of one action, for decisions with it or with the first."""

    law: LinearLaw
    features: tuple[str, ...]
    covariates: FloatArray
    owner: IntArray
    levels: FloatArray
    taken: FloatArray
    outcomes: FloatArray
    part: IntArray

    @classmethod
    def of(cls, law: LinearLaw, batch: Batch, action: int) -> _Regression:
        steps = batch.mask
        episode, step = np.nonzero(steps)
        patients = batch.owners[episode]
        rows, part = chosen_rows(patients)
        compared = np.isin(batch.actions[steps][rows], (0, action))
        rows, part = rows[compared], part[compared]
        read, place = np.unique(episode[rows], return_inverse=True)
        d, order = law.window.n_features, law.window.order
        return cls(
            law,
            batch.features,
            law.window.encode(batch.take(read))[place, step[rows]].astype(np.float64),
            np.concatenate([np.tile(np.arange(d), order), np.full(law.window.size - order * d, -1)]),
            batch.obs[:, :-1][steps][rows].astype(np.float64),
            (batch.actions[steps][rows] == action).astype(np.float64),
            batch.next_obs[steps][rows].astype(np.float64),
            part,
        )

    def sensitivity(self, feature: int) -> Sensitivity | None:
        covariates, owner = self.covariates, self.owner
        if self.law.terms is not None and self.law.shapes[feature].bent:
            hinges = np.maximum(self.levels[:, feature, None] - self.law.terms.knots[:, feature], 0.0)
            covariates = np.concatenate([covariates, hinges], axis=1)
            owner = np.append(owner, np.full(hinges.shape[1], feature))

        def of(rows: npt.NDArray[np.bool_]) -> Sensitivity | None:
            taken, outcome = self.taken[rows], self.outcomes[rows, feature]
            return sensitivity_of(covariates[rows], owner, taken, outcome, self.features, feature)

        found = of(np.ones(len(self.part), dtype=bool))
        if found is None:
            return None
        without = [of(self.part != part) for part in np.unique(self.part)]
        moved = np.array([one.moved for one in without if one is not None and np.isfinite(one.moved)])
        if len(moved) < 2 or not np.isfinite(found.moved):
            return found
        error = np.sqrt((len(moved) - 1) * moved.var())
        return replace(found, moved=float(found.moved + SURE * error))


def sensitivity_of(
    covariates: FloatArray,
    owner: IntArray,
    taken: FloatArray,
    outcome: FloatArray,
    features: tuple[str, ...],
    feature: int,
) -> Sensitivity | None:
    """The same from a regression's arrays; None where the action cannot be told from the covariates, or nothing varies.

    Args:
        covariates: ``[n, F]``.
        owner: ``[F]`` number of the feature that each belongs to; -1: none (past actions).
        taken: ``[n]`` 1 where the action was taken, else 0.
        outcome: ``[n]``.
        features: names.
        feature: number of the one that ``outcome`` is the next value of.
    """
    if len(taken) < covariates.shape[1] + 3:
        return None
    every = np.column_stack([covariates, taken, outcome])
    centred = every - every.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    if min(spread[-2:]) <= 1e-9 * max(abs(outcome).max(), 1.0):
        return None
    varies = spread > 1e-9 * np.maximum(np.abs(every).max(axis=0), 1.0)
    gram = np.where(varies, centred / np.where(varies, spread, 1.0), 0.0)
    gram = gram.T @ gram / len(taken)
    freedom = len(taken) - int(varies.sum())
    of_action, between, of_outcome = _left_over(gram, np.ones(len(owner), dtype=bool))
    noise = of_outcome - between**2 / max(of_action, 1e-12)
    if of_action <= 1e-6 or noise <= 1e-9 or freedom < 1:
        return None
    unit = spread[-1] / spread[-2]
    error = unit * float(np.sqrt(noise / of_action / freedom))
    moved = {}
    for number in np.unique(owner[owner >= 0]):
        action_before, both_before, outcome_before = _left_over(gram, owner != number)
        noise_before = outcome_before - both_before**2 / action_before
        shares = [
            max(1.0 - after / before, 0.0) for after, before in ((of_action, action_before), (noise, noise_before))
        ]
        moved[features[number]] = most_moved(shares[0], shares[1], error, freedom)
    if not moved:
        return None
    strongest = max(moved, key=lambda name: moved[name])
    effect, most = float(unit * between / of_action), moved[strongest]
    return Sensitivity(
        features[feature], effect, robustness_value(effect / error, freedom), strongest, most, len(taken)
    )


def robustness_value(t: float, freedom: int) -> float:
    """Share of what is left of both that brings an effect of that many standard errors to 0 (their equation 20)."""
    strength = t**2 / freedom
    return float((np.sqrt(strength**2 + 4 * strength) - strength) / 2)


def most_moved(of_action: float, of_outcome: float, error: float, freedom: int) -> float:
    """Largest bias by a cause as strong as a covariate with these partial R2 (their equations for k = 1).

    Infinite where so strong a cause would leave nothing of the action.

    Args:
        of_action: share of what is left of the action that the covariate explains.
        of_outcome: share of what is left of the outcome, the action among what is known.
        error: standard error of the effect.
        freedom: degrees of freedom.
    """
    if of_action >= 0.5:
        return np.inf
    share_of_action = of_action / (1 - of_action)
    between = share_of_action**2
    scale = (1 + np.sqrt(between)) / np.sqrt(1 - between)
    share_of_outcome = min(scale**2 * of_outcome / max(1 - of_outcome, 1e-12), 1.0)
    return float(error * np.sqrt(freedom * share_of_outcome * share_of_action / (1 - share_of_action)))


def _left_over(gram: FloatArray, given: npt.NDArray[np.bool_]) -> tuple[float, float, float]:
    """What is left of the variances and the covariance of the last two columns, given some of the others."""
    known = np.flatnonzero(given)
    last = np.arange(len(gram) - 2, len(gram))
    inside = gram[np.ix_(known, known)].copy()
    # Columns that say the same (an observation before the first) share their weight.
    inside[np.diag_indices_from(inside)] += 1e-9
    across = gram[np.ix_(known, last)]
    rest = gram[np.ix_(last, last)] - across.T @ np.linalg.solve(inside, across)
    return float(rest[0, 0]), float(rest[0, 1]), float(rest[1, 1])
