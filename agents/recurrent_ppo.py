"""RecurrentPPO of sb3-contrib, with settings that work on short episodes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from agents.drqn_settings import LinearRate
from agents.scaled_features import ScaledExtractor
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.parameters import TumourParameters


@dataclass(frozen=True)
class RecurrentPPOConfig:
    """How :func:`train_recurrent_ppo` trains.

    One rollout holds whole episodes of every row, and one batch the whole rollout: cutting 20-step episodes into pieces
    costs memory at their seams, and many small batches of padded sequences cost most of the time.

    Raises:
        ValueError: a number is out of its range.
    """

    steps: int = 200_000
    """Environment steps."""
    rollout: int = TumourParameters.horizon
    """Steps of each row between two updates."""
    epochs: int = 10
    """Passes over a rollout."""
    hidden: int = 32
    """Units of the LSTM, which actor and critic share, and of the layer behind it."""
    learning_rate: float = 3e-3
    """Adam's."""
    gae_lambda: float = 0.95
    """Of the advantages."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    last_rate: float = 1.0
    """Share of the learning rate that is left at the end of a linear fall; 1: constant."""

    def __post_init__(self) -> None:
        for name in ("steps", "rollout", "epochs", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"RecurrentPPOConfig.{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0 or not 0 <= self.gae_lambda <= 1 or not self.entropy >= 0:
            raise ValueError("RecurrentPPOConfig: learning_rate must be positive, gae_lambda in [0, 1], entropy >= 0")
        if not 0 <= self.last_rate <= 1:
            raise ValueError(f"RecurrentPPOConfig.last_rate must lie within [0, 1], got {self.last_rate}")


class WarningLstmPolicy(RecurrentActorCriticPolicy):
    """sb3-contrib's ``MlpLstmPolicy``, which says so where memory is missing.

    Without a word the state would be zeros in the middle of an episode, and the policy another one.
    """

    def predict(
        self,
        observation: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """As in sb3-contrib; warns where there is no state although ``episode_start`` says that an episode goes on."""
        if state is None and episode_start is not None and not np.all(episode_start):
            told = "RecurrentPPO: no state was given although an episode is under way; its history is lost"
            warnings.warn(told, stacklevel=3)
        answer: tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]
        answer = super().predict(observation, state, episode_start, deterministic)
        return answer


def policy_arguments(config: RecurrentPPOConfig, scaler: Scaler | None = None) -> dict[str, Any]:
    """Keyword arguments of :class:`WarningLstmPolicy` beside spaces and learning rate."""
    arguments: dict[str, Any] = {
        "lstm_hidden_size": config.hidden,
        "shared_lstm": True,
        "enable_critic_lstm": False,
        "net_arch": [config.hidden],
    }
    if scaler is not None:
        arguments |= {"features_extractor_class": ScaledExtractor, "features_extractor_kwargs": {"scaler": scaler}}
    return arguments


def train_recurrent_ppo(
    env: VecEnv,
    gamma: float,
    config: RecurrentPPOConfig | None = None,
    *,
    seed: int = 0,
    callback: BaseCallback | None = None,
    scaler: Scaler | None = None,
) -> RecurrentPPO:
    """Train sb3-contrib's RecurrentPPO on either environment of this package.

    Args:
        env: many rows at once, e.g. :func:`agents.sb3_vec_env.make_native_vec_env` with 64; its observation a ``Box``.
        gamma: discount factor in [0, 1].
        config: how to train.
        seed: of the network and of the environment's first reset.
        callback: Stable-Baselines3's, e.g. to watch or to stop.
        scaler: of the observed features, for units that differ much, such as a real table's; default: as they are.

    Returns:
        The algorithm, trained; its ``predict`` takes and returns the LSTM's state.

    Raises:
        ValueError: gamma is out of its range.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {gamma}")
    config = config or RecurrentPPOConfig()
    # Small recurrent networks are slower with more threads, and results stay the same to the byte.
    torch.set_num_threads(1)
    algorithm = RecurrentPPO(
        WarningLstmPolicy,
        env,
        n_steps=config.rollout,
        batch_size=config.rollout * env.num_envs,
        n_epochs=config.epochs,
        learning_rate=LinearRate(config.learning_rate, config.last_rate * config.learning_rate),
        gamma=gamma,
        gae_lambda=config.gae_lambda,
        ent_coef=config.entropy,
        policy_kwargs=policy_arguments(config, scaler),
        seed=seed,
        device="cpu",
    )
    return algorithm.learn(config.steps, callback=callback)
