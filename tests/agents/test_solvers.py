"""Experts by each algorithm behind one call, their learning curve, their folders, and the command that trains one."""

from __future__ import annotations

import copy
import io
import json
import pickle
import time
import zipfile
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from env_runs import new_gymnasium

import agents.drqn
from agents import SOLVERS
from agents.expert import noise_free_values
from agents.solvers import ABOUT, SIX_SETTINGS, VERSION, Setting, load_expert, ready_expert, save_expert, train_expert
from agents.successor.agent import SuccessorAgent
from cirl_gym import TumourParameters
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import draw_start
from irl.commands.cli import main

SHORT = Setting((-0.3, -0.7), 0.9, TumourParameters(horizon=6))
STARTS = draw_start(SHORT.parameters, 8, np.random.default_rng(0))


def values(policy):
    return noise_free_values(policy, SHORT.parameters, STARTS, SHORT.weights, SHORT.gamma)


def test_the_six_settings_are_the_papers():
    found = {(setting.weights, setting.gamma) for setting in SIX_SETTINGS}
    assert found == set(product(((-0.3, -0.7), (-0.7, -0.3), (-0.5, -0.5)), (0.99, 0.5)))


@new_gymnasium
@pytest.mark.parametrize(("algorithm", "scale", "allowed"), [("successor", 0.1, 0.01), ("recurrent_ppo", 0.08, 0.1)])
def test_short_episodes_are_solved(algorithm, scale, allowed):
    best = optimum(SHORT.parameters, STARTS, [(SHORT.weights, SHORT.gamma)]).values[:, 0]
    solved = train_expert(SHORT, algorithm, lambda policy: float(values(policy).mean()), scale=scale)
    short = best - values(solved.policy)
    assert (short > -1e-9).all()
    assert short.mean() < allowed
    assert solved.curve[-1].value == pytest.approx(values(solved.policy).mean())
    assert [point.steps for point in solved.curve] == sorted(point.steps for point in solved.curve)


@new_gymnasium
def test_the_time_of_looking_is_not_counted():
    solved = train_expert(SHORT, "recurrent_ppo", lambda _: time.sleep(0.2) or 0.0, scale=0.01)
    assert len(solved.curve) >= 3
    assert np.diff([point.seconds for point in solved.curve]).min() >= 0
    assert solved.curve[0].seconds < 0.15


def test_bad_settings_are_refused():
    for weights, message in (((0.0, 0.0), "both be zero"), ((-1.0, -1.0), "L1 norm")):
        with pytest.raises(ValueError, match=message):
            Setting(weights)
    with pytest.raises(ValueError, match="gamma must"):
        Setting(gamma=1.5)
    with pytest.raises(ValueError, match="algorithm must be one of"):
        train_expert(SHORT, "sarsa", lambda _: 0.0)
    with pytest.raises(ValueError, match="scale must"):
        train_expert(SHORT, SOLVERS[0], lambda _: 0.0, scale=0)


@pytest.mark.parametrize("algorithm", ["successor", *(pytest.param(name, marks=new_gymnasium) for name in SOLVERS[1:])])
def test_a_stored_or_copied_expert_decides_as_before(tmp_path, algorithm):
    solved = train_expert(SHORT, algorithm, seed=3, scale=0.01)
    path = save_expert(tmp_path, SHORT, algorithm, solved, seed=3, scale=0.01)
    assert path.is_file()
    setting, policy = load_expert(tmp_path)
    assert setting == SHORT
    for copied in (policy, copy.deepcopy(solved.policy), pickle.loads(pickle.dumps(solved.policy)), copy.copy(policy)):
        np.testing.assert_array_equal(values(copied), values(solved.policy))


@new_gymnasium
def test_a_zip_that_is_another_expert_is_refused_before_it_is_run(tmp_path):
    folders = {}
    for name, algorithm, setting in (
        ("drqn", "drqn", SHORT),
        ("ppo", "recurrent_ppo", SHORT),
        ("gamma", "drqn", replace(SHORT, gamma=0.25)),
    ):
        folders[name] = tmp_path / name
        save_expert(folders[name], setting, algorithm, train_expert(setting, algorithm, scale=0.001))
    own = (folders["drqn"] / "expert.zip").read_bytes()
    for content, message in (
        ((folders["ppo"] / "expert.zip").read_bytes(), "it has policy of 'agents.ppo', not 'agents.drqn.policy'"),
        ((folders["gamma"] / "expert.zip").read_bytes(), "it has gamma 0.25"),
        (own.replace(b"policy_class", b"policy_glass"), "expert.zip"),
        *((own[: int(share * len(own))], "expert.zip is not the whole expert") for share in (0, 0.3, 0.9, 0.999)),
        (b"", "expert.zip is not the whole expert"),
    ):
        (folders["drqn"] / "expert.zip").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            load_expert(folders["drqn"])
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    (folders["drqn"] / "expert.zip").write_bytes(empty.getvalue())
    with pytest.raises(ValueError, match=r"expert\.zip is not the whole expert|lacks"):
        load_expert(folders["drqn"])
    (folders["drqn"] / "expert.zip").unlink()
    with pytest.raises(ValueError, match=r"no whole expert: there is no expert\.zip"):
        load_expert(folders["drqn"])


def test_another_version_and_half_an_expert_are_refused(tmp_path):
    save_expert(tmp_path, SHORT, "successor", train_expert(SHORT, scale=0.01))
    about = json.loads((tmp_path / ABOUT).read_text())
    for change, message in (
        ({"version": VERSION + 1}, "version"),
        ({"algorithm": "sarsa"}, "sarsa"),
        ({"weights": [0, 0]}, "both be zero"),
        ({"parameters": {"unheard": 1}}, "unheard"),
    ):
        (tmp_path / ABOUT).write_text(json.dumps(about | change))
        with pytest.raises(ValueError, match=message):
            load_expert(tmp_path)
    (tmp_path / ABOUT).unlink()
    with pytest.raises(ValueError, match="no whole expert"):
        load_expert(tmp_path)


def test_a_ready_expert_is_trained_once(tmp_path, monkeypatch):
    trained = []

    def train(setting, algorithm, seed):
        trained.append((setting, algorithm, seed))
        return train_expert(setting, algorithm, seed=seed, scale=0.01)

    monkeypatch.setattr("agents.solvers.train_expert", train)
    first, again = ready_expert(SHORT, folder=tmp_path), ready_expert(SHORT, folder=tmp_path)
    np.testing.assert_array_equal(values(first), values(again))
    ready_expert(replace(SHORT, weights=(-0.7, -0.3)), folder=tmp_path, seed=1)
    assert trained == [(SHORT, "successor", 0), (replace(SHORT, weights=(-0.7, -0.3)), "successor", 1)]
    with pytest.raises(ValueError, match="another simulator"):
        ready_expert(replace(SHORT, parameters=TumourParameters(horizon=5)), folder=tmp_path)


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


@pytest.mark.parametrize("package", [agents, agents.drqn])
def test_what_packages_export_is_there(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="unheard"):
        package.unheard  # noqa: B018
