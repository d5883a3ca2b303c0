"""A batch episode by episode and step by step, as other libraries want it: seen, done, earned, and what came next.

Index order, everywhere in this package: ``(x_t, a_t, r_t, x_{t+1})``. T actions go with T + 1 observations; the reward
of an action is that of the outcome which followed it, ``r_t = w . phi(x_{t+1})`` (paper, equation 23).

d3rlpy and imitation are loaded by their own functions, which say how to get them where they are not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, check_weights, reward
from cirl_gym.data.rollout import observation
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

MINARI = 'pip install "minari>=0.5.4" h5py pillow  (Python 3.11 or newer)'
IMITATION = (
    "pip install cirl-gym imitation  (a fresh environment, with Gymnasium 0.29); or, beside a newer Gymnasium: "
    "pip install scikit-learn tqdm rich matplotlib tensorboard datasets pyyaml wasabi jsonpickle, and then "
    "pip install --no-deps imitation==1.0.1 seals==0.2.1 huggingface-sb3==3.0"
)
D3RLPY = (
    "pip install --no-deps d3rlpy==2.8.1 gym==0.26.2, and then "
    "pip install structlog dataclasses-json click colorama tqdm scikit-learn h5py  "
    "(d3rlpy's own requirements would replace Gymnasium by 1.0.0)"
)


def load_library(module: str, install: str) -> ModuleType:
    """Import a module; an ImportError says how to ``install`` it and what it needs, where that is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}). To install it: {install}") from error


class Transition(NamedTuple):
    """One action and what followed it."""

    id: str
    """The episode."""
    step: int
    """t, from 0 in every episode."""
    obs: Float32Array
    """``[d]`` or ``[d + A]``, what was seen when the action was chosen."""
    action: int
    """In 0..A-1."""
    reward: float
    """w . phi of the outcome that followed."""
    next_obs: Float32Array
    """``[d]`` or ``[d + A]``, what was seen afterwards; never the next episode's."""
    terminated: bool
    """The process ended with this action: no value follows."""
    truncated: bool
    """Watching ended after this action: the value of what followed is unknown, not zero."""


def shown_observations(batch: Batch, *, previous_action: bool = True) -> Float32Array:
    """``[N, T+1, d + A]`` or ``[N, T+1, d]``: the observations as ``CIRLTumour-v0`` shows them, a fresh array.

    ``previous_action`` appends the one-hot previous action (zeros at t = 0), as the environments do by default. Raw
    units; rows past an episode's end mean nothing.
    """
    if not previous_action:
        return batch.obs.copy()
    n, rows, _ = batch.obs.shape
    previous = np.concatenate([np.full((n, 1), -1, dtype=np.int64), batch.actions], axis=1)
    flat = observation(batch.obs.reshape(n * rows, -1), previous.reshape(-1), batch.n_actions)
    return flat.reshape(n, rows, -1)


def step_rewards(batch: Batch, feature_map: FeatureMap, weights: npt.ArrayLike) -> FloatArray:
    """``[N, T]`` rewards w . phi(x_{t+1}) of the actions (paper, equation 23); zero on padding.

    Raises:
        ValueError: the feature map is for other features, or the weights are not one per outcome with an L1 norm of
            at most 1.
    """
    if feature_map.of != batch.features:
        raise ValueError(f"the feature map is for {feature_map.of}, the batch has {batch.features}")
    earned = reward(feature_map(batch.next_obs), check_weights(weights, feature_map.features))
    return np.where(batch.mask, earned, 0.0)


class ShownEpisode(NamedTuple):
    """One episode with k actions, without padding; its arrays are its own."""

    obs: Float32Array
    """``[k+1, d]`` or ``[k+1, d + A]``, what was seen."""
    actions: IntArray
    """``[k]``."""
    rewards: FloatArray
    """``[k]`` w . phi of the outcomes that followed."""
    terminated: bool
    """The process ended with the last action; otherwise watching ended there."""


def shown_episodes(
    batch: Batch, feature_map: FeatureMap, weights: npt.ArrayLike, previous_action: bool
) -> list[ShownEpisode]:
    """The N episodes as a learner is shown them, in the batch's order; arguments and errors as :func:`transitions`."""
    seen = shown_observations(batch, previous_action=previous_action)
    earned = step_rewards(batch, feature_map, weights)
    return [
        ShownEpisode(
            seen[i, : length + 1].copy(),
            batch.actions[i, :length].copy(),
            earned[i, :length].copy(),
            bool(batch.terminated[i]),
        )
        for i, length in enumerate(batch.lengths.tolist())
    ]


