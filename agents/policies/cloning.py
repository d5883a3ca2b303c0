"""Behaviour cloning with memory: which action the expert would take after this history, learnt as a classification.

The baseline that says how well the expert can be copied without asking what the expert wants. First a ridge logistic
regression of the action on the last observation, the last two actions and how often each was taken so far; then a
network with memory, which has to beat it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from agents.policies.policy import RecurrentPolicy, drawn_with, only_allowed
from cirl_gym.data.batch import Batch, warn_of_actions_never_taken
from cirl_gym.data.rules import ActionRules, among_allowed
from cirl_gym.files import loading
from cirl_gym.outcome_models.inputs import Scaler, one_hot, sequence_inputs
from cirl_gym.outcome_models.network_files import (
    Arrays,
    load_module_arrays,
    module_arrays,
    part,
    prefixed,
    read_model_file,
    size_of,
    stored_module,
    write_model_file,
)
from cirl_gym.outcome_models.networks import lstm_step
from cirl_gym.outcome_models.training import ENOUGH_TO_JUDGE, History, Progress, TrainingConfig, seeded, train_network
from cirl_gym.types import BoolArray, FloatArray, IntArray

PREVIOUS_PRIOR = 2.0
"""Standard deviation of the normal prior on the weights of the actions before."""
FOLDS = 5
"""Parts of the patients, each left out once, by which the prior on the covariates' weights is chosen."""
MOST = 6000
"""Decisions by which it is chosen, about."""
ENOUGH = 200_000
"""Decisions that a logistic regression is fitted to, at most."""


def checked_splits(train: Batch, validation: Batch, rules: ActionRules | None) -> tuple[Batch, Batch]:
    """The expert's episodes to learn from and to stop by, with the masks of the rules.

    Raises:
        ValueError: they do not have the same features and actions, or do not fit the rules.
    """
    if (train.features, train.action_names) != (validation.features, validation.action_names):
        raise ValueError("the training and the validation batch do not have the same features and actions")
    return (train, validation) if rules is None else (rules.masked(train), rules.masked(validation))


def episode_tensors(scaler: Scaler, batch: Batch, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Inputs ``[N, T, d + A]``, actions and mask ``[N, T]`` of episodes, and what was allowed ``[N, T, A]``."""
    return (
        torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1]).to(device),
        torch.from_numpy(batch.actions.copy()).to(device),
        torch.from_numpy(batch.mask).to(device),
        None if batch.allowed is None else torch.from_numpy(batch.allowed.copy()).to(device),
    )


def with_past(inputs: Tensor, before: Tensor, counts: Tensor) -> Tensor:
    """What the direct path looks at, ``[.., d + 3 A]``.

    Args:
        inputs: ``[.., d + A]`` scaled x_t and one-hot a_{t-1}.
        before: ``[.., A]`` one-hot a_{t-2}.
        counts: ``[.., A]`` how often each action was taken until then; its shares are looked at.
    """
    return torch.cat([inputs, before, counts / counts.sum(dim=-1, keepdim=True).clamp(min=1.0)], dim=-1)


def with_past_along(inputs: Tensor, n_actions: int) -> Tensor:
    """The same ``[N, T, d + 3 A]`` for whole episodes ``[N, T, d + A]``."""
    previous = inputs[..., -n_actions:]
    before = torch.cat([torch.zeros_like(previous[:, :1]), previous[:, :-1]], dim=1)
    return with_past(inputs, before, previous.cumsum(dim=1))


@dataclass(frozen=True)
class LogisticFit:
    """Logits = inputs . weights + bias, for the inputs of :func:`with_past`."""

    weights: FloatArray
    """``[d + 3 A, A]``."""
    bias: FloatArray
    """``[A]``."""
    prior: float
    """Standard deviation of the prior on the covariates' weights; 0: covariates are left out."""


@dataclass(frozen=True)
class Rows:
    """Decisions, one a row, whatever batch they come from."""

    inputs: FloatArray
    """``[R, F]``."""
    targets: IntArray
    """``[R]`` the actions taken."""
    allowed: BoolArray
    """``[R, A]``."""
    groups: npt.NDArray[np.str_]
    """``[R]`` whose they are."""

    @classmethod
    def of(cls, scaler: Scaler, *batches: Batch) -> Rows:
        """The decisions of batches, one after the other."""
        inputs, targets, allowed, groups = [], [], [], []
        for batch in batches:
            seen = torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1])
            every = np.ones((*batch.actions.shape, batch.n_actions), dtype=np.bool_)
            inputs.append(with_past_along(seen, batch.n_actions).numpy()[batch.mask].astype(np.float64))
            targets.append(batch.actions[batch.mask])
            allowed.append((every if batch.allowed is None else batch.allowed)[batch.mask])
            groups.append(np.repeat(np.array(batch.groups), batch.lengths))
        return cls(*(np.concatenate(parts) for parts in (inputs, targets, allowed, groups)))

    def take(self, rows: BoolArray) -> Rows:
        """Some of them."""
        return Rows(self.inputs[rows], self.targets[rows], self.allowed[rows], self.groups[rows])


