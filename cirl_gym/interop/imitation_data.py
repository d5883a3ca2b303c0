"""Batches as demonstrations for the library `imitation` (BC, GAIL, AIRL, DAgger, density)."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.interop.episodes import shown_observations, step_rewards
from cirl_gym.interop.optional_library import IMITATION, load_library


def to_imitation(
    batch: Batch,
    feature_map: FeatureMap,
    weights: npt.ArrayLike,
    *,
    previous_action: bool = True,
    cut_is_terminal: bool = False,
) -> list[Any]:
    """One ``imitation.data.types.TrajectoryWithRew`` per episode, in the batch's order.

    ``obs`` is float32 ``[k+1, d + A]`` (or ``[k+1, d]``), ``acts`` int64 ``[k]`` and ``rews`` float64 ``[k]``, the
    reward of an action being that of the outcome which followed it.

    GAIL, AIRL and the density algorithms refuse episodes of unequal lengths unless they are made with
    ``allow_variable_horizon=True``.

    Args:
        batch: N episodes.
        feature_map: phi of the reward.
        weights: ``[d]`` of the reward.
        previous_action: append the one-hot previous action, as the environments show it by default.
        cut_is_terminal: what `imitation` is to take for ``terminal``. False: that the process ended. True: that the
            episode ended, by the process or by the end of watching, which is what `imitation`'s own collector writes
            for an episode that ran into a time limit. A ``terminal`` last step becomes ``dones = True``: reward
            networks that use ``done`` see it, and SQIL takes the value of what follows for zero.

    Raises:
        ImportError: `imitation` is not installed; the message says how to.
        ValueError: as :func:`~cirl_gym.interop.step_rewards`.
    """
    seen = shown_observations(batch, previous_action=previous_action)
    earned = step_rewards(batch, feature_map, weights)
    types = load_library("imitation.data.types", IMITATION)
    return [
        types.TrajectoryWithRew(
            obs=seen[i, : length + 1].copy(),
            acts=batch.actions[i, :length].copy(),
            infos=None,
            terminal=cut_is_terminal or bool(batch.terminated[i]),
            rews=earned[i, :length].copy(),
        )
        for i, length in enumerate(batch.lengths.tolist())
    ]
