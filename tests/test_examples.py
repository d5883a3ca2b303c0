"""The scripts for other libraries run as they are, each where its library is installed, with little to do.

What they are asked to imitate is "always treat", which can be learnt in seconds and recognised: who has learnt it
earns, on the same patients under the same noise, what the script prints for "always treat".
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from agents.policies.policy import ConstantPolicy
from cirl_gym import TumourWorld, rollout
from cirl_gym.interop import shown_observations
from cirl_gym.wrappers.history import HistoryObservation

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BLIND = ["never treat", "always treat", "random"]


def needs(*libraries: str) -> pytest.MarkDecorator:
    """Skips where a library is not installed. It is not imported here: some warn when they are."""
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture
def comparison(monkeypatch):
    """examples/comparison.py as a module."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("comparison")
    for name in ("comparison", "baseline_returns"):
        del sys.modules[name]


@pytest.fixture(scope="module")
def treated(tmp_path_factory) -> Path:
    """A file with 60 episodes of a policy that always treats."""
    path = tmp_path_factory.mktemp("demonstrations") / "batch.npz"
    rng = np.random.default_rng(0)
    rollout(TumourWorld(), ConstantPolicy(1, 2, rng), 60, rng).save(path)
    return path


def run(folder: Path, name: str, *options: object) -> tuple[str, dict[str, float]]:
    """What an example prints in a folder of its own, and the mean returns at its end."""
    command = [sys.executable, str(EXAMPLES / name), *(str(option) for option in options)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("mean return over 40 patients") == 1
    end = done.stdout.partition("mean return over 40 patients")[2]
    rows = re.findall(r"^(.+?) +(-\d+\.\d{3})(?: ± \d\.\d{3})?$", end, flags=re.MULTILINE)
    values = {row: float(value) for row, value in rows}
    assert set(BLIND) < set(values)
    # Side effects or tumour cannot cost more than their whole weight in each of 20 steps.
    assert all(-20 < value < 0 for value in values.values())
    assert values["never treat"] < values["random"]
    return done.stdout, values


def test_last_five_are_the_same_for_batch_environment_and_policy(comparison):
    rng = np.random.default_rng(3)
    env = HistoryObservation(gymnasium.make("cirl_gym:CIRLTumour-v0"), length=comparison.FRAMES)
    plain = gymnasium.make("cirl_gym:CIRLTumour-v0")
    batch = rollout(TumourWorld(), ConstantPolicy(None, 2, rng), 3, rng)
    seen = shown_observations(batch)
    of_batch = comparison.histories(seen)
    assert of_batch.shape == (3, batch.horizon + 1, 25)
    rows = of_batch.reshape(3, batch.horizon + 1, 5, 5)
    np.testing.assert_array_equal(rows[:, 6, :, :4], seen[:, 2:7])
    np.testing.assert_array_equal(rows[:, 1, :, 4], [[0, 0, 0, 1, 1]] * 3)

    shown, memory = [], None
    policy = comparison.Feedforward(lambda recent: shown.append(recent) or np.zeros(3))
    for step in range(batch.horizon + 1):
        _, memory = policy.predict(seen[:, step], memory)
    np.testing.assert_array_equal(np.stack(shown, axis=1), of_batch)

    for seed in range(2):  # a second episode has forgotten the first
        course, last_five = [plain.reset(seed=seed)[0]], [env.reset(seed=seed)[0]]
        for action in (0, 1, 1, 0, 0, 1, 0):
            course.append(plain.step(action)[0])
            last_five.append(env.step(action)[0])
        np.testing.assert_array_equal(last_five, comparison.histories(np.stack(course)[None])[0])
        assert all(env.observation_space.contains(observation) for observation in last_five)


@needs("imitation", "seals")
@pytest.mark.slow
def test_imitation_baselines(tmp_path, treated):
    _, values = run(tmp_path, "imitation_baselines.py", "--steps", 8000, "--episodes", 40, "--batch", treated)
    assert list(values)[:3] == ["BC", "GAIL", "AIRL"]
    assert values["BC"] == values["always treat"]
    assert values["GAIL"] > values["never treat"]
    assert values["AIRL"] > values["never treat"]


@needs("d3rlpy")
@pytest.mark.slow
def test_d3rlpy_offline(tmp_path, treated):
    out, values = run(tmp_path, "d3rlpy_offline.py", "--steps", 200, "--episodes", 40, "--batch", treated)
    assert re.search(r"^40 episodes, \d+ transitions$", out, flags=re.MULTILINE)
    assert values["d3rlpy CQL"] == values["always treat"]


@needs("minari", "h5py", "PIL")
def test_minari_dataset(tmp_path, treated):
    options = ("--steps", 100, "--episodes", 40, "--batch", treated, "--folder", tmp_path / "sets")
    out, values = run(tmp_path, "minari_dataset.py", *options)
    assert "tumour-expert-v0: 40 episodes" in out
    assert "read back as a batch, equal: True" in out
    assert (tmp_path / "sets" / "cirl" / "tumour-expert-v0" / "data" / "main_data.hdf5").exists()
    assert values["cloning"] == values["always treat"]


@needs("torchrl")
@pytest.mark.slow
def test_torchrl_collector(tmp_path):
    out, values = run(tmp_path, "torchrl_collector.py", "--steps", 12_800, "--episodes", 40)
    assert "batch 0: mean return of" in out
    assert values["TorchRL PPO"] > values["never treat"]


@needs("rl_zoo3")
@pytest.mark.slow
def test_rl_zoo(tmp_path):
    out, values = run(tmp_path, "rl_zoo.py", "--steps", 6000, "--episodes", 40, "--folder", tmp_path / "zoo")
    assert "Stacking 5 frames" in out
    assert (tmp_path / "zoo" / "ppo" / "CIRLTumour-v0_1" / "CIRLTumour-v0.zip").exists()
    assert values["RL Zoo PPO"] > values["never treat"]


@needs("tianshou")
@pytest.mark.slow
def test_tianshou_gail(tmp_path, treated):
    options = ("--steps", 4096, "--episodes", 40, "--batch", treated)
    _, values = run(tmp_path, "tianshou_gail.py", *options)
    assert values["tianshou GAIL"] > values["never treat"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_recipes_begin_with_torch_and_name_versions(path):
    """tests/compat/examples.sh runs the pip lines of a head as they stand."""
    head = path.read_text(encoding="utf-8").split('"""')[1]
    for recipe in re.findall(r"(?:^    pip install .+\n)+", head, flags=re.MULTILINE):
        first, *others = re.findall(r"pip install (.+)", recipe)
        assert first == "torch==2.13.0"
        assert others[0].split()[0] == "cirl-gym"
        assert "==" in " ".join(others)
        assert f"python examples/{path.name}" in head
