"""The tumour-growth benchmark of the counterfactual literature as a generator of batches.

A pharmacokinetic-pharmacodynamic model of lung tumours (Geng et al. 2017) whose treatments are confounded by the
tumour's size (Lim et al. 2018; Bica et al. 2020): every day a tumour may get chemotherapy and radiotherapy, each with a
probability that rises with its diameter, the faster the larger gamma, the ``confounding``. Equations and constants are
those of :class:`TumourGrowthParameters`.

An observation is the volume (cm^3) and two static 0/1 columns for the patient's type, of which there are three with
equal chance: type 1 answers better to radiotherapy, type 3 to chemotherapy, type 2 (both columns 0) to neither. An
episode is terminated on death (its last volume is the threshold) or recovery (its last volume is 0), and truncated at
the horizon.

Where the papers and their public code differ, or are silent, this is what is done here:

- Decisions begin on day 0, as in public test sets. Public training sets begin on day 1, so that their test sets ask
  for effects of a first day's treatment that no training patient got: ``first_decision=1`` gives such training sets.
- The policy sees the mean diameter of the last 15 days, today's among them. Public training sets leave out today's;
  public test sets have 16 days with today's, and in several versions read them from a row of another patient. Here
  patients of every set are treated by one policy that looks at their own tumours.
- There are up to 60 decisions, hence 61 volumes; public code keeps 60 volumes. ``horizon=59`` gives those.
- Volumes stop at death and recovery, for all four actions alike, and recovery is volume 0. Public test sets clip the
  factual volume only, so that the other three may be negative or beyond the threshold: ``bounded=False``.
- What patients of type 1 and 3 have more is a tenth of the mean before truncation (as in public code; the mean that
  truncation leaves is about four times that for alpha), and type 1's beta rises with its alpha.
- The error is the root of one mean over all live steps and actions. The code of Bica et al. averages per day, then over
  days with equal weight, on rows that repeat the factual past before every outcome.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr, ndtri

from cirl_gym.data.batch import Batch
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

FEATURES = ("volume", "patient_type_1", "patient_type_3")
ACTION_NAMES = ("none", "chemotherapy", "radiotherapy", "both")
CHEMOTHERAPY = np.array([0.0, 1.0, 0.0, 1.0])
"""``[4]`` how many chemotherapies an action gives."""
RADIOTHERAPY = np.array([0.0, 0.0, 1.0, 1.0])
"""``[4]`` how many radiotherapies an action gives."""
NORMALISER = 1150.0
"""cm^3; published errors are in percent of it."""
WHOLE = {"policy_window": 1, "horizon": 1, "first_decision": 0}
"""Fields that are whole numbers, and the least each may be."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Stage:
    """A stage of lung cancer: how common it is and how large its tumours are when they are found.

    Raises:
        ValueError: a number is out of its range; the message names stage and field.
    """

    name: str
    """Name of the stage."""
    cases: float
    """Share of the patients, in any unit: the published table counts cases."""
    log_mean: float
    """Mean of the diameter's logarithm (diameter in cm) before truncation."""
    log_sd: float
    """Standard deviation of the diameter's logarithm before truncation."""
    smallest: float
    """cm; no first diameter is smaller."""
    largest: float
    """cm; no first diameter is larger."""

    def __post_init__(self) -> None:
        for name in ("cases", "log_mean", "log_sd", "smallest", "largest"):
            value = getattr(self, name)
            if not _is_number(value) or (name != "log_mean" and value <= 0):
                raise ValueError(f"Stage {self.name!r}: {name} must be a finite number above 0, got {value!r}")
        if self.smallest >= self.largest:
            raise ValueError(f"Stage {self.name!r}: smallest {self.smallest} must be below largest {self.largest}")


