"""Scores of networks among the actions that are allowed."""

from __future__ import annotations

import torch
from torch import Tensor


def only_allowed(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Scores ``[.., A]`` with minus infinity where an action is not ``allowed`` ``[.., A]``; None: all are."""
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
