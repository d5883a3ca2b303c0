"""What an environment shows: the observed features and the previous action, flat or by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from cirl_gym.rollout import observation
from cirl_gym.types import Float32Array, IntArray


@dataclass(frozen=True)
class Form:
    """In which form an observation is shown.

    Raises:
        ValueError: ``observation`` is unknown.
    """

    observation: Literal["flat", "dict"] = "flat"
    """``"flat"``: one array ``[d + A]``, as policies of this project take it; ``"dict"``: ``obs`` and
    ``previous_action`` apart."""
    previous_action: bool = True
    """Whether the one-hot previous action is shown."""

    def __post_init__(self) -> None:
        if self.observation not in ("flat", "dict"):
            raise ValueError(f"observation must be 'flat' or 'dict', got {self.observation!r}")


@dataclass(frozen=True)
class Layout:
    """Form and space of an observation; the one place where features and the previous action are put together."""

    low: Float32Array
    """``[d]`` lower limit of each feature, raw units."""
    high: Float32Array
    """``[d]`` upper limit of each feature, raw units."""
    n_actions: int
    """A, the number of actions."""
    form: Form
    """Flat or by name, with or without the previous action."""

    def space(self) -> spaces.Space[Any]:
        """The space of one observation."""
        hot = np.zeros(self.n_actions, dtype=np.float32), np.ones(self.n_actions, dtype=np.float32)
        if self.form.observation == "dict":
            parts: dict[str, spaces.Space[Any]] = {"obs": spaces.Box(self.low, self.high, dtype=np.float32)}
            if self.form.previous_action:
                parts["previous_action"] = spaces.Box(*hot, dtype=np.float32)
            return spaces.Dict(parts)
        low, high = self.low, self.high
        if self.form.previous_action:
            low, high = np.concatenate([low, hot[0]]), np.concatenate([high, hot[1]])
        return spaces.Box(low, high, dtype=np.float32)

    def rows(self, obs: Float32Array, previous: IntArray) -> Any:
        """Observations of n processes from ``obs [n, d]`` and ``previous [n]`` actions (-1: none yet); fresh arrays."""
        flat = observation(obs, previous, self.n_actions)
        d = len(self.low)
        if self.form.observation == "flat":
            return flat if self.form.previous_action else flat[:, :d].copy()
        parts = {"obs": flat[:, :d].copy()}
        if self.form.previous_action:
            parts["previous_action"] = flat[:, d:].copy()
        return parts

    def row(self, rows: Any, i: int) -> Any:
        """A copy of one row of what :meth:`rows` returned."""
        return (
            {name: part[i].copy() for name, part in rows.items()} if self.form.observation == "dict" else rows[i].copy()
        )
