"""Features of observations whose bounds are known: scaled to [-1, 1], so that no unit outweighs another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor


class BoundedExtractor(BaseFeaturesExtractor):
    """A Box, or a Dict of Boxes, flat, with every bounded number scaled from its bounds to [-1, 1].

    Numbers without finite bounds stay as they are. Not for observations that are normalised already (``VecNormalize``).

    Args:
        observation_space: Box or Dict of Boxes, without images.

    Raises:
        ValueError: the space is another one.
    """

    centre: Tensor
    radius: Tensor

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        parts = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {"": observation_space}
        low, high = [], []
        for name, space in parts.items():
            if not isinstance(space, spaces.Box) or is_image_space(space):
                raise ValueError(f"BoundedExtractor needs Boxes that are no images, got {space} {name}".rstrip())
            low.append(space.low.reshape(-1).astype(np.float64))
            high.append(space.high.reshape(-1).astype(np.float64))
        lowest, highest = np.concatenate(low), np.concatenate(high)
        super().__init__(observation_space, len(lowest))
        bounded = np.isfinite(lowest) & np.isfinite(highest) & (highest > lowest)
        # As if from -1 to 1 already where there are no bounds.
        lowest, highest = np.where(bounded, lowest, -1.0), np.where(bounded, highest, 1.0)
        self.register_buffer("centre", torch.from_numpy(((lowest + highest) / 2).astype(np.float32)))
        self.register_buffer("radius", torch.from_numpy(((highest - lowest) / 2).astype(np.float32)))
        self._parts = tuple(parts)

    def forward(self, observations: Tensor | dict[str, Tensor]) -> Tensor:
        """``[n, F]``."""
        if isinstance(observations, dict):
            flat = torch.cat([observations[name].flatten(1) for name in self._parts], dim=1)
        else:
            flat = observations.flatten(1)
        return (flat.float() - self.centre) / self.radius
