"""The tumour-growth benchmark of the counterfactual literature as a generator of batches.

A pharmacokinetic-pharmacodynamic model of lung tumours (Geng et al. 2017) whose treatments are confounded by the
tumour's size (Lim et al. 2018; Bica et al. 2020): every day a tumour may get chemotherapy and radiotherapy, each with a
probability that rises with its diameter, the faster the larger gamma, the ``confounding``. Equations and constants are
those of :class:`~cirl_gym.tumour_growth_parameters.TumourGrowthParameters`.

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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from cirl_gym.data.batch import Batch
from cirl_gym.tumour_growth_parameters import TumourGrowthParameters, sphere_diameter
from cirl_gym.tumour_growth_patients import Chances, Patients, draw_chances, draw_patients
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

FEATURES = ("volume", "patient_type_1", "patient_type_3")
ACTION_NAMES = ("none", "chemotherapy", "radiotherapy", "both")
CHEMOTHERAPY = np.array([0.0, 1.0, 0.0, 1.0])
"""``[4]`` how many chemotherapies an action gives."""
RADIOTHERAPY = np.array([0.0, 0.0, 1.0, 1.0])
"""``[4]`` how many radiotherapies an action gives."""
NORMALISER = 1150.0
"""cm^3; published errors are in percent of it."""


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
