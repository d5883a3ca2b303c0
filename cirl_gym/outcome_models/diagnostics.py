"""How wrong an outcome model is: on what was done, and (where the truth is known) on what was not done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.types import FloatArray, OutcomeModel


@dataclass(frozen=True)
class PredictionError:
    """Root mean squared errors of one-step predictions."""

    raw: tuple[float, ...]
    """Per feature, raw units."""
    scaled: tuple[float, ...]
    """Per feature, on the scale of phi."""
    pooled: float
    """Root of the mean over predictions of the squared errors summed over the features, on the scale of phi."""
    n: int
    """Number of predictions."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def factual_error(model: OutcomeModel, batch: Batch, feature_map: FeatureMap | None = None) -> PredictionError:
    """Predictions for the actions that were taken against the next observations (noise included).

    Args:
        model: any outcome model.
        batch: episodes that the model was not fitted on, unless the training error is wanted.
        feature_map: phi; default: the ranges of the batch itself.
    """
    every = model.predict(model.encode(batch)[:, :-1])
    taken = np.take_along_axis(every, batch.actions[..., None, None], axis=2)[:, :, 0]
    return _error((taken - batch.next_obs)[batch.mask], feature_map or FeatureMap.from_batch(batch))


def counterfactual_error(
    model: OutcomeModel, batch: Batch, oracle: OutcomeModel, feature_map: FeatureMap | None = None
) -> PredictionError:
    """Predictions for the actions that were *not* taken, on the same histories, against the true expected outcomes.

    Args:
        model: any outcome model.
        batch: histories; their number of actions and features is the model's.
        oracle: the simulator as a model, whose predictions carry no noise.
        feature_map: phi; default: the ranges of the batch itself.
    """
    difference = model.predict(model.encode(batch)[:, :-1]) - oracle.predict(oracle.encode(batch)[:, :-1])
    others = (one_hot(batch.actions, batch.n_actions) == 0) & batch.mask[..., None]
    return _error(difference[others], feature_map or FeatureMap.from_batch(batch))


def _error(difference: np.ndarray[Any, np.dtype[np.float32]], feature_map: FeatureMap) -> PredictionError:
    squares: FloatArray = (difference.astype(np.float64) ** 2).mean(axis=0)
    scaled = squares / (feature_map.high - feature_map.low) ** 2
    return PredictionError(
        tuple(float(value) for value in np.sqrt(squares)),
        tuple(float(value) for value in np.sqrt(scaled)),
        float(np.sqrt(scaled.sum())),
        len(difference),
    )
