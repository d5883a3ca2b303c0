"""What the report's last picture shows: one history, and what would be expected to follow under each action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.types import Float32Array, FloatArray


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
        object.__setattr__(self, "observed", _checked(self.observed, d, "observed"))
        futures = {name: _checked(future, d, f"futures[{name!r}]") for name, future in self.futures.items()}
        object.__setattr__(self, "futures", futures)
        if not futures:
            raise ValueError("WhatIf.futures must have one future for each action")
        if len(self.actions) != len(self.observed) - 1:
            raise ValueError(f"WhatIf: {len(self.observed)} observations need one action less, got {len(self.actions)}")
        if self.units is not None and len(self.units) != d:
            raise ValueError(f"WhatIf.units must be {d} texts, got {len(self.units)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """``[d]`` names with units."""
        units = self.units or ("",) * len(self.features)
        return tuple(f"{name} [{unit}]" if unit else name for name, unit in zip(self.features, units, strict=True))


def _checked(values: FloatArray, d: int, name: str) -> FloatArray:
    path = np.array(values, dtype=np.float64)
    if path.ndim != 2 or path.shape[1] != d or len(path) == 0 or not np.isfinite(path).all():
        raise ValueError(f"WhatIf.{name} must be [steps, {d}] finite numbers with steps >= 1, got shape {path.shape}")
    path.setflags(write=False)
    return path


def imagine(model: OutcomeModel, batch: Batch, steps: int = 8, outcomes: Sequence[str] | None = None) -> WhatIf:
    """One held-out history, and its expected futures if each action were taken at every step from then on.

    The episode is the longest one (the first of several), cut at its middle, so that there is a past to see; a future
    stops where the model holds an end for more likely than not.

    Args:
        model: predicts the next observation under every action.
        batch: held-out episodes.
        steps: length of the futures.
        outcomes: names of the features to show; None: all.
    """
    episode = int(batch.lengths.argmax())
    t = int(batch.lengths[episode]) // 2
    state = model.encode(batch.take(np.array([episode])))[0, t]
    shown = batch.features if outcomes is None else tuple(outcomes)
    columns = [batch.features.index(name) for name in shown]
    futures = {
        name: _future_of(model, state, action, steps)[:, columns] for action, name in enumerate(batch.action_names)
    }
    return WhatIf(
        title=f"Episode {batch.ids[episode]} after {t} steps",
        features=shown,
        observed=batch.obs[episode, : t + 1][:, columns].astype(np.float64),
        actions=tuple(batch.action_names[a] for a in batch.actions[episode, :t]),
        futures=futures,
    )


def _future_of(model: OutcomeModel, state: Float32Array, action: int, steps: int) -> FloatArray:
    states, future = state[None], []
    for _ in range(steps):
        outcome = model.predict(states)[:, action]
        future.append(outcome[0])
        if model.end_probability(states)[0, action] > 0.5:
            break
        states = model.advance(states, np.array([action]), outcome)
    return np.stack(future).astype(np.float64)
