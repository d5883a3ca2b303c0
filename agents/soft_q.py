"""Soft Q of whole histories, learnt from episodes alone: what IQ-Learn and AVRIL have in common.

Both read behaviour as P(a | h) proportional to exp(Q(h, a)), and a reward off the difference between Q of a decision
and what Q says of the history after it. Both have here the network of behaviour cloning (a direct path beside an LSTM
over the whole history, :class:`agents.policies.cloning.CloningNetwork`), begin like it as a logistic regression, and
are trained by the one loop, so that what differs between the three is the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from agents.policies.cloning import CloningConfig, CloningNetwork, begun, checked_splits
from agents.policies.policy import only_allowed
from cirl_gym.data.batch import Batch, warn_of_actions_never_taken
from cirl_gym.data.rules import ActionRules
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.training import History, Progress, TrainingConfig, train_network


@dataclass(frozen=True)
class EpisodeTensors:
    """Every history h_0..h_T of N episodes, also the one after the last action."""

    inputs: Tensor
    """``[N, T+1, d + A]`` scaled x_t and one-hot a_{t-1}."""
    seen: Tensor
    """``[N, T+1]`` bool, False on padding."""
    actions: Tensor
    """``[N, T]``."""
    mask: Tensor
    """``[N, T]`` bool, where an action was taken."""
    goes_on: Tensor
    """``[N, T]`` bool, False where the process ended with the action: nothing follows."""
    allowed: Tensor | None
    """``[N, T+1, A]`` bool, what rules leave, and all on padding; None: everything."""

    @classmethod
    def of(cls, scaler: Scaler, batch: Batch, rules: ActionRules | None = None, device: str = "cpu") -> EpisodeTensors:
        """Those of a batch.

        Raises:
            ValueError: the batch says what was allowed and there are no rules that say it of the last histories.
        """
        if rules is None and batch.allowed is not None:
            raise ValueError("the episodes say which actions were allowed: the rules themselves are needed")
        last = np.arange(batch.horizon) == batch.lengths[:, None] - 1
        arrays = {
            "inputs": sequence_inputs(scaler, batch),
            "seen": batch.seen,
            "actions": batch.actions.copy(),
            "mask": batch.mask,
            "goes_on": batch.mask & ~(last & batch.terminated[:, None]),
        }
        tensors: dict[str, Any] = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        left = None if rules is None else rules.allowed_along(batch) | ~batch.seen[..., None]
        return cls(**tensors, allowed=None if left is None else torch.from_numpy(left).to(device))

    @property
    def acted_on(self) -> Tensor:
        """``[N, T]`` bool, whether the next history has an action too."""
        return nn.functional.pad(self.mask[:, 1:], (0, 1))

    def take(self, episodes: Tensor) -> EpisodeTensors:
        """Some of the episodes."""
        chosen: dict[str, Any] = {name: None if of is None else of[episodes] for name, of in vars(self).items()}
        return EpisodeTensors(**chosen)

    def logits(self, network: CloningNetwork) -> Tensor:
        """``[N, T+1, A]`` of every history, minus infinity where forbidden; 0 on padding."""
        found = network.live_logits(self.inputs, self.seen)
        every = found.new_zeros((*self.seen.shape, found.shape[-1]))
        every[self.seen] = found
        return only_allowed(every, self.allowed)

    def of_actions(self, values: Tensor) -> Tensor:
        """``[N, T]`` of the actions taken, for values ``[N, T+1, A]`` of every history and action."""
        return values[:, :-1].gather(2, self.actions[..., None])[..., 0]


def soft_value(logits: Tensor) -> Tensor:
    """V = log of the sum of exp Q, ``[..]`` for ``[.., A]``: the entropy's share is in it."""
    return logits.logsumexp(dim=-1)


def ahead(values: Tensor, follows: Tensor) -> Tensor:
    """``[N, T]`` what is worth ``values`` ``[N, T+1]`` in the next history; 0 where nothing ``follows`` ``[N, T]``."""
    return values[:, 1:].masked_fill(~follows, 0.0)


def log_losses(logits: Tensor, histories: EpisodeTensors) -> Tensor:
    """``[N, T]`` V - Q: minus the log-probability of the action taken; 0 on padding."""
    surprise = soft_value(logits)[:, :-1] - histories.of_actions(logits)
    return surprise.masked_fill(~histories.mask, 0.0)


class TrainingStart(NamedTuple):
    """What a training begins with."""

    scaler: Scaler
    """Of the training episodes."""
    network: CloningNetwork
    """Still their logistic regression."""
    train: EpisodeTensors
    held_out: EpisodeTensors
    """Of the validation episodes."""

    def fit(
        self,
        module: nn.Module,
        loss: Callable[[EpisodeTensors], Tensor],
        config: TrainingConfig,
        seed: int,
        progress: Progress | None,
    ) -> History:
        """Train all that is in ``module`` by a loss per decision, which also says when to stop, held out."""
        return train_network(
            module,
            lambda episodes, _share: loss(self.train.take(episodes)),
            lambda: loss(self.held_out).item(),
            len(self.train.mask),
            config,
            seed,
            progress,
        )


def begin(
    train: Batch, validation: Batch, gamma: float, config: CloningConfig, seed: int, rules: ActionRules | None
) -> TrainingStart:
    """Check what is given, and fit the logistic regression.

    Raises:
        ValueError: the batches do not fit together or with the rules, they say what was allowed and there are no rules,
            or gamma lies outside [0, 1].
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {gamma}")
    train, validation = checked_splits(train, validation, rules)
    warn_of_actions_never_taken(train, validation)
    scaler, device = Scaler.from_batch(train), config.training.device
    histories = [EpisodeTensors.of(scaler, batch, rules, device) for batch in (train, validation)]
    network, _ = begun(scaler, train, validation, config, seed)
    return TrainingStart(scaler, network, *histories)
