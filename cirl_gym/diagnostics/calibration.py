"""Whether a model's own statements about chance hold: intervals around outcomes, and probabilities of an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.inputs import end_labels, taken
from cirl_gym.types import BoolArray, FloatArray, IntArray

LEVELS = (0.5, 0.8, 0.9, 0.95)
FAR = 4.0
"""So many standard deviations from a bound it no longer cuts the noise off."""
EDGES = (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
"""Of the bins of probabilities of an end; most are near 0 or near 1."""


@dataclass(frozen=True)
class Coverage:
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
) -> tuple[Coverage, ...]:
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
        shares = tuple(float(share) for share in inside.mean(axis=0))
        alone = float(inside[free].mean()) if free.any() else None
        error = _standard_error(inside, judged, whose)
        found.append(Coverage(level, shares, float(inside.mean()), alone, inside.size, int(free.sum()), error))
    return tuple(found)


def _standard_error(inside: BoolArray, judged: BoolArray, whose: IntArray) -> float:
    """Of the share of ``inside [R, d]`` among ``judged [R, d]``, with every episode ``whose [R]`` a single draw."""
    gain = np.where(judged, inside - inside[judged].mean(), 0.0).sum(axis=1)
    return float(np.sqrt((np.bincount(whose, gain) ** 2).sum()) / judged.sum())


def member_predictions(model: OutcomeModel, batch: Batch) -> npt.NDArray[np.float32]:
    """``[M, R, d]`` expected outcomes of the R actions taken, by every member; a single model is its only one."""
    members: Sequence[OutcomeModel] = getattr(model, "members", (model,))
    predictions = []
    for member in members:
        every = member.predict(member.encode(batch)[:, :-1])
        predictions.append(taken(every, batch)[batch.mask])
    return np.stack(predictions)


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

    Args:
        model: any outcome model.
        batch: held-out episodes, whose ends are counted as those were that the model was fitted on
            (:meth:`~cirl_gym.data.batch.Batch.with_early_ends`).
        edges: of the bins, from 0 to 1.
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
