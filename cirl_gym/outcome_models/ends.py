"""p_end(h, a): how likely the process ends with an action, learnt from the batch's own end flags.

Many processes end where an outcome crosses a line (a tumour at 0, a limit of toxicity), and the noise of one step is
tiny beside the range of the outcome. So the head sees, beside the scaled outcome and action, how far the predicted
outcome *before clipping* lies from such a line in units of the noise: clipped, a cure would look like a narrow miss.
How many ends there are decides how much may be learnt from them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtr
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.inputs import Scaler, end_labels, one_hot, set_arrays, taken
from cirl_gym.outcome_models.training import TrainingConfig, Watch, seeded, train_network
from cirl_gym.types import BoolArray, Float32Array, FloatArray

Split: TypeAlias = tuple[Batch, FloatArray]
"""Episodes, and the unclipped outcomes ``[N, T, A, d]`` predicted for them."""
EndKind = Literal["never", "constant", "lines", "logistic", "network"]
FORMULAS: tuple[EndKind, ...] = ("never", "constant", "lines")
"""Kinds without a network."""

WIDTHS = (2.0, 8.0)
"""In units of the noise: over what distance from a line the squashed distance saturates."""
ENOUGH = 0.05
"""Where lines leave no more than this share of the log-loss of a constant rate, no network is trained: what is left is
the noise of outcomes near the line."""
FEWEST_BEYOND = 3
"""So many ends must lie beyond every outcome after which the process went on before that counts as a line."""


@dataclass(frozen=True)
class EndLines:
    """Where outcomes end the process, and the scale on which to look.

    Raises:
        ValueError: lengths differ or a noise is not positive.
    """

    low: FloatArray
    """``[d]`` the process ends below; -inf where there is no such line. Raw units."""
    high: FloatArray
    """``[d]`` the process ends above; inf where there is no such line. Raw units."""
    noise: FloatArray
    """``[d]`` standard deviation of outcomes around their prediction, raw units."""
    scaler: Scaler
    """Of the training observations."""

    def __post_init__(self) -> None:
        shape = self.scaler.mean.shape
        set_arrays(self, "low", "high", "noise")
        for name in ("low", "high", "noise"):
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"EndLines.{name} must have shape {shape}, got {array.shape}")
        if not (self.noise > 0).all():
            raise ValueError(f"EndLines.noise must be positive, got {self.noise}")

    @classmethod
    def from_batch(cls, train: Batch, scaler: Scaler, noise: FloatArray) -> EndLines:
        """Half-way between the last outcome after which some process went on and the nearest end beyond it.

        Ends that all have the very same outcome have it at a limit (a volume of 0), which then is the line.
        """
        outcomes, ended = train.next_obs[train.mask].astype(np.float64), end_labels(train)[train.mask] > 0
        signed = np.concatenate([outcomes, -outcomes], axis=1)
        lines, unexplained = np.full(signed.shape[1], -np.inf), ended.copy()
        # The line that most ends lie beyond comes first: ends that it explains are no evidence of another one, beyond
        # which they lie by chance.
        for _ in range(signed.shape[1]):
            found = np.array([_line(column, ended, unexplained) for column in signed.T])
            beyond = [int((unexplained & (column <= line)).sum()) for column, line in zip(signed.T, found, strict=True)]
            first = int(np.argmax(beyond))
            if beyond[first] == 0:
                break
            lines[first] = found[first]
            unexplained &= signed[:, first] > lines[first]
        low, high = np.split(lines, 2)
        return cls(low, -high, np.maximum(noise, 1e-6 * scaler.scale), scaler)

    @property
    def count(self) -> int:
        """How many lines there are."""
        return int(np.isfinite(self.low).sum() + np.isfinite(self.high).sum())

    @property
    def width(self) -> int:
        """F, how many numbers :meth:`inputs` yields besides the A of the action; those of the lines come last."""
        return 2 * len(self.noise) + len(WIDTHS) * self.count

    def crossed(self, raw: npt.NDArray[np.floating]) -> FloatArray:
        """Probability ``[..]`` that the outcome lies beyond a line, for unclipped expected outcomes ``[.., d]``."""
        inside = np.ones(raw.shape[:-1])
        for j in np.flatnonzero(np.isfinite(self.low) | np.isfinite(self.high)):
            below, above = (
                ndtr((line[j] - raw[..., j]) / self.noise[j]) if np.isfinite(line[j]) else float(line[j] > 0)
                for line in (self.low, self.high)
            )
            inside *= above - below
        return 1.0 - inside

    def inputs(self, raw: npt.NDArray[np.floating], newest: Float32Array, hot: Float32Array) -> Float32Array:
        """``[.., F + A]`` for unclipped outcomes and observations ``[.., d]`` and one-hot actions ``[.., A]``."""
        predicted = raw - self.scaler.mean
        predicted /= self.scaler.scale
        parts: list[npt.NDArray[np.floating]] = [predicted, self.scaler(newest), hot]
        for line in (self.low, self.high):
            there = np.isfinite(line)
            if there.any():
                distance = (raw[..., there] - line[there]) / self.noise[there]
                parts += [np.tanh(distance / width) for width in WIDTHS]
        inputs: Float32Array = np.concatenate(parts, axis=-1, dtype=np.float32)
        # Outcomes far off the data say no more than those at its edge.
        scaled = inputs[..., : 2 * raw.shape[-1]]
        np.clip(scaled, -5.0, 5.0, out=scaled)
        return inputs


def _line(outcomes: FloatArray, ended: BoolArray, unexplained: BoolArray) -> float:
    """The value of ``outcomes [R]`` below which only ends lie; -inf if too few of them are not explained yet."""
    if ended.all():
        return -np.inf
    went_on = float(outcomes[~ended].min())
    beyond = outcomes[unexplained & (outcomes < went_on)]
    if len(beyond) < FEWEST_BEYOND:
        return -np.inf
    nearest = float(beyond.max())
    return nearest if nearest == beyond.min() else (nearest + went_on) / 2


def end_network(kind: EndKind, width: int, hidden: int) -> nn.Sequential:
    """A logistic regression that starts at zero weights, or one hidden layer; the last layer is called "logit"."""
    layers: dict[str, nn.Module] = {}
    if kind == "network":
        layers = {"hidden": nn.Linear(width, hidden), "tanh": nn.Tanh()}
        width = hidden
    layers["logit"] = last = nn.Linear(width, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(OrderedDict(layers))


class EndHead:
    """Probability of the end for unclipped predicted outcomes and the current observation."""

    def __init__(
        self, kind: EndKind, lines: EndLines, rate: float, network: nn.Sequential | None = None, hidden: int = 0
    ) -> None:
        if (network is None) != (kind in FORMULAS):
            raise ValueError(f"EndHead: kind {kind!r} does not go with {'no' if network is None else 'a'} network")
        if not 0 <= rate <= 1 or (kind == "never" and rate != 0):
            raise ValueError(f"EndHead: the rate must be a probability (0 for 'never'), got {rate}")
        self.kind: EndKind = kind
        self.lines = lines
        self.rate = rate
        """Ends per action in the training rows: the probability where the kind is "constant". Where it is "lines", of
        ends that lie beyond none."""
        self.network = network
        self.hidden = hidden

    def __call__(self, raw: npt.NDArray[np.floating], newest: Float32Array) -> Float32Array:
        """``[.., A]`` probabilities for unclipped outcomes ``[.., A, d]`` and observations ``[.., d]``."""
        n_actions = raw.shape[-2]
        hot = np.broadcast_to(np.eye(n_actions, dtype=np.float32), (*raw.shape[:-1], n_actions))
        return self.of_action(raw, np.broadcast_to(newest[..., None, :], raw.shape), hot)

    @torch.inference_mode()
    def of_action(self, raw: npt.NDArray[np.floating], newest: Float32Array, hot: Float32Array) -> Float32Array:
        """``[..]`` probabilities for one-hot actions ``[.., A]``, unclipped outcomes and observations ``[.., d]``."""
        if self.network is not None:
            inputs = torch.from_numpy(self.lines.inputs(raw, newest, hot))
            return torch.sigmoid(self.network(inputs)[..., 0]).numpy()
        if self.kind != "lines":
            return np.full(raw.shape[:-1], self.rate, dtype=np.float32)
        return (1.0 - (1.0 - self.rate) * (1.0 - self.lines.crossed(raw))).astype(np.float32)


def drawn_ends(head: EndHead, batch: Batch, n: int, rng: np.random.Generator) -> list[EndHead]:
    """Heads as other patients would have given them: lines anywhere between the last outcome after which a process of
    the batch went on and the nearest that ended one. Where a network reads the lines, all stays."""
    if head.kind != "lines":
        return [head] * n
    outcomes, ended = batch.next_obs[batch.mask].astype(np.float64), end_labels(batch)[batch.mask] > 0
    drawn = np.concatenate([head.lines.low, -head.lines.high]) + np.zeros((n, 1))
    for j, column in enumerate(np.concatenate([outcomes, -outcomes], axis=1).T):
        line = drawn[0, j]
        # Ends that all have the very same outcome have it at a limit.
        if np.isfinite(line) and not (column == line).any():
            drawn[:, j] += rng.uniform(-1.0, 1.0, n) * abs(column[~ended].min() - line)
    low, high = np.split(drawn, 2, axis=1)
    lines = (replace(head.lines, low=one, high=-other) for one, other in zip(low, high, strict=True))
    return [EndHead("lines", one, head.rate) for one in lines]


@dataclass(frozen=True)
class EndHeadConfig:
    """How the head is fitted.

    Raises:
        ValueError: a number is out of its range.
    """

    hidden: int = 16
    """Units of the network's hidden layer."""
    few_events: int = 20
    """With fewer ends than this, at most a shrunk logistic regression is tried."""
    prior: float = 5.0
    """Standard deviation of a normal prior on the weights."""
    few_prior: float = 0.5
    """The same when there are few ends, but for distances to a line, which several ends speak for."""
    formulas: bool = False
    """Whether only heads without a network are tried, by which no action changes when it ends but where an outcome
    crosses a line: where most episodes were only watched no longer, nobody decided on their ends."""
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(epochs=40, learning_rate=0.03, clip_norm=10.0, patience=5)
    )
    """How the logistic regression and the network are trained."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.few_events) < 1 or min(self.prior, self.few_prior) <= 0:
            raise ValueError(f"EndHeadConfig: every number must be positive, got {self}")


@dataclass(frozen=True)
class _Rows:
    """One split as tensors; the inputs hold the head's row for the action that was taken."""

    inputs: Tensor
    labels: Tensor
    mask: Tensor

    @classmethod
    def of(cls, lines: EndLines, batch: Batch, raw: FloatArray) -> _Rows:
        inputs = lines.inputs(taken(raw, batch), batch.obs[:, :-1], one_hot(batch.actions, batch.n_actions))
        return cls(torch.from_numpy(inputs), torch.from_numpy(end_labels(batch)), torch.from_numpy(batch.mask))

    def to(self, device: str) -> _Rows:
        return _Rows(self.inputs.to(device), self.labels.to(device), self.mask.to(device))

    def loss(self, network: nn.Module, chosen: Tensor | slice = slice(None)) -> Tensor:
        """Mean log-loss of some episodes."""
        mask, labels = self.mask[chosen], self.labels[chosen]
        logits = network(self.inputs[chosen][mask])[:, 0]
        return binary_cross_entropy_with_logits(logits, labels[mask])

    def per_episode(self, network: nn.Module) -> FloatArray:
        """``[E]`` summed log-loss of every episode."""
        with torch.inference_mode():
            logits = network(self.inputs)[..., 0].double()
        losses = binary_cross_entropy_with_logits(logits, self.labels.double(), reduction="none")
        return (losses.numpy() * self.mask.numpy()).sum(axis=1)  # type: ignore[no-any-return]


