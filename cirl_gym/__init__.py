"""Worlds and offline data for counterfactual inverse reinforcement learning, as a Gymnasium plugin.

``import cirl_gym`` makes ``CIRLTumour-v0`` and ``CIRLCounterfactual-v0`` known to Gymnasium. Environments, wrappers and
what reads a learned reward are loaded when they are first used, since Gymnasium may be the one that is importing this
package.
"""

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import rollout
from cirl_gym.lazy import attach
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld

__getattr__, __dir__, _later = attach(
    __name__,
    {
        ".envs.counterfactual": "CounterfactualEnv CounterfactualVectorEnv",
        ".envs.tumour": "TumourEnv TumourVectorEnv",
        ".wrappers.history": "HistoryObservation HistoryVectorObservation",
        ".wrappers.learned_reward": "LearnedReward LearnedVectorReward env_returns load_reward",
        ".wrappers.vector_reward": "VectorReward",
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


def register_envs() -> None:
    """Register ``CIRLTumour-v0`` and ``CIRLCounterfactual-v0``; calling it again changes nothing.

    ``import cirl_gym`` calls it, so ``gymnasium.make("cirl_gym:CIRLTumour-v0")`` works without any other import.
    """
    # Imported here: Gymnasium may be the one that is importing this package.
    import gymnasium

    if "CIRLTumour-v0" not in gymnasium.registry:
        gymnasium.register(
            "CIRLTumour-v0",
            entry_point="cirl_gym.envs.tumour:make_tumour_env",
            vector_entry_point="cirl_gym.envs.tumour:TumourVectorEnv",
            max_episode_steps=TumourParameters.horizon,
        )
    if "CIRLCounterfactual-v0" not in gymnasium.registry:
        # Its limit depends on the batch, unless one is asked for: none is registered.
        gymnasium.register(
            "CIRLCounterfactual-v0",
            entry_point="cirl_gym.envs.counterfactual:make_counterfactual_env",
            vector_entry_point="cirl_gym.envs.counterfactual:CounterfactualVectorEnv",
        )


register_envs()
