"""Worlds and offline data for counterfactual inverse reinforcement learning, as a Gymnasium plugin.

``import cirl_gym`` makes ``CIRLTumour-v0`` and ``CIRLCounterfactual-v0`` known to Gymnasium. Environments, wrappers and
what reads a learned reward are loaded when they are first used, since Gymnasium may be the one that is importing this
package.
"""

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import rollout
from cirl_gym.lazy import attach
from cirl_gym.registration import register_envs
from cirl_gym.worlds.tumour import TumourParameters
from cirl_gym.worlds.world import CounterfactualWorld, TumourWorld

__getattr__, __dir__, _later = attach(
    __name__,
    {
        ".envs.counterfactual": "CounterfactualEnv CounterfactualVectorEnv",
        ".envs.tumour": "TumourEnv TumourVectorEnv",
        ".wrappers.history": "HistoryObservation HistoryVectorObservation",
        ".wrappers.learned_reward": "LearnedReward LearnedVectorReward load_reward",
        ".wrappers.returns": "env_returns",
    },
)

__all__ = [
    "Batch",
    "CounterfactualWorld",
    "FeatureMap",
    "TumourParameters",
    "TumourWorld",
    "register_envs",
    "rollout",
    *_later,
]

register_envs()