def chosen_prior(rows: Rows, priors: tuple[float, ...]) -> float:
    """The prior on the covariates' weights under which decisions of other patients are likeliest.

    Patients are left out by turns, a fifth of them at a time; of equals, the smallest prior is taken. Of many decisions
    a part of the patients is enough.
    """
    names, patient = np.unique(rows.groups, return_inverse=True)
    if len(names) < 2:
        return min(priors)
    every = max(min(-(-len(patient) // MOST), len(names) // FOLDS), 1)
    rows, patient = rows.take(patient % every == 0), patient[patient % every == 0] // every
    folds, losses = patient % FOLDS, np.zeros(len(priors))
    ascending = sorted(priors)
    for fold in range(folds.max() + 1):
        fitted, others = rows.take(folds != fold), rows.take(folds == fold)
        for i, prior in enumerate(ascending):
            fit = fit_logistic(fitted, prior)
            logits = np.where(others.allowed, others.inputs @ fit.weights + fit.bias, -np.inf)
            logs = logits - logsumexp(logits, axis=1, keepdims=True)
            losses[i] -= logs[np.arange(len(logs)), others.targets].sum()
    return ascending[int(losses.argmin())]


def fit_logistic(rows: Rows, prior: float) -> LogisticFit:
    """Weights of largest posterior density; each decision is one among the actions that were allowed."""
    n_actions = rows.allowed.shape[1]
    d = rows.inputs.shape[1] - 3 * n_actions
    spread = np.concatenate([np.full(d, prior), np.full(3 * n_actions, PREVIOUS_PRIOR)])
    used = spread > 0
    allowed = None if rows.allowed.all() else rows.allowed
    found, bias = _maximise(rows.inputs[:, used], rows.targets, n_actions, spread[used], allowed)
    weights = np.zeros((len(spread), n_actions))
    weights[used] = found
    return LogisticFit(weights, bias, prior)


def episode_losses(logits: FloatArray, batch: Batch) -> FloatArray:
    """``[N]`` log-loss of the actions taken under logits ``[N, T, A]``; their mean is the mean over all actions.

    An action that was not allowed has no share in it, whatever its logit.
    """
    among = among_allowed(logits, batch.allowed)
    logs = among - logsumexp(among, axis=2, keepdims=True)
    taken = np.take_along_axis(logs, batch.actions[..., None], axis=2)[..., 0]
    losses: FloatArray = -np.where(batch.mask, taken, 0.0).sum(axis=1) * (len(batch) / batch.n_steps)
    return losses


def _maximise(
    inputs: FloatArray, targets: IntArray, n_actions: int, spread: FloatArray, allowed: BoolArray | None
) -> tuple[FloatArray, FloatArray]:
    """Weights ``[F, A]`` and bias ``[A]`` of largest posterior density; ``spread`` ``[F]``: the priors' deviations."""
    n, width = inputs.shape
    hot = one_hot(targets, n_actions).astype(np.float64)
    precision = 1.0 / (spread[:, None] ** 2 * n)

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        weights, bias = flat[: width * n_actions].reshape(width, n_actions), flat[width * n_actions :]
        logits = among_allowed(inputs @ weights + bias, allowed)
        logs = logits - logsumexp(logits, axis=1, keepdims=True)
        surprise = np.exp(logs) - hot
        fit = -np.where(hot > 0, logs, 0.0).sum() / n
        loss = fit + 0.5 * (precision * weights**2).sum() + 0.5e-4 * (bias**2).sum() / n
        slope = inputs.T @ surprise / n + precision * weights
        return float(loss), np.concatenate([slope.ravel(), surprise.mean(axis=0) + 1e-4 * bias / n])

    start = np.zeros((width + 1) * n_actions)
    solution = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return solution[: width * n_actions].reshape(width, n_actions), solution[width * n_actions :]


@dataclass(frozen=True)
class CloningConfig:
    """Size of the network and how it is trained.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int = 32
    """Units of the LSTM."""
    dropout: float = 0.1
    """Of the LSTM's output, in training only."""
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            epochs=8,
            batch_size=128,
            fewest_steps=32,
            learning_rate=0.03,
            weight_decay=0.1,
            patience=8,
            schedule="cosine",
        )
    )
    """The loop: few epochs of small steps, at a rate that falls to 0. Measured on 9,000 simulated episodes: log-loss
    .315 in 5 s, where thirty epochs at a constant low rate gave .317 in 13; on tables of hospital stays about the same
    as they, or less."""
    priors: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
    """Standard deviations tried for the prior on the covariates' weights in the logistic regression."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "priors", tuple(self.priors))
        if not self.priors or min(self.priors) < 0:
            raise ValueError(f"CloningConfig.priors must be non-negative numbers, got {self.priors}")
        if self.hidden < 1 or not 0 <= self.dropout < 1:
            raise ValueError(f"CloningConfig: hidden must be at least 1 and dropout in [0, 1), got {self}")

    def longer(self) -> CloningConfig:
        """Three times the epochs, none of which is the last for lack of gain: more time for a better copy."""
        epochs = 3 * self.training.epochs
        return replace(self, training=replace(self.training, epochs=epochs, patience=epochs))


class CloningNetwork(nn.Module):
    """LSTM over [scaled x_t, one-hot a_{t-1}] to logits, beside a direct linear path.

    The linear path (of :func:`with_past`) starts as a logistic regression, which is what a table of a few dozen
    patients can support; the LSTM's part starts at zero. With ``outputs`` k it gives ``[.., k A]`` numbers: k for every
    action.
    """

    def __init__(self, n_features: int, n_actions: int, config: CloningConfig, outputs: int = 1) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.config = n_features, n_actions, config
        self.lstm = nn.LSTM(n_features + n_actions, config.hidden, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.direct = nn.Linear(n_features + 3 * n_actions, outputs * n_actions)
        self.remembered = nn.Linear(config.hidden, outputs * n_actions, bias=False)
        for parameter in (*self.direct.parameters(), *self.remembered.parameters()):
            nn.init.zeros_(parameter)

    def logits(self, seen: Tensor, hidden: Tensor) -> Tensor:
        """``[.., A]`` for what the direct path sees ``[.., d + 3 A]`` and the LSTM's outputs ``[.., H]``."""
        total: Tensor = self.direct(seen) + self.remembered(self.dropout(hidden))
        return total

    def sequence_logits(self, inputs: Tensor) -> Tensor:
        """``[N, T, A]`` for whole episodes ``[N, T, d + A]`` from zero states."""
        return self.logits(with_past_along(inputs, self.n_actions), self.lstm(inputs)[0])

    def live_logits(self, inputs: Tensor, live: Tensor) -> Tensor:
        """``[M, A]`` of the M steps that are ``live`` ``[N, T]``, one after the other.

        Padding is dropped before dropout is drawn: how far a batch is padded changes nothing.
        """
        return self.logits(with_past_along(inputs, self.n_actions)[live], self.lstm(inputs)[0][live])


class CloningPolicy(RecurrentPolicy):
    """The cloned expert as a :class:`~cirl_gym.types.Policy`; its scores are logits.

    Args:
        network: gives logits.
        scaler: of its inputs.
        rng: of drawn actions.
        rules: what they forbid has no probability; None: nothing is forbidden.
    """

    def __init__(
        self, network: CloningNetwork, scaler: Scaler, rng: np.random.Generator, rules: ActionRules | None = None
    ) -> None:
        super().__init__(scaler, network.n_actions, network.config.hidden, rules)
        self.network, self.rng = network, rng

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits ``[n, A]`` after one more input, and the states after it."""
        *states, before, counts = memory
        previous = inputs[:, -self.n_actions :]
        counts = counts + previous
        following = lstm_step(self.network.lstm, inputs, *states)
        return self.network.logits(with_past(inputs, before, counts), following[0]), (*following, previous, counts)

    def empty(self, n: int) -> list[npt.NDArray[Any]]:
        """The LSTM's two states, the action before the last one, and how often each was taken."""
        return [*super().empty(n), *[np.zeros((n, self.n_actions), dtype=np.float32)] * 2]

    def draw(self, scores: FloatArray) -> IntArray:
        """Actions ``[n]`` drawn from the softmax of logits, with the policy's own generator."""
        return drawn_with(torch.softmax(torch.from_numpy(scores), dim=-1).numpy(), self.rng)

    def log_probabilities(self, batch: Batch) -> FloatArray:
        """``[N, T, A]`` log-probability of every action after every history; 0 on padding.

        Minus infinity where an action was not allowed: by the batch, or, where it does not say, by the policy's rules.
        """
        allowed = batch.allowed
        if allowed is None and self.rules is not None:
            allowed = self.rules.allowed_along(batch)[:, :-1]
        with torch.inference_mode():
            inputs = torch.from_numpy(sequence_inputs(self.scaler, batch)[:, :-1])
            logits = self.network.sequence_logits(inputs).double().numpy()
            logs = torch.log_softmax(torch.from_numpy(among_allowed(logits, allowed)), dim=-1).numpy()
        return np.where(batch.mask[..., None], logs, 0.0)

    def stored(self) -> tuple[dict[str, Any], Arrays]:
        """Settings and arrays of network and scaler, for a file; generator and rules are not part of it."""
        sizes = {"n_features": self.network.n_features, "n_actions": self.network.n_actions}
        arrays = prefixed("network.", module_arrays(self.network))
        arrays |= {"scaler.mean": self.scaler.mean, "scaler.scale": self.scaler.scale}
        return {**sizes, "config": asdict(self.network.config)}, arrays

    @classmethod
    def restored(
        cls, settings: dict[str, Any], arrays: Arrays, rng: np.random.Generator, rules: ActionRules | None = None
    ) -> CloningPolicy:
        """What :meth:`stored` gave, acting again; actions are drawn with the generator and among those allowed.

        Raises:
            ValueError, KeyError, TypeError: settings and arrays are not those of one policy.
        """
        d, n_actions, how = stored_sizes(settings)
        scaler = Scaler(arrays["scaler.mean"], arrays["scaler.scale"])
        own = part("network.", arrays)
        weight = own["direct.weight"]
        if weight.shape == (n_actions, d + n_actions):  # an earlier version saw one action alone
            own["direct.weight"] = np.pad(weight, ((0, 0), (0, 2 * n_actions)))
        network = stored_module(lambda: CloningNetwork(d, n_actions, how), own)
        if scaler.mean.shape != (d,):
            raise ValueError(f"scaler.mean must be [{d}], got {scaler.mean.shape}")
        return cls(network.eval(), scaler, rng, rules)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what :meth:`stored` gives as one file, whole and without pickle."""
        settings, arrays = self.stored()
        write_model_file(path, {"kind": "cloning", **settings}, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], rng: np.random.Generator, rules: ActionRules | None = None
    ) -> CloningPolicy:
        """Read what :meth:`save` wrote; actions are drawn with the generator given and among those the rules allow.

        Raises:
            ValueError: the file is not a whole cloned policy; the message names it.
        """
        settings, arrays = read_model_file(path)
        with loading(path, "a whole cloned policy"):
            check_kind(settings, "cloning")
            return cls.restored(settings, arrays, rng, rules)


def check_kind(settings: dict[str, Any], kind: str) -> None:
    """Raise ValueError where a file's settings are not of this kind."""
    if settings["kind"] != kind:
        raise ValueError(f"the kind is {settings['kind']!r}")


def stored_sizes(settings: dict[str, Any]) -> tuple[int, int, CloningConfig]:
    """Numbers of features and of actions, and the network's settings, that :meth:`CloningPolicy.stored` gave.

    Raises:
        ValueError, KeyError, TypeError: they are not there, or not possible.
    """
    how = CloningConfig(**{**settings["config"], "training": TrainingConfig(**settings["config"]["training"])})
    return size_of(settings, "n_features"), size_of(settings, "n_actions"), how


@dataclass(frozen=True)
class CloningFit:
    """A cloned policy and how it came about."""

    policy: CloningPolicy
    """The expert's copy."""
    history: History
    """Log-loss per action; before the first epoch it is that of the logistic regression."""
    prior: float
    """Standard deviation of the prior on the covariates' weights in the logistic regression; 0: not used."""
    accepted: bool
    """Whether the network beat the logistic regression by more than one standard error; if not, it was undone."""


def begin_as(network: CloningNetwork, fit: LogisticFit) -> None:
    """Give the direct path the weights of a logistic regression."""
    with torch.no_grad():
        network.direct.weight.copy_(torch.from_numpy(fit.weights.T.astype(np.float32)))
        network.direct.bias.copy_(torch.from_numpy(fit.bias.astype(np.float32)))


def begun(
    scaler: Scaler, train: Batch, validation: Batch, config: CloningConfig, seed: int
) -> tuple[CloningNetwork, LogisticFit]:
    """A network that is still the logistic regression of the training episodes, and that regression."""
    train, validation = train.thinned(ENOUGH), validation.thinned(ENOUGH)
    prior = chosen_prior(Rows.of(scaler, train, validation), config.priors)
    base = fit_logistic(Rows.of(scaler, train), prior)
    with seeded(seed):
        network = CloningNetwork(len(train.features), train.n_actions, config)
    begin_as(network, base)
    return network, base


def fit_cloning(
    train: Batch,
    validation: Batch,
    config: CloningConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    rules: ActionRules | None = None,
) -> CloningFit:
    """Fit a logistic regression, then the network from there, and stop by the validation episodes.

    Where the batches say which actions were allowed (``Batch.allowed``), each decision is learnt as one among those.

    Args:
        train: the expert's episodes.
        validation: other episodes of the same features and actions.
        config: how.
        rng: first weights, order of episodes and dropout; the policy draws its actions from a child of it.
        progress: called with (epochs done, epochs planned).
        rules: what is forbidden, to the experts and to the policy.

    Raises:
        ValueError: the batches do not fit together or with the rules, or training did not stay finite.
    """
    train, validation = checked_splits(train, validation, rules)
    warn_of_actions_never_taken(train, validation)
    validation = validation.thinned(ENOUGH_TO_JUDGE)
    seeds = [int(seed) for seed in rng.integers(2**63 - 1, size=3)]
    scaler = Scaler.from_batch(train)
    network, base = begun(scaler, train, validation, config, seeds[0])
    start = module_arrays(network)
    inputs, actions, mask, allowed = episode_tensors(scaler, train, config.training.device)
    held_out = torch.from_numpy(sequence_inputs(scaler, validation)[:, :-1])

    def loss(chosen: Tensor, _share: float) -> Tensor:
        live = mask[chosen]
        logits = network.live_logits(inputs[chosen], live)
        logits = only_allowed(logits, None if allowed is None else allowed[chosen][live])
        return cross_entropy(logits, actions[chosen][live])

    def validation_losses() -> FloatArray:
        with torch.no_grad():
            logits = network.sequence_logits(held_out.to(network.direct.weight.device))
            return episode_losses(logits.double().cpu().numpy(), validation)

    network.eval()
    before = validation_losses()
    history = train_network(
        network, loss, lambda: float(validation_losses().mean()), len(train), config.training, seeds[1], progress
    )
    gain = before - validation_losses()
    accepted = bool(gain.mean() > gain.std() / np.sqrt(len(gain)))
    if not accepted:
        load_module_arrays(network, start)
        # Nothing is chosen by the validation episodes any more.
        begin_as(network, fit_logistic(Rows.of(scaler, train.thinned(ENOUGH), validation), base.prior))
    policy = CloningPolicy(network, scaler, np.random.default_rng(seeds[2]), rules)
    return CloningFit(policy, history, base.prior, accepted)