def transitions(
    batch: Batch, feature_map: FeatureMap, weights: npt.ArrayLike, *, previous_action: bool = True
) -> Iterator[Transition]:
    """Every action of every episode, in order: ``batch.n_steps`` of them.

    Args:
        batch: N episodes.
        feature_map: phi of the reward.
        weights: ``[d]`` of the reward.
        previous_action: as in :func:`shown_observations`.

    Raises:
        ValueError: as :func:`step_rewards`.
    """
    episodes = shown_episodes(batch, feature_map, weights, previous_action)
    return (
        Transition(
            id=batch.ids[i],
            step=t,
            obs=episode.obs[t].copy(),
            action=action,
            reward=float(episode.rewards[t]),
            next_obs=episode.obs[t + 1].copy(),
            terminated=t == len(episode.actions) - 1 and episode.terminated,
            truncated=t == len(episode.actions) - 1 and not episode.terminated,
        )
        for i, episode in enumerate(episodes)
        for t, action in enumerate(episode.actions.tolist())
    )


def from_episodes(
    obs: Sequence[npt.NDArray[Any]],
    actions: Sequence[npt.NDArray[Any]],
    terminated: BoolArray,
    *,
    features: Sequence[str],
    action_names: Sequence[str],
    ids: Sequence[str],
    groups: Sequence[str] = (),
) -> Batch:
    """Episodes of any lengths as one batch.

    Args:
        obs: N arrays ``[k+1, d]``, raw units.
        actions: N arrays ``[k]`` of whole numbers in 0..A-1, k at least 1.
        terminated: ``[N]`` whether the process ended with the last action; otherwise watching ended there.
        features: names of the d features.
        action_names: names of the A actions.
        ids: names of the N episodes.
        groups: whom each belongs to.

    Raises:
        ValueError: an episode does not have one observation more than it has actions, or breaks another promise of
            :class:`~cirl_gym.data.batch.Batch`; the message names it.
    """
    obs, actions, ids, features = list(obs), list(actions), list(ids), list(features)  # generators too
    n = len(ids)
    if n == 0 or not len(obs) == len(actions) == n:
        raise ValueError(f"{n} ids, but {len(obs)} arrays of observations and {len(actions)} of actions")
    for i in range(n):
        check_episode(ids[i], np.asarray(obs[i]), np.asarray(actions[i]), len(features))
        if len(actions[i]) == 0:
            raise ValueError(f"episode {ids[i]!r} has no action")
    lengths = np.array([len(a) for a in actions], dtype=np.int64)
    padded_obs = np.zeros((n, int(lengths.max()) + 1, len(features)))
    padded_actions = np.zeros(padded_obs.shape[:2], dtype=np.int64)[:, 1:]
    for i, length in enumerate(lengths.tolist()):
        padded_obs[i, : length + 1] = obs[i]
        padded_actions[i, :length] = actions[i]
    ended = np.asarray(terminated, dtype=np.bool_)
    return Batch(
        obs=padded_obs,  # type: ignore[arg-type]  # Batch makes it float32, and names what does not fit
        actions=padded_actions,
        lengths=lengths,
        terminated=ended,
        truncated=~ended,
        features=tuple(features),
        action_names=tuple(action_names),
        ids=tuple(ids),
        groups=tuple(groups),
    )


def check_episode(name: str, obs: npt.NDArray[Any], actions: npt.NDArray[Any], d: int) -> None:
    """Check that an episode has observations ``[k+1, d]`` for actions ``[k]``, k = 0 included.

    Raises:
        ValueError: it has not; the message names it.
    """
    if actions.ndim != 1 or not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(
            f"episode {name!r}: actions must be whole numbers [k], got {actions.dtype} {list(actions.shape)}"
        )
    if obs.ndim != 2 or obs.shape[1] != d or obs.dtype.kind not in "fiub":
        raise ValueError(
            f"episode {name!r}: observations must be numbers [k+1, {d}], got {obs.dtype} {list(obs.shape)}"
        )
    if len(obs) != len(actions) + 1:
        raise ValueError(
            f"episode {name!r}: {len(obs)} observations for {len(actions)} actions; k actions need k + 1 observations"
        )


