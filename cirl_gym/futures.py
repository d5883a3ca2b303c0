"""What followed a history under a sequence of actions, for every history of some episodes at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.types import BoolArray, Float32Array, IntArray


@dataclass(frozen=True)
class Futures:
    """R histories h_t of a batch's episodes, and up to K actions and outcomes after each.

    Raises:
        ValueError: shapes do not agree.
    """

    episode: IntArray
    """``[R]`` which episode of the batch."""
    step: IntArray
    """``[R]`` t, the number of actions before."""
    actions: IntArray
    """``[R, K]`` a_t, a_{t+1}, ...; without meaning where nothing is live."""
    outcomes: Float32Array
    """``[R, K, d]`` what was observed after each of them, raw units; without meaning where nothing is live."""
    live: BoolArray
    """``[R, K]`` whether the outcome exists; once False it stays so."""

    def __post_init__(self) -> None:
        rows, steps = self.actions.shape
        shapes = (self.episode.shape, self.step.shape, self.outcomes.shape[:2], self.live.shape)
        if shapes != ((rows,), (rows,), (rows, steps), (rows, steps)):
            raise ValueError(f"Futures: shapes do not agree, actions are {self.actions.shape}, the others {shapes}")

    @property
    def steps(self) -> int:
        """K, the most steps ahead."""
        return int(self.actions.shape[1])


def followed(batch: Batch, steps: int) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Every history at which an action was taken, and the steps after it.

    Returns:
        ``[R]`` episodes, ``[R]`` steps t, ``[R, K]`` the steps t, t+1, ... (kept inside the batch) and whether an
        action was taken there.
    """
    episode, step = np.nonzero(batch.mask)
    ahead = step[:, None] + np.arange(min(steps, batch.horizon))
    return episode, step, np.minimum(ahead, batch.horizon - 1), ahead < batch.lengths[episode][:, None]


def taken_futures(batch: Batch, steps: int) -> Futures:
    """What was really done and observed after every history, at most ``steps`` steps ahead.

    Raises:
        ValueError: ``steps`` is below 1.
    """
    if steps < 1:
        raise ValueError(f"taken_futures: steps must be at least 1, got {steps}")
    episode, step, ahead, live = followed(batch, steps)
    rows = episode[:, None]
    return Futures(episode, step, batch.actions[rows, ahead], batch.obs[rows, ahead + 1], live)
