"""Gymnasium's vector interface; before Gymnasium 1.1, stand-ins that say what is missing when an object is made.

The two forms of an environment or wrapper share a module, and the single form works from Gymnasium 0.29.1 on.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from cirl_gym.types import BoolArray

__all__ = ["AutoresetMode", "VectorEnv", "VectorWrapper", "autoreset_mode", "batch_space", "reset_rows"]

try:
    from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
except ImportError:

    class AutoresetMode(Enum):  # type: ignore[no-redef]
        """What a vector environment does after an episode's end."""

        NEXT_STEP = "NextStep"
        SAME_STEP = "SameStep"
        DISABLED = "Disabled"

    class VectorEnv:  # type: ignore[no-redef]
        """No object of it or of a class made from it can be made."""

        def __new__(cls, *_: Any, **__: Any) -> Any:
            """Refuse.

            Raises:
                ImportError: always; the message names the class, the version, and what to use instead.
            """
            raise ImportError(
                f"{cls.__name__} needs gymnasium >= 1.1, this is {gymnasium.__version__}; {cls._instead()} instead"
            )

        def __class_getitem__(cls, _: Any) -> type:
            """Type arguments mean nothing here."""
            return cls

        @classmethod
        def _instead(cls) -> str:
            return "use gymnasium.make_vec(..., vectorization_mode='sync')"

    class VectorWrapper(VectorEnv):  # type: ignore[no-redef]
        """The same for wrappers."""

        @classmethod
        def _instead(cls) -> str:
            # A wrapper's two forms differ in name by this word.
            return f"wrap each single environment in {cls.__name__.replace('Vector', '')}"


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
