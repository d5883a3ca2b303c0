"""What a run is asked to do: every number out of its range is refused before any work is done."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest

from cirl_gym.tables.columns import TableColumns
from irl.settings import DemoConfig, ExplainConfig, FitConfig

COLUMNS = TableColumns("id", "t", "action", ("x", "y"))
THREE = replace(COLUMNS, features=("x", "y", "z"), static=("z",))


FIT_FAULTS = (
    ({"gamma": -0.01}, "gamma must lie between 0 and 1, got -0.01"),
    ({"gamma": 1.01}, "gamma must lie between 0 and 1, got 1.01"),
    ({"gamma": math.nan}, "gamma must lie between 0 and 1, got nan"),
    ({"horizon": 0}, "horizon must be at least 1, got 0"),
    ({"length": 0}, "length must be at least 1, got 0"),
    ({"horizon": 3, "mu": "rollouts"}, "horizon: successor with mu='rollouts' always looks ahead to the end"),
    ({"rounds": 0}, "rounds and starts must be at least 1"),
    ({"starts": 0}, "rounds and starts must be at least 1"),
    ({"tolerance": -1e-3}, "the tolerance not negative"),
    ({"habit": ("previous", "ward", "ward")}, "habit: a name is there twice: previous, ward, ward"),
)
DEMO_FAULTS = (
    ({"episodes": 19}, "episodes must be at least 20 and test_episodes 2, got 19"),
    ({"test_episodes": 1}, "episodes must be at least 20 and test_episodes 2, got 10000, 1"),
    ({"seed": -1}, "seed must not be negative, got -1"),
    ({"weights": (0.0, 0.0)}, r"weights must have an L1 norm above 0 and at most 1, got \(0.0, 0.0\)"),
    ({"weights": (-0.6, -0.5)}, "weights must have an L1 norm above 0 and at most 1"),
    ({"weights": (math.nan, -0.5)}, "weights must have an L1 norm above 0 and at most 1"),
    ({"weights": (-math.inf, 0.0)}, "weights must have an L1 norm above 0 and at most 1"),
    ({"kappa": -1.0}, "kappa must be a finite number, not negative, got -1.0"),
    ({"kappa": math.inf}, "kappa must be a finite number, not negative, got inf"),
    ({"kappa": math.nan}, "kappa must be a finite number, not negative, got nan"),
)
EXPLAIN_FAULTS = (
    ({"columns": replace(COLUMNS, features=("x",))}, "a trade-off needs two outcomes, got x; .*--features"),
    ({"seed": -1}, "seed must not be negative, got -1"),
    ({"signs": {"z": -1}}, "signs: 'z' must be an outcome and its sign -1 or \\+1, got -1"),
    ({"outcomes": ("x",)}, "a trade-off needs two outcomes, got x; .*--outcomes"),
    ({"outcomes": ("x", "x")}, "--outcomes: a name is there twice: x, x"),
    ({"outcomes": ("x", "z")}, "--outcomes: 'z' is not a feature; the features are x, y"),
    ({"columns": replace(COLUMNS, static=("y",))}, "a trade-off needs two outcomes, got x"),
    ({"columns": THREE, "outcomes": ("x", "z")}, "--outcomes: 'z' is static; no action changes it"),
    ({"columns": THREE, "signs": {"z": -1}}, "signs: 'z' must be an outcome"),
    ({"signs": {"x": 0}}, "signs: 'x' must be an outcome and its sign -1 or \\+1, got 0"),
    ({"signs": {"x": -2}}, "signs: 'x' must be an outcome and its sign -1 or \\+1, got -2"),
)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        *((FitConfig, *fault) for fault in FIT_FAULTS),
        *((DemoConfig, *fault) for fault in DEMO_FAULTS),
        *((partial(ExplainConfig, columns=COLUMNS, fit=FitConfig()), *fault) for fault in EXPLAIN_FAULTS),
    ],
)
def test_what_is_out_of_range_is_refused(config, changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_defaults_are_the_papers_and_a_chosen_length_stays():
    config = DemoConfig()
    assert (config.weights, config.kappa, config.episodes, config.seed) == ((-0.3, -0.7), 100.0, 10_000, 0)
    assert (config.fit.gamma, config.fit.rounds, config.fit.tolerance) == (0.99, 50, 1e-3)
    assert FitConfig().whole(12).length == 12
    assert FitConfig(length=7).whole(12).length == 7
    assert FitConfig(horizon=3).whole(12).horizon == 3


@pytest.mark.parametrize(
    ("weights", "signs"),
    [((-0.3, -0.7), (-1, -1)), ((-1, 0), (-1, -1)), ((0, -1), (-1, -1)), ((0.5, -0.5), (0, 0)), ((1, 0), (0, 0))],
)
def test_a_demo_says_that_lower_is_better_only_where_it_is(weights, signs):
    assert DemoConfig(weights=weights).signs == signs


def test_quick_does_less_and_changes_no_question():
    full, quick = DemoConfig(weights=(-0.5, -0.5), kappa=50, seed=3), DemoConfig((-0.5, -0.5), 50, seed=3).quick()
    assert quick == replace(
        full, episodes=quick.episodes, test_episodes=quick.test_episodes, expert=quick.expert, fit=quick.fit
    )
    assert quick.fit.gamma == full.fit.gamma
    assert quick.fit.horizon == full.fit.horizon
    for less, more in [
        (quick.episodes, full.episodes),
        (quick.fit.rounds, full.fit.rounds),
        (quick.fit.starts, full.fit.starts),
        (quick.fit.agent.episodes, full.fit.agent.episodes),
        (quick.fit.posterior.decisions, full.fit.posterior.decisions),
        (quick.expert.gradient_steps, full.expert.gradient_steps),
    ]:
        assert less < more
    assert DemoConfig(episodes=100).quick().episodes == 100
