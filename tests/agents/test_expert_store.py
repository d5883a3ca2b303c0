"""Experts as folders: the same decisions after a round trip, by setting and version."""

from __future__ import annotations

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import agents
from agents import SOLVERS
from agents.expert import noise_free_values
from agents.solvers import ABOUT, VERSION, Setting, load_expert, ready_expert, save_expert, train_expert
from cirl_gym import TumourParameters
from cirl_gym.worlds.tumour import draw_start

SHORT = Setting((-0.7, -0.3), 0.9, TumourParameters(horizon=4))
STARTS = draw_start(SHORT.parameters, 20, np.random.default_rng(0))


def values(policy):
    return noise_free_values(policy, SHORT.parameters, STARTS, SHORT.weights, SHORT.gamma)


@pytest.mark.parametrize("algorithm", SOLVERS)
def test_a_stored_expert_decides_as_before(tmp_path, algorithm):
    if algorithm != "successor" and not hasattr(gym.vector, "AutoresetMode"):
        pytest.skip("needs gymnasium >= 1.1")
    solved = train_expert(SHORT, algorithm, seed=3, scale=0.01)
    path = save_expert(tmp_path, SHORT, algorithm, solved, seed=3, scale=0.01)
    assert path.is_file()
    setting, policy = load_expert(tmp_path)
    assert setting == SHORT
    np.testing.assert_array_equal(values(policy), values(solved.policy))


def stored(tmp_path):
    save_expert(tmp_path, SHORT, "successor", train_expert(SHORT, scale=0.01))
    return json.loads((tmp_path / ABOUT).read_text())


def test_another_version_and_half_an_expert_are_refused(tmp_path):
    about = stored(tmp_path)
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
    first = ready_expert(SHORT, folder=tmp_path)
    again = ready_expert(SHORT, folder=tmp_path)
    np.testing.assert_array_equal(values(first), values(again))
    ready_expert(replace(SHORT, weights=(-0.3, -0.7)), folder=tmp_path, seed=1)
    assert trained == [(SHORT, "successor", 0), (replace(SHORT, weights=(-0.3, -0.7)), "successor", 1)]
    other = replace(SHORT, parameters=TumourParameters(horizon=5))
    with pytest.raises(ValueError, match="another simulator"):
        ready_expert(other, folder=tmp_path)


def test_the_packages_names_are_what_they_say():
    for name in agents.__all__:
        assert getattr(agents, name).__class__ is not None
        assert name in dir(agents)
    with pytest.raises(AttributeError, match="unheard"):
        agents.unheard  # noqa: B018
