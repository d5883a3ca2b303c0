"""Laws that other patients of the same kind would have given: a bootstrap over patients without refitting.

Each patient pulls a regression's coefficients by as much as leaving it out would change them (the jackknife): its score
times the inverse curvature that the others leave. A draw counts every patient as often as a sample with replacement
would, and adds up their pulls: one step of Newton's method from the fitted law. With the curvature of all patients (the
influence function) intervals would be too narrow, since a law is drawn towards the very patients that it is judged by.
Order, strength and terms of the law stay as they are.

Decisions are read in blocks of patients, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.limits import HardLimits, OutcomeSpec, censored_pull
from cirl_gym.outcome_models.terms import Shape, TermColumns, Terms
from cirl_gym.types import BoolArray, FloatArray, IntArray

BLOCK = 20_000
"""Decisions, of whole patients, that are in memory at once."""
_RANK = 1e-9
"""Directions of the design with a smaller share of the largest variance carry nothing."""
_MOST = 0.9
"""Of a direction that one patient decides alone there is nothing left when it is left out: no larger share counts."""
_FEW = 0.01
"""A patient that decides less than this of any direction pulls as if the curvature were that of the others."""


def law_draws(law: LinearLaw, spec: OutcomeSpec, batch: Batch, n: int, rng: np.random.Generator) -> list[LinearLaw]:
    """Laws as ``n`` samples of the patients would give them.

    Args:
        law: the fitted one.
        spec: its limits, and the noise by which a censored row is judged.
        batch: the episodes that it was fitted to.
        n: number of draws.
        rng: the samples.
    """
    number = int(batch.owners.max()) + 1
    # No patient is counted 2^15 times.
    often = np.empty((n, number), dtype=np.int16)
    for row in often:
        row[:] = rng.multinomial(number, np.full(number, 1 / number))
    blocks = partial(_blocks, law, spec, batch)
    scalings = _scalings(blocks())
    roots = _roots(blocks(), scalings)
    changes = [np.zeros((n, len(root))) for root in roots]
    for block in blocks():
        more = often[:, block.patients] - 1.0
        for j, change in enumerate(changes):
            change += more @ block.pulls(j, scalings[j], roots[j])
    found = [scaling.unscaled(change) for scaling, change in zip(scalings, changes, strict=True)]
    return [_moved(law, block.columns, [change[b] for change in found]) for b in range(n)]


@dataclass(frozen=True)
class _Scaling:
    """How the columns of one feature's regression are scaled."""

    centre: FloatArray
    """``[F]``."""
    spread: FloatArray
    """``[F]``; 0 of what does not vary."""

    def __call__(self, design: FloatArray) -> FloatArray:
        """``[R, 1 + F]`` a column of ones, and those of a design; 0 where one does not vary."""
        varies = self.spread > 0
        scaled = np.where(varies, (design - self.centre) / np.where(varies, self.spread, 1.0), 0.0)
        return np.concatenate([np.ones((len(design), 1)), scaled], axis=1)

    def unscaled(self, weights: FloatArray) -> FloatArray:
        """Intercept and coefficients ``[n, 1 + F]`` of the columns as they are."""
        own = weights[:, 1:] / np.where(self.spread > 0, self.spread, 1.0)
        return np.column_stack([weights[:, 0] - own @ self.centre, own])


@dataclass(frozen=True)
class _Block:
    """Decisions ``[R]`` of some whole patients, those of each side by side."""

    patients: IntArray
    """``[Q]`` numbers."""
    first: IntArray
    """``[Q]`` first decision of each."""
    straight: FloatArray
    """``[R, S + A]`` the law's window and the action."""
    columns: TermColumns
    shapes: tuple[Shape, ...]
    pull: FloatArray
    """``[R, d]`` of every decision on what is expected of each feature."""
    stiffness: FloatArray
    """``[R, d]``."""

    def design(self, j: int) -> FloatArray:
        """``[R, F]`` columns of feature j's regression."""
        return np.concatenate([self.straight, self.columns.of(j, self.shapes[j])], axis=1)

    def pulls(self, j: int, scaling: _Scaling, root: FloatArray) -> FloatArray:
        """``[Q, 1 + F]`` by how much every patient pulls feature j's scaled coefficients."""
        reached = scaling(self.design(j)) @ root
        scores = np.add.reduceat(reached * self.pull[:, [j]], self.first)
        reached *= np.sqrt(self.stiffness[:, [j]])
        share = np.add.reduceat((reached**2).sum(axis=1), self.first)
        last = np.append(self.first[1:], len(reached))
        for q in np.flatnonzero(share > _FEW):
            _, decided, directions = np.linalg.svd(reached[self.first[q] : last[q]], full_matrices=False)
            own = np.minimum(decided**2, _MOST)
            scores[q] += (own / (1.0 - own) * (directions @ scores[q])) @ directions
        return scores @ root.T


