"""One update's loss: whole episodes through both networks once, and what their Q-values should have been."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agents.episode_replay import EpisodeBatch
from agents.q_targets import among, masked_loss, n_step_targets, trace_targets
from agents.recurrent_q_network import RecurrentQNetwork


@dataclass(frozen=True)
class TargetRule:
    """What a Q-value is regressed on.

    Raises:
        ValueError: a number is out of its range, or both ways to look further than one step are asked for.
    """

    gamma: float
    """Discount factor in [0, 1]."""
    n_steps: int = 1
    """Rewards before the target network's value."""
    trace_decay: float = 0.0
    """Lambda of Watkins' Q(lambda); 0: n_steps."""
    double_q: bool = True
    """The Q-network picks the action, the target network values it."""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"DRQN: gamma must lie in [0, 1], got {self.gamma}")
        if self.n_steps < 1:
            raise ValueError(f"DRQN: n_steps must be at least 1, got {self.n_steps}")
        if not 0 <= self.trace_decay <= 1:
            raise ValueError(f"DRQN: trace_decay must lie in [0, 1], got {self.trace_decay}")
        if self.n_steps > 1 and self.trace_decay > 0:
            raise ValueError("DRQN: n_steps and trace_decay exclude each other")


def episode_loss(
    q_net: RecurrentQNetwork, target_net: RecurrentQNetwork, batch: EpisodeBatch, rule: TargetRule
) -> tuple[Tensor, Tensor]:
    """Loss of the Q-network on a batch, and how many steps were left out.

    Args:
        q_net: trained.
        target_net: values what follows.
        batch: whole episodes.
        rule: the targets.

    Returns:
        Mean Huber loss over all steps of all episodes, and the number of steps whose target depends on an action mask
        that is not known.
    """
    seen = batch.seen
    q = q_net.sequence(batch.obs, seen)
    with torch.no_grad():
        target_q = target_net.sequence(batch.obs, seen)
        targets, known = q_targets(q.detach(), target_q, batch, rule)
    taken = q[:, :-1].gather(2, _actions(batch)[..., None]).squeeze(2)
    return masked_loss(taken, targets, batch.mask & known), (batch.mask & ~known).sum()


def q_targets(q: Tensor, target_q: Tensor, batch: EpisodeBatch, rule: TargetRule) -> tuple[Tensor, Tensor]:
    """Targets ``[n, L]`` for the actions taken, and where they are known.

    Args:
        q: ``[n, L + 1, A]`` of the Q-network.
        target_q: ``[n, L + 1, A]`` of the target network.
        batch: the episodes.
        rule: the targets.
    """
    best = among(q if rule.double_q else target_q, batch.allowed).argmax(dim=2)
    following = target_q[:, 1:].gather(2, best[:, 1:, None]).squeeze(2).masked_fill(batch.terminated, 0.0)

    def targets(rewards: Tensor, following: Tensor, gamma: float) -> Tensor:
        if rule.trace_decay > 0:
            greedy = best[:, :-1] == batch.actions
            return trace_targets(rewards, following, batch.mask, gamma, rule.trace_decay, greedy)
        return n_step_targets(rewards, following, batch.mask, gamma, rule.n_steps)

    known = torch.ones_like(batch.mask)
    if batch.allowed is not None:
        unknown = batch.mask & ~batch.terminated & ~batch.allowed[:, 1:].any(dim=2)
        # A target is a sum of values with weights; those that weigh an unknown one are found by the same sum.
        known = targets(torch.zeros_like(following), unknown.to(following.dtype), 1.0) == 0
    return targets(batch.rewards, following, rule.gamma), known


def _actions(batch: EpisodeBatch) -> Tensor:
    """Actions that can be used as an index in padding, too."""
    return batch.actions.masked_fill(~batch.mask, 0)