@dataclass(frozen=True)
class KeepLastObservation:
    """A transition picker of d3rlpy that shows the observation which ended an episode.

    d3rlpy's own picker writes zeros there. It does not matter to a target that stops at a terminal step, but it does to
    whoever looks at what the last action led to.
    """

    def __call__(self, episode: Any, index: int) -> Any:
        """The transition ``(x_t, a_t, r_t, x_{t+1})`` at ``index`` of a d3rlpy episode that :func:`to_d3rlpy` made.

        Raises:
            IndexError: the episode has no such transition.
        """
        if not 0 <= index < episode.transition_count:
            raise IndexError(f"transition {index} of an episode with {episode.transition_count}")
        terminal = bool(episode.terminated) and index == episode.transition_count - 1
        action = episode.actions[index]
        return load_library("d3rlpy.dataset", D3RLPY).Transition(
            observation=episode.observations[index],
            action=action,
            reward=episode.rewards[index],
            next_observation=episode.observations[index + 1],
            next_action=np.zeros_like(action) if terminal else episode.actions[index + 1],
            terminal=float(terminal),
            interval=1,
            rewards_to_go=episode.rewards[index:],
        )


def to_d3rlpy(batch: Batch, feature_map: FeatureMap, weights: npt.ArrayLike, *, previous_action: bool = True) -> Any:
    """A ``d3rlpy.dataset.MDPDataset`` of ``batch.n_steps`` transitions, episodes in the batch's order.

    Terminals are ``terminated``, timeouts ``truncated``. Every episode carries all of its k + 1 observations:

    * ended: k actions; the last transition is terminal and shows the observation that ended the episode
      (:class:`KeepLastObservation`).
    * cut: one closing row with the last observation, reward 0 and the filler action 0. d3rlpy does not count the last
      row of a cut episode as a transition, so that without the closing row the last action would be lost, and with it
      every episode of one action. The filler is never an action to learn from; it appears as ``next_action`` alone.

    Actions are discrete, int64 ``[k, 1]``; the data set knows all A of them, taken or not. Observations and rewards
    are float32. ``dataset.dump(file)``, the file opened as "w+b", and
    ``ReplayBuffer.load(file, buffer, transition_picker=KeepLastObservation())`` keep everything.

    The arguments are those of :func:`transitions`.

    Raises:
        ImportError: d3rlpy is not installed; the message says how to, beside a newer Gymnasium.
        ValueError: as :func:`~cirl_gym.interop.step_rewards`.
    """
    episodes = shown_episodes(batch, feature_map, weights, previous_action)
    d3rlpy = load_library("d3rlpy", D3RLPY)
    # The constructor slices k rows per episode, which has no room for the last observation of an ended one. So it gets
    # a single cut row, which has no transition and is not stored, to learn shapes and types from; the episodes follow.
    dataset = d3rlpy.dataset.MDPDataset(
        observations=episodes[0].obs[:1],
        actions=episodes[0].actions[:1],
        rewards=episodes[0].rewards[:1].astype(np.float32),
        terminals=np.array([False]),
        timeouts=np.array([True]),
        transition_picker=KeepLastObservation(),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=batch.n_actions,
    )
    for episode in episodes:
        closing = int(not episode.terminated)
        dataset.append_episode(
            d3rlpy.dataset.Episode(
                observations=episode.obs,
                actions=np.append(episode.actions, [0] * closing).astype(np.int64)[:, None],
                rewards=np.append(episode.rewards, [0.0] * closing).astype(np.float32)[:, None],
                terminated=episode.terminated,
            )
        )
    return dataset


def to_imitation(
    batch: Batch,
    feature_map: FeatureMap,
    weights: npt.ArrayLike,
    *,
    previous_action: bool = True,
    cut_is_terminal: bool = False,
) -> list[Any]:
    """Demonstrations for BC, GAIL, AIRL, DAgger, density: a ``imitation.data.types.TrajectoryWithRew`` per episode.

    ``obs`` is float32 ``[k+1, d + A]`` (or ``[k+1, d]``), ``acts`` int64 ``[k]`` and ``rews`` float64 ``[k]``, the
    reward of an action being that of the outcome which followed it.

    GAIL, AIRL and the density algorithms refuse episodes of unequal lengths unless they are made with
    ``allow_variable_horizon=True``.

    ``cut_is_terminal`` says what `imitation` is to take for ``terminal``. False: that the process ended. True: that the
    episode ended, by the process or by the end of watching, which is what `imitation`'s own collector writes for an
    episode that ran into a time limit. A ``terminal`` last step becomes ``dones = True``: reward networks that use
    ``done`` see it, and SQIL takes the value of what follows for zero. The other arguments are those of
    :func:`transitions`.

    Raises:
        ImportError: `imitation` is not installed; the message says how to.
        ValueError: as :func:`~cirl_gym.interop.step_rewards`.
    """
    episodes = shown_episodes(batch, feature_map, weights, previous_action)
    types = load_library("imitation.data.types", IMITATION)
    return [
        types.TrajectoryWithRew(
            obs=episode.obs,
            acts=episode.actions,
            infos=None,
            terminal=cut_is_terminal or episode.terminated,
            rews=episode.rewards,
        )
        for episode in episodes
    ]
