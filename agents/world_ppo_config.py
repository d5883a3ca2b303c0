"""Settings of RecurrentPPO in the world-model environment, apart from what needs Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from agents.rolled_out_mu import Outcome

KNOWS_NO_RULES = (
    "--solver recurrent_ppo cannot be combined with --forbid: RecurrentPPO knows no action masks and would take "
    "forbidden actions; --solver successor and --solver drqn keep to the rules"
)
"""Why :class:`agents.world_ppo.WorldPPO` refuses a world with rules."""


@dataclass(frozen=True)
class WorldPPOConfig:
    """How :class:`agents.world_ppo.WorldPPO` trains; the rest is :class:`agents.recurrent_ppo.RecurrentPPOConfig`'s.

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
    """How often the policy is rolled out while it is trained; the best one seen is kept."""
    look_starts: int = 100
    """First observations that it is then rolled out from."""

    def __post_init__(self) -> None:
        for name in ("steps", "rows", "epochs", "looks", "look_starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"WorldPPOConfig.{name} must be at least 1, got {getattr(self, name)}")
        if self.outcome not in get_args(Outcome):
            raise ValueError(f"WorldPPOConfig.outcome must be 'expected' or 'sampled', got {self.outcome!r}")
