"""Every recurrent network of the project carries its memory, clears it, and is trained on what it acts with.

The networks are those of :mod:`recurrent_networks`. Not everything is asked of each of them:

- A lost memory: an outcome model cannot lose it, since ``advance`` takes the state before and has no default.
- Pieces of several episodes: only RecurrentPPO's rollout cuts what was seen into sequences. DRQN's replay of whole
  episodes has test_episode_replay.py; all others read whole episodes, one per row of a ``Batch``.
- Padding: DRQN's is in test_drqn_loss.py. The successor agent's networks have no time axis; what can be padded is the
  histories that it learns from.
"""

from __future__ import annotations

import copy
import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from known_model import KnownModel
from outcome_batches import MODELS, random_model
from recurrent_networks import NETWORKS, POLICIES, Recurrent, episodes, ppo_algorithm, shown, stepped
from scipy.special import log_softmax
from small_agents import TINY, known_problem
from training_losses import TRAINED, training_loss

from agents.policies.cloning import CloningPolicy
from agents.successor.training import fit_successor
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import act_along, rollout
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.training import seeded

TIGHT = {"rtol": 0, "atol": 1e-5}


@functools.cache
def made(name: str) -> Recurrent:
    return NETWORKS[name]()


each_network = pytest.mark.parametrize("name", NETWORKS)
each_policy = pytest.mark.parametrize("name", POLICIES)


@each_network
def test_two_pasts_with_the_same_last_observations_differ(name):
    """Only x_0 to x_2 differ, which are longer ago than any window of lags reaches."""
    network, batch = made(name), episodes(7, 7)
    obs, actions = batch.obs.copy(), batch.actions.copy()
    obs[1], actions[1] = obs[0], actions[0]
    obs[1, :3] += 2
    batch = replace(batch, obs=obs, actions=actions)
    for values in (stepped(network, batch), network.whole(batch)):
        assert np.abs(values[0, 6] - values[1, 6]).max() > 1e-4


@each_policy
def test_the_rollout_loop_carries_the_memory(name):
    network, world = made(name), CounterfactualWorld(random_model("mb_h"), episodes(*[1] * 8, seed=2).start, 20)
    played = rollout(world, network.policy, 8, np.random.default_rng(0))
    best = np.where(played.mask, network.whole(played).argmax(axis=2), 0)
    assert len(np.unique(best)) > 1
    np.testing.assert_array_equal(played.actions, best)
    # Along what others did, too.
    batch = episodes(20, 3, 1, 11, seed=1)
    best = np.where(batch.mask, network.whole(batch).argmax(axis=2), 0)
    np.testing.assert_array_equal(act_along(network.policy, batch), best)


