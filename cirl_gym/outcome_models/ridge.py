"""Ridge regression in closed form, free or with what its weights come to held to ranges."""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear

from cirl_gym.types import FloatArray


def ridge(design: FloatArray, targets: FloatArray, strengths: tuple[float, ...]) -> list[tuple[FloatArray, FloatArray]]:
    """Weights ``[F, k]`` and intercepts ``[k]`` for every strength from one eigendecomposition.

    Minimises ``mean |targets - intercept - design . weights|^2 + strength |weights|^2``; strength 0 gives the solution
    of least norm. The intercept is not shrunk.
    """
    n, centre, level = len(design), design.mean(axis=0), targets.mean(axis=0)
    values, vectors = np.linalg.eigh((design - centre).T @ (design - centre) / n)
    cross = vectors.T @ ((design - centre).T @ (targets - level)) / n
    solutions = []
    for strength in strengths:
        smallest = 1e-10 * max(float(values[-1]), 1e-300)
        inverse = np.where(values > smallest, 1.0 / np.maximum(values + strength, smallest), 0.0)
        weights = vectors @ (inverse[:, None] * cross)
        solutions.append((weights, level - centre @ weights))
    return solutions


def bounded_ridge(
    design: FloatArray, target: FloatArray, strength: float, contrasts: FloatArray, ranges: FloatArray
) -> FloatArray:
    """Weights ``[F]`` of a ridge regression whose contrasts are held to ranges: a quadratic program.

    In the values of the contrasts alone it is a small bounded least squares, and the weights follow from them.

    Args:
        design: ``[n, F]`` columns of mean 0.
        target: ``[n]`` of mean 0.
        strength: as in :func:`ridge`.
        contrasts: ``[k, F]`` independent.
        ranges: ``[k, 2]`` least and largest value of each contrast; infinite: none.
    """
    curvature = design.T @ design / len(design)
    curvature[np.diag_indices_from(curvature)] += max(strength, 1e-8)
    solved: FloatArray = np.asarray(
        np.linalg.solve(curvature, np.column_stack([design.T @ target / len(design), contrasts.T])), dtype=np.float64
    )
    free, reach = solved[:, 0], solved[:, 1:]
    unheld, spread = contrasts @ free, contrasts @ reach
    root: FloatArray = np.linalg.inv(np.linalg.cholesky(spread))
    low, high = ranges.T
    # A range of one number is a narrow one, which least squares with bounds can take.
    width = 1e-9 * np.maximum(np.abs(np.where(np.isfinite(low), low, 0.0)), 1e-3)
    values = lsq_linear(root, root @ unheld, (low - width, high + width), tol=1e-12).x
    values = np.clip(values, low, high)
    weights: FloatArray = free + reach @ np.linalg.solve(spread, values - unheld)
    return weights
