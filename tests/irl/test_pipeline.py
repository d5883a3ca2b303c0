"""The nine steps: randomness that is split by part, the world they share, and a control with a perfect model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_run import tiny_demo, tiny_fit

from cirl_gym.outcome_models.fitting import FittedOutcomeModel
from cirl_gym.outcome_models.oracle import OracleModel
from irl import pipeline
from irl.pipeline import STREAMS, Fit, Simulated, Study, fit, member_streams, simulate, stream
from irl.settings import DemoConfig
from irl.stages import stages


def run_all(config: DemoConfig) -> tuple[Simulated, Fit]:
    with stages(8, quiet=True) as run:
        simulated = simulate(config, run)
        ranges, signs = simulated.expert.agent.feature_map, np.array(config.signs, dtype=float)
        return simulated, fit(Study(simulated.train, simulated.validation, ranges, signs, config.fit, config.seed, run))


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


def test_the_numbers_of_a_stream_are_those_of_every_version():
    """Seeds keep their numbers: a stream is the child of a part's sequence at its place."""
    children = [np.random.default_rng(child) for child in np.random.SeedSequence([7, *b"fit"]).spawn(5)]
    names = ("outcome model", "candidate policies", "max-margin loop", "weights", "behaviour cloning")
    for name, child in zip(names, children, strict=True):
        np.testing.assert_array_equal(stream(7, name).random(4), child.random(4))


def test_what_one_stream_draws_changes_nothing_of_another():
    untouched = stream(0, "weights").random(4)
    stream(0, "max-margin loop").random(1000)
    np.testing.assert_array_equal(stream(0, "weights").random(4), untouched)


def test_the_three_batches_are_all_episodes_once(tiny):
    simulated, _ = tiny
    batches = (simulated.train, simulated.validation, simulated.test)
    assert [len(batch) for batch in batches] == [72, 8, 20]
    names = [name for batch in batches for name in batch.ids]
    assert sorted(names, key=int) == [str(i) for i in range(100)]
    assert simulated.test.ids == tuple(str(i) for i in range(80, 100))


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
    # The identified set also holds the policy of the reported weights against the expert.
    own = found.agent.mu(found.weights, simulated.train.start, 20)
    regrets = (np.vstack([found.loop.mus, own]) - found.mu_expert.mean) @ found.identified.best
    assert found.identified.minimum == pytest.approx(regrets.max(), abs=1e-9)


def test_the_same_seed_gives_the_same_batch_whatever_is_fitted(tiny):
    simulated, _ = tiny
    with stages(8, quiet=True) as run:
        again = simulate(tiny_demo(fit=tiny_fit(rounds=1, starts=5)), run)
        other = simulate(tiny_demo(seed=1), run)
    assert again.train == simulated.train
    assert again.test == simulated.test
    assert other.train != simulated.train


def test_a_horizon_shorter_than_the_histories_is_one_clear_error(tiny):
    simulated, found = tiny
    with pytest.raises(ValueError, match="the histories have up to 6 steps, the horizon is 4"):
        fit(
            Study(
                simulated.train,
                simulated.validation,
                found.feature_map,
                np.array([-1.0, -1.0]),
                tiny_fit(horizon=4),
                0,
                stages(6, quiet=True),
            )
        )


@pytest.mark.slow
def test_with_a_perfect_model_the_weights_are_recovered(monkeypatch):
    """Control: what is left over is the error of everything but the outcome model."""

    def perfect(kind, train, validation, config, rng, progress=None):
        return FittedOutcomeModel(OracleModel(), {}, 0.0)

    monkeypatch.setattr(pipeline, "fit_outcome_model", perfect)
    _, found = run_all(replace(DemoConfig().quick(), seed=0))
    assert isinstance(found.agent.model, OracleModel)
    np.testing.assert_allclose(found.weights, [-0.3, -0.7], atol=0.08)
