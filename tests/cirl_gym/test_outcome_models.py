"""What every learned outcome model promises, whatever is inside, and what each adds to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from env_runs import native
from outcome_batches import MODELS, confounded, linear_system, random_model
from recurrent_networks import episodes
from small_agents import TINY
from torch import nn

from agents.policies.policy import ConstantPolicy
from agents.successor.training import fit_agent
from cirl_gym import rollout
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import CounterfactualWorld, ForesightModel, fold, foresee
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.outcome_models.ends import EndHead, EndLines
from cirl_gym.outcome_models.errors import counterfactual_error, factual_error
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.limits import OutcomeSpec, outcome_bounds
from cirl_gym.outcome_models.model import Correction, LearnedModel
from cirl_gym.outcome_models.networks import (
    CorrectingNetwork,
    CRNConfig,
    lstm_states,
    reversal_strength,
    reverse_gradient,
)
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.training import TrainingConfig, seeded

TIGHT = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(params=MODELS)
def model(request):
    return random_model(request.param)


@pytest.fixture(scope="module")
def batch() -> Batch:
    """50 episodes of 1 to 12 actions."""
    return linear_system(50, 3, noise=1.0)


def answers(model, batch):
    """Everything a model says: states, outcomes, ends."""
    states = model.encode(batch)
    return states, model.predict(states), model.end_probability(states)


def live(batch):
    return np.arange(batch.horizon + 1) <= batch.lengths[:, None]


def test_shapes_types_and_answers_that_stay_the_same(model, batch):
    states, outcomes, ends = answers(model, batch)
    shape = (len(batch), batch.horizon + 1)
    assert (states.shape[:2], outcomes.shape, ends.shape) == (shape, (*shape, 3, 2), (*shape, 3))
    assert states.dtype == outcomes.dtype == ends.dtype == np.float32
    assert ((ends >= 0) & (ends <= 1)).all()
    assert (states[~live(batch)] == 0).all()
    assert (model.features, model.n_actions) == (("x", "y"), 3)
    first = answers(model, batch)
    torch.manual_seed(1)
    for one, other in zip(first, answers(model, batch), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("horizon", [20, 60])
def test_more_padding_changes_nothing(model, batch, horizon):
    for short, long in zip(answers(model, batch), answers(model, batch.padded(horizon)), strict=True):
        np.testing.assert_allclose(long[:, : batch.horizon + 1][live(batch)], short[live(batch)], **TIGHT)


def test_a_patient_alone_or_cut_to_one_action_is_the_patient_in_a_batch(model, batch):
    together = answers(model, batch)
    shuffled = np.random.default_rng(0).permutation(len(batch))
    mixed = answers(model, batch.take(shuffled))
    for whole, other in zip(together, mixed, strict=True):
        np.testing.assert_allclose(other, whole[shuffled], **TIGHT)
    for i in range(0, len(batch), 7):
        for whole, alone in zip(together, answers(model, batch.take(np.array([i]))), strict=True):
            np.testing.assert_allclose(alone[0], whole[i], **TIGHT)
    one = replace(batch, obs=batch.obs[:, :2], actions=batch.actions[:, :1], lengths=np.ones(50, dtype=np.int64))
    for short, whole in zip(answers(model, one), answers(model, batch), strict=True):
        np.testing.assert_allclose(short, whole[:, :2], **TIGHT)


@pytest.mark.parametrize("t", [0, 3, 7])
def test_the_future_does_not_reach_back(model, batch, t):
    """Observations after t and actions from t on are changed: nothing said at or before t moves."""
    obs, actions = batch.obs.copy(), batch.actions.copy()
    obs[:, t + 1 :] += 100
    actions[:, t:] = (actions[:, t:] + 1) % 3
    later = answers(model, replace(batch, obs=obs, actions=actions))
    for before, after in zip(answers(model, batch), later, strict=True):
        assert np.array_equal(before[:, : t + 1], after[:, : t + 1])
        assert not np.array_equal(before[:, t + 1], after[:, t + 1])


def test_a_row_of_zeros_is_an_observation(model, batch):
    long = batch.take(batch.lengths > 5)
    obs = long.obs.copy()
    obs[:, 3] = 0
    zero = replace(long, obs=obs)
    cut = replace(zero, lengths=np.full(len(zero), 2))
    states = model.encode(zero)
    assert (np.abs(states[:, 4:6]).sum(axis=2) > 0).all()
    assert np.array_equal(states[:, :3], model.encode(cut)[:, :3])
    moved = obs.copy()
    moved[:, 3] = 1e-3
    correction = getattr(model, "correction", None)
    step = 3 if correction is not None and correction.network.lstm is None else 4  # MB(x) looks one step back
    there = model.predict(model.encode(replace(long, obs=moved)))
    assert not np.array_equal(model.predict(states)[:, step], there[:, step])


def test_encoding_at_once_is_starting_and_advancing_in_any_leading_shape(model, batch):
    np.testing.assert_allclose(fold(model, batch), model.encode(batch), **TIGHT)
    states = model.encode(batch)[:, :-1]
    flat = states.reshape(-1, states.shape[-1])
    np.testing.assert_allclose(model.predict(flat).reshape(50, -1, 3, 2), model.predict(states), **TIGHT)
    advanced = model.advance(states, batch.actions, batch.next_obs)
    np.testing.assert_allclose(advanced[batch.mask], model.encode(batch)[:, 1:][batch.mask], **TIGHT)


def test_what_is_foreseen_of_one_action_is_what_is_predicted_for_it(model, batch):
    states, predicted, ends = (answer.reshape(-1, *answer.shape[2:]) for answer in answers(model, batch))
    rows, actions = np.arange(len(states)), np.random.default_rng(0).integers(model.n_actions, size=len(states))
    outcome, end = foresee(model, states, actions)
    assert isinstance(model, ForesightModel)
    assert (outcome.dtype, end.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(outcome, predicted[rows, actions], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(end, ends[rows, actions], atol=1e-5)


def test_predictions_and_courses_stay_inside_the_bounds(model, batch):
    low, high = model.bounds
    states = model.start(batch.start * 1000)
    for _ in range(30):
        outcomes = model.predict(states)
        assert np.isfinite(outcomes).all()
        assert ((outcomes >= low) & (outcomes <= high)).all()
        states = model.advance(states, np.full(50, 2), outcomes[:, 2])


def test_stepping_an_lstm_is_running_it():
    with seeded(0):
        lstm = nn.LSTM(3, 5, batch_first=True)
        inputs = torch.randn(4, 6, 3)
    with torch.no_grad():
        whole, (last, memory) = lstm(inputs)
        hidden, cell = lstm_states(lstm, inputs)
    assert torch.allclose(hidden, whole, atol=1e-6)
    assert torch.allclose(hidden[:, -1], last[0], atol=1e-6)
    assert torch.allclose(cell[:, -1], memory[0], atol=1e-6)


def test_alpha_rises_below_one_and_only_what_lies_before_the_reversal_is_reversed():
    alphas = [reversal_strength(share) for share in np.linspace(0, 1, 50)]
    assert alphas[0] == 0
    assert np.all(np.diff(alphas) > 0)
    assert alphas[-1] < 1
    assert reversal_strength(0.1) == pytest.approx(2 / (1 + np.exp(-1)) - 1)
    values = torch.tensor([0.3, -0.7], requires_grad=True)
    squares = (reverse_gradient(values, 0.25) ** 2).sum()
    squares.backward()
    step = 1e-3
    rises = [(((values + step * unit) ** 2).sum() - (values**2).sum()).item() / step for unit in torch.eye(2)]
    assert squares.item() == pytest.approx(0.58)
    assert values.grad.tolist() == pytest.approx([-0.25 * rise for rise in rises], abs=1e-3)
    # The encoder's gradient is -alpha times the ordinary one; the head's is the ordinary one.
    with seeded(0):
        network = CorrectingNetwork(2, 3, CRNConfig(hidden=6, representation=4, balance=0.5)).eval()
        hidden, actions = torch.randn(35, 6), torch.randint(3, (35,))
    network.side_loss(network.represent(hidden), actions, share=0.2).backward()
    turned = {name: value.grad.clone() for name, value in network.named_parameters() if value.grad is not None}
    network.zero_grad()
    nn.functional.cross_entropy(network.treatment(network.represent(hidden)), actions).backward()
    alpha = 0.5 * reversal_strength(0.2)
    for name, value in network.named_parameters():
        if name.startswith("treatment"):
            assert torch.allclose(turned[name], value.grad, atol=1e-7)
        elif name.startswith("balancing"):
            assert value.grad.abs().max() > 1e-4
            assert torch.allclose(turned[name], -alpha * value.grad, atol=1e-7)


def test_a_head_on_a_frozen_representation_learns_the_treatments():
    train, _ = confounded(200)
    with seeded(0):
        network = CorrectingNetwork(2, 2, CRNConfig())
    law, scaler = LinearLaw.persistence(2, 2), Scaler.from_batch(train)
    spec = OutcomeSpec(train.features, 2, *outcome_bounds(train), np.ones(2), np.full(2, -np.inf), np.full(2, np.inf))
    end = EndHead("never", EndLines.from_batch(train, scaler, scaler.scale), 0.0)
    model = LearnedModel(law, spec, end, Correction(network.eval(), scaler, scaler.scale))
    hidden = model.encode(train)[:, :-1][train.mask][:, model.law.window.size :][:, :32]
    actions = torch.from_numpy(train.actions[train.mask])
    representation = network.represent(torch.from_numpy(hidden)).detach()
    optimiser = torch.optim.Adam(network.treatment.parameters(), lr=0.01)
    for _ in range(60):
        loss = network.side_loss(representation, actions, 0.5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    rate = train.actions[train.mask].mean()
    chance = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    assert loss.item() < 0.9 * chance


def test_two_hundred_steps_at_a_high_rate_stay_finite():
    train, validation = confounded(160)
    training = TrainingConfig(epochs=25, batch_size=18, learning_rate=0.01, patience=25)
    config = replace(OutcomeModelConfig.quick(), base=False, crn=CRNConfig(training=training))
    fitted = fit_outcome_model("crn", train, validation, config, np.random.default_rng(0))
    assert fitted.report["correction"]["epochs"] == 25
    assert np.isfinite(fitted.report["correction"]["validation_loss"])


class Shifted:
    """A model whose outcomes are the oracle's plus a constant, and wrong by more where nobody looked."""

    def __init__(self, taken, other):
        self.oracle, self.taken, self.other = OracleModel(), np.float32(taken), np.float32(other)

    def encode(self, batch):
        self.actions = np.pad(batch.actions, ((0, 0), (0, 1)))[:, :-1]
        return self.oracle.encode(batch)

    def predict(self, states):
        mine = (self.actions[..., None] == np.arange(2))[..., None]
        return self.oracle.predict(states) + np.where(mine, self.taken, self.other)


