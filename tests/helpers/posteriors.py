"""Posteriors whose every number is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from irl.preferences.likelihood import NO_CONTEXTS
from irl.preferences.posterior import PosteriorResult, SamplerReport


def posterior_like(mean: npt.ArrayLike, spread: float = 0.0, kappa: float = 1.0, seed: int = 0) -> PosteriorResult:
    """Draws of two weights with a normal spread in the first; kappa is known."""
    first, second = (float(value) for value in np.asarray(mean))
    away = spread * np.random.default_rng(seed).standard_normal(4000)
    return known_posterior(np.stack([first + away, second - away], axis=1), np.full(4000, kappa))


def known_posterior(draws: npt.ArrayLike, kappas: npt.ArrayLike) -> PosteriorResult:
    """The posterior, without habits, that has these draws ``[M, d]`` of the weights and ``[M]`` of kappa."""
    w, kappa = np.array(draws, dtype=np.float64), np.array(kappas, dtype=np.float64)
    report = np.ones(w.shape[1] + 1)
    logits = np.zeros((len(w), 0, 2))
    return PosteriorResult(kappa[:, None] * w, logits, NO_CONTEXTS, SamplerReport(report, 1000 * report, 1.0))
