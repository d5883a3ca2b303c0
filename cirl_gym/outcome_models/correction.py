"""Training what corrects a linear law, whatever the network: CRN, RMSN, MB(h), MB(x)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import sequence_inputs
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.networks import MemorylessModel, RecurrentModel
from cirl_gym.outcome_models.training import History, Progress, TrainingConfig, Watch, train_network
from cirl_gym.types import FloatArray

CorrectedModel: TypeAlias = RecurrentModel | MemorylessModel
"""A linear law and a network that corrects it."""
_TENSORS = ("inputs", "actions", "mask", "law", "outcomes", "weights", "unit")


@dataclass(frozen=True)
class CorrectionFit:
    """What training the correction brought."""

    history: History
    """Losses are squared errors in units of the law's training error."""
    law_loss: float
    """Validation loss of the law alone."""
    loss: float
    """Validation loss of law and correction."""
    standard_error: float
    """Of the difference between the two, paired by episode."""

    @property
    def helps(self) -> bool:
        """Whether the correction lowers the validation loss by more than three standard errors.

        Three, because the loss is that of the best of many epochs, chosen on the same episodes: noise alone often
        wins by one or two. And a correction that is only noise does its harm far from the data, unseen.
        """
        return self.law_loss - self.loss > 3.0 * self.standard_error


def fit_correction(
    model: CorrectedModel,
    splits: tuple[Batch, Batch],
    config: TrainingConfig,
    seed: int,
    progress: Progress | None = None,
    *,
    weights: tuple[FloatArray, FloatArray] | None = None,
    watch: Watch | None = None,
) -> CorrectionFit:
    """Train a model's network in place on what its law leaves over.

    Args:
        model: law and network.
        splits: training and validation batch.
        config: the loop.
        seed: of the order of episodes and of dropout.
        progress: called after every epoch.
        weights: ``[N, T]`` of every row of both splits (1 by default); also for stopping and for judging.
        watch: who looks, and where the training is kept.
    """
    network, (train, validation) = model.network, splits
    row_weights = weights or (np.ones(train.actions.shape), np.ones(validation.actions.shape))
    rows, held_out = (
        _Leftovers.of(model, batch, w).to(config.device) for batch, w in zip(splits, row_weights, strict=True)
    )

    def loss(chosen: Tensor, share: float) -> Tensor:
        part = rows.take(chosen)
        # Padding is dropped before anything is drawn or averaged over it.
        representation = network.represent(network.read(part.inputs)[part.mask])
        squares = part.squares(network.correction(representation))
        return squares.mean() + network.side_loss(representation, part.actions[part.mask], share)

    def held_out_squares() -> Tensor:
        hidden = network.read(held_out.inputs)[held_out.mask]
        return held_out.squares(network.correction(network.represent(hidden)))

    def held_out_loss() -> float:
        return held_out_squares().mean().item()

    history = train_network(
        network, loss, held_out_loss, len(train), config, seed, progress, name="correction", watch=watch
    )
    held_out = held_out.to("cpu")
    with torch.no_grad():
        after = held_out.per_episode(held_out_squares())
        nothing = torch.zeros((validation.n_steps, model.n_actions, len(model.features)))
        before = held_out.per_episode(held_out.squares(nothing))
    error = float((after - before).std() / np.sqrt(len(validation)))
    return CorrectionFit(history, float(before.mean()), float(after.mean()), error)


def _clipped_mean(expected: Tensor, spec: OutcomeSpec) -> Tensor:
    """:func:`cirl_gym.outcome_models.limits.clipped_mean` with gradients, for features that have a limit."""
    columns = []
    for j in range(expected.shape[-1]):
        column, floor, ceiling = expected[..., j], float(spec.floor[j]), float(spec.ceiling[j])
        noise = max(float(spec.noise_scale[j]), 1e-6)
        if np.isfinite(floor):
            column = floor + _excess(column - floor, noise)
        if np.isfinite(ceiling):
            column = ceiling - _excess(ceiling - column, noise)
        columns.append(column)
    return torch.stack(columns, dim=-1)


def _excess(above: Tensor, noise: float) -> Tensor:
    """E[max(above + noise eps, 0)]."""
    z = above / noise
    excess: Tensor = above * torch.special.ndtr(z) + noise * torch.exp(-0.5 * z**2) / float(np.sqrt(2 * np.pi))
    return excess


@dataclass(frozen=True)
class _Leftovers:
    """What the law leaves over in one split; all ``[N, T, ..]``."""

    inputs: Tensor
    actions: Tensor
    mask: Tensor
    law: Tensor
    outcomes: Tensor
    weights: Tensor
    unit: Tensor
    model: CorrectedModel

    @classmethod
    def of(cls, model: CorrectedModel, batch: Batch, weights: FloatArray) -> _Leftovers:
        law = model.law(model.law.window.encode(batch)[:, :-1])
        taken = np.take_along_axis(law, batch.actions[..., None, None], axis=2)[:, :, 0]
        return cls(
            torch.from_numpy(sequence_inputs(model.scaler, batch)[:, :-1]),
            torch.from_numpy(batch.actions.copy()),
            torch.from_numpy(batch.mask),
            torch.from_numpy(taken.astype(np.float32)),
            torch.from_numpy(batch.next_obs),
            torch.from_numpy(weights.astype(np.float32)),
            torch.from_numpy((model.correction_scale * model.spec.size(batch.obs[:, :-1])).astype(np.float32)),
            model,
        )

    def take(self, chosen: Tensor) -> _Leftovers:
        return replace(self, **{name: getattr(self, name)[chosen] for name in _TENSORS})

    def to(self, device: str) -> _Leftovers:
        return replace(self, **{name: getattr(self, name).to(device) for name in _TENSORS})

    def squares(self, correction: Tensor) -> Tensor:
        """``[R, d]`` weighted squared errors of corrections ``[R, A, d]`` for the R actions taken, padding left out.

        They are the errors of what the model will predict: the expectation of an outcome that stops at its limits.
        """
        unit = self.unit[self.mask]
        taken = correction[torch.arange(len(correction)), self.actions[self.mask]]
        predicted = _clipped_mean(self.law[self.mask] + unit * taken, self.model.spec)
        # What the law predicts without error (unit 0) stays as it is and costs nothing.
        error = (predicted - self.outcomes[self.mask]) / torch.where(unit > 0, unit, torch.ones_like(unit))
        return self.weights[self.mask, None] * error**2

    def per_episode(self, squares: Tensor) -> FloatArray:
        """``[N]`` mean of squares ``[R, d]`` by episode, weighted so that their mean is the mean over all actions."""
        episode, n = torch.nonzero(self.mask)[:, 0], len(self.mask)
        sums = torch.zeros(n, dtype=torch.float64).index_add_(0, episode, squares.double().mean(dim=1))
        share: FloatArray = (sums * (n / len(squares))).numpy()
        return share
