"""The choice model as a smooth density: P(a | h) proportional to exp(b[c(h), a] + theta . psi(h, a)), theta = kappa w.

Q(h, a) = max over a pool of plans of w . psi is exact for the plans found, so the likelihood of any theta costs one
matrix product. Its gradient in theta is psi of the action taken minus its mean under P, each along the plan that is
best under theta: exact wherever no two plans tie.

The prior: w is uniform on the allowed part of the L1 sphere, and kappa, independent of it, has median :data:`KAPPA`
and a tail whose mass falls as 1 / kappa: kappa / s is beta-prime of d and 1, the density of theta proportional to
(1 + kappa / s)^-(d + 1). A level's A logits are normal around 0 with standard deviation :data:`HABIT`. The density of
theta is finite and highest at 0, where habits alone are left: noise is drawn there, and large kappas, as of outcomes
that an action changes by little of their range, are hardly held back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from irl.preferences.likelihood import PlanPool

KAPPA = 100.0
"""Prior median of kappa: with it an outcome's difference of a hundredth of its range makes a logit of 1."""
HABIT = 2.5
"""Prior standard deviation of a habit's logit."""
_DRAWN, _WIDER = 200, 1.5
"""Draws of theta, so many times as wide as where it is likely, under which plans must be best to stay ..."""
_OFTEN, _MOST = 0.02, 6
"""... how often, and how many stay at most."""
_CELLS = 2000
"""Values looked at in one go, so that the products of all thetas stay small."""
_LARGEST = 12.0
"""Of the logarithm of a component of theta of known sign, in units of its scale: nothing is larger, and what is tried
beyond falls off at once."""


@dataclass(frozen=True)
class Decisions:
    """R decisions, and the plans by which their values are computed. Actions stand before decisions: sums over few
    actions are then sums of long rows.
    """

    psi: Float32Array
    """``[d, J, A, R]`` successor features."""
    taken: IntArray
    """``[R]`` actions."""
    levels: IntArray
    """``[R, H]`` numbers of the levels of the decision's contexts."""
    group: IntArray
    """``[R]`` number of the patient, from 0 on."""
    n_levels: int
    """C, levels of all contexts."""
    forbidden: BoolArray | None = None
    """``[A, R]``; None: no action ever."""

    @classmethod
    def of(cls, pool: PlanPool) -> Decisions:
        """The decisions of a pool, episode by episode."""
        mask = pool.batch.mask
        assert pool.levels is not None
        live = pool.psi[:, mask].astype(np.float32, copy=False)
        return cls(
            psi=np.ascontiguousarray(live.transpose(3, 0, 2, 1)),
            taken=pool.batch.actions[mask],
            levels=pool.levels[mask],
            group=np.broadcast_to(pool.batch.owners[:, None], mask.shape)[mask],
            n_levels=pool.contexts.size,
            forbidden=None if pool.batch.allowed is None else ~pool.batch.allowed[mask].T,
        )

    def take(self, rows: IntArray) -> Decisions:
        """Some of the decisions, or all in another order."""
        return replace(
            self,
            psi=np.ascontiguousarray(self.psi[..., rows]),
            taken=self.taken[rows],
            levels=self.levels[rows],
            group=self.group[rows],
            forbidden=None if self.forbidden is None else self.forbidden[:, rows],
        )

    def values(self, theta: FloatArray) -> tuple[Float32Array, IntArray]:
        """Best values ``[A, R]`` under theta ``[d]``, and which plan each is of."""
        d, plans, n_actions, rows = self.psi.shape
        values = (theta.astype(np.float32) @ self.psi.reshape(d, -1)).reshape(plans, n_actions, rows)
        best, which = values[0].copy(), np.zeros((n_actions, rows), dtype=np.int64)
        # NumPy's own argmax along the first axis takes twice as long.
        for plan in range(1, plans):
            which[values[plan] > best] = plan
            np.maximum(best, values[plan], out=best)
        return best, which

    def along(self, which: IntArray) -> Float32Array:
        """``[d, A, R]`` psi of the plans ``[A, R]``."""
        d, plans, n_actions, rows = self.psi.shape
        cells = n_actions * rows
        chosen = self.psi.reshape(d, plans * cells).take(which.ravel() * cells + np.arange(cells), axis=1)
        return np.asarray(chosen.reshape(d, n_actions, rows))

    def relevant(self, thetas: FloatArray, most: int = _MOST) -> Decisions:
        """The same with the few plans alone that matter under thetas ``[M, d]``, chosen for every value apart.

        A plan stays where it is the best under :data:`_OFTEN` of the thetas, at most ``most`` of each value, those that
        are so most often; where there are fewer than elsewhere the first is repeated.
        """
        d, plans, n_actions, rows = self.psi.shape
        cells = n_actions * rows
        wins = np.zeros((plans, cells), dtype=np.int64)
        every, directions = self.psi.reshape(d, plans, cells), thetas.astype(np.float32)
        for first in range(0, cells, _CELLS):
            # One product for all thetas: numpy takes each alone at the speed of memory.
            values = directions @ every[:, :, first : first + _CELLS].reshape(d, -1)
            best = values.reshape(len(thetas), plans, -1).argmax(axis=1)
            here = np.arange(first, first + best.shape[1])
            for one in best:
                wins[one, here] += 1
        order = np.argsort(-wins, axis=0, kind="stable")[:most]
        often = np.take_along_axis(wins, order, axis=0) >= _OFTEN * len(thetas)
        order = np.where(often, order, order[:1])[: max(int(often.sum(axis=0).max()), 1)]
        psi = np.take_along_axis(self.psi.reshape(d, plans, cells), order[None], axis=1)
        return replace(self, psi=np.ascontiguousarray(psi.reshape(d, len(order), n_actions, rows)))


