"""RMSN: a recurrent network trained as if treatments had been given without looking at the patient (Lim et al. 2018).

Two networks say how likely the treatment was: one from the treatments before it alone, one from the whole history.
Their ratio, the stabilised inverse probability of treatment, weighs each row of the regression. For one step ahead, all
that phi needs, it is that of the step itself: the history before is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.networks import RNNConfig
from cirl_gym.outcome_models.training import TrainingConfig, Watch, seeded, train_network
from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class PropensityConfig:
    """The networks that say how likely a treatment was.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int = 16
    """Units of the LSTM."""
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            epochs=30, batch_size=128, fewest_steps=32, learning_rate=0.02, weight_decay=0.01, patience=4
        )
    )
    """The loop."""

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"PropensityConfig.hidden must be at least 1, got {self.hidden}")


@dataclass(frozen=True)
class RMSNConfig(RNNConfig):
    """MB(h)'s network, and how its rows are weighed.

    Raises:
        ValueError: a number is out of its range.
    """

    propensity: PropensityConfig = field(default_factory=PropensityConfig)
    """Both networks of the weights."""
    clip: float = 0.01
    """Share of the training rows at either end whose weights are moved to that quantile."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.clip < 0.5:
            raise ValueError(f"RMSNConfig.clip must lie in [0, .5), got {self.clip}")


class PropensityNetwork(nn.Module):
    """LSTM over inputs ``[N, T, I]`` to logits ``[N, T, A]``, beside a direct linear path that starts at zero."""

    def __init__(self, n_inputs: int, n_actions: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(n_inputs, hidden, batch_first=True)
        self.direct = nn.Linear(n_inputs, n_actions)
        self.remembered = nn.Linear(hidden, n_actions, bias=False)
        for parameter in (*self.direct.parameters(), *self.remembered.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the treatment at every step."""
        logits: Tensor = self.direct(inputs) + self.remembered(self.lstm(inputs)[0])
        return logits


@dataclass(frozen=True)
class TreatmentWeights:
    """Weights of the rows of both splits and what they are worth."""

    train: FloatArray
    """``[N, T]`` mean 1 over the rows that count, 0 on padding."""
    validation: FloatArray
    """The same, scaled by the training rows' mean."""
    mean: float
    """Mean of the training rows' clipped weights before scaling: near 1 if the propensities are right."""
    effective: float
    """Effective share of the training rows, (sum of weights)^2 / (n sum of their squares)."""

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return {
            "mean": self.mean,
            "effective_share": self.effective,
            "smallest": float(self.train[self.train > 0].min()),
            "largest": float(self.train.max()),
        }


def treatment_weights(
    train: Batch,
    validation: Batch,
    scaler: Scaler,
    config: PropensityConfig,
    clip: float,
    seeds: tuple[int, int],
    watch: Watch | None = None,
) -> TreatmentWeights:
    """Stabilised weights p(a_t | treatments before) / p(a_t | whole history), clipped at two quantiles of the training.

    Args:
        train: episodes to fit both networks on.
        validation: episodes to stop by.
        scaler: of the training observations.
        config: of both networks.
        clip: share of the training rows at either end.
        seeds: of the two networks.
        watch: who looks at their training.
    """
    d = len(train.features)
    inputs = [torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1]) for batch in (train, validation)]
    treatments = [rows[..., d:] for rows in inputs]
    before = _log_propensity("numerator", treatments, (train, validation), config, seeds[0], watch)
    given = _log_propensity("denominator", inputs, (train, validation), config, seeds[1], watch)
    ratios = [np.exp(numerator - denominator) for numerator, denominator in zip(before, given, strict=True)]
    low, high = np.quantile(ratios[0][train.mask], [clip, 1 - clip])
    clipped = [np.clip(ratio, low, high) for ratio in ratios]
    rows = clipped[0][train.mask]
    mean = float(rows.mean())
    weights = [np.where(batch.mask, w / mean, 0.0) for batch, w in zip((train, validation), clipped, strict=True)]
    return TreatmentWeights(weights[0], weights[1], mean, float(rows.sum() ** 2 / (len(rows) * (rows**2).sum())))


def _log_propensity(
    name: str,
    inputs: list[Tensor],
    batches: tuple[Batch, Batch],
    config: PropensityConfig,
    seed: int,
    watch: Watch | None,
) -> list[FloatArray]:
    """Log-probability ``[N, T]`` of the treatment that was given, for both splits."""
    device = config.training.device
    with seeded(seed):
        network = PropensityNetwork(inputs[0].shape[-1], batches[0].n_actions, config.hidden)
    placed = [rows.to(device) for rows in inputs]
    actions = [torch.from_numpy(batch.actions.copy()).to(device) for batch in batches]
    masks = [torch.from_numpy(batch.mask).to(device) for batch in batches]

    def loss(chosen: Tensor, _share: float) -> Tensor:
        live = masks[0][chosen]
        return cross_entropy(network(placed[0][chosen])[live], actions[0][chosen][live])

    def validation_loss() -> float:
        return cross_entropy(network(placed[1])[masks[1]], actions[1][masks[1]]).item()

    train_network(network, loss, validation_loss, len(batches[0]), config.training, seed, name=name, watch=watch)
    found = []
    with torch.inference_mode():
        for rows, batch in zip(inputs, batches, strict=True):
            logs = torch.log_softmax(network(rows).double(), dim=-1).numpy()
            found.append(np.take_along_axis(logs, batch.actions[..., None], axis=2)[..., 0])
    return found
