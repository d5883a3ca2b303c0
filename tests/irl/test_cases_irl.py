"""Cases 16 to 19 and 46 to 51 of what users of imitation, inverse and offline reinforcement learning ran into.

What other files test already is not repeated here:

- 16: the geometric series of mu is in test_max_margin.py.
- 17: replays of normalised environments hold raw units: test_episode_replay.py, test_drqn.py.
- 18: pip's resolution and the oldest versions are run by tests/compat/oldest.sh.
- 19: constant, duplicated and collinear features: test_identifiability.py; scale: test_max_margin.py, test_metrics.py.
- 47: weights that are too large or of a wrong length: test_expert.py, test_cli.py; more experts: test_commands.py.
- 48: the world model ends episodes as the simulator does: test_counterfactual_env.py.
- 49: cloning is always reported beside CIRL: test_commands.py, test_findings.py.
- 50: the closed simulator, for two outcome models: test_offline.py; starts far from the expert: test_max_margin.py.
- 51: a stalled loop and a small exact world: test_max_margin.py; the training loop itself: test_training.py.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from closed_simulator import close_the_simulator
from drqn_envs import Recall, small_drqn
from env_runs import native
from gymnasium.wrappers import NormalizeObservation
from known_model import PHI, KnownModel, every_plan, plain_state
from outcome_batches import MODELS, random_model
from recurrent_networks import episodes
from sample_result import sample_result
from scripted import Scripted
from shown import printed_result
from small_agents import TINY, known_agent, known_problem, tumour_agent, tumour_batch
from small_batches import batch_of
from stable_baselines3.common.vec_env import DummyVecEnv
from tiny_run import icu_stays, tiny_demo, tiny_explain, tiny_fit
from training_losses import TRAINED, training_loss

from agents.expert import successor_expert
from agents.policies.habits import ConstantPolicy
from agents.solvers import Setting
from agents.successor.training import Problem, fit_agent, fit_successor, fixed_weights
from cirl_gym import Batch, FeatureMap, TumourParameters, TumourWorld, rollout
from cirl_gym.data.outcome_model import CounterfactualWorld, fold
from cirl_gym.data.rollout import act_along, discounted, returns
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.store import load_model, save_model
from irl.commands import explain as commands
from irl.evaluation import mean_lengths, recorded_rounds
from irl.max_margin.loop import expert_mu, phi_along
from irl.pipeline import Study, fit, simulate
from irl.settings import FitConfig
from irl.stages import stages

SHORT = TumourParameters(horizon=6)
TUMOUR = SHORT.feature_map
SIX = [(-0.3, -0.7), (-0.7, -0.3), (-1.0, 0.0), (0.0, -1.0), (0.5, -0.5), (0.0, 0.0)]


def cut_to(batch: Batch, lengths) -> Batch:
    """The same episodes, watched no longer than so many actions each."""
    shorter = np.minimum(batch.lengths, lengths)
    ended = batch.terminated & (shorter == batch.lengths)
    return replace(batch, lengths=shorter, terminated=ended, truncated=~ended)


def fitted(train: Batch, validation: Batch, signs=(-1.0, -1.0), **changes):
    with stages(7, quiet=True) as run:
        ranges = TumourParameters().feature_map
        return fit(Study(train, validation, ranges, np.array(signs), tiny_fit(**changes), 0, run))


# --- case 16: episodes of different lengths ---------------------------------------------------------------------------


def test_case_16_lengths_from_1_to_20_are_taken_and_counted():
    whole = rollout(TumourWorld(), Scripted(0.45), 60, np.random.default_rng(0))
    train = cut_to(whole, 1 + np.arange(60) % 20)
    assert (train.lengths.min(), train.lengths.max()) == (1, 20)
    found = fitted(train, cut_to(whole, 20 - np.arange(60) % 20))
    assert found.mu_expert.episodes == 60
    assert np.isfinite(found.weights).all()
    # Beside it stands the length of what the recovered policy does.
    seen, imagined = mean_lengths(found, train)
    assert seen == pytest.approx(train.lengths.mean())
    assert 1 <= imagined <= 20


def test_case_16_both_lengths_are_measured_and_shown():
    model = KnownModel(ends=False)
    found = SimpleNamespace(
        model=SimpleNamespace(model=model), agent=SimpleNamespace(horizon=4), policy=Scripted(0.5, seed=1)
    )
    assert mean_lengths(found, batch_of([0], [0, 1], [0, 1, 1], n_actions=3)) == (2.0, 4.0)
    shown = printed_result(sample_result())
    assert "17.3 of the experts, 16.9 of the recovered policy" in " ".join(shown.split())


# --- case 17: raw units -----------------------------------------------------------------------------------------------


def test_case_17_a_wrapper_that_normalises_changes_nothing_of_what_is_learnt():
    env = gym.make("cirl_gym:CIRLTumour-v0", parameters=SHORT, max_episode_steps=6)
    wrapped = NormalizeObservation(env)
    for seed in range(5):
        wrapped.reset(seed=seed)  # moves what it normalises by
    one, other = (fit_agent(source, config=TINY, seed=0) for source in (env, wrapped))
    assert one.state_mean[0] > 10, "tumour volumes are raw"
    for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
    played = rollout(TumourWorld(SHORT), other.policy([-0.3, -0.7]), 50, np.random.default_rng(0))
    assert 10 < played.start[:, 0].mean() < 50
    # The reward is the environment's own, of raw outcomes.
    obs, _ = env.reset(seed=0)
    following, reward, *_ = env.step(1)
    expected = env.unwrapped.weights @ TUMOUR(following[:2])
    assert reward == pytest.approx(expected, abs=1e-6)
    assert obs[0] > 10


@pytest.mark.parametrize("kind", ["ar", "mb_x"])
def test_case_17_scaling_belongs_to_the_model_and_happens_once(kind, tmp_path):
    whole = rollout(TumourWorld(SHORT), Scripted(0.5), 80, np.random.default_rng(0))
    splits = (whole.take(np.arange(64)), whole.take(np.arange(64, 80)))
    for name, batch in zip(("train", "validation"), splits, strict=True):
        batch.save(tmp_path / f"{name}.npz")
    again = tuple(Batch.load(tmp_path / f"{name}.npz") for name in ("train", "validation"))
    for name, given in (("one", splits), ("two", again)):
        model = fit_outcome_model(kind, *given, OutcomeModelConfig.quick(), np.random.default_rng(0)).model
        save_model(model, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    # Raw observations in, raw predictions out, before saving and after.
    loaded = load_model(tmp_path / "one")
    predicted = loaded.predict(loaded.encode(splits[1]))
    np.testing.assert_array_equal(predicted, model.predict(model.encode(splits[1])))
    errors = np.abs(predicted[:, :-1] - splits[1].obs[:, 1:, None])[splits[1].mask]
    assert np.median(errors[..., 0].min(axis=1)) < 2


# --- case 18: nothing is imported that is not needed ------------------------------------------------------------------

WITHOUT = """
import sys
for name in ("imitation", "d3rlpy", "minari", "matplotlib", "pygame", "optuna", "tensorboard", "pyarrow"):
    sys.modules[name] = None  # importing it raises ImportError
