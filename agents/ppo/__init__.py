"""RecurrentPPO of sb3-contrib: its settings, a training in any environment, and the solver that acts in a world model.

The settings need no Stable-Baselines3; the rest is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

from agents.ppo.settings import RecurrentPPOConfig, WorldPPOConfig

_LATER = ("WorldPPO", "train_recurrent_ppo")

__all__ = ["RecurrentPPOConfig", "WorldPPOConfig", *_LATER]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module("agents.ppo.ppo"), name)
    raise AttributeError(f"module 'agents.ppo' has no attribute {name!r}")
