"""Two samplers of a posterior density, by how many coordinates it has, and how far their draws have converged.

Where all patients' best plans change at the same weights the density has kinks. In few coordinates an ensemble of
walkers that needs no gradient (emcee's differential evolution; ter Braak 2006, Nelson et al. 2014) is much
the faster, since one matrix product serves all walkers; in many, as with a habit of 25 actions, only the no-U-turn
sampler moves (mici; Hoffman and Gelman 2014, in the multinomial form of Betancourt 2017). Both go on until R-hat and
bulk effective sizes (Vehtari et al. 2021) are good enough, or until they have run long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cirl_gym.types import FloatArray
from irl.preferences.choice import Density

FEW = 40
"""Coordinates up to which an ensemble of walkers is used."""
R_HAT, EFFECTIVE = 1.01, 400.0
"""Chains have converged where no R-hat is above and no bulk effective size below."""
DRAWS = 1600
"""Of each chain, at most; they come in blocks until there are enough."""
_CHAINS, _WARM_UP, _BLOCK = 4, 100, 100
_WALKERS, _STEPS = 64, 5
"""Walkers at least, and an ensemble's steps for each draw of a chain: a step costs less and moves less far. Measured on
a table of hospital stays: 64 walkers reach the effective size of 32 in half the steps and .7 of the time."""
_OVERDISPERSED = 1.5
_DEEPEST = 8


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


def gradient_chains(
    density: Density, peak: FloatArray, covariance: FloatArray, rng: np.random.Generator, draws: int
) -> FloatArray:
    """Chains ``[4, draws, n]`` of coordinates, from overdispersed beginnings where the covariance is a unit matrix."""
    import mici

    root = np.asarray(np.linalg.cholesky(covariance))
    seen: dict[bytes, tuple[float, FloatArray]] = {}

    def both(z: FloatArray) -> tuple[float, FloatArray]:
        """Density and slope in whitened coordinates; the sampler asks for them apart, at one place after the other."""
        key = z.tobytes()
        if key not in seen:
            seen.clear()
            value, slope = density(peak + root @ z)
            seen[key] = -value, -(root.T @ slope)
        return seen[key]

    system = mici.systems.EuclideanMetricSystem(lambda z: both(z)[0], grad_neg_log_dens=lambda z: both(z)[1])
    integrator = mici.integrators.LeapfrogIntegrator(system)
    sampler = mici.samplers.DynamicMultinomialHMC(system, integrator, rng, max_tree_depth=_DEEPEST)
    block = min(_BLOCK, draws)
    how: dict[str, Any] = {"n_main_iter": block, "display_progress": False, "n_worker": 1}
    begin = [_OVERDISPERSED * rng.standard_normal(density.n) for _ in range(_CHAINS)]
    step = mici.adapters.DualAveragingStepSizeAdapter(0.8)
    done = sampler.sample_chains(_WARM_UP, init_states=begin, adapters=[step], **how)
    found = [np.stack(done.traces["pos"])]
    while True:
        chains: FloatArray = peak + np.concatenate(found, axis=1) @ root.T
        if len(found) * block >= draws or converged(*convergence(density.theta(chains))):
            return chains
        done = sampler.sample_chains(0, init_states=done.final_states, adapters=[], **how)
        found.append(np.stack(done.traces["pos"]))


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
            r_hat[i] = float(stats.rhat(shown[..., i]))
            effective[i] = float(stats.ess(shown[..., i]))
    if np.ptp(kappa) == 0:  # chains that never moved
        return np.full_like(r_hat, np.inf), np.zeros_like(effective)
    return r_hat, effective
