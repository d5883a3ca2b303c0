"""Worlds and offline data for counterfactual inverse reinforcement learning, as a Gymnasium plugin.

``import cirl_gym`` makes ``CIRLTumour-v0`` and ``CIRLCounterfactual-v0`` known to Gymnasium. Environments, wrappers and
what reads a learned reward are loaded when they are first used, since Gymnasium may be the one that is importing this
package.
"""

from importlib import import_module
from typing import Any

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import rollout
from cirl_gym.registration import register_envs
from cirl_gym.worlds.tumour import TumourParameters
from cirl_gym.worlds.world import CounterfactualWorld, TumourWorld

_HOMES = {
    "CounterfactualEnv": "cirl_gym.envs.counterfactual",
    "CounterfactualVectorEnv": "cirl_gym.envs.counterfactual",
    "HistoryObservation": "cirl_gym.wrappers.history",
    "HistoryVectorObservation": "cirl_gym.wrappers.history",
    "LearnedReward": "cirl_gym.wrappers.learned_reward",
    "LearnedVectorReward": "cirl_gym.wrappers.learned_reward",
    "TumourEnv": "cirl_gym.envs.tumour",
    "TumourVectorEnv": "cirl_gym.envs.tumour",
    "env_returns": "cirl_gym.wrappers.returns",
    "load_reward": "cirl_gym.wrappers.learned_reward",
}

__all__ = [
    "Batch",
    "CounterfactualWorld",
    "FeatureMap",
    "TumourParameters",
    "TumourWorld",
    "register_envs",
    "rollout",
    *_HOMES,
]

register_envs()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cirl_gym' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
