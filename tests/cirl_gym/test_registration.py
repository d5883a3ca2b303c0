"""How Gymnasium finds the environments, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import pytest
from env_runs import IDS

import cirl_gym


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_import_registers_and_loads_nothing_heavy_and_prints_nothing():
    heavy = ("torch", "pandas", "stable_baselines3", "sb3_contrib", "matplotlib")
    code = f"""
import sys, cirl_gym
loaded = [name for name in {heavy!r} if name in sys.modules]
assert not loaded, loaded
import gymnasium
gymnasium.make("CIRLTumour-v0").reset(seed=0)
loaded = [name for name in {heavy!r} if name in sys.modules]
assert not loaded, loaded
"""
    assert run(code) == ""


def test_registering_again_changes_and_warns_nothing():
    before = dict(gym.registry)
    cirl_gym.register_envs()
    assert dict(gym.registry) == before
    run("import importlib, cirl_gym; importlib.reload(cirl_gym); cirl_gym.register_envs()")


def test_entry_points_and_public_names_and_that_a_made_environment_can_be_made_again_from_its_spec():
    assert all(hasattr(cirl_gym, name) for name in cirl_gym.__all__)
    for env_id in IDS:
        assert isinstance(gym.spec(env_id).entry_point, str)
        assert isinstance(gym.spec(env_id).vector_entry_point, str | None)
    env = gym.make("CIRLTumour-v0", weights=(0, -1), max_episode_steps=7)
    again = gym.make(env.spec)
    assert again.unwrapped.weights.tolist() == [0, -1]
    assert again.spec.max_episode_steps == 7


SYNC, WRAP = "use gymnasium.make_vec(..., vectorization_mode='sync')", "wrap each single environment in "


@pytest.mark.parametrize(
    ("module", "name", "made", "instead"),
    [
        ("envs.tumour", "TumourVectorEnv", "3", SYNC),
        ("envs.counterfactual", "CounterfactualVectorEnv", "", SYNC),
        ("wrappers.history", "HistoryVectorObservation", "None", WRAP + "HistoryObservation"),
        ("wrappers.learned_reward", "LearnedVectorReward", "None, 'run'", WRAP + "LearnedReward"),
    ],
)
def test_an_old_gymnasium_has_the_single_form_and_one_clear_error_for_the_other(module, name, made, instead):
    code = f"""
import gymnasium, gymnasium.vector
if hasattr(gymnasium.vector, "AutoresetMode"):
    del gymnasium.vector.AutoresetMode
import cirl_gym
from cirl_gym.wrappers.history import HistoryObservation
from cirl_gym.{module} import {name}
assert HistoryObservation(gymnasium.make("CIRLTumour-v0")).reset(seed=0)[0].shape == (105,)
try:
    {name}({made})
except ImportError as error:
    said = f"{name} needs gymnasium >= 1.1, this is {{gymnasium.__version__}}; {instead} instead"
    assert str(error) == said, error
else:
    raise AssertionError("no error")
"""
    run(code)
