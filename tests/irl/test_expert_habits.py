"""Simulated experts who have habits: asked for, simulated, stored, and rebuilt from the folder of a run."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from tiny_run import refused, tiny_demo

from cirl_gym.files import StoredParts
from irl.commands.cli import main
from irl.commands.explain import _plain
from irl.pipeline import simulate
from irl.run import Run
from irl.settings import DemoConfig
from irl.stages import stages
from irl.stored_stages import stored_expert

HABITUAL = tiny_demo(kappa=20.0, expert_habit=(4.0, -1.0))


@pytest.fixture(scope="module")
def simulated():
    return simulate(HABITUAL, stages(9, quiet=True))


def test_experts_with_habits_repeat_what_they_did(simulated):
    plain = simulate(replace(HABITUAL, expert_habit=None), stages(9, quiet=True))

    def repeated(batch):
        return (batch.actions[:, 1:] == batch.actions[:, :-1])[batch.mask[:, 1:]].mean()

    assert repeated(simulated.train) > repeated(plain.train) + 0.1
    assert plain.expert.habit is None
    # They plan as if they had none: what is solved is the same.
    for one, other in zip(*(e.agent.network.parameters() for e in (simulated.expert, plain.expert)), strict=True):
        np.testing.assert_array_equal(one.detach(), other.detach())


def test_a_run_rebuilds_its_experts(simulated, tmp_path):
    asked = _plain({"command": "demo", **asdict(HABITUAL)})
    assert asked["expert_habit"] == [4.0, -1.0]
    run = Run.begin(tmp_path / "run", asked)
    simulated.expert.agent.save(run.folder / "expert.npz")
    rebuilt = run.expert
    assert rebuilt.habit.contexts == simulated.expert.habit.contexts
    np.testing.assert_array_equal(rebuilt.habit.logits, simulated.expert.habit.logits)
    np.testing.assert_array_equal(rebuilt.probabilities(simulated.test), simulated.expert.probabilities(simulated.test))
    # A folder of an earlier version does not say anything of habits: there were none.
    earlier = Run.begin(tmp_path / "earlier", {name: value for name, value in asked.items() if name != "expert_habit"})
    simulated.expert.agent.save(earlier.folder / "expert.npz")
    assert earlier.expert.habit is None


def test_a_stored_expert_comes_back_with_its_habits(simulated, tmp_path):
    stored = StoredParts(tmp_path)
    for _ in range(2):  # written, then read
        expert = stored_expert(stored, HABITUAL, lambda: simulated.expert)
        np.testing.assert_array_equal(expert.habit.logits, [[0, -1], [4, -1], [0, 3]])


def test_the_options_reach_the_settings(monkeypatch, capsys):
    asked = []
    told = ("--expert-habit", "2", "-1")
    monkeypatch.setattr(
        "irl.commands.explain.demo", lambda config, out: asked.append((config.expert_habit, config.fit.habit))
    )
    for given in ((), told, (*told, "--habit", "none", "--quick"), ("--habit", "previous")):
        assert main(["demo", *given]) == 0
    # Who simulates habits wants them found, unless something else is asked for.
    assert asked == [(None, ()), ((2.0, -1.0), ("previous",)), ((2.0, -1.0), ()), (None, ("previous",))]
    assert "expert_habit must be two finite numbers" in refused(capsys, "demo", "--expert-habit", "nan", "0")
    with pytest.raises(ValueError, match="expert_habit must be two finite numbers"):
        DemoConfig(expert_habit=(0.0, np.inf))
