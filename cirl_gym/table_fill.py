"""Missing readings: carried forward inside an episode, then filled by the median of the training episodes.

Those of static features are carried to all of the episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.table_episodes import Episodes
from cirl_gym.table_report import FeatureCounts
from cirl_gym.table_rows import ABOVE, BELOW, EMPTY, OBSERVED
from cirl_gym.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Filled:
    """Episodes without a gap."""

    batch: Batch
    """All episodes, training and other."""
    medians: dict[str, float]
    """Per feature: of the readings of the training episodes, before anything was carried forward."""
    indicators: tuple[str, ...]
    """Features appended to tell where a reading is missing."""
    features: tuple[FeatureCounts, ...]
    """What was carried forward and filled, over all episodes."""


def lag_features(episodes: Episodes, features: Sequence[str], lagged: Sequence[str]) -> Episodes:
    """Move the readings of some features to the next row of the episode; the first row then has none."""
    obs, state = episodes.obs.copy(), episodes.state.copy()
    for name in lagged:
        j = features.index(name)
        obs[:, 1:, j], state[:, 1:, j] = episodes.obs[:, :-1, j], episodes.state[:, :-1, j]
        obs[:, 0, j], state[:, 0, j] = np.nan, EMPTY
    obs[~episodes.live], state[~episodes.live] = np.nan, OBSERVED
    return replace(episodes, obs=obs, state=state)


def carry_forward(obs: FloatArray) -> FloatArray:
    """``[N, T+1, d]`` each missing reading replaced by the last one before it in the same episode, if there is one."""
    index = np.where(np.isnan(obs), 0, np.arange(obs.shape[1])[None, :, None])
    return np.take_along_axis(obs, np.maximum.accumulate(index, axis=1), axis=1)


def spread(obs: FloatArray, static: Sequence[int]) -> FloatArray:
    """``[N, T+1, d]`` each missing reading of a static feature replaced by the first one of its episode, if any.

    What never changes is known at t = 0 whenever it was written down.
    """
    known = obs.copy()
    for j in static:
        column = obs[..., j]
        first = np.take_along_axis(column, (~np.isnan(column)).argmax(axis=1)[:, None], axis=1)
        known[..., j] = np.where(np.isnan(column), first, column)
    return known


def training_medians(obs: FloatArray, features: Sequence[str]) -> FloatArray:
    """``[d]`` medians of the readings ``[n, T+1, d]`` of the training episodes.

    Raises:
        ValueError: a feature has not one reading there.
    """
    rows = obs.reshape(-1, obs.shape[-1])
    for j, name in enumerate(features):
        if np.isnan(rows[:, j]).all():
            raise ValueError(f"column {name!r} has no reading in the training episodes: leave it out of --features")
    medians: FloatArray = np.nanmedian(rows, axis=0)
    return medians


def fill(
    episodes: Episodes, features: Sequence[str], training: BoolArray, indicator: bool, static: Sequence[str] = ()
) -> Filled:
    """Fill every gap; only episodes in ``training [N]`` decide what with.

    A static feature takes the value that any row of its episode has, and has no indicator.

    Raises:
        ValueError: a feature has no reading in training, or has the name that an indicator needs.
    """
    obs, live = episodes.obs, episodes.live
    missing = np.isnan(obs) & live[..., None]
    medians = training_medians(obs[training], features)
    carried = carry_forward(spread(obs, [features.index(name) for name in static]))
    unknown = np.isnan(carried) & live[..., None]
    complete = np.where(unknown, medians, carried)
    complete[~live] = 0.0

    flagged = [
        j for j, name in enumerate(features) if indicator and name not in static and missing[training][..., j].any()
    ]
    names = tuple(f"{features[j]}_missing" for j in flagged)
    taken = sorted(set(names) & set(features))
    if taken:
        raise ValueError(f"the table already has a feature {taken[0]!r}: rename it, or do without --missing-indicator")
    batch = Batch(
        obs=np.concatenate([complete, missing[..., flagged]], axis=2, dtype=np.float64),
        actions=episodes.actions,
        lengths=episodes.lengths,
        terminated=episodes.terminated,
        truncated=~episodes.terminated,
        features=(*features, *names),
        action_names=episodes.action_names,
        ids=episodes.ids,
        groups=episodes.groups,
    )
    counts = _counts(episodes.state, missing & ~unknown, unknown, features)
    return Filled(batch, dict(zip(features, medians.tolist(), strict=True)), names, counts)


def _counts(
    state: IntArray, carried: BoolArray, filled: BoolArray, features: Sequence[str]
) -> tuple[FeatureCounts, ...]:
    return tuple(
        FeatureCounts(
            name=name,
            empty=int((state[..., j] == EMPTY).sum()),
            below=int((state[..., j] == BELOW).sum()),
            above=int((state[..., j] == ABOVE).sum()),
            carried=int(carried[..., j].sum()),
            filled=int(filled[..., j].sum()),
        )
        for j, name in enumerate(features)
    )
