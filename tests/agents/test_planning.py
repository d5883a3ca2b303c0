"""Beam search in a world of known increments, against the list of all plans."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from known_model import PHI, KnownModel, best_plans, every_plan, plain_state, states, value_of_plan, weights

from agents.successor.network import StagedNetwork
from agents.successor.planning import Search, best_plan, plan
from cirl_gym.data.features import FeatureMap
from cirl_gym.outcome_models.known import knowing

HORIZON = 4
ALL = 27
"""Plans of four steps that begin with a given action: three choices, three times."""


def nothing(t, rows, w):
    """An estimate that knows nothing."""
    return np.zeros((len(rows), 3))


def arbitrary(t, rows, w):
    """An estimate that is wrong, without ties, and treats every row alone."""
    phase = rows[:, :1] * 1.3 + rows[:, 1:2] * 2.1 + rows[:, 2:] * 0.7 + w[:, :1] + t
    return np.sin(1e3 * (phase + np.array([0.0, 0.4, 0.9])))


def exact(gamma):
    """The true Q."""

    def estimate(t, rows, w):
        return np.array(
            [
                best_plans(plain_state(row), HORIZON - t, gamma, weight) @ weight
                for row, weight in zip(rows, w, strict=True)
            ]
        )

    return estimate


def by_plan(estimate):
    """An estimate ``[n, A]`` of rows ``[n, S]`` as a search asks for it: of P plans a row, with the row's weights."""

    def every(t, plans, w):
        n, several, size = plans.shape
        return estimate(t, plans.reshape(-1, size), np.repeat(w, several, axis=0)).reshape(n, several, -1)

    return every


def search(rows, w, gamma, width, estimate=nothing, t=0, model=None, horizon=HORIZON, seldom=()):
    return plan(Search(model or KnownModel(), PHI, by_plan(estimate), horizon, gamma, width, seldom), t, rows, w).psi


def test_by_hand():
    # From (1, 0), two steps, gamma 1/2, no estimate needed with three plans kept. All end chances hold as x > 0.
    # Action 0 gives (2, -1) and cannot end, so what follows counts 1/2. Then, with half of (1, -1) added:
    #   0: (2 + 1.5, -1 - 1.5) = (3.5, -2.5);  1: (2 - .5, -1 + 1.5) = (1.5, .5);  2: (2 + 1, -1 - .25) = (3, -1.25).
    # For w = (0, 1) the best is 1: psi = (2/4 + .5 * 1.5/4, -1/8 + .5 * .5/8) = (.6875, -.09375).
    # Action 1 gives (0, 2), goes on with 3/4, counts 3/8. With half of (-1, 2) added:
    #   0: (.5, 2); 1: (-1.5, 5); 2: (0, 3.25). Best 1: (0 - .375 * 1.5/4, 2/8 + .375 * 5/8) = (-.140625, .484375).
    # Action 2 gives (1.5, .25), goes on with 1/2, counts 1/4. With half of (.5, .25) added:
    #   0: (2.75, -.625); 1: (.75, 2.375); 2: (2.25, .625). Best 1: (.375 + .25 * .1875, .03125 + .25 * .296875).
    psi = search(np.array([[1, 0, 0]], dtype=np.float32), np.array([[0.0, 1.0]]), 0.5, 3, horizon=2)
    expected = [[0.6875, -0.09375], [-0.140625, 0.484375], [0.421875, 0.10546875]]
    np.testing.assert_array_equal(psi, [expected])


