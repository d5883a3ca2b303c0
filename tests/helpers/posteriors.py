"""Posteriors whose every number is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray
from irl.preferences.posterior import PosteriorResult


def posterior_like(mean: npt.ArrayLike, spread: float = 0.0, kappa: float = 1.0, seed: int = 0) -> PosteriorResult:
    """Draws of two weights with a normal spread in the first; kappa is known."""
    first, second = (float(value) for value in np.asarray(mean))
    away = spread * np.random.default_rng(seed).standard_normal(4000)
    draws = np.stack([first + away, second - away], axis=1)
    w = np.array([first, second])
    return known_posterior(draws, np.full(4000, kappa), w, w - spread, w + spread)


def known_posterior(
    draws: npt.ArrayLike,
    kappas: npt.ArrayLike,
    mean: FloatArray | None = None,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
) -> PosteriorResult:
    """The posterior that has these draws ``[M, d]`` and ``[M]``; its mean is theirs unless another is given."""
    w, kappa = np.array(draws, dtype=np.float64), np.array(kappas, dtype=np.float64)
    average = w.mean(axis=0)
    mean = average / np.abs(average).sum() if mean is None else mean
    return PosteriorResult(
        mean=mean,
        median=mean,
        low=mean if low is None else low,
        high=mean if high is None else high,
        concentration=1.0,
        kappa_mean=float(kappa.mean()),
        kappa_low=float(kappa.min()),
        kappa_high=float(kappa.max()),
        draws=w,
        kappa_draws=kappa,
        best=mean,
        best_kappa=float(kappa.mean()),
        best_log_likelihood=-1.0,
    )
