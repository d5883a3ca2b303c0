"""Replay of whole episodes: what goes in comes out, whole (cases 10, 12, 13)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drqn_envs import Counting
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from agents.drqn.replay import EpisodeReplayBuffer, EpisodeRing

FIELDS = {"id": ((), np.int64), "t": ((), np.int64)}


def episode(number, steps):
    return {"id": np.full(steps + 1, number), "t": np.arange(steps + 1)}


def read(ring):
    """(id, number of actions) of every episode, with a check that its rows are its own and in order."""
    found = []
    for i, length in enumerate(ring.lengths):
        rows = ring.rows(np.array([i]), length + 1)[0]
        ids, t = ring.arrays["id"][rows], ring.arrays["t"][rows]
        assert (ids == ids[0]).all()
        np.testing.assert_array_equal(t, np.arange(length + 1))
        found.append((int(ids[0]), int(length)))
    return found


def test_the_oldest_episodes_leave_whole():
    ring = EpisodeRing(FIELDS, 10)
    for number, steps in enumerate([4, 3, 3, 5, 1]):
        ring.append(episode(number, steps))
    # 4 + 3 + 3 = 10 are full; 5 more push out the first two, 1 more fits nowhere else.
    assert read(ring) == [(2, 3), (3, 5), (4, 1)]
    assert ring.n_steps == 9
    ring.append(episode(5, 10))
    assert read(ring) == [(5, 10)]


def test_capacity_in_episodes():
    ring = EpisodeRing(FIELDS, 2, "episodes")
    for number, steps in enumerate([50, 1, 2000]):
        ring.append(episode(number, steps))
    assert read(ring) == [(1, 1), (2, 2000)]


@settings(deadline=None, max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=25),
    capacity=st.integers(700, 3000),
    unit=st.sampled_from(["steps", "episodes"]),
)
def test_what_is_kept_is_the_longest_tail_that_fits(lengths, capacity, unit):
    if unit == "episodes":
        capacity = capacity % 7 + 1
    ring = EpisodeRing(FIELDS, capacity, unit)
    for number, steps in enumerate(lengths):
        ring.append(episode(number, steps))
        tail, used = [], 0
        for old in range(number, -1, -1):
            used += lengths[old] if unit == "steps" else 1
            if used > capacity:
                break
            tail.insert(0, (old, lengths[old]))
        assert read(ring) == tail
        assert ring.n_steps == sum(length for _, length in tail)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((0,), "at least 1"), ((5, "years"), "unit must be")],
)
def test_a_ring_that_cannot_be(arguments, told):
    with pytest.raises(ValueError, match=told):
        EpisodeRing(FIELDS, *arguments)


def test_an_episode_that_cannot_be_stored():
    ring = EpisodeRing(FIELDS, 5)
    with pytest.raises(ValueError, match="6 steps does not fit into a capacity of 5"):
        ring.append(episode(0, 6))
    with pytest.raises(ValueError, match="at least one action"):
        ring.append(episode(0, 0))


def recorded(capacity, steps, n_envs=3, **arguments):
    """A replay that watched environments whose observations say [episode, t, ..], with ids of their own."""
    envs = DummyVecEnv([lambda i=i: Counting(first=100_000 * i) for i in range(n_envs)])
    buffer = EpisodeReplayBuffer(
        capacity, envs.observation_space, envs.action_space, device="cpu", n_envs=n_envs, **arguments
    )
    obs = envs.reset()
    for step in range(steps):
        actions = np.array([(step + i) % 2 for i in range(n_envs)])
        following, rewards, dones, infos = envs.step(actions)
        last = following.copy()
        for i in np.flatnonzero(dones):
            last[i] = infos[i]["terminal_observation"]
        buffer.add(obs, last, actions, rewards, dones, infos)
        obs = following
    return buffer


def test_no_pair_crosses_an_episode_however_often_the_capacity_was_overwritten():
    capacity = 200
    buffer = recorded(capacity, 3 * capacity)
    assert 3 * 3 * capacity > 3 * buffer.size() > 0
    assert buffer.size() <= capacity
    buffer.rng = np.random.default_rng(0)
    lengths = set()
    for _ in range(1000):
        batch = buffer.sample(4)
        ids, t = batch.obs[..., 0].numpy(), batch.obs[..., 1].numpy()
        for row in range(4):
            k = int(batch.mask[row].sum())
            lengths.add(k)
            # The whole episode, its last observation included, and nothing of another one.
            assert (ids[row, : k + 1] == ids[row, 0]).all()
            assert t[row, : k + 1].tolist() == list(range(k + 1))
            assert batch.rewards[row, :k].tolist() == list(range(1, k + 1))
            assert batch.mask[row].tolist() == [True] * k + [False] * (batch.mask.shape[1] - k)
            cut = int(ids[row, 0]) % 2 == 1
            assert batch.terminated[row].tolist() == [j == k - 1 and not cut for j in range(batch.mask.shape[1])]
    assert lengths == {1, 3, 20}


def test_the_horizon_can_count_as_an_end():
    batch = recorded(1000, 100, handle_timeout_termination=False).sample(32)
    np.testing.assert_array_equal(batch.terminated.sum(1), np.ones(32))


def test_actions_are_those_of_the_episode():
    buffer = recorded(1000, 24, n_envs=1)
    # Episodes of 1, 3 and 20 steps; actions alternate from 0 without a break.
    batch = buffer.batch(np.arange(3))
    taken = np.concatenate([batch.actions[i][batch.mask[i]] for i in range(3)])
    assert taken.tolist() == [step % 2 for step in range(24)]


def test_what_has_not_ended_is_not_sampled_and_can_be_forgotten():
    buffer = recorded(1000, 10, n_envs=1)
    assert buffer.size() == 4
    buffer.forget_open()
    row = np.zeros((1, 3), dtype=np.float32)
    buffer.add(row, row + 1, np.array([0]), np.array([0.0]), np.array([True]), [{}])
    # The new episode begins with its own first step.
    assert buffer.episodes.lengths.tolist() == [1, 3, 1]


def test_an_empty_replay_says_so():
    with pytest.raises(ValueError, match="no whole episode"):
        recorded(1000, 0).sample(2)


def test_dict_observations_and_stored_masks():
    space = spaces.Dict({"a": spaces.Box(0, 9, (2,), np.float32), "b": spaces.Discrete(5)})
    buffer = EpisodeReplayBuffer(50, space, spaces.Discrete(3), "cpu", n_envs=2, masks=True)
    for t in range(3):
        obs = {"a": np.full((2, 2), t, np.float32), "b": np.array([t, t + 1])}
        following = {"a": np.full((2, 2), t + 1, np.float32), "b": np.array([t + 1, t + 2])}
        action = np.array([[0, 1, 0, t == 1], [1, 0, 1, 1]])
        told = [{"action_mask": np.array([False, True, False])}, {}]
        buffer.add(obs, following, action, np.zeros(2), np.full(2, t == 2), told)
    batch = buffer.batch(np.arange(2))
    assert batch.obs["a"][0, :, 1].tolist() == [0, 1, 2, 3]
    assert batch.obs["b"][1, :, 0].tolist() == [1, 2, 3, 4]
    assert batch.allowed[0].int().tolist() == [[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 1, 0]]
    # Not told: not known.
    assert batch.allowed[1, 3].int().tolist() == [0, 0, 0]


def test_normalising_happens_when_sampling():
    envs = VecNormalize(DummyVecEnv([Counting]), clip_obs=100.0)
    buffer = EpisodeReplayBuffer(50, envs.observation_space, envs.action_space, "cpu")
    row = np.array([[2.0, 4.0, 6.0]], dtype=np.float32)
    buffer.add(row, row, np.array([0]), np.array([3.0]), np.array([True]), [{}])
    envs.obs_rms.mean, envs.obs_rms.var, envs.ret_rms.var = np.full(3, 2.0), np.full(3, 4.0), np.array(9.0)
    envs.epsilon = 0.0
    batch = buffer.sample(1, env=envs)
    assert batch.obs[0, 0].tolist() == [0, 1, 2]
    assert batch.rewards.tolist() == [[1.0]]
    assert batch.rewards.dtype == torch.float32
    assert buffer.batch(np.array([0])).obs[0, 0].tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    ("action_space", "arguments", "told"),
    [
        (spaces.Box(0, 1, (1,)), {}, "Discrete"),
        (spaces.Discrete(2), {"optimize_memory_usage": True}, "optimize_memory_usage"),
    ],
)
def test_a_replay_that_cannot_be(action_space, arguments, told):
    with pytest.raises(ValueError, match=told):
        EpisodeReplayBuffer(50, Counting.observation_space, action_space, "cpu", **arguments)
