"""The nine steps: randomness that is split by part, any batch, no way to the simulator, and a control."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from closed_simulator import SimulatorReached, close_the_simulator
from sample_result import sample_result
from scripted import Scripted
from shown import printed_result
from small_agents import TINY
from tiny_run import fitted, icu_stays, tiny_demo, tiny_explain, tiny_fit

from agents.expert import successor_expert
from agents.ppo_settings import WorldPPOConfig
from agents.successor.agent import SuccessorConfig
from agents.successor.training import Problem, fit_successor, simulated_starts, uniform_weights
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.data.rollout import act_along
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, OutcomeModelConfig
from cirl_gym.outcome_models.oracle import OracleModel
from irl import pipeline
from irl.commands import explain as commands
from irl.evaluation import recorded_rounds
from irl.pipeline import Fit, Simulated, fit, simulate
from irl.preferences.inference import spread_weights
from irl.settings import DemoConfig, FitConfig, quick_agent
from irl.stages import stages
from irl.study import STREAMS, Study, member_streams, stream


def run_all(config: DemoConfig) -> tuple[Simulated, Fit]:
    seen = simulate(config, stages(8, quiet=True))
    return seen, fitted(seen.train, seen.validation, config.fit, config.signs, config.seed)


@pytest.fixture(scope="module")
def tiny():
    return run_all(tiny_demo())


def test_streams_depend_on_seed_and_name_alone():
    def numbers(seed):
        generators = [stream(seed, name) for name in STREAMS]
        generators += [one for number in range(3) for one in member_streams(seed, number)]
        return [tuple(rng.random(4)) for rng in generators]

    assert numbers(0) == numbers(0)
    assert len({*numbers(0), *numbers(1)}) == 2 * (len(STREAMS) + 6)
    # Seeds keep their numbers: a stream is the child of a part's sequence at its place.
    children = [np.random.default_rng(child) for child in np.random.SeedSequence([7, *b"fit"]).spawn(5)]
    names = ("outcome model", "candidate policies", "max-margin loop", "weights", "behaviour cloning")
    for name, child in zip(names, children, strict=True):
        np.testing.assert_array_equal(stream(7, name).random(4), child.random(4))
    untouched = stream(0, "weights").random(4)
    stream(0, "max-margin loop").random(1000)
    np.testing.assert_array_equal(stream(0, "weights").random(4), untouched)


def test_the_three_batches_are_all_episodes_once_whatever_is_fitted(tiny):
    simulated, _ = tiny
    batches = (simulated.train, simulated.validation, simulated.test)
    assert [len(batch) for batch in batches] == [72, 8, 20]
    names = [name for batch in batches for name in batch.ids]
    assert sorted(names, key=int) == [str(i) for i in range(100)]
    assert simulated.test.ids == tuple(str(i) for i in range(80, 100))
    configs = (tiny_demo(fit=tiny_fit(rounds=1, starts=5)), tiny_demo(seed=1))
    again, other = (simulate(config, stages(8, quiet=True)) for config in configs)
    assert again.train == simulated.train
    assert again.test == simulated.test
    assert other.train != simulated.train


def test_a_fit_is_consistent_in_itself(tiny):
    simulated, found = tiny
    assert np.abs(found.weights).sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(found.weights, found.posterior.mean)
    np.testing.assert_allclose(found.policy.w, found.weights, rtol=1e-12)
    assert found.pool.batch.n_steps >= 100
    assert set(found.pool.batch.ids) <= set(simulated.train.ids)
    assert len(found.pool.psi) == 3 + 2 * 2
    assert found.agent.model is found.model.model
    assert found.agent.horizon == simulated.train.horizon
    # The identified set also holds the policies of the reported weights and of spread ones against the expert.
    spread = spread_weights(np.array([-1.0, -1.0]), 3, stream(0, "identified set"))
    others = [found.agent.mu(w, simulated.train.start, 20) for w in (found.weights, *spread)]
    regrets = (np.vstack([found.loop.mus, *others]) - found.mu_expert.mean) @ found.identified.best
    assert found.identified.minimum == pytest.approx(regrets.max(), abs=1e-9)


def test_decisions_can_look_less_far_ahead_than_episodes_last(tiny):
    simulated, to_the_end = tiny
    parts = simulated.train, simulated.validation
    near = fitted(*parts, tiny_fit(horizon=2))
    assert (near.agent.horizon, near.agent.ahead) == (6, 2)
    assert near.pool.psi.shape == to_the_end.pool.psi.shape
    # The last two steps of all decisions, and none before them, are planned to the end.
    w, last = near.weights, simulated.train.mask.copy()
    last[:, :4] = False
    alike = np.isclose(near.agent.psi(parts[0], w), to_the_end.agent.psi(parts[0], w), atol=1e-5).all(axis=(2, 3))
    assert alike[last].all()
    assert not alike[:, :4][simulated.train.mask[:, :4]].any()
    # Nobody who looks two steps ahead is excluded for not looking further.
    regrets = (near.loop.mus - near.mu_expert.mean) @ w
    assert near.identified.tolerance >= regrets.max() - near.identified.minimum
    with pytest.raises(ValueError, match="the histories have up to 6 steps, the horizon is 4"):
        fitted(*parts, tiny_fit(length=4))


@pytest.mark.slow
def test_weights_of_experts_who_look_four_steps_ahead_are_recovered_by_looking_as_far():
    parameters, rng, w = TumourParameters(), np.random.default_rng(0), (-0.6, -0.4)
    model, phi = OracleModel(parameters), parameters.feature_map
    starts = simulated_starts(parameters, rng)
    world = Problem(model, phi, starts, parameters.horizon, 0.99, uniform_weights([-1, -1]), ahead=4)
    expert = fit_successor(world, quick_agent(SuccessorConfig()), rng).policy(w, kappa=50.0, seed=1)
    parts = rollout(TumourWorld(parameters), expert, 500, rng, deterministic=False).split(0.1, rng)
    config = replace(FitConfig().quick(), horizon=4, rounds=3)
    found = fit(Study(*parts, phi, np.array([-1.0, -1.0]), config, 0, model=model))
    np.testing.assert_allclose(found.posterior.median, w, atol=0.02)
    assert found.posterior.kappa_mean == pytest.approx(50, rel=0.3)
    assert (found.identified.low <= w).all()
    assert (w <= found.identified.high).all()


@pytest.mark.slow
def test_with_a_perfect_model_the_weights_are_recovered(monkeypatch):
    """Control: what is left over is the error of everything but the outcome model."""

    def perfect(kind, train, validation, config, rng, progress=None):
        return FittedOutcomeModel(OracleModel(), {}, 0.0)

    monkeypatch.setattr(pipeline, "fit_outcome_model", perfect)
    _, found = run_all(replace(DemoConfig().quick(), seed=0))
    assert isinstance(found.agent.model, OracleModel)
    np.testing.assert_allclose(found.weights, [-0.3, -0.7], atol=0.08)


# --- without the simulator -------------------------------------------------------------------------------------------


def test_the_closed_simulator_is_really_closed(monkeypatch):
    world = TumourWorld()
    state, _ = world.reset(2, np.random.default_rng(0))
    close_the_simulator(monkeypatch)
    with pytest.raises(SimulatorReached):
        world.step(state, np.zeros(2, dtype=np.int64), np.random.default_rng(0))
    with pytest.raises(SimulatorReached):
        TumourWorld()
    with pytest.raises(SimulatorReached):
        simulate(tiny_demo(), stages(8, quiet=True))


PPO = {"solver": "recurrent_ppo", "mu": "rollouts", "ppo": WorldPPOConfig(steps=48, rows=8, epochs=1, looks=1)}
MEMBERS = {"outcome": replace(OutcomeModelConfig.quick(), members=2)}


@pytest.mark.parametrize(
    "changes", [*({"model": kind} for kind in ("ar", "crn", "rmsn", "mb_h", "mb_x")), MEMBERS, PPO]
)
def test_the_whole_fit_runs_from_a_saved_batch_alone(changes, tiny, tmp_path, monkeypatch):
    for name in ("train", "validation"):
        getattr(tiny[0], name).save(tmp_path / name)
    close_the_simulator(monkeypatch)
    train, validation = (Batch.load(tmp_path / name) for name in ("train", "validation"))
    run = stages(6, quiet=True)
    found = fitted(train, validation, tiny_fit(**changes), run=run)
    assert np.abs(found.weights).sum() == pytest.approx(1.0)
    assert (found.weights <= 0).all()
    assert len(found.members) == (2 if changes is MEMBERS else 0)
    stage_names = {"outcome model", "candidate policies", "max-margin loop", "weights", "quality control"}
    assert set(run.seconds) - {"each outcome model"} == stage_names | {"behaviour cloning"}
    # The recovered policy acts without the simulator as well.
    actions, _ = found.policy.predict(np.concatenate([train.start, np.zeros((len(train), 2))], axis=1))
    assert set(actions) <= {0, 1}


# --- any batch -------------------------------------------------------------------------------------------------------


SHORT = TumourParameters(horizon=6)


def cut_to(batch: Batch, lengths) -> Batch:
    """The same episodes, watched no longer than so many actions each."""
    shorter = np.minimum(batch.lengths, lengths)
    ended = batch.terminated & (shorter == batch.lengths)
    return replace(batch, lengths=shorter, terminated=ended, truncated=~ended)


def test_lengths_are_taken_counted_measured_and_shown():
    whole = rollout(TumourWorld(), Scripted(0.45), 60, np.random.default_rng(0))
    train = cut_to(whole, 1 + np.arange(60) % 20)
    assert (train.lengths.min(), train.lengths.max()) == (1, 20)
    found = fitted(train, cut_to(whole, 20 - np.arange(60) % 20), tiny_fit())
    assert found.mu_expert.episodes == 60
    assert np.isfinite(found.weights).all()
    shown = printed_result(sample_result())
    assert "17.3 of the experts, 16.9 of the recovered policy" in " ".join(shown.split())


def test_a_third_of_the_weights_at_three_times_the_temperature_is_the_same_expert():
    found = []
    for share in (1.0, 3.0):
        config = tiny_demo(weights=(-0.3 / share, -0.7 / share), kappa=100.0 * share)
        simulated = simulate(config, stages(8, quiet=True))
        assert np.abs(simulated.expert.w).sum() == pytest.approx(1)
        assert simulated.expert.kappa == pytest.approx(100)
        found.append((simulated.train, fitted(simulated.train, simulated.validation, tiny_fit())))
    (one, first), (two, second) = found
    assert one == two
    np.testing.assert_allclose(second.weights, first.weights, rtol=1e-12)
    # What has a scale is kappa times w, and kappa is reported beside w; the loop's weights are scaled as well.
    for each in first.loop.rounds:
        assert np.abs(each.w).sum() == pytest.approx(1)
    np.testing.assert_array_equal(act_along(second.policy, one), act_along(first.agent.policy(3 * first.weights), one))


def test_a_constant_and_a_doubled_feature_are_named_by_the_whole_run(tmp_path, monkeypatch):
    close_the_simulator(monkeypatch)
    frame = icu_stays()
    frame["fever"] = frame["temperature"].map(lambda cell: str(10 * float(cell)) if cell else "")
    frame["site"] = "3"
    features = ("temperature", "fever", "wbc", "site")
    result = commands.explain(frame, tiny_explain(frame, features), tmp_path)
    assert result.returns is None
    named = result.identified_set.not_identifiable
    assert set(named) == {"temperature", "fever", "site"}
    assert named["site"].startswith("constant")
    assert named["fever"].startswith("duplicate")
    for name in named:
        assert any(sentence.startswith(f"{name} cannot be judged") for sentence in result.headline)
    # Ranges are fixed from the data, once, and stored.
    low, high = result.config["ranges"]["fever"]
    assert (low / 10, high / 10) == pytest.approx(result.config["ranges"]["temperature"])
    assert np.abs(result.weights).sum() <= 1 + 1e-9


@pytest.mark.parametrize("w", [(-0.7, -0.3), (0.0, 0.0)])
def test_data_of_any_expert_are_fitted_to_the_end(w):
    expert = successor_expert(SHORT, np.array(w), 0.99, 100.0, TINY, np.random.default_rng(0))
    world = TumourWorld(SHORT)
    train, validation = (
        rollout(world, expert.policy(seed), n, np.random.default_rng(seed), deterministic=False)
        for seed, n in ((1, 80), (2, 10))
    )
    for signs in ((-1.0, -1.0), (0.0, 0.0)):
        found = fitted(train, validation, tiny_fit(), signs)
        assert np.abs(found.weights).sum() == pytest.approx(1)
        assert found.loop.stop in ("converged", "no new policy", "stalled", "no allowed weights", "rounds")
        assert (found.posterior.low <= found.posterior.high).all()


def test_every_round_is_recorded_with_what_its_policy_does():
    train, test = (rollout(TumourWorld(SHORT), Scripted(0.5, seed), 60, np.random.default_rng(seed)) for seed in (0, 1))
    found = fitted(train, test, tiny_fit(rounds=4), (0.0, 0.0))
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
