"""Loading a library that is not required, with an error that says how to get it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, check_weights, reward
from cirl_gym.data.rollout import observation
from cirl_gym.types import BoolArray, Float32Array, FloatArray

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
    """Import a module.

    Args:
        module: its full name.
        install: the commands that install it and what it needs, for the message.

    Raises:
        ImportError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}). To install it: {install}") from error


# MERGED: A batch step by step, as other libraries want it: what was seen, what was done, what that earned, what came
# next.
#
# Index order, everywhere in this package: ``(x_t, a_t, r_t, x_{t+1})``. T actions go with T + 1 observations; the
# reward
# of an action is that of the outcome which followed it, ``r_t = w . phi(x_{t+1})`` (paper, equation 23).


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
    """``[N, T+1, d + A]`` or ``[N, T+1, d]``: the observations as ``CIRLTumour-v0`` shows them.

    Args:
        batch: N episodes.
        previous_action: append the one-hot previous action (zeros at t = 0), as the environments do by default.

    Returns:
        A fresh float32 array, raw units; rows past an episode's end mean nothing.
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
    seen = shown_observations(batch, previous_action=previous_action)
    earned = step_rewards(batch, feature_map, weights)
    return _walk(batch, seen, earned)


def _walk(batch: Batch, seen: Float32Array, earned: FloatArray) -> Iterator[Transition]:
    for i, length in enumerate(batch.lengths.tolist()):
        for t in range(length):
            last = t == length - 1
            yield Transition(
                id=batch.ids[i],
                step=t,
                obs=seen[i, t].copy(),
                action=int(batch.actions[i, t]),
                reward=float(earned[i, t]),
                next_obs=seen[i, t + 1].copy(),
                terminated=last and bool(batch.terminated[i]),
                truncated=last and bool(batch.truncated[i]),
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
        groups: whom each episode belongs to.

    Raises:
        ValueError: an episode does not have one observation more than it has actions, or breaks another promise of
            :class:`~cirl_gym.data.batch.Batch`; the message names it.
    """
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