@each_policy
def test_a_lost_memory_is_noticed(name):
    network, seen = made(name), shown(episodes(5, 5, seed=3), 2)
    assert seen[:, 2:].any(axis=1).all()
    goes_on = np.zeros(2, dtype=np.bool_)
    if name == "successor":
        with pytest.raises(ValueError, match="state is None"):
            network.policy.predict(seen, None, goes_on)
    else:
        with pytest.warns(UserWarning, match=r"no state was given.*history is lost"):
            network.policy.predict(seen, None, goes_on)
    if not name.startswith(("drqn", "recurrent ppo")):
        # They know where the previous action stands; those two cannot know unless they are told.
        with pytest.warns(UserWarning, match=r"no state was given.*history is lost"):
            network.policy.predict(seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, state = network.policy.predict(shown(episodes(5, 5), 0), None, np.ones(2, dtype=np.bool_))
        network.policy.predict(seen, state, goes_on)


@each_network
def test_an_episode_that_begins_forgets_the_one_before(name):
    """Row 0 has episodes of 3 steps and then of 17, row 1 one of 20."""
    network = made(name)
    first, long, later = episodes(3, seed=4), episodes(20, seed=5), episodes(17, seed=6)

    def run(first):
        memory, values = None, []
        for t in range(20):
            own = shown(first, t) if t < 3 else shown(later, t - 3)
            starts = np.array([t in (0, 3), t == 0])
            said, memory = network.step(np.concatenate([own, shown(long, t)]), memory, starts)
            values.append(said)
        return np.array(values)

    one, other = run(first), run(replace(first, obs=first.obs + 1))
    assert (np.abs(one[:3, 0] - other[:3, 0]).reshape(3, -1).max(axis=1) > 1e-4).all()
    np.testing.assert_array_equal(one[3:], other[3:])
    np.testing.assert_array_equal(one[:, 1], other[:, 1])
    # As if it were the first episode that was ever seen.
    np.testing.assert_allclose(one[3:, 0], stepped(network, later)[0], **TIGHT)
    np.testing.assert_allclose(one[:, 1], stepped(network, long)[0], **TIGHT)


@each_network
def test_step_by_step_is_the_pass_over_whole_episodes(name):
    network, batch = made(name), episodes(20, 7, 1, 12)
    values = stepped(network, batch)[batch.mask]
    assert np.ptp(values, axis=0).max() > 0.01
    np.testing.assert_allclose(values, network.whole(batch)[batch.mask], **TIGHT)


def rollout_samples(size=None):
    """Sequences ``(observations, mask, sample)`` that RecurrentPPO's updates read, and its policy."""
    algorithm = ppo_algorithm(1, 3, 20)
    for _ in range(8):
        for sample in algorithm.rollout_buffer.get(size):
            n = sample.lstm_states.pi[0].shape[1]
            obs = sample.observations.reshape(n, -1, 5).numpy()
            yield algorithm.policy, obs, sample.mask.reshape(n, -1).numpy() > 0, sample


def test_recurrent_ppo_updates_on_what_it_acted_with():
    for policy, _, _, sample in rollout_samples(25):
        with torch.no_grad():
            values, logs, _ = policy.evaluate_actions(
                sample.observations, sample.actions.long().flatten(), sample.lstm_states, sample.episode_starts
            )
        live = sample.mask > 0
        torch.testing.assert_close(logs[live], sample.old_log_prob[live], **TIGHT)
        torch.testing.assert_close(values.flatten()[live], sample.old_values[live], **TIGHT)
        assert logs[live].std() > 0.01


def network_and_loss(network, loss):
    return copy.deepcopy(network), loss().item()


def test_cloning_learns_on_the_probabilities_it_acts_with(monkeypatch):
    batch = episodes(9, 1, 20, 4)
    net, loss = training_loss(monkeypatch, "cloning", batch, network_and_loss)
    policy = CloningPolicy(net, Scaler.from_batch(batch), np.random.default_rng(0))
    logs = log_softmax(stepped(Recurrent(policy.act, policy.log_probabilities), batch), axis=2)
    taken = np.take_along_axis(logs, batch.actions[..., None], axis=2)[..., 0]
    assert loss == pytest.approx(-taken[batch.mask].mean(), abs=1e-5)


@pytest.mark.parametrize("kind", ["crn", "rmsn", "mb_h"])
def test_an_outcome_model_learns_on_what_it_predicts_step_by_step(monkeypatch, kind):
    batch = episodes(9, 1, 20, 4)
    net, loss = training_loss(monkeypatch, kind, batch, network_and_loss)
    model, states, squares, losses = random_model(kind), None, [], []
    model.correction = replace(model.correction, network=net)
    size, hidden = model.law.window.size, net.lstm.hidden_size
    for t in range(20):
        live = batch.mask[:, t]
        states = model.start(batch.start) if t == 0 else model.advance(states, batch.actions[:, t - 1], batch.obs[:, t])
        taken = model.raw(states)[np.arange(4), batch.actions[:, t]]
        squares.append((((taken - batch.obs[:, t + 1]) / model.correction.scale) ** 2)[live])
        if kind == "crn":
            logits = net.treatment(net.represent(torch.from_numpy(states[live, size : size + hidden])))
            chosen = torch.from_numpy(batch.actions[live, t])
            losses += torch.nn.functional.cross_entropy(logits, chosen, reduction="none").tolist()
    expected = np.concatenate(squares).mean() + (np.mean(losses) if losses else 0)
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [None, 25])
def test_no_sequence_of_recurrent_ppo_crosses_an_episode(size):
    lengths, carried = set(), 0
    for _, obs, mask, sample in rollout_samples(size):
        for i, live in enumerate(mask):
            k = int(live.sum())
            names, times = obs[i, :k, 0], np.round(100 * obs[i, :k, 1]).astype(int)
            assert live[:k].all()
            assert (names == names[0]).all()
            assert (np.diff(times) == 1).all()
            lengths.add(k)
            # What begins in the middle of an episode begins with what was remembered there; what is new, with nothing.
            carried += int(times[0] > 0)
            start = sample.episode_starts.reshape(mask.shape)[i, 0].item()
            assert start == (times[0] == 0)
            assert start or sample.lstm_states.pi[0][:, i].abs().min() > 0
    assert {1, 3} <= lengths
    assert carried > 0


def padded(batch: Batch, horizon: int, filling: float = 0.0, behind: bool = False) -> Batch:
    """The same episodes; with ``behind`` the filling comes in after ``Batch`` has cleared the padding."""
    wide = batch.padded(horizon)
    obs, actions = wide.obs.astype(np.float64), wide.actions.copy()
    obs[~wide.seen] = filling
    actions[~wide.mask] = 2 if behind else 99 if filling else 0
    if not behind:
        return replace(wide, obs=obs, actions=actions)
    filled = copy.copy(wide)
    object.__setattr__(filled, "obs", obs.astype(np.float32))
    object.__setattr__(filled, "actions", actions)
    return filled


PADDINGS = [(20, 0.0, False), (40, 0.0, False), (20, np.nan, False), (40, 1e30, False), (40, 1e30, True)]


def with_gradient(network, loss):
    """Loss and gradients as in training, dropout included."""
    network.train()
    with seeded(0):
        value = loss()
    value.backward()
    gradients = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    network.zero_grad()
    return value.detach(), gradients


