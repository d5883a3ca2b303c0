"""Training what corrects a linear law, whatever the network: CRN, RMSN, MB(h), MB(x).

RMSN (Lim et al. 2018) is MB(h)'s network trained as if treatments had been given without looking at the patient. Two
networks say how likely the treatment was: one from the treatments before it alone, one from the whole history. Their
ratio, the stabilised inverse probability of treatment, weighs each row of the regression. For one step ahead, all that
phi needs, it is that of the step itself: the history before is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs, taken
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.model import LearnedModel, RowWeights
from cirl_gym.outcome_models.networks import PropensityConfig, PropensityNetwork
from cirl_gym.outcome_models.training import History, Progress, TrainingConfig, Watch, seeded, train_network
from cirl_gym.types import FloatArray


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
    model: LearnedModel,
    splits: tuple[Batch, Batch],
    config: TrainingConfig,
    seed: int,
    progress: Progress | None = None,
    *,
    weights: tuple[FloatArray, FloatArray] | None = None,
    watch: Watch | None = None,
) -> CorrectionFit:
    """Train a model's network in place on what its law leaves over, by :func:`train_network`.

    ``weights [N, T]`` of every row of both splits (training, validation; 1 by default) also stop and judge.

    Raises:
        ValueError: the model is the law alone, or the training did not stay finite.
    """
    if model.correction is None:
        raise ValueError("there is no correction to train: the model is a linear law alone")
    network, (train, validation) = model.correction.network, splits
    row_weights = weights or (np.ones(train.actions.shape), np.ones(validation.actions.shape))
    rows, held_out = (
        _Leftovers.of(model, model.correction.scaler, batch, w).each(lambda tensor: tensor.to(config.device))
        for batch, w in zip(splits, row_weights, strict=True)
    )

    def loss(chosen: Tensor, share: float) -> Tensor:
        part = rows.each(lambda tensor: tensor[chosen])
        # Padding is dropped before anything is drawn or averaged over it.
        representation = network.represent(network.read(part.inputs)[part.mask])
        squares = part.squares(network.correction(representation))
        return squares.mean() + network.side_loss(representation, part.actions[part.mask], share)

    def held_out_squares() -> Tensor:
        hidden = network.read(held_out.inputs)[held_out.mask]
        return held_out.squares(network.correction(network.represent(hidden)))

    def mean() -> float:
        return held_out_squares().mean().item()

    history = train_network(network, loss, mean, len(train), config, seed, progress, name="correction", watch=watch)
    held_out = held_out.each(Tensor.cpu)
    with torch.no_grad():
        after = held_out.per_episode(held_out_squares())
        nothing = torch.zeros((validation.n_steps, model.n_actions, len(model.features)))
        before = held_out.per_episode(held_out.squares(nothing))
    error = float((after - before).std() / np.sqrt(len(validation)))
    return CorrectionFit(history, float(before.mean()), float(after.mean()), error)


def _clipped_mean(expected: Tensor, spec: OutcomeSpec) -> Tensor:
    """:func:`cirl_gym.outcome_models.limits.clipped_mean` with gradients, for features that have a limit."""

    def excess(above: Tensor) -> Tensor:
        """E[max(above + noise eps, 0)]."""
        z = above / noise
        total: Tensor = above * torch.special.ndtr(z) + noise * torch.exp(-0.5 * z**2) / float(np.sqrt(2 * np.pi))
        return total

    columns = []
    for j, column in enumerate(expected.unbind(dim=-1)):
        floor, ceiling, noise = float(spec.floor[j]), float(spec.ceiling[j]), max(float(spec.noise_scale[j]), 1e-6)
        if np.isfinite(floor):
            column = floor + excess(column - floor)
        if np.isfinite(ceiling):
            column = ceiling - excess(ceiling - column)
        columns.append(column)
    return torch.stack(columns, dim=-1)


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
    spec: OutcomeSpec

    @classmethod
    def of(cls, model: LearnedModel, scaler: Scaler, batch: Batch, weights: FloatArray) -> _Leftovers:
        law = model.law(model.law.window.encode(batch)[:, :-1])
        return cls(
            torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1]),
            torch.from_numpy(batch.actions.copy()),
            torch.from_numpy(batch.mask),
            torch.from_numpy(taken(law, batch).astype(np.float32)),
            torch.from_numpy(batch.next_obs),
            torch.from_numpy(weights.astype(np.float32)),
            torch.from_numpy(model.unit(batch.obs[:, :-1]).astype(np.float32)),
            model.spec,
        )

    def each(self, change: Callable[[Tensor], Tensor]) -> _Leftovers:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        changed: dict[str, Any] = {name: change(value) for name, value in values if isinstance(value, Tensor)}
        return replace(self, **changed)

    def squares(self, correction: Tensor) -> Tensor:
        """``[R, d]`` weighted squared errors of corrections ``[R, A, d]`` for the R actions taken, padding left out.

        They are the errors of what the model will predict: the expectation of an outcome that stops at its limits.
        """
        unit = self.unit[self.mask]
        taken = correction[torch.arange(len(correction)), self.actions[self.mask]]
        predicted = _clipped_mean(self.law[self.mask] + unit * taken, self.spec)
        # What the law predicts without error (unit 0) stays as it is and costs nothing.
        error = (predicted - self.outcomes[self.mask]) / torch.where(unit > 0, unit, torch.ones_like(unit))
        return self.weights[self.mask, None] * error**2

    def per_episode(self, squares: Tensor) -> FloatArray:
        """``[N]`` mean of squares ``[R, d]`` by episode, weighted so that their mean is the mean over all actions."""
        episode, n = torch.nonzero(self.mask)[:, 0], len(self.mask)
        sums = torch.zeros(n, dtype=torch.float64).index_add_(0, episode, squares.double().mean(dim=1))
        share: FloatArray = (sums * (n / len(squares))).numpy()
        return share


def treatment_weights(
    train: Batch,
    validation: Batch,
    scaler: Scaler,
    config: PropensityConfig,
    clip: float,
    seeds: tuple[int, int],
    watch: Watch | None = None,
) -> tuple[tuple[FloatArray, FloatArray], RowWeights]:
    """Stabilised weights p(a_t | treatments before) / p(a_t | whole history).

    They are clipped at two quantiles, such that a share ``clip`` of the training rows lies beyond either.

    Returns:
        Weights ``[N, T]`` of both splits, of mean 1 over the training rows and 0 on padding; and what they are worth.
    """
    batches, d = (train, validation), len(train.features)
    inputs = [torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1]) for batch in batches]
    treatments = [rows[..., d:] for rows in inputs]
    before = _log_propensity("numerator", treatments, batches, config, seeds[0], watch)
    given = _log_propensity("denominator", inputs, batches, config, seeds[1], watch)
    ratios = [np.exp(numerator - denominator) for numerator, denominator in zip(before, given, strict=True)]
    low, high = np.quantile(ratios[0][train.mask], [clip, 1 - clip])
    clipped = [np.clip(ratio, low, high) for ratio in ratios]
    rows, moved = clipped[0][train.mask], (clipped[0] != ratios[0])[train.mask]
    mean = float(rows.mean())
    first, second = (np.where(batch.mask, w / mean, 0.0) for batch, w in zip(batches, clipped, strict=True))
    effective = float(rows.sum() ** 2 / (len(rows) * (rows**2).sum()))
    extremes = float(first[first > 0].min()), float(first.max())
    return (first, second), RowWeights(mean, effective, *extremes, int(moved.sum()), len(rows))


def _log_propensity(
    name: str,
    inputs: list[Tensor],
    batches: tuple[Batch, Batch],
    config: PropensityConfig,
    seed: int,
    watch: Watch | None,
) -> list[FloatArray]:
    """Log-probability ``[N, T]`` of the treatment that was given, for both splits."""
    with seeded(seed):
        network = PropensityNetwork(inputs[0].shape[-1], batches[0].n_actions, config.hidden)
    (rows, actions, mask), (held_out, held_out_actions, held_out_mask) = (
        [part.to(config.training.device) for part in (own, torch.tensor(batch.actions), torch.tensor(batch.mask))]
        for own, batch in zip(inputs, batches, strict=True)
    )

    def loss(chosen: Tensor, _share: float) -> Tensor:
        live = mask[chosen]
        return cross_entropy(network(rows[chosen])[live], actions[chosen][live])

    def validation_loss() -> float:
        return cross_entropy(network(held_out)[held_out_mask], held_out_actions[held_out_mask]).item()

    train_network(network, loss, validation_loss, len(batches[0]), config.training, seed, name=name, watch=watch)
    with torch.inference_mode():
        logs = [torch.log_softmax(network(own).double(), dim=-1).numpy() for own in inputs]
    return [taken(own, batch) for own, batch in zip(logs, batches, strict=True)]