class ThetaPrior:
    """Log prior density of theta, but for a constant, in coordinates ``[d]``: theta / scale, or the logarithm of its
    size where the sign is known (so that the density is one of that logarithm).

    Args:
        signs: ``[d]`` of -1, 0 (free) and 1.
    """

    def __init__(self, signs: FloatArray) -> None:
        self.signs, self.free, self.d = signs, signs == 0, len(signs)
        self.scale = KAPPA * (2 ** (1 / self.d) - 1)

    def theta(self, x: FloatArray) -> FloatArray:
        """``[.., d]`` theta at coordinates ``[.., d]``."""
        size = np.exp(np.minimum(x, _LARGEST))
        return np.asarray(self.scale * np.where(self.free, x, self.signs * size))

    def step(self, x: FloatArray) -> FloatArray:
        """``[.., d]`` by how much theta changes with its coordinates."""
        return np.asarray(np.where(self.free, self.scale, self.theta(x)))

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log densities ``[..]`` and their gradients ``[.., d]``."""
        size = np.abs(self.theta(x)) / self.scale
        beyond = np.where(self.free, 0.0, np.maximum(x - _LARGEST, 0.0))
        total = size.sum(axis=-1, keepdims=True)
        known = np.where(self.free, 0.0, x)
        found = known.sum(axis=-1) - (self.d + 1) * np.log1p(total[..., 0]) - (beyond**2).sum(axis=-1)
        rate = (self.d + 1) / (1 + total)
        slope = np.where(self.free, -rate * np.sign(x), 1.0 - rate * size * (x < _LARGEST) - 2 * beyond)
        return np.asarray(found), np.asarray(slope)

    def curvature(self, x: FloatArray) -> FloatArray:
        """``[d]`` that of a normal density of about its width at coordinates ``[d]``."""
        size = np.abs(self.theta(x)) / self.scale
        rate = (self.d + 1) / (1 + size.sum())
        # Laplace's density of that rate has variance 2 / rate^2; by the logarithm of a size its curvature is rate size.
        return np.asarray(np.where(self.free, rate**2 / 2, rate * size))


class Density:
    """Log posterior density and its gradient in coordinates x ``[n]``: theta / scale, then the habits' contrasts.

    The coordinate of a component of theta whose sign is known is the logarithm of its size. A level's A logits are
    A - 1 orthonormal contrasts, since what they have in common means nothing.

    Args:
        decisions: what experts did.
        signs: ``[d]`` of -1, 0 (free) and 1.
        power: of the likelihood; below 1 where decisions of a patient depend on each other (:func:`patients_power`).
    """

    def __init__(self, decisions: Decisions, signs: FloatArray, power: float = 1.0) -> None:
        self.decisions, self.prior, self.power = decisions, ThetaPrior(signs), power
        self.d, n_actions = len(signs), decisions.psi.shape[2]
        self._rows = np.arange(len(decisions.taken))
        self._in_level = np.zeros((decisions.n_levels, len(self._rows)))
        for column in decisions.levels.T:
            self._in_level[column, self._rows] = 1.0
        # An orthonormal basis of what is left of A dimensions without (1, ..., 1).
        self._contrasts = np.linalg.qr(np.column_stack([np.ones(n_actions), np.eye(n_actions)[:, 1:]]))[0][:, 1:]
        self.n = self.d + decisions.n_levels * (n_actions - 1)

    def theta(self, x: FloatArray) -> FloatArray:
        """``[.., d]`` theta at coordinates ``[.., n]``."""
        return self.prior.theta(x[..., : self.d])

    def logits(self, x: FloatArray) -> FloatArray:
        """``[.., C, A]`` logits of habits at coordinates ``[.., n]``, of mean 0 in each level."""
        contrasts = x[..., self.d :].reshape(*x.shape[:-1], self.decisions.n_levels, self._contrasts.shape[1])
        return np.asarray(contrasts @ self._contrasts.T)

    def drawn(self, x: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Theta ``[M, d]`` and logits ``[M, C, A]`` at coordinates ``[M, n]``; nothing is drawn beside them."""
        return self.theta(x), self.logits(x)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Log density, but for a constant, and its gradient ``[n]``."""
        log_chances, which = self._chances(x)
        short = self._short(log_chances)
        by_theta = self.decisions.along(which).reshape(self.d, -1) @ short.ravel()
        by_habit = self._in_level @ short.T @ self._contrasts
        own, contrasts = x[: self.d], x[self.d :]
        prior, outward = self.prior(own)
        likelihood = log_chances[self.decisions.taken, self._rows].sum()
        slope = np.concatenate([self.prior.step(own) * by_theta, by_habit.ravel()])
        of_prior = np.concatenate([outward, -contrasts / HABIT**2])
        density = self.power * likelihood + prior - (contrasts**2).sum() / (2 * HABIT**2)
        return float(density), self.power * slope + of_prior

    def many(self, x: FloatArray) -> FloatArray:
        """``[M]`` log densities at coordinates ``[M, n]``, in one matrix product."""
        decisions, theta = self.decisions, self.theta(x)
        d, plans, n_actions, rows = decisions.psi.shape
        values = theta.astype(np.float32) @ decisions.psi.reshape(d, -1)
        scores = values.reshape(len(x), plans, n_actions, rows).max(axis=1)
        if decisions.n_levels:
            by_habit = self.logits(x).transpose(0, 2, 1).reshape(-1, decisions.n_levels) @ self._in_level
            scores = scores + by_habit.reshape(scores.shape)
        if decisions.forbidden is not None:
            scores[:, decisions.forbidden] = -np.inf
        scores = scores - scores.max(axis=1, keepdims=True)
        likelihood = scores[:, decisions.taken, self._rows] - np.log(np.exp(scores).sum(axis=1))
        prior = self.prior(x[:, : self.d])[0] - (x[:, self.d :] ** 2).sum(axis=1) / (2 * HABIT**2)
        return np.asarray(self.power * likelihood.sum(axis=1, dtype=np.float64) + prior)

    def taken(self, x: FloatArray) -> FloatArray:
        """``[R]`` log-probabilities of the actions taken at coordinates ``[n]``."""
        return np.asarray(self._chances(x)[0][self.decisions.taken, self._rows], dtype=np.float64)

    def information(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Fisher's information ``[n, n]`` of all decisions, and the patients' scores ``[G, n]``, both of power 1."""
        log_chances, which = self._chances(x)
        chances, short, d = np.exp(log_chances), self._short(log_chances), self.d
        psi = self.prior.step(x[:d])[:, None, None] * self.decisions.along(which)  # [d, A, R]
        centred = psi - np.einsum("ar,dar->dr", chances, psi)[:, None]
        weighted = centred * chances
        information = np.zeros((self.n, self.n))
        information[:d, :d] = weighted.reshape(d, -1) @ centred.reshape(d, -1).T
        cross = np.einsum("dar,cr,ab->dcb", weighted, self._in_level, self._contrasts, optimize=True)
        information[:d, d:] = cross.reshape(d, self.n - d)
        information[d:, :d] = information[:d, d:].T
        contrasts = self._contrasts
        information[d:, d:] = np.einsum(
            "ab,cakd,de->cbke", contrasts, self._between(chances), contrasts, optimize=True
        ).reshape(self.n - d, self.n - d)
        habits = self._in_level[:, None] * (contrasts.T @ short)[None]  # [C, A - 1, R]
        rows = np.concatenate([np.einsum("dar,ar->dr", psi, short), habits.reshape(self.n - d, len(self._rows))])
        owner = (np.ones(len(self._rows)), (self.decisions.group, self._rows))
        return information, np.asarray(csr_array(owner) @ rows.T)

    def peak(self) -> tuple[FloatArray, FloatArray]:
        """The most likely coordinates ``[n]``, and the covariance ``[n, n]`` of the density around them.

        They are sought from weak preferences and no habits.
        """
        start = np.zeros(self.n)
        start[: self.d] = np.where(self.prior.free, 0.1, -1.0)
        found = minimize(self._downward, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
        information, _ = self.information(found.x)
        prior = np.concatenate([self.prior.curvature(found.x[: self.d]), np.full(self.n - self.d, HABIT**-2)])
        return np.asarray(found.x), np.asarray(np.linalg.inv(self.power * information + np.diag(prior)))

    def pruned(self, peak: FloatArray, covariance: FloatArray, rng: np.random.Generator) -> Density:
        """The same density with the plans alone that matter around its peak."""
        thetas = self.theta(around(peak, covariance, rng))
        return Density(self.decisions.relevant(thetas), self.prior.signs, self.power)

    def _between(self, chances: FloatArray) -> FloatArray:
        """``[C, A, C, A]`` sums over decisions of the covariance of what is taken, by the levels that meet in it."""
        decisions, (n_actions, rows) = self.decisions, chances.shape
        shape, levels = (decisions.n_levels, n_actions), decisions.levels
        found = np.zeros((*shape, *shape))
        if not decisions.n_levels:
            return found
        # A decision is of few levels: of most products of two levels nothing is to be summed.
        columns = levels[:, :, None] * n_actions + np.arange(n_actions)
        weights = np.broadcast_to(chances.T[:, None], columns.shape)
        numbers = np.repeat(self._rows, columns[0].size)
        apart = csr_array((weights.ravel(), (numbers, columns.ravel())), shape=(rows, found[0, 0].size))
        within = csr_array(self._in_level.T)
        found -= (apart.T @ apart).toarray().reshape(found.shape)
        same = np.arange(n_actions)
        found[:, same, :, same] += (apart.T @ within).toarray().reshape(*shape, -1).transpose(1, 0, 2)
        return found

    def _chances(self, x: FloatArray) -> tuple[FloatArray, IntArray]:
        """Log-probabilities ``[A, R]``, and the best plans ``[A, R]``."""
        values, which = self.decisions.values(self.theta(x))
        scores = values + self.logits(x).T @ self._in_level
        if self.decisions.forbidden is not None:
            scores[self.decisions.forbidden] = -np.inf
        scores -= scores.max(axis=0)
        scores -= np.log(np.exp(scores).sum(axis=0))
        return scores, which

    def _short(self, log_chances: FloatArray) -> FloatArray:
        """``[A, R]`` 1 for the action taken and 0 for others, minus the chances: slopes of the scores."""
        short = -np.exp(log_chances)
        short[self.decisions.taken, self._rows] += 1.0
        return short

    def _downward(self, x: FloatArray) -> tuple[float, FloatArray]:
        density, slope = self(x)
        return -density, -slope


def around(peak: FloatArray, covariance: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Coordinates ``[M, n]`` drawn around a peak, wider than its covariance."""
    return rng.multivariate_normal(peak, _WIDER**2 * covariance, size=_DRAWN, method="cholesky")


class Informed(Protocol):
    """A density that says how much is known."""

    prior: ThetaPrior

    def information(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Fisher's information ``[n, n]``, theta's coordinates first, and the patients' scores ``[G, n]``."""
        ...


def patients_power(density: Informed, peak: FloatArray) -> float:
    """What power of the likelihood makes intervals that take patients, not decisions, as the unit: 1 or less.

    Decisions of one patient depend on each other, and the likelihood of all as if they did not is too sure. Around its
    peak the covariance of an estimate is H^-1 J H^-1, with H Fisher's information and J the sum of the outer products
    of the patients' scores, and not H^-1. The power is the reciprocal of the weights' mean ratio of the two (the
    magnitude adjustment of composite likelihoods; Pauli, Racugno and Ventura 2011).
    """
    information, scores = density.information(peak)
    groups, d = len(scores), density.prior.d
    if groups < 2:
        return 1.0
    # What the decisions say nothing of has no ratio; a share of the rest keeps the inverse finite.
    inverse = np.linalg.inv(information + 1e-6 * np.diag(np.diag(information)) + 1e-9 * np.eye(len(information)))
    robust = inverse @ (scores.T @ scores * groups / (groups - 1)) @ inverse
    ratios = np.diag(robust)[:d] / np.diag(inverse)[:d]
    return float(1.0 / max(ratios.mean(), 1.0))
