"""How wrong an outcome model is: on what was done, and (where the truth is known) on what was not done.

Several steps ahead a model is rolled on its own predictions: from a history h_t it predicts under a_t, takes its own
prediction for the next observation, predicts under a_{t+1}, and so on. The k-th prediction is compared with the k-th
outcome, noise included, wherever there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.inputs import one_hot, taken
from cirl_gym.types import Float32Array, IntArray
from cirl_gym.worlds.exact import Futures, Patients, flipped_futures, taken_futures

EPISODES_AT_ONCE = 128
"""How many are rolled together; changes no result."""


@dataclass(frozen=True)
class PredictionError:
    """Root mean squared errors of predictions: the root of one overall mean, never a mean of roots."""

    raw: tuple[float, ...]
    """Per observed feature, raw units."""
    scaled: tuple[float, ...]
    """Per outcome, on the scale of phi."""
    pooled: float
    """Root of the mean over predictions of the squared errors summed over the outcomes, on the scale of phi."""
    n: int
    """Number of predictions."""


class SquaredErrors:
    """Sums of squared errors over any number of parts; what they come to does not depend on how it was cut."""

    def __init__(self, feature_map: FeatureMap) -> None:
        self.feature_map = feature_map
        self.raw, self.scaled = np.float64(0.0), np.float64(0.0)
        self.n = 0
        """Number of predictions so far."""

    def add(self, predicted: npt.NDArray[np.floating], observed: npt.NDArray[np.floating]) -> None:
        """Count predictions ``[n, D]`` against outcomes ``[n, D]``, raw units."""
        self.raw = self.raw + ((predicted.astype(np.float64) - observed) ** 2).sum(axis=0)
        self.scaled = self.scaled + ((self.feature_map(predicted) - self.feature_map(observed)) ** 2).sum(axis=0)
        self.n += len(predicted)

    def error(self) -> PredictionError:
        """The roots of the means.

        Raises:
            ValueError: nothing was counted.
        """
        if self.n == 0:
            raise ValueError("SquaredErrors: no prediction was counted")
        raw, scaled = (tuple(map(float, np.sqrt(sums / self.n))) for sums in (self.raw, self.scaled))
        return PredictionError(raw, scaled, float(np.sqrt((self.scaled / self.n).sum())), self.n)


def factual_error(model: OutcomeModel, batch: Batch, feature_map: FeatureMap | None = None) -> PredictionError:
    """Predictions for the actions that were taken against the next observations (noise included).

    The default of phi, ``feature_map``, are the ranges of the batch itself.
    """
    predicted = taken(model.predict(model.encode(batch)[:, :-1]), batch)[batch.mask]
    squares = SquaredErrors(feature_map or FeatureMap.from_batch(batch))
    squares.add(predicted, batch.next_obs[batch.mask])
    return squares.error()


def counterfactual_error(
    model: OutcomeModel, batch: Batch, oracle: OutcomeModel, feature_map: FeatureMap | None = None
) -> PredictionError:
    """Predictions for the actions that were *not* taken, on the same histories, against the true expected outcomes.

    Those are the predictions of the oracle, the simulator as a model, which carry no noise.
    """
    predicted, true = (one.predict(one.encode(batch)[:, :-1]) for one in (model, oracle))
    others = (one_hot(batch.actions, batch.n_actions) == 0) & batch.mask[..., None]
    squares = SquaredErrors(feature_map or FeatureMap.from_batch(batch))
    squares.add(predicted[others], true[others])
    return squares.error()


def factual_ahead(
    model: OutcomeModel, batch: Batch, feature_map: FeatureMap, steps: int | None = None
) -> tuple[PredictionError, ...]:
    """Errors 1..K steps ahead under the actions that were taken, over every history of every (held-out) episode.

    K is ``steps``, by default the longest number of actions. Steps at which no episode is left are not reported.

    Raises:
        ValueError: ``steps`` is below 1.
    """
    return _ahead(model, batch, feature_map, steps, lambda _rows, part, k: taken_futures(part, k))


def flipped_ahead(
    model: OutcomeModel, batch: Batch, patients: Patients, feature_map: FeatureMap, steps: int | None = None
) -> tuple[PredictionError, ...]:
    """Errors 1..K steps ahead under the other action at every step, on the simulator's flipped-action test set.

    One step ahead it is the error on actions not taken, with the same noise: the noise-free oracle's error on the very
    same rows (the same call with the oracle as the model) is what nobody can do better than on average. The batch is
    what was seen of the patients.

    Raises:
        ValueError: ``steps`` is below 1, or the batch is not of these patients.
    """

    def flipped(rows: IntArray, part: Batch, k: int) -> Futures:
        return flipped_futures(patients.take(rows), part, k)

    return _ahead(model, batch, feature_map, steps, flipped)


def unchanged_ahead(batch: Batch, feature_map: FeatureMap, steps: int | None = None) -> tuple[PredictionError, ...]:
    """Errors 1..K steps ahead of "nothing changes": x_{t+k} = x_t, on the rows of :func:`factual_ahead`."""
    sums = _sums(batch, feature_map, steps)
    for k, squares in enumerate(sums, start=1):
        there = batch.seen[:, k:]
        squares.add(batch.obs[:, :-k][there], batch.obs[:, k:][there])
    return tuple(squares.error() for squares in sums if squares.n)


def _ahead(
    model: OutcomeModel,
    batch: Batch,
    feature_map: FeatureMap,
    steps: int | None,
    futures_of: Callable[[IntArray, Batch, int], Futures],
) -> tuple[PredictionError, ...]:
    """Roll a model along futures of (numbers of episodes, those episodes, K), some episodes at once."""
    sums = _sums(batch, feature_map, steps)
    for first in range(0, len(batch), EPISODES_AT_ONCE):
        chosen = np.arange(first, min(first + EPISODES_AT_ONCE, len(batch)))
        part = batch.take(chosen)
        futures = futures_of(chosen, part, len(sums))
        states = model.encode(part)[futures.episode, futures.step]
        for k, (rows, predicted) in enumerate(_rolled(model, states, futures)):
            sums[k].add(predicted, futures.outcomes[rows, k])
    return tuple(squares.error() for squares in sums if squares.n)


def _sums(batch: Batch, feature_map: FeatureMap, steps: int | None) -> list[SquaredErrors]:
    if steps is not None and steps < 1:
        raise ValueError(f"steps ahead must be at least 1, got {steps}")
    longest = int(batch.lengths.max())
    return [SquaredErrors(feature_map) for _ in range(longest if steps is None else min(steps, longest))]


@dataclass(frozen=True)
class CourseGap:
    """How far the mean course of roll-outs is from the mean course of the same patients in the simulator."""

    largest: tuple[float, ...]
    """Per outcome, the largest difference at any step, on the scale of phi."""
    step: tuple[int, ...]
    """Per outcome, after how many actions that was."""
    relative: tuple[float, ...]
    """Per outcome, the largest difference as a share of the simulator's mean phi, over the steps where that is at least
    a hundredth of the range; 0 where it never is."""
    steps: int
    """Steps compared: as long as the course of a patient in ten goes on."""


def course_gap(model: OutcomeModel, start: Float32Array, futures: Futures, feature_map: FeatureMap) -> CourseGap:
    """Compare mean courses from the start, step by step over the patients whose true course still goes on.

    ``start [R, d]`` are the first observations of the rows of ``futures``
    (:func:`cirl_gym.worlds.exact.constant_futures`).
    """
    gaps, shares = [], []
    for k, (rows, predicted) in enumerate(_rolled(model, model.start(start), futures)):
        if len(rows) < 0.1 * len(start):
            break
        true = feature_map(futures.outcomes[rows, k]).mean(axis=0)
        gap = np.abs(feature_map(predicted).mean(axis=0) - true)
        gaps.append(gap)
        shares.append(np.where(true >= 0.01, gap / np.maximum(true, 0.01), 0.0))
    course, relative = np.stack(gaps), np.stack(shares).max(axis=0)
    largest, step = course.max(axis=0), course.argmax(axis=0) + 1
    return CourseGap(tuple(map(float, largest)), tuple(map(int, step)), tuple(map(float, relative)), len(course))


def _rolled(model: OutcomeModel, states: Float32Array, futures: Futures) -> Iterator[tuple[IntArray, Float32Array]]:
    """For k = 1..K the rows ``[n]`` that have a k-th outcome and the model's prediction of it ``[n, d]``."""
    rows = np.arange(len(futures.episode))
    for k in range(futures.steps):
        going = futures.live[rows, k]
        rows, states = rows[going], states[going]
        if len(rows) == 0:
            return
        actions = futures.actions[rows, k]
        predicted = model.predict(states)[np.arange(len(rows)), actions]
        yield rows, predicted
        if k + 1 < futures.steps:
            states = model.advance(states, actions, predicted)