import cirl_gym, agents, irl
import agents.drqn.drqn, agents.ppo, agents.successor.training, irl.commands.cli, irl.pipeline
import cirl_gym.interop, cirl_gym.tables.read
import gymnasium as gym
for name in ("CIRLTumour-v0", "CIRLCounterfactual-v0"):
    env = gym.make(name)
    env.reset(seed=0)
    env.step(1)
"""


def test_case_18_the_core_does_without_optional_libraries():
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_case_18_other_libraries_are_no_dependency():
    core = [line.lower() for line in requires("cirl-gym") or [] if "extra ==" not in line]
    assert any(line.startswith("gymnasium") for line in core)
    assert not [line for line in core if line.startswith(("imitation", "d3rlpy", "minari", "jax"))]
    assert not [line for line in core if any(pin in line for pin in ("==", "~=", "<"))], "no pins"


# --- case 19: scale is not identifiable -------------------------------------------------------------------------------


def test_case_19_a_third_of_the_weights_at_three_times_the_temperature_is_the_same_expert():
    found = []
    for share in (1.0, 3.0):
        config = tiny_demo(weights=(-0.3 / share, -0.7 / share), kappa=100.0 * share)
        with stages(8, quiet=True) as run:
            simulated = simulate(config, run)
        assert np.abs(simulated.expert.w).sum() == pytest.approx(1)
        assert simulated.expert.kappa == pytest.approx(100)
        found.append((simulated.train, fitted(simulated.train, simulated.validation)))
    (one, first), (two, second) = found
    assert one == two
    np.testing.assert_allclose(second.weights, first.weights, rtol=1e-12)
    # What has a scale is kappa times w, and kappa is reported beside w; the loop's weights are scaled as well.
    for each in first.loop.rounds:
        assert np.abs(each.w).sum() == pytest.approx(1)
    np.testing.assert_array_equal(act_along(second.policy, one), act_along(first.agent.policy(3 * first.weights), one))


def test_case_19_a_constant_and_a_doubled_feature_are_named_by_the_whole_run(tmp_path):
    frame = icu_stays()
    frame["fever"] = frame["temperature"].map(lambda cell: str(10 * float(cell)) if cell else "")
    frame["site"] = "3"
    features = ("temperature", "fever", "wbc", "site")
    result = commands.explain(frame, tiny_explain(frame, features), tmp_path)
    named = result.identified_set.not_identifiable
    assert set(named) == {"temperature", "fever", "site"}
    assert named["site"].startswith("constant")
    assert named["fever"].startswith("duplicate")
    for name in named:
        assert any(sentence.startswith(f"{name} cannot be judged") for sentence in result.headline)
    # Ranges are fixed from the data, once, and stored.
    low, high = result.config["ranges"]["fever"]
    assert (low / 10, high / 10) == pytest.approx(result.config["ranges"]["temperature"])
    assert np.abs(result.weights).sum() == pytest.approx(1)


# --- case 46: one discount everywhere ---------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99, 1.0])
def test_case_46_data_successor_features_rollouts_and_every_plan_agree(gamma):
    w = np.array([0.6, -0.4])
    certain = KnownModel(ends=False)
    agent = known_agent(config=replace(TINY, width=27), model=certain, gamma=gamma)
    starts = known_problem().starts
    played = rollout(CounterfactualWorld(certain, starts, 4), agent.policy(w), len(starts), np.random.default_rng(0))
    plans = [
        np.concatenate([every_plan(plain_state(row), 4, gamma, first, ends=False) for first in range(3)])
        for row in certain.start(starts)
    ]
    exact = np.array([psi[(psi @ w).argmax()] for psi in plans]).mean(axis=0)
    data = expert_mu(phi_along(certain, PHI, played), played, gamma).mean
    earned = discounted(played, PHI(played.next_obs), gamma).mean(axis=0)
    for found in (data, earned, agent.mu(w, starts)):
        # The weighted sum is unique, a plan of the same value may be another.
        assert found @ w == pytest.approx(exact @ w, abs=1e-5)
    np.testing.assert_allclose(data, earned, atol=1e-5)
    np.testing.assert_allclose(agent.mu(w, starts), earned, atol=1e-5)
    # Q of that policy is w . psi, and its value what it earns.
    q = agent.q(played, w)
    np.testing.assert_allclose(q, agent.psi(played, w) @ (w / np.abs(w).sum()), atol=1e-12)
    assert q[:, 0].max(axis=1).mean() == pytest.approx(returns(played, PHI, w, gamma).mean(), abs=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_case_46_they_agree_where_episodes_end_by_chance(gamma):
    agent = known_agent(config=replace(TINY, width=27), gamma=gamma)
    starts = known_problem().starts
    starts = starts[starts[:, 0] > 0]
    world = CounterfactualWorld(agent.model, np.tile(starts, (200, 1)), 4)
    played = rollout(world, agent.policy([0.2, 0.8]), 200 * len(starts), np.random.default_rng(0))
    data = expert_mu(phi_along(agent.model, PHI, played), played, gamma)
    np.testing.assert_allclose(data.mean, agent.mu([0.2, 0.8], starts), atol=1e-2)


def test_case_46_the_sum_has_as_many_terms_as_actions():
    batch = batch_of([0] * 20, [0] * 3)
    ones = np.ones((2, 20, 1))
    assert expert_mu(ones, batch, 1.0).mean[0] == pytest.approx((20 + 3) / 2)
    assert expert_mu(ones, batch, 0.0).mean[0] == pytest.approx(1)
    assert expert_mu(ones[:1], batch.take(np.array([0])), 0.99).mean[0] == pytest.approx((1 - 0.99**20) / 0.01)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, np.nan])
def test_case_46_another_discount_is_refused_everywhere(gamma):
    batch = batch_of([0, 1])
    for use in (
        lambda: expert_mu(np.ones((1, 2, 2)), batch, gamma),
        lambda: discounted(batch, np.ones((1, 2)), gamma),
        lambda: known_problem(gamma=gamma),
        lambda: FitConfig(gamma=gamma),
        lambda: Setting(gamma=gamma),
    ):
        with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
            use()


# --- case 47: any weights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [(-0.7, -0.3), (0.0, 0.0)])
def test_case_47_data_of_any_expert_are_fitted_to_the_end(w):
    """The others of :data:`SIX` are whole commands in test_commands.py."""
    assert w in SIX
    expert = successor_expert(SHORT, np.array(w), 0.99, 100.0, TINY, np.random.default_rng(0))
    world = TumourWorld(SHORT)
    train, validation = (
        rollout(world, expert.policy(seed), n, np.random.default_rng(seed), deterministic=False)
        for seed, n in ((1, 80), (2, 10))
    )
    for signs in ((-1.0, -1.0), (0.0, 0.0)):
        found = fitted(train, validation, signs)
        assert np.abs(found.weights).sum() == pytest.approx(1)
        assert found.loop.stop in ("converged", "no new policy", "stalled", "no allowed weights", "rounds")
        assert (found.posterior.low <= found.posterior.high).all()


# --- case 48: a policy that exploits the model ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packaged():
    """The environment that ships with the package, and an agent trained in it for all signs of w."""
    env = CounterfactualEnv()
    return env, fit_agent(env, config=replace(TINY, width=1), seed=0)


def acting(packaged, name):
    _, agent = packaged
    rng = np.random.default_rng(3)
    return {
        "always": lambda: ConstantPolicy(1, 2, rng),
        "never": lambda: ConstantPolicy(0, 2, rng),
        "random": lambda: ConstantPolicy(None, 2, rng),
        "greedy": lambda: agent.policy([-0.3, -0.7]),
        "greedy against it": lambda: agent.policy([0.3, 0.7]),
    }[name]()


@pytest.mark.parametrize("outcome", ["expected", "sampled"])
@pytest.mark.parametrize("name", ["always", "never", "random", "greedy", "greedy against it"])
def test_case_48_no_policy_drives_the_world_model_out_of_its_bounds(packaged, name, outcome):
    """A tenth of the 10,000 roll-outs each."""
    sign = -1.0 if name == "greedy against it" else 1.0
    w = sign * np.array([-0.3, -0.7])
    n, (single, _) = 1000, packaged
    envs = native("CIRLCounterfactual-v0", "NextStep", n, weights=w, outcome=outcome)
    policy, phi = acting(packaged, name), single.feature_map
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
def test_case_48_even_absurd_networks_stay_within_bounds(kind):
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


# --- case 49: what an end is worth ------------------------------------------------------------------------------------


class Chain:
    """Two steps: action 0 ends the process for certain, action 1 goes on; a state is (x, y, steps so far)."""

    features = ("x", "y")
    n_actions = 2
    noise_scale = np.zeros(2)
    bounds = (np.zeros(2), np.ones(2))
    outcomes = np.array([[[0.25, 0.5], [0.5, 0.25]], [[1.0, 0.0], [0.0, 1.0]]], dtype=np.float32)
    """``[step, action, feature]``."""

    def noise(self, normals):
        return np.zeros_like(normals)

    def start(self, obs):
        return np.concatenate([obs, np.zeros((len(obs), 1))], axis=1, dtype=np.float32)

    def encode(self, batch):
        return fold(self, batch)

    def predict(self, states):
        return self.outcomes[np.minimum(states[..., 2].astype(int), 1)]

    def end_probability(self, states):
        return np.broadcast_to(np.array([1.0, 0.0], dtype=np.float32), (*states.shape[:-1], 2))

    def advance(self, states, actions, obs):
        return np.concatenate([obs, states[..., 2:] + 1], axis=-1, dtype=np.float32)


@pytest.mark.parametrize(
    ("w", "goes_on", "mu"),
    [
        ((0.6, -0.4), (1.0, 0.25), (1.0, 0.25)),  # then to (1, 0): .5 against -.05
        ((-0.4, 0.6), (0.5, 0.75), (0.5, 0.75)),  # then to (0, 1): .25 against .2
        ((0.6, 0.4), (1.0, 0.25), (1.0, 0.25)),  # always positive: it goes on, .7 against .35
        ((-0.6, -0.4), (0.5, 0.75), (0.25, 0.5)),  # always negative: it ends, -.35 against -.6
    ],
)
def test_case_49_a_chain_of_two_steps_by_hand(w, goes_on, mu):
    """To end is worth phi and nothing after it, whatever the reward's sign; to go on phi + gamma mu(h')."""
    phi = FeatureMap(("x", "y"), np.zeros(2), np.ones(2))
    starts = np.zeros((10, 2), dtype=np.float32)
    problem = Problem(Chain(), phi, starts, 2, 0.5, fixed_weights(np.array(w)))
    agent = fit_successor(problem, replace(TINY, gradient_steps=300), np.random.default_rng(0))
    first = Chain().start(starts[:1])
    expected = [(0.25, 0.5), goes_on]
    np.testing.assert_allclose(agent.planned_psi(0, first, np.array([w]))[0], expected, atol=1e-6)
    np.testing.assert_allclose(agent.network_psi(0, first, np.array([w]))[0], expected, atol=0.05)
    np.testing.assert_allclose(agent.mu(w, starts), mu, atol=1e-6)


def test_case_49_mu_never_exceeds_what_a_whole_episode_can_hold():
    agent = tumour_agent(TumourParameters())
    batch = tumour_batch(TumourParameters(), 0.0, 0.5, 1.0)
    phi = phi_along(agent.model, agent.feature_map, batch)
    assert np.abs(phi).max() < 1.5
    largest = np.abs(agent.feature_map(np.stack(agent.model.bounds))).max(axis=0)
    limit = largest * (1 - 0.99**20) / 0.01
    for w in ([-0.3, -0.7], [-1.0, 0.0], [0.0, -1.0]):
        assert (np.abs(agent.psi(batch, w)) <= limit + 1e-6).all()
        states = agent.model.encode(batch)[:, 0]
        network = agent.network_psi(0, states, np.tile(w, (len(states), 1)))
        assert (np.abs(network) <= 1.05 * limit).all()


# --- case 50: from the data set alone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"model": "rmsn"}, {"model": "mb_h"}, {"model": "mb_x"}, {"members": 2}])
def test_case_50_every_outcome_model_is_fitted_and_solved_without_a_simulator(changes, monkeypatch):
    whole = rollout(TumourWorld(SHORT), Scripted(0.5), 90, np.random.default_rng(0))
    close_the_simulator(monkeypatch)
    if "members" in changes:
        changes = {"outcome": replace(OutcomeModelConfig.quick(), **changes)}
    found = fitted(whole.take(np.arange(80)), whole.take(np.arange(80, 90)), **changes)
    assert np.abs(found.weights).sum() == pytest.approx(1)
    assert len(found.members) == (2 if "outcome" in changes else 0)


def test_case_50_a_table_is_explained_without_a_simulator(tmp_path, monkeypatch):
    close_the_simulator(monkeypatch)
    frame = icu_stays()
    result = commands.explain(frame, tiny_explain(frame, ("temperature", "wbc")), tmp_path)
    assert result.returns is None


# --- case 51: something to compare with -------------------------------------------------------------------------------


def test_case_51_every_round_is_recorded_with_what_its_policy_does():
    train, test = (rollout(TumourWorld(SHORT), Scripted(0.5, seed), 60, np.random.default_rng(seed)) for seed in (0, 1))
    found = fitted(train, test, (0.0, 0.0), rounds=4)
    rounds = recorded_rounds(found.loop, test)
    assert [entry.k for entry in rounds] == list(range(len(found.loop.rounds)))
    assert len(rounds) > 1
    watched = test.take(np.arange(25))
    chosen = [act_along(policy, watched) for policy in found.loop.policies]
    for entry, made, actions in zip(rounds, found.loop.rounds, chosen, strict=True):
        np.testing.assert_array_equal(entry.w, made.w)
        np.testing.assert_array_equal(entry.mu, made.mu)
        assert (entry.margin, entry.seconds) == (made.margin, made.seconds)
        met = ((actions == watched.actions) & watched.mask).sum(axis=1) / watched.lengths
        assert entry.agreement == pytest.approx(met.mean())
    assert rounds[0].changed is None
    for entry, one, two in zip(rounds[1:], chosen, chosen[1:], strict=False):
        assert entry.changed == pytest.approx((one != two)[watched.mask].mean())
    margins = [entry.margin for entry in rounds]
    assert margins == sorted(margins, reverse=True)


def values_of(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same_values(network, before):
    return [name for name, value in network.named_parameters() if torch.equal(value, before[name])]


@pytest.mark.parametrize("kind", TRAINED)
def test_case_51_every_parameter_moves_in_one_step(kind, monkeypatch):
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
def test_case_51_a_model_that_predicts_stays_as_it_is(kind):
    model, batch = random_model(kind), episodes(9, 1, 20, 4)
    network = model.correction.network
    assert not network.training
    before = values_of(network)
    one, two = (model.predict(model.encode(batch)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert same_values(network, before) == list(dict(network.named_parameters()))


def test_case_51_a_recurrent_q_learner_changes_by_training_alone():
    model = small_drqn(DummyVecEnv([Recall]), train_freq=1, gradient_steps=1)
    before = values_of(model.policy)
    model.learn(60)
    trained = values_of(model.policy)
    moved = [name for name, value in trained.items() if not torch.equal(value, before[name])]
    assert {f"q_net.{name}" for name, _ in model.policy.q_net.named_parameters()} <= set(moved)
    model.predict(model.env.reset(), deterministic=True, episode_start=np.ones(1, dtype=np.bool_))
    assert all(torch.equal(value, trained[name]) for name, value in model.policy.state_dict().items())
