"""Offline data: N episodes of what experts observed and did, in one frozen, checked object."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cirl_gym.files import Outline, loading, parsed_json, read_arrays, write_arrays
from cirl_gym.types import BoolArray, Float32Array, IntArray

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.tables.account import TableReport
    from cirl_gym.tables.columns import TableColumns, TableOptions


SCHEMA = 2
"""Files of schema 1 do not say which fields they hold: one that is missing may be that of an older version."""
PREVIOUS, PREVIOUS2, NONE = "previous", "previous2", "none"
"""Words for habits of the action before, and for none (:mod:`cirl_gym.data.habits`): no context has such a name."""
RARE_TIMES, RARE_GROUPS = 30, 10
"""What an action does is not known from fewer times, or from fewer patients."""
COMMON = 0.05
"""... unless they are so large a share of the decisions."""
LARGEST = 1e15
"""No reading is larger than this (platelets per litre are some 1e12 at most); one beyond it is a fault, and would ruin
every mean and scale."""


def evenly_spaced_rows(n: int, most: int) -> IntArray:
    """At most ``most`` of the rows 0..n-1, the first and the last among them; the same ones at every call."""
    rows: IntArray = np.linspace(0, n - 1, min(n, most)).astype(np.int64)
    return rows


@dataclass(frozen=True)
class Batch:
    """N episodes; an episode with k actions has k + 1 observations.

    Rows past an episode's end are padding: they are set to zero here, once, so that whatever a caller put there can
    never change a result. All arrays are copied and made read-only.

    Raises:
        ValueError: a shape, dtype or value breaks a promise below; the message names the field and the episode's id.
    """

    obs: Float32Array
    """``[N, T+1, d]`` float32, raw units, finite and at most :data:`LARGEST` in size."""
    actions: IntArray
    """``[N, T]`` int64 in 0..A-1."""
    lengths: IntArray
    """``[N]`` int64 number of actions, at least 1."""
    terminated: BoolArray
    """``[N]`` the process ended with the last action."""
    truncated: BoolArray
    """``[N]`` watching ended after the last action. Exactly one of the two holds for every episode."""
    features: tuple[str, ...]
    """Names of the d features."""
    action_names: tuple[str, ...]
    """Names of the A actions."""
    ids: tuple[str, ...]
    """Names of the N episodes, as text, all different."""
    groups: tuple[str, ...] = ()
    """Whom each episode belongs to (a patient with several stays); default: every episode stands alone."""
    allowed: BoolArray | None = None
    """``[N, T, A]`` which actions could be chosen from, those taken among them (:mod:`cirl_gym.data.rules`); None:
    every action always."""
    contexts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """H discrete columns beside what is observed (a ward, a shift) that habits may depend on: name and levels of each
    (:mod:`cirl_gym.data.habits`). No outcome model and no policy sees them, and no roll-out has any."""
    context_levels: IntArray | None = None
    """``[N, T, H]`` int64 number of the level of each context at every decision; None without contexts."""

    def __post_init__(self) -> None:
        obs, actions = np.array(self.obs), np.array(self.actions)
        if obs.ndim != 3 or actions.ndim != 2 or obs.shape[:2] != (actions.shape[0], actions.shape[1] + 1):
            raise ValueError(f"Batch: obs must be [N, T+1, d] and actions [N, T], got {obs.shape} and {actions.shape}")
        n, steps = actions.shape
        if n == 0 or steps == 0:
            raise ValueError("Batch: at least one episode with one action is needed")
        for name in ("features", "action_names", "ids", "groups"):
            object.__setattr__(self, name, tuple(str(value) for value in getattr(self, name)))
        if not self.groups:
            object.__setattr__(self, "groups", self.ids)
        d, features, names = obs.shape[2], self.features, self.action_names
        if len(features) != d or len(set(features)) != d:
            raise ValueError(f"Batch: features must be {d} different names, got {features}")
        if len(names) < 2 or len(set(names)) != len(names):
            raise ValueError(f"Batch: action_names must be at least two different names, got {names}")
        if len(self.ids) != n or len(self.groups) != n:
            raise ValueError(f"Batch: ids and groups must be {n} names, got {len(self.ids)} and {len(self.groups)}")
        if len(set(self.ids)) != n:
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise ValueError(f"Batch: the id {twice!r} stands for two episodes")
        lengths = _whole_numbers("lengths", np.array(self.lengths))
        if lengths.shape != (n,):
            raise ValueError(f"Batch: lengths must be [{n}], got {lengths.shape}")
        for (bad,) in _first((lengths < 1) | (lengths > steps)):
            raise ValueError(f"Batch: episode {self.ids[bad]!r} has length {lengths[bad]}, not within 1..{steps}")
        flags = [np.array(getattr(self, name)) for name in ("terminated", "truncated")]
        if any(flag.shape != (n,) or flag.dtype != np.bool_ for flag in flags):
            raise ValueError(f"Batch: terminated and truncated must be bool [{n}]")
        for (bad,) in _first(flags[0] == flags[1]):
            raise ValueError(f"Batch: episode {self.ids[bad]!r} must be either terminated or truncated")

        live_obs = np.arange(steps + 1) <= lengths[:, None]
        live_actions = np.arange(steps) < lengths[:, None]
        if obs.dtype.kind not in "fiub":
            raise ValueError(f"Batch: obs must be numbers, got {obs.dtype}")
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is named below
            obs = np.where(live_obs[..., None], obs, 0).astype(np.float32)
        for episode, step, column in _first(~(np.abs(obs) <= LARGEST)):
            value = obs[episode, step, column]
            raise ValueError(
                f"Batch: obs of episode {self.ids[episode]!r}, step {step}, feature {self.features[column]!r} "
                + (f"is {value:g}, beyond {LARGEST:g}" if np.isfinite(value) else "is not finite as float32")
            )
        actions = _whole_numbers("actions", np.where(live_actions, actions, 0))
        for episode, step in _first((actions < 0) | (actions >= self.n_actions)):
            raise ValueError(
                f"Batch: action of episode {self.ids[episode]!r}, step {step} is {actions[episode, step]}, "
                f"not within 0..{self.n_actions - 1}"
            )
        checked: dict[str, npt.NDArray[Any]] = {"obs": obs, "actions": actions, "lengths": lengths}
        checked |= {"terminated": flags[0], "truncated": flags[1]}
        if self.allowed is not None:
            allowed, shape = np.array(self.allowed), [*actions.shape, self.n_actions]
            if list(allowed.shape) != shape or allowed.dtype != np.bool_:
                raise ValueError(f"Batch: allowed must be bool {shape}, got {allowed.dtype} {list(allowed.shape)}")
            checked["allowed"] = allowed | ~live_actions[..., None]
            for episode, step in _first(~np.take_along_axis(checked["allowed"], actions[..., None], axis=2)[..., 0]):
                raise ValueError(
                    f"Batch: episode {self.ids[episode]!r}, step {step}: action "
                    f"{names[actions[episode, step]]!r} was taken and is not allowed"
                )
        contexts = tuple((str(name), tuple(map(str, levels))) for name, levels in self.contexts)
        object.__setattr__(self, "contexts", contexts)
        if contexts or self.context_levels is not None:
            checked["context_levels"] = _levels_along(contexts, self.context_levels, self.ids, live_actions)
        for name, array in checked.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        """N, the number of episodes."""
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        """Equal field by field, arrays by value."""
        if not isinstance(other, Batch):
            return NotImplemented
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return all(a == b if isinstance(a, tuple) else np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return len(self.action_names)

    @property
    def horizon(self) -> int:
        """T, the longest number of actions."""
        return int(self.actions.shape[1])

    @property
    def n_steps(self) -> int:
        """Number of actions in all episodes together."""
        return int(self.lengths.sum())

    @property
    def mask(self) -> BoolArray:
        """``[N, T]`` True where an action was taken."""
        live: BoolArray = np.arange(self.horizon) < self.lengths[:, None]
        return live

    @property
    def seen(self) -> BoolArray:
        """``[N, T+1]`` True where an observation exists."""
        live: BoolArray = np.arange(self.horizon + 1) <= self.lengths[:, None]
        return live

    @property
    def owners(self) -> IntArray:
        """``[N]`` the number of each episode's group (patient), from 0 on in the order of their names."""
        numbers: IntArray = np.unique(np.asarray(self.groups), return_inverse=True)[1].astype(np.int64)
        return numbers

    @property
    def start(self) -> Float32Array:
        """``[N, d]`` first observations."""
        return self.obs[:, 0].copy()

    @property
    def next_obs(self) -> Float32Array:
        """``[N, T, d]`` the observation that followed each action; zero on padding."""
        return self.obs[:, 1:].copy()

    def take(self, episodes: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Batch:
        """The chosen episodes, in the order given."""
        rows = np.arange(len(self))[episodes]
        return self._of(rows, tuple(self.ids[row] for row in rows))

    def thinned(self, decisions: int) -> Batch:
        """Whole episodes, evenly spaced, of about so many decisions; all of them where there are fewer."""
        if self.n_steps <= decisions:
            return self
        return self.take(evenly_spaced_rows(len(self), max(decisions * len(self) // self.n_steps, 1)))

    def resampled(self, episodes: npt.NDArray[np.integer]) -> Batch:
        """The chosen episodes, each as often as it is named; their ids are numbered, so that one drawn twice is two."""
        return self._of(episodes, tuple(f"{self.ids[row]} ({number})" for number, row in enumerate(episodes)))

    def _of(self, rows: npt.NDArray[np.integer], ids: tuple[str, ...]) -> Batch:
        arrays = {name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays, ids=ids, groups=tuple(self.groups[i] for i in rows))

    def padded(self, horizon: int) -> Batch:
        """The same episodes with more padding, up to ``horizon`` actions."""
        extra = horizon - self.horizon
        if extra < 0:
            raise ValueError(f"Batch.padded: horizon {horizon} is shorter than the data's {self.horizon}")
        more = ((0, 0), (0, extra), (0, 0))
        further: dict[str, Any] = {name: np.pad(array, more) for name, array in self._by_decision().items()}
        return replace(self, obs=np.pad(self.obs, more), actions=np.pad(self.actions, more[:2]), **further)

    def trimmed(self) -> Batch:
        """The same episodes without padding behind the longest of them."""
        longest = int(self.lengths.max())
        further: dict[str, Any] = {name: array[:, :longest] for name, array in self._by_decision().items()}
        return replace(self, obs=self.obs[:, : longest + 1], actions=self.actions[:, :longest], **further)

    @classmethod
    def together(cls, batches: Sequence[Batch]) -> Batch:
        """The episodes of all batches in one, in the order of their ids.

        Raises:
            ValueError: there is no batch, their features, actions or contexts differ, or an id is there twice.
        """
        alike = {(one.features, one.action_names, one.contexts, one.allowed is None) for one in batches}
        if len(alike) != 1:
            raise ValueError("Batch.together: batches of the same features, actions and contexts are needed")
        longest = max(one.horizon for one in batches)
        every = [one.padded(longest) for one in batches]
        arrays = {
            name: np.concatenate([getattr(one, name) for one in every])
            for name, value in vars(every[0]).items()
            if isinstance(value, np.ndarray)
        }
        names = {name: tuple(text for one in every for text in getattr(one, name)) for name in ("ids", "groups")}
        whole: Batch = replace(every[0], **arrays, **names)  # type: ignore[arg-type]
        return whole.take(np.argsort(np.asarray(whole.ids), kind="stable"))

    def _by_decision(self) -> dict[str, npt.NDArray[Any]]:
        """What there is of every decision ``[N, T, ...]`` beside the actions."""
        found = {name: getattr(self, name) for name in ("allowed", "context_levels")}
        return {name: array for name, array in found.items() if array is not None}

    def with_early_ends(self, horizon: int) -> Batch:
        """The same episodes, those that were watched for fewer than ``horizon`` actions counted as terminated.

        A sum over an episode's steps stops where watching stopped. A world model whose episodes are to be compared
        with it must let them stop at the same rate, whatever the reason was (discharge, transfer, death).
        """
        terminated = self.terminated | (self.lengths < horizon)
        return replace(self, terminated=terminated, truncated=~terminated)

    def split(self, share: float, rng: np.random.Generator) -> tuple[Batch, Batch]:
        """Split by group, never by row: about ``share`` of the groups go to the second batch, at least one to each.

        Raises:
            ValueError: ``share`` is not inside (0, 1), or there is only one group.
        """
        if not 0 < share < 1:
            raise ValueError(f"Batch.split: share must lie between 0 and 1, got {share}")
        names = sorted(set(self.groups))
        if len(names) < 2:
            raise ValueError("Batch.split: two groups are needed to split by group")
        chosen = rng.permutation(len(names))[: min(max(round(share * len(names)), 1), len(names) - 1)]
        second = {names[i] for i in chosen}
        inside = np.array([group in second for group in self.groups])
        return self.take(~inside), self.take(inside)

    def levels_of(self, context: str) -> IntArray:
        """``[N, T]`` number of the level of one context at every decision; 0 on padding.

        Raises:
            ValueError: there is no such context.
        """
        names = [name for name, _ in self.contexts]
        if context not in names or self.context_levels is None:
            raise ValueError(f"Batch: there is no context {context!r}; there are {', '.join(names) or 'none'}")
        return self.context_levels[..., names.index(context)].copy()

    def episodes(self) -> Iterator[tuple[Float32Array, IntArray]]:
        """Each episode without padding: observations ``[k+1, d]`` and actions ``[k]``."""
        for i, length in enumerate(self.lengths):
            yield self.obs[i, : length + 1].copy(), self.actions[i, :length].copy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz`` whole, without pickle; of what there is not (rules, contexts) it says nothing."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        contexts = values.pop("contexts")
        arrays = {name: np.asarray(value) for name, value in values.items() if value is not None}
        if contexts:
            arrays["contexts"] = np.array(json.dumps(contexts))
        write_arrays(path, {"schema": np.array(SCHEMA), "fields": np.array(sorted(arrays)), **arrays})

    @classmethod
    def from_dataframe(
        cls, frame: pd.DataFrame, columns: TableColumns | None = None, options: TableOptions | None = None
    ) -> tuple[Batch, TableReport]:
        """A table as a batch, and the account of its rows: :func:`cirl_gym.tables.read.from_dataframe`."""
        from cirl_gym.tables.read import from_dataframe

        return from_dataframe(frame, columns, options)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Batch:
        """Read what :meth:`save` wrote, in earlier versions too; every promise is checked again.

        Raises:
            ValueError: the file is not a whole batch of this schema.
        """
        arrays = read_arrays(path, _check_outlines)
        with loading(path, "a whole batch"):
            schema, held = int(arrays.pop("schema")), arrays.pop("fields", None)
            if schema != 1 and (held is None or set(held.tolist()) != set(arrays)):
                raise ValueError("its list of fields is not that of what it holds")
            told = parsed_json(str(arrays.pop("contexts", "[]")))
            contexts = tuple((str(name), tuple(map(str, levels))) for name, levels in told)
            return cls(**arrays, contexts=contexts)  # type: ignore[arg-type]


def _check_outlines(found: Mapping[str, Outline]) -> None:
    """Raise ValueError where arrays of a file are not those of a batch, before any of them is unpacked.

    Padding compresses to next to nothing, so that how large the file is says nothing of how large its arrays are; but
    no size is larger than the arrays of names and flags say.
    """
    if not {"schema", "obs", "actions", "ids"} <= found.keys() or found["schema"].shape:
        raise ValueError(f"it is no batch: it holds {', '.join(sorted(found)) or 'nothing'}")
    own = {field.name for field in fields(Batch)}
    odd = (set(found) - {"schema", "fields"} | {"allowed", "contexts", "context_levels"}) ^ own
    if odd:
        raise ValueError(f"it is no batch: {sorted(odd)} missing or unknown")
    (n, t), d, a = found["actions"].shape, found["features"].shape[0], found["action_names"].shape[0]
    each = dict.fromkeys(("ids", "groups", "lengths", "terminated", "truncated"), (n,))
    shapes = {**each, "obs": (n, t + 1, d), "features": (d,), "action_names": (a,), "allowed": (n, t, a)}
    for name, shape in shapes.items():
        if name in found and found[name].shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, got {list(found[name].shape)}")
    for name in ("ids", "groups", "features", "action_names", "contexts"):
        if name in found and found[name].dtype.kind != "U":
            raise ValueError(f"{name} must be texts, got {found[name].dtype}")


def warn_of_actions_never_taken(*batches: Batch) -> None:
    """A warning where none of the batches holds an action that all of them have: nothing can be learnt of it."""
    names = batches[0].action_names
    met = np.zeros(len(names), dtype=np.bool_)
    for batch in batches:
        met[batch.actions[batch.mask]] = True
    for name, taken in zip(names, met, strict=True):
        if not taken:
            told = f"action {name!r} is never taken in these episodes: what is fitted says nothing of it that was seen"
            warnings.warn(told, stacklevel=3)


def seldom_taken(batch: Batch) -> tuple[int, ...]:
    """The actions of whose effects next to nothing is known: taken fewer than :data:`RARE_TIMES` times, or by fewer
    than :data:`RARE_GROUPS` patients, and in less than :data:`COMMON` of the decisions."""
    actions, owners = batch.actions[batch.mask], np.repeat(batch.owners, batch.lengths)
    times = np.bincount(actions, minlength=batch.n_actions)
    pairs = np.unique(owners * batch.n_actions + actions)
    patients = np.bincount(pairs % batch.n_actions, minlength=batch.n_actions)
    few = (times < RARE_TIMES) | (patients < RARE_GROUPS)
    return tuple(int(action) for action in np.flatnonzero(few & (times < COMMON * batch.n_steps)))


def _first(broken: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Where a promise is broken first, as a list of one place, or of none."""
    first: list[list[int]] = np.argwhere(broken)[:1].tolist()
    return first


def _levels_along(
    contexts: tuple[tuple[str, tuple[str, ...]], ...],
    numbers: IntArray | None,
    ids: tuple[str, ...],
    live: BoolArray,
) -> IntArray:
    """``[N, T, H]`` numbers of levels, checked, and 0 on padding."""
    names, shape = [name for name, _ in contexts], [*live.shape, len(contexts)]
    if len(set(names)) < len(names) or set(names) & {PREVIOUS, PREVIOUS2, NONE}:
        raise ValueError(
            f"Batch: contexts must have different names, none of them {PREVIOUS}, {PREVIOUS2} or {NONE}, got {names}"
        )
    for name, levels in contexts:
        if not levels or len(set(levels)) < len(levels):
            raise ValueError(f"Batch: context {name!r} must have different levels, at least one, got {levels}")
    if numbers is None or not contexts:
        raise ValueError("Batch: contexts and context_levels must be given together")
    given = np.array(numbers)
    if list(given.shape) != shape:
        raise ValueError(f"Batch: context_levels must be {shape}, got {list(given.shape)}")
    found = _whole_numbers("context_levels", np.where(live[..., None], given, 0))
    sizes = np.array([len(levels) for _, levels in contexts])
    for episode, step, which in _first((found < 0) | (found >= sizes)):
        raise ValueError(
            f"Batch: episode {ids[episode]!r}, step {step}: the level of {names[which]!r} is "
            f"{found[episode, step, which]}, not within 0..{sizes[which] - 1}"
        )
    return found


def _whole_numbers(name: str, array: npt.NDArray[np.generic]) -> IntArray:
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"Batch: {name} must be whole numbers, got {array.dtype}")
    return array.astype(np.int64)
