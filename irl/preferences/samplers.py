"""Two samplers of a posterior density, by how many coordinates it has, and how far their draws have converged.

Where all patients' best plans change at the same weights the density has kinks. In few coordinates an ensemble of
walkers that needs no gradient (emcee's differential evolution; ter Braak 2006, Nelson et al. 2014) is much the faster;
in many, as with a habit of 25 actions, the logits are integrated out, and walkers jump to independent places. One
matrix product serves all walkers. Both go on until R-hat and bulk effective sizes (Vehtari et al. 2021) are good
enough, or until they have run long. Measured with 25 outcomes that play no part and two actions: the ensemble has not
converged after 145 s (R-hat 1.03), independent places have after 16 s, and say the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cirl_gym.types import FloatArray
from irl.preferences.choice import Density
from irl.preferences.marginal import Marginal

FEW, FEW_WEIGHTS = 40, 20
"""Coordinates, and weights among them, up to which an ensemble of walkers is used."""
R_HAT, EFFECTIVE = 1.01, 400.0
"""Chains have converged where no R-hat is above and no bulk effective size below."""
DRAWS = 1600
"""Of each chain, at most; they come in blocks until there are enough."""
_CHAINS, _BLOCK = 4, 100
_WALKERS, _STEPS = 64, 5
"""Walkers at least, and an ensemble's steps for each draw of a chain: a step costs less and moves less far. Measured on
a table of hospital stays: 64 walkers reach the effective size of 32 in half the steps and .7 of the time."""
_OVERDISPERSED = 1.5
_JUMPING, _JUMP, _SLIDES, _LONGER = 16, 0.75, (0.4, 1.6), 2
"""Walkers, share of their steps that are jumps, how far they slide else, in standard deviations, and how many times as
many draws they may make: a quarter of their places are new."""
_LEAPING, _LEAPS, _STEP = 512, 8, 0.25
"""Draws of the surrogate at once, steps of a leapfrog, and the length of a step where the covariance is 1."""
_SETTLED, _APART = 50, 10
"""Leapfrogs until the surrogate's draws are settled, and between two draws."""
_NEAR, _STRETCH = 0.05, 0.5
"""How near the peak draws begin, in standard deviations, and by how much the logarithm of kappa changes in a step."""


