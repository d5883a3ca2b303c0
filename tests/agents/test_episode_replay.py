"""Replay of whole episodes: what goes in comes out, whole."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from drqn_envs import Counting
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from agents.drqn.drqn import episode_loss, q_targets
from agents.drqn.policy import RecurrentQPolicy
from agents.drqn.replay import Episode, EpisodeBatch, EpisodeReplayBuffer


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


NAN = float("nan")


def network(cell="lstm", seed=0):
    torch.manual_seed(seed)
    sizes = {"net_arch": [5], "activation_fn": torch.nn.Tanh, "lstm_hidden_size": 6, "skip_connection": True}
    return RecurrentQPolicy(spaces.Box(-10, 10, (3,)), spaces.Discrete(2), lambda _: 0.1, cell=cell, **sizes).q_net


def episodes(lengths, width, filler=0.0, masks=False):
    """The same episodes however wide, with ``filler`` in the padding."""
    draw = torch.Generator().manual_seed(1)
    n = len(lengths)
    obs, rewards = torch.full((n, width + 1, 3), filler), torch.full((n, width), filler)
    actions = torch.full((n, width), -(10**15) if filler else 0)
    mask, terminated = torch.zeros(2, n, width, dtype=torch.bool)
    allowed = torch.zeros(n, width + 1, 2, dtype=torch.bool) if masks else None
    for i, k in enumerate(lengths):
        obs[i, : k + 1] = torch.randn(k + 1, 3, generator=draw)
        rewards[i, :k] = torch.randn(k, generator=draw)
        actions[i, :k] = torch.randint(2, (k,), generator=draw)
        mask[i, :k] = True
        terminated[i, k - 1] = i % 2 == 0
        if allowed is not None:
            allowed[i, : k + 1, 0] = True
            allowed[i, : k + 1, 1] = torch.rand(k + 1, generator=draw) < 0.5
    return EpisodeBatch(obs, actions, rewards, terminated, allowed, mask)


def loss_and_gradient(net, batch, **rule):
    net.zero_grad()
    loss, unknown = episode_loss(net, network(seed=7), batch, 0.9, **rule)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in net.parameters()]), int(unknown)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("rule", [{}, {"n_steps": 3}, {"n_steps": 100, "double_q": False}])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_padding_changes_neither_loss_nor_gradient(cell, rule, masks):
    net, lengths = network(cell), [3, 1, 5]
    loss, gradient, unknown = loss_and_gradient(net, episodes(lengths, 20, masks=masks), **rule)
    assert unknown == 0
    assert loss > 0
    assert gradient.abs().max() > 0
    for width, filler in ((5, 0.0), (40, 0.0), (20, NAN), (20, 1e30)):
        other = loss_and_gradient(net, episodes(lengths, width, filler, masks), **rule)
        torch.testing.assert_close(other[:2], (loss, gradient), rtol=0, atol=1e-6)
        assert other[2] == 0


def test_nothing_but_padding_is_no_nan():
    net, batch = network(), episodes([2, 3], 4, NAN)
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    loss, gradient, _ = loss_and_gradient(net, empty)
    assert loss == 0
    assert (gradient == 0).all()


def test_the_loss_is_a_mean_over_steps():
    """Huber: .5 and 1.5 and 0, over three steps and not over six places."""
    values = torch.tensor([[1.0, 2.0, NAN], [0.0, NAN, NAN]])
    net = SimpleNamespace(sequence=lambda *_: torch.nn.functional.pad(values, (0, 1))[..., None])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    batch = EpisodeBatch(None, torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3), mask, None, mask)
    assert episode_loss(net, net, batch, 0.9)[0].item() == pytest.approx(2 / 3)


def by_hand(allowed=None, terminated=False, **rule):
    """Gamma is .5. Three steps with rewards 1, 2, 4; the target network's values of the following are known numbers."""
    q = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    target_q = torch.tensor([[[9.0, 9.0], [10.0, 20.0], [30.0, 40.0], [60.0, 50.0]]])
    batch = EpisodeBatch(
        obs=torch.zeros(1, 4, 3),
        actions=torch.tensor([[0, 1, 1]]),
        rewards=torch.tensor([[1.0, 2.0, 4.0]]),
        terminated=torch.tensor([[False, False, terminated]]),
        allowed=allowed,
        mask=torch.ones(1, 3, dtype=torch.bool),
    )
    targets, known = q_targets(q, target_q, batch, 0.5, **rule)
    return targets[0].tolist(), known[0].tolist()


def test_targets_of_one_and_of_several_steps():
    # The Q-network picks actions 1, 0, 1: values 20, 30, 50.
    assert by_hand()[0] == [11, 17, 29]
    # The target network picks for itself: 20, 40, 60.
    assert by_hand(double_q=False)[0] == [11, 22, 34]
    assert by_hand(terminated=True)[0] == [11, 17, 4]
    # 1 + .5 * 2 + .25 * 30; 2 + .5 * 4 + .25 * 50; the last has one step left.
    assert by_hand(n_steps=2)[0] == [9.5, 16.5, 29]
    assert by_hand(n_steps=3)[0] == [1 + 1 + 1 + 0.125 * 50, 16.5, 29]
    assert by_hand(n_steps=9, terminated=True)[0] == [3, 4, 4]


def test_forbidden_actions_are_not_in_the_maximum_and_what_depends_on_an_unknown_mask_is_left_out():
    allowed = torch.ones(1, 4, 2, dtype=torch.bool)
    allowed[0, 1, 1] = allowed[0, 2, 0] = False
    # What follows is now 10 and 40.
    assert by_hand(allowed) == ([6, 22, 29], [True] * 3)
    allowed = torch.ones(1, 4, 2, dtype=torch.bool)
    allowed[0, 3] = False
    assert by_hand(allowed)[1] == [True, True, False]
    assert by_hand(allowed, n_steps=2)[1] == [True, False, False]
    # Nothing follows an end.
    assert by_hand(allowed, terminated=True)[1] == [True] * 3