def fit_end_head(
    splits: tuple[Split, Split],
    scaler: Scaler,
    noise: FloatArray,
    config: EndHeadConfig,
    seed: int,
    watch: Watch | None = None,
) -> tuple[EndHead, dict[str, Any]]:
    """Choose the simplest head that no richer one beats by more than a standard error of the validation log-loss.

    Where there are lines, "beyond a line it ends" is tried before anything is trained, and has to be beaten by three;
    or nothing is trained, where it leaves next to nothing to explain (:data:`ENOUGH`).

    Ends are rare and are not reweighted: the numbers are used as probabilities. Where no validation episode ended by
    itself there is nothing to judge by, and the rate stays constant; unless several training ends lie beyond a line,
    which is evidence enough to judge by the training log-loss.

    Args:
        splits: training and validation batch.
        scaler: of the training observations.
        noise: ``[d]`` standard deviation of outcomes around their prediction.
        config: how.
        seed: of the network's first weights and the order of episodes.
        watch: who looks at the networks ("end.logistic", "end.network"), and where they are stored.

    Returns:
        The head and, for JSON, what it is worth: its "kind"; "events", the training episodes that ended by themselves;
        a "note" why it is what it is; and for "train" and "validation" the mean "log_loss" per action, the
        "constant_log_loss" of the training rows' rate, and the mean probability "at_ends" and "elsewhere" (None: no
        such row).
    """
    (train, _), (validation, _) = splits
    lines = EndLines.from_batch(train, scaler, noise)
    events, rate = int(train.terminated.sum()), float(train.terminated.sum() / train.n_steps)
    if events == 0:
        return _report(EndHead("never", lines, 0.0), splits, "no training episode ended by itself: p_end is 0")
    rows = [_Rows.of(lines, batch, raw) for batch, raw in splits]
    few = events < config.few_events
    judge = 1 if validation.terminated.any() else 0
    kinds: tuple[EndKind, ...] = ("logistic",) if few else ("logistic", "network")
    if rate == 1 or (judge == 0 and lines.count == 0) or config.formulas:
        kinds = ()
    best, best_losses = EndHead("constant", lines, rate), _constant_losses(splits[judge][0], rate)
    if lines.count and (kinds or config.formulas) and rate < 1:
        last = train.next_obs[np.arange(len(train)), train.lengths - 1]
        beyond = ((last <= lines.low) | (last >= lines.high)).any(axis=1)
        known = EndHead("lines", lines, float((train.terminated & ~beyond).sum() / train.n_steps))
        losses = _losses(known, *splits[judge])
        if losses.mean() <= ENOUGH * best_losses.mean():
            kinds = ()
        if _better(losses, best_losses):
            best, best_losses = known, losses
    for kind in kinds:
        priors = torch.full((lines.width + train.n_actions,), config.prior)
        if few:
            # Distances to a line, which several ends speak for, stay free.
            priors[: len(priors) - len(WIDTHS) * lines.count] = config.few_prior
        network = _train(kind, rows, rate, priors, config, seed, watch)
        losses = rows[judge].per_episode(network)
        # What was trained is the best of many epochs, chosen on the same episodes; and a formula also holds for actions
        # that hardly anybody took where it matters.
        if _better(losses, best_losses, errors=3.0 if best.kind == "lines" else 1.0):
            best, best_losses = EndHead(kind, lines, rate, network, config.hidden), losses
    note = f"{events} of {len(train)} training episodes ended by themselves"
    return _report(best, splits, note + (": few, so the head is kept simple" if few else ""))


