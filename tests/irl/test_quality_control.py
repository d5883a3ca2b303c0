"""Quality control within a run: it stops what fails, and changes nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sample_result import sample_result
from tiny_run import tiny_demo, tiny_fit

from irl.checks.quality import QualityConfig
from irl.commands.options import SolverArguments
from irl.pipeline import Fit, Simulated, fit, simulate
from irl.report.run import promised
from irl.result.result import Quality
from irl.settings import FitConfig
from irl.stages import Stages, stages

LOOK = QualityConfig(weights=4, starts=2, limit=None)


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    with stages(9, quiet=True) as run:
        return simulate(tiny_demo(), run)


def fitted(simulated: Simulated, look: QualityConfig) -> tuple[Fit, Stages]:
    ranges, signs = simulated.expert.agent.feature_map, np.array([-1.0, -1.0])
    with stages(9, quiet=True) as run:
        config = tiny_fit(quality=look)
        return fit(simulated.train, simulated.validation, ranges, signs, config, 0, run), run


@pytest.fixture(scope="module")
def looked(simulated):
    return fitted(simulated, LOOK)


def test_a_run_says_how_far_plans_are_kept(looked):
    found, run = looked
    assert found.quality.weights == 4
    assert found.quality.limit is None
    assert found.quality.sampled >= found.quality.noise > 0
    assert run.seconds["quality control"] > 0


def test_looking_elsewhere_changes_nothing_else(simulated, looked):
    found, _ = looked
    other, _ = fitted(simulated, replace(LOOK, weights=2, starts=1))
    assert other.quality != found.quality
    assert other.loop.mus.tobytes() == found.loop.mus.tobytes()
    assert other.posterior.draws.tobytes() == found.posterior.draws.tobytes()
    chances = [each.cloning.log_probabilities(simulated.test) for each in (found, other)]
    np.testing.assert_array_equal(*chances)


def test_the_same_look_finds_the_same(simulated, looked):
    assert fitted(simulated, LOOK)[0].quality == looked[0].quality


def test_a_run_that_fails_stops(simulated):
    with pytest.raises(ValueError, match=r"not solved well enough: for 4 weights.*--quality-limit"):
        fitted(simulated, replace(LOOK, limit=1e-9))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": 0}, "Quality.weights: Expected int >= 1, got 0"),
        ({"noise": -0.1}, "Quality.noise: Expected float >= 0.0, got -0.1"),
        ({"value": 0.06}, "above the limit, which stops a run"),
        ({"systematic": 0.06}, "above the limit, which stops a run"),
        ({"sampled": float("nan")}, "Quality.sampled must be finite"),
    ],
)
def test_a_record_that_breaks_its_promise_is_refused(changes, message):
    fields = {
        "weights": 20,
        "expected": 0.014,
        "sampled": 0.0096,
        "noise": 0.0023,
        "systematic": 0.0,
        "value": 0.0019,
        "promised": -0.0008,
        "search_gain": 0.0018,
        "limit": 0.05,
    }
    Quality(**fields)
    with pytest.raises(ValueError, match=message):
        Quality(**(fields | changes))


def test_the_limit_is_an_option():
    assert SolverArguments(quality_limit=0.2).put_into(FitConfig()).quality.limit == 0.2
    assert SolverArguments().put_into(FitConfig()) == FitConfig()
    with pytest.raises(ValueError, match="limit must be positive"):
        SolverArguments(quality_limit=0.0).put_into(FitConfig())


def test_in_words():
    assert promised(sample_result().quality) == (
        "at most 0.2 % of the full range apart in value, 1.0 % in one outcome, where policies can tie (20 weights)"
    )
