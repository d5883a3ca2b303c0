"""Simulated experts who have habits: what was found of both, and what a model without habits says of their decisions.

Their habit is two logits (:func:`agents.expert.simulated_habit`): r of repeating the action before, and t of treating.
Of a fitted habit b ``[3, 2]`` (first decision, after 0, after 1; 0, 1) only b[c, 1] - b[c, 0] means something: it is
t - r after 0 and t + r after 1.
"""

from __future__ import annotations

import numpy as np

from cirl_gym.types import FloatArray
from irl.result.codec import Interval, Numbers, Record, require

TAILS = (0.05, 0.5, 0.95)
LOGITS = ("repeat", "treat")
"""Of what a simulated expert has a logit."""


class HabitLogit(Record, frozen=True):
    """A logit that was simulated, and what was found of it."""

    true: float
    found: float
    """Posterior median."""
    interval: Interval
    """90 % interval."""

    @property
    def holds(self) -> bool:
        """Whether the interval holds the truth."""
        return self.interval[0] <= self.true <= self.interval[1]


class WithoutHabits(Record, frozen=True):
    """What the paper's model, softmax(kappa Q), says of the same decisions by the same plans."""

    weights: Numbers
    """``[d]``."""
    intervals: tuple[Interval, ...]
    """``[d]`` 90 % interval of each."""
    kappa: float
    """Inverse temperature."""
    kappa_interval: Interval
    """90 % interval."""

    def check(self) -> None:
        """Every weight has its interval."""
        require(len(self.weights) == len(self.intervals), "simulated_habits: weights and intervals must be as many")


class SimulatedHabits(Record, frozen=True):
    """Habits that were simulated and found, beside what is said where habits are left out."""

    logits: dict[str, HabitLogit]
    """Of :data:`LOGITS`."""
    kappa: float
    """The experts' own inverse temperature, for weights of L1 norm 1."""
    without: WithoutHabits

    def check(self) -> None:
        """Every logit is there."""
        require(set(self.logits) == set(LOGITS), f"simulated_habits: logits must be of {', '.join(LOGITS)}")


def habit_logits(true: FloatArray, draws: FloatArray) -> dict[str, HabitLogit]:
    """The logits of a habit ``[3, 2]`` beside what draws ``[M, 3, 2]`` of a fitted one say of them.

    Raises:
        ValueError: the draws are of another shape.
    """
    if draws.ndim != 3 or draws.shape[1:] != (3, 2) or len(draws) == 0:
        raise ValueError(f"draws of a habit of two actions by the action before must be [M, 3, 2], got {draws.shape}")
    simulated, found = _repeat_and_treat(true), _repeat_and_treat(draws)
    low, middle, high = np.quantile(found, TAILS, axis=0).tolist()
    return {name: HabitLogit(float(simulated[i]), middle[i], (low[i], high[i])) for i, name in enumerate(LOGITS)}


def _repeat_and_treat(logits: FloatArray) -> FloatArray:
    """``[.., 2]`` of repeating and of treating, of habits ``[.., 3, 2]``."""
    treated = logits[..., 1:, 1] - logits[..., 1:, 0]
    return np.stack([(treated[..., 1] - treated[..., 0]) / 2, treated.mean(axis=-1)], axis=-1)
