"""Counterfactual mu-learning (paper, section 4.1 and appendix C): what a policy leads to, learnt from a batch.

mu(h, a) = phi(h, a) + gamma E[mu(h', pi(h'))] is learnt by temporal differences: the histories h are the batch's, the
next history h' = (h, a, E[Y(a) | h]) is the outcome model's, for any action, so that any policy can be evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agents.as_printed.training import (
    Histories,
    HistoryNetwork,
    HistoryTrainingConfig,
    PolicyActions,
    ProgressCallback,
    Rows,
    StoredTraining,
    train_on_histories,
    values_along,
)
from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray, Policy


@dataclass(frozen=True)
class LearntMu:
    """mu of one policy."""

    mu: FloatArray
    """``[d]`` mu^pi: mean of mu(h_0, pi(h_0)) over the batch's first histories."""
    histories: Histories
    """What it was learnt on."""
    network: HistoryNetwork
    """mu(h, a)."""

    def along(self, batch: Batch) -> FloatArray:
        """mu(h, a) ``[N, T, A, d]`` after every history of a batch; 0 on padding.

        Raises:
            ValueError: the batch has other features or actions.
        """
        self.histories.check_batch(batch)
        return values_along(self.network, self.histories.scaler, batch)


def learn_mu(
    histories: Histories,
    policy: Policy,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    *,
    draws: int = 0,
    progress: ProgressCallback | None = None,
    kept: StoredTraining | None = None,
) -> LearntMu:
    """Feature expectation of a policy in the outcome model, from the batch's histories.

    What the policy does after h and h' does not change while mu is learnt: it is asked once, before. Where the world
    has rules, it is the policy that keeps them.

    Args:
        histories: of the batch, with their next histories.
        policy: pi, the policy to evaluate.
        config: how to train.
        rng: first weights, and everything that is drawn.
        draws: how often a policy that draws its actions is asked; expectations over pi are means over the answers. 0:
            the policy's most likely action.
        progress: called with (iterations done, iterations in all).
        kept: where the training is kept, so that one that was killed goes on.

    Raises:
        ValueError: the policy cannot act along the batch, the histories end by another rule than the configuration
            says, or the loss did not stay finite.
    """
    actions = PolicyActions.of(policy, histories, draws)
    network = train_on_histories(histories, MuLearner(histories.phi, actions), config, rng, progress, kept=kept)
    return LearntMu(_mean_at_start(network, histories, actions), histories, network)


class MuLearner:
    """Appendix C: the payoff is phi, and what follows is E over a' ~ pi of mu(h', a')."""

    def __init__(self, phi: Tensor, actions: PolicyActions) -> None:
        self.payoff, self.actions = phi, actions

    def chosen(self, rows: Rows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` a ~ pi(. | h)."""
        del values
        answer = torch.from_numpy(rng.integers(len(self.actions.here), size=len(rows.step)))
        return self.actions.here[answer, rows.episode, rows.step]

    def following(self, rows: Rows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, d]`` mean of mu(h', a') over the policy's answers."""
        answers = self.actions.following[:, rows.episode[:, None], rows.step[:, None], actions]
        return values.take_along_dim(answers.permute(1, 2, 0)[..., None], dim=2).mean(dim=2)

    def loss(self, error: Tensor) -> Tensor:
        """Mean of ||y - mu(h, a)||_2, not squared, as printed."""
        # Its gradient at an error of exactly 0 is 0.
        norms: Tensor = torch.linalg.vector_norm(error, dim=-1)
        return norms.mean()


def _mean_at_start(network: HistoryNetwork, histories: Histories, actions: PolicyActions) -> FloatArray:
    """``[d]`` mean over h_0 of the sum over a of pi(a | h_0) mu(h_0, a)."""
    with torch.inference_mode():
        values = network.values(network.lstm(histories.inputs[:, :1])[0][:, 0])
        answers = actions.here[:, :, 0].T
        mu: FloatArray = values.take_along_dim(answers[..., None], dim=1).double().mean(dim=(0, 1)).numpy()
    return mu
