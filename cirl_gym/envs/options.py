"""The options of ``reset`` (and, as defaults, of the constructor), checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import check_weights
from cirl_gym.envs.process import NO_LIMIT, Histories
from cirl_gym.types import FloatArray, IntArray

BEGINNINGS = ("patient", "history", "episode")
"""Options that say where to begin: one of them at most, and one given to ``reset`` replaces the constructor's."""


def merged(defaults: Mapping[str, Any], options: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """The options given to ``reset`` over the constructor's; those that are None count as not given.

    Raises:
        ValueError: an option is unknown, or several say where to begin.
    """
    unknown = sorted(str(name) for name in options if name not in known)
    if unknown:
        raise ValueError(f"reset: unknown option {', '.join(map(repr, unknown))}; known: {', '.join(known)}")
    given = {name: value for name, value in options.items() if value is not None}
    beginnings = [name for name in BEGINNINGS if name in given]
    if len(beginnings) > 1:
        raise ValueError(f"reset: {' and '.join(map(repr, beginnings))} both say where to begin, give one of them")
    kept = {name: value for name, value in defaults.items() if value is not None}
    if beginnings:
        kept = {name: value for name, value in kept.items() if name not in (*BEGINNINGS, "step")}
    return kept | given


def check_arguments(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse an argument that a constructor does not have, as Python does.

    Raises:
        TypeError: an argument is unknown.
    """
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; options are {', '.join(known)}")


def weight_rows(given: Any, n: int, features: Sequence[str]) -> FloatArray:
    """Option ``weights``, one set for all rows or ``[n, d]``, as ``[n, d]``.

    Raises:
        ValueError: see :func:`~cirl_gym.data.features.check_weights`.
    """
    if n > 1 and np.ndim(given) == 2 and len(given) == n:
        return np.stack([check_weights(row, features) for row in given])
    return np.tile(check_weights(given, features), (n, 1))


def patient_rows(given: Any, n: int, d: int) -> Histories:
    """Option ``patient``, a first observation for all rows or ``[n, d]``, as n histories without actions.

    Raises:
        ValueError: the shape is wrong or a value is not finite.
    """
    numbers = _array("patient", given, np.float64)
    if numbers.shape not in ((d,), (n, d)) or not np.isfinite(numbers).all():
        raise ValueError(f"option 'patient' must be a first observation of {d} finite numbers, got {given!r}")
    first = np.tile(numbers, (n, 1)) if numbers.ndim == 1 else numbers
    return Histories(first[:, None], np.zeros((n, 0), dtype=np.int64), np.zeros(n, dtype=np.int64))


def history_rows(given: Any, n: int, d: int, n_actions: int) -> Histories:
    """Option ``history`` as n histories: a pair (obs ``[k+1, d]``, actions ``[k]``) for all, or a batch of n episodes.

    Raises:
        ValueError: the shapes are wrong, a value is not finite, or an action does not exist.
    """
    if isinstance(given, Batch):
        if len(given) not in (1, n):
            raise ValueError(f"option 'history' must be a batch of {n} episodes, got one of {len(given)}")
        histories = Histories(given.obs.astype(np.float64), given.actions, given.lengths)
    else:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ValueError(
                f"option 'history' must be a batch or a pair (obs, actions), got {type(given).__name__} {given!r}"
            )
        obs, actions = _array("history", given[0], np.float64), _whole_numbers(given[1])
        if obs.ndim != 2 or actions.shape != (len(obs) - 1,):
            raise ValueError(
                f"option 'history' must be obs [k+1, {d}] and actions [k], got shapes {obs.shape} and {actions.shape}"
            )
        histories = Histories(obs[None], actions[None], np.array([len(actions)]))
    if histories.obs.shape[2] != d or not np.isfinite(histories.obs).all():
        raise ValueError(f"option 'history': observations must be {d} finite numbers")
    if ((histories.actions < 0) | (histories.actions >= n_actions)).any():
        raise ValueError(f"option 'history': actions must be whole numbers from 0 to {n_actions - 1}")
    return histories if len(histories.lengths) == n else histories.take(np.zeros(n, dtype=np.int64))


def episode_rows(batch: Batch, episode: Any, step: Any, n: int) -> tuple[Histories, npt.NDArray[Any]]:
    """Options ``episode`` and ``step``, one for all rows or one each, as n histories h_t and the episodes' ids ``[n]``.

    Raises:
        ValueError: the batch has no such history, or none that could go on.
    """
    places = _for_each(episode, n)
    episodes = np.array([_place(batch, place) for place in places])
    steps = [_step(batch, int(i), t) for i, t in zip(episodes, _for_each(step, n), strict=True)]
    ids = np.array([batch.ids[i] for i in episodes], dtype=object)
    longest = max(steps)
    histories = Histories(
        batch.obs[episodes, : longest + 1].astype(np.float64), batch.actions[episodes, :longest], np.array(steps)
    )
    return histories, ids


def limit_of(given: Any, limit: int | None, histories: Histories | None) -> int:
    """Option ``horizon`` as the number of actions, those of ``histories`` counted, after which watching ends.

    Args:
        given: the option; None: the environment's own limit.
        limit: the environment's own limit; None: none.
        histories: what the episodes begin with.

    Raises:
        ValueError: not a whole number of at least 1, more than ``limit``, or nothing would be left of an episode.
    """
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
            raise ValueError(f"option 'horizon' must be a whole number of at least 1, got {given!r}")
        if limit is not None and given > limit:
            raise ValueError(
                f"option 'horizon' can only shorten the time limit of {limit}, got {given}; a longer limit is "
                f"gymnasium.make's max_episode_steps={given}"
            )
        limit = int(given)
    begun = 0 if histories is None else int(histories.lengths.max())
    if limit is not None and begun >= limit:
        raise ValueError(f"a history of {begun} actions leaves nothing of an episode with a time limit of {limit}")
    return NO_LIMIT if limit is None else limit


def _for_each(given: Any, n: int) -> list[Any]:
    """An option of reset for each of n rows: a list or array of n is taken row by row."""
    if isinstance(given, list | tuple | np.ndarray) and np.ndim(given) == 1:
        if len(given) != n:
            raise ValueError(f"option 'episode' or 'step': one for all rows or {n}, got {len(given)}")
        return list(given)
    return [given] * n


def _place(batch: Batch, asked: Any) -> int:
    """Position of an episode given by position or id."""
    if isinstance(asked, str):
        if asked not in batch.ids:
            raise ValueError(f"option 'episode': the batch has no episode with the id {asked!r}")
        return batch.ids.index(asked)
    if not isinstance(asked, int | np.integer) or not 0 <= asked < len(batch):
        raise ValueError(f"option 'episode' must be an id or a whole number from 0 to {len(batch) - 1}, got {asked!r}")
    return int(asked)


def _step(batch: Batch, episode: int, asked: Any) -> int:
    length, name = int(batch.lengths[episode]), batch.ids[episode]
    if not isinstance(asked, int | np.integer) or not 0 <= asked <= length:
        raise ValueError(f"option 'step' must be a whole number from 0 to {length} for episode {name!r}, got {asked!r}")
    if asked == length and batch.terminated[episode]:
        raise ValueError(f"option 'step': episode {name!r} ended at step {length}, so nothing follows")
    return int(asked)


def _array(name: str, given: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    try:
        return np.array(given, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"option {name!r} must be numbers, got {given!r}") from error


def _whole_numbers(given: Any) -> IntArray:
    actions = np.asarray(given)
    if actions.size and not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(f"option 'history': actions must be whole numbers, got {given!r}")
    return actions.astype(np.int64)
