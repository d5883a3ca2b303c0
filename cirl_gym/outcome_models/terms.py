"""What a law has beside its straight lines: bends in a feature's own level, and effects that depend on levels.

Readings far from the usual come back by themselves, and those who are far away are treated. A straight line through
both puts what the line misses into the effect of the action. And a dose may do most where little is there. Which of
these a feature needs is told by cross-validation over patients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cirl_gym.outcome_models.inputs import set_arrays
from cirl_gym.types import FloatArray, IntArray

Levels: TypeAlias = Literal["none", "own", "every"]
"""On which current levels the effect of an action depends: none, that of the feature itself, those of all features."""

KNOTS = (0.1, 0.5, 0.9)
"""Quantiles of a feature's own level at which its law may bend."""
FOLDS = 5
"""Parts of the patients."""
MOST_ROWS = 20_000
"""Decisions, of whole patients, by which terms are chosen: more would say the same."""
GAIN = 0.002
"""Terms must foretell so much more of a change's variance: what is less changes no decision."""
ROWS_A_COLUMN = 20
"""Terms are tried where there are so many decisions for every column of the regression."""


class Shape(NamedTuple):
    """Which terms one feature's law has."""

    bent: bool = False
    by: Levels = "none"


SHAPES = tuple(Shape(bent, by) for by in ("none", "own", "every") for bent in (False, True))
STRAIGHT = Shape()


@dataclass(frozen=True)
class Terms:
    """bends . max(x - knots, 0) + interactions[a] . x, raw units, added to a law's next observation.

    Raises:
        ValueError: shapes do not agree, or a number is not finite.
    """

    knots: FloatArray
    """``[K, d]`` levels of each feature at which its law bends."""
    bends: FloatArray
    """``[K, d]`` change of the slope of x_{t+1} in its own x_t beyond each knot."""
    interactions: FloatArray
    """``[A, d, d]`` of an action: change of the effect on feature j per unit of feature i, at ``[a, i, j]``."""

    def __post_init__(self) -> None:
        set_arrays(self, "knots", "bends", "interactions")
        a, d = len(self.interactions), self.knots.shape[-1]
        if self.bends.shape != self.knots.shape or self.knots.ndim != 2 or self.interactions.shape != (a, d, d):
            shapes = f"{self.knots.shape}, {self.bends.shape} and {self.interactions.shape}"
            raise ValueError(f"Terms must be [K, d], [K, d] and [A, d, d], got {shapes}")
        if not all(np.isfinite(array).all() for array in vars(self).values()):
            raise ValueError("Terms must be finite")

    @cached_property
    def _by_level(self) -> FloatArray | None:
        """``[d, A d]`` the interactions as one matrix; None where there are none."""
        a, d, _ = self.interactions.shape
        flat: FloatArray = self.interactions.transpose(1, 0, 2).reshape(d, a * d)
        return flat if flat.any() else None

    @cached_property
    def _bent(self) -> list[int]:
        return [int(j) for j in np.flatnonzero(self.bends.any(axis=0))]

    def bent(self, newest: FloatArray) -> FloatArray:
        """``[.., d]`` what bends add for current observations ``[.., d]``."""
        added = np.zeros(newest.shape)
        # Feature by feature: a search for plans asks all the time, and few features bend.
        for j in self._bent:
            added[..., j] = np.maximum(newest[..., j, None] - self.knots[:, j], 0.0) @ self.bends[:, j]
        return added

    def moderated(self, newest: FloatArray) -> FloatArray | float:
        """``[.., A, d]`` what interactions add under every action; 0 where there are none."""
        if self._by_level is None:
            return 0.0
        return (newest @ self._by_level).reshape(*newest.shape[:-1], len(self.interactions), newest.shape[-1])

    def moderated_by(self, newest: FloatArray, actions: IntArray) -> FloatArray | float:
        """``[n, d]`` the same under one action ``[n]`` each."""
        if self._by_level is None:
            return 0.0
        added: FloatArray = np.einsum("ni,nij->nj", newest, self.interactions[actions])
        return added

    def wider(self, d: int, free: Sequence[int]) -> Terms:
        """The same among d features, of which these were ``free``; the others have no terms."""
        knots, bends = np.zeros((len(self.knots), d)), np.zeros((len(self.knots), d))
        interactions = np.zeros((len(self.interactions), d, d))
        knots[:, free], bends[:, free] = self.knots, self.bends
        interactions[np.ix_(range(len(interactions)), free, free)] = self.interactions
        return Terms(knots, bends, interactions)

    def without(self, features: npt.NDArray[np.bool_]) -> Terms:
        """The same without terms in the laws of some features ``[d]``."""
        return Terms(self.knots, np.where(features, 0.0, self.bends), np.where(features, 0.0, self.interactions))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Which terms each feature has."""
        found = []
        for j, bends in enumerate(self.bends.T):
            others = np.delete(self.interactions[:, :, j], j, axis=1).any()
            by: Levels = "every" if others else "own" if self.interactions[:, j, j].any() else "none"
            found.append(Shape(bool(bends.any()), by))
        return tuple(found)


class TermColumns:
    """Columns of a regression on levels ``[R, d]`` and actions ``[R]``: hinges, then actions times levels.

    Actions count as one-hot minus how often each is taken: times a level they would be the level once more, and a ridge
    would spare what it finds twice. Of some of the decisions alone the ``shares [A]`` are those of all.
    """

    def __init__(
        self,
        levels: FloatArray,
        actions: IntArray,
        n_actions: int,
        knots: FloatArray,
        shares: FloatArray | None = None,
    ) -> None:
        self.levels, self.n_actions, self.knots = levels, n_actions, knots
        hot = actions[:, None] == np.arange(n_actions)
        self.shares: FloatArray = hot.mean(axis=0) if shares is None else shares
        self.taken: FloatArray = hot - self.shares

    def of(self, j: int, shape: Shape) -> FloatArray:
        """``[R, E]`` columns of feature j."""
        parts = [np.empty((len(self.levels), 0))]
        if shape.bent:
            parts.append(np.maximum(self.levels[:, j, None] - self.knots[:, j], 0.0))
        if shape.by != "none":
            chosen = self.levels if shape.by == "every" else self.levels[:, [j]]
            parts.append((self.taken[:, :, None] * chosen[:, None, :]).reshape(len(chosen), -1))
        return np.concatenate(parts, axis=1)

    def contrast(self, j: int, shape: Shape, action: int, before: int) -> FloatArray:
        """``[before + E]`` what an effect against the first action is of the columns' weights, at mean levels.

        The last of the ``before`` columns are the actions, one-hot; the others do not count.
        """
        a, difference = self.n_actions, np.zeros(self.n_actions)
        difference[[0, action]] = -1.0, 1.0
        parts = [np.zeros(before - a), difference, np.zeros(len(self.knots) if shape.bent else 0)]
        if shape.by != "none":
            mean = self.levels.mean(axis=0) if shape.by == "every" else self.levels[:, [j]].mean(axis=0)
            parts.append(np.outer(difference, mean).ravel())
        return np.concatenate(parts)

    def put(self, j: int, shape: Shape, weights: FloatArray, bends: FloatArray, interactions: FloatArray) -> None:
        """Write the weights ``[E]`` of feature j's columns where they belong in ``[K, d]`` and ``[A, d, d]``."""
        hinges = len(self.knots) if shape.bent else 0
        bends[:hinges, j] = weights[:hinges]
        if shape.by != "none":
            # The sum over (one-hot - share) w is that over one-hot (w - mean w).
            found = weights[hinges:].reshape(self.n_actions, -1)
            found = found - self.shares @ found
            interactions[:, slice(None) if shape.by == "every" else [j], j] = found