def test_errors_by_hand():
    _, validation = confounded(200)
    phi = FeatureMap(("tumour", "side_effects"), np.zeros(2), np.array([50.0, 10.0]))
    error = counterfactual_error(Shifted(0.0, 2.0), validation, OracleModel(), phi)
    assert error.raw == pytest.approx((2, 2), abs=1e-5)
    assert error.scaled == pytest.approx((0.04, 0.2), abs=1e-6)
    assert error.pooled == pytest.approx(np.hypot(0.04, 0.2), abs=1e-6)
    assert error.n == validation.n_steps
    assert counterfactual_error(Shifted(9.0, 0.0), validation, OracleModel(), phi).pooled == 0
    noise = factual_error(OracleModel(), validation, phi).raw
    assert 0.09 < noise[0] < 0.11
    assert factual_error(Shifted(3.0, 0.0), validation, phi).raw[0] == pytest.approx(np.hypot(3, noise[0]), abs=0.03)


def test_the_law_is_as_good_as_the_simulator_on_actions_nobody_took():
    train, validation = confounded(2000)
    fitted = fit_outcome_model("ar", train, validation, OutcomeModelConfig.quick(), np.random.default_rng(0))
    oracle = OracleModel()
    ratio = np.divide(factual_error(fitted.model, validation).raw, factual_error(oracle, validation).raw)
    assert (ratio < 1.02).all()
    assert max(counterfactual_error(fitted.model, validation, oracle).raw) < 0.01  # a tenth of the noise
    assert fitted.model.noise_scale == pytest.approx([0.1, 0.1], abs=0.01)
    assert fitted.model.bounds[0].tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crn", "mb_h"])
