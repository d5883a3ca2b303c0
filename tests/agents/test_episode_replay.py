"""Replay of whole episodes: what goes in comes out, whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drqn_envs import Counting
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from agents.drqn.replay import Episode, EpisodeReplayBuffer


def ring(capacity, unit="steps"):
    return EpisodeReplayBuffer(capacity, Counting.observation_space, spaces.Discrete(2), "cpu", unit=unit)


def episode(number, steps):
    obs = np.stack([np.full(steps + 1, number), np.arange(steps + 1), np.zeros(steps + 1)], axis=1)
    return Episode(obs, np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.float32), True)


def read(buffer):
    """(number, actions) of every episode."""
    return [(int(found.obs[0, 0]), len(found.actions)) for found in buffer.episodes]


def test_an_episode_may_fill_the_replay_but_not_exceed_it():
    buffer = ring(10)
    for number, steps in enumerate([4, 10]):
        buffer.append(episode(number, steps))
    assert read(buffer) == [(1, 10)]
    with pytest.raises(ValueError, match="11 steps does not fit into a capacity of 10"):
        buffer.append(episode(0, 11))
    buffer.reset()
    assert (read(buffer), buffer.size()) == ([], 0)


@settings(deadline=None, max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=25),
    capacity=st.integers(700, 3000),
    unit=st.sampled_from(["steps", "episodes"]),
)
def test_what_is_stored_is_the_longest_tail_that_fits(lengths, capacity, unit):
    if unit == "episodes":
        capacity = capacity % 7 + 1
    buffer = ring(capacity, unit)
    for number, steps in enumerate(lengths):
        buffer.append(episode(number, steps))
        tail, used = [], 0
        for old in range(number, -1, -1):
            used += lengths[old] if unit == "steps" else 1
            if used > capacity:
                break
            tail.insert(0, (old, lengths[old]))
        assert read(buffer) == tail
        assert buffer.size() == sum(length for _, length in tail)


def recorded(capacity, steps, n_envs=3, **arguments):
    """A replay that watched environments whose observations say [episode, t, ..], with ids of their own."""
    envs = DummyVecEnv([lambda i=i: Counting(first=100_000 * i) for i in range(n_envs)])
    buffer = EpisodeReplayBuffer(capacity, envs.observation_space, envs.action_space, "cpu", n_envs, **arguments)
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
    buffer = recorded(200, 3 * 200)
    assert 0 < buffer.size() <= 200
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


def test_actions_are_those_of_the_episode_and_the_horizon_can_count_as_its_end():
    # Episodes of 1, 3 and 20 steps; actions alternate from 0 without a break.
    batch = recorded(1000, 24, n_envs=1, handle_timeout_termination=False).batch(np.arange(3))
    assert batch.actions[batch.mask].tolist() == [step % 2 for step in range(24)]
    assert batch.terminated.sum(1).tolist() == [1, 1, 1]


def test_what_has_not_ended_is_not_sampled_and_can_be_forgotten():
    with pytest.raises(ValueError, match="no whole episode"):
        recorded(1000, 0).sample(2)
    buffer = recorded(1000, 10, n_envs=1)
    assert buffer.size() == 4
    assert not buffer.starts.any()
    buffer.forget_open()
    assert buffer.starts.all()
    row = np.zeros((1, 3), dtype=np.float32)
    buffer.add(row, row + 1, np.array([0]), np.array([0.0]), np.array([True]), [{}])
    # The new episode begins with its own first step.
    assert [steps for _, steps in read(buffer)] == [1, 3, 1]


def test_stored_masks():
    buffer = EpisodeReplayBuffer(50, spaces.Discrete(5), spaces.Discrete(3), "cpu", n_envs=2, masks=True)
    obs = np.arange(2)
    for t in range(3):
        action = np.array([[0, 1, 0, t == 1], [1, 0, 1, 1]])
        told = [{"action_mask": np.array([False, True, False])}, {}]
        buffer.add(obs, obs + 1, action, np.zeros(2), np.full(2, t == 2), told)
        obs += 1  # What is stored is a copy.
    batch = buffer.batch(np.arange(2))
    assert batch.obs[..., 0].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
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


def test_a_replay_that_cannot_be():
    usual = {"buffer_size": 50, "observation_space": Counting.observation_space, "action_space": spaces.Discrete(2)}
    for name, value, told in (
        ("action_space", spaces.Box(0, 1, (1,)), "Discrete"),
        ("observation_space", spaces.Dict({"a": spaces.Discrete(2)}), "one array"),
        ("optimize_memory_usage", True, "optimize_memory_usage"),
        ("buffer_size", 0, "at least 1"),
        ("unit", "years", "unit must be"),
    ):
        with pytest.raises(ValueError, match=told):
            EpisodeReplayBuffer(**usual | {name: value})
