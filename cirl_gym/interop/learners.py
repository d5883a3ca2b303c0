"""Batches as data sets for d3rlpy, without the loss of a step or of a last observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.interop.episodes import D3RLPY, IMITATION, load_library, shown_observations, step_rewards


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

    Terminals are ``terminated``, timeouts are ``truncated & ~terminated`` (in a batch exactly one of the two holds).
    Every episode carries all of its k + 1 observations:

    * ended: k actions; the last transition is terminal and shows the observation that ended the episode
      (:class:`KeepLastObservation`).
    * cut: one closing row with the last observation, reward 0 and the filler action 0. d3rlpy does not count the last
      row of a cut episode as a transition, so that without the closing row the last action would be lost, and with it
      every episode of one action. The filler is never an action to learn from; it appears as ``next_action`` alone.

    Actions are discrete, int64 ``[k, 1]``; the data set knows all A of them, taken or not. Observations and rewards
    are float32. ``dataset.dump(file)``, the file opened as "w+b", and
    ``ReplayBuffer.load(file, buffer, transition_picker=KeepLastObservation())`` keep everything.

    Args:
        batch: N episodes.
        feature_map: phi of the reward.
        weights: ``[d]`` of the reward.
        previous_action: append the one-hot previous action, as the environments show it by default.

    Raises:
        ImportError: d3rlpy is not installed; the message says how to, beside a newer Gymnasium.
        ValueError: as :func:`~cirl_gym.interop.step_rewards`.
    """
    seen = shown_observations(batch, previous_action=previous_action)
    earned = step_rewards(batch, feature_map, weights).astype(np.float32)
    timeouts = batch.truncated & ~batch.terminated
    d3rlpy = load_library("d3rlpy", D3RLPY)
    # The constructor slices k rows per episode, which has no room for the last observation of an ended one. So it gets
    # a single cut row, which has no transition and is not kept, to learn shapes and types from; the episodes follow.
    dataset = d3rlpy.dataset.MDPDataset(
        observations=seen[0, :1],
        actions=batch.actions[0, :1],
        rewards=earned[0, :1],
        terminals=np.array([False]),
        timeouts=np.array([True]),
        transition_picker=KeepLastObservation(),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=batch.n_actions,
    )
    for i, length in enumerate(batch.lengths.tolist()):
        closing = int(timeouts[i])
        dataset.append_episode(
            d3rlpy.dataset.Episode(
                observations=seen[i, : length + 1].copy(),
                actions=np.append(batch.actions[i, :length], [0] * closing).astype(np.int64)[:, None],
                rewards=np.append(earned[i, :length], [0.0] * closing).astype(np.float32)[:, None],
                terminated=bool(batch.terminated[i]),
            )
        )
    return dataset


# MERGED: Batches as demonstrations for the library `imitation` (BC, GAIL, AIRL, DAgger, density).


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