def test_plans_do_not_go_on_with_what_was_seldom_seen_by_hand():
    # As above, but action 1, the best of all second steps, was seldom seen. The best of the other two:
    # after 0: 2, (2/4 + .5 * 3/4, -1/8 - .5 * 1.25/8); after 1, which is asked about all the same: 2, (0, 2/8 + .375 *
    # 3.25/8); after 2: 2, (.375 + .25 * 2.25/4, .03125 + .25 * .625/8).
    row, w = np.array([[1, 0, 0]], dtype=np.float32), np.array([[0.0, 1.0]])
    expected = [[0.875, -0.203125], [0.0, 0.40234375], [0.515625, 0.05078125]]
    np.testing.assert_array_equal(search(row, w, 0.5, 3, horizon=2, seldom=(1,)), [expected])
    # The best of all begins with an action that was seen, and goes on with one.
    how = Search(KnownModel(), PHI, by_plan(nothing), 2, 0.5, 9, (1,))
    np.testing.assert_array_equal(best_plan(how, 0, row, w), [expected[2]])
    # Where all were seldom seen, nothing is left out.
    np.testing.assert_array_equal(
        search(row, w, 0.5, 3, horizon=2, seldom=(0, 1, 2)), search(row, w, 0.5, 3, horizon=2)
    )


def test_the_actions_of_a_plan_lead_to_its_psi():
    rows, w, gamma, t = np.array([[1, 0, 0], [3, -2, 1]], dtype=np.float32), np.array([[0.3, -0.7], [1.0, 0.0]]), 0.9, 1
    found = plan(Search(KnownModel(), PHI, by_plan(nothing), HORIZON, gamma, 4), t, rows, w)
    assert found.actions.shape == (2, 3, HORIZON - t)
    np.testing.assert_array_equal(found.actions[..., 0], [[0, 1, 2]] * 2)
    for row, first in np.ndindex(2, 3):
        state, reach, psi = rows[row : row + 1], 1.0, np.zeros(2)
        for action in found.actions[row, first]:
            outcome, end = KnownModel().predict(state)[:, action], KnownModel().end_probability(state)[0, action]
            psi += reach * PHI(outcome)[0]
            reach *= gamma * (1 - end)
            state = KnownModel().advance(state, np.array([action]), outcome)
        np.testing.assert_allclose(found.psi[row, first], psi, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("t", [0, 1, 3])
@pytest.mark.parametrize("ends", [True, False])
def test_with_room_for_every_plan_it_is_the_best_of_all(gamma, t, ends):
    rows, w = states(12, seed=t, begun=t > 0), weights(12)
    psi = search(rows, w, gamma, ALL, t=t, model=KnownModel(ends))
    for row, weight, found in zip(rows, w, psi, strict=True):
        best = best_plans(plain_state(row), HORIZON - t, gamma, weight, ends)
        # Two plans can be equally good: their values are compared, and psi must be that of one of them.
        np.testing.assert_allclose(found @ weight, best @ weight, atol=1e-6)
        for first in range(3):
            plans = every_plan(plain_state(row), HORIZON - t, gamma, first, ends)
            assert np.abs(plans - found[first]).max(axis=1).min() < 1e-6


def test_gamma_0_sees_one_outcome_only():
    rows = states(5, seed=0)
    np.testing.assert_allclose(search(rows, weights(5), 0.0, 2, arbitrary), PHI(KnownModel().predict(rows)), atol=1e-7)


def test_where_the_end_is_certain_nothing_follows():
    class Ending(KnownModel):
        def end_probability(self, rows):
            return np.broadcast_to(np.array([0.0, 1.0, 0.0], dtype=np.float32), (*rows.shape[:-1], 3))

    rows = states(5, seed=0)
    psi = search(rows, weights(5), 1.0, ALL, model=Ending())
    np.testing.assert_allclose(psi[:, 1], PHI(KnownModel().predict(rows))[:, 1], atol=1e-7)
    assert (np.abs(psi[:, 0] - PHI(KnownModel().predict(rows))[:, 0]) > 0.01).any()


def test_width_1_follows_the_estimates_greedy_policy():
    model, rows, w = KnownModel(), states(40, seed=1, begun=False), weights(40)
    psi = search(rows, w, 0.5, 1, arbitrary)
    for first in range(3):
        state, actions = rows, np.full(40, first)
        total, reach = np.zeros((40, 2)), np.ones(40)
        for step in range(HORIZON):
            outcome = model.predict(state)[np.arange(40), actions]
            total += reach[:, None] * PHI(outcome)
            reach = reach * 0.5 * (1 - model.end_probability(state)[np.arange(40), actions])
            state = model.advance(state, actions, outcome)
            actions = arbitrary(step + 1, state, w).argmax(axis=1)
        np.testing.assert_allclose(psi[:, first], total, atol=1e-12)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_wrong_estimate_hides_plans_but_never_changes_their_value(width):
    rows, w = states(30, seed=2, begun=False), weights(30)
    psi = search(rows, w, 1.0, width, arbitrary)
    shortfall = []
    for row, weight, found in zip(rows, w, psi, strict=True):
        for first in range(3):
            plans = every_plan(plain_state(row), HORIZON, 1.0, first)
            assert np.abs(plans - found[first]).max(axis=1).min() < 1e-6
            shortfall.append((plans @ weight).max() - found[first] @ weight)
    assert min(shortfall) > -1e-6
    assert max(shortfall) > 0.1


@pytest.mark.parametrize("width", [2, 3, 8])
def test_however_wrong_the_estimate_no_search_ends_below_its_greedy_policy(width):
    rows, w = states(200, seed=8), weights(200)
    for gamma in (0.5, 1.0):
        greedy, found = (np.einsum("nad,nd->na", search(rows, w, gamma, k, arbitrary), w) for k in (1, width))
        assert (found >= greedy - 1e-12).all()
        assert (found > greedy + 0.1).any()


def plain_search(row, w, gamma, width, first):
    """The search for one history and first action, plan by plan."""
    model = KnownModel()
    plans = [(np.zeros(2), 1.0, row[None], first)]
    for step in range(HORIZON):
        grown = []
        for total, reach, state, action in plans:
            outcome = model.predict(state)[:, action]
            total = total + reach * PHI(outcome)[0]
            reach = reach * gamma * (1 - float(model.end_probability(state)[0, action]))
            state = model.advance(state, np.array([action]), outcome)
            # What is earned, and what is still to come as far as the plan gets there.
            promise = total @ w + reach * arbitrary(step + 1, state, w[None])[0]
            grown += [(promise[following], total, reach, state, following) for following in range(3)]
        if step == HORIZON - 1:
            return max(total @ w for _, total, *_ in grown)
        # The best way to go on from the first plan stays the first; the others follow by what they promise.
        greedy = max(grown[:3], key=lambda plan: plan[0])
        others = sorted((plan for plan in grown if plan is not greedy), key=lambda plan: -plan[0])
        plans = [plan[1:] for plan in [greedy, *others][:width]]
    raise AssertionError("the last step returns")


@pytest.mark.parametrize("width", [2, 3, 5])
def test_unfinished_plans_are_compared_by_what_is_earned_and_still_to_come(width):
    rows, w = states(30, seed=7, begun=False), weights(30)
    values = np.einsum("nad,nd->na", search(rows, w, 0.5, width, arbitrary), w)
    expected = [
        [plain_search(row, weight, 0.5, width, first) for first in range(3)]
        for row, weight in zip(rows, w, strict=True)
    ]
    np.testing.assert_allclose(values, expected, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 1.0])
