"""Batches for the exchange with other libraries, and how each exporter's output reads as transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.interop import from_episodes, to_d3rlpy, to_imitation, to_long_table, to_minari, transitions

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4).filter(str.strip)
Steps = list[list[tuple[list[float], int, float, list[float], bool]]]
"""Per episode: (x_t, a_t, r_t, x_{t+1}, process ended)."""


def unit_map(batch: Batch) -> FeatureMap:
    """phi(x) = x: with weights w the reward is w . x."""
    d = len(batch.features)
    return FeatureMap(batch.features, np.zeros(d), np.ones(d))


def ladder() -> Batch:
    """Observations 0, 1, 2, 3 and actions 10, 11, 12; with a weight of .1 the rewards are .1, .2, .3."""
    return from_episodes(
        [np.arange(4.0)[:, None]],
        [np.array([10, 11, 12])],
        np.array([True]),
        features=("x",),
        action_names=[str(a) for a in range(13)],
        ids=("p",),
    )


def uneven(*lengths: int, ended: str = "first") -> Batch:
    """Feature j of episode i at step t is 100 i + t + 1000 j, action (i + t) mod 3.

    The first episode is ended and the others are cut; the other way round for ``ended="others"``.
    """
    first = np.arange(len(lengths)) == 0
    return from_episodes(
        [100 * i + np.arange(k + 1)[:, None] + np.array([0, 1000]) for i, k in enumerate(lengths)],
        [(i + np.arange(k)) % 3 for i, k in enumerate(lengths)],
        first if ended == "first" else ~first,
        features=("x", "z"),
        action_names=("none", "low", "high"),
        ids=[f"00{i}" for i in range(len(lengths))],
        groups=[f"g{i // 2}" for i in range(len(lengths))],
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Up to four short episodes of up to two features, padded to the longest, with any names."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    n, d, n_actions = len(lengths), draw(st.integers(1, 2)), draw(st.integers(2, 4))
    value = st.floats(-1e9, 1e9, width=32)

    def names(size: int) -> list[str]:
        return draw(st.lists(TEXT, min_size=size, max_size=size, unique=True))

    return from_episodes(
        [
            np.array(draw(st.lists(value, min_size=(k + 1) * d, max_size=(k + 1) * d))).reshape(k + 1, d)
            for k in lengths
        ],
        [np.array(draw(st.lists(st.integers(0, n_actions - 1), min_size=k, max_size=k))) for k in lengths],
        np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))),
        features=names(d),
        action_names=names(n_actions),
        ids=names(n),
        groups=draw(st.lists(TEXT, min_size=n, max_size=n)),
    )


def _of_iterator(batch: Batch, weights: list[float], shown: bool) -> Steps:
    episodes: dict[str, list[Any]] = {name: [] for name in batch.ids}
    for t in transitions(batch, unit_map(batch), weights, previous_action=shown):
        episodes[t.id].append((t.obs.tolist(), t.action, t.reward, t.next_obs.tolist(), t.terminated))
    return list(episodes.values())


def _of_minari(batch: Batch, weights: list[float], shown: bool) -> Steps:
    pytest.importorskip("minari")
    data = to_minari(batch, "cirl/steps-v0", unit_map(batch), weights, previous_action=shown)
    found = []
    for e in data.iterate_episodes():
        seen = e.observations.tolist()
        assert e.terminations[:-1].sum() + e.truncations[:-1].sum() == 0
        assert bool(e.terminations[-1]) != bool(e.truncations[-1])
        assert len(seen) == len(e.actions) + 1
        columns = (seen[:-1], e.actions.tolist(), e.rewards.tolist(), seen[1:], e.terminations.tolist())
        found.append(list(zip(*columns, strict=True)))
    return found


def _of_imitation(batch: Batch, weights: list[float], shown: bool) -> Steps:
    rollout = pytest.importorskip("imitation.data.rollout")
    found = []
    for trajectory in to_imitation(batch, unit_map(batch), weights, previous_action=shown):
        flat = rollout.flatten_trajectories_with_rew([trajectory])
        columns = (flat.obs, flat.acts, flat.rews, flat.next_obs, flat.dones)
        found.append(list(zip(*(column.tolist() for column in columns), strict=True)))
    return found


def _of_d3rlpy(batch: Batch, weights: list[float], shown: bool) -> Steps:
    pytest.importorskip("d3rlpy")
    data = to_d3rlpy(batch, unit_map(batch), weights, previous_action=shown)

    def step(p: Any) -> tuple[list[float], int, float, list[float], bool]:
        seen, after = p.observation.tolist(), p.next_observation.tolist()
        return seen, int(p.action[0]), float(p.reward[0]), after, p.terminal == 1

    return [[step(data.transition_picker(e, t)) for t in range(e.transition_count)] for e in data.episodes]


def _of_table(batch: Batch, weights: list[float], shown: bool) -> Steps:
    """A table holds no rewards and no previous actions: they are filled in here, for the comparison alone."""
    frame = to_long_table(batch)
    found = []
    for i, (_, rows) in enumerate(frame.groupby("id", sort=False)):
        seen, codes = rows[list(batch.features)].to_numpy().tolist(), rows["action"].cat.codes.tolist()
        assert codes[-1] == -1
        hot = np.eye(batch.n_actions)
        full = [x + ([0.0] * batch.n_actions if t == 0 else hot[codes[t - 1]].tolist()) for t, x in enumerate(seen)]
        out = full if shown else seen
        rewards = [float(np.dot(weights, x)) for x in seen[1:]]
        ends = rows["terminated"].tolist()[1:]
        assert rows["truncated"].tolist()[-1] == 1 - ends[-1], i
        found.append([(out[t], codes[t], rewards[t], out[t + 1], ends[t] == 1) for t in range(len(codes) - 1)])
    return found


VIEWS: dict[str, Callable[[Batch, list[float], bool], Steps]] = {
    "iterator": _of_iterator,
    "minari": _of_minari,
    "imitation": _of_imitation,
    "d3rlpy": _of_d3rlpy,
    "table": _of_table,
}
"""What each exporter makes of a batch, read with the other library's own means."""


def steps_of(batch: Batch, weights: list[float], shown: bool) -> Steps:
    """The same straight from the batch's arrays."""
    found: Steps = []
    for i, (x, a) in enumerate(batch.episodes()):
        hot = np.eye(batch.n_actions)[a] if shown else np.zeros((len(a), 0))
        full = np.concatenate([x, np.concatenate([np.zeros_like(hot[:1]), hot])], axis=1).tolist()
        rewards = (x[1:].astype(np.float64) @ np.array(weights)).tolist()
        ends = [False] * (len(a) - 1) + [bool(batch.terminated[i])]
        found.append(list(zip(full[:-1], a.tolist(), rewards, full[1:], ends, strict=True)))
    return found


def assert_same_steps(found: Steps, expected: Steps) -> None:
    """Equal, rewards up to float32."""
    assert [len(e) for e in found] == [len(e) for e in expected]
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a[0], a[1], a[3], a[4]) == (b[0], b[1], b[3], b[4])
            assert a[2] == pytest.approx(b[2], rel=1e-6, abs=1e-6)
