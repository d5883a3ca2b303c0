"""Simulated experts who have habits: asked for, simulated, stored, and rebuilt from the folder of a run."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from sample_result import sample_result
from shown import printed_result, rows_of
from tiny_run import refused, tiny_demo, tiny_fit

from agents.expert import simulated_habit
from cirl_gym.data.habits import Contexts, Habit
from cirl_gym.data.rollout import act_along
from cirl_gym.files import StoredParts, read_arrays
from irl.checks.metrics import accuracy
from irl.commands.cli import main
from irl.commands.explain import demo
from irl.pipeline import simulate
from irl.report.section import signed
from irl.result.result import Result
from irl.result.simulated_habits import habit_logits
from irl.run import Run
from irl.settings import DemoConfig
from irl.stages import stages
from irl.stored_stages import stored_expert
from irl.whole_run import in_json

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
    asked = in_json({"command": "demo", **asdict(HABITUAL)})
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


@pytest.fixture(scope="module")
def habitual_run(tmp_path_factory):
    """Result and folder of a whole run with habits, simulated and looked for."""
    folder = tmp_path_factory.mktemp("habits")
    return demo(replace(HABITUAL, fit=tiny_fit(habit=("previous",))), folder), Run(folder)


def test_a_run_sets_the_habits_found_beside_the_truth_and_a_model_without_them(habitual_run, demo_run):
    result, run = habitual_run
    found = result.simulated_habits
    assert {name: logit.true for name, logit in found.logits.items()} == {"repeat": 4.0, "treat": -1.0}
    assert all(logit.interval[0] <= logit.found <= logit.interval[1] for logit in found.logits.values())
    assert found.kappa == pytest.approx(20.0)
    assert found.without.weights != result.weights
    assert Result.read(run.folder / "result.json") == result
    assert Result.read(demo_run / "result.json").simulated_habits is None


def test_two_policies_of_a_run(habitual_run, demo_run):
    """What the preferences alone would do, and what the experts are predicted to do: habits beside the same values."""
    result, run = habitual_run
    assert accuracy(act_along(run.policy, run.test), run.test) == pytest.approx(result.accuracy.cirl)
    draws = read_arrays(run.folder / "posterior.npz")
    theta = (draws["draws"] * draws["kappa_draws"][:, None]).mean(axis=0)
    logits = run.agent.psi(run.test, theta) @ theta
    np.testing.assert_array_equal(act_along(run.policy, run.test), np.where(run.test.mask, logits.argmax(-1), 0))
    habit = Habit(Contexts.of(run.test, ["previous"]), draws["logits"].mean(axis=0))
    likely = np.where(run.test.mask, (logits + habit.along(run.test)).argmax(axis=-1), 0)
    np.testing.assert_array_equal(act_along(run.predicted_experts, run.test), likely)
    # Without habits the most likely is the best.
    plain = Run(demo_run)
    best, predicted = (act_along(policy, plain.test) for policy in (plain.policy, plain.predicted_experts))
    np.testing.assert_array_equal(best, predicted)


def test_logits_are_read_from_draws_of_a_fitted_habit():
    """b[after 0] = (0, t - r), b[after 1] = (0, t + r) but for a number per row; the first decision tells t alone."""
    repeat, treat = np.array([1.0, 2.0, 3.0]), np.array([-1.0, -0.5, 0.0])
    draws = np.zeros((3, 3, 2))
    draws[:, 0, 1], draws[:, 1, 1], draws[:, 2, 1] = 9.0, treat - repeat, treat + repeat
    shifted = draws + np.random.default_rng(0).normal(size=(3, 3, 1))
    found = habit_logits(simulated_habit((2.5, 0.5)).logits, shifted)
    assert found["repeat"].found == pytest.approx(2.0)
    assert found["repeat"].interval == pytest.approx((1.1, 2.9))
    assert found["treat"].found == pytest.approx(-0.5)
    assert found["treat"].interval == pytest.approx((-0.95, -0.05))
    assert [found[name].holds for name in ("repeat", "treat")] == [True, False]
    # What is simulated comes back.
    true = simulated_habit((2.0, -1.0)).logits
    same = habit_logits(true, true[None])
    assert {name: (one.true, one.found) for name, one in same.items()} == {"repeat": (2, 2), "treat": (-1, -1)}
    for wrong in (true, true[None, :2], true[None][:0]):
        with pytest.raises(ValueError, match=r"must be \[M, 3, 2\]"):
            habit_logits(true, wrong)


def test_the_report_sets_both_models_beside_the_truth():
    result = sample_result()
    habits = rows_of(result, "simulated-habits", "Habits")
    assert [row[:3] for row in habits] == [
        ["repeating the action before", "+2.000", "+1.940"],
        ["treating", signed(-1.0), signed(-0.71)],
    ]
    weights = rows_of(result, "simulated-habits", "Weights with and without")
    assert [row[0] for row in weights] == [*result.features, "kappa"]
    assert weights[0][1] == signed(-0.3)
    assert weights[0][2].startswith(signed(result.weights[0]))
    assert weights[0][3].startswith(signed(-0.06))
    assert weights[2][1] == "100", "the experts' own"
    assert [cell.split("\N{NO-BREAK SPACE}")[0] for cell in weights[2][2:]] == ["96", "212.5"]
    assert "Weights with and without habits" in printed_result(result)
    assert rows_of(sample_result(3), "simulated-habits", "Habits") == []


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
