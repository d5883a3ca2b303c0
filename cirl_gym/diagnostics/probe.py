"""What tells the treatment: a fresh classifier of the action, on a model's representation or on the history itself.

A representation that is balanced (CRN) does not tell which action the expert chose; how far that was reached can only
be said by a classifier that had no part in the training. The same classifier on the history itself estimates the
propensity P(a | h): where it is near zero, that action was hardly ever tried, and what a model says of it is
extrapolated; the same goes for where roll-outs of policies leave what the data have seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.inputs import Window, taken
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.training import TrainingConfig, seeded, train_network
from cirl_gym.types import BoolArray, Float32Array, FloatArray

Inputs = Callable[[Batch], Float32Array]
"""From episodes to ``[N, T, F]``: what the classifier sees at every step before the action."""

HIDDEN = 32
TRAINING = TrainingConfig(epochs=40, weight_decay=0.1, patience=5)
HELD_OUT = 0.15
"""Share of the training patients by which the classifier's training is stopped."""
ORDERS = (1, 5)
"""Numbers of past observations tried for the propensity."""
RARE = 0.05
"""A propensity below this is called rare."""


class ActionClassifier(nn.Module):
    """Logits of the action: constant + linear + one hidden layer; the constant starts as the log of the frequencies.

    All else starts at zero, so that training starts at "as often as in the data" and stays there if nothing helps.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, frequencies: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.constant = nn.Parameter(torch.log(frequencies))
        self.direct = nn.Linear(len(mean), len(frequencies), bias=False)
        self.hidden = nn.Linear(len(mean), HIDDEN)
        self.curved = nn.Linear(HIDDEN, len(frequencies), bias=False)
        for layer in (self.direct, self.curved):
            nn.init.zeros_(layer.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``[.., A]`` for inputs ``[.., F]``."""
        standard = (inputs - self.mean) / self.scale
        total: Tensor = self.constant + self.direct(standard) + self.curved(nn.functional.elu(self.hidden(standard)))
        return total


@dataclass(frozen=True)
class FittedClassifier:
    """A trained classifier and what it reads."""

    network: ActionClassifier
    inputs: Inputs
    loss: float
    """Mean log-loss per step on the patients by which its training was stopped."""

    def probabilities(self, batch: Batch) -> FloatArray:
        """P(a | inputs) ``[N, T, A]``; rows on padding mean nothing."""
        with torch.inference_mode():
            logits = self.network(torch.from_numpy(self.inputs(batch))).double()
            chances: FloatArray = torch.softmax(logits, dim=-1).numpy()
        return chances


def fit_classifier(inputs: Inputs, train: Batch, rng: np.random.Generator) -> FittedClassifier:
    """Train a classifier of the action taken at every step.

    Args:
        inputs: what it sees.
        train: episodes of at least two patients; some of them only say when to stop.
        rng: the split, first weights and order.

    Raises:
        ValueError: all episodes are of one patient.
    """
    rows, held_out = train.split(HELD_OUT, rng)
    seed = int(rng.integers(2**31))
    seen, mask, actions = _tensors(inputs, rows)
    seen_out, mask_out, actions_out = _tensors(inputs, held_out)
    live = seen[mask].double()
    spread = live.std(dim=0, unbiased=False)
    constant = spread <= 1e-9 * live.abs().amax(dim=0).clamp(min=1.0)
    # An action that was never taken still has a logit: half a count for each.
    counts = torch.bincount(actions[mask], minlength=train.n_actions).float() + 0.5
    with seeded(seed):
        scale = torch.where(constant, 1.0, spread)
        network = ActionClassifier(live.mean(dim=0).float(), scale.float(), counts / counts.sum())

    def loss(chosen: Tensor, share: float) -> Tensor:
        there = mask[chosen]
        return cross_entropy(network(seen[chosen][there]), actions[chosen][there])

    def held_out_loss() -> float:
        return cross_entropy(network(seen_out[mask_out]), actions_out[mask_out]).item()

    history = train_network(network, loss, held_out_loss, len(rows), TRAINING, seed, name="probe")
    return FittedClassifier(network, inputs, min(history.validation))


@dataclass(frozen=True)
class TreatmentProbe:
    """How well a fresh classifier tells the action taken, on held-out patients."""

    accuracy: float
    """Share of steps whose most likely action was taken."""
    majority: float
    """Share of steps at which the action most frequent in training was taken: what no representation is needed for."""
    standard_error: float
    """Of the difference between the two, by episode."""
    log_loss: float
    """Mean log-loss per step."""
    base_log_loss: float
    """That of the frequencies in training."""
    width: int
    """F, how many numbers the classifier sees."""
    n: int
    """Held-out steps."""


def treatment_probe(inputs: Inputs, train: Batch, test: Batch, rng: np.random.Generator) -> TreatmentProbe:
    """Train a fresh classifier on one part of the data and judge it on another."""
    chances = fit_classifier(inputs, train, rng).probabilities(test)
    return judged(chances, train, test, inputs(test).shape[-1])


