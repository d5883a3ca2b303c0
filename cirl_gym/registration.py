"""Making the environments known to Gymnasium."""

from __future__ import annotations

from cirl_gym.worlds.tumour import TumourParameters


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
