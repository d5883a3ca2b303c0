"""Worlds and offline data for counterfactual inverse reinforcement learning, as a Gymnasium plugin."""

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import rollout
from cirl_gym.registration import register_envs
from cirl_gym.worlds.tumour import TumourParameters
from cirl_gym.worlds.world import CounterfactualWorld, TumourWorld

__all__ = [
    "Batch",
    "CounterfactualWorld",
    "FeatureMap",
    "TumourParameters",
    "TumourWorld",
    "register_envs",
    "rollout",
]

register_envs()
