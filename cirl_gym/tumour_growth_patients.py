"""Who the patients of the tumour-growth benchmark are, and the random numbers of their days."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from cirl_gym.tumour_growth_parameters import TumourGrowthParameters, sphere_volume
from cirl_gym.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Patients:
    """What n patients are like; nothing of it but type and first volume is ever observed."""

    volume: FloatArray
    """``[n]`` cm^3 on day 0."""
    growth: FloatArray
    """``[n]`` rho, per day."""
    radio: FloatArray
    """``[n]`` alpha, per Gy."""
    chemo: FloatArray
    """``[n]`` beta_c, per day and mg/m^3."""
    patient_type: IntArray
    """``[n]`` 1, 2 or 3."""
    stage: IntArray
    """``[n]`` which of the parameters' stages."""


@dataclass(frozen=True)
class Chances:
    """All random numbers of n patients over T days; a patient's are the same whatever happens to anyone."""

    growth: FloatArray
    """``[n, T]`` standard normal."""
    treatment: FloatArray
    """``[n, T, 2]`` uniform on [0, 1): chemotherapy, radiotherapy."""
    recovery: FloatArray
    """``[n, T]`` uniform on [0, 1)."""


def draw_patients(parameters: TumourGrowthParameters, n: int, rng: np.random.Generator) -> Patients:
    """Draw n patients: stage, first diameter, answers to treatment (positive), type."""
    stages = parameters.stages
    cases = np.array([stage.cases for stage in stages], dtype=np.float64)
    stage = rng.choice(len(stages), size=n, p=cases / cases.sum())
    mean, sd, smallest, largest = (
        np.array([getattr(s, name) for s in stages], dtype=np.float64)[stage]
        for name in ("log_mean", "log_sd", "smallest", "largest")
    )
    low, high = ndtr((np.log(smallest) - mean) / sd), ndtr((np.log(largest) - mean) / sd)
    diameter = np.exp(mean + sd * ndtri(low + (high - low) * rng.random(n)))
    diameter = np.clip(diameter, smallest, largest)  # rounding may step over a bound

    shared, own = parameters.correlation, math.sqrt(1.0 - parameters.correlation**2)
    radio, growth = _draw_positive(
        np.array([parameters.radio_mean, parameters.growth_mean]),
        np.array([[parameters.radio_sd, 0.0], [shared * parameters.growth_sd, own * parameters.growth_sd]]),
        n,
        rng,
    ).T
    chemo = _draw_positive(np.array([parameters.chemo_mean]), np.array([[parameters.chemo_sd]]), n, rng)[:, 0]
    patient_type = rng.integers(1, 4, size=n)
    radio = radio + np.where(patient_type == 1, parameters.type_effect * parameters.radio_mean, 0.0)
    chemo = chemo + np.where(patient_type == 3, parameters.type_effect * parameters.chemo_mean, 0.0)
    return Patients(sphere_volume(diameter), growth, radio, chemo, patient_type, stage)


def draw_chances(n: int, days: int, rng: np.random.Generator) -> Chances:
    """Random numbers of n patients over some days."""
    return Chances(rng.standard_normal((n, days)), rng.random((n, days, 2)), rng.random((n, days)))


def _draw_positive(mean: FloatArray, factor: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """``[n, k]`` normal rows of covariance factor factor^T, each drawn again until all its numbers are positive."""
    rows = np.zeros((n, len(mean)))
    bad: BoolArray = np.ones(n, dtype=np.bool_)
    while bad.any():
        normals = rng.standard_normal((int(bad.sum()), len(mean)))
        rows[bad] = mean + (normals[:, None, :] * factor).sum(axis=2)
        bad = rows.min(axis=1) <= 0
    return rows