def test_a_network_on_ten_thousand_episodes_is_not_worse_than_the_law(kind):
    train, validation = confounded(10_000)
    oracle = OracleModel()
    rng = np.random.default_rng(0)
    law = fit_outcome_model("ar", train, validation, OutcomeModelConfig(), rng).model
    fitted = fit_outcome_model(kind, train, validation, OutcomeModelConfig(), rng)
    assert factual_error(fitted.model, validation).pooled < 1.002 * factual_error(law, validation).pooled
    assert max(counterfactual_error(fitted.model, validation, oracle).raw) < 0.01


@pytest.fixture(scope="module")
def packaged():
    """The environment that ships with the package, and an agent trained in it for all signs of w."""
    env = CounterfactualEnv()
    return env, fit_agent(env, config=replace(TINY, width=1), seed=0)


@pytest.mark.parametrize("outcome", ["expected", "sampled"])
@pytest.mark.parametrize("name", ["always", "never", "random", "greedy", "greedy against it"])
def test_no_policy_drives_the_world_model_out_of_its_bounds(packaged, name, outcome):
    """A tenth of the 10,000 roll-outs each."""
    sign = -1.0 if name == "greedy against it" else 1.0
    w = sign * np.array([-0.3, -0.7])
    n, (single, agent) = 1000, packaged
    envs = native("CIRLCounterfactual-v0", "NextStep", n, weights=w, outcome=outcome)
    action, phi = {"always": 1, "never": 0}.get(name), single.feature_map
    policy = agent.policy(w) if "greedy" in name else ConstantPolicy(action, 2, np.random.default_rng(3))
    low, high = (np.asarray(end, dtype=np.float32) for end in single.model.bounds)
    seen = single.batch.obs[single.batch.seen]
    steepest = np.maximum(np.abs(phi(low)), np.abs(phi(high)))
    obs, _ = envs.reset(seed=0)
    going, over, memory, left = np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_), None, False
    begin = np.ones(n, dtype=np.bool_)
    for t in range(single.batch.horizon):
        actions, memory = policy.predict(obs, memory, begin, True)
        obs, rewards, terminated, truncated, info = envs.step(np.asarray(actions))
        outcomes = obs[going, :2]
        assert np.isfinite(outcomes).all()
        assert ((outcomes >= low) & (outcomes <= high)).all()
        assert (np.abs(rewards[going]) <= np.abs(w) @ steepest + 1e-6).all()
        off = ((outcomes < seen.min(axis=0)) | (outcomes > seen.max(axis=0))).any(axis=1)
        np.testing.assert_array_equal(info["outside_support"][going], off)
        left |= bool(off.any())
        assert not truncated[going].any() or t == single.batch.horizon - 1, "watched to the horizon, not longer"
        # The row after an end is the next patient's first: it is not looked at.
        begin = over
        over = terminated | truncated
        going &= ~over
    assert not going.any()
    if name == "always":
        assert left, "no expert treats at every step: the flag must be seen"


@pytest.mark.parametrize("kind", MODELS)
def test_even_absurd_networks_stay_within_bounds(kind):
    """Random coefficients, some of them explosive."""
    model = random_model(kind)
    starts = episodes(*[1] * 50, seed=2).start
    low, high = model.bounds
    for outcome in ("expected", "sampled"):
        for action in (0, 1, 2, None):
            policy = ConstantPolicy(action, 3, np.random.default_rng(0))
            world = CounterfactualWorld(model, starts, 20, outcome=outcome)
            played = rollout(world, policy, 200, np.random.default_rng(0))
            outcomes = played.next_obs[played.mask]
            assert np.isfinite(outcomes).all()
            assert ((outcomes >= low) & (outcomes <= high)).all()
