"""Batches whose every number can be told from its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym.data.batch import Batch


def cut_off(obs, actions, features: tuple[str, ...], action_names=("wait", "treat"), lengths=None) -> Batch:
    """Episodes ``[N, T + 1, d]`` and ``[N, T]``, by default of one length, that were cut off at their last step."""
    actions, none = np.asarray(actions), np.zeros(len(actions), dtype=np.bool_)
    ids = tuple(f"e{i}" for i in range(len(actions)))
    lengths = np.full(len(actions), actions.shape[1]) if lengths is None else lengths
    return Batch(np.asarray(obs, dtype=np.float32), actions, lengths, none, ~none, features, action_names, ids)


def batch_of(*actions: Sequence[int], n_actions: int = 2, d: int = 2, groups: tuple[str, ...] = ()) -> Batch:
    """One episode per list of actions; feature j of episode i at step t is 10 i + t + 100 j."""
    n, longest = len(actions), max(len(a) for a in actions)
    taken = np.zeros((n, longest), dtype=np.int64)
    for i, episode in enumerate(actions):
        taken[i, : len(episode)] = episode
    obs = 10 * np.arange(n)[:, None, None] + np.arange(longest + 1)[:, None] + 100 * np.arange(d)
    return Batch(
        obs=obs.astype(np.float32),
        actions=taken,
        lengths=np.array([len(a) for a in actions]),
        terminated=np.ones(n, dtype=np.bool_),
        truncated=np.zeros(n, dtype=np.bool_),
        features=tuple("xyzuv"[:d]),
        action_names=tuple(f"a{i}" for i in range(n_actions)),
        ids=tuple(f"e{i}" for i in range(n)),
        groups=groups,
    )
