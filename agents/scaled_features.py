"""Features of observations standardised as every other network of this package sees them, whatever their units."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from cirl_gym.outcome_models.inputs import Scaler


class ScaledExtractor(BaseFeaturesExtractor):
    """A flat Box whose first d numbers are (x - mean) / scale of a scaler; what follows stays as it is.

    Args:
        observation_space: Box ``[d + ..]``.
        scaler: of the d features, without logarithms.

    Raises:
        ValueError: the space is another one, or the scaler takes logarithms.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, observation_space: spaces.Space[Any], scaler: Scaler) -> None:
        d = len(scaler.mean)
        shape = observation_space.shape
        if not isinstance(observation_space, spaces.Box) or shape is None or len(shape) != 1 or shape[0] < d:
            raise ValueError(f"ScaledExtractor needs a Box of {d} features and what follows, got {observation_space}")
        if scaler.offset is not None and scaler.offset.any():
            raise ValueError("ScaledExtractor takes no logarithms")
        super().__init__(observation_space, shape[0])
        others = shape[0] - d
        mean, scale = np.append(scaler.mean, np.zeros(others)), np.append(scaler.scale, np.ones(others))
        self.register_buffer("mean", torch.from_numpy(mean.astype(np.float32)))
        self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))

    def forward(self, observations: Tensor) -> Tensor:
        """``[n, F]``."""
        return (observations.float() - self.mean) / self.scale