PUBLISHED_STAGES = (
    Stage("I", 1432, 1.72, 4.70, 0.3, 5.0),
    Stage("II", 128, 1.96, 1.63, 0.3, 13.0),
    Stage("IIIA", 1306, 1.91, 9.40, 0.3, 13.0),
    Stage("IIIB", 7248, 2.76, 6.87, 0.3, 13.0),
    Stage("IV", 12840, 3.86, 8.82, 0.3, 13.0),
)
"""Diameters by stage (Geng et al. 2017) and cases by stage (Lim et al. 2018, after Detterbeck and Gibson 2008)."""


@dataclass(frozen=True)
class TumourGrowthParameters:
    """Constants of the pharmacokinetic-pharmacodynamic model of lung tumours under two treatments.

    With volume V in cm^3, drug concentration C, radiation dose d and one step a day::

        V_{t+1} = V_t (1 + rho log(K / V_t) - beta_c C_t - (alpha d_t + beta d_t^2) + e_t)
        C_t = C_{t-1} 2^(-1 / half_life) + chemo_dose if chemotherapy is given on day t

    The model and the patients' laws are those of Geng et al. 2017 (doi 10.1038/s41598-017-13646-z), made a benchmark of
    confounded treatments by Lim et al. 2018 (RMSN) and Bica et al. 2020 (CRN).

    Raises:
        ValueError: a constant is not a finite number or out of its range; the message names it.
    """

    growth_mean: float = 7e-5
    """Per day; mean of rho before truncation (Geng et al.)."""
    growth_sd: float = 7.23e-3
    """Per day; standard deviation of rho before truncation (Geng et al.)."""
    radio_mean: float = 0.0398
    """Per Gy; mean of alpha before truncation (Geng et al.)."""
    radio_sd: float = 0.168
    """Per Gy; standard deviation of alpha before truncation (Geng et al.)."""
    correlation: float = 0.87
    """Of alpha and rho before truncation to positive values (Geng et al.)."""
    alpha_beta_ratio: float = 10.0
    """Gy; alpha / beta, so that beta = alpha / 10 per Gy^2 (Geng et al.)."""
    chemo_mean: float = 0.028
    """Per day and mg/m^3; mean of beta_c (Geng et al.)."""
    chemo_sd: float = 0.0007
    """Per day and mg/m^3; standard deviation of beta_c, which is positive (Geng et al.)."""
    type_effect: float = 0.1
    """Type 1 has more alpha, by this share of its mean, and type 3 more beta_c, by this share of its (Lim et al.)."""
    capacity_diameter: float = 30.0
    """cm; a sphere of it has the volume K that no tumour outgrows (Geng et al.)."""
    death_diameter: float = 13.0
    """cm; the patient dies when the tumour is larger, and the policy's scale (Geng et al., Lim et al.)."""
    cell_density: float = 5.8e8
    """Cells per cm^3; the patient recovers with probability exp(-cells), once a day (Geng et al.)."""
    noise: float = 0.01
    """Standard deviation of e_t, a share of the volume per day (Lim et al.)."""
    radio_dose: float = 2.0
    """Gy of one radiotherapy (Lim et al.)."""
    chemo_dose: float = 5.0
    """mg/m^3 by which one chemotherapy raises the drug's concentration (Lim et al.)."""
    half_life: float = 1.0
    """Days until half of the drug is gone (Lim et al.)."""
    policy_window: int = 15
    """Days whose mean diameter decides on treatment (Lim et al.)."""
    horizon: int = 60
    """Largest number of days with a decision (Lim et al.: 60; public code keeps 60 volumes, so 59 decisions)."""
    first_decision: int = 0
    """Day of the first decision, before which nobody is treated (public code: 1 for training, 0 for testing)."""
    stages: tuple[Stage, ...] = PUBLISHED_STAGES
    """Stages at the start."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        if not self.stages or not all(isinstance(stage, Stage) for stage in self.stages):
            raise ValueError(f"TumourGrowthParameters.stages must be one Stage or more, got {self.stages!r}")
        for field in fields(self):
            if field.name != "stages":
                self._check(field.name)
        if self.capacity_diameter <= self.death_diameter:
            raise ValueError(
                f"TumourGrowthParameters.capacity_diameter must exceed death_diameter {self.death_diameter!r}, "
                f"got {self.capacity_diameter!r}"
            )
        for stage in self.stages:
            if stage.largest > self.death_diameter:
                raise ValueError(
                    f"TumourGrowthParameters.stages: patients of stage {stage.name!r} could start beyond "
                    f"death_diameter {self.death_diameter!r}: their largest diameter is {stage.largest!r}"
                )

    def _check(self, name: str) -> None:
        value = getattr(self, name)
        if name in WHOLE:
            least = WHOLE[name]
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(
                    f"TumourGrowthParameters.{name} must be a whole number of at least {least}, got {value!r}"
                )
            return
        if not _is_number(value):
            raise ValueError(f"TumourGrowthParameters.{name} must be a finite number, got {value!r}")
        if name == "correlation":
            # Beyond -.99 next to no pair would have two positive numbers, and redrawing would not end.
            if not -0.99 <= value <= 0.99:
                raise ValueError(f"TumourGrowthParameters.correlation must lie within -.99..99, got {value!r}")
        elif name in ("growth_sd", "radio_sd", "chemo_sd", "noise", "type_effect", "radio_dose", "chemo_dose"):
            if value < 0:
                raise ValueError(f"TumourGrowthParameters.{name} must not be negative, got {value!r}")
        elif value <= 0:
            raise ValueError(f"TumourGrowthParameters.{name} must be positive, got {value!r}")

    @property
    def capacity(self) -> float:
        """K in cm^3."""
        return float(sphere_volume(self.capacity_diameter))

    @property
    def death_volume(self) -> float:
        """cm^3 (published: 1150); the patient dies when the tumour is larger."""
        return float(sphere_volume(self.death_diameter))


def sphere_volume(diameter: npt.ArrayLike) -> FloatArray:
    """Volumes in cm^3 ``[..]`` of spheres with diameters ``[..]`` in cm."""
    radius = np.asarray(diameter, dtype=np.float64) / 2.0
    volume: FloatArray = (4.0 / 3.0 * math.pi) * radius * radius * radius
    return volume


def sphere_diameter(volume: npt.ArrayLike) -> FloatArray:
    """Diameters in cm ``[..]`` of spheres with volumes ``[..]`` in cm^3."""
    diameter: FloatArray = 2.0 * np.cbrt(np.asarray(volume, dtype=np.float64) / (4.0 / 3.0 * math.pi))
    return diameter


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


@dataclass(frozen=True)
class CounterfactualOutcomes:
    """Patients as they were treated, and what every other treatment would have done the next day."""

    batch: Batch
    """The factual episodes."""
    outcomes: Float32Array
    """``[N, T, 4]`` cm^3 the day after each action, with the noise of that day; 0 on padding. The column of the action
    that was taken is the volume that the batch shows next."""


def treatment_probability(
    parameters: TumourGrowthParameters, mean_diameter: npt.ArrayLike, confounding: float
) -> FloatArray:
    """``[..]`` chance of each of the two treatments, drawn independently: sigmoid(gamma / 13 (diameter - 6.5)).

    Args:
        parameters: 13 cm is their ``death_diameter``.
        mean_diameter: ``[..]`` cm, mean of the last days.
        confounding: gamma; 0: one half, whatever the tumour.
    """
    scale = parameters.death_diameter
    chance: FloatArray = expit(confounding / scale * (np.asarray(mean_diameter, dtype=np.float64) - scale / 2.0))
    return chance


def drug_concentration(parameters: TumourGrowthParameters, drug: FloatArray) -> FloatArray:
    """``[n, 4]`` mg/m^3 today under every action, when it was ``drug [n]`` yesterday."""
    left = 0.5 ** (1.0 / parameters.half_life)
    concentration: FloatArray = (left * drug)[:, None] + parameters.chemo_dose * CHEMOTHERAPY
    return concentration


def next_volumes(
    parameters: TumourGrowthParameters, patients: Patients, volume: FloatArray, drug: FloatArray, noise: FloatArray
) -> FloatArray:
    """``[n, 4]`` cm^3 tomorrow under every action, before death and recovery; below 0 where the dose kills all cells.

    Args:
        parameters: constants.
        patients: n of them.
        volume: ``[n]`` cm^3 today, positive.
        drug: ``[n, 4]`` mg/m^3 today under every action.
        noise: ``[n]`` e_t, the same for all actions.
    """
    dose = parameters.radio_dose * RADIOTHERAPY
    killed_by_ray = patients.radio[:, None] * (dose + dose**2 / parameters.alpha_beta_ratio)
    grown = 1.0 + patients.growth * np.log(parameters.capacity / volume) + noise
    volumes: FloatArray = volume[:, None] * (grown[:, None] - patients.chemo[:, None] * drug - killed_by_ray)
    return volumes


def simulate(
    parameters: TumourGrowthParameters, n_patients: int, confounding: float, rng: np.random.Generator
) -> Batch:
    """Patients under the confounded policy, for training and validation.

    Args:
        parameters: constants; :class:`TumourGrowthParameters` () is the published benchmark.
        n_patients: N, at least 1 (published: 10,000 for training, 1,000 for validation).
        confounding: gamma, at least 0 (published: 0 to 10).
        rng: the same state gives the same bytes; with it every gamma meets the same patients and the same noise.

    Returns:
        N episodes of volume (cm^3) and type, with the actions of :data:`ACTION_NAMES`.

    Raises:
        ValueError: a number is out of its range.
    """
    return simulate_counterfactuals(parameters, n_patients, confounding, rng).batch


def simulate_counterfactuals(
    parameters: TumourGrowthParameters,
    n_patients: int,
    confounding: float,
    rng: np.random.Generator,
    *,
    bounded: bool = True,
) -> CounterfactualOutcomes:
    """The patients of :func:`simulate` along with the next day's volume under all four actions (published: 1,000).

    Args:
        parameters: constants.
        n_patients: N, at least 1.
        confounding: gamma, at least 0.
        rng: as in :func:`simulate`, which shows the same patients for the same state.
        bounded: False leaves the outcomes of actions that were not taken as the law has them, beyond death and
            recovery (public code).

    Raises:
        ValueError: a number is out of its range.
    """
    if isinstance(n_patients, bool) or not isinstance(n_patients, int | np.integer) or n_patients < 1:
        raise ValueError(f"n_patients must be a whole number of at least 1, got {n_patients!r}")
    if not (isinstance(confounding, int | float | np.number) and math.isfinite(confounding) and confounding >= 0):
        raise ValueError(f"confounding must be a finite number of at least 0, got {confounding!r}")
    patients = draw_patients(parameters, n_patients, rng)
    chances = draw_chances(n_patients, parameters.horizon, rng)
    return follow_patients(parameters, patients, chances, confounding, bounded=bounded)


def follow_patients(
    parameters: TumourGrowthParameters,
    patients: Patients,
    chances: Chances,
    confounding: float,
    *,
    bounded: bool = True,
) -> CounterfactualOutcomes:
    """What becomes of given patients with given random numbers; a patient's course does not depend on the others."""
    n, days = chances.growth.shape
    volume, drug, rows = patients.volume.copy(), np.zeros(n), np.arange(n)
    alive, lengths = np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
    volumes, outcomes = np.zeros((n, days + 1)), np.zeros((n, days, 4))
    actions = np.zeros((n, days), dtype=np.int64)
    volumes[:, 0] = volume
    recent: deque[FloatArray] = deque(maxlen=parameters.policy_window)
    for day in range(days):
        recent.append(sphere_diameter(volume))
        # Summed day by day, so that a patient's mean is the same to the last bit alone and among others.
        chance = treatment_probability(parameters, sum(recent) / len(recent), confounding)
        given = (chances.treatment[:, day] < chance[:, None]) & (day >= parameters.first_decision)
        action = given[:, 0] + 2 * given[:, 1]
        every_drug = drug_concentration(parameters, drug)
        free = next_volumes(parameters, patients, volume, every_drug, parameters.noise * chances.growth[:, day])
        every, ended = _with_ends(parameters, free, chances.recovery[:, day])
        following = every[rows, action]
        if not bounded:
            every = free
            every[rows, action] = following
        outcomes[alive, day] = every[alive]
        volumes[alive, day + 1] = following[alive]
        actions[:, day] = action
        lengths += alive
        alive &= ~ended[rows, action]
        # Those who ended go on unseen, from a volume whose logarithm exists.
        volume = np.where(alive, following, volume)
        drug = every_drug[rows, action]
    return CounterfactualOutcomes(_as_batch(patients, volumes, actions, lengths, ~alive), outcomes.astype(np.float32))


