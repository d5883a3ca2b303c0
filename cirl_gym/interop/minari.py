"""Batches as Minari data sets and back, those of others among them: on this machine only, without pickle.

Minari is an exchange format here, not where to keep data: :meth:`~cirl_gym.data.batch.Batch.save` writes the same a
hundred times faster into a hundredth of the space (figures at :func:`to_minari`).
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import observation
from cirl_gym.interop.episodes import (
    MINARI,
    check_episode,
    from_episodes,
    load_library,
    shown_episodes,
)
from cirl_gym.types import BoolArray, IntArray

if TYPE_CHECKING:
    import gymnasium


METADATA = "cirl_gym"
"""Where in a data set's metadata stands what Minari itself has no place for."""
SCHEMA = 1
"""Version of what stands there."""

Ends = Literal["ended", "cut"]

_ABOUT = ("author", "author_email", "code_permalink", "algorithm_name", "description")
_NAME = re.compile(r"([-\w]+/)*[-\w]+-v\d+", re.ASCII)


def to_minari(
    batch: Batch,
    name: str,
    feature_map: FeatureMap,
    weights: npt.ArrayLike,
    *,
    previous_action: bool = True,
    env: gymnasium.Env[Any, Any] | None = None,
    about: Mapping[str, str] | None = None,
) -> Any:
    """Write a new Minari data set (HDF5) and return it as a ``minari.MinariDataset``.

    It is written under the folder that the environment variable ``MINARI_DATASETS_PATH`` names, else under Minari's
    own ``~/.minari/datasets``; nothing is uploaded or downloaded. Each episode has float32 observations
    ``[k+1, d + A]`` (or ``[k+1, d]``), int64 actions ``[k]``, float64 rewards ``[k]``, and ``terminations`` and
    ``truncations`` that are True at most on its last step. The names of episodes, groups, features and actions, and
    the weights and ranges of the reward, stand in the data set's ``metadata.json``, so that
    :func:`~cirl_gym.interop.from_minari` gives the same batch back.

    What it costs: 10,000 episodes of 18 steps on average took 26 s to write and 20 s to read on one core, and 143 MB
    of disk (1,000 of them a tenth of that); ``Batch.save`` and ``Batch.load`` took .16 s, .05 s and 1.4 MB.

    ``name`` is ``group/name-v0`` or ``name-v0``, and there must be no data set of that name yet. ``env`` is where the
    data came from, so that Minari's ``recover_environment()`` can make it again; its spaces become those of the data
    set (default: no environment, and a space without limits). ``about`` holds any of author, author_email,
    code_permalink, algorithm_name and description. The other arguments are those of
    :func:`~cirl_gym.interop.transitions`.

    Raises:
        ImportError: Minari, h5py or Pillow is not installed; the message says how to.
        ValueError: the name is malformed or taken, the environment's spaces do not fit, ``about`` has another key, or
            as :func:`~cirl_gym.interop.step_rewards`. No part of a data set is left behind.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a Minari data set must look like 'group/name-v0', got {name!r}")
    unknown = sorted(set(about or {}) - set(_ABOUT))
    if unknown:
        raise ValueError(f"about has no {unknown[0]!r}; it can hold {', '.join(_ABOUT)}")
    episodes = shown_episodes(batch, feature_map, weights, previous_action)
    spaces_of_data = _spaces(batch, episodes[0].obs.shape[1], env)
    minari = load_library("minari", MINARI)
    for needed in ("h5py", "PIL.Image"):  # Minari asks for them only once it has begun to write
        load_library(needed, MINARI)
    folder = Path(load_library("minari.storage.datasets_root_dir", MINARI).get_dataset_path(name))
    if folder.exists():
        raise ValueError(f"there is a Minari data set {name!r} already, at {folder}: give another name or version")
    own = {
        "schema": SCHEMA,
        "previous_action": previous_action,
        "features": list(batch.features),
        "outcomes": list(feature_map.features),
        "action_names": list(batch.action_names),
        "ids": list(batch.ids),
        "groups": list(batch.groups),
        "weights": np.asarray(weights, dtype=np.float64).tolist(),
        "low": feature_map.low.tolist(),
        "high": feature_map.high.tolist(),
    }
    try:
        with warnings.catch_warnings():
            # What nobody told us about the data is left out; Minari warns of each such field.
            warnings.filterwarnings("ignore", message=r"`\w+` is set to None|env_spec is None", category=UserWarning)
            dataset = minari.create_dataset_from_buffers(
                dataset_id=name,
                buffer=[
                    minari.data_collector.EpisodeBuffer(
                        observations=episode.obs,
                        actions=episode.actions,
                        rewards=episode.rewards,
                        terminations=last & episode.terminated,
                        truncations=last & (not episode.terminated),
                    )
                    for episode in episodes
                    for last in [np.arange(len(episode.actions)) == len(episode.actions) - 1]
                ],
                env=env,
                data_format="hdf5",
                **spaces_of_data,
                **dict(about or {}),
            )
        dataset.storage.update_metadata({METADATA: own})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return dataset


def _spaces(batch: Batch, width: int, env: gymnasium.Env[Any, Any] | None) -> dict[str, spaces.Space[Any]]:
    if env is None:
        hot = np.arange(width) >= len(batch.features)
        low, high = np.where(hot, 0, -np.inf), np.where(hot, 1, np.inf)
        box = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        return {"observation_space": box, "action_space": spaces.Discrete(batch.n_actions)}
    own, acts = env.observation_space, env.action_space
    if not isinstance(own, spaces.Box) or own.shape != (width,):
        raise ValueError(f"the environment shows {own}, but the data's observations have {width} numbers")
    if not isinstance(acts, spaces.Discrete) or acts.n != batch.n_actions or acts.start != 0:
        raise ValueError(f"the environment takes {acts}, but the data have {batch.n_actions} actions")
    return {"observation_space": own, "action_space": acts}


@dataclass(frozen=True)
class MinariReport:
    """What was read from a Minari data set: ``used + lone == episodes`` and ``terminated + truncated == used``."""

    dataset: str
    """Its name."""
    episodes: int
    used: int
    """Number of episodes in the batch."""
    lone: int
    """Episodes without an action, only a first observation: left out, there is nothing to learn from them."""
    steps: int
    """Number of actions in the batch."""
    terminated: int
    truncated: int
    both: int
    """Episodes marked as both on their last step: counted as terminated, since the process did end."""
    unmarked: int
    """Episodes that are not marked as either."""
    ends: Ends | None
    """What the user said about those, None if there are none."""
    rewards_left_out: int
    """Number of rewards in the episodes used; a batch holds none."""
    infos_left_out: tuple[str, ...] = ()
    """Names of what the episodes used tell beside (Minari's ``infos``), in order; a batch holds none of it."""


@dataclass(frozen=True)
class _Layout:
    """How to read an episode's arrays."""

    features: tuple[str, ...]
    action_names: tuple[str, ...]
    previous_action: bool | None
    """Whether the one-hot previous action stands behind the features; None: nobody said."""
    first_action: int
    """The number that stands for action 0."""
    ids: tuple[str, ...]
    """Of all episodes that were ever in the data set, by their numbers; likewise the groups."""
    groups: tuple[str, ...]


def from_minari(
    dataset: Any,
    *,
    ends: Ends | None = None,
    features: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    previous_action: bool | None = None,
) -> tuple[Batch, MinariReport]:
    """A Minari data set as a batch, and the account of its episodes.

    For a data set that :func:`~cirl_gym.interop.to_minari` wrote, or a part of it (``filter_episodes``), nothing more
    is needed: names and the form of the observations stand in its metadata. Those of others must have flat
    observations (a Box of one dimension) and discrete actions; their episodes are named by their numbers. (Minari's
    ``combine_datasets`` drops the metadata: say them again.) Rewards and infos are left out, as a batch has none;
    the report counts and names them. A NaN or an infinity in an observation is an error: nothing is filled.

    Args:
        dataset: a ``minari.MinariDataset``, or the name of one on this machine (nothing is downloaded).
        ends: what the last step of an episode means that is marked neither as terminated nor as truncated: the
            process "ended" there (nothing follows), or the record was "cut" there (what follows was not watched).
            Needed if there is such an episode, refused if there is none.
        features: names of the d features; default ``x0``, ``x1``, ...
        action_names: names of the A actions; default: their numbers.
        previous_action: whether the last A numbers of each observation are the one-hot previous action. They are
            checked against the actions and dropped.

    Raises:
        ImportError: Minari is not installed; the message says how to.
        FileNotFoundError: there is no data set of that name on this machine.
        ValueError: an episode does not have one observation more than it has actions, its end is marked before its
            last step or not at all, its previous-action columns are wrong, a number is not finite or beyond all
            bounds, or the data set is of another kind; the message names the episode, and step and feature.
    """
    if ends is not None and ends not in get_args(Ends):
        raise ValueError(f"ends must be 'ended' or 'cut', got {ends!r}")
    if isinstance(dataset, str):
        load_library("h5py", MINARI)
        dataset = load_library("minari", MINARI).load_dataset(dataset)
    if not hasattr(dataset, "observation_space"):
        raise ValueError(f"a Minari data set, or the name of one, is needed, got a {type(dataset).__name__}")
    features, action_names = (None if given is None else tuple(given) for given in (features, action_names))
    layout = _layout(dataset, features, action_names, previous_action)
    indices, obs, actions, marks, lone, infos = _read(dataset, layout)
    ids = [layout.ids[i] for i in indices]
    unmarked = ~marks.any(axis=1)
    if unmarked.any() and ends is None:
        first = ids[int(np.flatnonzero(unmarked)[0])]
        raise ValueError(
            f"data set {dataset.id!r}: {int(unmarked.sum())} of {len(ids)} episodes (the first is {first!r}) are "
            "marked neither as terminated nor as truncated on their last step. Say ends='ended' (the process itself "
            "ended there, nothing follows) or ends='cut' (only the record ends there)"
        )
    if ends is not None and not unmarked.any():
        raise ValueError(f"data set {dataset.id!r} itself says how each episode ends: leave out ends")
    batch = from_episodes(
        obs,
        actions,
        marks[:, 0] | (unmarked & (ends == "ended")),
        features=layout.features,
        action_names=layout.action_names,
        ids=ids,
        groups=[layout.groups[i] for i in indices],
    )
    return batch, MinariReport(
        dataset=str(dataset.id),
        episodes=len(batch) + lone,
        used=len(batch),
        lone=lone,
        steps=batch.n_steps,
        terminated=int(batch.terminated.sum()),
        truncated=int(batch.truncated.sum()),
        both=int(marks.all(axis=1).sum()),
        unmarked=int(unmarked.sum()),
        ends=ends,
        rewards_left_out=batch.n_steps,
        infos_left_out=tuple(sorted(infos)),
    )


def _read(
    dataset: Any, layout: _Layout
) -> tuple[list[int], list[npt.NDArray[Any]], list[npt.NDArray[Any]], BoolArray, int, set[str]]:
    """Of the n episodes with an action, each checked: numbers, features, actions, marks ``[n, 2]``; how many had none.

    Last come the names of their infos. The marks say whether the last step is marked as terminated, and as truncated.

    Raises:
        ValueError: one of them breaks a rule, or none has an action.
    """
    d = len(layout.features)
    shown = d + len(layout.action_names) * bool(layout.previous_action)
    indices: list[int] = []
    obs, actions, marks = [], [], []
    lone, repeating, infos = 0, True, set[str]()
    for episode in dataset.iterate_episodes():
        name = layout.ids[int(episode.id)]
        seen, taken = np.asarray(episode.observations), np.asarray(episode.actions) - layout.first_action
        check_episode(name, seen, taken, shown)
        if len(taken) == 0:
            lone += 1
            continue
        flags = []
        for what in ("terminations", "truncations", "rewards"):
            found = np.asarray(getattr(episode, what))
            if found.shape != taken.shape:
                raise ValueError(f"episode {name!r}: {what} has shape {found.shape} for {len(taken)} actions")
            flags.append(found.astype(np.bool_))
        early = np.flatnonzero(flags[0][:-1] | flags[1][:-1])
        if len(early):
            raise ValueError(
                f"episode {name!r}: its end is marked at step {early[0]}, but it goes on to step {len(taken) - 1}"
            )
        marks.append((flags[0][-1], flags[1][-1]))
        repeating &= _repeats_actions(name, seen, taken, layout)
        indices.append(int(episode.id))
        obs.append(seen[:, :d])
        actions.append(taken)
        infos |= set(map(str, getattr(episode, "infos", None) or ()))  # a Minari of before they were kept has none
    if not indices:
        raise ValueError(f"data set {dataset.id!r} has no episode with an action")
    if layout.previous_action is None and repeating:
        raise ValueError(
            f"data set {dataset.id!r}: the last {len(layout.action_names)} numbers of every observation are the "
            "one-hot previous action. Say previous_action=True to check and drop them, or False to keep them"
        )
    return indices, obs, actions, np.array(marks, dtype=np.bool_), lone, infos


def _layout(
    dataset: Any, features: Sequence[str] | None, action_names: Sequence[str] | None, previous_action: bool | None
) -> _Layout:
    seen, acts = dataset.observation_space, dataset.action_space
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1 or not isinstance(acts, spaces.Discrete):
        raise ValueError(
            f"data set {dataset.id!r} has observations {seen} and actions {acts}: only flat observations (a Box of "
            "one dimension) and discrete actions make a batch"
        )
    own = dataset.storage.metadata.get(METADATA)
    n = dataset.storage.total_episodes
    if own is not None:
        if own.get("schema") != SCHEMA:
            raise ValueError(f"data set {dataset.id!r} was written with schema {own.get('schema')}, not {SCHEMA}")
        for name, value in {"features": features, "action_names": action_names}.items():
            if value is not None and tuple(value) != tuple(own[name]):
                raise ValueError(f"data set {dataset.id!r} itself has {name} {tuple(own[name])}, got {tuple(value)}")
        if previous_action is not None and previous_action != own["previous_action"]:
            raise ValueError(f"data set {dataset.id!r} itself says previous_action={own['previous_action']}")
        if len(own["ids"]) != n:
            raise ValueError(
                f"data set {dataset.id!r} holds {n} episodes, but was written with {len(own['ids'])}: episodes that "
                "were added later have no name"
            )
        recorded = {name: tuple(own[name]) for name in ("features", "action_names", "ids", "groups")}
        return _Layout(**recorded, previous_action=own["previous_action"], first_action=0)
    names = tuple(str(acts.start + a) for a in range(int(acts.n))) if action_names is None else tuple(action_names)
    if len(names) != acts.n:
        raise ValueError(f"data set {dataset.id!r} has {acts.n} actions, action_names names {len(names)}")
    d = seen.shape[0] - len(names) * bool(previous_action)
    if d < 1:
        raise ValueError(f"data set {dataset.id!r}: observations of {seen.shape[0]} numbers hold no feature")
    given = tuple(f"x{j}" for j in range(d)) if features is None else tuple(features)
    if len(given) != d:
        raise ValueError(f"data set {dataset.id!r} has {d} features, {len(given)} are named")
    numbers = tuple(map(str, range(n)))
    return _Layout(given, names, previous_action, int(acts.start), numbers, numbers)


def _repeats_actions(name: str, seen: npt.NDArray[Any], taken: IntArray, layout: _Layout) -> bool:
    """Whether the last A columns are the one-hot previous action, as they must be if the layout says so."""
    n_actions = len(layout.action_names)
    if layout.previous_action is False or seen.shape[1] <= n_actions:
        return False
    previous = np.concatenate([[-1], taken])
    expected = observation(np.zeros((len(seen), 0), dtype=np.float32), previous, n_actions)
    same = (seen[:, -n_actions:] == expected).all(axis=1)
    if layout.previous_action and not same.all():
        step = int(np.flatnonzero(~same)[0])
        raise ValueError(
            f"episode {name!r}, step {step}: the previous-action columns are {seen[step, -n_actions:].tolist()}, but "
            + (f"the action before was {layout.action_names[taken[step - 1]]!r}" if step else "no action came before")
        )
    return bool(same.all())
