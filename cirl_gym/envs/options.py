"""What constructors and ``reset`` are given, checked before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import check_weights
from cirl_gym.data.rules import ActionRules, read_rules
from cirl_gym.types import BoolArray, FloatArray, IntArray

NO_LIMIT = int(np.iinfo(np.int64).max)
"""A time limit that is never reached."""
BEGINNINGS = ("patient", "history", "episode")
"""Options that say where to begin: one of them at most, and one given to ``reset`` replaces the constructor's."""


@dataclass(frozen=True)
class GivenHistories:
    """Given beginnings of n episodes; one without actions is a first observation."""

    obs: FloatArray
    """``[n, K+1, d]`` raw units; rows past ``lengths`` are padding."""
    actions: IntArray
    """``[n, K]``."""
    lengths: IntArray
    """``[n]`` number of actions."""

    @property
    def seen(self) -> BoolArray:
        """``[n, K+1]`` True where an observation exists."""
        live: BoolArray = np.arange(self.obs.shape[1]) <= self.lengths[:, None]
        return live

    @property
    def previous(self) -> IntArray:
        """``[n]`` the last action; -1 where there is none."""
        last = np.take_along_axis(np.pad(self.actions, ((0, 0), (0, 1))), np.maximum(self.lengths - 1, 0)[:, None], 1)
        return np.where(self.lengths > 0, last[:, 0], -1)

    def take(self, rows: IntArray) -> GivenHistories:
        """The histories of some rows."""
        return GivenHistories(self.obs[rows], self.actions[rows], self.lengths[rows])


@dataclass(frozen=True)
class Start:
    """What ``reset`` was asked for, checked, for each of n rows."""

    weights: FloatArray
    """``[n, d]``."""
    histories: GivenHistories | None
    """None: drawn beginnings."""
    limit: int
    """Number of actions, those of the histories counted, after which watching ends."""
    echo: dict[str, npt.NDArray[Any]]
    """``[n, ..]`` the options that were given, as they were understood."""


def time_limit(horizon: int, stated: str | None, max_episode_steps: int | None) -> int | None:
    """The number of actions after which watching ends; None: never.

    Args:
        horizon: the environment's own limit.
        stated: how the user has stated it ("horizon=12"); None if it is a default, which ``max_episode_steps``
            replaces.
        max_episode_steps: as Gymnasium names it; -1 for none, None if it was not given.

    Raises:
        ValueError: the two contradict each other, or ``max_episode_steps`` is not a possible limit.
    """
    if max_episode_steps is None:
        return horizon
    if max_episode_steps < 1 and max_episode_steps != -1:
        raise ValueError(f"max_episode_steps must be at least 1, or -1 for none, got {max_episode_steps}")
    if stated is not None and horizon != max_episode_steps:
        raise ValueError(
            f"{stated} and max_episode_steps={max_episode_steps} contradict each other: the time limit of an "
            f"environment that Gymnasium makes is max_episode_steps, so give max_episode_steps={horizon}"
        )
    return None if max_episode_steps == -1 else max_episode_steps


def rules_given(forbid: Sequence[str], features: Sequence[str], action_names: Sequence[str]) -> ActionRules | None:
    """The rules that an environment was given as ``forbid``; None if there are none.

    Raises:
        ValueError: it is one text instead of several, or see :func:`~cirl_gym.data.rules.read_rules`.
    """
    if isinstance(forbid, str):
        raise ValueError(f"forbid must be a list of rules, got the text {forbid!r}")
    return read_rules(forbid, features, action_names)


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
    replaced = (*BEGINNINGS, "step") if beginnings else ()
    return {name: value for name, value in defaults.items() if value is not None and name not in replaced} | given


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


def patient_rows(given: Any, n: int, d: int) -> GivenHistories:
    """Option ``patient``, a first observation for all rows or ``[n, d]``, as n histories without actions.

    Raises:
        ValueError: the shape is wrong or a value is not finite.
    """
    numbers = _numbers("patient", given)
    if numbers.shape not in ((d,), (n, d)) or not np.isfinite(numbers).all():
        raise ValueError(f"option 'patient' must be a first observation of {d} finite numbers, got {given!r}")
    first = np.tile(numbers, (n, 1)) if numbers.ndim == 1 else numbers
    return GivenHistories(first[:, None], np.zeros((n, 0), dtype=np.int64), np.zeros(n, dtype=np.int64))


