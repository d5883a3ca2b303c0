"""Recurrent Q-learning as a Stable-Baselines3 algorithm: network, policy, replay of whole episodes, ready settings."""

from agents.drqn.drqn import DRQN, DRQNSettings, MaskedPolicy, paper_settings, tumour_settings
from agents.drqn.policy import LinearRate, RecurrentQPolicy, ScaledExtractor
from agents.drqn.replay import EpisodeReplayBuffer

__all__ = [
    "DRQN",
    "DRQNSettings",
    "EpisodeReplayBuffer",
    "LinearRate",
    "MaskedPolicy",
    "RecurrentQPolicy",
    "ScaledExtractor",
    "paper_settings",
    "tumour_settings",
]
