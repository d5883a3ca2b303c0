"""RecurrentPPO of sb3-contrib: its settings, a training in any environment, and the solver that acts in a world model.

The settings need no Stable-Baselines3; the rest is loaded when it is first used.
"""

from agents.ppo.settings import RecurrentPPOConfig, WorldPPOConfig
from cirl_gym.lazy import attach

__getattr__, __dir__, _later = attach(__name__, {".ppo": "WorldPPO train_recurrent_ppo"})

__all__ = ["RecurrentPPOConfig", "WorldPPOConfig", *_later]
