"""Every constant of the tumour and side-effect simulator, with unit and source."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class TumourParameters:
    """Constants of the auto-regressive simulator (paper, section 5.1; volumes and side effects in the paper's units).

    With order p, tumour volume x, side effects z and binary treatment a::

        x_t = mean(x_{t-1..t-p}) + tumour_effect * sum(a_{t-1..t-p}) + tumour_drift + eps
        z_t = mean(z_{t-1..t-p}) + side_effect * sum(a_{t-1..t-p}) + side_drift + eta

    The z line is a correction. The paper prints ``+ 0.5 sum(a) - p``: with p = 5 that falls by at least 2.5 whatever
    is done, so that treatment could never raise side effects, against the paper's own text. Exchanging the two printed
    coefficients (``+ 1.0 sum(a) - 0.5 p``) restores every property that the text claims. The printed line is
    :meth:`as_printed`.

    Raises:
        ValueError: a constant is not finite, a limit or scale is not positive, or the order or horizon is below 1.
    """

    order: int = 5
    """p, number of lags (paper: 5)."""
    tumour_effect: float = -2.5
    """Change of volume per treatment among the last p (paper: -2.5)."""
    tumour_drift: float = 2.5
    """Growth per step (paper: 0.5 p)."""
    side_effect: float = 1.0
    """Change of side effects per treatment among the last p (paper prints 0.5; see above)."""
    side_drift: float = -2.5
    """Recovery per step (paper prints -p; see above)."""
    tumour_noise: float = 0.1
    """Standard deviation of eps (paper: N(0, 0.1^2))."""
    side_noise: float = 0.1
    """Standard deviation of eta (paper: N(0, 0.1^2))."""
    tumour_start_mean: float = 30.0
    """Mean of x_0 (paper: N(30, 5))."""
    tumour_start_sd: float = 5.0
    """Standard deviation of x_0 (paper: N(30, 5), read as a standard deviation)."""
    side_start_mean: float = 2.0
    """Mean of z_0 (paper: N(2, 1))."""
    side_start_sd: float = 1.0
    """Standard deviation of z_0 (paper: N(2, 1))."""
    tumour_max: float = 50.0
    """x_max: the episode ends at this volume, and outcomes are divided by it (paper: 50)."""
    side_max: float = 15.0
    """z_max: the episode ends at these side effects, and outcomes are divided by it (paper: 15)."""
    horizon: int = 20
    """Largest number of actions (paper: 20)."""
    lags: Literal["repeat", "available"] = "repeat"
    """Before t = 0: repeat x_0 and z_0 (default), or average only over the observations that exist."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "lags":
                if value not in ("repeat", "available"):
                    raise ValueError(f"TumourParameters.lags must be 'repeat' or 'available', got {value!r}")
            elif not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"TumourParameters.{field.name} must be finite, got {value!r}")
        for name in ("order", "horizon"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"TumourParameters.{name} must be a whole number of at least 1, got {value!r}")
        for name in ("tumour_max", "side_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"TumourParameters.{name} must be positive, got {getattr(self, name)!r}")
        for name in ("tumour_noise", "side_noise", "tumour_start_sd", "side_start_sd"):
            if getattr(self, name) < 0:
                raise ValueError(f"TumourParameters.{name} must not be negative, got {getattr(self, name)!r}")
        for start, limit in (("tumour_start_mean", "tumour_max"), ("side_start_mean", "side_max")):
            # First values lie inside (0, limit): with a mean outside, hardly any of their law might.
            if not 0 < getattr(self, start) < getattr(self, limit):
                raise ValueError(
                    f"TumourParameters.{start} must lie between 0 and {limit}, got {getattr(self, start)!r}"
                )

    @classmethod
    def as_printed(cls) -> TumourParameters:
        """The z line as the paper prints it: ``+ 0.5 sum(a) - p``. Side effects are then 0 from the first step on."""
        return cls(side_effect=0.5, side_drift=-5.0)

    @cached_property
    def effect(self) -> FloatArray:
        """``[2]`` change of (x, z) per treatment among the last p."""
        return _fixed([self.tumour_effect, self.side_effect])

    @cached_property
    def drift(self) -> FloatArray:
        """``[2]`` change of (x, z) per step without treatment."""
        return _fixed([self.tumour_drift, self.side_drift])

    @cached_property
    def noise(self) -> FloatArray:
        """``[2]`` standard deviations of (eps, eta)."""
        return _fixed([self.tumour_noise, self.side_noise])

    @cached_property
    def start_mean(self) -> FloatArray:
        """``[2]`` means of (x_0, z_0)."""
        return _fixed([self.tumour_start_mean, self.side_start_mean])

    @cached_property
    def start_sd(self) -> FloatArray:
        """``[2]`` standard deviations of (x_0, z_0)."""
        return _fixed([self.tumour_start_sd, self.side_start_sd])

    @cached_property
    def start_range(self) -> FloatArray:
        """``[2, 2]`` quantiles of the normal laws of (x_0, z_0) at 0 and at their limits; only those between count."""
        scale = np.maximum(self.start_sd, 1e-300)
        return _fixed(ndtr([-self.start_mean / scale, (self.limits - self.start_mean) / scale]))

    @cached_property
    def limits(self) -> FloatArray:
        """``[2]`` (x_max, z_max)."""
        return _fixed([self.tumour_max, self.side_max])

    @cached_property
    def highest(self) -> FloatArray:
        """``[2]`` upper bound of any observation: the largest step beyond the limits, with ten deviations of noise."""
        largest_step = np.maximum(self.effect, 0.0) * self.order + self.drift
        return _fixed(self.limits + np.maximum(largest_step, 0.0) + 10.0 * self.noise)


def _fixed(values: npt.ArrayLike) -> FloatArray:
    """A read-only array: it is made once and handed to everybody."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array
