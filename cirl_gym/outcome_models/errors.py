"""How wrong an outcome model is: on what was done, and (where the truth is known) on what was not done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.inputs import one_hot
from cirl_gym.types import FloatArray


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

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class SquaredErrors:
    """Sums of squared errors over any number of parts; what they come to does not depend on how it was cut."""

    def __init__(self, feature_map: FeatureMap) -> None:
        self.feature_map = feature_map
        self._raw: FloatArray | None = None
        self._scaled: FloatArray | None = None
        self._n = 0

    def add(self, predicted: npt.NDArray[np.floating], observed: npt.NDArray[np.floating]) -> None:
        """Count predictions ``[n, D]`` against outcomes ``[n, D]``, raw units."""
        raw = ((predicted.astype(np.float64) - observed) ** 2).sum(axis=0)
        scaled = ((self.feature_map(predicted) - self.feature_map(observed)) ** 2).sum(axis=0)
        self._raw = raw if self._raw is None else self._raw + raw
        self._scaled = scaled if self._scaled is None else self._scaled + scaled
        self._n += len(predicted)

    @property
    def n(self) -> int:
        """Number of predictions so far."""
        return self._n

    def error(self) -> PredictionError:
        """The roots of the means.

        Raises:
            ValueError: nothing was counted.
        """
        if self._raw is None or self._scaled is None or self._n == 0:
            raise ValueError("SquaredErrors: no prediction was counted")
        squares, scaled = self._raw / self._n, self._scaled / self._n
        return PredictionError(
            tuple(float(value) for value in np.sqrt(squares)),
            tuple(float(value) for value in np.sqrt(scaled)),
            float(np.sqrt(scaled.sum())),
            self._n,
        )


def factual_error(model: OutcomeModel, batch: Batch, feature_map: FeatureMap | None = None) -> PredictionError:
    """Predictions for the actions that were taken against the next observations (noise included).

    Args:
        model: any outcome model.
        batch: episodes that the model was not fitted on, unless the training error is wanted.
        feature_map: phi; default: the ranges of the batch itself.
    """
    every = model.predict(model.encode(batch)[:, :-1])
    taken = np.take_along_axis(every, batch.actions[..., None, None], axis=2)[:, :, 0]
    return _error(taken[batch.mask], batch.next_obs[batch.mask], feature_map or FeatureMap.from_batch(batch))


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
    predicted, true = (one.predict(one.encode(batch)[:, :-1]) for one in (model, oracle))
    others = (one_hot(batch.actions, batch.n_actions) == 0) & batch.mask[..., None]
    return _error(predicted[others], true[others], feature_map or FeatureMap.from_batch(batch))


def _error(
    predicted: npt.NDArray[np.floating], observed: npt.NDArray[np.floating], feature_map: FeatureMap
) -> PredictionError:
    squares = SquaredErrors(feature_map)
    squares.add(predicted, observed)
    return squares.error()