def _better(losses: FloatArray, best: FloatArray, errors: float = 1.0) -> bool:
    """Whether losses ``[E]`` are lower by more than so many standard errors."""
    difference = losses - best
    return bool(difference.mean() < -errors * difference.std() / np.sqrt(len(difference)))


def _losses(head: EndHead, batch: Batch, raw: FloatArray) -> FloatArray:
    """``[E]`` summed log-loss of every episode (a surprise never costs infinity)."""
    one = taken(raw, batch)[:, :, None]
    p = np.clip(head(one, batch.obs[:, :-1])[..., 0].astype(np.float64), 1e-9, 1 - 1e-9)
    losses = -np.where(end_labels(batch) > 0, np.log(p), np.log1p(-p))
    return (losses * batch.mask).sum(axis=1)  # type: ignore[no-any-return]


def _train(
    kind: EndKind,
    rows: list[_Rows],
    rate: float,
    priors: Tensor,
    config: EndHeadConfig,
    seed: int,
    watch: Watch | None,
) -> nn.Sequential:
    """A head's network; ``priors [F + A]`` are standard deviations of the weights of every input."""
    train, validation = (part.to(config.training.device) for part in rows)
    priors = priors.to(config.training.device)
    with seeded(seed):
        network = end_network(kind, train.inputs.shape[-1], config.hidden)
    with torch.no_grad():
        network.get_submodule("logit").get_parameter("bias").fill_(float(np.log(rate) - np.log1p(-rate)))

    def loss(chosen: Tensor, _share: float) -> Tensor:
        first, *rest = (value for name, value in network.named_parameters() if name.endswith("weight"))
        # The prior belongs to all rows together, the loss is a mean per row.
        shrink = ((first / priors) ** 2).sum() + sum(((value / config.prior) ** 2).sum() for value in rest)
        return train.loss(network, chosen) + shrink / (2 * n_rows)

    n_rows = int(train.mask.sum())

    def held_out() -> float:
        return float(validation.loss(network))

    train_network(network, loss, held_out, len(train.mask), config.training, seed, name=f"end.{kind}", watch=watch)
    return network


