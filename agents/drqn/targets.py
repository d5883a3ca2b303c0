"""What Q-values of whole episodes are regressed on, and the loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

LOWEST = torch.finfo(torch.float32).min


def among(q: Tensor, allowed: Tensor | None) -> Tensor:
    """Q-values ``[.., A]`` with those of forbidden actions far below all others."""
    return q if allowed is None else q.masked_fill(~allowed, LOWEST)


def n_step_targets(rewards: Tensor, following: Tensor, mask: Tensor, gamma: float, n: int) -> Tensor:
    """r_t + gamma r_{t+1} + .. + gamma^m V(h_{t+m}), with m = n or as many steps as the episode still has.

    Args:
        rewards: ``[N, L]``.
        following: ``[N, L]`` value of what follows each action: V(h_{t+1}), 0 where the process has ended.
        mask: ``[N, L]`` True where there is an action.
        gamma: discount factor.
        n: number of rewards, at least 1.

    Returns:
        ``[N, L]``; what stands in padding means nothing.
    """
    goes_on = _goes_on(mask)
    targets = rewards + gamma * following
    for _ in range(n - 1):
        targets = rewards + gamma * torch.where(goes_on, _next(targets), following)
    return targets


def trace_targets(
    rewards: Tensor, following: Tensor, mask: Tensor, gamma: float, decay: float, greedy: Tensor
) -> Tensor:
    """Watkins' Q(lambda): mixtures of n-step targets of all n, cut where the next action was not the greedy one.

    Args:
        rewards: ``[N, L]``.
        following: ``[N, L]`` value of what follows each action, 0 where the process has ended.
        mask: ``[N, L]`` True where there is an action.
        gamma: discount factor.
        decay: lambda in [0, 1]; 0 gives one-step targets.
        greedy: ``[N, L]`` True where the action taken is the greedy one.

    Returns:
        ``[N, L]``; what stands in padding means nothing.
    """
    share = decay * (_goes_on(mask) & _next(greedy)).to(rewards.dtype)
    # In padding there may be anything, even what is not a number.
    rewards, following = rewards.masked_fill(~mask, 0.0), following.masked_fill(~mask, 0.0)
    targets = torch.empty_like(rewards)
    later = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        later = rewards[:, t] + gamma * torch.lerp(following[:, t], later, share[:, t])
        targets[:, t] = later
    return targets


def masked_loss(values: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Mean Huber loss where ``mask`` is True; 0 with a gradient of 0 where it is so nowhere.

    Indexed, not multiplied: whatever stands elsewhere, even a NaN, does not count.
    """
    total = smooth_l1_loss(values[mask], targets[mask], reduction="sum")
    return total / max(int(mask.sum()), 1)


def _next(values: Tensor) -> Tensor:
    """The same one step later; the last step keeps its own."""
    return torch.cat([values[:, 1:], values[:, -1:]], dim=1)


def _goes_on(mask: Tensor) -> Tensor:
    """Where another action follows."""
    return torch.cat([mask[:, 1:], torch.zeros_like(mask[:, -1:])], dim=1)
