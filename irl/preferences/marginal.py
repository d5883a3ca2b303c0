"""The choice model's density of theta alone, the logits of habits integrated out: for tables of many actions.

A habit of 25 actions has 650 logits, and to sample them all takes many minutes. Given theta their density is that of a
plain multinomial logit with a normal prior: smooth, with a single peak, and close to normal around it. So they are
integrated out by Laplace's approximation (Tierney and Kadane 1986; Rue, Martino and Chopin 2009): the log density of
theta is that at the logits' peak, less half the log determinant of the curvature H there. The levels of a single
context know nothing of each other, so that H falls into a block for each.

Many thetas are computed in one matrix product: each alone takes as long as it takes to read all psi from memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cirl_gym.types import Float32Array, FloatArray, IntArray
from irl.preferences.choice import HABIT, Decisions, ThetaPrior, around

PLANS = 8
"""Plans that stay of each value at most: of many outcomes more matter than :meth:`Decisions.relevant` lets stay."""
_AT_ONCE = 8
"""Thetas of one product: of more the values would not fit the processor's cache."""
_STEPS, _CLOSE, _LONGEST = 12, 0.02, 2.0
"""Newton's steps to the logits' peak at most, what the density may still gain by the next, and the longest step."""
_NEAR, _FAR, _ROUNDS = 0.05, 5.0, 30
"""Of the search for the centre: a step in standard deviations that is small enough, the longest, how many at most."""


class _Habits(NamedTuple):
    """The logits near their peak, for M thetas."""

    logits: FloatArray
    """``[M, C, A]``."""
    chances: Float32Array
    """``[M, A, R]``."""
    log_sums: Float32Array
    """``[M, R]`` logarithms of the sums of exp(scores)."""
    curvature: FloatArray
    """``[M, B, N, N]`` H: a block of each level, or one of all where decisions are of several contexts."""
    gain: FloatArray
    """``[M]`` by how much the density is higher at the peak."""