@pytest.mark.parametrize("kind", TRAINED)
def test_padding_changes_neither_loss_nor_gradient(monkeypatch, kind):
    batch = episodes(3, 1, 5)
    loss, gradient = training_loss(monkeypatch, kind, batch, with_gradient)
    assert loss > 0.1
    assert gradient.abs().max() > 0.01
    scaler = Scaler.from_batch(batch)
    for padding in PADDINGS:
        wide = padded(batch, *padding)
        assert wide.horizon == padding[0]
        other = training_loss(monkeypatch, kind, wide, with_gradient)
        torch.testing.assert_close(other, (loss, gradient), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(Scaler.from_batch(wide).mean, scaler.mean)
        np.testing.assert_array_equal(Scaler.from_batch(wide).scale, scaler.scale)


@pytest.mark.parametrize("kind", TRAINED)
def test_an_update_always_has_an_action(monkeypatch, kind):
    """No batch is all padding: no episode is without an action, and one episode of one action is enough."""
    batch = episodes(1)
    with pytest.raises(ValueError, match="has length 0"):
        replace(batch, lengths=np.zeros(1, dtype=np.int64))
    loss, gradient = training_loss(monkeypatch, kind, padded(batch, 20), with_gradient)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_padding_changes_no_update_of_recurrent_ppo(monkeypatch):
    """There is no update that is all padding: a rollout is as many steps as it was asked for."""
    algorithm = ppo_algorithm(3, 1, 5)
    sample = next(iter(algorithm.rollout_buffer.get(60)))
    n = sample.lstm_states.pi[0].shape[1]
    live = sample.mask.reshape(n, -1) > 0
    assert live.shape[1] == 5

    def update(width, filling):
        parts = {}
        for name, part in sample._asdict().items():
            if name == "lstm_states":
                continue
            keeps_zero = name in ("actions", "mask", "episode_starts")
            wide = torch.full((n, width, *part.shape[1:]), 0.0 if keeps_zero else filling, dtype=part.dtype)
            wide[:, :5][live] = part.reshape(n, 5, *part.shape[1:])[live]
            parts[name] = wide.reshape(n * width, *part.shape[1:])
        monkeypatch.setattr(algorithm.rollout_buffer, "get", lambda _: iter([sample._replace(**parts)]))
        algorithm.train()
        logged = algorithm.logger.name_to_value
        told = [logged[f"train/{name}"] for name in ("loss", "value_loss", "policy_gradient_loss", "approx_kl")]
        return torch.tensor(told), torch.cat([p.grad.flatten() for p in algorithm.policy.parameters()])

    first = update(5, 0.0)
    assert first[1].abs().max() > 0.01
    for padding in ((20, 0.0), (40, 0.0), (40, 1e30)):
        torch.testing.assert_close(update(*padding), first, rtol=1e-6, atol=1e-6)


def learnt(**changes):
    """``[T, P]`` parameters of the agent's network for every step."""
    config = replace(TINY, episodes=12, gradient_steps=3)
    agent = fit_successor(known_problem(**changes), config, np.random.default_rng(0))
    return torch.stack([torch.cat([p.detach().flatten() for p in s.parameters()]) for s in agent.network.stages])


def test_padding_changes_nothing_of_what_the_successor_agent_learns():
    batch = episodes(3, 1, 5)
    first = learnt(horizon=20, histories=batch)
    assert first.isfinite().all()
    assert (first != learnt(horizon=20)).any()
    # Never longer than the horizon: that would be an error.
    for filling, behind in ((np.nan, False), (1e30, False), (1e30, True)):
        wide = padded(batch, 20, filling, behind)
        torch.testing.assert_close(learnt(horizon=20, histories=wide), first, rtol=0, atol=1e-6)


class Ending(KnownModel):
    """Every process ends with the first action: all later steps are padding."""

    def end_probability(self, states):
        return np.ones((*states.shape[:-1], 3), dtype=np.float32)


def test_steps_that_nobody_reaches_are_not_learnt():
    stages = learnt(model=Ending())
    assert stages.isfinite().all()
    # Each begins as the one after it; only the first has anything to learn from.
    assert (stages[1:] == stages[-1]).all()
    assert (stages[0] != stages[-1]).any()


def values_of(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same_values(network, before):
    return [name for name, value in network.named_parameters() if torch.equal(value, before[name])]


@pytest.mark.parametrize("kind", TRAINED)
def test_every_parameter_moves_in_one_step(kind, monkeypatch):
    def one_step(network, loss):
        moved, before = copy.deepcopy(network), values_of(network)
        loss().backward()
        gradients = {name: value.grad for name, value in network.named_parameters()}
        with torch.no_grad():
            for name, value in moved.named_parameters():
                if gradients[name] is not None:
                    value -= 0.1 * gradients[name]
        return same_values(moved, before)

    assert training_loss(monkeypatch, kind, episodes(9, 1, 20, 4), one_step) == []


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in ("ar", "ensemble")])
def test_a_model_that_predicts_stays_as_it_is(kind):
    model, batch = random_model(kind), episodes(9, 1, 20, 4)
    network = model.correction.network
    assert not network.training
    before = values_of(network)
    one, two = (model.predict(model.encode(batch)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert same_values(network, before) == list(dict(network.named_parameters()))
