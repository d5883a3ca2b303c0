"""An episode so far: what there is to show of it, in one frozen, checked object, and as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.features import FeatureMap
from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class Course:
    """What there is to show of an episode after k actions.

    Raises:
        ValueError: lengths do not fit together, or a value is not finite.
    """

    feature_map: FeatureMap
    """Names of the D observed features; the ranges of its outcomes are the least that the axes of a picture show."""
    obs: FloatArray
    """``[k+1, D]`` observations, raw units."""
    actions: tuple[int, ...]
    """The k actions, each in 0..A-1."""
    action_names: tuple[str, ...]
    """What each of the A actions means."""
    earned: float
    """Sum of the rewards so far, undiscounted."""
    limits: FloatArray | None = None
    """``[D]`` raw values at which the process ends, NaN for a feature that has none; None: no feature has one."""
    horizon: int | None = None
    """The most actions that the episode can have; None: not known."""

    def __post_init__(self) -> None:
        d = len(self.feature_map.of)
        obs = np.array(self.obs, dtype=np.float64)
        limits = np.full(d, np.nan) if self.limits is None else np.array(self.limits, dtype=np.float64)
        actions = tuple(int(action) for action in self.actions)
        if obs.shape != (len(actions) + 1, d) or not np.isfinite(obs).all():
            raise ValueError(f"Course: obs must be finite numbers [{len(actions) + 1}, {d}], got shape {obs.shape}")
        if limits.shape != (d,) or np.isinf(limits).any():
            raise ValueError(f"Course: limits must be {d} numbers (NaN: none), got {limits}")
        if not all(0 <= action < len(self.action_names) for action in actions):
            raise ValueError(f"Course: actions must lie in 0..{len(self.action_names) - 1}, got {actions}")
        if not np.isfinite(self.earned):
            raise ValueError(f"Course: the reward so far must be finite, got {self.earned}")
        for name, value in (("obs", obs), ("limits", limits), ("actions", actions)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "action_names", tuple(str(name) for name in self.action_names))


def line(course: Course) -> str:
    """The current step as one line: what was done last, every feature with its limit, and the reward so far.

    ``step  2/20  treat  tumour 27.50 (limit 50)  side_effects 1.20 (limit 15)  reward so far -0.424``
    """
    k = len(course.actions)
    step = f"step {k:2d}" if course.horizon is None else f"step {k:2d}/{course.horizon}"
    names = ("start", *course.action_names)
    did = names[course.actions[-1] + 1 if k else 0].ljust(max(map(len, names)))
    parts = [step, did]
    limits = np.full(len(course.obs[-1]), np.nan) if course.limits is None else course.limits
    for name, value, limit in zip(course.feature_map.of, course.obs[-1], limits, strict=True):
        parts.append(f"{name} {value:.2f}" + ("" if np.isnan(limit) else f" (limit {limit:g})"))
    # Adding 0.0 turns the -0.0 of a reward that rounds to nothing into 0.0.
    return "  ".join([*parts, f"reward so far {round(course.earned, 3) + 0.0:.3f}"]) + "\n"
