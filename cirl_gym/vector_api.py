"""Gymnasium's vector interface; before Gymnasium 1.1, stand-ins that say what is missing when an object is made.

The two forms of an environment or wrapper share a module, and the single form works from Gymnasium 0.29.1 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from cirl_gym.types import BoolArray

__all__ = ["AutoresetMode", "RowsWrapper", "VectorEnv", "VectorWrapper", "autoreset_mode", "batch_space"]

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


class RowsWrapper(VectorWrapper):
    """A wrapper of a vector environment in any autoreset mode, which knows at every step which rows begin anew.

    Raises:
        ValueError: the environment does not state its autoreset mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._mode = autoreset_mode(env)
        self._ended: BoolArray = np.zeros(env.num_envs, dtype=np.bool_)
        """``[n]`` rows whose episode ended in the last step."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row, or in those of ``options["reset_mask"]``."""
        # Read before the reset, since an environment may take the option out.
        mask = (options or {}).get("reset_mask")
        begun = np.ones(self.num_envs, dtype=np.bool_) if mask is None else np.array(mask, dtype=np.bool_)
        # The seed of a vector environment may be a sequence, which Gymnasium's annotation leaves out.
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._ended = self._ended & ~begun
        return self._begun(obs, begun), infos

    def _begun(self, obs: Any, rows: BoolArray) -> Any:
        """What is shown where ``rows [n]`` were reset."""
        return obs