@pytest.mark.parametrize("width", [1, 2])
def test_with_the_true_values_no_plan_is_lost(gamma, width):
    rows, w = states(10, seed=3, begun=False), weights(10)
    psi = search(rows, w, gamma, width, exact(gamma))
    best = np.array([best_plans(plain_state(row), HORIZON, gamma, weight) for row, weight in zip(rows, w, strict=True)])
    np.testing.assert_allclose(np.einsum("nad,nd->na", psi - best, w), 0.0, atol=1e-6)


def test_rows_do_not_see_each_other():
    rows, w = states(30, seed=4), weights(30)
    together = search(rows, w, 0.5, 3, arbitrary)
    alone = [search(rows[i : i + 1], w[i : i + 1], 0.5, 3, arbitrary)[0] for i in range(30)]
    np.testing.assert_array_equal(together, alone)
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_array_equal(search(rows[order], w[order], 0.5, 3, arbitrary), together[order])


def test_the_scale_of_the_weights_does_not_matter_and_without_preferences_every_plan_is_as_good_as_any():
    rows, w = states(30, seed=5), weights(30)
    np.testing.assert_array_equal(search(rows, 3 * w, 0.5, ALL), search(rows, w, 0.5, ALL))
    rows = states(10, seed=6)
    psi = search(rows, np.zeros((10, 2)), 0.5, 2)
    for row, found in zip(rows, psi, strict=True):
        for first in range(3):
            plans = every_plan(plain_state(row), HORIZON, 0.5, first)
            assert np.abs(plans - found[first]).max(axis=1).min() < 1e-6


