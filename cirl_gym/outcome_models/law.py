"""A law of the next observation, fitted in closed form: ridge regression on past observations and actions.

The number of lags and the ridge strength are chosen by the error on the validation episodes. What is fitted is the
change x_{t+1} - x_t, so that a strong ridge shrinks towards "everything stays as it is" and not towards the mean. The
law of a feature is linear, or bends in its own level and has effects that depend on levels
(:mod:`cirl_gym.outcome_models.terms`), or is linear and censored at a limit at which outcomes pile up, whichever
foretells best.

Two kinds of features take no part in fitting. What is known beforehand, what was observed of another feature one step
earlier (:func:`cirl_gym.data.outcomes.with_lags`), is what is observed now, whatever is done: left in, an error that
any weak ridge makes zero draws the choice of strength away from what the others need. And what changes in proportion to
its size (tumours that grow and shrink by shares, skewed laboratory values) is left to a network, since no line through
raw values says "half of it".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import before
from cirl_gym.outcome_models.inputs import Scaler, Window, set_arrays
from cirl_gym.outcome_models.limits import UNLIMITED, HardLimits, censored_regression, hard_limits, outcome_bounds
from cirl_gym.outcome_models.ridge import bounded_ridge, ridge
from cirl_gym.outcome_models.stated import EffectBounds
from cirl_gym.outcome_models.terms import (
    SHAPES,
    STRAIGHT,
    Shape,
    TermColumns,
    Terms,
    choose_shape,
    chosen_rows,
    knots_of,
    standardised,
)
from cirl_gym.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class LinearLaw:
    """x_{t+1} = intercept + window . coefficients + effect of a_t (+ terms), raw units, not clipped.

    Raises:
        ValueError: a shape does not fit the window, or a number is not finite.
    """

    window: Window
    """Layout of the rows."""
    intercept: FloatArray
    """``[d]``."""
    coefficients: FloatArray
    """``[S, d]`` of the window's numbers (past observations, past actions)."""
    effects: FloatArray
    """``[A, d]`` of the current action; with interactions, where all levels are 0."""
    terms: Terms | None = None
    """Bends and interactions; None: the law is linear."""

    def __post_init__(self) -> None:
        d, a, s = self.window.n_features, self.window.n_actions, self.window.size
        set_arrays(self, "intercept", "coefficients", "effects")
        for name, shape in (("intercept", (d,)), ("coefficients", (s, d)), ("effects", (a, d))):
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"LinearLaw.{name} must be finite with shape {shape}, got shape {array.shape}")
        if self.terms is not None and self.terms.interactions.shape != (a, d, d):
            raise ValueError(f"LinearLaw.terms must be of {d} features and {a} actions")

    @classmethod
    def persistence(cls, n_features: int, n_actions: int) -> LinearLaw:
        """Everything stays as it is: x_{t+1} = x_t."""
        window, effects = Window(1, n_features, n_actions), np.zeros((n_actions, n_features))
        return cls(window, np.zeros(n_features), np.eye(n_features), effects)

    def __call__(self, rows: npt.NDArray[np.floating]) -> FloatArray:
        """Next observation ``[.., A, d]`` under every action for window rows ``[.., S]``."""
        common: FloatArray = rows.astype(np.float64) @ self.coefficients + self.intercept
        if self.terms is None:
            return np.asarray(common[..., None, :] + self.effects)
        newest = self.window.newest(rows).astype(np.float64)
        common = common + self.terms.bent(newest)
        return np.asarray(common[..., None, :] + self.effects + self.terms.moderated(newest))

    def of_action(self, rows: npt.NDArray[np.floating], actions: IntArray) -> FloatArray:
        """Next observation ``[n, d]`` under one action ``[n]`` each, for window rows ``[n, S]``."""
        # Rows stand next to each other: NumPy is fast along axes that are long.
        outcome: FloatArray = (self.coefficients.T @ rows.astype(np.float64).T).T
        outcome += (self.effects + self.intercept).T.take(actions, axis=1).T
        if self.terms is not None:
            newest = self.window.newest(rows).astype(np.float64)
            outcome += self.terms.bent(newest) + self.terms.moderated_by(newest, actions)
        return outcome

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Which terms the law of each feature has."""
        return (STRAIGHT,) * self.window.n_features if self.terms is None else self.terms.shapes


@dataclass(frozen=True)
class AutoregressionConfig:
    """What is tried.

    Raises:
        ValueError: nothing to try, an order below 1, or a negative strength.
    """

    max_order: int = 8
    """Largest number of lags L; every order from the least on is tried."""
    min_order: int = 1
    """Least number of lags."""
    strengths: tuple[float, ...] = (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """Ridge per training row, for inputs of unit variance; 0 is least squares of least norm."""
    shapes: tuple[Shape, ...] = ()
    """Terms of each feature's law, which is not censored where it has any; default: cross-validation chooses."""
    effects: tuple[EffectBounds, ...] = ()
    """Effects on next values, at mean levels and against the first action, that the law is held to."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_order <= self.max_order:
            orders = f"{self.min_order} and {self.max_order}"
            raise ValueError(f"AutoregressionConfig: max_order must be at least min_order, and that 1, got {orders}")
        if not self.strengths or min(self.strengths) < 0:
            raise ValueError(f"AutoregressionConfig.strengths must be non-negative numbers, got {self.strengths}")

    def like(self, law: LinearLaw) -> AutoregressionConfig:
        """The same, for a law of the order and with the terms of another."""
        return replace(self, min_order=law.window.order, max_order=law.window.order, shapes=law.shapes)


@dataclass(frozen=True)
class AutoregressionFit:
    """The chosen law and why."""

    law: LinearLaw
    """Outcome under every action, raw units, not clipped."""
    scaler: Scaler
    """Of the training observations."""
    order: int
    """L."""
    strength: float
    """Ridge per training row."""
    limits: tuple[HardLimits, ...]
    """Per feature, the limits at which it was fitted as censored (infinite: it was not)."""
    low: FloatArray
    """``[d]`` lowest outcome, raw units."""
    high: FloatArray
    """``[d]`` highest outcome, raw units."""


class _Search:
    """Solving and scoring of regressions on the steps at which an action was taken, in scaled units."""

    def __init__(
        self, train: Batch, validation: Batch, scaler: Scaler, window: Window, sides: IntArray, span: list[FloatArray]
    ) -> None:
        def inputs(batch: Batch) -> FloatArray:
            """``[R, S + A]`` scaled window rows and one-hot current actions."""
            rows = window.encode(batch)[:, :-1][batch.mask].astype(np.float64)
            mean, scale = (np.tile(values, window.order) for values in (scaler.mean, scaler.scale))
            covariates = (rows[:, : window.covariates] - mean) / scale
            current = batch.actions[batch.mask][:, None] == np.arange(window.n_actions)
            return np.concatenate([covariates, rows[:, window.covariates :], current], axis=1)

        def scaled(values: npt.NDArray[np.floating]) -> FloatArray:
            return (values.astype(np.float64) - scaler.mean) / scaler.scale

        design = inputs(train)
        # A column that never varies (an action never seen at some lag) carries nothing: it is centred and left at 0.
        self.centre, spread = design.mean(axis=0), design.std(axis=0)
        self.spread = np.where(spread > 1e-9, spread, 1.0)
        self.design = (design - self.centre) / self.spread
        self.now = scaled(train.obs[:, :-1][train.mask])
        self.change = scaled(train.next_obs[train.mask]) - self.now
        self.window, self.scaler, self.sides = window, scaler, sides
        self.low, self.high = (scaler(end).astype(np.float64) for end in span)
        self.held_out = (inputs(validation) - self.centre) / self.spread
        self.held_out_now = scaled(validation.obs[:, :-1][validation.mask])
        self.held_out_outcomes = scaled(validation.next_obs[validation.mask])
        self.held_out_episode = np.nonzero(validation.mask)[0]
        # Errors are counted in units of the usual change of a feature: "nothing changes" scores about 1 in each.
        moved = (self.change**2).mean(axis=0)
        self.unit = np.where(moved > 0, moved, 1.0)

    def columns(self, order: int) -> IntArray:
        """Where the numbers of a smaller window, and the current action, stand in the design."""
        window, past = self.window, (order - 1) * self.window.n_actions
        actions = (window.covariates + np.arange(past), window.size + np.arange(window.n_actions))
        return np.concatenate([np.arange(order * window.n_features), *actions])

    def choose(self, config: AutoregressionConfig) -> tuple[int, float, FloatArray, FloatArray]:
        """Order, strength, weights ``[F, d]`` and intercepts ``[d]`` of the change."""
        sums, found = [], []
        for order in range(config.min_order, config.max_order + 1):
            columns = self.columns(order)
            for strength, weights, intercept in self.solve(columns, config.strengths):
                found.append((order, strength, weights, intercept))
                losses = self.loss(columns, weights, intercept).mean(axis=1)
                sums.append(np.bincount(self.held_out_episode, weights=losses))
        # Mean loss of every episode, weighted so that their mean is the mean over rows.
        totals = np.stack(sums) * (len(sums[0]) / len(self.held_out))
        best = int(totals.mean(axis=1).argmin())
        difference = totals - totals[best]
        error = difference.std(axis=1) / np.sqrt(totals.shape[1])
        close = difference.mean(axis=1) <= error
        smallest = min(candidate[0] for candidate, near in zip(found, close, strict=True) if near)
        inside = [i for i, candidate in enumerate(found) if candidate[0] == smallest and close[i]]
        # What a ridge takes from covariates it gives to the effects of actions that were chosen by them.
        order, strength, weights, intercept = found[min(inside, key=lambda i: found[i][1])]
        return order, strength, weights.copy(), intercept.copy()

    def solve(self, columns: IntArray, strengths: tuple[float, ...]) -> list[tuple[float, FloatArray, FloatArray]]:
        """One solution per strength; features with outcomes at a limit take the rows off it where that is better."""
        design = self.design[:, columns]
        everywhere = ridge(design, self.change, strengths)
        for j in map(int, np.flatnonzero((self.sides != 0).any(axis=0))):
            free = self.sides[:, j] == 0
            off_limit = ridge(design[free], self.change[free, j : j + 1], strengths)
            for (weights, intercept), (alone, level) in zip(everywhere, off_limit, strict=True):
                plain = self.loss(columns, weights[:, j], intercept[j], j).mean()
                if self.loss(columns, alone[:, 0], level[0], j).mean() < plain:
                    weights[:, j], intercept[j] = alone[:, 0], level[0]
        return [(strength, *solution) for strength, solution in zip(strengths, everywhere, strict=True)]

    def censored(self, j: int, columns: IntArray, strength: float) -> tuple[FloatArray, float, bool]:
        """Weights ``[F]`` and intercept of feature j: fitted as censored if that beats the plain ridge, and whether."""
        design, free = self.design[:, columns], self.sides[:, j] == 0
        (plain, level), *_ = ridge(design, self.change[:, j : j + 1], (strength,))
        (alone, start), *_ = ridge(design[free], self.change[free, j : j + 1], (strength,))
        full = np.column_stack([np.ones(len(design)), design])
        penalty = np.concatenate([[0.0], np.full(len(columns), max(strength, 1e-10))])
        begin = np.concatenate([start, alone[:, 0]])
        solution = censored_regression(full, self.change[:, j], self.sides[:, j], penalty, begin)
        known = self.error(columns, solution[1:], float(solution[0]), j)
        if known < self.error(columns, plain[:, 0], float(level[0]), j):
            return solution[1:], float(solution[0]), True
        return plain[:, 0], float(level[0]), False

    def error(self, columns: IntArray, weights: FloatArray, intercept: float, j: int) -> float:
        """Sum of squared errors of feature j inside the bounds, on all episodes.

        Few outcomes may lie at a limit, and hardly any of them in the validation episodes.
        """
        predicted = self.now[:, j] + self.design[:, columns] @ weights + intercept
        missed = np.clip(predicted, self.low[j], self.high[j]) - self.now[:, j] - self.change[:, j]
        held_out = self.loss(columns, weights, intercept, j).sum() * self.unit[j]
        return float(missed @ missed + held_out)

    def loss(
        self, columns: IntArray, weights: FloatArray, intercept: FloatArray | float, which: int | slice = slice(None)
    ) -> FloatArray:
        """``[R, d]`` squared validation errors inside the bounds, in units of the usual change; ``[R]`` of one feature.

        Weights are ``[F, d]``, or ``[F]`` where ``which`` is the number of a feature.
        """
        predicted = self.held_out_now[:, which] + self.held_out[:, columns] @ weights + intercept
        errors = np.clip(predicted, self.low[which], self.high[which]) - self.held_out_outcomes[:, which]
        squares: FloatArray = errors**2 / self.unit[which]
        return squares


def _raw_law(window: Window, scaler: Scaler, weights: FloatArray, intercept: FloatArray) -> LinearLaw:
    """Weights of scaled covariates and one-hot actions for scaled changes, written in raw units."""
    covariates, doses = weights[: window.covariates], weights[window.covariates :]
    covariates = covariates / np.tile(scaler.scale, window.order)[:, None]
    intercept = (intercept - np.tile(scaler.mean, window.order) @ covariates) * scaler.scale
    covariates = covariates * scaler.scale
    covariates[: window.n_features] += np.eye(window.n_features)
    doses = doses * scaler.scale
    past = window.size - window.covariates
    return LinearLaw(window, intercept, np.concatenate([covariates, doses[:past]]), doses[past:])


def fit_autoregression(train: Batch, validation: Batch, config: AutoregressionConfig) -> AutoregressionFit:
    """Fit on the training episodes, choose by the validation episodes.

    The smallest order whose validation error is within one standard error (paired by episode) of the best is taken,
    and in it the weakest ridge of which that is true.

    Raises:
        ValueError: shapes are given for another number of features, or effects of what there is not.
    """
    if config.shapes and len(config.shapes) != len(train.features):
        raise ValueError(f"shapes: {len(config.shapes)} are given for {len(train.features)} features")
    scaler = Scaler.from_batch(train)
    window = Window(config.max_order, len(train.features), train.n_actions)
    raw_outcomes = train.next_obs[train.mask].astype(np.float64)
    limits = [hard_limits(column) for column in raw_outcomes.T]
    sides = np.stack([limit.side(column) for limit, column in zip(limits, raw_outcomes.T, strict=True)], axis=1)
    low, high = outcome_bounds(train)
    search = _Search(train, validation, scaler, window, sides, [low, high])
    order, strength, weights, intercept = search.choose(config)
    columns = search.columns(order)
    held, censored = held_effects(config.effects, train), [UNLIMITED] * len(limits)
    given = config.shapes or [None] * len(limits)
    for j, limit in enumerate(limits):
        if limit.any and j not in held and given[j] in (None, STRAIGHT):
            weights[:, j], intercept[j], better = search.censored(j, columns, strength)
            censored[j] = limit if better else UNLIMITED
    rivals = {j: (weights[:, j], float(intercept[j]), limit) for j, limit in enumerate(censored) if limit.any}
    shapes = _choose_shapes(search, (train, validation), (columns, strength), given, rivals)
    censored = [limit if shape == STRAIGHT else UNLIMITED for limit, shape in zip(censored, shapes, strict=True)]
    for j, limit in enumerate(censored):
        low[j], high[j] = max(low[j], limit.low), min(high[j], limit.high)
    terms = _fit_terms(search, train, scaler.scale, (columns, strength), shapes, held, (weights, intercept))
    weights = weights / search.spread[columns, None]
    intercept = intercept - search.centre[columns] @ weights
    law = _raw_law(Window(order, window.n_features, window.n_actions), scaler, weights, intercept)
    if terms is not None:
        law = _with_scaled_terms(law, scaler, terms)
    return AutoregressionFit(law, scaler, order, strength, tuple(censored), low, high)


def held_effects(effects: Sequence[EffectBounds], batch: Batch) -> dict[int, dict[int, tuple[float, float]]]:
    """By the number of a feature and of an action, the range that the action's effect is held to.

    Raises:
        ValueError: there is no such action or feature.
    """
    held: dict[int, dict[int, tuple[float, float]]] = {}
    for action, feature, low, high in effects:
        if action not in batch.action_names[1:] or feature not in batch.features:
            others = f"actions {', '.join(batch.action_names[1:])} and features {', '.join(batch.features)}"
            raise ValueError(f"effects: there is no effect of {action!r} on {feature!r}; there are {others}")
        held.setdefault(batch.features.index(feature), {})[batch.action_names.index(action)] = (low, high)
    return held


def _choose_shapes(
    search: _Search,
    batches: tuple[Batch, Batch],
    chosen: tuple[IntArray, float],
    shapes: Sequence[Shape | None],
    censored: Mapping[int, tuple[FloatArray, float, HardLimits]],
) -> list[Shape]:
    """Shapes of all features, those that are not given by cross-validation over all patients of both batches.

    Args:
        search: design, changes and scales.
        batches: training and validation episodes.
        chosen: columns of the straight law, and ridge per row.
        shapes: of each feature; None: to be chosen.
        censored: by the number of a feature, weights and intercept of its law as fitted with limits. It has no terms,
            and is left for one that has them where that foretells more.
    """
    if None not in shapes:
        return [shape for shape in shapes if shape is not None]
    columns, strength = chosen
    names = np.concatenate([np.repeat(np.asarray(batch.groups), batch.lengths) for batch in batches])
    rows, part = chosen_rows(np.unique(names, return_inverse=True)[1])
    own = len(search.design)
    learnt, held_out = rows < own, rows[rows >= own] - own

    def picked(train: FloatArray, validation: FloatArray) -> FloatArray:
        """The chosen rows of both: whole batches side by side would take their memory once more."""
        both = np.empty((len(rows), train.shape[1]))
        both[learnt], both[~learnt] = train[rows[learnt]], validation[held_out]
        return both

    design = picked(search.design, search.held_out)[:, columns]
    levels, outcomes = picked(search.now, search.held_out_now), picked(search.change, search.held_out_outcomes)
    change = np.where(learnt[:, None], outcomes, outcomes - levels)
    actions = np.concatenate([batch.actions[batch.mask] for batch in batches])[rows]
    few = TermColumns(levels, actions, batches[0].n_actions, knots_of(search.now))
    found = []
    for j, given in enumerate(shapes):
        tried, least = SHAPES if np.ptp(change[:, j]) > 0 else (STRAIGHT,), np.inf
        if j in censored:
            weights, intercept, limit = censored[j]
            ends = [(end - search.scaler.mean[j]) / search.scaler.scale[j] for end in (limit.low, limit.high)]
            missed = np.clip(levels[:, j] + design @ weights + intercept, *ends) - levels[:, j] - change[:, j]
            tried, least = SHAPES[1:], float(missed @ missed)
        found.append(given or choose_shape(design, change[:, j], part, partial(few.of, j), strength, tried, least))
    return found


def _fit_terms(
    search: _Search,
    train: Batch,
    unit: FloatArray,
    chosen: tuple[IntArray, float],
    shapes: Sequence[Shape],
    held: Mapping[int, Mapping[int, tuple[float, float]]],
    found: tuple[FloatArray, FloatArray],
) -> Terms | None:
    """Terms in scaled units. The rest of the law of a feature that has any, or is held to effects, is written into it.

    Args:
        search: design, changes and scales.
        train: what they are of.
        unit: ``[d]`` raw units of one scaled unit.
        chosen: columns of the straight law, and ridge per row.
        shapes: of each feature.
        held: by feature and action, ranges of effects.
        found: weights ``[F, d]`` and intercepts ``[d]`` of the straight law, overwritten.
    """
    if not held and set(shapes) == {STRAIGHT}:
        return None
    (columns, strength), (weights, intercept) = chosen, found
    levels, actions = search.now, train.actions[train.mask]
    made = TermColumns(levels, actions, train.n_actions, knots_of(levels))
    bends, interactions = np.zeros(made.knots.shape), np.zeros((train.n_actions, *(levels.shape[1],) * 2))
    base = search.design[:, columns]
    for j, shape in enumerate(shapes):
        target = search.change[:, j]
        if shape == STRAIGHT and j not in held:
            continue
        added, centre, spread = standardised(made.of(j, shape))
        design = np.concatenate([base, added], axis=1)
        (solution, level), *_ = ridge(design, target[:, None], (strength,))
        own = solution[:, 0]
        if j in held:
            scales = np.concatenate([search.spread[columns], spread])
            contrasts = np.array([unit[j] * made.contrast(j, shape, a, len(columns)) / scales for a in held[j]])
            own = bounded_ridge(design, target - level, strength, contrasts, np.array(list(held[j].values())))
        weights[:, j], of_terms = own[: len(columns)], own[len(columns) :] / spread
        intercept[j] = level[0] - centre @ of_terms
        made.put(j, shape, of_terms, bends, interactions)
    return Terms(made.knots, bends, interactions) if bends.any() or interactions.any() else None


def _with_scaled_terms(law: LinearLaw, scaler: Scaler, terms: Terms) -> LinearLaw:
    """The law in raw units, and terms in scaled ones, together in raw units."""
    interactions = terms.interactions * scaler.scale / scaler.scale[:, None]
    effects = law.effects - np.einsum("i,aij->aj", scaler.mean, interactions)
    raw = Terms(terms.knots * scaler.scale + scaler.mean, terms.bends, interactions)
    return replace(law, effects=effects, terms=raw)


def known_lags(batch: Batch) -> dict[int, int]:
    """By the number of a feature named "NAME before", the number of the feature NAME, where the data bear it out."""
    place = {name: i for i, name in enumerate(batch.features)}
    named = {place[before(name)]: i for name, i in place.items() if before(name) in place}
    now, then = batch.obs[:, :-1][batch.mask], batch.obs[:, 1:][batch.mask]
    return {j: i for j, i in named.items() if i not in named and np.array_equal(then[:, j], now[:, i])}


def fit_law(train: Batch, validation: Batch, config: AutoregressionConfig) -> AutoregressionFit:
    """:func:`fit_autoregression`, features that are known lags left out."""
    known = known_lags(train)
    if not known or (config.shapes and len(config.shapes) != len(train.features)):
        return fit_autoregression(train, validation, config)
    free = [i for i in range(len(train.features)) if i not in known]
    names = tuple(train.features[i] for i in free)
    rows, held_out = (replace(batch, obs=batch.obs[..., free], features=names) for batch in (train, validation))
    shapes = tuple(config.shapes[i] for i in free) if config.shapes else ()
    fit = fit_autoregression(rows, held_out, replace(config, shapes=shapes))
    lags, now = list(known), list(known.values())
    low, high = outcome_bounds(train)
    low[free], high[free] = fit.low, fit.high
    low[lags], high[lags] = low[now], high[now]
    limits = dict(zip(free, fit.limits, strict=True))
    return replace(
        fit,
        law=_wider(fit.law, free, known),
        scaler=Scaler.from_batch(train),
        limits=tuple(limits.get(i, UNLIMITED) for i in range(len(train.features))),
        low=low,
        high=high,
    )


def _wider(law: LinearLaw, free: Sequence[int], known: dict[int, int]) -> LinearLaw:
    """The law of the other features, and of the known ones that they are what is observed now."""
    d = len(free) + len(known)
    window = Window(law.window.order, d, law.window.n_actions)
    rows = [lag * d + i for lag in range(window.order) for i in free] + list(range(window.covariates, window.size))
    intercept, effects = np.zeros(d), np.zeros((window.n_actions, d))
    coefficients = np.zeros((window.size, d))
    intercept[free], effects[:, free] = law.intercept, law.effects
    coefficients[np.ix_(rows, free)] = law.coefficients
    coefficients[list(known.values()), list(known)] = 1.0
    return LinearLaw(window, intercept, coefficients, effects, law.terms and law.terms.wider(d, free))


def relative_columns(train: Batch, names: Sequence[str]) -> BoolArray:
    """``[d]`` which features are named.

    Raises:
        ValueError: a name is no feature, or its feature is negative somewhere.
    """
    for name in names:
        if name not in train.features:
            raise ValueError(f"relative: {name!r} is not a feature; the features are {', '.join(train.features)}")
        if (train.obs[train.seen][:, train.features.index(name)] < 0).any():
            raise ValueError(f"relative: {name!r} is negative in some rows; only a positive size has shares")
    return np.array([name in names for name in train.features])


def without_law(fit: AutoregressionFit, train: Batch, relative: BoolArray) -> AutoregressionFit:
    """The fit in which relative features stay as they are, inside the limits at which their outcomes pile up."""
    law = fit.law
    intercept, effects = (np.where(relative, 0.0, values) for values in (law.intercept, law.effects))
    coefficients = np.where(relative, np.eye(*law.coefficients.shape), law.coefficients)
    found = [hard_limits(column) for column in train.next_obs[train.mask].astype(np.float64).T]
    low, high = (np.array([getattr(limit, end) for limit in found]) for end in ("low", "high"))
    return replace(
        fit,
        law=LinearLaw(law.window, intercept, coefficients, effects, law.terms and law.terms.without(relative)),
        scaler=fit.scaler.with_logarithms(train, relative),
        limits=tuple(UNLIMITED if own else limit for limit, own in zip(fit.limits, relative, strict=True)),
        low=np.where(relative, np.maximum(fit.low, low), fit.low),
        high=np.where(relative, np.minimum(fit.high, high), fit.high),
    )


def usual_share(train: Batch) -> FloatArray:
    """``[d]`` root mean square of (x_{t+1} - x_t) / x_t over the rows in which x_t is positive; 0 where none is."""
    before = train.obs[:, :-1][train.mask].astype(np.float64)
    change = train.next_obs[train.mask] - before
    positive = before > 0
    shares = np.where(positive, change / np.where(positive, before, 1.0), 0.0)
    return np.sqrt((shares**2).sum(axis=0) / np.maximum(positive.sum(axis=0), 1))  # type: ignore[no-any-return]