def percent_error(predicted: npt.ArrayLike, outcomes: npt.ArrayLike, mask: npt.ArrayLike) -> float:
    """Root of the mean squared error in volume over all live steps and all four actions, in percent of 1150 cm^3.

    Args:
        predicted: ``[N, T, 4]`` cm^3; of an outcome model, ``model.predict(model.encode(batch)[:, :-1])[..., 0]``.
        outcomes: ``[N, T, 4]`` cm^3, of :class:`CounterfactualOutcomes`.
        mask: ``[N, T]`` bool, of the batch.

    Raises:
        ValueError: shapes do not fit, nothing is live, or a live number is not finite.
    """
    guess, truth = np.asarray(predicted, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    live = np.asarray(mask)
    if truth.ndim != 3 or guess.shape != truth.shape or live.shape != truth.shape[:2] or live.dtype != np.bool_:
        raise ValueError(
            "percent_error: predicted and outcomes must be [N, T, A] and mask bool [N, T], "
            f"got {guess.shape}, {truth.shape} and {live.dtype} {live.shape}"
        )
    if not live.any():
        raise ValueError("percent_error: no step is live")
    for name, volumes in (("predicted", guess), ("outcomes", truth)):
        if not np.isfinite(volumes[live]).all():
            raise ValueError(f"percent_error: {name} holds numbers that are not finite")
    return float(100.0 / NORMALISER * np.sqrt(np.mean((guess[live] - truth[live]) ** 2)))


def _with_ends(
    parameters: TumourGrowthParameters, free: FloatArray, recovery: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Volumes ``[n, 4]`` with death at the threshold and recovery at 0, and whether either came."""
    dead = free > parameters.death_volume
    # No cell is left of a volume below 0: recovery is certain.
    recovered = recovery[:, None] < np.exp(-parameters.cell_density * np.maximum(free, 0.0))
    volumes = np.where(dead, parameters.death_volume, np.where(recovered, 0.0, free))
    return volumes, dead | recovered


def _as_batch(
    patients: Patients, volumes: FloatArray, actions: IntArray, lengths: IntArray, terminated: BoolArray
) -> Batch:
    n = len(lengths)
    types = np.stack([patients.patient_type == 1, patients.patient_type == 3], axis=1)
    shown = np.broadcast_to(types[:, None], (n, volumes.shape[1], 2))
    return Batch(
        obs=np.concatenate([volumes[..., None], shown], axis=2),
        actions=actions,
        lengths=lengths,
        terminated=terminated,
        truncated=~terminated,
        features=FEATURES,
        action_names=ACTION_NAMES,
        ids=tuple(str(i) for i in range(n)),
    )