def history_rows(given: Any, n: int, d: int, n_actions: int) -> GivenHistories:
    """Option ``history`` as n histories: a pair (obs ``[k+1, d]``, actions ``[k]``) for all, or a batch of n episodes.

    Raises:
        ValueError: the shapes are wrong, a value is not finite, or an action does not exist.
    """
    if isinstance(given, Batch):
        if len(given) not in (1, n):
            raise ValueError(f"option 'history' must be a batch of {n} episodes, got one of {len(given)}")
        histories = GivenHistories(given.obs.astype(np.float64), given.actions, given.lengths)
    else:
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ValueError(
                f"option 'history' must be a batch or a pair (obs, actions), got {type(given).__name__} {given!r}"
            )
        obs, actions = _numbers("history", given[0]), np.asarray(given[1])
        if actions.size and not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(f"option 'history': actions must be whole numbers, got {given[1]!r}")
        if obs.ndim != 2 or actions.shape != (len(obs) - 1,):
            raise ValueError(
                f"option 'history' must be obs [k+1, {d}] and actions [k], got shapes {obs.shape} and {actions.shape}"
            )
        histories = GivenHistories(obs[None], actions[None].astype(np.int64), np.array([len(actions)]))
    if histories.obs.shape[2] != d or not np.isfinite(histories.obs).all():
        raise ValueError(f"option 'history': observations must be {d} finite numbers")
    if ((histories.actions < 0) | (histories.actions >= n_actions)).any():
        raise ValueError(f"option 'history': actions must be whole numbers from 0 to {n_actions - 1}")
    return histories if len(histories.lengths) == n else histories.take(np.zeros(n, dtype=np.int64))


def episode_rows(batch: Batch, episode: Any, step: Any, n: int) -> tuple[GivenHistories, npt.NDArray[Any]]:
    """Options ``episode`` and ``step``, one for all rows or one each, as n histories h_t and the episodes' ids ``[n]``.

    Raises:
        ValueError: the batch has no such history, or none that could go on.
    """
    found: list[tuple[int, int]] = []
    for asked, t in zip(_for_each(episode, n), _for_each(step, n), strict=True):
        if isinstance(asked, str):
            if asked not in batch.ids:
                raise ValueError(f"option 'episode': the batch has no episode with the id {asked!r}")
            i = batch.ids.index(asked)
        elif isinstance(asked, int | np.integer) and 0 <= asked < len(batch):
            i = int(asked)
        else:
            most = len(batch) - 1
            raise ValueError(f"option 'episode' must be an id or a whole number from 0 to {most}, got {asked!r}")
        length, name = int(batch.lengths[i]), batch.ids[i]
        if not isinstance(t, int | np.integer) or not 0 <= t <= length:
            raise ValueError(f"option 'step' must be a whole number from 0 to {length} for episode {name!r}, got {t!r}")
        if t == length and batch.terminated[i]:
            raise ValueError(f"option 'step': episode {name!r} ended at step {length}, so nothing follows")
        found.append((i, int(t)))
    episodes, steps = np.array(found).T
    longest = int(steps.max())
    obs = batch.obs[episodes, : longest + 1].astype(np.float64)
    ids = np.array([batch.ids[i] for i in episodes], dtype=object)
    return GivenHistories(obs, batch.actions[episodes, :longest], steps), ids


def limit_of(given: Any, limit: int | None, histories: GivenHistories | None) -> int:
    """Option ``horizon`` as the number of actions, those of ``histories`` counted, after which watching ends.

    Without the option that is the environment's own ``limit`` (None: none), which it can only shorten.

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


def _numbers(name: str, given: Any) -> FloatArray:
    try:
        return np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"option {name!r} must be numbers, got {given!r}") from error
