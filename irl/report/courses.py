"""Predicted courses as small pictures that a page's script can fill anew: lines and bands are texts like all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cirl_gym.types import FloatArray

_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 304.0, 10.0, 118.0
"""Where lines lie, in the units of a panel of 320 by 140."""


@dataclass(frozen=True)
class Panel:
    """Courses of one feature: bands and lines by action, and what followed."""

    name: str
    said: str
    """For those who do not see the picture."""
    high: str
    low: str
    """The largest and the smallest number, as texts."""
    bands: tuple[str, ...]
    lines: tuple[str, ...]
    seen: str
    """Points, as SVG has them; nothing where there is no line."""

    @classmethod
    def of(
        cls,
        name: str,
        said: str,
        lines: Sequence[FloatArray],
        bands: Sequence[FloatArray],
        seen: FloatArray,
        steps: int,
        text: Callable[[float], str],
    ) -> Panel:
        """A panel from numbers.

        Args:
            name: of the feature.
            said: the same in words.
            lines: by action ``[k]``, from the last observation on.
            bands: by action ``[2, k]``, lower and upper ends.
            seen: ``[k]`` what was observed.
            steps: ahead at most, for the width.
            text: how a number is written.
        """
        values = np.concatenate([seen, *lines, *(band.ravel() for band in bands)])
        low, high = float(values.min()), float(values.max())

        def points(course: FloatArray) -> list[str]:
            x = _LEFT + (_RIGHT - _LEFT) * np.arange(len(course)) / steps
            y = _BOTTOM - (_BOTTOM - _TOP) * (course - low) / (high - low or 1.0)
            return [f"{a:.0f},{b:.0f}" for a, b in zip(x, y, strict=True)]

        areas = (" ".join([*points(band[0]), *reversed(points(band[1]))]) for band in bands)
        drawn = (" ".join(points(line)) for line in lines)
        return cls(name, said, text(high), text(low), tuple(areas), tuple(drawn), " ".join(points(seen)))

    @property
    def slots(self) -> tuple[str, ...]:
        """What changes with what is chosen, in the order of the page."""
        return (self.said, self.high, self.low, *self.bands, *self.lines, self.seen)


@dataclass(frozen=True)
class Courses:
    """What is predicted under each action, and what followed: one panel for each feature."""

    kind: ClassVar = "courses"
    actions: tuple[str, ...]
    panels: tuple[Panel, ...]
    steps: int
    """Ahead, at most."""

    @property
    def ticks(self) -> list[tuple[int, str]]:
        """Where the steps ahead stand, and what they are called."""
        places = np.linspace(_LEFT, _RIGHT, self.steps + 1)
        return [(round(x), f"+{k}" if k else "now") for k, x in enumerate(places)]

    @property
    def slots(self) -> tuple[str, ...]:
        """What changes with what is chosen, in the order of the page."""
        return (*self.actions, *(text for panel in self.panels for text in panel.slots))
