"""Ready settings of :class:`agents.drqn.drqn.DRQN` for ``CIRLTumour-v0``: the paper's, and those that work best here.

Also what they and the settings of RecurrentPPO are made of: scaled features and a learning rate that falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.types import FloatArray


class ScaledExtractor(BaseFeaturesExtractor):
    """A Box, flat, as (x - mean) / scale, so that no unit outweighs another.

    Args:
        observation_space: Box without images; with a scaler ``[d + ..]``.
        scaler: of the first d numbers, without logarithms; what follows stays as it is. None: every number is scaled
            from its bounds to [-1, 1], those without finite bounds stay as they are. Not for observations that are
            normalised already (``VecNormalize``).

    Raises:
        ValueError: the space is another one, or the scaler takes logarithms.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, observation_space: spaces.Space[Any], scaler: Scaler | None = None) -> None:
        if not isinstance(observation_space, spaces.Box) or is_image_space(observation_space):
            raise ValueError(f"ScaledExtractor needs a Box that is no image, got {observation_space}")
        mean, scale = _of_bounds(observation_space) if scaler is None else _of_scaler(observation_space, scaler)
        super().__init__(observation_space, len(mean))
        self.register_buffer("mean", torch.from_numpy(mean.astype(np.float32)))
        self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))

    def forward(self, observations: Tensor) -> Tensor:
        """``[n, F]``."""
        return (observations.flatten(1).float() - self.mean) / self.scale


def _of_bounds(space: spaces.Box) -> tuple[FloatArray, FloatArray]:
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
    # As if from -1 to 1 already where there are no bounds.
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    return (low + high) / 2, (high - low) / 2


def _of_scaler(space: spaces.Box, scaler: Scaler) -> tuple[FloatArray, FloatArray]:
    others = math.prod(space.shape) - len(scaler.mean)
    if len(space.shape) != 1 or others < 0:
        raise ValueError(f"ScaledExtractor needs a Box of {len(scaler.mean)} features and what follows, got {space}")
    if scaler.offset is not None and scaler.offset.any():
        raise ValueError("ScaledExtractor takes no logarithms")
    return np.append(scaler.mean, np.zeros(others)), np.append(scaler.scale, np.ones(others))


@dataclass(frozen=True)
class LinearRate:
    """A learning rate that falls linearly from ``first`` to ``last``, for Stable-Baselines3 (progress 1 to 0)."""

    first: float
    last: float

    def __call__(self, left: float) -> float:
        """The rate; ``left`` goes a little below 0 in the last update, where a negative rate would unlearn."""
        return self.last + (self.first - self.last) * max(left, 0.0)


@dataclass(frozen=True)
class DRQNSettings:
    """What to train with: ``DRQN("MlpLstmPolicy", env, **arguments).learn(total_timesteps)``."""

    arguments: dict[str, Any]
    """Keyword arguments of :class:`~agents.drqn.drqn.DRQN`."""
    n_envs: int
    """Environments that are stepped together."""
    total_timesteps: int
    """Steps of all environments together."""


def paper_settings(appendix: Literal["D", "E"] = "E") -> DRQNSettings:
    """The paper's hyper-parameters: of the expert in the simulator (E), or of policies in the world model (D).

    | | D | E |
    |---|---|---|
    | LSTM, linear output | 128 | 128 |
    | batch | 256 | 256 |
    | Adam, learning rate | .001 | .001 |
    | target network every | 100 | 200 |
    | replay | the batch data set | 10,000 |
    | epsilon | .9, less .00001 per iteration | .9 to 0, less .00005 per iteration |
    | iterations | 20,000 | 40,000 |

    The paper leaves open how many steps make an iteration: here one step of one environment and one update, so that
    targets and epsilon count the same. It says "examples" where it speaks of batch and replay: here whole episodes.
    Epsilon falls in equal steps, which in D ends the training at .7. Its squared loss and the Huber loss used here have
    the same gradient (up to a factor that Adam takes out) for errors below 1. What it does not mention is off: no
    double Q-learning, no clipping of gradients. D's data set is what an environment has to provide; the replay is E's.

    Args:
        appendix: ``"E"`` or ``"D"``.

    Raises:
        ValueError: another appendix.
    """
    if appendix not in ("D", "E"):
        raise ValueError(f"appendix must be 'D' or 'E', got {appendix!r}")
    iterations, interval, decay = (40_000, 200, 5e-5) if appendix == "E" else (20_000, 100, 1e-5)
    # Before the first updates; the paper does not say how many.
    learning_starts = 1_000
    last = max(0.9 - decay * iterations, 0.0)
    total = learning_starts + iterations
    arguments = {
        "learning_rate": 1e-3,
        "buffer_size": 10_000,
        "replay_buffer_kwargs": {"unit": "episodes"},
        "learning_starts": learning_starts,
        "batch_size": 256,
        "train_freq": 1,
        "gradient_steps": 1,
        "double_q": False,
        "horizon_is_terminal": True,
        "target_update_interval": interval,
        "exploration_initial_eps": 0.9,
        "exploration_final_eps": last,
        "exploration_fraction": (0.9 - last) / decay / total,
        "max_grad_norm": float("inf"),
        "policy_kwargs": {
            "lstm_hidden_size": 128,
            "net_arch": [],
            "features_extractor_class": ScaledExtractor,
        },
    }
    return DRQNSettings(arguments, n_envs=1, total_timesteps=total)


def tumour_settings() -> DRQNSettings:
    """Settings that come near the optimum of any weights and discount factor in a few minutes on one core."""
    arguments = {
        "learning_rate": LinearRate(2e-3, 1e-4),
        "buffer_size": 200_000,
        "learning_starts": 6_400,
        "batch_size": 32,
        "train_freq": 1,
        "gradient_steps": 4,
        "horizon_is_terminal": True,
        "target_update_interval": 3_200,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.1,
        "exploration_fraction": 0.7,
        "policy_kwargs": {
            "lstm_hidden_size": 64,
            "net_arch": [64],
            "features_extractor_class": ScaledExtractor,
        },
    }
    return DRQNSettings(arguments, n_envs=64, total_timesteps=150_000)
