"""p_end(h, a): how likely the process ends with an action, learnt from the batch's own end flags.

Many processes end where an outcome crosses a line (a tumour at 0, a limit of toxicity), and the noise of one step is
tiny beside the range of the outcome. So the head sees, beside the scaled outcome and action, how far the predicted
outcome *before clipping* lies from such a line in units of the noise: clipped, a cure would look like a narrow miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtr
from torch import nn

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.inputs import Scaler, end_labels
from cirl_gym.types import BoolArray, Float32Array, FloatArray

EndKind = Literal["never", "constant", "lines", "logistic", "network"]
FORMULAS: tuple[EndKind, ...] = ("never", "constant", "lines")
"""Kinds without a network."""

WIDTHS = (2.0, 8.0)
"""In units of the noise: over what distance from a line the squashed distance saturates."""
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
        for name in ("low", "high", "noise"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != shape:
                raise ValueError(f"EndLines.{name} must have shape {shape}, got {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
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
        high = -high
        return cls(low, high, np.maximum(noise, 1e-6 * scaler.scale), scaler)

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
            low, high = ((line[j] - raw[..., j]) / self.noise[j] for line in (self.low, self.high))
            inside *= ndtr(high) - ndtr(low)
        return 1.0 - inside

    def inputs(self, raw: npt.NDArray[np.floating], newest: Float32Array) -> Float32Array:
        """``[.., A, F + A]`` for unclipped outcomes ``[.., A, d]`` of every action and observations ``[.., d]``."""
        n_actions = raw.shape[-2]
        hot = np.broadcast_to(np.eye(n_actions, dtype=np.float32), (*raw.shape[:-1], n_actions))
        return self.numbers(raw, np.broadcast_to(newest[..., None, :], raw.shape), hot)

    def numbers(self, raw: npt.NDArray[np.floating], newest: Float32Array, hot: Float32Array) -> Float32Array:
        """``[.., F + A]`` for unclipped outcomes and observations ``[.., d]`` and one-hot actions ``[.., A]``."""
        before = self.scaler(newest)
        # Outcomes far off the data say no more than those at its edge.
        predicted = np.clip((raw - self.scaler.mean) / self.scaler.scale, -5.0, 5.0)
        parts: list[npt.NDArray[np.floating]] = [predicted, np.clip(before, -5.0, 5.0), hot]
        for line in (self.low, self.high):
            there = np.isfinite(line)
            distance = (raw[..., there] - line[there]) / self.noise[there]
            parts += [np.tanh(distance / width) for width in WIDTHS]
        return np.concatenate(parts, axis=-1, dtype=np.float32)


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


def build_network(kind: EndKind, width: int, hidden: int) -> nn.Sequential:
    """A logistic regression that starts at zero weights, or one hidden layer; the last layer is called "logit"."""
    network = nn.Sequential()
    if kind == "network":
        network.add_module("hidden", nn.Linear(width, hidden))
        network.add_module("tanh", nn.Tanh())
        width = hidden
    last = nn.Linear(width, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    network.add_module("logit", last)
    return network


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
        return self._formula(raw) if self.network is None else self._probability(self.lines.inputs(raw, newest))

    def of_action(self, raw: npt.NDArray[np.floating], newest: Float32Array, hot: Float32Array) -> Float32Array:
        """``[n]`` probabilities for one-hot actions ``[n, A]``, unclipped outcomes and observations ``[n, d]``."""
        return self._formula(raw) if self.network is None else self._probability(self.lines.numbers(raw, newest, hot))

    def _formula(self, raw: npt.NDArray[np.floating]) -> Float32Array:
        if self.kind != "lines":
            return np.full(raw.shape[:-1], self.rate, dtype=np.float32)
        chance = 1.0 - (1.0 - self.rate) * (1.0 - self.lines.crossed(raw))
        return chance.astype(np.float32)

    def _probability(self, inputs: Float32Array) -> Float32Array:
        assert self.network is not None
        with torch.inference_mode():
            probability: Float32Array = torch.sigmoid(self.network(torch.from_numpy(inputs))[..., 0]).numpy()
        return probability