def knots_of(levels: npt.NDArray[np.floating]) -> FloatArray:
    """``[K, d]`` where the laws of features may bend, from levels ``[R, d]``."""
    knots: FloatArray = np.quantile(levels, KNOTS, axis=0)
    return knots


def chosen_rows(patients: IntArray) -> tuple[IntArray, IntArray]:
    """Decisions of whole patients, and the part ``[n]`` of each, for patients ``[R]`` numbered from 0."""
    order = np.random.default_rng(0).permutation(int(patients.max()) + 1)
    place = np.argsort(order)
    rows = np.argsort(place[patients], kind="stable")[:MOST_ROWS]
    return rows, place[patients[rows]] % FOLDS


def choose_shape(
    base: FloatArray,
    target: FloatArray,
    part: IntArray,
    columns: Callable[[Shape], FloatArray],
    strength: float,
    shapes: Sequence[Shape] = SHAPES,
    least: float = np.inf,
) -> Shape:
    """The shape with the least cross-validated squared error; the straight one where none is better by :data:`GAIN`.

    Args:
        base: ``[n, F]`` standardised columns of the straight law.
        target: ``[n]`` change of the feature.
        part: ``[n]`` part of each decision, those of one patient in the same.
        columns: of a shape, what it adds ``[n, E]``.
        strength: ridge per row, for columns of unit variance.
        shapes: what is tried.
        least: sum of squared errors of another law without terms, which shapes have to beat as well.
    """
    best = STRAIGHT
    for shape in shapes:
        added = columns(shape)
        if shape != STRAIGHT and len(target) < ROWS_A_COLUMN * (base.shape[1] + added.shape[1]):
            continue
        design = np.concatenate([base, standardised(added)[0]], axis=1)
        error = sum(_held_out_error(design, target, part == held_out, strength) for held_out in np.unique(part))
        # The first shape is the straight one, and what follows has to earn its columns.
        needed = least if shape == STRAIGHT else least - GAIN * float(((target - target.mean()) ** 2).sum())
        if error < needed:
            best, least = shape, error
    return best


def standardised(columns: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Columns of mean 0 and variance 1 (constant ones 0), the means and the scales ``[E]``."""
    centre, spread = columns.mean(axis=0), columns.std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    return (columns - centre) / spread, centre, spread


def _held_out_error(design: FloatArray, target: FloatArray, held_out: npt.NDArray[np.bool_], strength: float) -> float:
    """Sum of squared errors on one part of a ridge regression on the others."""
    rows, known = design[~held_out], target[~held_out]
    centre, level = rows.mean(axis=0), known.mean()
    gram = (rows - centre).T @ (rows - centre) / len(rows)
    gram[np.diag_indices_from(gram)] += max(strength, 1e-6)
    weights = np.linalg.solve(gram, (rows - centre).T @ (known - level) / len(rows))
    missed = target[held_out] - level - (design[held_out] - centre) @ weights
    return float(missed @ missed)