def _blocks(law: LinearLaw, spec: OutcomeSpec, batch: Batch) -> Iterator[_Block]:
    """All decisions."""
    owners, a = batch.owners, law.window.n_actions
    shares = np.bincount(batch.actions[batch.mask], minlength=a) / batch.n_steps
    knots = np.zeros((0, len(spec.features))) if law.terms is None else law.terms.knots
    noise = np.maximum(spec.noise_scale, 1e-9)
    for episodes in _whole_patients(owners, batch.lengths):
        part = batch.take(episodes)
        steps = part.mask
        rows = law.window.encode(part)[:, :-1][steps].astype(np.float64)
        actions, levels = part.actions[steps], part.obs[:, :-1][steps].astype(np.float64)
        outcomes = part.next_obs[steps].astype(np.float64)
        residual = outcomes - law.of_action(rows, actions)
        pull, stiffness = np.empty(residual.shape), np.empty(residual.shape)
        for j, own in enumerate(outcomes.T):
            side = HardLimits(float(spec.floor[j]), float(spec.ceiling[j])).side(own)
            pull[:, j], stiffness[:, j], _ = censored_pull(residual[:, j], side, float(noise[j]))
        patients, first = np.unique(owners[episodes].repeat(part.lengths), return_index=True)
        straight = np.concatenate([rows, one_hot(actions, a)], axis=1)
        columns = TermColumns(levels, actions, a, knots, shares)
        yield _Block(patients, first, straight, columns, law.shapes, pull, stiffness)


def _whole_patients(owners: IntArray, lengths: IntArray) -> list[IntArray]:
    """Episodes ``[N]`` in parts of whole patients with about :data:`BLOCK` decisions each."""
    order = np.argsort(owners, kind="stable")
    before = np.cumsum(lengths[order]) - lengths[order]
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    cuts = starts[np.flatnonzero(np.diff(before[starts] // BLOCK)) + 1]
    return np.split(order, cuts)


def _scalings(blocks: Iterator[_Block]) -> list[_Scaling]:
    """Means and standard deviations of every feature's columns over all blocks."""
    known, found = 0, list[tuple[FloatArray, FloatArray]]()
    for block in blocks:
        n, merged = len(block.straight), []
        for j in range(len(block.shapes)):
            design = block.design(j)
            centre, squares = design.mean(axis=0), n * design.var(axis=0)
            if known:
                before, others = found[j]
                step = centre - before
                centre = before + step * (n / (known + n))
                squares = others + squares + step**2 * (known * n / (known + n))
            merged.append((centre, squares))
        known, found = known + n, merged
    scalings = []
    for centre, squares in found:
        spread = np.sqrt(squares / known)
        varies: BoolArray = spread > 1e-9 * np.maximum(np.abs(centre), 1.0)
        scalings.append(_Scaling(centre, np.where(varies, spread, 0.0)))
    return scalings


def _roots(blocks: Iterator[_Block], scalings: Sequence[_Scaling]) -> list[FloatArray]:
    """``[1 + F, k]`` of every feature: times its own transpose the inverse curvature."""
    curvatures = [np.zeros((1 + len(scaling.centre),) * 2) for scaling in scalings]
    for block in blocks:
        for j, (curvature, scaling) in enumerate(zip(curvatures, scalings, strict=True)):
            scaled = scaling(block.design(j))
            curvature += (scaled * block.stiffness[:, [j]]).T @ scaled
    roots = []
    for curvature in curvatures:
        values, directions = np.linalg.eigh(curvature)
        seen = values > _RANK * values[-1]
        roots.append(directions[:, seen] / np.sqrt(values[seen]))
    return roots


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
