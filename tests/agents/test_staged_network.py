"""One small network per time step: sizes, first weights, and who shares what."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.successor.agent import StagedNetwork


def network(**changes):
    sizes = {"n_inputs": 3, "n_features": 2, "n_actions": 2, "gamma": 0.5, "horizon": 4, "hidden": (8,)}
    return StagedNetwork(**{**sizes, **changes})


def drawn(seed=0, **changes):
    built = network(**changes)
    built.initialise(np.random.default_rng(seed))
    return built


def inputs(n=5, n_inputs=3, d=2):
    rng = np.random.default_rng(9)
    return [torch.from_numpy(rng.normal(size=(n, size)).astype(np.float32)) for size in (n_inputs, d)]


@pytest.mark.parametrize(
    ("gamma", "left"), [(0.5, [1.875, 1.75, 1.5, 1.0]), (0.0, [1, 1, 1, 1]), (1.0, [4, 3, 2, 1]), (1, [4, 3, 2, 1])]
)
def test_discounted_steps_left_by_hand(gamma, left):
    np.testing.assert_array_equal(network(gamma=gamma).steps_left, left)


def test_psi_is_the_average_times_what_is_left():
    built, (x, w) = drawn(), inputs()
    for t, left in enumerate([1.875, 1.75, 1.5, 1.0]):
        average = built.average(t, x, w)
        assert average.shape == (5, 2, 2)
        torch.testing.assert_close(built.psi(t, x, w), average * left)


def test_level_and_differences_by_hand():
    built = network(n_features=1, hidden=())
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
        # Actions at 1 and 3 have the level 2 and lie 1 below and above it: .3 + 2 -+ .2 * 1.
        built.stages[0][0].bias.copy_(torch.tensor([1.0, 3.0]))
    x, w = torch.zeros(1, 3), torch.zeros(1, 1)
    torch.testing.assert_close(built.average(0, x, w), torch.tensor([[[2.1], [2.5]]]))
    torch.testing.assert_close(built.average(1, x, w), torch.tensor([[[0.3], [0.3]]]))


def test_weights_enter_at_the_size_of_the_other_inputs():
    built = network(n_inputs=1, hidden=())
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
        # Outputs are [action 0: (x, y), action 1: (x, y)], inputs [state, w1, w2]: both actions' x read w1.
        built.stages[0][0].weight[0, 1] = built.stages[0][0].weight[2, 1] = 1.0
    average = built.average(0, torch.zeros(1, 1), torch.tensor([[0.25, 0.75]]))
    # .3 + d w1 = .3 + 2 * .25
    torch.testing.assert_close(average, torch.tensor([[[0.8, 0.3], [0.8, 0.3]]]))


def test_first_weights_follow_from_the_generator_alone():
    first = [p.detach().clone() for p in drawn().parameters()]
    torch.manual_seed(123)
    before = torch.get_rng_state()
    for one, two in zip(first, drawn().parameters(), strict=True):
        torch.testing.assert_close(one, two.detach(), rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before)
    other = [p.detach() for p in drawn(seed=1).parameters()]
    assert all((one != two).any() for one, two in zip(first, other, strict=True) if one.ndim == 2)


def test_first_weights_have_variance_one_over_inputs_and_no_bias():
    built = drawn(n_inputs=98, hidden=(400,), horizon=1)
    weight, bias, last, _ = [p.detach() for p in built.parameters()]
    # 40,000 numbers of standard deviation .1 and 1,600 of .05: standard errors .00035 and .0009.
    assert weight.std().item() == pytest.approx(0.1, abs=0.0015)
    assert last.std().item() == pytest.approx(0.05, abs=0.004)
    assert (bias == 0).all()


@pytest.mark.parametrize("changed", range(4))
def test_stages_share_nothing(changed):
    built, (x, w) = drawn(), inputs()
    before = [built.psi(t, x, w).detach() for t in range(4)]
    with torch.no_grad():
        for parameter in built.stages[changed].parameters():
            parameter.add_(1.0)
    for t in range(4):
        assert torch.equal(built.psi(t, x, w), before[t]) == (t != changed)


def test_hidden_layers_bend():
    built, (x, w) = drawn(), inputs(1)
    outputs = [built.average(0, factor * x, factor * w) for factor in (0.0, 1.0, -1.0)]
    # A linear network would have its value at 0 halfway between those at x and -x.
    assert not torch.allclose(outputs[0], (outputs[1] + outputs[2]) / 2, atol=1e-3)
