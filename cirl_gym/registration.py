"""Making the environments known to Gymnasium."""

from __future__ import annotations

from cirl_gym.parameters import TumourParameters


def register_envs() -> None:
    """Register ``CIRLTumour-v0`` and ``CIRLCounterfactual-v0``; calling it again changes nothing.

    ``import cirl_gym`` calls it, so ``gymnasium.make("cirl_gym:CIRLTumour-v0")`` works without any other import.
    """
    # Imported here: Gymnasium may be the one that is importing this package.
    import gymnasium

    if "CIRLTumour-v0" not in gymnasium.registry:
        gymnasium.register(
            "CIRLTumour-v0",
            entry_point="cirl_gym.tumour_env:make_tumour_env",
            vector_entry_point="cirl_gym.tumour_vector_env:TumourVectorEnv",
            max_episode_steps=TumourParameters.horizon,
        )
    if "CIRLCounterfactual-v0" not in gymnasium.registry:
        # Its limit depends on the batch, unless one is asked for: none is registered.
        gymnasium.register(
            "CIRLCounterfactual-v0",
            entry_point="cirl_gym.counterfactual_env:make_counterfactual_env",
            vector_entry_point="cirl_gym.counterfactual_vector_env:CounterfactualVectorEnv",
        )
