"""phi along the expert's histories, and the expert's feature expectation (paper, equations 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.rollout import discounted
from cirl_gym.types import FloatArray


@dataclass(frozen=True)
class FeatureExpectation:
    """A mean over episodes of discounted sums of phi, and how well the episodes determine it."""

    mean: FloatArray
    """``[d]`` mu."""
    covariance: FloatArray | None
    """``[d, d]`` sampling covariance of the mean; groups (patients) are the unit, so that episodes of one patient may
    depend on each other. None with a single group: then nothing can be said."""
    episodes: int
    """N."""
    groups: int
    """Number of different groups."""

    @property
    def standard_error(self) -> FloatArray | None:
        """``[d]`` square roots of the covariance's diagonal; None with a single group."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))


def phi_along(model: OutcomeModel, feature_map: FeatureMap, batch: Batch) -> FloatArray:
    """phi(h_t, a_t) of the actions taken (paper, equation 1).

    Args:
        model: predicts the next outcome under every action.
        feature_map: picks the d outcomes and scales them.
        batch: the histories.

    Returns:
        ``[N, T, d]``, zero on padding.

    Raises:
        ValueError: the three do not speak of the same features, or of the same number of actions.
    """
    if not model.features == feature_map.of == batch.features:
        raise ValueError(
            f"the features differ: model {model.features}, feature map {feature_map.of}, batch {batch.features}"
        )
    if model.n_actions != batch.n_actions:
        raise ValueError(f"the model knows {model.n_actions} actions, the batch has {batch.n_actions}")
    outcomes = model.predict(model.encode(batch)[:, :-1])  # h_T has no action
    taken = np.take_along_axis(outcomes, batch.actions[:, :, None, None], axis=2)[:, :, 0]
    return np.where(batch.mask[..., None], feature_map(taken), 0.0)


def expert_mu(phi: FloatArray, batch: Batch, gamma: float) -> FeatureExpectation:
    """mu_E: mean over episodes of sum over t = 0..T-1 of gamma^t phi_t (paper, equation 3).

    The paper lets the sum run to T, but h_T has no action: there are T terms. gamma starts anew in every episode. Of
    episodes that a policy played in a world this is the Monte-Carlo estimate of that policy's mu.

    Args:
        phi: ``[N, T, d]``; rows past an episode's end are not looked at.
        batch: the episodes' lengths and groups.
        gamma: discount, within [0, 1].

    Raises:
        ValueError: phi has another shape or is not finite, or gamma lies outside [0, 1].
    """
    if phi.ndim != 3 or phi.shape[:2] != batch.actions.shape:
        raise ValueError(f"phi must be [N, T, d] with N, T = {batch.actions.shape}, got {phi.shape}")
    phi = np.where(batch.mask[..., None], phi, 0.0)
    if not np.isfinite(phi).all():
        episode, step, _ = (int(i) for i in np.argwhere(~np.isfinite(phi))[0])
        raise ValueError(f"phi of episode {batch.ids[episode]!r}, step {step} is not finite")
    sums = discounted(batch, phi, gamma)
    mean = sums.mean(axis=0)
    names, member = np.unique(batch.groups, return_inverse=True)
    covariance = None
    if len(names) > 1:
        # Groups of unequal size: linearised variance of a ratio of two means over groups, with the usual G/(G-1).
        deviation = np.zeros((len(names), phi.shape[2]))
        np.add.at(deviation, member, sums - mean)
        covariance = deviation.T @ deviation * (len(names) / (len(names) - 1)) / len(batch) ** 2
    return FeatureExpectation(mean, covariance, len(batch), len(names))
