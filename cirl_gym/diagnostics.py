"""Diagnostics of outcome models: whether what a model says of chance holds, and what tells the treatment.

:func:`interval_coverage` and :func:`end_calibration` compare intervals and probabilities of an end with what happened.
A representation that is balanced (CRN) does not tell which action the expert chose; how far that was reached can only
be said by a classifier that had no part in the training (:func:`treatment_probe`). The same classifier on the history
itself estimates the propensity P(a | h): where it is near zero, that action was hardly ever tried, and what a model
says of it is extrapolated (:func:`overlap`; :func:`effective_sizes` says what is left to compare two actions); the same
goes for where roll-outs of policies leave what the data have seen (:func:`support`). Errors one and several steps ahead
are in :mod:`cirl_gym.outcome_models.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import without
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.inputs import Window, end_labels, taken
from cirl_gym.outcome_models.known import KnowingModel
from cirl_gym.outcome_models.model import LearnedModel, RowWeights
from cirl_gym.outcome_models.training import TrainingConfig, seeded, train_network
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

LEVELS = (0.5, 0.8, 0.9, 0.95)
FAR = 4.0
"""So many standard deviations from a bound it no longer cuts the noise off."""
EDGES = (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
"""Of the bins of probabilities of an end; most are near 0 or near 1."""


@dataclass(frozen=True)
class IntervalCoverage:
    """How often outcomes lie in central intervals of one nominal level."""

    level: float
    """Nominal share."""
    features: tuple[float, ...]
    """``[d]`` share of outcomes inside."""
    pooled: float
    """Share over all features."""
    free: float | None
    """The same over predictions that no bound is near (see :data:`FAR`); None: there are none.

    An outcome that cannot fall below zero has no noise there, and any interval holds it.
    """
    n: int
    """Outcomes, over all features."""
    n_free: int
    """Those that no bound is near."""
    standard_error: float
    """Of ``free`` (where that is None, of ``pooled``), by episode: outcomes of one episode are not independent."""


def interval_coverage(
    members: npt.NDArray[np.floating],
    noise_scale: FloatArray,
    outcomes: npt.NDArray[np.floating],
    bounds: tuple[FloatArray, FloatArray],
    levels: Sequence[float] = LEVELS,
    episode: IntArray | None = None,
) -> tuple[IntervalCoverage, ...]:
    """Share of outcomes inside the intervals of an ensemble, or of a single model.

    The interval is mean +- z sqrt(variance between members + noise^2), z the normal quantile: what the members disagree
    about and what no model foresees. With one member it is expected +- z noise.

    Args:
        members: ``[M, R, d]`` predictions, raw units.
        noise_scale: ``[d]`` standard deviation of outcomes around the expected one, raw units.
        outcomes: ``[R, d]`` what was observed, on patients that no member was fitted on.
        bounds: ``[d]`` lower and upper limit of any outcome.
        levels: nominal shares, inside (0, 1).
        episode: ``[R]`` whose outcomes they are; default: each of another episode.

    Raises:
        ValueError: shapes do not agree, nothing was observed, or a level is not inside (0, 1).
    """
    if members.ndim != 3 or members.shape[1:] != outcomes.shape or members.size == 0:
        raise ValueError(f"members must be [M, R, d] for outcomes {outcomes.shape}, got {members.shape}")
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"levels must lie between 0 and 1, got {tuple(levels)}")
    mean = members.mean(axis=0, dtype=np.float64)
    between = members.var(axis=0, dtype=np.float64, ddof=1) if len(members) > 1 else np.zeros(mean.shape)
    spread = np.sqrt(between + noise_scale**2)
    away = np.abs(outcomes - mean)
    free = np.minimum(mean - bounds[0], bounds[1] - mean) > FAR * spread
    judged = free if free.any() else np.ones_like(free)
    whose = np.arange(len(outcomes)) if episode is None else episode
    found = []
    for level in levels:
        # Predictions are float32: what is exact without noise is exact to that.
        inside = away <= ndtri(0.5 + 0.5 * level) * spread + 1e-6 * np.maximum(np.abs(mean), 1.0)
        shares = tuple(map(float, inside.mean(axis=0)))
        alone = float(inside[free].mean()) if free.any() else None
        gain = np.where(judged, inside - inside[judged].mean(), 0.0).sum(axis=1)
        error = float(np.sqrt((np.bincount(whose, gain) ** 2).sum()) / judged.sum())
        found.append(IntervalCoverage(level, shares, float(inside.mean()), alone, inside.size, int(free.sum()), error))
    return tuple(found)


def member_predictions(model: OutcomeModel, batch: Batch) -> npt.NDArray[np.float32]:
    """``[M, R, d]`` expected outcomes of the R actions taken, by every member; a single model is its only one."""
    members: Sequence[OutcomeModel] = getattr(model, "members", (model,))
    return np.stack([taken(one.predict(one.encode(batch)[:, :-1]), batch)[batch.mask] for one in members])


@dataclass(frozen=True)
class EndBin:
    """Steps whose predicted probability of an end lies in [low, high), the last bin in [low, high]."""

    low: float
    high: float
    n: int
    """Steps."""
    predicted: float
    """Their mean probability."""
    observed: float
    """Share of them at which the process did end."""


@dataclass(frozen=True)
class EndCalibration:
    """Predicted probabilities of an end against ends."""

    bins: tuple[EndBin, ...]
    """Those with a step in them."""
    expected: float
    """Number of ends that the model expects: the sum of its probabilities."""
    observed: int
    """Number of ends."""
    deviation: float
    """Standard deviation of the number of ends if the probabilities are right."""
    n: int
    """Steps."""


def end_calibration(model: OutcomeModel, batch: Batch, edges: Sequence[float] = EDGES) -> EndCalibration:
    """Probabilities of an end with the actions that were taken, against the ends.

    The episodes are held out, and their ends counted as those that the model was fitted on
    (:meth:`~cirl_gym.data.batch.Batch.with_early_ends`); ``edges`` of the bins go from 0 to 1.
    """
    every = model.end_probability(model.encode(batch)[:, :-1]).astype(np.float64)
    chance = taken(every, batch)[batch.mask]
    ended = end_labels(batch)[batch.mask]
    which = np.clip(np.searchsorted(edges, chance, side="right") - 1, 0, len(edges) - 2)
    bins = []
    for i in np.unique(which):
        chosen = which == i
        predicted, observed = float(chance[chosen].mean()), float(ended[chosen].mean())
        bins.append(EndBin(float(edges[i]), float(edges[i + 1]), int(chosen.sum()), predicted, observed))
    deviation = float(np.sqrt((chance * (1 - chance)).sum()))
    return EndCalibration(tuple(bins), float(chance.sum()), int(ended.sum()), deviation, len(chance))


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

    @torch.inference_mode()
    def probabilities(self, batch: Batch) -> FloatArray:
        """P(a | inputs) ``[N, T, A]``; rows on padding mean nothing."""
        logits = self.network(torch.from_numpy(self.inputs(batch))).double()
        return torch.softmax(logits, dim=-1).numpy()


def fit_classifier(inputs: Inputs, train: Batch, rng: np.random.Generator) -> FittedClassifier:
    """Train a classifier of the action taken at every step; some of the patients only say when to stop.

    Raises:
        ValueError: all episodes are of one patient.
    """
    rows, held_out = train.split(HELD_OUT, rng)
    seed = int(rng.integers(2**31))
    (seen, mask, actions), (seen_out, mask_out, actions_out) = (
        (torch.from_numpy(inputs(part)), torch.from_numpy(part.mask), torch.from_numpy(part.actions.copy()))
        for part in (rows, held_out)
    )
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
    if isinstance(model, KnowingModel):
        inner = representations(model.model)
        return {name: partial(_without_known, part, tuple(model.known)) for name, part in inner.items()}
    correction = model.correction if isinstance(model, LearnedModel) else None
    if not isinstance(model, LearnedModel) or correction is None or correction.network.lstm is None:
        return {"state": lambda batch: model.encode(batch)[:, :-1]}

    def asked(batch: Batch) -> tuple[Float32Array, Float32Array]:
        rows, memories = model.parts(model.encode(batch)[:, :-1])
        return model.law.window.newest(rows), memories

    return {
        "window": lambda batch: model.law.window.encode(batch)[:, :-1],
        "memory": lambda batch: correction.remembered(*asked(batch)),
        "representation": lambda batch: correction.represented(*asked(batch)),
    }


def row_weights(model: OutcomeModel) -> tuple[RowWeights, ...]:
    """How the rows of a model's networks were weighed, one for each RMSN in it that was kept."""
    if isinstance(model, KnowingModel):
        return row_weights(model.model)
    members: Sequence[OutcomeModel] = getattr(model, "members", (model,))
    corrections = [one.correction for one in members if isinstance(one, LearnedModel)]
    return tuple(one.weights for one in corrections if one is not None and one.weights is not None)