def judged(chances: FloatArray, train: Batch, test: Batch, width: int) -> TreatmentProbe:
    """What probabilities ``[N, T, A]`` of the actions along ``test`` are worth beside the frequencies in ``train``."""
    counts = np.bincount(train.actions[train.mask], minlength=train.n_actions) + 0.5
    right = (chances.argmax(axis=-1) == test.actions) & test.mask
    frequent = (test.actions == counts.argmax()) & test.mask
    likely = taken(chances, test)[test.mask]
    base = (counts / counts.sum())[test.actions[test.mask]]
    accuracy, majority = right.sum() / test.n_steps, frequent.sum() / test.n_steps
    # Steps of one episode are not independent: each episode counts as one, weighted by its length.
    gain = (right.sum(axis=1) - frequent.sum(axis=1)) - (accuracy - majority) * test.lengths
    error = float(np.sqrt((gain**2).sum()) / test.n_steps)
    return TreatmentProbe(
        float(accuracy),
        float(majority),
        error,
        float(-np.log(np.maximum(likely, 1e-12)).mean()),
        float(-np.log(base).mean()),
        width,
        test.n_steps,
    )


def representations(model: OutcomeModel) -> dict[str, Inputs]:
    """What a model makes of a history, by name: all of its state, or the parts of a recurrent one.

    "window" is the last observations and actions of the linear law, "memory" the LSTM's hidden state, and
    "representation" what the network's outcome layers see of it (the balanced one of a CRN).
    """
    correction = model.correction if isinstance(model, LearnedModel) else None
    if not isinstance(model, LearnedModel) or correction is None or correction.network.lstm is None:
        return {"state": lambda batch: model.encode(batch)[:, :-1]}

    def window(batch: Batch) -> Float32Array:
        return model.law.window.encode(batch)[:, :-1]

    def memory(batch: Batch) -> Float32Array:
        return correction.remembered(*asked(batch))

    def representation(batch: Batch) -> Float32Array:
        return correction.represented(*asked(batch))

    def asked(batch: Batch) -> tuple[Float32Array, Float32Array]:
        rows, memories = model.parts(model.encode(batch)[:, :-1])
        return model.law.window.newest(rows), memories

    return {"window": window, "memory": memory, "representation": representation}


def fit_propensity(train: Batch, rng: np.random.Generator) -> FittedClassifier:
    """P(a | h) from the last observations and actions and the time; how many of them is chosen by log-loss."""
    horizon = train.horizon
    fits = [
        fit_classifier(recent_history(Window(order, len(train.features), train.n_actions), horizon), train, rng)
        for order in ORDERS
    ]
    return min(fits, key=lambda fit: fit.loss)


def recent_history(window: Window, horizon: int) -> Inputs:
    """The window's row and the share of the horizon that has passed."""

    def inputs(batch: Batch) -> Float32Array:
        rows = window.encode(batch)[:, :-1]
        time = np.broadcast_to(np.arange(batch.horizon)[:, None] / horizon, (*rows.shape[:2], 1))
        return np.concatenate([rows, time], axis=2, dtype=np.float32)

    return inputs


@dataclass(frozen=True)
class Overlap:
    """How often an action had next to no chance of being taken."""

    threshold: float
    taken: float
    """Share of steps at which the action that was taken had a propensity below the threshold."""
    any: float
    """Share of steps at which some action had."""
    by_action: tuple[float, ...]
    """``[A]`` share of steps at which this action had."""
    n: int
    """Steps."""


def overlap(chances: FloatArray, batch: Batch, threshold: float = RARE) -> Overlap:
    """Overlap along a batch from propensities ``[N, T, A]``, estimated or true."""
    rare: BoolArray = chances[batch.mask] < threshold
    chosen = rare[np.arange(len(rare)), batch.actions[batch.mask]]
    by_action = tuple(float(share) for share in rare.mean(axis=0))
    return Overlap(threshold, float(chosen.mean()), float(rare.any(axis=1).mean()), by_action, len(rare))


def _tensors(inputs: Inputs, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return torch.from_numpy(inputs(batch)), torch.from_numpy(batch.mask), torch.from_numpy(batch.actions.copy())


@dataclass(frozen=True)
class Support:
    """How often roll-outs leave the data."""

    outside: float
    """Share of steps whose outcome leaves the range of the data in some feature."""
    features: tuple[float, ...]
    """``[d]`` the same, feature by feature."""
    rare: float
    """Share of steps at which the experts, with this history, would hardly ever have taken this action."""
    steps: float
    """Mean length of the roll-outs."""
    n: int
    """Steps."""


def data_range(train: Batch) -> tuple[FloatArray, FloatArray]:
    """``[d]`` least and most of each feature in a batch, padding left out."""
    rows = train.obs[train.seen].astype(np.float64)
    return rows.min(axis=0), rows.max(axis=0)


def support(
    rolled: Batch, span: tuple[FloatArray, FloatArray], propensity: FittedClassifier, threshold: float = RARE
) -> Support:
    """Judge roll-outs of a policy in the world model.

    Args:
        rolled: episodes of one policy (:func:`cirl_gym.data.rollout.rollout`).
        span: of the data (:func:`data_range`).
        propensity: of the data.
        threshold: a propensity below it is rare.
    """
    outcomes = rolled.next_obs[rolled.mask]
    outside = (outcomes < span[0]) | (outcomes > span[1])
    chances = propensity.probabilities(rolled)
    return Support(
        float(outside.any(axis=1).mean()),
        tuple(float(share) for share in outside.mean(axis=0)),
        float((taken(chances, rolled)[rolled.mask] < threshold).mean()),
        float(rolled.lengths.mean()),
        len(outcomes),
    )
