"""What recurrent policies do before each step: check and scale what they see, and clear the memory of new episodes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.types import Float32Array


def scaled_inputs(policy: str, observation: Any, scaler: Scaler, n_actions: int) -> Float32Array:
    """``[n, d + A]`` scaled x_t and one-hot a_{t-1} of observations ``[n, d + A]`` in raw units.

    Args:
        policy: whose name an error bears.
        observation: ``[n, d + A]``.
        scaler: of the d features.
        n_actions: A.

    Raises:
        ValueError: the observation has another shape.
    """
    d = len(scaler.mean)
    rows = np.asarray(observation, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != d + n_actions:
        raise ValueError(f"{policy}: observations must be [n, {d + n_actions}], got {rows.shape}")
    return np.concatenate([scaler(rows[:, :d]), rows[:, d:]], axis=1)


def warn_of_lost_history(policy: str, previous: npt.NDArray[Any]) -> None:
    """Warn where no state was given and one of the one-hot previous actions ``[n, A]`` says that one was taken."""
    if previous.any():
        # The caller of the policy's predict: it calls its step, and that this.
        told = f"{policy}: no state was given although an action was already taken; the history is lost"
        warnings.warn(told, stacklevel=4)


def cleared(memory: tuple[npt.NDArray[Any], ...], episode_start: npt.NDArray[Any] | None) -> tuple[Float32Array, ...]:
    """States ``[n, H]`` as they were, float32, and zero in the rows ``[n]`` in which an episode begins."""
    parts = tuple(np.array(part, dtype=np.float32) for part in memory)
    if episode_start is None:
        return parts
    begins = np.asarray(episode_start, dtype=np.bool_)[:, None]
    return tuple(np.where(begins, np.float32(0), part) for part in parts)


# MERGED: Scores of networks among the actions that are allowed.


def only_allowed(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Scores ``[.., A]`` with minus infinity where an action is not ``allowed`` ``[.., A]``; None: all are."""
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
