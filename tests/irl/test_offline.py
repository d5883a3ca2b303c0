"""The offline guarantee: from a saved batch on, nothing reaches the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from closed_simulator import SimulatorReached, close_the_simulator
from tiny_run import tiny_demo, tiny_fit

from agents.ppo_settings import WorldPPOConfig
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.worlds.tumour import TumourWorld
from irl.pipeline import Study, fit, simulate
from irl.stages import stages


@pytest.fixture
def saved(tmp_path):
    """Files with the two batches that an expert left, and the ranges of the features."""
    with stages(8, quiet=True) as run:
        simulated = simulate(tiny_demo(), run)
    simulated.train.save(tmp_path / "train.npz")
    simulated.validation.save(tmp_path / "validation.npz")
    return tmp_path, simulated.expert.agent.feature_map


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


@pytest.mark.parametrize("changes", [{"model": "ar"}, {"model": "crn"}, PPO], ids=["ar", "crn", "recurrent ppo"])
def test_the_whole_fit_runs_from_a_saved_batch_alone(changes, saved, monkeypatch):
    folder, ranges = saved
    close_the_simulator(monkeypatch)
    train, validation = (Batch.load(folder / f"{name}.npz") for name in ("train", "validation"))
    feature_map = FeatureMap(ranges.features, ranges.low, ranges.high)
    with stages(6, quiet=True) as run:
        found = fit(Study(train, validation, feature_map, np.array([-1.0, -1.0]), tiny_fit(**changes), 0, run))
    assert np.abs(found.weights).sum() == pytest.approx(1.0)
    assert (found.weights <= 0).all()
    assert set(run.seconds) == {
        "outcome model",
        "candidate policies",
        "max-margin loop",
        "weights",
        "quality control",
        "behaviour cloning",
    }
    # The recovered policy acts without the simulator as well.
    actions, _ = found.policy.predict(np.concatenate([train.start, np.zeros((len(train), 2))], axis=1))
    assert set(actions) <= {0, 1}
