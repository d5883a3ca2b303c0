"""MB(h): an LSTM with a fully connected layer that learns to predict the next observation, no more (appendix G)."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from cirl_gym.outcome_models.crn import with_every_action
from cirl_gym.outcome_models.training import TrainingConfig, network_training


@dataclass(frozen=True)
class RNNConfig:
    """Sizes of the network and how it is trained; the paper searches 1 to 5 times the input's size for each.

    Raises:
        ValueError: a size is below 1.
    """

    hidden: int = 32
    """Units of the LSTM."""
    fully_connected: int = 32
    """Units of the layer on [LSTM output, one-hot action]."""
    training: TrainingConfig = field(default_factory=network_training)
    """The loop."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.fully_connected) < 1:
            raise ValueError(f"RNNConfig: sizes must be at least 1, got {self}")


class RecurrentNetwork(nn.Module):
    """LSTM and outcome head."""

    def __init__(self, n_features: int, n_actions: int, config: RNNConfig) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        self.lstm = nn.LSTM(n_features + n_actions, config.hidden, batch_first=True)
        self.outcome = nn.Sequential(
            nn.Linear(config.hidden + n_actions, config.fully_connected),
            nn.ELU(),
            nn.Linear(config.fully_connected, n_features),
        )
        for parameter in self.outcome[2].parameters():
            nn.init.zeros_(parameter)

    def read(self, inputs: Tensor) -> Tensor:
        """LSTM outputs ``[N, T, H]`` of inputs ``[N, T, d + A]`` from zero states."""
        hidden: Tensor = self.lstm(inputs)[0]
        return hidden

    def represent(self, hidden: Tensor) -> Tensor:
        """The LSTM output itself."""
        return hidden

    def correction(self, representation: Tensor) -> Tensor:
        """``[.., A, d]`` what is added to the law under every action, for LSTM outputs ``[.., H]``."""
        corrections: Tensor = self.outcome(with_every_action(representation, self.n_actions))
        return corrections

    def side_loss(self, representation: Tensor, actions: Tensor, share: float) -> Tensor:
        """Nothing: there is no balancing."""
        return representation.new_zeros(())
