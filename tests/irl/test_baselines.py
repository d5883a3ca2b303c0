"""``cirl baselines``: the methods of one table get the same, are measured alike, and are kept when a run is stopped."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from ruled_patients import NOT_TWICE, experts
from sample_result import features_of
from shown import printed
from small_agents import tumour_batch
from small_batches import batch_of
from small_dsfn import TINY as TINY_DSFN
from tiny_run import icu_stays, refused, tiny_demo, tiny_explain, tiny_fit

from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import act_along, observation, returns, rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.baselines import methods as baselines_methods
from irl.baselines.explained import RecoveredPreferences, dropped_networks
from irl.baselines.judge import (
    FinishedRun,
    Repeating,
    habits,
    imagined_world,
    load_finished,
    restored,
    settled,
    simulator_world,
)
from irl.baselines.methods import DSFNLoopConfig, dsfn_answer, dsfn_note, quick_dsfn
from irl.checks.chances import judged_chances
from irl.checks.metrics import accuracy, majority, repeat_last_action
from irl.checks.predictors import REFERENCES
from irl.commands import baselines as baselines_command
from irl.commands import explain as commands
from irl.commands.baselines import quick_fit, stored_row
from irl.commands.cli import main
from irl.commands.options import BaselinesOptions
from irl.report.comparison import report_of_baselines
from irl.result.baselines import METHODS, PAPER, Baselines, Row, chosen_methods
from irl.result.result import Result
from irl.settings import FitConfig

DSFN = DSFNLoopConfig(TINY_DSFN, rounds=2)
SHORT = TumourParameters(horizon=6)
CALM = TumourParameters(horizon=6, tumour_noise=0.0, side_noise=0.0)
TWO = ("wbc", "lactate")
LEARNT, HABITS = ("boosting", "table"), ("majority", "repeat")


def compared(run, out, *methods, dsfn=DSFN, **changes):
    return baselines_command.command(BaselinesOptions(run, methods, out=out, **changes), dsfn)


@pytest.fixture(scope="module")
def handed():
    """(method, outcome model that the fit was handed, that of its agent) for every pipeline fit of :func:`of_demo`."""
    return []


@pytest.fixture(scope="module")
def of_demo(demo_run, tmp_path_factory, handed):
    out = tmp_path_factory.mktemp("out")
    explained, fit = baselines_methods._explained, baselines_methods.fit

    def watched_fit(study):
        found = fit(study)
        handed[-1] += (study.model, found.agent.model)
        return found

    def watched(method, *arguments):
        handed.append((method,))
        return explained(method, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines_methods, "fit", watched_fit)
        patch.setattr(baselines_methods, "_explained", watched)
        return compared(demo_run, out), out


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    frame = icu_stays()
    commands.explain(frame, tiny_explain(frame, ("temperature", *TWO), outcomes=TWO, signs={"lactate": -1}), folder)
    return folder


class Plan:
    """The same actions for every patient."""

    def __init__(self, actions):
        self.actions = actions

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        step = 0 if state is None else int(state[0][0])
        return np.full(len(observation), self.actions[step]), (np.array([step + 1]),)


def best_in_hindsight() -> float:
    """Return of who knows the noise of the 500 patients before it comes, which nobody can exceed: of all 64 plans."""
    phi = SHORT.feature_map
    earned = [
        returns(rollout(TumourWorld(SHORT), Plan(plan), 500, np.random.default_rng([0, 1])), phi, [-0.3, -0.7])
        for plan in itertools.product(range(2), repeat=6)
    ]
    return float(np.max(earned, axis=0).mean())


def by_method(found: Baselines) -> dict[str, Row]:
    return {row.method: row for row in found.rows}


class TestJudging:
    def test_habits_by_hand(self):
        # Actions 1 0 1 and 0 1: 1 is taken three times of five; of the two first ones 0 is the first of equals.
        train = batch_of([1, 0, 1], [0, 1])
        always, again = habits(train).values()
        assert act_along(always, train).tolist() == [[1, 1, 1], [1, 1, 0]]
        assert act_along(again, train).tolist() == [[0, 1, 0], [0, 0, 0]]
        assert accuracy(act_along(always, train), train) == pytest.approx((2 / 3 + 1 / 2) / 2)
        assert accuracy(act_along(again, train), train) == pytest.approx((0 + 1 / 2) / 2)

    @pytest.mark.parametrize(
        ("rules", "train", "test", "usual", "repeated"),
        [
            # Always a1 unless it was just done; a0 is the most frequent first action.
            (("a1 when After(a1)",), [[0, 1, 0, 1], [0, 1, 2, 1], [1, 0, 1]], [[1, 0, 0], [2, 1, 2]],
             [[1, 0, 1], [1, 1, 0]], [[0, 0, 0], [0, 2, 0]]),
            # a1 is allowed from the third episode on alone, and is usual there; a0 is forbidden in the fourth.
            (("a1 when Below(x, 15)", "a0 when Above(x, 29)"), [[0, 0, 2], [0, 0, 2, 2], [1, 1, 0]],
             [[0, 0], [2, 2], [2, 0], [2, 1]], [[0, 0], [0, 0], [1, 1], [1, 1]], [[0, 0], [0, 2], [0, 2], [1, 2]]),
            # An episode that forbids the usual action changes no habit.
            (("a0 when Below(x, 5)",), *[[[2, 1], [0, 0, 0], [0, 0, 2]]] * 2, *[[[2, 2, 0], [0, 0, 0], [0, 0, 0]]] * 2),
        ],
    )  # fmt: skip
    def test_habits_among_allowed_actions(self, rules, train, test, usual, repeated):
        rules = read_rules(rules, ("x", "y"), ("a0", "a1", "a2"))
        train, test = (rules.masked(batch_of(*actions, n_actions=3)) for actions in (train, test))
        assert [act_along(policy, test).tolist() for policy in habits(train, rules).values()] == [usual, repeated]
        assert {type(policy).__name__ for policy in habits(replace(train, allowed=None)).values()} == {"Repeating"}

    @pytest.mark.parametrize("seed", range(5))
    def test_habits_are_those_of_appendix_h(self, seed):
        chances = np.random.default_rng(seed).dirichlet([1, 1], size=5)
        ruled = [experts(NOT_TWICE, chances, 20, 2 * seed + part, steps=8) for part in (0, 1)]
        free = [batch_of(*a, n_actions=3) for a in (([0, 2, 1, 1], [2, 2, 1]), ([1, 1, 2], [0]))]
        for rules, train, test in ((NOT_TWICE, *ruled), (None, *free)):
            for policy, chosen in zip(habits(train, rules).values(), (majority, repeat_last_action), strict=True):
                np.testing.assert_array_equal(act_along(policy, test)[test.mask], chosen(train, test)[test.mask])
                assert accuracy(act_along(policy, test), test) == accuracy(chosen(train, test), test)

    @pytest.mark.parametrize("world", [simulator_world, imagined_world])
    def test_gaps_by_hand(self, world):
        """Patients who were never treated; without noise, and with a gamma of 0 only the first outcome counts."""
        seen = tumour_batch(CALM, 0.0, episodes=30)
        phi = CALM.feature_map
        if world is simulator_world:
            found = world(CALM, seen, phi, 0.0)
        else:
            found = world(OracleModel(CALM), seen, phi, 0.0, CALM.horizon)
        never, always = (found.mu(Repeating(action, 2, False), np.random.default_rng(0)) for action in (0, 1))
        z = seen.start[:, 1].astype(np.float64)
        by_hand = [-2.5 / 50, (np.maximum(z - 1.5, 0) - np.maximum(z - 2.5, 0)).mean() / 15]
        np.testing.assert_allclose(found.mu_expert, never, rtol=1e-6)
        np.testing.assert_allclose(always - never, by_hand, atol=1e-6)

    def test_everybody_has_the_same_patients_and_noise(self, demo_run):
        run = load_finished(demo_run)
        first, second = (run.measured(Repeating(0, 2, False)) for _ in range(2))
        assert first == second
        never = run.earned(run.truth, Repeating(0, 2, False))
        played = rollout(TumourWorld(SHORT), Repeating(0, 2, False), 500, np.random.default_rng([0, 1]))
        by_hand = [
            float((np.array([-0.3, -0.7]) * played.obs[i, 1 : n + 1] / [50, 15]).sum())
            for i, n in enumerate(played.lengths)
        ]
        np.testing.assert_allclose(never, by_hand, rtol=1e-6)
        assert first["return_"] == pytest.approx(np.mean(by_hand))
        assert first["return_error"] == pytest.approx(np.std(by_hand, ddof=1) / np.sqrt(500))
        ahead = run.earned(run.truth, run.truth.expert) - never
        assert first["behind"] == pytest.approx(ahead.mean())
        assert first["behind_error"] == pytest.approx(ahead.std(ddof=1) / np.sqrt(500))

    def test_weights_against_the_truth_by_hand(self, demo_run):
        run = load_finished(demo_run)
        assert run.against_truth(np.array([-0.25, -0.75])) == {"weight_error": pytest.approx(0.05), "right_order": True}
        assert run.against_truth(np.array([-0.7, -0.3])) == {"weight_error": pytest.approx(0.4), "right_order": False}
        assert run.against_truth(None) == {}


def test_a_simulated_run_in_one_table_agrees_with_the_run_itself(of_demo, demo_run):
    found, out = of_demo
    rows = by_method(found)
    assert tuple(rows) == (*PAPER, "expert", *LEARNT, *HABITS)
    written = json.loads((out / "baselines.json").read_text())
    assert written == found.as_dict()
    assert written["rows"][0]["return"] == rows["cirl"].return_
    assert (found.true_weights, found.gap_in) == ((-0.3, -0.7), "the simulator")
    assert found.episodes == {"train": 65, "validation": 7, "test": 20, "patients": 500}
    for name in ("cirl", "oracle", "mb_h", "mb_x", "dsfn", "dsfn_h"):
        row = rows[name]
        if row.weights is None:
            assert name.startswith("dsfn")
            assert "there are no weights" in row.note
            continue
        assert sum(map(abs, row.weights)) == pytest.approx(1)
        assert row.weight_error == pytest.approx(abs(row.weights[0] + 0.3))
        assert row.right_order == (row.weights[1] < row.weights[0])
        assert (row.intervals is None) == name.startswith("dsfn")
        assert row.note.startswith("loop: ")
    for row in rows.values():
        assert 0 <= row.accuracy <= 1
        if row.method in LEARNT:
            assert row.mu_gap is row.return_ is None
            continue
        assert row.mu_gap >= 0
        assert row.return_ < 0
        assert row.behind == pytest.approx(rows["expert"].return_ - row.return_)
    assert {name: row.model for name, row in rows.items() if row.model} == {
        "cirl": "ar", "oracle": "simulator", "mb_h": rows["mb_h"].model, "mb_x": rows["mb_x"].model,
        "expert": "simulator",
    }  # fmt: skip
    for name in ("mb_h", "mb_x"):
        assert (rows[name].model, f"no network ({name}) improved" in rows[name].note) in ((name, False), ("ar", True))
    assert [name for name, row in rows.items() if not row.memory] == ["mb_x", "dsfn", "majority"]
    assert max(row.return_ for row in rows.values() if row.return_) < best_in_hindsight()
    assert rows["cloning"].weights is None
    assert rows["majority"].seconds is None
    assert "weak evidence" in " ".join(found.notes)
    result = Result.read(demo_run / "result.json")
    assert rows["majority"].accuracy == pytest.approx(result.accuracy.majority)
    assert rows["repeat"].accuracy == pytest.approx(result.accuracy.repeat_last_action)
    assert rows["expert"].return_ == pytest.approx(result.returns["expert"].mean)
    assert rows["expert"].return_error == pytest.approx(result.returns["expert"].standard_error)
    assert found.ceiling == pytest.approx(result.accuracy.ceiling)
    assert (rows["expert"].behind, rows["expert"].behind_error) == (0.0, 0.0)
    treats = np.bincount(Batch.load(demo_run / "batch.npz").actions.ravel()).argmax()
    expected = result.returns["always" if treats else "never"].mean
    assert rows["majority"].return_ == pytest.approx(expected)


def test_the_row_of_cirl_is_the_runs_own(of_demo, demo_run):
    row, result = by_method(of_demo[0])["cirl"], Result.read(demo_run / "result.json")
    assert (row.weights, row.intervals) == (result.weights, result.intervals)
    assert row.accuracy == pytest.approx(result.accuracy.cirl)
    assert row.return_ == pytest.approx(result.returns["cirl"].mean)
    said = result.likelihood
    assert row.scores == said.scores["cirl"]
    assert (row.scores.decisions, row.scores.patients) == (said.decisions, said.patients)
    for name, one in said.scores.items():
        whole = getattr(said, name)
        assert (one.log_likelihood.value, one.accuracy.value) == pytest.approx((whole.mean, whole.accuracy))
        assert one.log_likelihood.standard_error == pytest.approx(whole.standard_error)
    assert of_demo[0].cross_validated == {}


def test_every_row_is_judged_by_the_same_decisions(of_demo, demo_run):
    rows, result = by_method(of_demo[0]), Result.read(demo_run / "result.json").likelihood
    without = {name for name, row in rows.items() if row.scores is None}
    assert without == {"dsfn", "dsfn_h", "repeat"}
    assert len({row.scores.decisions for name, row in rows.items() if name not in without}) == 1
    expert, often = rows["expert"].scores.log_likelihood, rows["majority"].scores.log_likelihood
    assert (expert.value, expert.standard_error) == pytest.approx((result.expert.mean, result.expert.standard_error))
    assert often.value == pytest.approx(result.frequencies.mean)
    assert rows["majority"].scores.auroc.value == 0.5
    run = load_finished(demo_run)
    for name in LEARNT:
        logs = REFERENCES[name](run.train, run.seed).log_probabilities(run.test)
        assert rows[name].accuracy == accuracy(logs.argmax(axis=2), run.test)
        assert rows[name].scores == run.scores(lambda batch, logs=logs: logs[: len(batch)])


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_networks_that_were_dropped_are_counted(kept):
    def learnt(correction):
        model = LearnedModel.__new__(LearnedModel)
        model.correction = correction
        return model

    members = [learnt("a network" if number < kept else None) for number in range(2)]
    ensemble = EnsembleModel.__new__(EnsembleModel)
    ensemble.members = tuple(members)
    assert dropped_networks(ensemble, "mb_h") == (2 - kept, 2)
    assert dropped_networks(ensemble, "ar") == (0, 0)
    assert dropped_networks(members[0], "crn") == (int(kept == 0), 1)


def test_the_control_alone_gets_the_simulator(of_demo, handed):
    assert [method for method, _, _ in handed] == ["oracle", "mb_h", "mb_x"]
    for method, model, world in handed:
        assert (model is None) == (method != "oracle"), "what the fit was handed in place of step 4"
        assert isinstance(world, OracleModel) == (method == "oracle"), "where it found its policies"
    rows = by_method(of_demo[0])
    assert rows["oracle"].weights != rows["cirl"].weights
    with pytest.raises(ValueError, match="needs the simulator"):
        baselines_methods.solve("oracle", None, DSFN)


def test_the_order_of_methods_and_which_others_are_asked_for_change_nothing(of_demo, demo_run, tmp_path):
    rows = by_method(compared(demo_run, tmp_path, "dsfn", "mb_x"))
    before = by_method(of_demo[0])
    for name in ("dsfn", "mb_x"):
        assert structs.replace(rows[name], seconds=None) == structs.replace(before[name], seconds=None)
    other = by_method(compared(demo_run, tmp_path, "mb_x", seed=7))
    assert other["mb_x"].weights != rows["mb_x"].weights
    assert other["majority"] == before["majority"]


def test_rewards_of_their_own_are_read_as_weights(demo_run, tmp_path, capsys):
    found = compared(demo_run, tmp_path, "avril", "iq_learn", "cloning")
    rows, shown = by_method(found), " ".join(capsys.readouterr().out.split())
    for name in ("avril", "iq_learn"):
        row = rows[name]
        assert sum(map(abs, row.weights)) == pytest.approx(1)
        assert (row.model, row.memory, row.intervals) == (None, True, None)
        assert 0 <= row.reward_explained < 1
        assert f"the outcomes explains {100 * row.reward_explained:.0f} % of its own reward" in shown
        assert row.scores.log_likelihood.value > np.log(0.5)
        assert row.behind == pytest.approx(rows["expert"].return_ - row.return_)
        assert name not in PAPER
    assert rows["cloning"].reward_explained is None


def test_a_table_has_no_oracle_and_no_returns(table_run, tmp_path, capsys):
    found = compared(table_run, tmp_path, "cirl", "dsfn_h", "cloning")
    assert "return" not in capsys.readouterr().out
    rows = by_method(found)
    assert tuple(rows) == ("cirl", "dsfn_h", "cloning", *LEARNT, *HABITS)
    assert found.features == TWO
    assert (found.true_weights, found.ceiling) == (None, None)
    assert found.gap_in == "the run's own world model"
    for row in rows.values():
        assert row.return_ is row.behind is row.weight_error is row.right_order is None
        assert row.method in LEARNT or np.isfinite(row.mu_gap)
    assert rows["cirl"].weights[1] <= 0, "the run was told the sign of lactate"
    assert rows["dsfn_h"].weights[1] <= 0
    assert "oracle" not in chosen_methods((), simulated=False)
    assert "oracle asks the simulator" in refused(capsys, "baselines", table_run, "--methods", "oracle")


class Killed(BaseException):
    """Not an Exception, so that no handler can swallow it."""


class TestRows:
    def test_a_run_that_is_stopped_goes_on(self, of_demo, demo_run, tmp_path, monkeypatch):
        solve = baselines_command.solve
        solved = []

        def killed_at_the_third(method, *arguments):
            if len(solved) == 2:
                raise Killed
            solved.append(method)
            return solve(method, *arguments)

        methods = ("mb_x", "cloning", "dsfn")
        monkeypatch.setattr(baselines_command, "solve", killed_at_the_third)
        (tmp_path / "baselines.json").write_text("of an older call")
        with pytest.raises(Killed):
            compared(demo_run, tmp_path, *methods)
        assert not (tmp_path / "baselines.json").exists()
        assert {path.name for path in (tmp_path / "rows").iterdir()} == {"mb_x.json", "cloning.json"}
        before = json.loads((tmp_path / "rows" / "mb_x.json").read_text())["row"]["seconds"]

        solved.clear()
        found = compared(demo_run, tmp_path, *methods)
        assert solved == ["dsfn"]
        rows, whole = by_method(found), by_method(of_demo[0])
        assert rows["mb_x"].seconds == before
        for method in methods:
            assert structs.replace(rows[method], seconds=None) == structs.replace(whole[method], seconds=None)

    def test_a_row_is_only_taken_for_the_same_settings(self, of_demo, demo_run, tmp_path, monkeypatch):
        solved = []

        def noted(method, given, *arguments):
            solved.append(method)
            raise ValueError("not today")

        monkeypatch.setattr(baselines_command, "solve", noted)
        monkeypatch.setattr(baselines_command, "_references", lambda *arguments: [])

        def asked(run, **changes):
            """Which methods are made anew, by a call whose folder holds all rows of an earlier one."""
            out = tmp_path / "out"
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(of_demo[1], out)
            solved.clear()
            try:
                compared(run, out, **changes)
            except ValueError as error:
                assert "not today" in str(error)  # noqa: PT017
            return solved.copy()

        assert asked(demo_run) == []
        assert asked(demo_run, seed=1) == list(PAPER[1:]), "the first is the run itself"
        # The copy's settings and DSFN's are their own.
        assert asked(demo_run, dsfn=replace(DSFN, rounds=3)) == ["dsfn", "dsfn_h"]
        assert "cloning" in asked(demo_run, quick=True)
        copied = tmp_path / "run"
        shutil.copytree(demo_run, copied)
        assert asked(copied) == []
        with monkeypatch.context() as patch:
            patch.setattr(baselines_command, "code_digest", lambda: "of another version")
            assert asked(copied) == list(PAPER[1:])
        batch = Batch.load(copied / "batch.npz")
        batch.take(np.arange(len(batch) - 1)).save(copied / "batch.npz")
        assert asked(copied) == list(PAPER[1:])

    def test_only_a_whole_row_is_taken(self, of_demo, tmp_path):
        path = tmp_path / "cloning.json"
        whole = (of_demo[1] / "rows" / "cloning.json").read_text()
        settings = json.loads(whole)["settings"]
        path.write_text(whole)
        assert stored_row(path, "cloning", settings) == by_method(of_demo[0])["cloning"]
        assert stored_row(path, "cloning", settings | {"seed": 5}) is None
        assert stored_row(tmp_path / "absent.json", "cloning", settings) is None
        renamed = json.dumps(json.loads(whole) | {"row": json.loads(whole)["row"] | {"method": "ar"}})
        for damaged in ("", whole[:100], "[]", '{"schema": 1}', whole.replace('"accuracy"', '"acuracy"'), renamed):
            path.write_text(damaged)
            assert stored_row(path, "cloning", settings) is None

    def test_a_method_that_fails_says_so_and_the_others_go_on(self, demo_run, tmp_path, monkeypatch, capsys):
        solve = baselines_command.solve

        def half(method, *arguments):
            if method == "dsfn":
                raise ValueError("it did not stay finite")
            if method == "mb_x":
                raise RuntimeError("a bug")
            return solve(method, *arguments)

        monkeypatch.setattr(baselines_command, "solve", half)
        asked = ("baselines", str(demo_run), "--methods", "dsfn", "mb_x", "cloning", "--out", str(tmp_path))
        assert main([*asked]) == 2
        told = capsys.readouterr()
        assert "2 of 3 methods failed (dsfn: it did not stay finite; mb_x: a bug)" in told.err
        assert "RuntimeError" in told.err, "what nobody expected leaves its traceback"
        assert "DSFN: failed: it did not stay finite." in told.out
        rows = {row["method"]: row for row in json.loads((tmp_path / "baselines.json").read_text())["rows"]}
        assert rows["dsfn"]["error"] == "it did not stay finite"
        assert rows["dsfn"]["accuracy"] is rows["dsfn"]["weights"] is None
        assert rows["cloning"]["error"] is None
        assert rows["cloning"]["accuracy"] > 0
        assert {path.name for path in (tmp_path / "rows").iterdir()} == {"cloning.json"}, "a failure is tried again"


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--methods", "cirl", "sing"], "'sing' is not a method; the methods are cirl, oracle, mb_h"),
            (["--methods", "cirl", "cirl"], "a name is there twice"),
            (["--seed", "-1"], "seed must not be negative"),
        ],
    )
    def test_options(self, arguments, words, demo_run, tmp_path, capsys):
        out = tmp_path / "out"
        assert words in refused(capsys, "baselines", demo_run, *arguments, "--out", out)
        assert not out.exists()

    @pytest.mark.parametrize("lost", ["result.json", "config.json", "batch.npz", "test.npz", "expert.npz"])
    def test_a_folder_that_lacks_a_file(self, lost, demo_run, tmp_path, capsys):
        folder = tmp_path / "run"
        shutil.copytree(demo_run, folder)
        (folder / lost).unlink()
        told = refused(capsys, "baselines", folder)
        assert "is not the folder of a whole run" in told
        assert lost in told
        assert not (folder / "rows").exists()

    def test_other_folders(self, table_run, demo_run, tmp_path, capsys):
        assert "nothing is not the folder of a whole run" in refused(capsys, "baselines", tmp_path / "nothing")
        folder = tmp_path / "run"
        shutil.copytree(table_run, folder)
        (folder / "outcome_model.npz").unlink()
        assert "outcome_model.npz" in refused(capsys, "baselines", folder)
        shutil.copy(demo_run / "config.json", folder / "config.json")
        assert "is not the folder of a whole run" in refused(capsys, "baselines", folder)
        config = json.loads((demo_run / "config.json").read_text())
        shutil.rmtree(folder)
        shutil.copytree(demo_run, folder)
        for content, words in (
            (config | {"command": "sing"}, "not the configuration of cirl demo or cirl explain"),
            (config | {"fit": {"gamme": 0.9}}, "fit has a field 'gamme' that this version does not know"),
            ({name: value for name, value in config.items() if name != "kappa"}, "lacks 'kappa'"),
        ):
            (folder / "config.json").write_text(json.dumps(content))
            assert words in refused(capsys, "baselines", folder)


def test_a_weight_that_the_run_does_not_interpret_is_named():
    of = partial(RecoveredPreferences, "ar", None, None, np.ones(2), np.ones(2), {}, 3, "converged")
    assert "not interpreted: the weight of x, y (the run says why)" in of(uninterpreted=("x", "y")).row("cirl").note
    assert "interpreted" not in of().row("cirl").note


def test_drawn_weights_are_not_an_answer():
    def said(rounds, *, warm, best, imitation="imitation"):
        found = SimpleNamespace(
            loop=SimpleNamespace(rounds=[None] * rounds, stop="enough"),
            warm_start=warm,
            best=best,
            imitation=None if imitation is None else SimpleNamespace(policy=imitation),
            already_matched=imitation is not None and not warm,
            policy="of round K",
            weights="w_K",
        )
        return *dsfn_answer(found), dsfn_note(found)

    assert said(3, warm=True, best=1) == ("of round K", "w_K", "loop: 3 rounds, a round changed little")
    policy, weights, note = said(2, warm=False, best=1)
    assert (policy, weights) == ("of round K", "w_K")
    assert note.endswith("left nothing to explain, so it began with drawn weights")
    policy, weights, note = said(1, warm=False, best=0)
    assert (policy, weights) == ("imitation", None)
    assert note.startswith("loop: 1 round, a round changed little; already matched: ")
    assert note.endswith("there are no weights, and the policy is the imitation")
    policy, weights, note = said(1, warm=False, best=0, imitation=None)
    assert (policy, weights) == ("of round K", None)
    assert note.endswith("there are no weights")
    assert "already matched" not in note


def test_settings_of_the_run_come_back_are_settled_and_quick(demo_run):
    saved = json.loads((demo_run / "config.json").read_text())["fit"]
    assert restored(FitConfig(), saved, "fit") == tiny_fit()
    assert restored(FitConfig(), {"rounds": 7}, "fit") == FitConfig(rounds=7)
    asked = tiny_fit(gamma=0.9, choose_gamma=(0.5, 0.9), windows=(0, 3))
    assert settled(asked, 0.5) == tiny_fit(gamma=0.5)
    assert settled(asked, None) == tiny_fit(gamma=0.9)
    # Quick keeps the outcome model of the run.
    run = tiny_fit(model="crn", outcome=replace(tiny_fit().outcome, relative=("x",), members=3))
    quick = quick_fit(run)
    assert (quick.model, quick.outcome.relative, quick.outcome.members) == ("crn", ("x",), 1)
    assert quick_dsfn(DSFNLoopConfig()).rounds == 5
    assert quick_dsfn(DSFN) == DSFN, "what is less work already stays as it is"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "sing"}, "method must be one of"),
        ({"weights": (0.5, -1.1)}, "between -1 and 1"),
        ({"weights": (0.0, 0.0)}, "not all 0"),
        ({"accuracy": 1.1}, r"Row\.accuracy: Expected float <= 1\.0, got 1\.1"),
        ({"mu_gap": -0.1}, r"Row\.mu_gap: Expected float >= 0\.0, got -0\.1"),
        ({"behind": np.nan}, "finite"),
        ({"intervals": {"a": (1.0, 0.0)}}, r"Row\.intervals\[a\] must be"),
        ({"memory": 1}, r"Row\.memory: Expected bool, got int"),
        ({"error": "why", "accuracy": 0.5}, "it failed, and yet it has accuracy"),
    ],
)
def test_rows_check_what_they_promise(changes, message):
    with pytest.raises(ValueError, match=message):
        Row(**({"method": "cirl"} | changes))


def whole_table(d: int, truth: bool) -> Baselines:
    names = features_of(d)
    w = np.full(d, -1 / d)
    measured = {"mu_gap": 0.1, "accuracy": 0.5}
    each = measured | {"model": "crn", "memory": True, "weights": w, "intervals": dict.fromkeys(names, (-1.0, 0.0))}
    each |= {"seconds": 3661.0, "note": "loop: [red] rounds"}
    known = {"true_weights": w if truth else None, "ceiling": 0.9 if truth else None}
    if truth:
        each |= {"return_": -2.5, "return_error": 0.05, "behind": 0.1, "behind_error": 0.01}
        each |= {"weight_error": 0.1234, "right_order": True}
    rows = (*(Row(method=name, **each) for name in METHODS), Row(method="majority", **measured))
    about = {"run": "[b]run", "gap_in": "the simulator", "episodes": {"train": 1, "validation": 1, "test": 1}}
    return Baselines(features=names, seed=0, quick=False, rows=rows, notes=("A note.",), **about, **known)


@pytest.mark.parametrize(("d", "truth"), [(2, True), (15, False)])
def test_what_is_printed_fits_and_is_never_markup(d, truth):
    found = whole_table(d, truth)
    text = printed(report_of_baselines(found), width=80)
    assert "loop: [red] rounds" in text
    assert max(map(len, text.splitlines())) <= 80
    for name in (*METHODS.values(), "most frequent"):
        assert name in text
    assert ("0.123" in text) == truth
    assert ("and 9 smaller" in text) == (d == 15)
    assert ("± 0.050" in text) == truth


def test_policies_that_do_the_same_are_named():
    found = whole_table(2, False)
    apart = structs.replace(found, rows=tuple(structs.replace(r, mu_gap=0.1 + i) for i, r in enumerate(found.rows)))
    told = printed(report_of_baselines(found), width=2000)
    assert "apart: in the simulator their policies do the same." in told
    assert "The mu gap does not tell" not in printed(report_of_baselines(apart), width=2000)


def test_accounts_of_all_patients_have_a_table_of_their_own():
    batch, rng = batch_of([1, 0, 0], [0, 1]), np.random.default_rng(0)
    good, poor = (judged_chances(np.log(chances), batch, rng) for chances in ([0.6, 0.4], [0.1, 0.9]))
    table = whole_table(2, True)
    rows = tuple(structs.replace(row, scores=poor if row.method == "cloning" else None) for row in table.rows)
    own = structs.replace(table, rows=rows, cross_validated={"cirl": poor, "habit": good, "chance": poor})
    text = printed(report_of_baselines(own), width=80)
    first, second = text.split("Decisions foreseen, ")[1:]
    assert first.startswith("every patient's from others (5 of 2 patients)")
    assert first.index("habit alone") < first.index("CIRL")
    assert "chance" not in first
    held_out = second.split("Policies")[0]
    assert held_out.index("behaviour") < held_out.index("MB(h)-IRL")
    assert "CIRL" not in held_out, "its own row is of other decisions"
    assert own.as_dict()["cross_validated"]["habit"]["decisions"] == 5


def test_a_table_checks_what_it_promises():
    found = whole_table(2, True)
    with pytest.raises(ValueError, match="a method has two rows"):
        structs.replace(found, rows=(*found.rows, found.rows[0]))
    with pytest.raises(ValueError, match="row cirl: not of 3 features"):
        structs.replace(found, features=("a", "b", "c"), true_weights=None)
    with pytest.raises(ValueError, match="true_weights must be 2 numbers"):
        structs.replace(found, true_weights=(1.0,))


FORBID = ("1 when Above(side_effects, 1.5)", "0 when After(1) and Above(tumour, 9)")


@pytest.fixture(scope="module")
def ruled_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    commands.demo(tiny_demo(fit=tiny_fit(forbid=FORBID)), folder)
    return folder


class TestRules:
    def test_no_method_does_what_is_forbidden(self, ruled_run, tmp_path, monkeypatch):
        judged, measured = [], FinishedRun.measured

        def watched(loaded, policy):
            judged.append(policy)
            return measured(loaded, policy)

        monkeypatch.setattr(FinishedRun, "measured", watched)
        found = compared(ruled_run, tmp_path, *PAPER, "avril", "iq_learn")
        assert not found.failed
        assert [row.method for row in found.rows] == [*PAPER, "avril", "iq_learn", "expert", *LEARNT, *HABITS]
        acting = [row for row in found.rows if row.method not in LEARNT]
        assert len(judged) == len(acting)
        loaded = load_finished(ruled_run)
        rules, shared = loaded.rules, loaded.world
        assert [rule.name for rule in rules.rules] == list(FORBID)
        assert not loaded.test.allowed.all()
        everything = np.random.default_rng(0).normal(size=(2000, 2)) * [6, 2] + [8, 2]
        seen = observation(everything.astype(np.float32), np.full(2000, -1), 2)
        for row, policy in zip(acting, judged, strict=True):
            chosen = act_along(policy, loaded.test)
            assert np.take_along_axis(loaded.test.allowed, chosen[..., None], axis=2).all(), row.method
            played = rollout(shared.world, policy, len(shared.start[1]), np.random.default_rng(0), start=shared.start)
            assert rules.masked(played).n_steps > 0, row.method
            begun, _ = policy.predict(seen, None, np.full(2000, True), True)
            assert rules.allowed_next(seen)[np.arange(2000), begun].all(), row.method
        assert f"No method's policy does what is forbidden: {'; '.join(FORBID)}." in found.notes

    def test_a_folder_whose_rules_and_episodes_do_not_belong_together(self, ruled_run, tmp_path):
        copy = tmp_path / "run"
        shutil.copytree(ruled_run, copy)
        train = Batch.load(copy / "batch.npz")
        replace(train, allowed=None).save(copy / "batch.npz")
        with pytest.raises(ValueError, match=r"is not the folder of a whole run: .*belong together"):
            load_finished(copy)
        train.save(copy / "batch.npz")
        assert load_finished(copy).rules is not None
        settings = json.loads((copy / "config.json").read_text())
        settings["fit"]["forbid"] = []
        (copy / "config.json").write_text(json.dumps(settings))
        with pytest.raises(ValueError, match=r"is not the folder of a whole run: .*belong together"):
            load_finished(copy)
