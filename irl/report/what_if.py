"""What the report's last picture shows: one history, and what would be expected to follow under each action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class WhatIf:
    """One history, and the outcomes that the model predicts if one action is taken at every step from now on.

    Raises:
        ValueError: shapes or names do not agree, or a number is not finite.
    """

    title: str
    features: tuple[str, ...]
    observed: FloatArray
    """``[t + 1, d]`` observations so far, raw units."""
    actions: tuple[str, ...]
    """``[t]`` names of the actions so far."""
    futures: Mapping[str, FloatArray]
    """By action's name ``[steps, d]`` predicted observations, raw units; shorter where the model expects an end."""
    units: tuple[str, ...] | None = None
    """``[d]`` units; None where they are not known."""

    def __post_init__(self) -> None:
        d = len(self.features)
        object.__setattr__(self, "observed", _course(self.observed, d, "observed"))
        futures = {name: _course(course, d, f"futures[{name!r}]") for name, course in self.futures.items()}
        object.__setattr__(self, "futures", futures)
        if not futures:
            raise ValueError("WhatIf.futures must have one course for each action")
        if len(self.actions) != len(self.observed) - 1:
            raise ValueError(f"WhatIf: {len(self.observed)} observations need one action less, got {len(self.actions)}")
        if self.units is not None and len(self.units) != d:
            raise ValueError(f"WhatIf.units must be {d} texts, got {len(self.units)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """``[d]`` names with units."""
        units = self.units or ("",) * len(self.features)
        return tuple(f"{name} [{unit}]" if unit else name for name, unit in zip(self.features, units, strict=True))


def _course(values: FloatArray, d: int, name: str) -> FloatArray:
    course = np.array(values, dtype=np.float64)
    if course.ndim != 2 or course.shape[1] != d or len(course) == 0 or not np.isfinite(course).all():
        raise ValueError(f"WhatIf.{name} must be [steps, {d}] finite numbers with steps >= 1, got shape {course.shape}")
    course.setflags(write=False)
    return course