def _without_known(part: Inputs, known: tuple[int, ...], batch: Batch) -> Float32Array:
    return part(without(batch, known))


def fit_propensity(train: Batch, rng: np.random.Generator) -> FittedClassifier:
    """P(a | h) from the last observations and actions and the time; how many of them is chosen by log-loss."""

    def recent(order: int, batch: Batch) -> Float32Array:
        """The window's row and the share of the horizon that has passed."""
        rows = Window(order, len(train.features), train.n_actions).encode(batch)[:, :-1]
        time = np.broadcast_to(np.arange(batch.horizon)[:, None] / train.horizon, (*rows.shape[:2], 1))
        return np.concatenate([rows, time], axis=2, dtype=np.float32)

    fits = [fit_classifier(partial(recent, order), train, rng) for order in ORDERS]
    return min(fits, key=lambda fit: fit.loss)


@dataclass(frozen=True)
class EffectiveSize:
    """What the comparison of an action with the first one rests on."""

    taken: int
    """Decisions for the action."""
    compared: int
    """Decisions for the action or the first one."""
    inverse: float | None
    """Effective number of those under inverse propensity weights; None: one of the two actions never occurs."""
    overlap: float | None
    """The same under overlap weights, which count most where both actions were possible."""


def effective_sizes(chances: FloatArray, actions: IntArray) -> tuple[EffectiveSize, ...]:
    """Effective sample size (sum w)^2 / sum w^2 of the comparison of every action but the first with the first.

    Among the decisions for either, e being the propensity of the one that was taken, weights are 1 / e (inverse) or
    1 - e (overlap; Li, Morgan and Zaslavsky 2018). With noise alike everywhere, the difference of the two weighted
    means is as sure as that of so many decisions by the toss of a coin (Kish 1965).

    Args:
        chances: ``[R, A]`` propensities.
        actions: ``[R]`` what was taken.

    Returns:
        Of actions 1 to A - 1.

    Raises:
        ValueError: shapes do not agree.
    """
    if chances.ndim != 2 or actions.shape != chances.shape[:1]:
        raise ValueError(f"chances must be [R, A] for actions [R], got {chances.shape} and {actions.shape}")

    def worth(weights: FloatArray) -> float:
        return float(weights.sum() ** 2 / (weights**2).sum())

    found = []
    for action in range(1, chances.shape[1]):
        either = (actions == 0) | (actions == action)
        both, taken_one = np.maximum(chances[either][:, [0, action]], 1e-12), actions[either] == action
        own = np.where(taken_one, both[:, 1], both[:, 0]) / both.sum(axis=1)
        told = taken_one.any() and not taken_one.all()
        sizes = (worth(1 / own), worth(np.maximum(1 - own, 1e-12))) if told else (None, None)
        found.append(EffectiveSize(int(taken_one.sum()), len(own), *sizes))
    return tuple(found)


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
    effective: tuple[EffectiveSize, ...]
    """``[A - 1]`` of the comparison of every action but the first with the first."""


def overlap(chances: FloatArray, batch: Batch, threshold: float = RARE) -> Overlap:
    """Overlap along a batch from propensities ``[N, T, A]``, estimated or true."""
    rows, actions = chances[batch.mask], batch.actions[batch.mask]
    rare: BoolArray = rows < threshold
    chosen, any_rare = (float(part.mean()) for part in (rare[np.arange(len(rare)), actions], rare.any(axis=1)))
    by_action = tuple(map(float, rare.mean(axis=0)))
    return Overlap(threshold, chosen, any_rare, by_action, len(rare), effective_sizes(rows, actions))


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
    """Judge roll-outs of a policy in the world model by the range (:func:`data_range`) and propensity of the data."""
    outcomes = rolled.next_obs[rolled.mask]
    outside = (outcomes < span[0]) | (outcomes > span[1])
    chances = propensity.probabilities(rolled)
    return Support(
        float(outside.any(axis=1).mean()),
        tuple(map(float, outside.mean(axis=0))),
        float((taken(chances, rolled)[rolled.mask] < threshold).mean()),
        float(rolled.lengths.mean()),
        len(outcomes),
    )
