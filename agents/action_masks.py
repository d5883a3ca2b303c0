"""Which actions are allowed: asking environments in sb3-contrib's convention, a method ``action_masks()``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.type_aliases import GymEnv

from cirl_gym.types import BoolArray


def has_action_masks(env: GymEnv | None) -> bool:
    """Whether an environment (or all of a vector environment) says which actions are allowed."""
    if env is None:
        return False
    with _quietly():
        return bool(is_masking_supported(env))


def action_masks_of(env: GymEnv) -> npt.NDArray[np.bool_]:
    """``[n, A]`` of a vector environment, ``[A]`` of a single one."""
    with _quietly():
        return np.asarray(get_action_masks(env), dtype=np.bool_)


def checked_masks(masks: npt.ArrayLike | None, n: int, n_actions: int) -> BoolArray | None:
    """Action masks as ``[n, A]``.

    Raises:
        ValueError: their shape is another, or a row allows nothing.
    """
    if masks is None:
        return None
    allowed = np.asarray(masks, dtype=np.bool_)
    if allowed.size != n * n_actions:
        raise ValueError(f"DRQN: action masks must be [{n}, {n_actions}], got {allowed.shape}")
    allowed = allowed.reshape(n, n_actions)
    if not allowed.any(axis=1).all():
        raise ValueError(f"DRQN: no action is allowed in row {int(allowed.any(axis=1).argmin())}")
    return allowed


@contextmanager
def _quietly() -> Iterator[None]:
    """Gymnasium below 1.0 warns whenever an attribute is found behind a wrapper."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*env.action_masks to get variables")
        yield
