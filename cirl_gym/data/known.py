"""Outcomes that are known exactly, because they are the actions' own: ``Given(action)`` and ``Switched()``.

They stand among a batch's features, where :func:`with_known` puts them: the row after an action says whether it was
that action, and whether it was another one than before. To whatever reads a batch or a world they are features like
all others, so that phi, plans, environments, mu, DSFN and files need to know nothing of them. What tells them from
others is that nobody learns them: a model is fitted without them (the columns of a linear law's actions would be there
twice) and :class:`cirl_gym.outcome_models.known.KnowingModel` appends them to what it predicts, exactly and without
noise. The other way, phi as a function of actions too, would have had to reach every place where phi is computed, and
the values of a history would still have had to hold the action before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import KnownOutcome, read_outcome
from cirl_gym.types import Float32Array, IntArray


def known_values(
    outcomes: Sequence[KnownOutcome], actions: IntArray, previous: IntArray, action_names: Sequence[str]
) -> Float32Array:
    """Values ``[.., K]``, 0 or 1, of K outcomes for actions ``[..]`` and those before ``[..]`` (-1: none).

    Raises:
        ValueError: an outcome is about an action that there is not; the message names those that there are.
    """
    held = [one.holds(actions, previous, action_names) for one in outcomes]
    shape = np.broadcast_shapes(np.shape(actions), np.shape(previous))
    return np.stack([np.broadcast_to(one, shape) for one in held], axis=-1).astype(np.float32)


def known_along(outcomes: Sequence[KnownOutcome], actions: IntArray, action_names: Sequence[str]) -> Float32Array:
    """Values ``[N, T+1, K]`` along whole episodes of actions ``[N, T]``: 0 before the first, and then of each.

    Raises:
        ValueError: as :func:`known_values`.
    """
    before = np.concatenate([np.full((len(actions), 1), -1), actions[:, :-1]], axis=1)
    values = known_values(outcomes, actions, before, action_names)
    return np.pad(values, ((0, 0), (1, 0), (0, 0)))


def known_names(outcomes: Sequence[str], observed: Sequence[str]) -> tuple[str, ...]:
    """Which outcomes (names or texts) are known exactly and not observed yet, each once, for :func:`with_known`.

    Raises:
        ValueError: a text cannot be read.
    """
    read = [read_outcome(text, observed) for text in outcomes]
    names = dict.fromkeys(outcome.name for outcome in read if isinstance(outcome, KnownOutcome))
    return tuple(name for name in names if name not in observed)


def with_known(batch: Batch, outcomes: Sequence[str]) -> Batch:
    """The same episodes with a feature for each of these outcomes, behind the others; what is there already stays.

    Raises:
        ValueError: an outcome is not known exactly, or is about an action that there is not.
    """
    read = [read_outcome(text, ()) for text in outcomes]
    added = [one for one in dict.fromkeys(read) if isinstance(one, KnownOutcome) and one.name not in batch.features]
    for one in read:
        if not isinstance(one, KnownOutcome):
            raise ValueError(f"with_known: {one.name!r} is no Given(action) or Switched()")
    if not added:
        return batch
    values = known_along(added, batch.actions, batch.action_names)
    obs = np.concatenate([batch.obs, values], axis=-1)
    return replace(batch, obs=obs, features=(*batch.features, *(one.name for one in added)))


def known_in(batch: Batch) -> dict[int, KnownOutcome]:
    """By the number of a feature, the outcome that it is: one of that name, where the data bear it out."""
    found: dict[int, KnownOutcome] = {}
    for i, name in enumerate(batch.features):
        one = read_outcome(name, (name,))
        if isinstance(one, KnownOutcome):
            with suppress(ValueError):  # a column that is called after an action of another table
                values = known_along([one], batch.actions, batch.action_names)[..., 0]
                if np.array_equal(values[batch.seen], batch.obs[..., i][batch.seen]):
                    found[i] = one
    return found


def without(batch: Batch, features: Collection[int]) -> Batch:
    """The same episodes without the features of these numbers."""
    left = [i for i in range(len(batch.features)) if i not in features]
    names = tuple(batch.features[i] for i in left)
    return replace(batch, obs=np.take(batch.obs, left, axis=-1), features=names)
