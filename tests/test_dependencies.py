"""The core does without optional libraries, and pins none."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

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


def test_the_core_does_without_optional_libraries():
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_other_libraries_are_no_dependency():
    needed = [line.lower() for line in requires("cirl-gym") or [] if "extra ==" not in line]
    core = [line.partition(";")[0] for line in needed]  # what follows says for which version of Python
    assert any(line.startswith("gymnasium") for line in core)
    assert not [line for line in core if line.startswith(("imitation", "d3rlpy", "minari", "jax"))]
    assert not [line for line in core if any(pin in line for pin in ("==", "~=", "<"))], "no pins"
