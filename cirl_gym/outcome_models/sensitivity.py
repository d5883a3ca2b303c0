"""How strong something that was not observed would have to be to turn the sign of an effect.

After Cinelli and Hazlett (2020), "Making sense of sensitivity: extending omitted variable bias", J. R. Stat. Soc. B 82.
The regression is the law's: the next value on the current and past observations and actions, bends of its own level
among them, and on whether this action was taken, of all decisions with it or with the reference action. A cause
that was not observed moves the effect by at most

    standard error x sqrt(degrees of freedom) x sqrt(R2_y R2_a / (1 - R2_a)),

R2_a and R2_y being the shares that it explains of what is left of the action and of the next value. Observed
covariates, all numbers of one feature together, say how strong such a cause can be (their section 4.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.terms import Shape, TermColumns, chosen_rows
from cirl_gym.types import FloatArray, IntArray


@dataclass(frozen=True)
class Sensitivity:
    """Of one action's effect on the next value of one feature."""

    robustness: float
    """Share of what is left of both, the action and the next value, that a cause would have to explain to bring the
    effect to 0 (their robustness value)."""
    strongest: str
    """The observed feature by which a cause of the same strength would move the effect most."""
    moved: float
    """By how much such a cause would move the effect, raw units."""
    decisions: int
    """With this action or the reference action."""


def sensitivity(law: LinearLaw, batch: Batch, action: int, feature: int) -> Sensitivity | None:
    """Sensitivity of the effect of an action, against the first, on one feature; None where it cannot be told.

    Args:
        law: order and bends of the regression.
        batch: the episodes; of many, some whole patients.
        action: a number above 0.
        feature: number of the feature.
    """
    steps = batch.mask
    patients = np.unique(np.asarray(batch.groups), return_inverse=True)[1][np.nonzero(steps)[0]]
    rows, _ = chosen_rows(patients)
    rows = rows[np.isin(batch.actions[steps][rows], (0, action))]
    taken = (batch.actions[steps][rows] == action).astype(np.float64)
    window = law.window.encode(batch)[:, :-1][steps][rows].astype(np.float64)
    levels, outcome = batch.obs[:, :-1][steps][rows].astype(np.float64), batch.next_obs[steps][rows, feature]
    d, order = law.window.n_features, law.window.order
    owner = np.concatenate([np.tile(np.arange(d), order), np.full(law.window.size - order * d, -1)])
    if law.terms is not None:
        bent = Shape(law.shapes[feature].bent)
        hinges = TermColumns(levels, batch.actions[steps][rows], law.window.n_actions, law.terms.knots).of(
            feature, bent
        )
        window, owner = np.concatenate([window, hinges], axis=1), np.append(owner, np.full(hinges.shape[1], feature))
    return sensitivity_of(window, owner, taken, outcome.astype(np.float64), batch.features)


def sensitivity_of(
    covariates: FloatArray, owner: IntArray, taken: FloatArray, outcome: FloatArray, features: tuple[str, ...]
) -> Sensitivity | None:
    """The same from a regression's arrays.

    Args:
        covariates: ``[n, F]``.
        owner: ``[F]`` number of the feature that each belongs to; -1: none (past actions).
        taken: ``[n]`` 1 where the action was taken, else 0.
        outcome: ``[n]``.
        features: names.
    """
    kept = _independent(covariates)
    covariates, owner = covariates[:, kept], owner[kept]
    freedom = len(taken) - covariates.shape[1] - 2
    left = _left_over(covariates, taken)
    if freedom < 1 or left @ left <= 1e-9 * len(taken):
        return None
    rest = _left_over(covariates, outcome)
    effect = float(left @ rest / (left @ left))
    noise = rest - effect * left
    if noise @ noise <= 0:
        return None
    error = float(np.sqrt(noise @ noise / freedom / (left @ left)))
    strength = effect**2 / error**2 / freedom
    moved = {}
    for number in np.unique(owner[owner >= 0]):
        others = covariates[:, owner != number]
        of_action = _share(_left_over(others, taken), left)
        both = np.column_stack([others, taken])
        of_outcome = _share(_left_over(both, outcome), noise)
        moved[features[number]] = _moved(of_action, of_outcome, error, freedom)
    if not moved:
        return None
    strongest = max(moved, key=lambda name: moved[name])
    robustness = (np.sqrt(strength**2 + 4 * strength) - strength) / 2
    return Sensitivity(float(robustness), strongest, moved[strongest], len(taken))


def _moved(of_action: float, of_outcome: float, error: float, freedom: int) -> float:
    """Largest bias by a cause as strong as a covariate with these partial R2 (their equations for k = 1)."""
    if of_action >= 0.5:
        # As strong a cause as this would leave nothing of the action.
        return np.inf
    share_of_action = of_action / (1 - of_action)
    between = of_action**2 / (1 - of_action) ** 2
    if between >= 1:
        return np.inf
    scale = (1 + np.sqrt(between)) / np.sqrt(1 - between)
    share_of_outcome = min(scale**2 * of_outcome / max(1 - of_outcome, 1e-12), 1.0)
    return float(error * np.sqrt(freedom * share_of_outcome * share_of_action / (1 - share_of_action)))


def _independent(columns: FloatArray) -> IntArray:
    """Columns that vary, one of those that are the same."""
    spread = columns.std(axis=0)
    varies = np.flatnonzero(spread > 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1.0))
    scaled = (columns[:, varies] - columns[:, varies].mean(axis=0)) / spread[varies]
    first = np.unique(np.round(scaled, 9), axis=1, return_index=True)[1]
    found: IntArray = varies[np.sort(first)]
    return found


def _left_over(columns: FloatArray, target: FloatArray) -> FloatArray:
    """What a regression on the columns and a constant leaves of the target."""
    design = np.column_stack([np.ones(len(target)), columns])
    spread = np.maximum(np.abs(design).max(axis=0), 1e-12)
    solution = np.linalg.lstsq(design / spread, target, rcond=1e-10)[0]
    rest: FloatArray = target - design / spread @ solution
    return rest


def _share(without: FloatArray, with_it: FloatArray) -> float:
    """Partial R2: the share of what is left without a covariate that is gone with it."""
    return max(1.0 - float(with_it @ with_it) / float(without @ without), 0.0)
