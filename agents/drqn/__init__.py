"""Recurrent Q-learning as a Stable-Baselines3 algorithm: network, policy, replay of whole episodes, ready settings."""

from agents.drqn.drqn import DRQN, MaskedPolicy
from agents.drqn.policy import RecurrentQPolicy
from agents.drqn.replay import EpisodeReplayBuffer
from agents.drqn.settings import DRQNSettings, LinearRate, ScaledExtractor, paper_settings, tumour_settings

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