def _constant_losses(batch: Batch, rate: float) -> FloatArray:
    """``[E]`` summed log-loss of a constant rate (kept off 0 and 1, where one surprise would cost infinity)."""
    safe, ended = min(max(rate, 1e-9), 1 - 1e-9), batch.terminated.astype(np.float64)
    losses: FloatArray = -(ended * np.log(safe) + (batch.lengths - ended) * np.log1p(-safe))
    return losses


def _report(head: EndHead, splits: tuple[Split, Split], note: str) -> tuple[EndHead, dict[str, Any]]:
    events = int(splits[0][0].terminated.sum())
    rate = events / splits[0][0].n_steps
    report: dict[str, Any] = {"kind": head.kind, "events": events, "note": note}
    report |= {key: {} for key in ("log_loss", "constant_log_loss", "at_ends", "elsewhere")}
    for name, (batch, raw) in zip(("train", "validation"), splits, strict=True):
        p = taken(head(raw, batch.obs[:, :-1]), batch)[batch.mask].astype(np.float64)
        ended = end_labels(batch)[batch.mask] > 0
        safe = np.clip(p, 1e-9, 1 - 1e-9)
        report["log_loss"][name] = float(-np.log(np.where(ended, safe, 1 - safe)).mean())
        report["constant_log_loss"][name] = float(_constant_losses(batch, rate).sum() / batch.n_steps)
        report["at_ends"][name] = float(p[ended].mean()) if ended.any() else None
        report["elsewhere"][name] = float(p[~ended].mean()) if not ended.all() else None
    return head, report
