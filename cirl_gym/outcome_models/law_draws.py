"""Laws that other patients of the same kind would have given: a bootstrap over patients without refitting.

Each patient pulls a regression's coefficients by its own score times the inverse curvature (the influence function). A
draw counts every patient as often as a sample with replacement would, and adds up their pulls: one step of Newton's
method from the fitted law. Order, strength and terms of the law stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.limits import HardLimits, OutcomeSpec, censored_pull
from cirl_gym.outcome_models.terms import TermColumns, Terms
from cirl_gym.types import BoolArray, FloatArray, IntArray

_RANK = 1e-9
"""Directions of the design with a smaller share of the largest variance carry nothing."""


def law_draws(law: LinearLaw, spec: OutcomeSpec, batch: Batch, n: int, rng: np.random.Generator) -> list[LinearLaw]:
    """Laws as ``n`` samples of the patients would give them.

    Args:
        law: the fitted one.
        spec: its limits, and the noise by which a censored row is judged.
        batch: the episodes that it was fitted to.
        n: number of draws.
        rng: the samples.
    """
    steps = batch.mask
    patients = batch.owners
    number = int(patients.max()) + 1
    often = rng.multinomial(number, np.full(number, 1 / number), size=n).astype(np.float64) - 1.0
    rows = law.window.encode(batch)[:, :-1][steps].astype(np.float64)
    actions, levels = batch.actions[steps], batch.obs[:, :-1][steps].astype(np.float64)
    knots = np.zeros((0, levels.shape[1])) if law.terms is None else law.terms.knots
    columns = TermColumns(levels, actions, law.window.n_actions, knots)
    expected = law.of_action(rows, actions)
    outcomes, whose = batch.next_obs[steps].astype(np.float64), patients[np.nonzero(steps)[0]]
    straight = np.concatenate([rows, one_hot(actions, law.window.n_actions)], axis=1)
    changes = []
    for j, shape in enumerate(law.shapes):
        design = np.concatenate([straight, columns.of(j, shape)], axis=1)
        limits, noise = HardLimits(float(spec.floor[j]), float(spec.ceiling[j])), max(float(spec.noise_scale[j]), 1e-9)
        pull, stiffness, _ = censored_pull(outcomes[:, j] - expected[:, j], limits.side(outcomes[:, j]), noise)
        changes.append(_changes(design, pull, stiffness, whose, often))
    return [_moved(law, columns, [change[b] for change in changes]) for b in range(n)]


def _changes(
    design: FloatArray, pull: FloatArray, stiffness: FloatArray, whose: IntArray, often: FloatArray
) -> FloatArray:
    """``[n, 1 + F]`` changes of intercept and coefficients for patients counted so many times more ``often [n, P]``."""
    centre, spread = design.mean(axis=0), design.std(axis=0)
    varies: BoolArray = spread > 1e-9 * np.maximum(np.abs(centre), 1.0)
    scaled = np.where(varies, (design - centre) / np.where(varies, spread, 1.0), 0.0)
    scaled = np.concatenate([np.ones((len(design), 1)), scaled], axis=1)
    scores = np.zeros((often.shape[1], scaled.shape[1]))
    np.add.at(scores, whose, scaled * pull[:, None])
    inverse = np.linalg.pinv((scaled * stiffness[:, None]).T @ scaled, rcond=_RANK, hermitian=True)
    found = often @ (scores @ inverse)
    found[:, 1:] /= np.where(varies, spread, 1.0)
    found[:, 0] -= found[:, 1:] @ centre
    return found


def _moved(law: LinearLaw, columns: TermColumns, changes: list[FloatArray]) -> LinearLaw:
    """The law with the changes ``[1 + F]`` of every feature's coefficients added."""
    size, a = law.window.size, law.window.n_actions
    intercept, coefficients, effects = law.intercept.copy(), law.coefficients.copy(), law.effects.copy()
    terms = law.terms
    for j, change in enumerate(changes):
        intercept[j] += change[0]
        coefficients[:, j] += change[1 : 1 + size]
        effects[:, j] += change[1 + size : 1 + size + a]
        if terms is not None:
            bends, interactions = np.zeros(terms.bends.shape), np.zeros(terms.interactions.shape)
            columns.put(j, law.shapes[j], change[1 + size + a :], bends, interactions)
            terms = Terms(terms.knots, terms.bends + bends, terms.interactions + interactions)
    return replace(law, intercept=intercept, coefficients=coefficients, effects=effects, terms=terms)
