"""Settings of RecurrentPPO, in any environment and in the world model, apart from what needs Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from agents.as_printed.learning import Outcome
from cirl_gym.worlds.tumour import TumourParameters

KNOWS_NO_RULES = (
    "--solver recurrent_ppo cannot be combined with --forbid: RecurrentPPO knows no action masks and would take "
    "forbidden actions; --solver successor and --solver drqn keep to the rules"
)
"""Why :class:`agents.ppo.WorldPPO` refuses a world with rules."""


@dataclass(frozen=True)
class RecurrentPPOConfig:
    """How :func:`agents.ppo.train_recurrent_ppo` trains.

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


@dataclass(frozen=True)
class WorldPPOConfig:
    """How :class:`agents.ppo.WorldPPO` trains; the rest is :class:`RecurrentPPOConfig`'s.

    Raises:
        ValueError: a number is out of its range, or the outcome is unknown.
    """

    steps: int = 40_000
    """Imagined steps of one training."""
    rows: int = 64
    """Histories that go on at once."""
    epochs: int = 5
    """Passes over each of their rollouts."""
    outcome: Outcome = "expected"
    """What is observed in training."""
    warm_start: bool = False
    """Begin with the network that the training before ended with. Off: near weights whose policy is good it helps, but
    where weights switch the optimal policy the old network hardly explores any more and stays where it is."""
    looks: int = 10
    """How often the policy is rolled out while it is trained; the best one seen is the answer."""
    look_starts: int = 100
    """First observations that it is then rolled out from."""

    def __post_init__(self) -> None:
        for name in ("steps", "rows", "epochs", "looks", "look_starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"WorldPPOConfig.{name} must be at least 1, got {getattr(self, name)}")
        if self.outcome not in get_args(Outcome):
            raise ValueError(f"WorldPPOConfig.outcome must be 'expected' or 'sampled', got {self.outcome!r}")