def ensemble_chains(
    density: Density, peak: FloatArray, covariance: FloatArray, rng: np.random.Generator, draws: int
) -> FloatArray:
    """Chains ``[4, draws, n]`` of coordinates, each of a quarter of the walkers, one after the other.

    The first quarter of all steps is thrown away.
    """
    import emcee

    walkers = max(_WALKERS, _CHAINS * density.n)
    begin = rng.multivariate_normal(peak, _OVERDISPERSED**2 * covariance, size=walkers, method="cholesky")
    # Now and then a jump as long as that between two walkers, from one mode to another (ter Braak 2006).
    moves = [(emcee.moves.DEMove(), 0.9), (emcee.moves.DEMove(gamma0=1.0), 0.1)]
    sampler = emcee.EnsembleSampler(walkers, density.n, density.many, moves=moves, vectorize=True)
    # emcee's own generator is seeded from ours: no global random state is touched.
    sampler.random_state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32)).get_state()
    block, most, state = _STEPS * min(_BLOCK, draws), _STEPS * draws, begin
    while True:
        state = sampler.run_mcmc(state, block, skip_initial_state_check=True)
        walked = sampler.get_chain()
        used = walked[len(walked) // 4 :].transpose(1, 0, 2)
        chains: FloatArray = used.reshape(_CHAINS, -1, density.n)
        if len(walked) >= most or converged(*convergence(density.theta(chains))):
            return chains


def independent_chains(
    density: Marginal, peak: FloatArray, covariance: FloatArray, rng: np.random.Generator, draws: int
) -> FloatArray:
    """The same, by Metropolis steps to places that do not depend on where a walker is: of theta alone.

    They are drawn from the prior times a normal likelihood (:meth:`Marginal.parabola`), which costs next to nothing.
    Most are accepted, since what is far from normal is the prior; and each is worth many small steps.
    """
    import emcee

    near = Surrogate(density, peak, covariance, rng)

    def jump(x: FloatArray, _: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
        proposed = near.draw(len(x))
        return proposed, near(x)[0] - near(proposed)[0]

    def slide(x: FloatArray, random: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
        return near.slide(x, random.standard_normal(x.shape), random.uniform(*_SLIDES))

    moves = [(emcee.moves.MHMove(jump), _JUMP), (emcee.moves.MHMove(slide), 1 - _JUMP)]
    sampler = emcee.EnsembleSampler(_JUMPING, density.n, density.many, moves=moves, vectorize=True)
    sampler.random_state = np.random.RandomState(rng.integers(2**32, dtype=np.uint32)).get_state()
    # A walker that began far out, where jumps are next to never drawn, would long not leave.
    state = near.draw(_JUMPING)
    each = _JUMPING // _CHAINS
    block, most = max(min(_BLOCK, draws) // each, 1), max(_LONGER * draws // each, 1)
    state = sampler.run_mcmc(state, block, skip_initial_state_check=True)
    sampler.reset()
    while True:
        state = sampler.run_mcmc(state, block, skip_initial_state_check=True)
        walked = sampler.get_chain()
        chains: FloatArray = walked.transpose(1, 0, 2).reshape(_CHAINS, -1, density.n)
        if len(walked) >= most or converged(*convergence(density.theta(chains))):
            return chains


class Surrogate:
    """The prior of theta times a normal likelihood, sampled by Hamiltonian dynamics (Neal 2011), all draws at once.

    Args:
        density: whose likelihood it is near the peak.
        peak: ``[n]`` coordinates.
        covariance: ``[n, n]`` in which a leap has about the same length in every direction.
        rng: everything that is drawn.
    """

    def __init__(self, density: Marginal, peak: FloatArray, covariance: FloatArray, rng: np.random.Generator) -> None:
        self.prior, self.parabola, self.rng = density.prior, density.parabola(peak), rng
        self.peak, self.root = peak, np.asarray(np.linalg.cholesky(covariance))
        # From near the peak: one that began where the likelihood is steep would not leave.
        self._z: FloatArray = _NEAR * rng.standard_normal((_LEAPING, len(peak)))
        self._left = np.empty((0, len(peak)))
        # Where outcomes play no part the peak is a spike, out of which long steps do not lead.
        self._leap(np.geomspace(_STEP / 20, _STEP, _SETTLED))

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log densities ``[M]`` at coordinates ``[M, n]``, but for a constant, and gradients ``[M, n]``."""
        prior, outward = self.prior(x)
        likelihood, slope = self.parabola(self.prior.theta(x))
        return prior + likelihood, outward + slope * self.prior.step(x)

    def draw(self, many: int) -> FloatArray:
        """Coordinates ``[many, n]``, none of them twice."""
        while len(self._left) < many:
            self._leap(np.full(_APART, _STEP))
            fresh = self.rng.permutation(self.peak + self._z @ self.root.T)
            self._left = np.concatenate([self._left, fresh])
        drawn, self._left = self._left[:many], self._left[many:]
        return drawn

    def slide(self, x: FloatArray, speed: FloatArray, far: float) -> tuple[FloatArray, FloatArray]:
        """Where walkers at coordinates ``[M, n]`` come to by Hamiltonian dynamics, and by how much their motion slows.

        Args:
            x: where they are.
            speed: ``[M, n]`` where the covariance is a unit matrix.
            far: how far they go if nothing holds them, in standard deviations.
        """
        z: FloatArray = np.linalg.solve(self.root, (x - self.peak).T).T.astype(np.float64)
        z, after, _ = self._flow(z, speed, far / _LEAPS)
        return self.peak + z @ self.root.T, ((speed**2).sum(axis=1) - (after**2).sum(axis=1)) / 2

    def _leap(self, sizes: FloatArray) -> None:
        """Leapfrogs of all draws, by steps of about these sizes, each accepted by how well energy was kept."""
        for size in sizes:
            density = self._stretch()
            speed = self.rng.standard_normal(self._z.shape)
            to, after, reached = self._flow(self._z, speed, size * self.rng.uniform(0.7, 1.3))
            lost = density - (speed**2).sum(axis=1) / 2 - reached + (after**2).sum(axis=1) / 2
            kept = -np.log(self.rng.random(len(to))) > lost
            self._z = np.where(kept[:, None], to, self._z)

    def _stretch(self) -> FloatArray:
        """Densities of all draws after a step by which kappa alone changes: along it the prior is far from normal."""
        x, free = self.peak + self._z @ self.root.T, self.prior.free
        by = _STRETCH * self.rng.standard_normal((len(x), 1))
        moved: FloatArray = np.where(free, x * np.exp(by), x + by)
        density, reached = self(x)[0], self(moved)[0]
        kept = np.log(self.rng.random(len(x))) < reached - density + by[:, 0] * free.sum()
        x = np.where(kept[:, None], moved, x)
        self._z = np.asarray(np.linalg.solve(self.root, (x - self.peak).T).T, dtype=np.float64)
        return np.asarray(np.where(kept, reached, density))

    def _flow(self, z: FloatArray, speed: FloatArray, size: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Places and speeds ``[M, n]`` after a leapfrog, and densities ``[M]`` there."""
        _, uphill = self._at(z)
        for _ in range(_LEAPS):
            speed = speed + size / 2 * uphill
            z = z + size * speed
            density, uphill = self._at(z)
            speed = speed + size / 2 * uphill
        return z, speed, density

    def _at(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        density, slope = self(self.peak + z @ self.root.T)
        return density, slope @ self.root


def converged(r_hat: FloatArray, effective: FloatArray) -> bool:
    """Whether every R-hat is at most 1.01 and every effective size at least 400."""
    return bool(r_hat.max() <= R_HAT and effective.min() >= EFFECTIVE)


def convergence(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """R-hat and bulk effective size ``[d + 1]`` of the weights and kappa, of chains of theta ``[chains, draws, d]``.

    Raises:
        ValueError: a draw is not finite, or all weights of one are 0.
    """
    from arviz_stats import base

    stats: Any = vars(base)["array_stats"]

    kappa = np.abs(theta).sum(axis=-1, keepdims=True)
    if not (np.isfinite(kappa) & (kappa > 0)).all():
        raise ValueError("the sampler has lost its way: draws of the weights are not finite, or all 0")
    shown = np.concatenate([theta / kappa, kappa], axis=-1)
    r_hat, effective = np.ones(shown.shape[-1]), np.full(shown.shape[-1], float(shown[..., 0].size))
    for i in range(shown.shape[-1]):
        if np.ptp(shown[..., i]) > 1e-9:  # the weight of a single outcome of known sign cannot vary
            with np.errstate(invalid="ignore", divide="ignore"):  # of a few draws that hardly moved
                r_hat[i] = np.nan_to_num(float(stats.rhat(shown[..., i])), nan=np.inf)
                effective[i] = np.nan_to_num(float(stats.ess(shown[..., i])))
    if np.ptp(kappa) == 0:  # chains that never moved
        return np.full_like(r_hat, np.inf), np.zeros_like(effective)
    return r_hat, effective
