"""Targets and loss of whole episodes, by hand and under padding."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces

from agents.drqn.drqn import episode_loss, q_targets
from agents.drqn.policy import RecurrentQPolicy
from agents.drqn.replay import EpisodeBatch

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
