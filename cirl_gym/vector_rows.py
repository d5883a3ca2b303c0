"""What a wrapper of a vector environment must know to follow its rows through resets."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from cirl_gym.types import BoolArray


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """What a vector environment does after an episode's end.

    Raises:
        ValueError: its metadata does not say so.
    """
    mode = env.metadata.get("autoreset_mode")
    if mode is None:
        raise ValueError(f"{env} does not state its metadata['autoreset_mode']")
    return AutoresetMode(mode)


def reset_rows(options: dict[str, Any] | None, n: int) -> BoolArray:
    """``[n]`` which rows a reset begins; to be read before the reset, since an environment may take the option out."""
    mask = (options or {}).get("reset_mask")
    return np.ones(n, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
