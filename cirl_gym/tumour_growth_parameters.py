"""Every constant of the tumour-growth benchmark of the counterfactual literature, with unit and source."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.types import FloatArray

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