class Parabola(NamedTuple):
    """A normal log likelihood of theta, but for a constant."""

    theta: FloatArray
    """``[d]`` where it touches another one."""
    slope: FloatArray
    """``[d]`` there."""
    curvature: FloatArray
    """``[d, d]``."""

    def __call__(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values ``[M]`` at theta ``[M, d]``, and slopes ``[M, d]``."""
        away = theta - self.theta
        bent = away @ self.curvature
        return (away * (self.slope - bent / 2)).sum(axis=1), self.slope - bent


class Marginal:
    """Log posterior density of theta and its gradient, in the d coordinates of :class:`irl.preferences.choice.Density`.

    Args:
        decisions: what experts did.
        signs: ``[d]`` of -1, 0 (free) and 1.
        power: of the likelihood.
    """

    def __init__(self, decisions: Decisions, signs: FloatArray, power: float = 1.0) -> None:
        self.prior, self.power, self.n = ThetaPrior(signs), power, len(signs)
        # Decisions of the same levels stand together: sums over them are sums of slices.
        self._met, member = np.unique(decisions.levels, axis=0, return_inverse=True)
        order = np.argsort(member.ravel(), kind="stable")
        self.decisions = decisions.take(order)
        self._kind = member.ravel()[order]
        ends = np.searchsorted(self._kind, np.arange(len(self._met) + 1)).tolist()
        self._slices = [slice(*pair) for pair in pairwise(ends)]
        self._rows = np.arange(len(order))
        levels, n_actions = decisions.n_levels, decisions.psi.shape[2]
        self._counts = np.zeros((levels, n_actions))
        for column in self.decisions.levels.T:
            np.add.at(self._counts, (column, self.decisions.taken), 1.0)
        single = self._met.shape[1] == 1
        self._blocks = (levels, n_actions) if single else (min(levels, 1), levels * n_actions)
        self._centre = (np.zeros(self.n), self._counts * 0.0, np.zeros((levels, n_actions, self.n)))
        self._spread: FloatArray | None = None

    def theta(self, x: FloatArray) -> FloatArray:
        """``[.., d]`` theta at coordinates ``[.., d]``."""
        return self.prior.theta(x)

    def drawn(self, x: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Theta ``[M, d]`` at coordinates ``[M, d]``, and logits ``[M, C, A]`` that go with it, drawn.

        Their mean follows theta by its slope at the centre, their spread is that at the centre.
        """
        levels, n_actions = self._counts.shape
        if self._spread is None:
            self.peak()
        assert self._spread is not None
        root = np.linalg.cholesky(self._spread)
        normal = root @ rng.standard_normal((*self._blocks, len(x)))
        logits = self._foreseen(x) + normal.reshape(levels, n_actions, len(x)).transpose(2, 0, 1)
        return self.theta(x), np.asarray(logits - logits.mean(axis=2, keepdims=True))

    def many(self, x: FloatArray) -> FloatArray:
        """``[M]`` log densities, but for a constant, at coordinates ``[M, d]``."""
        found = []
        for first in range(0, len(x), _AT_ONCE):
            part = x[first : first + _AT_ONCE]
            values, _ = self._values(part)
            found.append(self._likelihood(values, self._habits(part, values, self._spread)))
        return np.concatenate(found) + self.prior(x)[0]

    def parabola(self, x: FloatArray) -> Parabola:
        """The normal likelihood that is like this one near coordinates ``[d]``."""
        return Parabola(self.theta(x), self._slopes(x[None])[1][0], self._at(x)[0])

    def slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``[M]`` log densities, but for a constant, at coordinates ``[M, d]``, and their gradients ``[M, d]``."""
        parts = [self._slopes(x[first : first + _AT_ONCE]) for first in range(0, len(x), _AT_ONCE)]
        values, slopes = map(np.concatenate, zip(*parts, strict=True))
        prior, outward = self.prior(x)
        return values + prior, slopes * self.prior.step(x) + outward

    def information(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Fisher's information ``[d, d]``, and the patients' scores ``[G, d]`` of power 1, less what logits explain."""
        information, by_habit, short, psi, *_ = self._at(x)
        step = self.prior.step(x)
        moved = psi + by_habit[self._met].sum(axis=1)[self._kind].transpose(2, 1, 0)
        scores = np.zeros((int(self.decisions.group.max()) + 1, self.n))
        np.add.at(scores, self.decisions.group, np.einsum("dar,ar->rd", moved, short) * step)
        return information * step * step[:, None], scores

    def peak(self) -> tuple[FloatArray, FloatArray]:
        """Mean ``[d]`` and covariance ``[d, d]``, in coordinates, of the normal density that is about the closest.

        Of a component of known sign these are peak and curvature. The prior of a free one has a kink at 0, at which a
        peak says little: it is bounded by a parabola that touches it at the root of the component's second moment (the
        local variational bound of Jaakkola and Jordan 2000), and moments and bound follow from each other by turns.
        """
        free = self.prior.free
        x, variance = np.where(free, 0.0, -1.0), np.ones(self.n)
        for _ in range(_ROUNDS):
            information, by_habit, short, psi, logits, spread = self._at(x)
            self._centre, self._spread = (self.theta(x), logits, by_habit), spread
            touching = np.sqrt(x**2 + np.where(free, variance, 0.0))
            rate = (self.n + 1) / (1 + np.where(free, touching, np.abs(self.theta(x)) / self.prior.scale).sum())
            curvature = np.where(free, rate / np.maximum(touching, 1e-12), self.prior.curvature(x))
            outward = np.where(free, -curvature * x, self.prior(x)[1])
            step = self.prior.step(x)
            slope = self.power * (psi.reshape(self.n, -1) @ short.ravel()) * step + outward
            covariance = np.linalg.inv(information * step * step[:, None] + np.diag(curvature))
            covariance = (covariance + covariance.T) / 2
            move, variance = covariance @ slope, np.diag(covariance)
            length = float(np.sqrt(move @ slope / self.n))
            if length < _NEAR:
                break
            x = x + move * min(1.0, _FAR / length)
        return x, covariance

    def pruned(self, peak: FloatArray, covariance: FloatArray, rng: np.random.Generator) -> Marginal:
        """The same density with the plans alone that matter around its peak."""
        few = Marginal(
            self.decisions.relevant(self.theta(around(peak, covariance, rng)), PLANS), self.prior.signs, self.power
        )
        few._centre, few._spread = self._centre, self._spread
        return few

    def _slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log densities ``[M]`` without theta's prior, and their gradients ``[M, d]`` by theta."""
        values, every = self._values(x)
        habits = self._habits(x, values)
        # The best plans alone count: one product over all plans, with zeros for the others.
        d, plans, n_actions, rows = self.decisions.psi.shape
        pull = np.zeros((len(x), plans, n_actions * rows), dtype=np.float32)
        best = every.argmax(axis=1).reshape(len(x), 1, -1)
        np.put_along_axis(pull, best, self._pull(habits).reshape(len(x), 1, -1), axis=1)
        slopes = self.decisions.psi.reshape(d, -1) @ pull.reshape(len(x), -1).T
        return self._likelihood(values, habits), slopes.T.astype(np.float64)

    def _likelihood(self, values: Float32Array, habits: _Habits) -> FloatArray:
        """Log densities ``[M]`` without theta's prior, of best values ``[M, A, R]``."""
        found = values[:, self.decisions.taken, self._rows].sum(axis=1, dtype=np.float64)
        found += (habits.logits * self._counts).sum(axis=(1, 2)) - habits.log_sums.sum(axis=1, dtype=np.float64)
        # Far from all that is likely Newton's steps do not settle, and promise what is not there.
        gain = np.minimum(habits.gain, _CLOSE)
        found = self.power * found - (habits.logits**2).sum(axis=(1, 2)) / (2 * HABIT**2) + gain
        root = np.linalg.cholesky(habits.curvature)
        return np.asarray(found - np.log(np.diagonal(root, axis1=2, axis2=3)).sum(axis=(1, 2)))

    def _values(self, x: FloatArray) -> tuple[Float32Array, Float32Array]:
        """Best values ``[M, A, R]``, and those of every plan ``[M, J, A, R]``."""
        d, plans, n_actions, rows = self.decisions.psi.shape
        product = self.theta(x).astype(np.float32) @ self.decisions.psi.reshape(d, -1)
        every = product.reshape(len(x), plans, n_actions, rows)
        best = every.max(axis=1)
        if self.decisions.forbidden is not None:
            best[:, self.decisions.forbidden] = -np.inf
        return best, every

    def _foreseen(self, x: FloatArray) -> FloatArray:
        """``[M, C, A]`` where the logits' peaks are about, by their slope at the centre."""
        theta, logits, slope = self._centre
        return np.asarray(logits + np.einsum("cad,md->mca", slope, self.theta(x) - theta))

    def _habits(self, x: FloatArray, values: Float32Array, spread: FloatArray | None = None) -> _Habits:
        """The logits near their peaks, by Newton's steps from what is foreseen of them.

        ``spread`` ``[B, N, N]`` stands for the inverse of H, which takes long; default: the inverse at every step.
        """
        logits = self._foreseen(x)
        for _ in range(_STEPS):
            chances, log_sums = self._chances(values, logits)
            uphill = self.power * (self._counts - self._sums(chances)) - logits / HABIT**2
            inverse = np.linalg.inv(self._curvature(chances)) if spread is None else spread
            step = (inverse @ uphill.reshape(len(x), *self._blocks, 1)).reshape(uphill.shape)
            gain = (step * uphill).sum(axis=(1, 2)) / 2
            if gain.max() < _CLOSE:
                break
            longest = np.abs(step).max(axis=(1, 2), keepdims=True)
            logits = logits + step * np.minimum(1.0, _LONGEST / np.maximum(longest, 1e-12))
        return _Habits(logits, chances, log_sums, self._curvature(chances), gain)

    def _chances(self, values: Float32Array, logits: FloatArray) -> tuple[Float32Array, Float32Array]:
        """Chances ``[M, A, R]``, and the logarithms ``[M, R]`` of what they were divided by."""
        by_kind = logits[:, self._met].sum(axis=2).transpose(0, 2, 1).astype(np.float32)
        scores = values + by_kind[:, :, self._kind]
        highest = scores.max(axis=1, keepdims=True)
        scores -= highest
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, keepdims=True)
        scores /= sums
        return scores, (highest + np.log(sums))[:, 0]

    def _sums(self, chances: Float32Array) -> FloatArray:
        """``[M, C, A]`` of the chances by level."""
        sums = np.zeros((len(chances), *self._counts.shape))
        for levels, rows in zip(self._met, self._slices, strict=True):
            sums[:, levels] += chances[:, :, rows].sum(axis=2, dtype=np.float64)[:, None]
        return sums

    def _curvature(self, chances: Float32Array) -> FloatArray:
        """H ``[M, B, N, N]``."""
        many, n_actions = chances.shape[:2]
        same, whole = np.arange(n_actions), np.arange(self._blocks[1])
        curvature = np.zeros((many, *self._counts.shape, self._blocks[1]))
        for levels, rows in zip(self._met, self._slices, strict=True):
            own = chances[:, :, rows]
            between = -(own @ own.transpose(0, 2, 1)).astype(np.float64)
            between[:, same, same] += own.sum(axis=2, dtype=np.float64)
            for level, block in self._pairs(levels):
                curvature[:, level, :, block] += self.power * between
        curvature = curvature.reshape(many, *self._blocks, self._blocks[1])
        curvature[..., whole, whole] += HABIT**-2
        return curvature

    def _pairs(self, levels: IntArray) -> list[tuple[int, slice]]:
        """The levels that meet in a decision, two by two: the first, and where in the row of its block the second is.

        Of a single context each level is a block of its own.
        """
        n_actions = self._counts.shape[1]
        if len(levels) == 1:
            return [(int(levels[0]), slice(0, n_actions))]
        return [(int(one), slice(o * n_actions, (o + 1) * n_actions)) for one in levels for o in levels.tolist()]

    def _pull(self, habits: _Habits) -> Float32Array:
        """``[M, A, R]`` by how much the density rises with each value: at fixed logits, and by what it does to H."""
        chances, power = habits.chances, self.power
        many, n_actions = chances.shape[:2]
        bend, sums = np.zeros_like(chances), np.zeros((many, *self._counts.shape))
        covariance = np.linalg.inv(habits.curvature)
        by_level = covariance.reshape(many, *self._counts.shape, self._blocks[1])
        for levels, rows in zip(self._met, self._slices, strict=True):
            within = np.zeros((many, n_actions, n_actions), dtype=np.float32)
            for level, block in self._pairs(levels):
                within += by_level[:, level, :, block]
            own = chances[:, :, rows]
            rise = np.diagonal(within, axis1=1, axis2=2)[..., None] - 2 * (within @ own)
            bend[:, :, rows] = power * own * (rise - (own * rise).sum(axis=1, keepdims=True))
            sums[:, levels] += bend[:, :, rows].sum(axis=2, dtype=np.float64)[:, None]
        # The logits' peak moves with the values, and H with it.
        moved = (covariance @ sums.reshape(many, *self._blocks, 1)).reshape(sums.shape)
        by_kind = moved[:, self._met].sum(axis=2).transpose(0, 2, 1).astype(np.float32)[:, :, self._kind]
        bend -= power * chances * (by_kind - (chances * by_kind).sum(axis=1, keepdims=True))
        pull = -power * chances - bend / 2
        pull[:, self.decisions.taken, self._rows] += power
        return np.asarray(pull, dtype=np.float32)

    def _at(self, x: FloatArray) -> tuple[FloatArray, FloatArray, Float32Array, Float32Array, FloatArray, FloatArray]:
        """At coordinates ``[d]``, all by theta: what the decisions say of it ``[d, d]`` where logits are unknown, the
        slopes ``[C, A, d]`` of the logits' peaks, actions taken less chances ``[A, R]``, and psi ``[d, A, R]`` of the
        best plans; and the logits.
        """
        values, every = self._values(x[None])
        habits = self._habits(x[None], values)
        psi, chances = self.decisions.along(every[0].argmax(axis=0)), habits.chances[0]
        weighted = chances * (psi - (chances * psi).sum(axis=1, keepdims=True))
        cross = np.zeros((*self._counts.shape, self.n))
        for levels, rows in zip(self._met, self._slices, strict=True):
            cross[levels] += self.power * weighted[:, :, rows].sum(axis=2, dtype=np.float64).T
        covariance = np.linalg.inv(habits.curvature[0])
        by_habit = -(covariance @ cross.reshape(*covariance.shape[:2], self.n)).reshape(cross.shape)
        information = self.power * (weighted.reshape(self.n, -1) @ psi.reshape(self.n, -1).T).astype(np.float64)
        information += np.einsum("cad,cae->de", cross, by_habit)
        short = -chances
        short[self.decisions.taken, self._rows] += 1.0
        return information, by_habit, short, psi, habits.logits[0], covariance
