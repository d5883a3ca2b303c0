"""Experts by each algorithm behind one call, their learning curve, and the command that trains one."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from agents import SOLVERS
from agents.expert import noise_free_values
from agents.solvers import SIX_SETTINGS, Setting, train_expert
from agents.successor.agent import SuccessorAgent
from cirl_gym import TumourParameters
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import draw_start
from irl.commands.cli import main

SHORT = Setting((-0.3, -0.7), 0.9, TumourParameters(horizon=6))
new_gymnasium = pytest.mark.skipif(not hasattr(gym.vector, "AutoresetMode"), reason="needs gymnasium >= 1.1")


def values_of(setting, n=8):
    starts = draw_start(setting.parameters, n, np.random.default_rng(0))
    best = optimum(setting.parameters, starts, [(setting.weights, setting.gamma)]).values[:, 0]
    return (
        starts,
        best,
        lambda policy: noise_free_values(policy, setting.parameters, starts, setting.weights, setting.gamma),
    )


def test_the_six_settings_are_the_papers():
    assert {(setting.weights, setting.gamma) for setting in SIX_SETTINGS} == {
        (w, gamma) for w in ((-0.3, -0.7), (-0.7, -0.3), (-0.5, -0.5)) for gamma in (0.99, 0.5)
    }


@new_gymnasium
@pytest.mark.parametrize(("algorithm", "scale", "allowed"), [("successor", 0.1, 0.01), ("recurrent_ppo", 0.08, 0.1)])
def test_short_episodes_are_solved(algorithm, scale, allowed):
    _, best, values = values_of(SHORT)
    solved = train_expert(SHORT, algorithm, lambda policy: float(values(policy).mean()), scale=scale)
    short = best - values(solved.policy)
    assert (short > -1e-9).all()
    assert short.mean() < allowed
    assert solved.curve[-1].value == pytest.approx(values(solved.policy).mean())
    assert [point.steps for point in solved.curve] == sorted(point.steps for point in solved.curve)


@new_gymnasium
def test_the_time_of_looking_is_not_counted():
    def slow(_policy):
        import time

        time.sleep(0.2)
        return 0.0

    solved = train_expert(SHORT, "recurrent_ppo", slow, scale=0.01)
    assert len(solved.curve) >= 3
    assert np.diff([point.seconds for point in solved.curve]).min() >= 0
    assert solved.curve[0].seconds < 0.15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": (0.0, 0.0)}, "both be zero"),
        ({"weights": (-1.0, -1.0)}, "L1 norm"),
        ({"gamma": 1.5}, "gamma must"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Setting(**arguments)
    with pytest.raises(ValueError, match="algorithm must be one of"):
        train_expert(SHORT, "sarsa", lambda _: 0.0)
    with pytest.raises(ValueError, match="scale must"):
        train_expert(SHORT, SOLVERS[0], lambda _: 0.0, scale=0)


def test_the_command_prints_the_expert_beside_the_optimum(tmp_path, capsys):
    arguments = "expert --weights -0.7 -0.3 --gamma 0.5 --scale 0.02 --patients 2 --out"
    assert main([*arguments.split(), str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for word in ("Learning curve", "never treat", "always treat", "random", "successor", "optimal", "expert.npz"):
        assert word in printed
    agent = SuccessorAgent.load(tmp_path / "expert.npz", OracleModel())
    assert (agent.horizon, agent.gamma) == (20, 0.5)
    assert main(["expert", "--patients", "1", "--out", str(tmp_path)]) == 2
    assert "patients must be at least 2" in capsys.readouterr().err
