"""MB(x): two fully connected layers on the current observation and action, without memory (appendix G)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.crn import with_every_action
from cirl_gym.outcome_models.end_head import EndHead
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.linear import LawModel, LinearLaw
from cirl_gym.outcome_models.spec import OutcomeSpec
from cirl_gym.outcome_models.training import TrainingConfig, network_training
from cirl_gym.types import Float32Array, FloatArray, IntArray


@dataclass(frozen=True)
class MLPConfig:
    """Sizes of the network and how it is trained.

    Raises:
        ValueError: a size is below 1.
    """

    first: int = 32
    """Units of the first layer."""
    second: int = 32
    """Units of the second layer."""
    training: TrainingConfig = field(default_factory=network_training)
    """The loop."""

    def __post_init__(self) -> None:
        if min(self.first, self.second) < 1:
            raise ValueError(f"MLPConfig: sizes must be at least 1, got {self}")


class MemorylessNetwork(nn.Module):
    """Two layers with ELU on [scaled x_t, one-hot a_t], and a linear output that starts at zero."""

    def __init__(self, n_features: int, n_actions: int, config: MLPConfig) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        self.outcome = nn.Sequential(
            nn.Linear(n_features + n_actions, config.first),
            nn.ELU(),
            nn.Linear(config.first, config.second),
            nn.ELU(),
            nn.Linear(config.second, n_features),
        )
        for parameter in self.outcome[4].parameters():
            nn.init.zeros_(parameter)

    def read(self, inputs: Tensor) -> Tensor:
        """``[.., d]`` all that is kept of inputs ``[.., d + A]``: the observation."""
        return inputs[..., : self.n_features]

    def represent(self, hidden: Tensor) -> Tensor:
        """The observation itself."""
        return hidden

    def correction(self, representation: Tensor) -> Tensor:
        """``[.., A, d]`` what is added to the law under every action, for observations ``[.., d]``."""
        corrections: Tensor = self.outcome(with_every_action(representation, self.n_actions))
        return corrections

    def side_loss(self, representation: Tensor, actions: Tensor, share: float) -> Tensor:
        """Nothing: there is no balancing."""
        return representation.new_zeros(())


class MemorylessModel(LawModel):
    """A law of the last observation plus correction inside the bounds; a state is the window row, x_t alone."""

    def __init__(
        self,
        law: LinearLaw,
        network: MemorylessNetwork,
        scaler: Scaler,
        correction_scale: FloatArray,
        spec: OutcomeSpec,
        end: EndHead,
    ) -> None:
        if law.window.order != 1:
            raise ValueError(f"MemorylessModel: the law must read one observation, not {law.window.order}")
        self.law = law
        self.network = network
        self.scaler = scaler
        self.correction_scale = np.array(correction_scale, dtype=np.float64)
        """``[d]`` raw units of one unit of the network's output."""
        self.spec = spec
        self.end = end

    def with_outcomes(self, spec: OutcomeSpec, end: EndHead) -> MemorylessModel:
        """The same law and network with another noise or end head."""
        return MemorylessModel(self.law, self.network, self.scaler, self.correction_scale, spec, end)

    def start(self, obs: Float32Array) -> Float32Array:
        """States ``[n, d]`` after one observation ``[n, d]``."""
        return self.law.window.start(obs)

    def encode(self, batch: Batch) -> Float32Array:
        """States ``[N, T+1, d]`` of every history; zero past the end."""
        return self.law.window.encode(batch)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        """States ``[.., d]`` after action and observation."""
        return self.law.window.advance(states, actions, obs)

    def raw(self, states: Float32Array) -> FloatArray:
        """Outcomes ``[.., A, d]`` before they are clipped to the bounds."""
        unit = self.correction_scale * self.spec.size(states)
        total: FloatArray = self.law(states) + unit[..., None, :] * self._correction(states)
        return total

    def raw_of(self, states: Float32Array, actions: IntArray) -> FloatArray:
        """Outcomes ``[n, d]`` under one action ``[n]`` each, before they are clipped."""
        correction = self._correction(states)[np.arange(len(actions)), actions]
        return self.law.of_action(states, actions) + self.correction_scale * self.spec.size(states) * correction

    def _correction(self, states: Float32Array) -> Float32Array:
        """``[.., A, d]`` what the network adds, in its own units."""
        with torch.inference_mode():
            correction: Float32Array = self.network.correction(torch.from_numpy(self.scaler(states))).numpy()
        return correction