@pytest.mark.parametrize("t", [0, 2])
def test_a_search_that_all_first_actions_share_finds_the_best_of_them(t):
    rows, w = states(12, seed=t, begun=t > 0), weights(12)
    found = best_plan(Search(KnownModel(), PHI, by_plan(nothing), HORIZON, 0.5, 3 * ALL), t, rows, w)
    apart = search(rows, w, 0.5, ALL, t=t)
    best = np.einsum("nad,nd->na", apart, w).max(axis=1)
    np.testing.assert_allclose(np.einsum("nd,nd->n", found, w), best, atol=1e-6)
    for row, psi in zip(rows, found, strict=True):
        plans = np.concatenate([every_plan(plain_state(row), HORIZON - t, 0.5, first) for first in range(3)])
        assert np.abs(plans - psi).max(axis=1).min() < 1e-6


def test_a_search_that_keeps_one_plan_follows_the_greedy_policy_from_the_first_action_on():
    rows, w = states(40, seed=9, begun=False), weights(40)
    found = best_plan(Search(KnownModel(), PHI, by_plan(arbitrary), HORIZON, 0.5, 1), 0, rows, w)
    each = search(rows, w, 0.5, 1, arbitrary)
    np.testing.assert_allclose(found, each[np.arange(40), arbitrary(0, rows, w).argmax(axis=1)], atol=1e-12)


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


def test_outcomes_of_the_actions_are_planned_exactly():
    # Beside (x, y): whether action 2 is given, and whether the action differs from the one before. Ends are left out.
    features, gamma = ("x", "y", "Given(2)", "Switched()"), 0.5
    model = knowing(KnownModel(ends=False), features, ("0", "1", "2"))
    phi = FeatureMap(features, np.array([0.0, 0, 0, 0]), np.array([4.0, 8, 1, 1]), features)

    def by_hand(state, actions):
        before = (state[2], *actions[:-1])
        given = sum(gamma**k * (a == 2) for k, a in enumerate(actions))
        turns = zip(before, actions, strict=True)
        switched = sum(gamma**k * (last is not None and a != last) for k, (last, a) in enumerate(turns))
        return np.array([*value_of_plan(state, actions, gamma, ends=False), given, switched])

    assert by_hand((1.0, 0.0, None), (2, 2, 0))[2:].tolist() == [1.5, 0.25]
    assert by_hand((1.0, 0.0, 0), (2, 2, 0))[2:].tolist() == [1.5, 1.25]
    drawn = np.random.default_rng(0).normal(size=(12, 4))
    for begun in (False, True):
        rows = states(12, seed=3, begun=begun)
        previous = np.eye(3)[rows[:, 2].astype(int) - 1] * begun
        beam = np.concatenate([rows, previous], axis=1, dtype=np.float32)
        psi = plan(Search(model, phi, by_plan(nothing), HORIZON, gamma, ALL), 0, beam, drawn).psi
        for row, w, found in zip(rows, drawn, psi, strict=True):
            for first in range(3):
                tails = itertools.product(range(3), repeat=HORIZON - 1)
                plans = np.array([by_hand(plain_state(row), (first, *tail)) for tail in tails])
                np.testing.assert_allclose(found[first], plans[(plans @ w).argmax()], atol=1e-5)
