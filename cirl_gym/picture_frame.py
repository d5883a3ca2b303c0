"""What is the same in many pictures of an environment: which panels there are, where they lie and what they span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.course import Course
from cirl_gym.types import FloatArray

WIDTH = 640
TOP, BOTTOM, LEFT, RIGHT, BETWEEN = 30, 68, 52, 14, 50
"""Pixels: the borders around the panels, and the gap between columns of panels (their numbers stand in it)."""
STRIP, NAME, VALUE = 14, 25, 56
"""Pixels: height of the strip of actions, and of the line above a panel; width of the current value in that line."""
CHUNK = 10
"""Where no horizon is known, or it has passed, the time axis grows by so many steps at once."""


@dataclass(frozen=True)
class Frame:
    """The panels of a picture, one per feature."""

    features: tuple[str, ...]
    action_names: tuple[str, ...]
    low: tuple[float, ...]
    """``[d]`` lower end of every panel."""
    high: tuple[float, ...]
    """``[d]`` upper end of every panel."""
    limits: tuple[float | None, ...]
    """``[d]``."""
    span: int
    """Steps that the time axis shows."""

    @classmethod
    def of(cls, course: Course) -> Frame:
        """Panels that show the ranges of the feature map, the limits, and every observation so far."""
        limits = np.full(course.obs.shape[1], np.nan) if course.limits is None else course.limits
        low, high = _least(course, limits)
        # Wider by halves, so that a course which leaves the range does not change the axis at every step.
        half = (high - low) / 2
        low = low - half * np.ceil(np.maximum(low - course.obs.min(axis=0), 0) / half)
        high = high + half * np.ceil(np.maximum(course.obs.max(axis=0) - high, 0) / half)
        margin = 0.08 * (high - low)
        k = len(course.actions)
        span = course.horizon if course.horizon is not None and k <= course.horizon else max(-(-k // CHUNK), 1) * CHUNK
        return cls(
            course.feature_map.of,
            course.action_names,
            tuple((low - margin).tolist()),
            tuple((high + margin).tolist()),
            tuple(None if np.isnan(limit) else float(limit) for limit in limits),
            span,
        )

    @property
    def columns(self) -> int:
        """Panels beside each other."""
        d = len(self.features)
        return 1 if d <= 3 else 2 if d <= 6 else 3

    @property
    def rows(self) -> int:
        """Panels above each other."""
        return -(-len(self.features) // self.columns)

    @property
    def panel(self) -> tuple[int, int]:
        """Width and height of a panel in pixels."""
        width = (WIDTH - LEFT - RIGHT - (self.columns - 1) * BETWEEN) // self.columns
        tall = {1: 210, 2: 120, 3: 80} if self.columns == 1 else {2: 90}
        return width, tall.get(self.rows, 56)

    @property
    def height(self) -> int:
        """Height of the picture in pixels."""
        return TOP + self.rows * (NAME + self.panel[1]) + BOTTOM


def _least(course: Course, limits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``[D]`` what every panel shows at least: ranges and limits; of a feature without either its first value."""
    phi, first = course.feature_map, course.obs[0]
    ends = np.full((3, course.obs.shape[1]), np.nan)
    for i, name in enumerate(phi.features):
        if name in phi.of:  # the range of a computed outcome is not its column's
            ends[:2, phi.of.index(name)] = phi.low[i], phi.high[i]
    ends[2] = limits
    bare = np.isnan(ends).all(axis=0)
    size = np.maximum(0.1 * np.abs(first[bare]), 1.0)
    ends[:2, bare] = first[bare] - size, first[bare] + size
    return np.nanmin(ends, axis=0), np.nanmax(ends, axis=0)
