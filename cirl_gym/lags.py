"""What was observed one step earlier, as a further observed feature: the ground on which changes can be weighed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.outcome_features import Change, before
from cirl_gym.outcome_text import read_outcome


def changing(outcomes: Sequence[str], observed: Sequence[str]) -> tuple[str, ...]:
    """The columns of which outcomes weigh the change, each once: what :func:`with_lags` is to be given.

    Args:
        outcomes: names or texts (:mod:`cirl_gym.outcome_text`).
        observed: names of the observed features.

    Raises:
        ValueError: a text cannot be read.
    """
    read = [read_outcome(text, observed) for text in outcomes]
    return tuple(dict.fromkeys(outcome.column for outcome in read if isinstance(outcome, Change)))


def with_lags(batch: Batch, names: Sequence[str]) -> Batch:
    """The same episodes with a feature "NAME before" for each name, behind the others: x_{t-1}, and x_0 at t = 0.

    To a model it is one more feature that is seen and predicted (the reading of now is what will have been before), so
    that ``Change(NAME)``, the outcome minus it, is a function of the predicted row alone. At the start of an episode
    nothing is known to have changed.

    Args:
        batch: any.
        names: features.

    Raises:
        ValueError: a name is no feature, or the batch has a feature of the new name.
    """
    if not names:
        return batch
    for name in names:
        if name not in batch.features:
            raise ValueError(f"with_lags: {name!r} is not a feature; the features are {', '.join(batch.features)}")
        if before(name) in batch.features:
            raise ValueError(
                f"with_lags: there is a feature {before(name)!r}, so what was observed of {name!r} before cannot have "
                "that name"
            )
    now = batch.obs[..., [batch.features.index(name) for name in names]]
    earlier = np.concatenate([now[:, :1], now[:, :-1]], axis=1)
    return replace(
        batch,
        obs=np.concatenate([batch.obs, earlier], axis=-1),
        features=(*batch.features, *map(before, names)),
    )
